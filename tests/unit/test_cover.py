"""A few schedules for many workloads: the fewest that do, what each loses, and the ranges between the tuned extents."""

from __future__ import annotations

import itertools
import json
import random
from pathlib import Path
from typing import Any

import pytest

from tilewright.best import parse_best_file
from tilewright.cli import main
from tilewright.cover import covers, fewest
from tilewright.economics import savings
from tilewright.errors import ExitCode, UsageError
from tilewright.library import find_operator
from tilewright.log import TuningLog, write_log
from tilewright.ranges import pieces, probes, ranges
from tilewright.record import Measurement, Racer, RaceRecord, Record, SessionEnd, Status, VendorRecord
from tilewright.target import Toolchain, named_target
from tilewright.workload import Workload

TARGET = named_target("sm_90")
RECORDING = Path(__file__).parents[2] / "benchmarks" / "data" / "recorded_gemm_h200.jsonl.gz"


def record(m: int, source: str, us: float, **changes: Any) -> Record:
    workload = Workload(operator="m", dims={"M": m, "N": 64}, dtypes={})
    measurement = Measurement(protocol="graph/1", median_us=us, min_us=us, max_us=us)
    fields = {"status": Status.OK, "measurement": measurement, "config": {"tile": [m, 16], "of": source}, "target": TARGET, "source": source}
    return Record(session="s", trial=0, workload=workload, **{**fields, **changes})


def test_the_same_code_is_one_schedule_whatever_its_outer_splits() -> None:
    records = [record(16, "a", 10.0), record(4096, "a", 102.0), record(4096, "b", 100.0), record(16, "b", 11.0)]
    (cover,) = covers(records, max_loss=1.03, max_schedules=8)
    assert cover.schedules == ("a",)
    assert {key: round(served.loss, 3) for key, served in cover.served.items()} == {"m:M=16,N=64": 1.0, "m:M=4096,N=64": 1.02}
    assert cover.served["m:M=4096,N=64"].record.config["tile"] == [4096, 16]  # its own split, not the other workload's
    assert (cover.exact, round(cover.worst, 3)) == (True, 1.02)


def test_a_schedule_without_a_correct_time_cannot_serve() -> None:
    failed = record(4096, "a", 0.0, status=Status.COMPILE_ERROR, measurement=None, message="no")
    wrong = record(4096, "c", 1.0, status=Status.WRONG_RESULT, message="wrong")
    records = [record(16, "a", 10.0), failed, record(4096, "b", 100.0), record(16, "b", 20.0), record(4096, "c", 90.0), wrong]
    (cover,) = covers(records, max_loss=1.03, max_schedules=8)
    assert cover.schedules == ("a", "b")
    (cover,) = covers(records, max_loss=2.0, max_schedules=1)
    assert cover.schedules == ("b",)


def test_what_would_do_is_said_where_the_limits_do_not() -> None:
    records = [record(m, name, 10.0 if own == m else 15.0) for own, name in ((1, "a"), (2, "b"), (4, "c")) for m in (1, 2, 4)]
    with pytest.raises(UsageError, match=r"m: 3 workloads within 1.03 of their best need 3 schedules, and with 2 the loss is 1.500"):
        covers(records, max_loss=1.03, max_schedules=2)
    with pytest.raises(UsageError, match="no loss allows fewer"):
        covers([record(1, "a", 1.0), record(2, "b", 1.0)], max_loss=9.0, max_schedules=1)
    with pytest.raises(UsageError, match="max loss must be 1 or more"):
        covers(records, max_loss=0.9, max_schedules=2)


def test_no_smaller_set_does() -> None:
    rng = random.Random(0)
    for _ in range(40):
        workloads = rng.randrange(1, 9)
        losses = [{w: rng.choice([1.0, 1.02, 1.2]) for w in range(workloads) if rng.random() < 0.6} for _ in range(rng.randrange(1, 9))]
        losses.append({w: 1.0 for w in range(workloads)} if rng.random() < 0.2 else {})
        losses += [{w: 1.0} for w in range(workloads)]
        chosen, exact = fewest(losses, workloads, 1.03)
        served = [{w for w, loss in by_workload.items() if loss <= 1.03} for by_workload in losses]
        assert exact and set().union(*(served[s] for s in chosen)) == set(range(workloads))
        smaller = itertools.combinations(served, len(chosen) - 1)
        assert not any(set().union(*some) == set(range(workloads)) for some in smaller)


