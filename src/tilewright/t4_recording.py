"""T4 files, in which the auto-tuning community shares results, as lines of a log: recorded spaces.

Read are schema 1.0.0 (Kernel Tuner, KTT) and 1.1.0, with or without what Tilewright adds to its own files (`interchange.t4`).
"""

from __future__ import annotations

import json
import os
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from tilewright.errors import UsageError
from tilewright.importing import ImportSession, naming, recording_text
from tilewright.knobs import Value, typed_key
from tilewright.record import Check, KnobInfo, Line, Measurement, Record, RecordedSpace, Resources, Status, VendorRecord
from tilewright.recorded_devices import recorded_device
from tilewright.target import Target, Toolchain, named_target
from tilewright.workload import NAME, Workload, parse_key

T4_VERSION: Final = "1.1.0"
T4_PROTOCOL: Final = "t4/1"
# The object that holds what T4 has no fields for.
EXTENSION: Final = "tilewright"

# T4's word for how a config ended, and back.
INVALIDITY: Final[Mapping[Status, str]] = {
    Status.OK: "correct",
    Status.COMPILE_ERROR: "compile",
    Status.COMPILE_TIMEOUT: "timeout",
    Status.OUT_OF_RESOURCES: "constraints",
    Status.LAUNCH_ERROR: "runtime",
    Status.RUN_TIMEOUT: "timeout",
    Status.CRASH: "runtime",
    Status.WRONG_RESULT: "correctness",
    Status.OUT_OF_BOUNDS: "correctness",
    Status.IMPOSSIBLE: "correctness",
    Status.CUT: "timeout",
}
_STATUSES: Final = {
    "correct": Status.OK,
    "compile": Status.COMPILE_ERROR,
    "timeout": Status.RUN_TIMEOUT,
    "constraints": Status.OUT_OF_RESOURCES,
    "runtime": Status.LAUNCH_ERROR,
    "correctness": Status.WRONG_RESULT,
}

# Microseconds in a unit. "miliseconds" is how some shared files spell it; without a word, it is what Kernel Tuner's files have.
_UNITS: Final = {
    "s": 1e6, "sec": 1e6, "second": 1e6, "seconds": 1e6, "": 1e3, "ms": 1e3, "millisecond": 1e3, "milliseconds": 1e3, "miliseconds": 1e3,
    "us": 1.0, "µs": 1.0, "microsecond": 1.0, "microseconds": 1.0, "ns": 1e-3, "nanosecond": 1e-3, "nanoseconds": 1e-3,
}  # fmt: skip
# Names of measurements that are times, as the community's tuners call them; looked for where the objective is none.
_TIMES: Final = ("time", "TotalDuration", "duration", "runtime")


