"""`tilewright log lint`: damage in some logs, and lines that cannot be true."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tilewright.bulk.lint import Whole, lint_file
from tilewright.bulk.parts import is_large
from tilewright.commands.output import emit, emit_json, table
from tilewright.current import current_templates
from tilewright.errors import ExitCode
from tilewright.finding import Finding
from tilewright.library import find_operators
from tilewright.lint import FloorUs, Inspect, lint
from tilewright.log import TuningLog
from tilewright.reach import inspector
from tilewright.roofline import floor_us
from tilewright.target import Target
from tilewright.workload import Workload


def run(args: argparse.Namespace) -> ExitCode:
    """Read them; FAILED where there is a fault."""
    operators = find_operators(args.templates)
    templates = current_templates(operators)

    def floor(workload: Workload, target: Target) -> float | None:
        operator = operators.get(workload.operator)
        return None if operator is None else floor_us(operator.spec, workload, target)

    answers: list[dict[str, Any]] = []
    failed = False
    for path in args.logs:
        count, findings = _lint(path, floor_us=floor, templates=templates, inspect=inspector(operators))
        failed = failed or any(finding.severity == "fault" for finding in findings)
        answers.append({"log": str(path), "lines": count, "findings": [asdict(finding) for finding in findings]})
        if not args.json:
            emit(f"{path}: {count:,} lines, {_sum(findings)}")
            if findings:
                emit(table(("line", "kind", "rule", "what is wrong"), [(f.number, f.severity, f.rule, f.message) for f in findings], indent="  "))
    if args.json:
        emit_json(answers)
    return ExitCode.FAILED if failed else ExitCode.OK


def _lint(path: Path, *, floor_us: FloorUs, templates: Mapping[str, frozenset[str]], inspect: Inspect) -> tuple[int, tuple[Finding, ...]]:
    if is_large([path]):
        with suppress(Whole):
            return lint_file(path, floor_us=floor_us, templates=templates, inspect=inspect)
    contents = TuningLog(path).read()
    return len(contents.lines), lint(contents, floor_us=floor_us, templates=templates, inspect=inspect)


def _sum(findings: tuple[Finding, ...]) -> str:
    faults = sum(finding.severity == "fault" for finding in findings)
    return f"{faults} faults, {len(findings) - faults} notes" if findings else "nothing wrong"
