"""Raw recordings of Tilewright's own: a GEMM's whole space on several shapes, as lines of a log."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from tilewright.errors import LogDamaged
from tilewright.importing import ImportSession, known_device, naming, recording_text
from tilewright.record import KnobInfo, Line, Measurement, Record, RecordedSpace, Resources, Status, Value, VendorRecord
from tilewright.target import NAMED_TARGETS, Target, Toolchain
from tilewright.workload import Workload

RECORDED_OPERATOR: Final = "recorded_gemm"
RECORDED_PROTOCOL: Final = "recorded-events/1"

_KNOBS: Final = ("BM", "BN", "BK", "W", "S")  # tile, warps, stages
_SHAPE: Final = re.compile(r"\D*(\d+)\D+(\d+)\D+(\d+)\D*")  # `4096x4096x4096` and `(4096, 4096, 4096)`

# Devices that recordings name, by marketing name: the published target, adjusted to what torch reports there.
_DEVICES: Final[Mapping[str, Target]] = {
    "NVIDIA H200": replace(NAMED_TARGETS["sm_90"], name="NVIDIA H200", l2_bytes=60 * 2**20),  # torch.cuda.get_device_properties, 2026-11
}


def import_recorded(path: str | os.PathLike[str]) -> list[Line]:
    """Read a raw recording of Tilewright's own: a GEMM's whole space on several shapes.

    The file is JSON lines, compressed or not. The first holds the vendor's times by shape; each other one a config (BM, BN, BK, W
    warps, S stages) with its build's figures and `us`, `[median, min, max, runs]` in µs by shape, or `err`, why it failed.

    Raises:
        LogError: the file does not exist.
        LogDamaged: it is not such a recording; the message names the line.
        HostError: it cannot be read.
    """
    path = Path(path)
    rows = [_decode(path, number, text) for number, text in enumerate(recording_text(path).splitlines(), 1) if text.strip()]
    if not rows or rows[0].get("kind") != "cublas_us":
        raise LogDamaged(
            f"{path}: its first line is no `cublas_us` line, so it is not a raw recording; for Kernel Tuner's cache files use --format kernel-tuner"
        )
    with naming(path, "the first line"):
        return list(_recorded_lines(path, rows[0], rows[1:]))


def _recorded_lines(path: Path, head: Mapping[str, Any], rows: list[dict[str, Any]]) -> Iterator[Line]:
    session = ImportSession(
        name=f"import-{RECORDED_OPERATOR}",
        operator=RECORDED_OPERATOR,
        target=known_device(path, head["device"], _DEVICES, "raw_recording"),
        toolchain=Toolchain(triton=head["triton"], torch=head["torch"]),
        protocol=RECORDED_PROTOCOL,
        source=path.name,
    )
    vendor_us = {_gemm(shape): us for shape, us in head["shapes"].items()}
    workloads = list(vendor_us)
    knobs = [KnobInfo(name=name, candidates=sorted({row[name] for row in rows})) for name in _KNOBS]
    note = "Plain tiled GEMM, every legal point: BM*BN/(32*W) <= 256 and (BM+BN)*BK*2*S <= 300 KB. Event timing with L2 flush."
    yield RecordedSpace(session=session.name, operator=RECORDED_OPERATOR, knobs=knobs, note=note)
    yield session.start(workloads)
    for workload, us in vendor_us.items():
        rounded = round(us, 3)
        yield VendorRecord(
            session=session.name,
            name="cublas",
            workload=workload,
            target=session.target,
            toolchain=session.toolchain,
            status=Status.OK,
            measurement=Measurement(protocol=RECORDED_PROTOCOL, median_us=rounded, min_us=rounded, max_us=rounded),
        )
    trial = 0
    for number, row in enumerate(rows, 2):
        with naming(path, f"line {number}"):
            records = _recorded_row(session, workloads, row, trial)
        yield from records
        trial += len(records)
    yield session.end(trial, workloads)


def _recorded_row(session: ImportSession, workloads: Iterable[Workload], row: Mapping[str, Any], trial: int) -> list[Record]:
    config: dict[str, Value] = {name: row[name] for name in _KNOBS}
    resources = None
    if "shared" in row:
        resources = Resources(shared_memory_bytes=row["shared"], registers=row.get("regs"), spill_bytes=row.get("spills"), num_warps=row["W"])
    message = row.get("err", "")
    times = {_gemm(shape): figures for shape, figures in row.get("us", {}).items()}
    records = []
    for offset, workload in enumerate(workloads):
        measurement = None
        status = _recorded_failure(message)
        if row["ok"]:
            median_us, min_us, max_us, samples = times[workload]
            measurement = Measurement(protocol=session.protocol, median_us=median_us, min_us=min_us, max_us=max_us, samples=samples)
            status = Status.OK
        records.append(
            Record(
                session=session.name,
                trial=trial + offset,
                workload=workload,
                target=session.target,
                toolchain=session.toolchain,
                config=config,
                status=status,
                message=message,
                measurement=measurement,
                resources=resources,
                # One build serves all shapes: the others had it from the cache.
                build_s=round(row["compile_s"], 4) if offset == 0 else 0.0,
            )
        )
    return records


def _recorded_failure(message: str) -> Status:
    if "OutOfResources" in message:
        return Status.OUT_OF_RESOURCES
    return Status.LAUNCH_ERROR if message.startswith("run ") else Status.COMPILE_ERROR


def _gemm(shape: str) -> Workload:
    match = _SHAPE.fullmatch(shape)
    if match is None:
        raise ValueError(f"{shape!r} is no shape M x N x K")
    m, n, k = (int(extent) for extent in match.groups())
    return Workload(operator=RECORDED_OPERATOR, dims={"M": m, "N": n, "K": k}, dtypes={"dtype": "float16"})


def _decode(path: Path, number: int, text: str) -> dict[str, Any]:
    with naming(path, f"line {number}"):
        row = json.loads(text)
        if not isinstance(row, dict):
            raise ValueError("not an object")
        return row
