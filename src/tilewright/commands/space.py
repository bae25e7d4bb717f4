"""`tilewright space`: what a template declares for one workload, counted and listed."""

from __future__ import annotations

import argparse
import itertools
from typing import Any

from tilewright.commands.output import emit, emit_json, table
from tilewright.errors import ExitCode, UsageError
from tilewright.library import find_operator
from tilewright.report import format_config
from tilewright.target import named_target


def run(args: argparse.Namespace) -> ExitCode:
    """Count the legal configs, say why the others are not, list some."""
    if len(args.workloads) != 1:
        raise UsageError(f"space looks at one workload, not {len(args.workloads)}: give -w once")
    operator = find_operator(args.operator, args.templates)
    workload = operator.spec.workload(args.workloads[0])
    target = named_target(args.target)
    space = operator.space(workload, target)
    count = space.count()
    listed = list(itertools.islice(space.enumerate(), args.list))
    if args.json:
        answer: dict[str, Any] = {
            "operator": operator.name,
            "workload": workload.key,
            "target": target.arch,
            "legal": count.legal,
            "points": count.points,
            "rejected": dict(count.rejected),
            "cuts": dict(count.cuts),
            "knobs": [{"name": knob.name, "id": knob.id, "kind": knob.kind, "candidates": list(knob.values)} for knob in space.knobs],
            "default": space.default() if count.legal else None,
            "configs": listed,
        }
        emit_json(answer)
        return ExitCode.OK if count.legal else ExitCode.FAILED
    points = "" if count.points is None else f" of {count.points:,} points"
    emit(f"{workload.key} on {target.arch}: {count.legal:,} legal configs{points}")
    emit("\n" + table(("knob", "kind", "candidates"), [(knob.id, knob.kind, " ".join(map(str, knob.values))) for knob in space.knobs]))
    reasons = [(reason, f"{number:,} points") for reason, number in count.rejected.items()]
    reasons += [(reason, f"{number:,} subtrees of unknown size") for reason, number in count.cuts.items()]
    if reasons:
        emit("\n" + table(("refused because", "how many"), reasons))
    if count.legal:
        emit(f"\ndefault: {format_config(space.default())}")
    for index, config in enumerate(listed):
        emit(f"{index:>6}  {format_config(config)}")
    return ExitCode.OK if count.legal else ExitCode.FAILED
