"""`tilewright check`: legality and resources on any target, without a GPU."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from contextlib import closing
from typing import Final

from tilewright.builder import CompileBuilder
from tilewright.commands.output import emit, emit_json, note, table
from tilewright.errors import ExitCode, UsageError
from tilewright.legality import Legality, Verdict, check, summarize
from tilewright.library import find_operator
from tilewright.report import format_config
from tilewright.target import named_target
from tilewright.timeouts import Timeouts

DEFAULT_TARGET: Final = "sm_90"
# Rows of one target's table of configs; `--json` has them all. guess: what fits a screen.
MOST_ROWS: Final = 24


def run(args: argparse.Namespace) -> ExitCode:
    """Compile, and say what each target cannot run."""
    operator = find_operator(args.operator, args.templates)
    if not args.workloads:
        raise UsageError(f"check needs a workload: give -w with {', '.join(f'{dim}=...' for dim in operator.spec.dims)}")
    workloads = [operator.workload(text) for text in args.workloads]
    targets = [named_target(name) for name in args.targets or [DEFAULT_TARGET]]
    reports: list[Legality] = []
    jobs = args.jobs or max(1, len(os.sched_getaffinity(0)) - 1)
    with closing(CompileBuilder(jobs, timeout_s=Timeouts(compile=args.compile_timeout).compile_s)) as builder:
        for workload in workloads:
            for target in targets:
                note(f"compiling {workload.key} for {target.arch}")
                reports.append(check(operator, workload, target, builder, sample=args.sample, each=args.each, seed=args.seed))
    if args.json:
        emit_json({"operator": operator.name, "checks": [report.to_json() for report in reports]})
    else:
        _print(reports)
    return ExitCode.OK if all(report.legal for report in reports) else ExitCode.FAILED


def _print(reports: Sequence[Legality]) -> None:
    headers = ("workload", "target", "checked", "legal", "shared memory", "limit", "registers", "spilled bytes", "not legal because")
    rows = [
        (
            report.workload.key,
            report.target.arch,
            len(report.verdicts),
            report.legal,
            report.most("shared_memory_bytes"),
            report.target.shared_memory_bytes,
            report.most("registers"),
            report.most("spill_bytes"),
            ", ".join(f"{reason} ({number})" for reason, number in summarize(report.verdicts).items()) or "-",
        )
        for report in reports
    ]
    emit(table(headers, rows))
    for report in reports:
        emit(f"\n{report.workload.key} on {report.target.arch}, {report.target.name}")
        # Those that are not legal first: they are what one looks for.
        verdicts = sorted(report.verdicts, key=lambda verdict: verdict.legal)
        emit(
            table(
                ("verdict", "shared", "registers", "spilled", "config"),
                [
                    (
                        "legal" if verdict.legal else "exceeds a limit" if verdict.exceeds else str(verdict.status),
                        verdict.resources and verdict.resources.shared_memory_bytes,
                        verdict.resources and verdict.resources.registers,
                        verdict.resources and verdict.resources.spill_bytes,
                        format_config(verdict.config),
                    )
                    for verdict in verdicts[:MOST_ROWS]
                ],
                indent="  ",
            )
        )
        if len(verdicts) > MOST_ROWS:
            emit(f"  and {len(verdicts) - MOST_ROWS} more: --json has them all")
        for verdict in verdicts[:MOST_ROWS]:
            if not verdict.legal:
                emit(f"  {format_config(verdict.config)}\n    {_reason(verdict)}")
        if report.absent:
            shown = f"{', '.join(report.absent[:MOST_ROWS])}{', ...' if len(report.absent) > MOST_ROWS else ''}"
            emit(f"  not checked, as no legal config with it was met: {shown}")
        for dim, number in report.leaks.items():
            emit(f"  {dim}: its extent changes the rendered text of {number} of these, which other extents then cannot share")


def _reason(verdict: Verdict) -> str:
    said = verdict.message.strip().splitlines()
    return "; ".join(verdict.exceeds) or (said[-1] if said else str(verdict.status))
