"""`tilewright operators`: the operators found, and where."""

from __future__ import annotations

import argparse
import textwrap

from tilewright.commands.output import emit, emit_json
from tilewright.errors import ExitCode
from tilewright.library import Operator, find_operators


def run(args: argparse.Namespace) -> ExitCode:
    """List them."""
    operators = find_operators(args.templates)
    if args.json:
        emit_json(
            [
                {
                    "name": name,
                    "summary": operator.spec.summary,
                    "dims": list(operator.spec.dims),
                    "dtypes": {parameter: list(allowed) for parameter, allowed in operator.spec.dtypes.items()},
                    "layouts": {parameter: list(allowed) for parameter, allowed in operator.spec.layouts.items()},
                    "schedules": list(operator.templates),
                    "workload_sets": {set_name: len(members) for set_name, members in operator.spec.workload_sets.items()},
                    "folder": str(operator.folder),
                }
                for name, operator in sorted(operators.items())
            ]
        )
        return ExitCode.OK
    emit("\n\n".join(_paragraph(operator) for _, operator in sorted(operators.items())))
    return ExitCode.OK


def _paragraph(operator: Operator) -> str:
    spec = operator.spec
    choices = [f"{name} = {' | '.join(allowed)}" for name, allowed in (*spec.dtypes.items(), *spec.layouts.items())]
    sets = [f"{name} ({len(members)})" for name, members in spec.workload_sets.items()]
    lines = [
        f"{operator.name}: {spec.summary}",
        f"workload: {', '.join(spec.dims)}; {'; '.join(choices)}",
        f"schedules: {', '.join(operator.templates)}",
        *([f"workload sets: {', '.join(sets)}"] if sets else []),
        f"folder: {operator.folder}",
    ]
    return "\n".join(lines[:1] + [textwrap.fill(line, 120, initial_indent="  ", subsequent_indent="      ", break_on_hyphens=False) for line in lines[1:]])
