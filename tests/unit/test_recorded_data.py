"""The recording that ships: what it holds, and that it is quick to read."""

from __future__ import annotations

import math
import time
from collections import Counter
from functools import cache
from pathlib import Path

from tilewright.best import best_entries
from tilewright.lint import lint
from tilewright.log import LogContents, TuningLog
from tilewright.record import Record, RecordedSpace, Status
from tilewright.recorded import Recording

DATA = Path(__file__).parents[2] / "benchmarks" / "data" / "recorded_gemm_h200.jsonl.gz"

# Least median over all configs, taken from the raw recording by hand.
BEST_US = {
    (16, 4096, 14336): 47.52,
    (128, 28672, 8192): 123.39,
    (512, 512, 8192): 22.88,
    (1024, 14336, 4096): 178.4,
    (2048, 2048, 2048): 28.8,
    (4096, 4096, 4096): 187.97,
    (8192, 1024, 4096): 95.9,
    (8192, 8192, 8192): 1468.96,
}


@cache
def contents() -> LogContents:
    return TuningLog(DATA).read()


def test_every_legal_point_of_every_shape_is_there() -> None:
    records = [line for line in contents().lines if isinstance(line, Record)]
    assert contents().damage == ()
    assert len(records) == 1804 * 8
    assert Counter(record.status for record in records) == {Status.OK: 1700 * 8, Status.OUT_OF_RESOURCES: 62 * 8, Status.COMPILE_ERROR: 42 * 8}
    (space,) = [line for line in contents().lines if isinstance(line, RecordedSpace)]
    assert math.prod(len(knob.candidates) for knob in space.knobs) == 2304
    recording = Recording(contents().lines)
    assert len(recording.workloads) == 8
    for workload in recording.workloads.values():
        count = recording.space(workload).count()
        assert (count.legal, count.points) == (1804, 2304)
        assert [vendor.name for vendor in recording.vendors(workload)] == ["cublas"]


def test_it_has_no_faults() -> None:
    # Less than it takes at the peak rate, no time may be.
    def floor_us(workload: object, target: object) -> float:
        dims = workload.dims  # type: ignore[attr-defined]
        return float(2e-6 * dims["M"] * dims["N"] * dims["K"] / target.tflops["float16"])  # type: ignore[attr-defined]

    assert lint(contents(), floor_us=floor_us) == ()


def test_one_best_schedule_a_shape() -> None:
    entries = best_entries(line for line in contents().lines if isinstance(line, Record))
    assert {tuple(entry.workload.dims[name] for name in "MNK"): entry.median_us for entry in entries} == BEST_US


def test_it_is_small_and_quick_to_read() -> None:
    assert DATA.stat().st_size < 2_000_000
    began = time.process_time()
    TuningLog(DATA).read()
    # 0.15 to 0.2 s where nothing else runs (2-core x86 machine); the limit leaves room for a busy one.
    assert time.process_time() - began < 4
