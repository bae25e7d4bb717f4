"""Few schedules for many workloads, and what tuning saves: what `tilewright best` is asked besides, on all lines of the logs."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from typing import Any

from tilewright.best import BestEntry, BestFile, BestRange, entry_of, merge, with_vendors
from tilewright.carrying import carries
from tilewright.commands.output import note, table
from tilewright.cover import Cover, covers, schedule_id
from tilewright.current import Templates
from tilewright.economics import Saving
from tilewright.economics import savings as savings
from tilewright.errors import TemplateError, UsageError, nearest
from tilewright.formats import format_config, format_us
from tilewright.identity import Keys
from tilewright.library import Operator, find_operators
from tilewright.ranges import ranges
from tilewright.record import Line, Record
from tilewright.target import compiled_for
from tilewright.workload import Workload


def find_covers(args: argparse.Namespace, lines: Sequence[Line], templates: Templates) -> tuple[Cover, ...]:
    """The covers that were asked for.

    Raises:
        UsageError: no operator in the logs has that dim.
    """
    records = [line for line in lines if isinstance(line, Record)]
    dims = {record.workload.operator: frozenset(record.workload.dims) for record in records}
    having = frozenset(operator for operator, names in dims.items() if args.cover in names)
    if not having:
        raise UsageError(f"no operator in these logs has a dim {args.cover!r}; {nearest(args.cover, sorted(frozenset[str]().union(*dims.values())))}")
    return covers(records, max_loss=args.max_loss, max_schedules=args.max_schedules, operators=having, templates=templates)


def covered(best: BestFile, found: Sequence[Cover], args: argparse.Namespace, templates: Templates) -> BestFile:
    """The best file with the covers' schedules in place of each workload's own, and with ranges."""
    keys = Keys()
    operators = find_operators(args.templates)
    chosen: dict[tuple[str, str], BestEntry] = {}
    lines: list[BestRange] = []
    for cover in found:
        for key, served in cover.served.items():
            chosen[key, cover.target] = entry_of(served.record)
        operator = operators.get(cover.operator)
        if operator is None or any(not served.record.source for served in cover.served.values()):
            note(f"{cover.operator}: no template here renders these schedules, so there are exact entries and no ranges")
            continue
        lines += ranges(cover, args.cover, _legal(operator))
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


def cover_json(cover: Cover) -> dict[str, Any]:
    """A cover as plain values."""
    return {
        "operator": cover.operator,
        "protocol": cover.protocol,
        "schedules": list(cover.schedules),
        "exact": cover.exact,
        "worst_loss": cover.worst,
        "mean_loss": cover.mean,
        "workloads": {key: {"loss": served.loss, "config": dict(served.record.config)} for key, served in sorted(cover.served.items())},
    }


def cover_text(cover: Cover, best: BestFile) -> str:
    """A cover as text."""
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


def saving_json(saving: Saving) -> dict[str, Any]:
    """What tuning saves as plain values."""
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


def economics_text(found: Sequence[Saving]) -> str:
    """What tuning saves as a table."""
    rows = []
    for saving in found:
        row: list[object] = [saving.workload, "-" if saving.tuning_s is None else f"{saving.tuning_s:.1f}"]
        for saved in (saving.saved_over_default_us, saving.saved_over_vendor_us):
            calls, days = saving.calls(saved), saving.days(saved)
            row += ["-" if saved is None else f"{saved:.2f}", "never" if calls is None else f"{calls:,.0f}", "never" if days is None else f"{days:.3g}"]
        rows.append(row)
    headers = ("workload", "tuning s", "saved over default µs", "calls", "days", "saved over vendor µs", "calls", "days")
    return table(headers, rows)