class _Kept(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What Tilewright keeps of a record besides T4's own fields; without a toolchain it is the file's."""

    status: Status
    message: str = ""
    toolchain: Toolchain | None = None
    template: str = ""
    source: str = ""
    binary: str = ""
    measurement: Measurement | None = None
    check: Check | None = None
    resources: Resources | None = None
    build_s: float = 0.0
    default: bool = False


class _Vendor(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    name: str
    status: Status
    message: str = ""
    toolchain: Toolchain = msgspec.field(default_factory=Toolchain)
    measurement: Measurement | None = None


class _About(msgspec.Struct, frozen=True, kw_only=True):
    """What Tilewright says of a file as a whole."""

    workload: Workload
    target: Target
    toolchain: Toolchain = msgspec.field(default_factory=Toolchain)
    protocol: str = T4_PROTOCOL
    knobs: list[KnobInfo] = msgspec.field(default_factory=list)
    complete: bool = False
    note: str = ""
    vendors: list[_Vendor] = msgspec.field(default_factory=list)


class _Read:
    """One file: what it is about, and its results."""

    def __init__(self, path: Path, operator: str, workload: str, target: str) -> None:
        with naming(path, "the file"):
            document = json.loads(recording_text(path))
            self.results: list[Mapping[str, Any]] = list(document["results"])
            self.metadata = dict(document.get("metadata") or {})
            self.own = EXTENSION in self.metadata
            if not self.results:
                raise ValueError("it has no results")
            about = _convert(self.metadata[EXTENSION], _About) if self.own else None
        self.about: _About = about or _foreign(path, self.metadata, operator, workload, target)
        self.path = path


def import_t4(paths: str | os.PathLike[str] | Sequence[str | os.PathLike[str]], *, operator: str = "", workload: str = "", target: str = "") -> list[Line]:
    """Read T4 files of one operator on one device, each a workload's results, as one recording.

    Args:
        paths: a file, or several.
        operator: its name, where the files do not say; by default after the first file.
        workload: its parameters, such as `N0=4096`, where the file does not say; for one file.
        target: named target with the device's limits, where the file names no known device.

    Raises:
        LogError: a file does not exist.
        LogDamaged: it is not such a file; the message names the result.
        UsageError: the files are not of one operator, device and protocol.
        HostError: it cannot be read.
    """
    given = [Path(paths)] if isinstance(paths, str | os.PathLike) else [Path(path) for path in paths]
    if workload and len(given) > 1:
        raise UsageError("a workload can be said of one T4 file, not of several")
    files = [_Read(path, operator, workload, target) for path in given]
    first = files[0].about
    for file in files[1:]:
        told = file.about
        if (told.workload.operator, told.target.key, told.protocol) != (first.workload.operator, first.target.key, first.protocol):
            raise UsageError(f"{file.path} is not of one recording with {given[0]}: they differ in operator, device or protocol; import each by itself")
    if len({file.about.workload for file in files}) < len(files):
        raise UsageError(f"two of {', '.join(map(str, given))} are of the same workload; import each by itself")
    return list(_lines(files))


def _lines(files: Sequence[_Read]) -> Iterator[Line]:
    first = files[0].about
    session = ImportSession(
        name=f"import-{first.workload.operator}",
        operator=first.workload.operator,
        target=first.target,
        toolchain=first.toolchain,
        protocol=first.protocol,
        source=", ".join(file.path.name for file in files),
    )
    records: list[Record] = []
    for file in files:
        for number, result in enumerate(file.results, 1):
            with naming(file.path, f"result {number}"):
                records.append(_record(session, file, result, len(records)))
    knobs = first.knobs if all(file.about.knobs == first.knobs for file in files) and first.knobs else observed_knobs(record.config for record in records)
    workloads = [file.about.workload for file in files]
    complete = all(file.about.complete for file in files)
    yield RecordedSpace(session=session.name, operator=session.operator, knobs=knobs, complete=complete, note=first.note)
    yield session.start(workloads)
    for file in files:
        for vendor in file.about.vendors:
            kept = {name: getattr(vendor, name) for name in vendor.__struct_fields__}
            yield VendorRecord(session=session.name, workload=file.about.workload, target=session.target, **kept)
    yield from records
    yield session.end(len(records), workloads)


def _record(session: ImportSession, file: _Read, result: Mapping[str, Any], trial: int) -> Record:
    config = {_name(name): _value(name, value) for name, value in result["configuration"].items()}
    common: dict[str, Any] = {"session": session.name, "trial": trial, "workload": file.about.workload, "target": session.target, "config": config}
    word = result["invalidity"]
    if word not in _STATUSES:
        raise ValueError(f"invalidity {word!r} is none of T4's: {', '.join(_STATUSES)}")
    time_us = _time_us(result, file.metadata) if word == "correct" else None
    if file.own and EXTENSION in result:
        kept = _convert(result[EXTENSION], _Kept)
        _same(kept, word, time_us)
        fields = {name: getattr(kept, name) for name in kept.__struct_fields__}
        return Record(**common, **{**fields, "toolchain": kept.toolchain or session.toolchain})
    status = _STATUSES[word]
    if status is Status.OK and result.get("correctness", 1) == 0:
        status = Status.WRONG_RESULT
    times = result.get("times") or {}
    unit = _UNITS.get(str(file.metadata.get("timeunit", "")).lower(), 1e3)
    compile_us = float(times.get("compilation_time", times.get("compilation", 0.0)) or 0.0) * unit
    return Record(
        **common,
        status=status,
        message="" if status is Status.OK else word,
        measurement=_measurement(session.protocol, time_us, times.get("runtimes") or (), unit) if status is Status.OK else None,
        build_s=round(compile_us / 1e6, 4),
    )


def _measurement(protocol: str, time_us: float | None, runtimes: Sequence[Any], unit: float) -> Measurement:
    samples = [float(sample) * unit for sample in runtimes if isinstance(sample, int | float) and sample > 0]
    if time_us is None:
        if not samples:
            raise ValueError("a correct result has neither a time among its measurements nor runtimes")
        time_us = statistics.fmean(samples)
    samples = samples or [time_us]
    mean = statistics.fmean(samples)
    return Measurement(
        protocol=protocol,
        median_us=time_us,
        min_us=min(*samples, time_us),
        max_us=max(*samples, time_us),
        cv=round(statistics.pstdev(samples) / mean, 5),
        samples=len(samples),
    )


def _time_us(result: Mapping[str, Any], metadata: Mapping[str, Any]) -> float | None:
    measurements = {item["name"]: item for item in result.get("measurements") or ()}
    objectives = [name for name in result.get("objectives") or () if name in measurements]
    for name in (*(name for name in objectives if name in _TIMES or _is_time(measurements[name])), *_TIMES):
        item = measurements.get(name)
        if item is None or isinstance(item["value"], str):
            continue
        # A measurement's own unit goes before the file's; an empty one means the file's.
        unit = str(item.get("unit") or metadata.get("timeunit") or "").lower()
        if unit not in _UNITS:
            raise ValueError(f"measurement {name!r} has unit {unit!r}; known are: {', '.join(filter(None, _UNITS))}")
        time = float(item["value"]) * _UNITS[unit]
        if not 0 < time < float("inf"):
            raise ValueError(f"measurement {name!r} is {item['value']!r}, no time")
        return time
    if objectives and not (result.get("times") or {}).get("runtimes"):
        raise ValueError(f"objective {objectives[0]!r} is no time, and there are no runtimes: Tilewright's recordings are of times")
    return None


def _is_time(item: Mapping[str, Any]) -> bool:
    return str(item.get("unit") or "-").lower() in _UNITS


def _same(kept: _Kept, word: str, time_us: float | None) -> None:
    """Refuse a result whose two accounts differ: one of them was changed by hand."""
    measured = kept.measurement.ranked_us if kept.measurement is not None and kept.status is Status.OK else None
    if INVALIDITY[kept.status] != word or (measured is None) != (time_us is None):
        raise ValueError(f"it says {word!r}, and its {EXTENSION!r} object {kept.status}; correct one, or drop the object")
    if measured is not None and time_us is not None and abs(measured - time_us) > 1e-9 * measured:
        raise ValueError(f"its time is {time_us} us, and that of its {EXTENSION!r} object {measured}; correct one, or drop the object")


def _foreign(path: Path, metadata: Mapping[str, Any], operator: str, workload: str, target: str) -> _About:
    device = str(metadata.get("device") or "")
    stem = path.name.removesuffix(".gz").removesuffix(".json")
    name = operator or "".join(letter if letter.isascii() and letter.isalnum() else "_" for letter in stem)
    name = name if NAME.match(name) else f"_{name}"
    return _About(
        workload=parse_key(f"{name}:{workload}"),
        target=named_target(target) if target else recorded_device(device),
        complete=True,
        note=f"T4 file of {metadata.get('autotuner') or 'another tuner'} on {device or 'a device that it does not name'}.",
    )


def observed_knobs(configs: Iterable[Mapping[str, Value]]) -> list[KnobInfo]:
    """Knobs with the values that occur: numbers in ascending order, anything else in order of appearance."""
    found: dict[str, dict[tuple[object, ...], Value]] = {}
    for config in configs:
        for name, value in config.items():
            found.setdefault(name, {}).setdefault(typed_key(value), value)
    return [KnobInfo(name=name, candidates=_ordered(list(values.values()))) for name, values in found.items()]


def _ordered(values: list[Value]) -> list[Value]:
    numbers = [value for value in values if isinstance(value, int | float) and not isinstance(value, bool)]
    if len(numbers) == len(values):
        return list(sorted(numbers))
    splits = [[int(part) for part in value] for value in values if isinstance(value, list) and all(isinstance(part, int) for part in value)]
    # As a split's candidates are declared: ascending from the second part to the innermost.
    return [list(parts) for parts in sorted(splits, key=lambda parts: (*parts[1:], *parts[:1]))] if len(splits) == len(values) else values


def _convert(value: Any, kind: type[Any]) -> Any:
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        raise ValueError(f"its {EXTENSION!r} object: {error}") from error


def _name(name: str) -> str:
    if not NAME.match(name):
        raise ValueError(f"parameter {name!r} is no plain name")
    return name


def _value(name: str, value: Any) -> Value:
    parts = value if isinstance(value, list) else [value]
    allowed = (int, str) if isinstance(value, list) else (int, float, str, bool)
    if not parts or not all(isinstance(part, allowed) for part in parts):
        raise ValueError(f"parameter {name}={value!r} must be a number, a word or a list of them")
    found: Value = value
    return found
