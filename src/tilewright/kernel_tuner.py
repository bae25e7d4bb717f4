"""Cache files of Kernel Tuner, in which the auto-tuning community shares recorded spaces, as lines of a log."""

from __future__ import annotations

import json
import os
import re
import statistics
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from tilewright.importing import ImportSession, naming, recording_text
from tilewright.record import KnobInfo, Line, Measurement, Record, RecordedSpace, Status, Value
from tilewright.recorded_devices import recorded_device
from tilewright.target import Toolchain
from tilewright.workload import Workload

KERNEL_TUNER_PROTOCOL: Final = "kernel-tuner/1"

_FAILURES: Final[Mapping[str, Status]] = {
    "CompilationFailedConfig": Status.COMPILE_ERROR,
    "RuntimeFailedConfig": Status.LAUNCH_ERROR,
    "InvalidConfig": Status.OUT_OF_RESOURCES,
}
# What older caches hold as the time, in ms, of a config that failed, whatever the reason.
_FAILED_MS: Final = 1e20


def import_kernel_tuner(path: str | os.PathLike[str]) -> list[Line]:
    """Read a cache file of Kernel Tuner: one kernel's space on one problem size.

    The operator is named after the kernel, and its workload's dims after the axes of the problem size: `N0`, `N1`, ...

    Raises:
        LogError: the file does not exist.
        LogDamaged: it is not such a file.
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
    operator = re.sub(r"\W", "_", cache["kernel_name"], flags=re.ASCII)
    session = ImportSession(
        name=f"import-{operator}",
        operator=operator,
        target=recorded_device(cache["device_name"]),
        toolchain=Toolchain(),
        protocol=KERNEL_TUNER_PROTOCOL,
        source=path.name,
    )
    workload = Workload(operator=operator, dims={f"N{axis}": extent for axis, extent in enumerate(_extents(cache["problem_size"]))}, dtypes={})
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


def _extents(size: Any) -> list[int]:
    if isinstance(size, str):  # such as "(4096, 4096)", or a product
        return [int(digits) for digits in re.findall(r"\d+", size)]
    return [int(extent) for extent in (size if isinstance(size, list) else [size])]


def _kernel_tuner_record(session: ImportSession, workload: Workload, names: Iterable[str], entry: Mapping[str, Any], trial: int) -> Record:
    time_ms = entry["time"]
    failure = time_ms if isinstance(time_ms, str) else str(entry.get("__error__", ""))
    if not failure and not 0 < time_ms < _FAILED_MS:
        failure = f"time {time_ms}: none was measured"
    measurement = None
    if not failure:
        samples_us = [sample * 1000.0 for sample in entry.get("times") or [time_ms] if sample > 0] or [time_ms * 1000.0]
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
        build_s=round(float(entry.get("compile_time") or 0.0) / 1000.0, 4),
    )


def _sorted(candidates: list[Value]) -> list[Value]:
    numbers = [value for value in candidates if isinstance(value, int | float)]
    return sorted(numbers) if len(numbers) == len(candidates) else list(candidates)
