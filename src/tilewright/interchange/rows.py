"""A log as a table: one row a record, for spreadsheets and data frames."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final

from tilewright.canonical import canonical_json
from tilewright.record import Line, Record, VendorRecord

# Columns in their order. They are the same for every log, and new ones come at the end.
COLUMNS: Final = (
    "kind", "session", "trial", "operator", "workload", "backend", "arch", "device", "schedule", "vendor", "status", "protocol",
    "ranked_us", "median_us", "min_us", "max_us", "cv", "samples", "anchor_kind", "anchor_us", "anchor_nominal_us",
    "rel_norm", "max_error", "shared_memory_bytes", "registers", "spill_bytes", "stack_bytes", "scratch_bytes", "warps",
    "build_s", "default", "template", "source", "binary", "triton", "torch", "driver", "dims", "dtypes", "layout", "config", "message",
)  # fmt: skip


def csv_lines(lines: Iterable[Line], *, keep: Callable[[Record | VendorRecord], bool] | None = None, wide: Sequence[str] = ()) -> Iterator[str]:
    """The table as CSV text, the header first; fields without a value are empty.

    Args:
        lines: of logs; schedules and vendors' kernels become rows, others are passed over.
        keep: which of them; all where None.
        wide: dims, dtypes, layouts and knobs that get columns of their own after the others, as `param.M` and `knob.tile_m`.
    """
    yield _text([*COLUMNS, *wide])
    for line in lines:
        if isinstance(line, Record | VendorRecord) and (keep is None or keep(line)):
            row = _row(line)
            yield _text([row.get(column) for column in (*COLUMNS, *wide)])


def wide_columns(lines: Iterable[Line]) -> list[str]:
    """Columns for all parameters and knobs that occur, sorted."""
    found: set[str] = set()
    for line in lines:
        if isinstance(line, Record | VendorRecord):
            found.update(f"param.{name}" for name in line.workload.parameters)
        if isinstance(line, Record):
            found.update(f"knob.{name}" for name in line.config)
    return sorted(found, key=lambda name: (not name.startswith("param."), name))


def _row(line: Record | VendorRecord) -> dict[str, Any]:
    measured = line.measurement
    row: dict[str, Any] = {
        "kind": "trial" if isinstance(line, Record) else "vendor",
        "session": line.session,
        "operator": line.workload.operator,
        "workload": line.workload.key,
        "backend": line.target.backend,
        "arch": line.target.arch,
        "device": line.target.name,
        "status": str(line.status),
        "triton": line.toolchain.triton,
        "torch": line.toolchain.torch,
        "driver": line.toolchain.driver,
        "dims": canonical_json(dict(line.workload.dims)),
        "dtypes": canonical_json(dict(line.workload.dtypes)),
        "layout": canonical_json(dict(line.workload.layout)),
        "message": line.message,
        **{f"param.{name}": value for name, value in line.workload.parameters.items()},
    }
    if measured is not None:
        row |= {name: getattr(measured, name) for name in ("protocol", "ranked_us", "median_us", "min_us", "max_us", "cv", "samples")}
        if measured.anchor is not None:
            row |= {"anchor_kind": measured.anchor.kind, "anchor_us": measured.anchor.median_us, "anchor_nominal_us": measured.anchor.nominal_us}
    if isinstance(line, VendorRecord):
        return row | {"vendor": line.name}
    if line.check is not None:
        row |= {"rel_norm": line.check.rel_norm, "max_error": line.check.max_error}
    if line.resources is not None:
        needs = ("shared_memory_bytes", "registers", "spill_bytes", "stack_bytes", "scratch_bytes")
        row |= {name: getattr(line.resources, name) for name in needs} | {"warps": line.resources.num_warps}
    return row | {
        "trial": line.trial,
        "schedule": line.config.get("schedule", ""),
        "build_s": line.build_s,
        "default": "true" if line.default else "false",
        "template": line.template,
        "source": line.source,
        "binary": line.binary,
        "config": canonical_json(dict(line.config)),
        **{f"knob.{name}": _cell(value) for name, value in line.config.items()},
    }


def _cell(value: object) -> object:
    return "x".join(map(str, value)) if isinstance(value, list) else str(value).lower() if isinstance(value, bool) else value


def _text(cells: Sequence[object]) -> str:
    buffer = io.StringIO()
    csv.writer(buffer, lineterminator="\n").writerow(["" if cell is None else cell for cell in cells])
    return buffer.getvalue()
