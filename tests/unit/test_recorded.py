"""A recording stands in for a device: its space, its builds, its measurements."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tilewright.builder import BuildRequest
from tilewright.errors import LogDamaged, LogError, SpaceError, UsageError
from tilewright.job import Job, MeasureJob
from tilewright.log import TuningLog
from tilewright.points import SearchSpace
from tilewright.record import Check, KnobInfo, Line, Measurement, Record, RecordedSpace, Resources, Status, Value, VendorRecord
from tilewright.recorded import Recording
from tilewright.recorded_space import NOT_RECORDED, RecordedSearchSpace
from tilewright.target import Toolchain, named_target
from tilewright.template import Source
from tilewright.workload import Workload

TARGET = named_target("sm_90")
TOOLCHAIN = Toolchain(triton="3.6.0")
SMALL = Workload(operator="toy", dims={"M": 16}, dtypes={"dtype": "float16"})
LARGE = Workload(operator="toy", dims={"M": 4096}, dtypes={"dtype": "float16"})
Config = dict[str, Value]

# A space as a template would declare it: `parts` exists under split-K alone.
KNOBS = [
    KnobInfo(name="schedule", candidates=["plain", "split_k"]),
    KnobInfo(name="tile", candidates=[16, 32, 64]),
    KnobInfo(name="parts", candidates=[[1, 2], [1, 4]]),
    KnobInfo(name="warps", candidates=[4]),
]
CONFIGS: list[Config] = [
    {"schedule": "split_k", "tile": 64, "parts": [1, 4], "warps": 4},
    {"schedule": "plain", "tile": 32, "warps": 4},
    {"schedule": "split_k", "tile": 16, "parts": [1, 2], "warps": 4},
    {"schedule": "plain", "tile": 16, "warps": 4},
    {"schedule": "split_k", "tile": 16, "parts": [1, 4], "warps": 4},
]
IN_ORDER = [CONFIGS[3], CONFIGS[1], CONFIGS[2], CONFIGS[4], CONFIGS[0]]


def record(config: Config, median_us: float | None = 5.0, workload: Workload = SMALL, **changes: Any) -> Record:
    measurement = Measurement(protocol="recorded/1", median_us=median_us, min_us=median_us, max_us=median_us) if median_us else None
    fields: dict[str, Any] = {"status": Status.OK if median_us else Status.CRASH, "message": "" if median_us else "died", "measurement": measurement}
    fields |= {"session": "r", "trial": 0, "target": TARGET, "toolchain": TOOLCHAIN}
    return Record(workload=workload, config=config, **{**fields, **changes})


def lines(records: Iterable[Record]) -> list[Line]:
    vendor = VendorRecord(
        session="r",
        name="cublas",
        workload=SMALL,
        target=TARGET,
        status=Status.OK,
        measurement=Measurement(protocol="recorded/1", median_us=4.0, min_us=4.0, max_us=4.0),
    )
    return [RecordedSpace(session="r", operator="toy", knobs=KNOBS), vendor, *records]


def space(configs: Iterable[Mapping[str, Value]] = CONFIGS, default: Config | None = None) -> RecordedSearchSpace:
    made = RecordedSearchSpace(KNOBS, configs, default)
    checked: SearchSpace = made
    assert checked is made
    return made


def follow(config: Mapping[str, Value]) -> Any:
    return lambda knob: config.get(knob.name, knob.values[0])


def job(source: Source, workload: Workload = SMALL) -> MeasureJob:
    return MeasureJob(operator="toy", folder=Path("."), workload=workload, source=source)


def test_knobs_say_whether_their_candidates_have_an_order() -> None:
    assert [(knob.name, knob.kind, knob.ordered) for knob in space().knobs] == [
        ("schedule", "knob", False),
        ("tile", "knob", True),
        ("parts", "split", True),
        ("warps", "knob", True),
    ]
    words = RecordedSearchSpace([KnobInfo(name="order", candidates=[["m", "n"], ["n", "m"]])], [{"order": ["n", "m"]}])
    assert [(knob.kind, knob.ordered) for knob in words.knobs] == [("knob", False)]


def test_configs_are_enumerated_in_the_order_of_candidates_whatever_the_order_of_records() -> None:
    for seed in range(5):
        shuffled = random.Random(seed).sample(CONFIGS, len(CONFIGS))
        made = space({name: config[name] for name in reversed(list(config))} for config in shuffled)
        assert list(made.enumerate()) == IN_ORDER
        assert [list(config) for config in made.enumerate()] == [list(config) for config in IN_ORDER]
    assert space()[1] == IN_ORDER[1]
    assert (space().size_bound(), len(space())) == (5, 5)


def test_a_walk_meets_the_knobs_that_recorded_configs_have() -> None:
    for config in CONFIGS:
        evaluation = space().evaluate(follow(config))
        assert evaluation.config == config
        assert list(evaluation.config) == list(config)
        assert evaluation.violations == ()


@pytest.mark.parametrize(
    ("chosen", "reached"),
    [
        ({"schedule": "plain", "tile": 64}, ["schedule", "tile", "warps"]),
        ({"schedule": "split_k", "tile": 32, "parts": [1, 2]}, ["schedule", "tile", "parts", "warps"]),
        ({"schedule": "split_k", "tile": 64, "parts": [1, 2]}, ["schedule", "tile", "parts", "warps"]),
    ],
)
def test_a_point_that_was_not_recorded_is_refused_after_its_last_knob(chosen: Config, reached: list[str]) -> None:
    evaluation = space().evaluate(follow(chosen))
    assert evaluation.violations == (NOT_RECORDED,)
    assert list(evaluation.config) == reached
    assert {name: evaluation.config[name] for name in chosen} == chosen


def test_a_value_that_is_no_candidate_is_an_error() -> None:
    with pytest.raises(SpaceError, match="48"):
        space().evaluate(follow({"tile": 48}))


def test_validate_explains() -> None:
    made = space()
    assert made.validate(dict(reversed(CONFIGS[0].items()))) == CONFIGS[0]
    with pytest.raises(SpaceError, match=r"unknown knob 'tiel'; did you mean 'tile'"):
        made.validate({"schedule": "plain", "tiel": 16})
    with pytest.raises(SpaceError, match="lacks knob 'warps'"):
        made.validate({"schedule": "plain", "tile": 16})
    with pytest.raises(SpaceError, match="48 is no candidate"):
        made.validate({**CONFIGS[1], "tile": 48})
    with pytest.raises(SpaceError, match="'parts' is not reached"):
        made.validate({**CONFIGS[1], "parts": [1, 2]})
    with pytest.raises(SpaceError, match="not in the recording, which has 5 configs"):
        made.validate({**CONFIGS[1], "tile": 64})


def test_counts_are_of_points_where_no_knob_is_conditional() -> None:
    plain = [config for config in CONFIGS if config["schedule"] == "split_k"]
    count = space(plain).count()
    assert (count.legal, count.points, dict(count.rejected), dict(count.cuts)) == (3, 12, {NOT_RECORDED: 9}, {})
    conditional = space().count()
    assert (conditional.legal, conditional.points, dict(conditional.rejected)) == (5, None, {})


def test_samples_are_drawn_with_replacement_and_reproduce() -> None:
    drawn = space().sample(400, random.Random(3))
    assert drawn == space().sample(400, random.Random(3))
    counts = [drawn.count(config) for config in IN_ORDER]
    assert sum(counts) == 400
    assert min(counts) > 40


def test_the_default_is_the_recorded_one_else_the_middle_of_ordered_knobs() -> None:
    assert space().default() == {"schedule": "plain", "tile": 32, "warps": 4}
    assert space(default=CONFIGS[0]).default() == CONFIGS[0]
    assert space(default=CONFIGS[0]).suggestions() == [CONFIGS[0]]


def test_a_caller_cannot_change_the_space() -> None:
    made = space()
    parts = made[2]["parts"]
    assert isinstance(parts, list)
    parts.append(8)
    next(made.enumerate())["tile"] = 1
    assert list(made.enumerate()) == IN_ORDER


@pytest.mark.parametrize(
    ("configs", "said"),
    [
        ([{"schedule": "plain", "tile": 48, "warps": 4}], "tile=48 is no candidate"),
        ([{**CONFIGS[1], "stages": 3}], "does not declare: stages"),
        ([{"schedule": "plain", "tile": 16, "warps": 4}, {"schedule": "plain", "tile": 16, "parts": [1, 2], "warps": 4}], "before parts"),
    ],
)
def test_records_that_do_not_fit_their_space_are_damage(configs: list[Config], said: str) -> None:
    with pytest.raises(LogDamaged, match=said):
        space(configs)


def test_an_empty_recorded_space_is_an_error() -> None:
    with pytest.raises(SpaceError, match="no config was recorded"):
        space([])


def test_a_recording_answers_builds_and_measurements() -> None:
    resources = Resources(shared_memory_bytes=4096, registers=40)
    check = Check(rel_norm=0.001, max_error=0.01, rel_norm_allowed=0.01, max_error_allowed=0.1)
    made = Recording(lines([record(CONFIGS[0], 5.0, resources=resources, check=check, build_s=0.5), record(CONFIGS[1], 7.0)]))
    assert (made.operator, made.target, made.toolchain, made.protocol) == ("toy", TARGET, TOOLCHAIN, "recorded/1")
    with made.builder() as builder, made.runner() as runner:
        assert (builder.toolchain, runner.toolchain, runner.target, runner.protocol) == (TOOLCHAIN, TOOLCHAIN, TARGET, "recorded/1")
        source = made.source(SMALL, dict(reversed(CONFIGS[0].items())))
        assert source == made.source(SMALL, CONFIGS[0])
        assert (source.hash, source.template_hash, source.schedule) == ("", "", "split_k")
        future = builder.submit(BuildRequest(source=source, arguments=(), target=TARGET))
        assert future.done()
        built = future.result()
        assert (built.status, built.resources, built.build_s, built.message) == (Status.OK, resources, 0.5, "")
        outcome = runner.measure(job(source))
        assert (outcome.status, outcome.check) == (Status.OK, check)
        assert outcome.measurement is not None
        assert outcome.measurement.median_us == 5.0
        ((name, vendor),) = runner.vendors(Job(operator="toy", folder=Path("."), workload=SMALL))
        assert (name, vendor.status, vendor.measurement and vendor.measurement.median_us) == ("cublas", Status.OK, 4.0)
        assert runner.vendors(Job(operator="toy", folder=Path("."), workload=LARGE)) == []


@pytest.mark.parametrize(
    ("status", "shared", "builds"),
    [
        (Status.COMPILE_ERROR, None, False),
        (Status.COMPILE_TIMEOUT, None, False),
        (Status.OUT_OF_RESOURCES, 300_000, False),
        (Status.OUT_OF_RESOURCES, 1_000, True),  # not its shared memory: only the launch tells
        (Status.OUT_OF_RESOURCES, None, True),
        (Status.LAUNCH_ERROR, 1_000, True),
        (Status.WRONG_RESULT, 1_000, True),
        (Status.CRASH, None, True),
    ],
)
def test_a_recorded_failure_happens_where_it_would(status: Status, shared: int | None, builds: bool) -> None:
    resources = Resources(shared_memory_bytes=shared) if shared is not None else None
    made = Recording(lines([record(CONFIGS[0], 5.0), record(CONFIGS[1], None, status=status, message="why", resources=resources)]))
    source = made.source(SMALL, CONFIGS[1])
    built = made.builder().submit(BuildRequest(source=source, arguments=(), target=TARGET)).result()
    assert built.resources == resources
    assert (built.status, built.message) == ((Status.OK, "") if builds else (status, "why"))
    if builds:
        outcome = made.runner().measure(job(source))
        assert (outcome.status, outcome.message, outcome.measurement) == (status, "why", None)
    assert CONFIGS[1] in list(made.space(SMALL).enumerate())


def test_of_two_records_of_a_config_a_time_counts_and_the_better_one() -> None:
    twice = [record(CONFIGS[0], 6.0), record(CONFIGS[0], None), record(CONFIGS[0], 5.0), record(CONFIGS[0], 9.0)]
    made = Recording(lines(twice))
    kept = made.record(SMALL.key, CONFIGS[0])
    assert kept.measurement is not None
    assert kept.measurement.median_us == 5.0


def test_a_default_schedule_is_taken_from_its_record() -> None:
    made = Recording(lines([*(record(config) for config in CONFIGS[1:]), record(CONFIGS[0], default=True)]))
    assert made.space(SMALL).default() == CONFIGS[0]


def test_workloads_are_found_by_what_is_given_of_them() -> None:
    made = Recording(lines([record(CONFIGS[0]), record(CONFIGS[1], workload=LARGE)]))
    assert made.workload(Workload(operator="toy", dims={"M": 16}, dtypes={})) == SMALL
    with pytest.raises(UsageError, match="means 2 recorded workloads"):
        made.workload(Workload(operator="toy", dims={}, dtypes={"dtype": "float16"}))
    with pytest.raises(UsageError, match=r"M=17.* is not recorded in the log; did you mean 'toy:M=16"):
        made.workload(Workload(operator="toy", dims={"M": 17}, dtypes={"dtype": "float16"}))
    assert made.space(LARGE).size_bound() == 1
    with pytest.raises(UsageError, match="is not recorded"):
        made.space(Workload(operator="toy", dims={"M": 17}, dtypes={"dtype": "float16"}))
    with pytest.raises(SpaceError, match="for toy:M=4096"):
        made.source(LARGE, CONFIGS[0])


def test_rendered_code_is_not_for_a_recorded_device() -> None:
    made = Recording(lines([record(CONFIGS[0])]))
    rendered = Source(text="import triton\n", hash="h", schedule="plain", template_hash="t")
    future = made.builder().submit(BuildRequest(source=rendered, arguments=(), target=TARGET))
    assert isinstance(future.exception(), UsageError)
    with pytest.raises(UsageError, match="made by its own recording"):
        made.runner().measure(job(rendered))


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ([record(CONFIGS[0])], "0 lines of kind `space`"),
        ([*lines([record(CONFIGS[0])]), *lines([])], "2 lines of kind `space`"),
        (lines([]), "no record of it"),
        (lines([record(CONFIGS[0]), record(CONFIGS[1], target=replace(TARGET, sm_count=16))]), "name 2 of target"),
        (lines([record(CONFIGS[0], None)]), "name 0 of protocol"),
    ],
)
def test_what_is_no_recording_says_why(content: list[Line], said: str) -> None:
    with pytest.raises(LogError, match=said):
        Recording(content)


def test_a_candidate_cut_before_it_was_captured_does_not_make_it_a_recording_of_two_protocols() -> None:
    by_events = Measurement(protocol="events/2", median_us=90.0, min_us=90.0, max_us=90.0)
    recording = Recording(lines([record(CONFIGS[0]), record(CONFIGS[1], status=Status.CUT, measurement=by_events)]))
    assert recording.protocol == "recorded/1"
    assert recording.record(SMALL.key, CONFIGS[1]).status is Status.CUT
    with pytest.raises(LogError, match="name 2 of protocol"):
        Recording(lines([record(CONFIGS[0]), record(CONFIGS[1], measurement=by_events)]))


def test_a_damaged_recording_is_refused(tmp_path: Path) -> None:
    log = TuningLog(tmp_path / "log.jsonl")
    log.extend(lines([record(CONFIGS[0])]), sync=False)
    assert Recording.read(log).workloads == {SMALL.key: SMALL}
    with log.path.open("a") as file:
        file.write("{torn\n")
    with pytest.raises(LogError, match=r"log\.jsonl, line 4: .* holes"):
        Recording.read(log)
