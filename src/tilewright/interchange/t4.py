"""T4, the auto-tuning community's format of results, as written: one file for one workload on one device.

Schema: AutoTuningAssociation/autotuning_methodology, `schemas/T4.json`, version 1.1.0; the times also stand under the names that Kernel
Tuner's 1.0.0 files use. T4 has no place for the workload, the device's limits, candidates, messages and resources by name: they are in an
object `tilewright` of the metadata and of each result, which other readers pass over. With it a file reads back as the same recording.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final

import msgspec

from tilewright import __version__
from tilewright.best import protocol_rank, rank
from tilewright.errors import UsageError
from tilewright.identity import Keys
from tilewright.interchange.names import identifier
from tilewright.record import Line, Measurement, Record, RecordedSpace, Status, VendorRecord, config_key
from tilewright.t4_recording import EXTENSION, INVALIDITY, T4_VERSION, observed_knobs
from tilewright.target import Target, Toolchain
from tilewright.workload import Workload

# What Kernel Tuner writes in place of the time of a config that has none, by T4's word for the reason.
_NO_TIME: Final = {"compile": "CompilationFailedConfig", "runtime": "RuntimeFailedConfig", "timeout": "RuntimeFailedConfig"}
_COMPUTE_API: Final = {"cuda": "CUDA"}


@dataclass(frozen=True, slots=True, kw_only=True)
class T4File:
    """One file to write.

    Attributes:
        name: proposed, from the operator, the workload's parameters and the device.
        results: how many there are.
        passed_over: records of less trusted protocols, which are not comparable and not in it.
    """

    name: str
    text: str
    workload: Workload
    target: Target
    results: int
    passed_over: int


def t4_files(lines: Sequence[Line], keep: Callable[[Record], bool] = lambda record: True) -> tuple[T4File, ...]:
    """T4 files of a log, one for each workload and device, in the order of their first records.

    A config that was recorded several times stands once, with its best time.

    Args:
        lines: of logs.
        keep: which records.

    Raises:
        UsageError: there is no record.
    """
    spaces = {line.operator: line for line in lines if isinstance(line, RecordedSpace)}
    keys = Keys()
    groups: dict[tuple[str, str], list[Record]] = defaultdict(list)
    vendors: dict[tuple[str, str], list[VendorRecord]] = defaultdict(list)
    for line in lines:
        if isinstance(line, Record) and keep(line):
            groups[keys.workload(line.workload), keys.target(line.target)].append(line)
        elif isinstance(line, VendorRecord):
            vendors[keys.workload(line.workload), keys.target(line.target)].append(line)
    if not groups:
        raise UsageError("nothing to export: T4 holds the records of a search, and there is none here")
    return tuple(_file(records, vendors[key], spaces.get(records[0].workload.operator)) for key, records in groups.items())


def _file(records: Sequence[Record], vendors: Sequence[VendorRecord], space: RecordedSpace | None) -> T4File:
    protocol = min((record.measurement.protocol for record in records if record.measurement), key=protocol_rank, default="")
    kept: dict[str, Record] = {}
    passed_over = 0
    for record in records:
        if record.measurement is not None and record.measurement.protocol != protocol:
            passed_over += 1
            continue
        name = config_key(record.config)
        if name not in kept or _preferred(record, kept[name]):
            kept[name] = record
    first = records[0]
    knobs = space.knobs if space is not None else observed_knobs(record.config for record in kept.values())
    metadata: dict[str, Any] = {
        **({"compute_api": _COMPUTE_API[first.target.backend]} if first.target.backend in _COMPUTE_API else {}),
        "platform": "Triton",
        "device": first.target.name,
        "autotuner": "Tilewright",
        "autotuner_version": __version__,
        "timeunit": "milliseconds",
        EXTENSION: {
            "workload": _workload_json(first.workload),
            "target": first.target.to_json(),
            "toolchain": msgspec.to_builtins(first.toolchain),
            "protocol": protocol,
            "knobs": msgspec.to_builtins(knobs),
            "complete": space is not None and space.complete,
            "note": space.note if space is not None else "",
            "vendors": [_extension(vendor) for vendor in vendors if vendor.measurement is None or vendor.measurement.protocol == protocol],
        },
    }
    results = [_result(record, first.toolchain) for record in kept.values()]
    # One result a line: as easy to look at, and to compare with diff, as a log.
    body = ",\n".join(json.dumps(result, ensure_ascii=True, allow_nan=False) for result in results)
    head = json.dumps({"schema_version": T4_VERSION, "metadata": metadata}, ensure_ascii=True, allow_nan=False)
    return T4File(
        name=_name(first.workload, first.target),
        text=f'{head[:-1]}, "results": [\n{body}\n]}}\n',
        workload=first.workload,
        target=first.target,
        results=len(results),
        passed_over=passed_over,
    )


def _name(workload: Workload, target: Target) -> str:
    parameters = "-".join(f"{name}{value}" for name, value in workload.parameters.items())
    device = identifier(target.name.lower())
    return "-".join(filter(None, (workload.operator, parameters, device))).replace("..", "_") + ".json"


def _workload_json(workload: Workload) -> dict[str, Any]:
    found: dict[str, Any] = msgspec.to_builtins(workload, enc_hook=_plain)
    return found


def _plain(value: object) -> object:
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"T4 cannot hold a {type(value).__name__}")


def _preferred(record: Record, kept: Record) -> bool:
    """As a recording prefers: a time replaces a failure, a better time a worse."""
    if record.status is not Status.OK or record.measurement is None:
        return False
    return kept.status is not Status.OK or kept.measurement is None or rank(record) < rank(kept)


def milliseconds(us: float) -> float:
    """A time in ms, by moving the decimal point: no digit is lost or made up."""
    return float(Decimal(repr(us)).scaleb(-3))


def _result(record: Record, common: Toolchain) -> dict[str, Any]:
    invalidity = INVALIDITY[record.status]
    times = _times(record.measurement) if record.measurement is not None else []
    compile_ms = milliseconds(record.build_s * 1e6)
    kept = _extension(record)
    if record.toolchain == common:
        kept.pop("toolchain", None)
    timed = record.measurement.ranked_us if record.measurement is not None and record.status is Status.OK else None
    return {
        "configuration": dict(record.config),
        "objectives": ["time"],
        # `compilation` is what Kernel Tuner's 1.0.0 calls it, `compilation_time` the schema of 1.1.0.
        "times": {"compilation": compile_ms, "compilation_time": compile_ms, "runtimes": times},
        "invalidity": invalidity,
        "correctness": int(record.status is Status.OK),
        "measurements": [
            {"name": "time", "value": milliseconds(timed) if timed is not None else _NO_TIME.get(invalidity, "InvalidConfig"), "unit": "milliseconds"},
            *_needs(record),
        ],
        EXTENSION: kept,
    }


def _times(measurement: Measurement) -> list[float]:
    return [milliseconds(us) for us in measurement.times_us or [measurement.median_us]]


def _needs(record: Record) -> Iterable[dict[str, Any]]:
    needs: dict[str, Any] = msgspec.to_builtins(record.resources) if record.resources is not None else {}
    return [{"name": name, "value": value, "unit": "bytes" if name.endswith("_bytes") else ""} for name, value in needs.items() if value is not None]


def _extension(line: Record | VendorRecord) -> dict[str, Any]:
    """What T4's own fields do not say of a record, in the log's fields."""
    elsewhere = ("kind", "schema", "session", "trial", "workload", "target", "config")
    found: dict[str, Any] = msgspec.to_builtins(line, enc_hook=_plain)
    return {name: value for name, value in found.items() if name not in elsewhere}
