"""benchmarks/record_space.py: a whole conditional space on two workloads becomes a recording that replays, and is resumed where it stopped."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tilewright.canonical import canonical_json, sha256_text
from tilewright.device import Device
from tilewright.job import MeasureJob, MeasureOutcome
from tilewright.log import TuningLog
from tilewright.record import Config, Measurement, Record, Status, VendorRecord, config_key
from tilewright.recorded import Recording
from tilewright.space import Cfg, Space
from tilewright.target import named_target
from tilewright.template import Source
from tilewright.testing import FakeBuilder, FakeRunner, timed
from tilewright.workload import Workload, parse_key

WORKLOADS = [parse_key(f"toy:M={m},dtype=float16") for m in (64, 128)]


@pytest.fixture(scope="module")
def script() -> ModuleType:
    path = Path(__file__).parents[2] / "benchmarks" / "record_space.py"
    description = importlib.util.spec_from_file_location("record_space_under_test", path)
    assert description is not None and description.loader is not None
    module = importlib.util.module_from_spec(description)
    sys.modules[description.name] = module
    description.loader.exec_module(module)
    return module


def plain(cfg: Cfg) -> None:
    warps = cfg.define_knob("warps", [2, 4, 8])
    if warps > 2:
        cfg.define_knob("stages", [2, 3])
    cfg.define_knob("group", [1, 8])


def split(cfg: Cfg) -> None:
    warps = cfg.define_knob("warps", [4, 8])
    parts = cfg.define_knob("parts", [1, 4])
    cfg.require(warps * parts < 32, "too many")


def source(workload: Workload, config: Config) -> Source:
    text = canonical_json(dict(config))
    return Source(text=text, hash=sha256_text(text), schedule=str(config["schedule"]), template_hash="t")


def outcome(job: MeasureJob) -> MeasureOutcome:
    config = json.loads(job.source.text)
    us = 10.0 * config["warps"] + config.get("stages", 0) + config.get("parts", 0) + job.workload.dims["M"] / 64
    if config.get("parts") == 4:
        return MeasureOutcome(status=Status.CUT, message="cut", measurement=Measurement(protocol="fake/1", median_us=us, min_us=us, max_us=us))
    return timed(us)


def device(measured: list[str]) -> Device:
    target = named_target("sm_90")

    def answer(job: MeasureJob) -> MeasureOutcome:
        measured.append(job.source.text)
        return outcome(job)

    return Device(
        name="fake", label="fake", operator="toy", builder=FakeBuilder(), runner=FakeRunner(answer, target=target, vendors={"torch.mm": 5.0}),
        target=target, compile_target=target, lookahead=4, width=2, spec=None, folder=Path(), template_hashes=frozenset({"t"}),
        make_workload=lambda text: parse_key(f"toy:{text}"), make_space=lambda workload: Space({"plain": plain, "split": split}), make_source=source,
    )  # fmt: skip


def test_a_complete_recording_replays(script: ModuleType, tmp_path: Path) -> None:
    measured: list[str] = []
    summary: dict[str, Any] = script.record_all(device(measured), WORKLOADS, tmp_path, time_s=30.0)
    points = sum(1 for _ in Space({"plain": plain, "split": split}).enumerate())
    assert summary["complete"] and summary["recorded"] == summary["points"] == 2 * points == len(measured)
    log = TuningLog(tmp_path / "toy.jsonl.gz")
    recording = Recording.read(log)
    for workload in WORKLOADS:
        space = recording.space(workload)
        configs = list(Space({"plain": plain, "split": split}).enumerate())
        assert {config_key(config) for config in space.enumerate()} == set(map(config_key, configs))
        for config in configs:
            replayed = recording.record(workload.key, config)
            fresh = outcome(MeasureJob(operator="toy", folder=Path(), workload=workload, source=source(workload, config)))
            assert replayed.status is fresh.status and replayed.measurement is not None and fresh.measurement is not None
            assert replayed.measurement.median_us == fresh.measurement.median_us
            assert not replayed.source and not replayed.measurement.times_us
        assert recording.vendors(workload)[0].name == "torch.mm"


def test_a_recording_goes_on_where_it_stopped(script: ModuleType, tmp_path: Path) -> None:
    first: list[str] = []
    script.record_all(device(first), WORKLOADS, tmp_path, time_s=30.0)
    whole = TuningLog(tmp_path / "toy.jsonl.gz").read().lines
    kept = [line for line in whole if not isinstance(line, Record)] + [line for line in whole if isinstance(line, Record)][:9]
    script.replace_log(tmp_path / "toy.jsonl.gz", kept)
    (tmp_path / "toy.jsonl").unlink()
    second: list[str] = []
    summary = script.record_all(device(second), WORKLOADS, tmp_path, time_s=30.0)
    assert summary["complete"] and len(second) == len(first) - 9
    again = TuningLog(tmp_path / "toy.jsonl.gz").read().lines
    assert len([line for line in again if isinstance(line, Record)]) == len(first)
    assert len([line for line in again if isinstance(line, VendorRecord)]) == 2


def test_knobs_keep_an_order_that_all_schedules_agree_with(script: ModuleType) -> None:
    order = script.merged_order([{"schedule": "a", "x": 1, "z": 1}, {"schedule": "b", "x": 1, "y": 2, "z": 1}, {"schedule": "c", "y": 2}])
    assert order.index("schedule") < order.index("x") < order.index("y") < order.index("z")
    assert [knob.candidates for knob in script.knob_infos([{"t": [4, 16]}, {"t": [1, 64]}, {"t": [2, 16]}])] == [[[2, 16], [4, 16], [1, 64]]]
