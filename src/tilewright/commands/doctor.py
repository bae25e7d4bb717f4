"""`tilewright doctor`: the machine's findings, one a line."""

from __future__ import annotations

import argparse
from pathlib import Path

from tilewright.commands.output import emit, emit_json
from tilewright.doctor import Finding, examine, exit_code
from tilewright.errors import ExitCode


def run(args: argparse.Namespace) -> ExitCode:
    """Examine the machine; FAILED where it cannot tune."""
    folder = args.log.parent if args.log is not None else Path("tuning_logs")
    findings: list[Finding] = []
    for finding in examine(folder):
        findings.append(finding)
        if not args.json:
            emit(f"{finding.state:<4}  {finding.name}: {finding.detail}")
            if finding.advice:
                emit(f"      -> {finding.advice}")
    code = exit_code(findings)
    if args.json:
        emit_json({"ok": code is ExitCode.OK, "findings": [finding.to_json() for finding in findings]})
    return code
