"""Lint: what can be read and cannot be true."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from tilewright.cli import main
from tilewright.codec import encode_lines
from tilewright.errors import ExitCode
from tilewright.finding import Finding
from tilewright.library import find_operators
from tilewright.lint import lint
from tilewright.log import TuningLog
from tilewright.reach import inspector
from tilewright.record import Anchor, Check, KnobInfo, Line, Measurement, Record, RecordedSpace, SessionEnd, SessionStart, Status, TrialStart, VendorRecord
from tilewright.target import Toolchain, named_target
from tilewright.workload import Workload

TARGET = named_target("sm_90")
WORKLOAD = Workload(operator="matmul", dims={"M": 16}, dtypes={})
GOOD = Measurement(protocol="graph/1", median_us=2.0, min_us=1.0, max_us=3.0)
CHECK = Check(rel_norm=0.0, max_error=0.0, rel_norm_allowed=0.1, max_error_allowed=0.1)
START = SessionStart(session="s", started_at="", tilewright="", operator="matmul", workloads=[WORKLOAD], target=TARGET, toolchain=Toolchain())


def record(trial: int = 0, **changes: Any) -> Record:
    fields: dict[str, Any] = {"status": Status.OK, "measurement": GOOD, "config": {"tile": 16}, "target": TARGET, "template": "old"}
    return Record(session="s", trial=trial, **{"workload": WORKLOAD, **fields, **changes})


def end(trials: int) -> SessionEnd:
    return SessionEnd(session="s", ended_at="", reason="budget", trials=trials)


def findings(tmp_path: Path, lines: list[Line], **options: Any) -> list[tuple[int, str]]:
    log = TuningLog(tmp_path / "log.jsonl")
    log.extend(lines, sync=False)
    return [(finding.number, finding.rule) for finding in lint(log.read(), **options)]


def test_a_good_log_has_no_findings(tmp_path: Path) -> None:
    vendor = VendorRecord(session="s", name="torch.mm", workload=WORKLOAD, target=TARGET, status=Status.OK, measurement=GOOD)
    failed = record(1, status=Status.COMPILE_ERROR, measurement=None, message="ptxas: no")
    cut = record(2, status=Status.CUT, message="three times the best")
    lines: list[Line] = [START, vendor, TrialStart(session="s", workload=WORKLOAD, config={"tile": 16}), record(0), failed, cut, end(3)]
    assert findings(tmp_path, lines, floor_us=lambda workload, target: 1.0, templates={"matmul": frozenset({"old"})}) == []


@pytest.mark.parametrize(
    ("changes", "rule"),
    [
        ({"measurement": None}, "status"),
        ({"status": Status.COMPILE_ERROR, "message": "no"}, "status"),
        ({"status": Status.LAUNCH_ERROR, "message": "no", "measurement": None, "check": CHECK}, "status"),
        ({"status": Status.CRASH, "measurement": None}, "message"),
        ({"measurement": Measurement(protocol="p", median_us=1.0, min_us=2.0, max_us=3.0)}, "time"),
        ({"measurement": Measurement(protocol="p", median_us=0.5, min_us=0.0, max_us=3.0)}, "time"),
        ({"measurement": Measurement(protocol="p", median_us=2.0, min_us=2.0, max_us=2.0, samples=3, times_us=[2.0])}, "time"),
        ({"measurement": Measurement(protocol="p", median_us=2.0, min_us=2.0, max_us=2.0, samples=0)}, "time"),
        ({"build_s": -1.0}, "time"),
        (
            {"measurement": Measurement(protocol="p", median_us=1.0, min_us=1.0, max_us=1.0, anchor=Anchor(kind="compute", median_us=0.0, nominal_us=1.0))},
            "time",
        ),
        ({"trial": -1}, "trial"),
    ],
)
def test_records_that_cannot_be_true(tmp_path: Path, changes: dict[str, Any], rule: str) -> None:
    assert findings(tmp_path, [START, msgspec.structs.replace(record(), **changes), end(1)]) == [(2, rule)]


def test_times_under_the_roofline_are_impossible(tmp_path: Path) -> None:
    lines: list[Line] = [START, record(0), record(1, status=Status.IMPOSSIBLE, message="too fast"), record(2, target=TARGET.interpreted()), end(3)]
    assert findings(tmp_path, lines, floor_us=lambda workload, target: 2.5) == [(2, "impossible")]
    assert findings(tmp_path, [], floor_us=lambda workload, target: None) == []


def test_repetitions(tmp_path: Path) -> None:
    vendor = VendorRecord(session="s", name="torch.mm", workload=WORKLOAD, target=TARGET, status=Status.OK, measurement=GOOD)
    lines: list[Line] = [START, record(0), record(0), vendor, vendor, START, end(2), end(2)]
    assert findings(tmp_path, lines) == [(3, "duplicate"), (5, "duplicate"), (6, "duplicate"), (8, "duplicate"), (8, "session")]


def test_sessions_that_do_not_add_up(tmp_path: Path) -> None:
    assert findings(tmp_path, [record(0), record(1)]) == [(1, "interrupted"), (1, "session")]
    assert findings(tmp_path / "lost", [START, record(0), end(2), record(1)]) == [(3, "lost-records"), (4, "session")]


def test_an_interrupted_session_is_a_note_and_not_a_fault(tmp_path: Path) -> None:
    log = TuningLog(tmp_path / "log.jsonl")
    log.extend([START, record(0)], sync=False)
    (finding,) = lint(log.read())
    assert (finding.number, finding.rule, finding.severity) == (1, "interrupted", "note")
    assert "--resume" in finding.message


def test_stale_templates_are_told_once(tmp_path: Path) -> None:
    lines: list[Line] = [START, record(0), record(1), record(2, template="new"), record(3, template=""), end(4)]
    log = TuningLog(tmp_path / "log.jsonl")
    log.extend(lines, sync=False)
    (finding,) = lint(log.read(), templates={"matmul": frozenset({"new"})})
    assert (finding.number, finding.rule, finding.severity) == (2, "stale", "note")
    assert finding.message.startswith("2 record(s) of matmul")
    assert lint(log.read(), templates={"softmax": frozenset()}) == ()


def test_records_outside_their_recorded_space(tmp_path: Path) -> None:
    space = RecordedSpace(session="s", operator="matmul", knobs=[KnobInfo(name="tile", candidates=[16, 32])])
    lines: list[Line] = [space, START, record(0), record(1, config={"tile": 48}), end(2)]
    assert findings(tmp_path, lines) == [(1, "space")]


def test_damage_is_a_fault_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    path.write_bytes(encode_lines([START]) + b"{torn\n" + encode_lines([end(0)]))
    (finding,) = lint(TuningLog(path).read())
    assert (finding.number, finding.rule, finding.severity) == (2, "damage", "fault")
    assert isinstance(finding, Finding)


def test_records_that_no_look_up_reaches(tmp_path: Path) -> None:
    operators = find_operators()
    operator = operators["rms_norm"]

    def of(trial: int, dims: dict[str, int] | None = None, protocol: str = "graph/1", **changes: Any) -> Record:
        workload = operator.spec.workload({"rows": 16, "cols": 256, "dtype": "float16"})
        config = operator.space(workload, TARGET).default()
        source = operator.instantiate(workload, TARGET, config)
        asked = Workload(operator="rms_norm", dims={**workload.dims, **(dims or {})}, dtypes=workload.dtypes, layout=workload.layout)
        made = record(trial, workload=asked, config=config, template=source.template_hash, source=source.hash, measurement=replace(GOOD, protocol=protocol))
        return replace(made, **changes)

    other = named_target("sm_80")
    illegal = of(2, {"cols": 512}, config={**of(2).config, "num_warps": 3})
    lines: list[Line] = [START, of(0), of(1, protocol="events/1"), illegal, of(3, {"depth": 4}), of(4, target=other, source="other"), end(5)]
    told = findings(tmp_path, lines, inspect=inspector(operators))
    assert told == [(3, "shadowed"), (4, "illegal"), (5, "unreachable"), (6, "stale")]
    log = TuningLog(tmp_path / "log.jsonl")
    messages = {finding.rule: finding.message for finding in lint(log.read(), inspect=inspector(operators))}
    assert "events/1 are shadowed by those by graph/1" in messages["shadowed"]
    assert "is no candidate; one of: [1, 512]" in messages["illegal"] and "depth" in messages["unreachable"]
    # The same through the command, whose exit code is for CI.
    assert main(["log", "lint", str(log.path)]) == ExitCode.FAILED
