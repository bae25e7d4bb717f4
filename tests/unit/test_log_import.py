"""Importing other tools' recordings."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from tilewright.errors import LogDamaged, LogError, UsageError
from tilewright.importers import import_kernel_tuner, import_log, import_recorded
from tilewright.lint import lint
from tilewright.log import TuningLog, write_log
from tilewright.record import Line, Record, RecordedSpace, Resources, SessionEnd, Status, VendorRecord
from tilewright.recorded import Recording

HEAD = {
    "kind": "cublas_us",
    "shapes": {"(64, 32, 16)": 3.14159, "(128, 32, 16)": 4.0},
    "device": "NVIDIA H200",
    "torch": "2.11.0+cu130",
    "triton": "3.6.0",
}
GOOD = {"BM": 32, "BN": 16, "BK": 16, "W": 4, "S": 3, "ok": True, "compile_s": 1.23456, "shared": 4096, "regs": 40, "spills": 8}
GOOD_US = {"64x32x16": [5.0, 4.5, 9.0, 15], "128x32x16": [6.0, 5.5, 7.0, 12]}
OVER = {
    "BM": 16,
    "BN": 16,
    "BK": 16,
    "W": 2,
    "S": 2,
    "ok": False,
    "compile_s": 0.5,
    "shared": 300_000,
    "err": "run OutOfResources: out of resource: shared memory",
}
BAD = {"BM": 16, "BN": 16, "BK": 16, "W": 8, "S": 2, "ok": False, "compile_s": 0.5, "err": "PTXASError: PTXAS error\nptxas fatal"}
ODD = {**BAD, "W": 16, "err": "run RuntimeError: illegal memory access"}


def raw(tmp_path: Path, *rows: dict[str, Any]) -> Path:
    path = tmp_path / "raw.jsonl.gz"
    path.write_bytes(gzip.compress("".join(json.dumps(row) + "\n" for row in rows).encode()))
    return path


def kernel_tuner(tmp_path: Path, text: str | None = None, **changes: Any) -> Path:
    def entry(time: object, x: int, flag: int, **more: Any) -> dict[str, Any]:
        return {"block": x, "flag": flag, "time": time, "compile_time": 250.0, **more}

    cache = {
        "device_name": "NVIDIA A100-PCIE-40GB",
        "kernel_name": "conv-2d",
        "problem_size": [4096, 2048],
        "tune_params_keys": ["block", "flag"],
        "tune_params": {"block": [64, 16, 32], "flag": [0, 1]},
        "objective": "time",
        "cache": {
            "64,0": entry(1.5, 64, 0, times=[1.0, 2.0]),
            "16,1": entry("RuntimeFailedConfig", 16, 1),
            "16,0": entry("CompilationFailedConfig", 16, 0),
            "32,0": entry("SomethingNew", 32, 0),
            "32,1": entry(0.25, 32, 1),
        },
        **changes,
    }
    path = tmp_path / "cache.json"
    path.write_text(text if text is not None else json.dumps(cache))
    return path


def records(lines: list[Line]) -> list[Record]:
    return [line for line in lines if isinstance(line, Record)]


def test_a_raw_recording_becomes_one_session(tmp_path: Path) -> None:
    lines = import_recorded(raw(tmp_path, HEAD, {**GOOD, "us": GOOD_US}, OVER, BAD, ODD))
    space, _, *_, last = lines
    assert isinstance(space, RecordedSpace)
    assert [(knob.name, knob.candidates) for knob in space.knobs] == [("BM", [16, 32]), ("BN", [16]), ("BK", [16]), ("W", [2, 4, 8, 16]), ("S", [2, 3])]
    assert isinstance(last, SessionEnd)
    assert last.trials == len(records(lines)) == 8
    assert [record.trial for record in records(lines)] == list(range(8))
    vendors = [line for line in lines if isinstance(line, VendorRecord)]
    assert [(vendor.name, vendor.workload.key, vendor.measurement and vendor.measurement.median_us) for vendor in vendors] == [
        ("cublas", "recorded_gemm:K=16,M=64,N=32,dtype=float16", 3.142),
        ("cublas", "recorded_gemm:K=16,M=128,N=32,dtype=float16", 4.0),
    ]


def test_figures_and_failures_of_a_raw_recording(tmp_path: Path) -> None:
    good, other, over, _, bad, _, odd, _ = records(import_recorded(raw(tmp_path, HEAD, {**GOOD, "us": GOOD_US}, OVER, BAD, ODD)))
    assert good.measurement is not None
    assert (good.measurement.median_us, good.measurement.min_us, good.measurement.max_us, good.measurement.samples) == (5.0, 4.5, 9.0, 15)
    assert good.measurement.protocol == "recorded-events/1"
    assert good.config == {"BM": 32, "BN": 16, "BK": 16, "W": 4, "S": 3}
    assert good.resources == Resources(shared_memory_bytes=4096, registers=40, spill_bytes=8, num_warps=4)
    assert (good.build_s, other.build_s) == (1.2346, 0.0)
    assert other.workload.dims["M"] == 128
    assert (good.target.sm_count, good.target.l2_bytes, good.target.shared_memory_bytes, good.target.name) == (132, 62914560, 232448, "NVIDIA H200")
    assert (good.toolchain.triton, good.toolchain.torch) == ("3.6.0", "2.11.0+cu130")
    assert [(record.status, record.measurement) for record in (over, bad, odd)] == [
        (Status.OUT_OF_RESOURCES, None),
        (Status.COMPILE_ERROR, None),
        (Status.LAUNCH_ERROR, None),
    ]
    assert over.resources is not None
    assert bad.resources is None
    assert bad.message == BAD["err"]


def test_an_import_reproduces_and_stands_in_for_a_device(tmp_path: Path) -> None:
    source = raw(tmp_path, HEAD, {**GOOD, "us": GOOD_US}, OVER, BAD)
    for name in ("one.jsonl.gz", "two.jsonl.gz"):
        write_log(tmp_path / name, import_log(source, "recorded"))
    assert (tmp_path / "one.jsonl.gz").read_bytes() == (tmp_path / "two.jsonl.gz").read_bytes()
    log = TuningLog(tmp_path / "one.jsonl.gz")
    assert lint(log.read()) == ()
    recording = Recording.read(log)
    assert recording.operator == "recorded_gemm"
    assert all(recording.space(workload).count().legal == 3 for workload in recording.workloads.values())


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ([GOOD], "first line is no `cublas_us` line"),
        ([HEAD, {**GOOD, "us": {"64x32x16": [5.0, 4.5, 9.0, 15]}}], "line 2: .*is missing"),
        ([HEAD, {**GOOD, "us": {**GOOD_US, "64x32x16": [5.0]}}], "line 2: not enough values"),
        ([HEAD, {"BM": 1}], "'BN' is missing"),
        ([{**HEAD, "shapes": {"large": 1.0}}, BAD], "'large' is no shape"),
    ],
)
def test_what_is_no_raw_recording_names_the_place(tmp_path: Path, rows: list[dict[str, Any]], said: str) -> None:
    with pytest.raises(LogDamaged, match=said):
        import_recorded(raw(tmp_path, *rows))


def test_a_file_that_cannot_be_had(tmp_path: Path) -> None:
    with pytest.raises(LogError, match="no recording"):
        import_recorded(tmp_path / "nowhere.jsonl")
    cut = raw(tmp_path, HEAD, BAD)
    cut.write_bytes(cut.read_bytes()[:-20])
    with pytest.raises(LogDamaged, match="the file"):
        import_recorded(cut)
    cut.write_text(json.dumps(HEAD) + "\n{torn")
    with pytest.raises(LogDamaged, match="line 2"):
        import_recorded(cut)
    with pytest.raises(UsageError, match=r"'NVIDIA H201'; did you mean 'NVIDIA H200'"):
        import_recorded(raw(tmp_path, {**HEAD, "device": "NVIDIA H201"}, BAD))
    with pytest.raises(UsageError, match="kernel-tuner"):
        import_log(cut, "kernel-tunr")


def test_a_kernel_tuner_cache_becomes_a_recording(tmp_path: Path) -> None:
    lines = import_log(kernel_tuner(tmp_path), "kernel-tuner")
    good, runtime, compilation, unknown, single = records(lines)
    assert good.workload.key == "conv_2d:N0=4096,N1=2048"
    assert good.measurement is not None
    assert (good.measurement.median_us, good.measurement.min_us, good.measurement.max_us) == (1500.0, 1000.0, 2000.0)
    assert (good.measurement.samples, good.measurement.cv, good.build_s) == (2, 0.33333, 0.25)
    assert [record.status for record in (runtime, compilation, unknown)] == [Status.LAUNCH_ERROR, Status.COMPILE_ERROR, Status.CRASH]
    assert unknown.message == "SomethingNew"
    assert single.measurement is not None
    assert single.measurement.samples == 1
    recording = Recording(lines)
    (workload,) = recording.workloads.values()
    assert [config["block"] for config in recording.space(workload).enumerate()] == [16, 16, 32, 32, 64]
    assert recording.target.sm_count == 108


def test_a_kernel_tuner_cache_of_one_axis_or_not_closed_is_read(tmp_path: Path) -> None:
    lines = import_kernel_tuner(kernel_tuner(tmp_path, problem_size=20_000_000))
    assert records(lines)[0].workload.dims == {"N0": 20_000_000}
    whole = kernel_tuner(tmp_path).read_text()
    unclosed = whole[:-2] + ",\n"
    assert records(import_kernel_tuner(kernel_tuner(tmp_path, unclosed))) == records(import_kernel_tuner(kernel_tuner(tmp_path, whole)))


@pytest.mark.parametrize(("text", "said"), [("{", "the file"), ("[]", "the file"), ("{}", "'kernel_name' is missing")])
def test_what_is_no_kernel_tuner_cache_says_so(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(LogDamaged, match=said):
        import_kernel_tuner(kernel_tuner(tmp_path, text))


def test_a_broken_kernel_tuner_entry_is_named(tmp_path: Path) -> None:
    with pytest.raises(LogDamaged, match="entry 1,2: 'time' is missing"):
        import_kernel_tuner(kernel_tuner(tmp_path, cache={"1,2": {"block": 16, "flag": 0}}))
