"""The session loop: what is asked, built, measured, logged and told, and in which order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tilewright.canonical import canonical_json, sha256_text
from tilewright.device import Device
from tilewright.errors import ExitCode, HostError, NoDevice, UsageError
from tilewright.interrupt import Interrupts
from tilewright.log import TuningLog
from tilewright.observer import Budget, Observers
from tilewright.record import Config, Record, SessionEnd, SessionStart, Status, TrialStart, config_key
from tilewright.result import TuneResult
from tilewright.runner import MeasureJob, MeasureOutcome
from tilewright.session import Session
from tilewright.space import Cfg, Space
from tilewright.target import named_target
from tilewright.template import Source
from tilewright.testing import FakeBuilder, FakeRunner, built, timed
from tilewright.tuner import parse_workloads, tune
from tilewright.workload import Workload, parse_key

WORKLOAD = parse_key("toy:M=64,dtype=float16")


def declarations(cfg: Cfg) -> None:
    a = cfg.define_knob("a", [1, 2, 4, 8])
    b = cfg.define_knob("b", [1, 2, 3])
    cfg.require(a * b <= 16, "too large")
    cfg.suggest(a=2, b=2)


def time_of(config: Config) -> float:
    """The best is a=8, b=2."""
    return 100.0 / int(config["a"]) + abs(int(config["b"]) - 2)  # type: ignore[arg-type]


def source_of(config: Config, template: str = "t1") -> Source:
    text = canonical_json(dict(config))
    return Source(text=text, hash=sha256_text(text), schedule="", template_hash=template)


class Rig:
    """A device of fakes, and the configs that were built and measured on it."""

    def __init__(
        self,
        *,
        measure: Callable[[Config, int], MeasureOutcome] | None = None,
        build: Callable[..., Any] = built,
        source: Callable[[Config], Source] = source_of,
        template: str = "t1",
        lookahead: int = 1,
    ) -> None:
        self.measured: list[dict[str, Any]] = []
        self._measure = measure or (lambda config, _: timed(time_of(config)))
        self.builder = FakeBuilder(build)
        target = named_target("sm_90")
        self.device = Device(
            name="fake",
            label="fake",
            operator="toy",
            builder=self.builder,
            runner=FakeRunner(self._answer, target=target),
            target=target,
            compile_target=target,
            lookahead=lookahead,
            width=2,
            spec=None,
            folder=Path(),
            template_hashes=frozenset({template}),
            make_workload=lambda text: parse_key(f"toy:{text}"),
            make_space=lambda workload: Space({"toy": declarations}),
            make_source=lambda workload, config: source(config),
        )

    def _answer(self, job: MeasureJob) -> MeasureOutcome:
        import json

        config = json.loads(job.source.text)
        self.measured.append(config)
        return self._measure(config, len(self.measured))


def run(rig: Rig, log: Path, workloads: tuple[Workload, ...] = (WORKLOAD,), **options: Any) -> TuneResult:
    settings: dict[str, Any] = {"search": "random", "seed": 0, "resume": False, "force": False, "default_only": False, **options}
    budget = Budget(trials=settings.pop("trials", 6), time_s=settings.pop("time_s", None), early_stop=settings.pop("early_stop", None))
    return Session(device=rig.device, workloads=dict.fromkeys(workloads, 1.0), budget=budget, log=TuningLog(log), observer=Observers(), **settings).run()


def records(log: Path) -> list[Record]:
    return [line for line in TuningLog(log).read().lines if isinstance(line, Record)]


def ends(log: Path) -> list[SessionEnd]:
    return [line for line in TuningLog(log).read().lines if isinstance(line, SessionEnd)]


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "toy.jsonl"


def test_the_default_is_measured_first_and_every_trial_is_one_record(log: Path) -> None:
    rig = Rig()
    result = run(rig, log)
    lines = TuningLog(log).read().lines
    assert isinstance(lines[0], SessionStart) and isinstance(lines[-1], SessionEnd)
    written = records(log)
    assert [record.trial for record in written] == list(range(6))
    assert written[0].config == {"a": 2, "b": 2} and written[0].default
    assert [record.config for record in written] == rig.measured
    assert len({config_key(record.config) for record in written}) == 6
    assert result.reason == "budget" and result.exit_code is ExitCode.OK
    answer = result.results[0]
    assert answer.tier == "search"
    assert answer.best_us == min(time_of(config) for config in rig.measured)
    assert answer.gain_over_default == time_of({"a": 2, "b": 2}) / min(time_of(config) for config in rig.measured)
    assert ends(log)[0].finished == [WORKLOAD.key]


def test_the_device_hears_of_a_start_before_each_measurement(log: Path) -> None:
    run(Rig(), log, trials=3)
    kinds = [type(line).__name__ for line in TuningLog(log).read().lines]
    assert kinds == ["SessionStart", *["TrialStart", "Record"] * 3, "SessionEnd"]


def test_a_space_is_exhausted_and_no_config_is_measured_twice(log: Path) -> None:
    rig = Rig()
    result = run(rig, log, trials=100)
    # 12 points, of which a=8, b=3 is refused.
    assert len(rig.measured) == 11
    assert result.reason == "exhausted"
    best = result.results[0].best
    assert best is not None and best.config == {"a": 8, "b": 2}


def test_failures_are_records_and_the_session_goes_on(log: Path) -> None:
    def measure(config: Config, number: int) -> MeasureOutcome:
        return MeasureOutcome(status=Status.CRASH, message="SIGSEGV") if config["a"] == 8 else timed(time_of(config))

    def build(request: Any) -> Any:
        if '"a":4' in request.source.text:
            from tilewright.builder import BuildOutcome

            return BuildOutcome(status=Status.COMPILE_ERROR, message="no such layout", resources=None, binary="", build_s=0.1)
        return built(request)

    rig = Rig(measure=measure, build=build)
    result = run(rig, log, trials=100)
    counted = Counter(record.status for record in records(log))
    assert counted == {Status.CRASH: 2, Status.COMPILE_ERROR: 3, Status.OK: 6}
    assert all(config["a"] != 4 for config in rig.measured)
    best = result.results[0].best
    assert best is not None and best.config == {"a": 2, "b": 2}
    assert {record.message for record in records(log) if record.status is Status.CRASH} == {"SIGSEGV"}


def test_all_candidates_failing_is_said_and_fails(log: Path) -> None:
    rig = Rig(measure=lambda config, number: MeasureOutcome(status=Status.WRONG_RESULT, message="off by 3"))
    result = run(rig, log, trials=4)
    assert result.results[0].best is None
    assert result.exit_code is ExitCode.FAILED


def test_early_stop_ends_a_search_without_progress(log: Path) -> None:
    rig = Rig(measure=lambda config, number: timed(50.0 + number))
    result = run(rig, log, trials=100, early_stop=4)
    assert result.reason == "early_stop"
    assert len(rig.measured) == 5


def test_the_log_answers_a_workload_it_knows(log: Path) -> None:
    first = run(Rig(), log, trials=100)
    rig = Rig()
    again = run(rig, log)
    assert again.reason == "log" and again.results[0].tier == "log"
    assert again.results[0].best_us == first.results[0].best_us
    assert rig.builder.requests == [] and rig.measured == []
    forced = run(rig, log, force=True)
    assert forced.results[0].tier == "search" and len(rig.measured) == 6


def test_only_new_workloads_are_searched(log: Path) -> None:
    other = parse_key("toy:M=128,dtype=float16")
    run(Rig(), log)
    result = run(Rig(), log, workloads=(WORKLOAD, other))
    assert [answer.tier for answer in result.results] == ["log", "search"]
    assert [answer.workload for answer in result.results] == [WORKLOAD, other]


def test_resume_goes_on_to_a_larger_budget_without_measuring_again(log: Path) -> None:
    first = Rig()
    run(first, log, trials=5)
    second = Rig()
    result = run(second, log, trials=9, resume=True)
    assert len(second.measured) == 4
    assert not {config_key(c) for c in first.measured} & {config_key(c) for c in second.measured}
    assert result.results[0].statuses == {Status.OK: 9}
    third = Rig()
    assert run(third, log, trials=9, resume=True).results[0].tier == "log"
    assert third.measured == []


def test_an_interrupted_session_says_so_and_resumes(log: Path) -> None:
    def measure(config: Config, number: int) -> MeasureOutcome:
        if number == 4:
            raise KeyboardInterrupt
        return timed(time_of(config))

    first = Rig(measure=measure)
    result = run(first, log, trials=8)
    assert result.reason == "interrupted" and result.exit_code is ExitCode.INTERRUPTED
    assert len(records(log)) == 3 and ends(log)[-1].reason == "interrupted"
    assert ends(log)[-1].finished == []
    second = Rig()
    resumed = run(second, log, trials=8, resume=True)
    # The one that was on the device is tried once more, first.
    assert config_key(second.measured[0]) == config_key(first.measured[3])
    assert len(records(log)) == 8 and resumed.reason == "budget"
    assert len({config_key(record.config) for record in records(log)}) == 8


def test_a_candidate_that_took_two_sessions_down_is_a_crash(log: Path) -> None:
    run(Rig(), log, trials=1)
    start = next(line for line in TuningLog(log).read().lines if isinstance(line, SessionStart))
    for _ in range(2):
        TuningLog(log).append(TrialStart(session=start.session, workload=WORKLOAD, config={"a": 8, "b": 1}))
    rig = Rig()
    run(rig, log, trials=4, resume=True)
    crashed = [record for record in records(log) if record.status is Status.CRASH]
    assert [record.config for record in crashed] == [{"a": 8, "b": 1}]
    assert "died 2 times" in crashed[0].message
    assert {"a": 8, "b": 1} not in rig.measured
    assert len(records(log)) == 4


def test_equal_code_is_measured_once(log: Path) -> None:
    rig = Rig(source=lambda config: source_of({"a": config["a"], "b": 1}))
    run(rig, log, trials=100)
    assert sorted(config["a"] for config in rig.measured) == [1, 2, 4, 8]
    assert len(records(log)) == 11
    twins = [record for record in records(log) if record.message.startswith("same source as trial")]
    assert len(twins) == 7 and all(record.measurement is not None for record in twins)


def test_records_of_another_template_are_not_used(log: Path) -> None:
    run(Rig(), log)
    rig = Rig(template="t2", source=lambda config: source_of(config, "t2"))
    result = run(rig, log)
    assert result.results[0].tier == "search" and len(rig.measured) == 6


def test_the_default_alone_answers_on_request_and_is_no_search(log: Path) -> None:
    rig = Rig()
    result = run(rig, log, default_only=True)
    assert rig.measured == [{"a": 2, "b": 2}]
    assert result.results[0].tier == "default" and result.reason == "default"
    # A later call searches: a default is not the answer of a race.
    later = Rig()
    assert run(later, log).results[0].tier == "search"
    # And now the log has one.
    assert run(Rig(), log, default_only=True).results[0].tier == "log"


def test_workloads_share_a_session_evenly(log: Path) -> None:
    other = parse_key("toy:M=128,dtype=float16")
    run(Rig(lookahead=3), log, workloads=(WORKLOAD, other), trials=8)
    assert Counter(record.workload.key for record in records(log)) == {WORKLOAD.key: 4, other.key: 4}
    assert Counter(record.workload.key for record in records(log)[:4]) == {WORKLOAD.key: 2, other.key: 2}


def test_a_new_best_is_tried_on_other_workloads_too(log: Path) -> None:
    """The searcher of M=128 meets only slow configs by itself; the best one of M=64 reaches it as a hint."""
    other = parse_key("toy:M=128,dtype=float16")
    session = Session(
        device=Rig().device, workloads={WORKLOAD: 1.0, other: 1.0}, budget=Budget(trials=20), search="grid", seed=0,
        log=TuningLog(log), observer=Observers(), resume=False, force=False, default_only=False,
    )  # fmt: skip
    one, two = session._search(WORKLOAD), session._search(other)
    for _ in range(8):
        assert two.feed()
        candidate = two.take()
        assert candidate is not None and candidate.config["a"] != 8
        two.tell(two.record(candidate, Status.OK, "", timed(time_of(candidate.config)).measurement))
    one.pipeline.hint({"a": 8, "b": 2})
    found = one.record(one.pipeline.candidate({"a": 8, "b": 2}), Status.OK, "", timed(time_of({"a": 8, "b": 2})).measurement)
    one.tell(found)
    loop = session._loop([one, two], Interrupts())
    loop._pass_on(one, found)
    assert two.feed()
    candidate = two.take()
    assert candidate is not None and candidate.config == {"a": 8, "b": 2}
    loop._pass_on(one, found)
    assert two.feed()
    again = two.take()
    assert again is not None and again.config != {"a": 8, "b": 2}


def test_workloads_may_have_weights_and_equal_ones_collapse() -> None:
    rig = Rig()
    found = parse_workloads(rig.device, ["M=64,dtype=float16:2.5", "M=128,dtype=float16", {"M": 64, "dtype": "float16"}, WORKLOAD], None)
    assert found == {WORKLOAD: 4.5, parse_key("toy:M=128,dtype=float16"): 1.0}


@pytest.mark.parametrize("text", ["M=64,dtype=float16:", "M=64,dtype=float16:0", "M=64,dtype=float16:-1", "M=64,dtype=float16:nan", "M=64,dtype=float16:x"])
def test_a_weight_is_a_number_above_zero(text: str) -> None:
    with pytest.raises(UsageError, match="weight, a number above 0"):
        parse_workloads(Rig().device, [text], None)


def test_no_time_left_ends_the_session_in_order(log: Path) -> None:
    result = run(Rig(), log, time_s=1e-9, trials=None)
    assert result.reason == "budget" and result.results[0].best is None
    assert records(log) == [] and ends(log)[0].reason == "budget"


def test_a_host_fault_ends_the_session_with_its_reason_in_the_log(log: Path) -> None:
    def measure(config: Config, number: int) -> MeasureOutcome:
        if number == 3:
            raise HostError("the GPU is gone")
        return timed(time_of(config))

    with pytest.raises(HostError, match="the GPU is gone"):
        run(Rig(measure=measure), log)
    assert len(records(log)) == 2
    assert ends(log)[0].reason == "HostError: the GPU is gone"
    rig = Rig()
    assert run(rig, log, resume=True).reason == "budget"
    assert len(rig.measured) == 4


def test_a_cut_candidate_teaches_the_search_but_cannot_win(log: Path) -> None:
    def measure(config: Config, number: int) -> MeasureOutcome:
        quick = timed(1.0)
        return timed(5.0) if number == 1 else MeasureOutcome(status=Status.CUT, message="hopeless", measurement=quick.measurement)

    result = run(Rig(measure=measure), log)
    assert result.results[0].best_us == 5.0
    assert result.results[0].statuses == {Status.OK: 1, Status.CUT: 5}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"resume": True, "force": True}, "give one of them"),
        ({"trials": 0}, "trials must be a whole number above 0"),
        ({"device": "tpu"}, "unknown device 'tpu'"),
        ({"device": "recorded:"}, "recorded:FILE"),
        ({"device": "interpreter"}, "nothing to tune"),
    ],
)
def test_requests_that_make_no_sense_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        tune("matmul", **options)


def test_records_that_the_space_does_not_have_are_skipped_with_a_note(log: Path) -> None:
    run(Rig(), log, trials=3)
    text = log.read_text().replace('"a":2,"b":2', '"a":3,"b":2')
    log.write_text(text)
    notes: list[str] = []

    class Listening(Observers):
        def note(self, text: str) -> None:
            notes.append(text)

    rig = Rig()
    session = Session(
        device=rig.device, workloads={WORKLOAD: 1.0}, budget=Budget(trials=6), search="random", seed=0,
        log=TuningLog(log), observer=Listening(), resume=True, force=False, default_only=False,
    )  # fmt: skip
    result = session.run()
    assert result.results[0].best is not None and {"a": 2, "b": 2} in rig.measured
    assert any("skipped 1 record(s)" in note and "3 is no candidate" in note and "log lint" in note for note in notes)


def test_a_finished_search_answers_and_says_how_to_go_on(log: Path) -> None:
    run(Rig(), log, trials=3)
    notes: list[str] = []

    class Listening(Observers):
        def note(self, text: str) -> None:
            notes.append(text)

    session = Session(
        device=Rig().device, workloads={WORKLOAD: 1.0}, budget=Budget(trials=6), search="random", seed=0,
        log=TuningLog(log), observer=Listening(), resume=False, force=False, default_only=False,
    )  # fmt: skip
    assert session.run().results[0].tier == "log"
    assert any("answered from 3 records" in note and "--resume" in note for note in notes)


def test_a_gpu_that_is_not_here_is_said_with_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tilewright.devices.gpu_count", lambda: 0)
    with pytest.raises(NoDevice, match="no device cuda:1: .* shows 0 GPU.*--device interpreter .*--device recorded:FILE"):
        tune("matmul", ["M=16,N=16,K=16"], device="cuda:1")


class _Refusing:
    """A wide searcher that has candidates built and then wants none of them."""

    rejected: dict[str, int] = {}

    def __init__(self) -> None:
        self._waiting = [{"a": 1, "b": 1}, {"a": 1, "b": 2}, {"a": 1, "b": 3}, {"a": 4, "b": 1}]

    def widen(self, count: int) -> list[dict[str, Any]]:
        return [self._waiting.pop() for _ in range(min(count, len(self._waiting)))]

    def built(self, config: Config, resources: object) -> None:
        pass

    def ask(self) -> None:
        return None

    def tell(self, config: Config, time_us: float | None) -> None:
        pass


def test_a_searcher_that_wants_nothing_of_what_is_built_ends_the_search(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tilewright.pipeline.make_proposer", lambda *args, **options: _Refusing())
    result = run(Rig(), log, trials=50)
    assert result.reason == "exhausted"
    assert [record.default for record in records(log)] == [True]


class _Insisting(_Refusing):
    """A wide searcher that wants first what the session measures anyway, the author's default; then the rest."""

    def __init__(self, default: dict[str, Any]) -> None:
        self._waiting = [{"a": 4, "b": 1}, {"a": 1, "b": 3}, default, default]  # as where the default is among the suggestions
        self._ready: list[dict[str, Any]] = []

    def built(self, config: Config, resources: object) -> None:
        self._ready.append(dict(config))

    def ask(self) -> dict[str, Any] | None:  # type: ignore[override]
        return self._ready.pop() if self._ready else None


def test_a_wide_searcher_that_wants_the_default_first_is_not_taken_for_one_that_wants_nothing(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig()
    default = rig.device.make_space(rig.device.make_workload("M=64")).default()
    monkeypatch.setattr("tilewright.pipeline.make_proposer", lambda *args, **options: _Insisting(default))
    assert run(rig, log, trials=50).reason == "exhausted"
    assert len(records(log)) == 3
