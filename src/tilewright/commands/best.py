"""`tilewright best`: the best file of some logs, with ranges and economics where asked for."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tilewright.best import BestEntry, BestFile, BestRange, Merged, best_entries, entry_of, entry_text, merge, parse_best_file, vendor_times, with_vendors
from tilewright.bulk.best import best_of_files, is_large
from tilewright.carrying import carries
from tilewright.commands.logs import read_logs, templates_at_hand
from tilewright.commands.output import emit, emit_json, note, table
from tilewright.cover import Cover, covers, schedule_id
from tilewright.current import Templates
from tilewright.economics import Saving, savings
from tilewright.errors import ExitCode, HostError, LogError, TemplateError, UsageError, nearest
from tilewright.identity import Keys
from tilewright.library import Operator, find_operators
from tilewright.logfile import is_best_file
from tilewright.ranges import ranges
from tilewright.record import Line, RaceRecord, Record, VendorRecord
from tilewright.report import format_config, format_us
from tilewright.target import compiled_for
from tilewright.workload import Workload


def run(args: argparse.Namespace) -> ExitCode:
    """Derive it, and print or write it."""
    best_files = [path for path in args.logs if is_best_file(path)]
    logs = [path for path in args.logs if path not in best_files]
    answer: dict[str, Any] = {}
    templates = templates_at_hand(args.templates)
    if args.cover is None and args.calls_per_day is None and is_large(logs):
        entries = best_of_files(logs, note, templates)
        found: tuple[Cover, ...] = ()
        lines: tuple[Line, ...] = ()
    else:
        lines = read_logs(logs)
        entries = _entries(lines, templates)
        found = _covers(args, lines, templates) if args.cover is not None else ()
    given = [parse_best_file(path.read_text(encoding="utf-8"), str(path)) for path in best_files]
    merged = merge([*entries, *(entry for file in given for entry in file.entries)], (line for file in given for line in file.ranges), templates)
    _note_conflicts(merged)
    best = BestFile(entries=merged.entries, ranges=merged.ranges)
    if args.cover is not None:
        best = _covered(best, found, args.cover, find_operators(args.templates), templates)
        answer["cover"] = [_cover_json(cover) for cover in found]
    text = best.text
    answer = {
        "entries": [json.loads(entry_text(entry)) for entry in best.entries],
        "ranges": [json.loads(entry_text(line)) for line in best.ranges],
        "conflicts": [[json.loads(entry_text(taken)), json.loads(entry_text(other))] for taken, other in merged.conflicts],
        "output": args.output and str(args.output),
        **answer,
    }
    if args.calls_per_day is not None:
        economics = savings(lines, args.calls_per_day, templates)
        answer["economics"] = [_saving_json(saving) for saving in economics]
    if args.output is not None:
        replace_file(args.output, text)
        note(f"{args.output}: {len(best.entries)} entries, {len(best.ranges)} ranges")
    if args.json:
        emit_json(answer)
    elif args.cover is not None or args.calls_per_day is not None:
        if found:
            emit("\n\n".join(_cover_text(cover, best) for cover in found))
        if args.calls_per_day is not None:
            emit(("\n" if found else "") + _economics_text(economics))
    elif args.output is None and best.entries:
        emit(text.rstrip("\n"))
    if not best.entries:
        note("no record here is both correct and timed, so there is no best; `tilewright log stats` sums up the failures")
        return ExitCode.FAILED
    return ExitCode.OK


def _entries(lines: Sequence[Line], templates: Templates) -> tuple[BestEntry, ...]:
    times = vendor_times(line for line in lines if isinstance(line, VendorRecord))
    return with_vendors(best_entries(lines, templates, note), times, (line for line in lines if isinstance(line, RaceRecord)))


def _covers(args: argparse.Namespace, lines: Sequence[Line], templates: Templates) -> tuple[Cover, ...]:
    records = [line for line in lines if isinstance(line, Record)]
    dims = {record.workload.operator: frozenset(record.workload.dims) for record in records}
    having = frozenset(operator for operator, names in dims.items() if args.cover in names)
    if not having:
        raise UsageError(f"no operator in these logs has a dim {args.cover!r}; {nearest(args.cover, sorted(frozenset[str]().union(*dims.values())))}")
    return covers(records, max_loss=args.max_loss, max_schedules=args.max_schedules, operators=having, templates=templates)


def _covered(best: BestFile, found: Sequence[Cover], dim: str, operators: dict[str, Operator], templates: Templates) -> BestFile:
    """The best file with the covers' schedules in place of each workload's own, and with ranges."""
    keys = Keys()
    chosen: dict[tuple[str, str], BestEntry] = {}
    lines: list[BestRange] = []
    for cover in found:
        for key, served in cover.served.items():
            chosen[key, cover.target] = entry_of(served.record)
        operator = operators.get(cover.operator)
        if operator is None or any(not served.record.source for served in cover.served.values()):
            note(f"{cover.operator}: no template here renders these schedules, so there are exact entries and no ranges")
            continue
        lines += ranges(cover, dim, _legal(operator))
    entries: list[BestEntry] = []
    for entry in best.entries:
        taken = chosen.get((keys.workload(entry.workload), keys.target(entry.target)), entry)
        entries += with_vendors([taken], {(taken.workload.key, taken.target.key, taken.pins.protocol): entry.vendor}) if entry.vendor else [taken]
    return BestFile(entries=tuple(entries), ranges=merge((), [*best.ranges, *lines], templates).ranges)


def _legal(operator: Operator) -> Callable[[Record, Workload], bool]:
    known: dict[tuple[str, Workload], bool] = {}

    def legal(record: Record, workload: Workload) -> bool:
        key = (record.source, workload)
        if key not in known:
            try:
                asked = operator.spec.workload(workload.parameters)
                known[key] = carries(operator.template(record.config), asked, compiled_for(record.target), record.config, record.source)
            except (TemplateError, UsageError):
                known[key] = False
        return known[key]

    return legal


def _note_conflicts(merged: Merged) -> None:
    for taken, other in merged.conflicts:
        note(
            f"conflict: {taken.workload.key} on {taken.target.name}: "
            f"took {format_config(taken.config)} ({format_us(taken.median_us)} µs, {taken.pins.protocol}), "
            f"not {format_config(other.config)} ({format_us(other.median_us)} µs, {other.pins.protocol})"
        )
    for kept, beaten in merged.range_conflicts:
        note(f"conflict: two ranges of {kept.dim} for {kept.workload.key} on {kept.target.name}: took the one tuned at {kept.tuned}, not {beaten.tuned}")


def _cover_json(cover: Cover) -> dict[str, Any]:
    return {
        "operator": cover.operator,
        "protocol": cover.protocol,
        "schedules": list(cover.schedules),
        "exact": cover.exact,
        "worst_loss": cover.worst,
        "mean_loss": cover.mean,
        "workloads": {key: {"loss": served.loss, "config": dict(served.record.config)} for key, served in sorted(cover.served.items())},
    }


def _cover_text(cover: Cover, best: BestFile) -> str:
    names = {schedule: f"#{number}" for number, schedule in enumerate(cover.schedules, 1)}
    proof = "no fewer can" if cover.exact else "fewer may do: the search was cut short"
    head = (
        f"{cover.operator}: {len(cover.schedules)} schedules serve {len(cover.served)} workloads ({proof}); "
        f"loss at most {cover.worst - 1:.1%}, geometric mean {cover.mean - 1:.1%}"
    )
    rows = []
    for key, served in sorted(cover.served.items(), key=lambda item: (sorted(item[1].record.workload.dims.items()), item[0])):
        assert served.record.measurement is not None
        name = names[schedule_id(served.record)]
        rows.append((key, name, format_us(served.record.measurement.median_us), f"{served.loss:.3f}", format_config(served.record.config)))
    parts = [head, table(("workload", "schedule", "µs", "loss", "config"), rows)]
    for line in (line for line in best.ranges if line.workload.operator == cover.operator and line.target.key == cover.target):
        steps = ", ".join(f"{step.low}..{step.high} {names.get(step.pins.source, '?')}" for step in line.steps)
        default = f"default outside {names.get(line.default.pins.source, '?')}" if line.default else "a miss outside"
        parts.append(f"{line.workload.key}: {line.dim} {steps}; {default}")
    return "\n".join(parts)


def _saving_json(saving: Saving) -> dict[str, Any]:
    over = {"default": saving.saved_over_default_us, "vendor": saving.saved_over_vendor_us}
    return {
        "workload": saving.workload,
        "target": saving.target,
        "tuning_s": saving.tuning_s,
        "best_us": saving.best_us,
        **{f"saved_over_{name}_us": saved for name, saved in over.items()},
        **{f"break_even_calls_over_{name}": saving.calls(saved) for name, saved in over.items()},
        **{f"break_even_days_over_{name}": saving.days(saved) for name, saved in over.items()},
    }


def _economics_text(found: Sequence[Saving]) -> str:
    rows = []
    for saving in found:
        row: list[object] = [saving.workload, "-" if saving.tuning_s is None else f"{saving.tuning_s:.1f}"]
        for saved in (saving.saved_over_default_us, saving.saved_over_vendor_us):
            calls, days = saving.calls(saved), saving.days(saved)
            row += ["-" if saved is None else f"{saved:.2f}", "never" if calls is None else f"{calls:,.0f}", "never" if days is None else f"{days:.3g}"]
        rows.append(row)
    headers = ("workload", "tuning s", "saved over default µs", "calls", "days", "saved over vendor µs", "calls", "days")
    return table(headers, rows)


def replace_file(path: Path, text: str) -> None:
    """Write a file whole or not at all: a best file is derived, so an older one may be replaced.

    Raises:
        HostError: it cannot be written.
    """
    if path.is_file() and path.stat().st_size:
        try:
            parse_best_file(path.read_text(encoding="utf-8"), str(path))
        except (LogError, ValueError) as error:
            raise UsageError(f"{path} is there and is no best file, so it is not overwritten; name another file with -o") from error
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        draft.write_text(text, encoding="utf-8")
        draft.replace(path)
    except OSError as error:
        draft.unlink(missing_ok=True)
        raise HostError(f"{path}: cannot write ({error.strerror}); choose another file with -o") from error
