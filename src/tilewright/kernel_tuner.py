"""Cache files of Kernel Tuner, in which the auto-tuning community shares recorded spaces, as lines of a log."""

from __future__ import annotations

import json
import os
import re
import statistics
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from tilewright.importing import ImportSession, known_device, naming, recording_text
from tilewright.record import KnobInfo, Line, Measurement, Record, RecordedSpace, Status, Value
from tilewright.target import NAMED_TARGETS, Target, Toolchain
from tilewright.workload import Workload

KERNEL_TUNER_PROTOCOL: Final = "kernel-tuner/1"

# CUDA C++ Programming Guide, "Technical Specifications per Compute Capability"; vendors' data sheets and white papers.
_DEVICES: Final[Mapping[str, Target]] = {
    "NVIDIA A100-PCIE-40GB": replace(NAMED_TARGETS["sm_80"], name="NVIDIA A100-PCIE-40GB", memory_bytes=40 * 2**30, bandwidth_gb_s=1555.0),
    "NVIDIA GeForce RTX 3090": Target(
        backend="cuda", arch="sm_86", name="NVIDIA GeForce RTX 3090", sm_count=82, warp_size=32,
        shared_memory_bytes=99 * 1024, shared_memory_per_sm_bytes=100 * 1024, registers_per_sm=65536, max_threads_per_sm=1536,
        l2_bytes=6 * 2**20, memory_bytes=24 * 2**30, bandwidth_gb_s=936.0,
        tflops={"float16": 142.0, "bfloat16": 71.0, "float32": 35.6},
    ),
}  # fmt: skip

_FAILURES: Final[Mapping[str, Status]] = {
    "CompilationFailedConfig": Status.COMPILE_ERROR,
    "RuntimeFailedConfig": Status.LAUNCH_ERROR,
    "InvalidConfig": Status.OUT_OF_RESOURCES,
}


def import_kernel_tuner(path: str | os.PathLike[str]) -> list[Line]:
    """Read a cache file of Kernel Tuner: one kernel's space on one problem size.

    The operator is named after the kernel, and its workload's dims after the axes of the problem size: `N0`, `N1`, ...

    Raises:
        LogError: the file does not exist.
        LogDamaged: it is not such a file.
        UsageError: nothing is known of the device it names.
        HostError: it cannot be read.
    """
    path = Path(path)
    with naming(path, "the file"):
        cache = json.loads(_closed(recording_text(path)))
        return list(_kernel_tuner_lines(path, cache))


def _closed(text: str) -> str:
    # Kernel Tuner appends entries as it goes, and closes the two braces only when it ends.
    text = text.rstrip()
    return text[:-1] + "}}" if text.endswith(",") else text


def _kernel_tuner_lines(path: Path, cache: Mapping[str, Any]) -> Iterator[Line]:
    operator = re.sub(r"\W", "_", cache["kernel_name"])
    session = ImportSession(
        name=f"import-{operator}",
        operator=operator,
        target=known_device(path, cache["device_name"], _DEVICES, "kernel_tuner"),
        toolchain=Toolchain(),
        protocol=KERNEL_TUNER_PROTOCOL,
        source=path.name,
    )
    size = cache["problem_size"]
    extents = size if isinstance(size, list) else [size]
    workload = Workload(operator=operator, dims={f"N{axis}": int(extent) for axis, extent in enumerate(extents)}, dtypes={})
    names = cache["tune_params_keys"]
    knobs = [KnobInfo(name=name, candidates=_sorted(cache["tune_params"][name])) for name in names]
    yield RecordedSpace(
        session=session.name, operator=operator, knobs=knobs, note=f"Kernel Tuner cache file of {cache['kernel_name']} on {cache['device_name']}."
    )
    yield session.start([workload])
    for trial, (key, entry) in enumerate(cache["cache"].items()):
        with naming(path, f"entry {key}"):
            record = _kernel_tuner_record(session, workload, names, entry, trial)
        yield record
    yield session.end(len(cache["cache"]), [workload])


def _kernel_tuner_record(session: ImportSession, workload: Workload, names: Iterable[str], entry: Mapping[str, Any], trial: int) -> Record:
    time_ms = entry["time"]
    failure = time_ms if isinstance(time_ms, str) else ""
    measurement = None
    if not failure:
        samples_us = [sample * 1000.0 for sample in entry.get("times") or [time_ms]]
        mean = statistics.fmean(samples_us)
        measurement = Measurement(
            protocol=session.protocol,
            # Its `time`, the mean of the samples, is what the community compares; kept as the time here for that reason.
            median_us=time_ms * 1000.0,
            min_us=min(samples_us),
            max_us=max(samples_us),
            cv=round(statistics.pstdev(samples_us) / mean, 5) if mean else 0.0,
            samples=len(samples_us),
        )
    return Record(
        session=session.name,
        trial=trial,
        workload=workload,
        target=session.target,
        config={name: entry[name] for name in names},
        status=_FAILURES.get(failure, Status.CRASH) if failure else Status.OK,
        message=failure,
        measurement=measurement,
        build_s=round(entry.get("compile_time", 0.0) / 1000.0, 4),
    )


def _sorted(candidates: list[Value]) -> list[Value]:
    numbers = [value for value in candidates if isinstance(value, int | float)]
    return sorted(numbers) if len(numbers) == len(candidates) else list(candidates)
