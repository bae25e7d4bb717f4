"""What lines add up to: sessions, records by workload and target, candidates left open."""

from __future__ import annotations

from dataclasses import replace

from tilewright.record import Line, Measurement, Record, SessionEnd, SessionStart, Status, TrialStart, Value, VendorRecord
from tilewright.state import LogState
from tilewright.target import Target, Toolchain, named_target
from tilewright.workload import Workload

H200 = named_target("sm_90")
A100 = named_target("sm_80")
SMALL = Workload(operator="matmul", dims={"M": 16}, dtypes={})
LARGE = Workload(operator="matmul", dims={"M": 4096}, dtypes={})


def start(session: str, target: Target = H200, workloads: tuple[Workload, ...] = (SMALL, LARGE)) -> SessionStart:
    return SessionStart(session=session, started_at="", tilewright="", operator="matmul", workloads=list(workloads), target=target, toolchain=Toolchain())


def tried(session: str, knob: Value, workload: Workload = SMALL) -> TrialStart:
    return TrialStart(session=session, workload=workload, config={"knob": knob})


def ended(session: str, knob: Value, workload: Workload = SMALL, target: Target = H200) -> Record:
    measurement = Measurement(protocol="graph/1", median_us=1.0, min_us=1.0, max_us=1.0)
    return Record(session=session, trial=0, workload=workload, target=target, config={"knob": knob}, status=Status.OK, measurement=measurement)


def test_records_and_vendors_are_found_by_workload_and_target_identity() -> None:
    vendor = VendorRecord(session="a", name="torch.mm", workload=SMALL, target=H200, status=Status.OK)
    lines: list[Line] = [start("a"), ended("a", 1), ended("a", 2, LARGE), ended("a", 3, SMALL, A100), vendor]
    state = LogState.of(lines)
    assert state.records(SMALL, replace(H200, name="another label")) == (ended("a", 1),)
    assert state.records(LARGE, H200) == (ended("a", 2, LARGE),)
    assert state.records(SMALL, A100) == (ended("a", 3, SMALL, A100),)
    assert state.records(SMALL, replace(H200, sm_count=16)) == ()
    assert state.vendors(SMALL, H200) == (vendor,)
    assert state.vendors(LARGE, H200) == ()


def test_a_start_without_a_record_is_unfinished_and_counted() -> None:
    lines: list[Line] = [start("a"), tried("a", 1), ended("a", 1), tried("a", 2), start("b"), tried("b", 2), tried("b", 3)]
    state = LogState.of(lines)
    assert state.unfinished(SMALL, H200) == (({"knob": 2}, 2), ({"knob": 3}, 1))
    assert state.unfinished(LARGE, H200) == ()
    assert state.unfinished(SMALL, A100) == ()
    assert [name for name, session in state.sessions.items() if session.interrupted] == ["a", "b"]


def test_a_record_closes_earlier_starts_and_not_later_ones() -> None:
    lines: list[Line] = [start("a"), tried("a", 1), start("b"), tried("b", 1), ended("b", 1)]
    assert LogState.of(lines).unfinished(SMALL, H200) == ()
    # A new template's candidate of the same config crashed: the old record does not hide it.
    assert LogState.of([*lines, start("c"), tried("c", 1)]).unfinished(SMALL, H200) == (({"knob": 1}, 1),)


def test_values_of_different_types_are_different_candidates() -> None:
    lines: list[Line] = [start("a"), tried("a", 1), tried("a", True), ended("a", 1)]
    assert LogState.of(lines).unfinished(SMALL, H200) == (({"knob": True}, 1),)


def test_finished_workloads_are_those_listed_and_those_of_a_whole_session() -> None:
    lines: list[Line] = [
        start("a"),
        SessionEnd(session="a", ended_at="", reason="interrupted", trials=0, finished=[SMALL.key]),
        start("b", A100, (LARGE,)),
        SessionEnd(session="b", ended_at="", reason="exhausted", trials=0),
        start("c", H200, (LARGE,)),
    ]
    state = LogState.of(lines)
    assert state.finished(H200, {"exhausted"}) == {SMALL.key}
    assert state.finished(A100, {"exhausted"}) == {LARGE.key}
    assert state.finished(A100, {"budget"}) == frozenset()
    assert state.sessions["c"].interrupted
    assert not state.sessions["a"].interrupted