def test_the_order_of_records_changes_nothing() -> None:
    records = [line for line in TuningLog(RECORDING).read().lines if isinstance(line, Record)][::7]
    (first,) = covers(records, max_loss=1.5, max_schedules=8)
    random.Random(3).shuffle(records)
    assert covers(records, max_loss=1.5, max_schedules=8) == (first,)


def test_a_recorded_space_is_served_by_four_schedules_within_three_percent() -> None:
    records = [line for line in TuningLog(RECORDING).read().lines if isinstance(line, Record)]
    (cover,) = covers(records, max_loss=1.03, max_schedules=8)
    assert len(cover.schedules) == 4
    assert cover.exact
    assert len(cover.served) == 8
    assert cover.mean < 1.01


def test_pieces_cover_every_extent_once() -> None:
    for points in ([1], [7], [1, 2, 4, 8, 24], [16, 100, 4096]):
        covered = [extent for low, high in pieces(points) for extent in range(low, high + 1)]
        assert covered == list(range(1, points[-1] + 1))
        assert all(high in points or high.bit_count() == 1 for _, high in pieces(points))
    assert probes(5, 5) == [5]
    assert any(extent % 2 for extent in probes(16, 1024))


def test_an_extent_goes_to_the_tuned_one_above_where_that_is_legal() -> None:
    records = [record(16, "small", 1.0), record(16, "large", 9.0), record(64, "large", 1.0), record(64, "small", 9.0)]
    (cover,) = covers(records, max_loss=1.03, max_schedules=2)

    def legal(record: Record, workload: Workload) -> bool:
        return record.source == "small" or workload.dims["M"] > 32

    (line,) = ranges(cover, "M", legal)
    assert [(step.low, step.high, step.at, step.pins.source) for step in line.steps] == [(1, 32, 16, "small"), (33, 64, 64, "large")]
    assert line.default is not None
    assert (line.default.low, line.default.pins.source) == (65, "large")
    assert line.workload.dims == {"N": 64}
    assert line.tuned == [16, 64]
    (never,) = ranges(cover, "M", lambda record, workload: False)
    assert (never.steps, never.default) == ([], None)
    (odd,) = ranges(cover, "M", lambda record, workload: workload.dims["M"] % 8 == 0)  # alignment shows at odd extents
    assert odd.default is None


