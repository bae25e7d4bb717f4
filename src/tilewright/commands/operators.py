"""`tilewright operators`: the operators found, and where."""

from __future__ import annotations

import argparse
import textwrap
from pathlib import Path
from typing import Any

from tilewright.commands.output import emit, emit_json
from tilewright.errors import ExitCode, UsageError
from tilewright.library import Operator, survey


def run(args: argparse.Namespace) -> ExitCode:
    """List them, and those that cannot be used with the reason; one that is broken keeps no other from being listed."""
    found = survey(args.templates)
    faulty: dict[Path, str] = {**found.faults, **found.clashes}
    sound = []
    for operator in found.operators.values():
        try:
            _ = operator.spec, operator.schedules
            sound.append(operator)
        except UsageError as error:
            faulty[operator.folder] = str(error)
    if args.json:
        emit_json([*map(_entry, sound), *({"name": folder.name, "error": reason, "folder": str(folder)} for folder, reason in faulty.items())])
    else:
        broken = [f"{folder.name}: cannot be used\n  {reason}" for folder, reason in faulty.items()]
        emit("\n\n".join([*map(_paragraph, sound), *broken]))
    return ExitCode.FAILED if faulty else ExitCode.OK


def _entry(operator: Operator) -> dict[str, Any]:
    spec = operator.spec
    return {
        "name": operator.name,
        "summary": spec.summary,
        "dims": list(spec.dims),
        "dtypes": {parameter: list(allowed) for parameter, allowed in spec.dtypes.items()},
        "layouts": {parameter: list(allowed) for parameter, allowed in spec.layouts.items()},
        "schedules": operator.schedules,
        "workload_sets": {set_name: len(members) for set_name, members in spec.workload_sets.items()},
        "folder": str(operator.folder),
    }


def _paragraph(operator: Operator) -> str:
    spec = operator.spec
    choices = [f"{name} = {' | '.join(allowed)}" for name, allowed in (*spec.dtypes.items(), *spec.layouts.items())]
    sets = [f"{name} ({len(members)})" for name, members in spec.workload_sets.items()]
    lines = [
        f"{operator.name}: {spec.summary}",
        f"workload: {', '.join(spec.dims)}; {'; '.join(choices)}",
        f"schedules: {', '.join(operator.schedules)}",
        *([f"workload sets: {', '.join(sets)}"] if sets else []),
        f"folder: {operator.folder}",
    ]
    return "\n".join(lines[:1] + [textwrap.fill(line, 120, initial_indent="  ", subsequent_indent="      ", break_on_hyphens=False) for line in lines[1:]])
