"""What a person reads: the progress line, the table and its notes."""

from __future__ import annotations

import io
from collections import Counter
from dataclasses import replace
from pathlib import Path

from tilewright.observer import Budget, Progress
from tilewright.record import Measurement, Record, SessionStart, Status, VendorRecord
from tilewright.report import LiveReport, PlainReport, end_notes, format_config, format_us, print_end, status_line
from tilewright.result import Edge, TuneResult, WorkloadResult
from tilewright.roofline import Roofline
from tilewright.target import Target, Toolchain, named_target
from tilewright.workload import parse_key

WORKLOAD = parse_key("matmul:M=4096,N=4096,K=4096,dtype=float16")
H200 = named_target("sm_90")


def record(us: float | None, target: Target = H200, status: Status = Status.OK) -> Record:
    measurement = None if us is None else Measurement(protocol="graph/1", median_us=us, min_us=us, max_us=us)
    return Record(trial=0, workload=WORKLOAD, target=target, config={"tile_m": [32, 128], "num_warps": 8}, status=status, measurement=measurement)


def vendor(us: float) -> VendorRecord:
    measurement = Measurement(protocol="graph/1", median_us=us, min_us=us, max_us=us)
    return VendorRecord(name="torch.mm", workload=WORKLOAD, target=H200, status=Status.OK, measurement=measurement)


def progress(**changes: object) -> Progress:
    known = {
        "workload": WORKLOAD,
        "budget": Budget(trials=64, time_s=60.0),
        "roofline": Roofline(flops=2 * 4096.0**3, bytes_moved=3 * 2 * 4096.0**2, compute_us=139.0, memory_us=21.0),
        "vendors": (vendor(180.0),),
        "best": record(200.0),
        "default": record(300.0),
        "done": 12,
        "statuses": Counter({Status.OK: 10, Status.COMPILE_ERROR: 2}),
    }
    return Progress(**{**known, **changes})  # type: ignore[arg-type]


def result(answer: WorkloadResult) -> TuneResult:
    return TuneResult(results=(answer,), log="logs/matmul.jsonl", protocol="graph/1", device="cuda:0 (NVIDIA H200)", reason="budget", wall_s=12.3)


def test_the_line_has_all_that_one_watches_for() -> None:
    line = status_line(progress(), elapsed_s=20.0)
    assert line == "12/64 | best 200 µs (687 TFLOP/s, 70% of roofline) | 1.50x default | 0.90x vendor | 2 compile_error | 40 s left"


def test_the_line_says_what_it_counts() -> None:
    assert status_line(progress(sharing=3), 20.0).startswith("12 trials (all 3 workloads: 64) | best")
    timed = Budget(time_s=60.0)
    assert status_line(progress(budget=timed, asked=15), 20.0).startswith("12 trials | best")
    first = progress(budget=timed, best=None, default=None, vendors=(), done=1, statuses=Counter())
    assert status_line(first, 0.0) == "1 trial | nothing correct yet | 60 s left"


def test_a_memory_bound_workload_is_rated_by_its_bandwidth() -> None:
    memory_bound = Roofline(flops=1e6, bytes_moved=4.8e7, compute_us=1.0, memory_us=10.0)
    assert "(4000 GB/s, 83% of roofline)" in status_line(progress(roofline=memory_bound, best=record(12.0)), 0.0)


def test_before_the_first_correct_result_the_line_says_so() -> None:
    line = status_line(progress(best=None, default=None, vendors=(), done=0, statuses=Counter()), 0.0)
    assert line == "0/64 | nothing correct yet | 60 s left"


def test_the_interpreters_time_is_labelled_and_never_rated() -> None:
    line = status_line(progress(best=record(200.0, H200.interpreted()), default=None, vendors=()), 0.0)
    assert "200 µs (interpreter)" in line and "TFLOP" not in line and "roofline" not in line


def test_the_table_has_default_winner_and_vendor() -> None:
    out = io.StringIO()
    answer = WorkloadResult(workload=WORKLOAD, tier="search", best=record(200.0), default=record(300.0), vendors=(vendor(180.0),), reason="budget")
    print_end(result(answer), out)
    text = out.getvalue()
    for piece in ("300", "200", "180", "1.50x", "0.90x", "tile_m=32x128 num_warps=8", "NVIDIA H200", "graph/1", "log: logs/matmul.jsonl (budget, 12.3 s)"):
        assert piece in text


def test_the_notes_name_failures_refusals_and_edges() -> None:
    answer = WorkloadResult(
        workload=WORKLOAD,
        tier="search",
        best=record(200.0),
        statuses={Status.OK: 3, Status.CRASH: 2, Status.CUT: 1},
        rejected={"too many registers": 7},
        edges=(Edge(knob="num_warps", value=8, end="last"),),
    )
    notes = "\n".join(end_notes(result(answer)))
    assert "2 crash, 1 cut of 6 trials (cut: right, but over 3 times as slow as the best so far, and not timed to the end)" in notes
    assert "(cut:" not in "\n".join(end_notes(result(replace(answer, statuses={Status.CRASH: 5}))))
    assert "7 points refused: too many registers" in notes
    assert "num_warps=8 is the last of its candidates" in notes


def test_failure_of_all_is_said() -> None:
    answer = WorkloadResult(workload=WORKLOAD, tier="search", best=None, statuses={Status.CRASH: 4})
    out = io.StringIO()
    print_end(result(answer), out)
    assert "none is correct" in out.getvalue()
    assert "every candidate failed; `tilewright log stats logs/matmul.jsonl`" in out.getvalue()


def test_plain_progress_writes_a_line_for_each_better_time() -> None:
    stream = io.StringIO()
    report = PlainReport(stream)
    for us in (300.0, 300.0, 200.0):
        report.progress(progress(best=record(us)), record(us), 1.0)
    lines = stream.getvalue().splitlines()
    assert len(lines) == 2 and "best 300" in lines[0] and "best 200" in lines[1]


def test_live_progress_has_a_line_for_each_workload_and_leaves_the_terminal_clean() -> None:
    stream = io.StringIO()
    report = LiveReport(stream)
    start = SessionStart(started_at="2026-11-29T12:00:00+00:00", tilewright="0", operator="matmul", workloads=[WORKLOAD], target=H200, toolchain=Toolchain())
    report.session(start, "cuda:0", Path("m.jsonl"))
    report.progress(progress(), record(200.0), 1.0)
    report.note("waiting for pid 7")
    answer = WorkloadResult(workload=WORKLOAD, tier="search", best=record(200.0))
    report.answered(answer)
    report.end(result(answer))
    assert "tuning matmul on cuda:0" in stream.getvalue() and "waiting for pid 7" in stream.getvalue()


def test_small_formats() -> None:
    assert [format_us(us) for us in (None, 4.71234, 203.44, 1427.49)] == ["-", "4.712", "203.4", "1,427.5"]
    assert format_config({"schedule": "tma", "tile_m": [32, 128], "even": True}) == "schedule=tma tile_m=32x128 even=True"