def matmul_log(path: Path) -> None:
    operator = find_operator("matmul")
    lines: list[Any] = []
    trial = 0
    for m in (16, 64, 256):
        workload = operator.spec.workload(f"M={m},N=256,K=256,dtype=float16")
        for bm, warps in ((16, 2), (64, 4)):
            if bm > m:
                continue
            config = {
                "schedule": "pointers",
                "tile_m": [-(-m // bm), bm],
                "tile_n": [4, 64],
                "tile_k": [4, 64],
                "num_warps": warps,
                "num_stages": 2,
                "split_k": 1,
            }
            if m > bm:
                config["group_m"] = 8
            source = operator.instantiate(workload, TARGET, config)
            us = 10.0 + m / 16 * (1 if bm == 64 else 2) if m > 16 else 10.0
            lines.append(
                Record(
                    session="s", trial=trial, workload=workload, target=TARGET, config=config, status=Status.OK, template=source.template_hash,
                    source=source.hash, toolchain=Toolchain(triton="3.6.0"), default=bm == 16,
                    measurement=Measurement(protocol="graph/1", median_us=us, min_us=us, max_us=us),
                )
            )  # fmt: skip
            trial += 1
        lines.append(
            VendorRecord(
                session="s",
                name="torch.mm",
                workload=workload,
                target=TARGET,
                status=Status.OK,
                measurement=Measurement(protocol="graph/1", median_us=12.0, min_us=12.0, max_us=12.0),
            )
        )
    lines.append(SessionEnd(session="s", ended_at="", reason="budget", trials=trial, wall_s=trial * 2.0))
    write_log(path, lines)


def test_best_covers_a_dim_and_emits_its_ranges(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    matmul_log(tmp_path / "log.jsonl")
    best = tmp_path / "best.jsonl"
    assert main(["best", str(tmp_path / "log.jsonl"), "--cover", "M", "--max-loss", "1.05", "-o", str(best)]) == 0
    said = capsys.readouterr().out
    assert "matmul: 2 schedules serve 3 workloads (no fewer can); loss at most 0.0%" in said
    assert "matmul:K=256,M=64,N=256,dtype=float16,a_layout=row,b_layout=row" in said
    assert "M 1..32 #" in said
    file = parse_best_file(best.read_text())
    assert len(file.entries) == 3
    (line,) = file.ranges
    assert [(step.low, step.high, step.at) for step in line.steps] == [(1, 32, 16), (33, 256, 64)]
    assert line.default is not None
    assert file.text == best.read_text()
    merged = tmp_path / "merged.jsonl"
    assert main(["best", str(best), str(tmp_path / "log.jsonl"), "-o", str(merged)]) == 0
    assert parse_best_file(merged.read_text()).ranges == file.ranges
    assert (
        main(["emit", str(best), "-o", str(tmp_path / "out"), "--name", "kernels", "--triton", "3.6", "--strict", "--require", "matmul:M=200,N=256,K=256"]) == 0
    )
    scope: dict[str, Any] = {}
    exec((tmp_path / "out" / "kernels" / "_table.py").read_text(), scope)
    (row,) = scope["TABLES"]["matmul"]["ranges"]
    assert [step[:2] for step in row["ranges"]] == [[1, 32], [33, 256]]
    assert row["default"] == row["ranges"][1][2]
    assert row["fixed"] == {"N": 256, "K": 256, "dtype": "float16", "a_layout": "row", "b_layout": "row"}
    assert (tmp_path / "out" / "kernels" / "_schedules" / f"{row['ranges'][0][2]}.py").exists()
    assert main(["emit", str(best), "-o", str(tmp_path / "out"), "--triton", "3.6", "--require", "matmul:M=16,N=257,K=256"]) == ExitCode.FAILED
    assert "M=16,N=256,dtype=float16,a_layout=row,b_layout=row differs in N (257, not 256)" in capsys.readouterr().err


def test_a_dim_that_is_not_there_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    matmul_log(tmp_path / "log.jsonl")
    assert main(["best", str(tmp_path / "log.jsonl"), "--cover", "m"]) == ExitCode.USAGE
    assert "no operator in these logs has a dim 'm'" in capsys.readouterr().err


def test_economics_say_when_tuning_has_paid_for_itself(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    matmul_log(tmp_path / "log.jsonl")
    assert main(["best", str(tmp_path / "log.jsonl"), "--calls-per-day", "1e6", "--json"]) == 0
    rows = {row["workload"].split(",")[1]: row for row in json.loads(capsys.readouterr().out)["economics"]}
    middle = rows["M=64"]
    assert (middle["best_us"], middle["tuning_s"]) == (14.0, 4.0)  # two of five trials, of ten seconds
    assert (middle["saved_over_default_us"], middle["break_even_calls_over_default"], middle["break_even_days_over_default"]) == (4.0, 1e6, 1.0)
    assert (middle["saved_over_vendor_us"], middle["break_even_calls_over_vendor"]) == (-2.0, None)
    assert rows["M=16"]["saved_over_vendor_us"] == 2.0
    assert main(["best", str(tmp_path / "log.jsonl"), "--calls-per-day", "1e6"]) == 0
    assert "never" in capsys.readouterr().out


def test_economics_compare_by_the_race_where_there_was_one(tmp_path: Path) -> None:
    # Times taken at different moments hold drift: alone, the vendor seems faster, and the default slower, than they are in turns.
    best, default = record(64, "a", 10.0), record(64, "b", 18.0, default=True)
    time = Measurement(protocol="graph/1", median_us=9.0, min_us=9.0, max_us=9.0)
    vendor = VendorRecord(session="s", name="torch.mm", workload=best.workload, target=best.target, status=Status.OK, measurement=time)
    racers = [
        Racer(config=best.config, source=best.source, median_us=10.0, ratio=1.0),
        Racer(config=default.config, source=default.source, default=True, median_us=12.0, ratio=1.2),
        Racer(vendor="torch.mm", median_us=11.0, ratio=1.1),
        Racer(vendor="torch.matmul", median_us=13.0, ratio=1.3),
    ]
    race = RaceRecord(session="s", workload=best.workload, target=best.target, protocol="graph/1", racers=racers, winner=0, rounds=9)
    (alone,) = savings([best, default, vendor], 1e6)
    assert (alone.saved_over_default_us, alone.saved_over_vendor_us) == (8.0, -1.0)
    (raced,) = savings([vendor, race, default, best], 1e6)
    assert raced.saved_over_default_us == pytest.approx(2.0) and raced.saved_over_vendor_us == pytest.approx(1.0)
