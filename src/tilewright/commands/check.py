"""`tilewright check`: legality and resources on any target, without a GPU."""

from __future__ import annotations

import argparse
import itertools
import os
from collections import defaultdict
from collections.abc import Sequence
from contextlib import ExitStack, closing
from typing import Final

from tilewright.builder import CompileBuilder
from tilewright.commands.output import emit, emit_json, note, table
from tilewright.commands.tried import TRIED, tried_cells, tried_lines
from tilewright.config_text import written_config
from tilewright.errors import ExitCode, UsageError
from tilewright.inference import inference_note
from tilewright.knobs import Config
from tilewright.legality import Legality, Verdict, check, summarize
from tilewright.library import Operator, find_operator
from tilewright.report import format_config
from tilewright.target import DEFAULT_TARGET, Target, named_target
from tilewright.timeouts import Timeouts
from tilewright.tryout import Tryouts
from tilewright.workload import Workload
from tilewright.workload_file import each_workload

# Rows of one target's table of configs; `--json` has them all. guess: what fits a screen.
MOST_ROWS: Final = 24


def run(args: argparse.Namespace) -> ExitCode:
    """Compile, run where that is asked for, and say what each target cannot run, and what is wrong."""
    if args.run_timeout is not None and not args.run:
        raise UsageError("--run-timeout is of runs in the interpreter: give --run too")
    operator = find_operator(args.operator, args.templates)
    if not args.workloads:
        raise UsageError(f"check needs a workload: give -w with {', '.join(f'{dim}=...' for dim in operator.spec.dims)}")
    workloads = list(dict.fromkeys(each_workload(args.workloads, operator.workload)))
    if unseen := inference_note(operator.spec, workloads):
        note(unseen)
    targets = [named_target(name) for name in dict.fromkeys(args.targets or [DEFAULT_TARGET])]
    given = _given(operator, [(workload, target) for workload in workloads for target in targets], args)
    reports: list[Legality] = []
    jobs = args.jobs or max(1, len(os.sched_getaffinity(0)) - 1)
    timeouts = Timeouts(compile=args.compile_timeout, run=args.run_timeout)
    with ExitStack() as stack:
        builder = stack.enter_context(closing(CompileBuilder(jobs, timeout_s=timeouts.compile_s)))
        tryouts = stack.enter_context(Tryouts(operator, seed=args.seed, timeouts=timeouts, say=note)) if args.run else None
        for workload in workloads:
            for target in targets:
                note(f"compiling {workload.shown} for {target.arch}{', and running it in the interpreter' if tryouts else ''}")
                asked = {"sample": args.sample, "each": args.each, "given": given[workload, target], "schedule": args.schedule, "seed": args.seed}
                reports.append(check(operator, workload, target, builder, **asked, tryouts=tryouts))
    if args.json:
        emit_json({"operator": operator.name, "checks": [report.to_json() for report in reports]})
    else:
        _print(operator, reports, ran=args.run)
    return ExitCode.OK if all(report.legal and not report.faulty and not report.broken for report in reports) else ExitCode.FAILED


def _given(operator: Operator, pairs: Sequence[tuple[Workload, Target]], args: argparse.Namespace) -> dict[tuple[Workload, Target], list[Config]]:
    """The configs given, completed; said where another knob than those named differs from the default. All that are refused are told at once."""
    given: dict[tuple[Workload, Target], list[Config]] = {pair: [] for pair in pairs}
    refused: list[UsageError] = []
    for (workload, target), text in itertools.product(pairs, args.configs):
        try:
            written = written_config(operator, workload, target, text, args.schedule)
        except UsageError as error:
            refused.append(error)
            continue
        if written.note:
            note(f"{workload.shown} for {target.arch}: {written.note}")
        given[workload, target].append(written.config)
    if refused:
        raise type(refused[0])("\n".join(dict.fromkeys(map(str, refused)))) from refused[0]
    return given


def _print(operator: Operator, reports: Sequence[Legality], *, ran: bool) -> None:
    headers = ["workload", "target", "checked", "legal", "shared memory", "limit", "registers", "spilled bytes", "of the others"]
    rows = [
        [
            report.workload.shown,
            report.target.arch,
            len(report.verdicts),
            report.legal,
            report.most("shared_memory_bytes"),
            report.target.shared_memory_bytes,
            report.most("registers"),
            report.most("spill_bytes"),
            ", ".join(f"{reason} ({number})" for reason, number in summarize(report.verdicts).items()) or "-",
        ]
        for report in reports
    ]
    if ran:
        headers.insert(4, "run")
        for row, report in zip(rows, reports, strict=True):
            row.insert(4, ", ".join(f"{number} {verdict}" for verdict, number in report.tried.most_common()) or "-")
    emit(table(headers, rows))
    for report in reports:
        emit(f"\n{report.workload.shown} on {report.target.arch}, {report.target.name}")
        _print_configs(operator, report, ran=ran)
        if report.asked is not None and len(report.verdicts) < report.asked:
            emit(f"  all {len(report.verdicts):,} legal configs of the space were checked, fewer than the {report.asked:,} asked for")
        if report.absent:
            emit(f"  not checked, as no legal config with it was met: {_listed(report.absent)}")
        if report.unbuilt:
            emit(f"  met only in configs that could not be built, and so not checked: {_listed(report.unbuilt)}")
        for dim, number in report.leaks.items():
            emit(f"  {dim}: its extent changes the rendered text of {number} of these, which other extents then cannot share")


def _print_configs(operator: Operator, report: Legality, *, ran: bool) -> None:
    """The configs of one report, those first that are what one looks for: not legal, or not right."""
    verdicts = sorted(report.verdicts, key=lambda verdict: verdict.legal and not _faulty(verdict))
    headers = ["verdict", "shared", "registers", "spilled", "config"]
    rows = [
        [
            "legal" if verdict.legal else verdict.broken or ("exceeds a limit" if verdict.exceeds else str(verdict.status)),
            verdict.resources and verdict.resources.shared_memory_bytes,
            verdict.resources and verdict.resources.registers,
            verdict.resources and verdict.resources.spill_bytes,
            format_config(verdict.config),
        ]
        for verdict in verdicts[:MOST_ROWS]
    ]
    if ran:
        headers[1:1] = TRIED
        for row, verdict in zip(rows, verdicts, strict=False):
            row[1:1] = tried_cells(verdict.tryout)
    emit(table(headers, rows, indent="  "))
    if len(verdicts) > MOST_ROWS:
        emit(f"  and {len(verdicts) - MOST_ROWS} more: --json has them all")
    alike: defaultdict[str, list[Verdict]] = defaultdict(list)
    for verdict in verdicts:
        if not verdict.legal or _faulty(verdict):
            alike[_reason(verdict)].append(verdict)
    for reason, (first, *more) in list(alike.items())[:MOST_ROWS]:
        emit(f"  {format_config(first.config)}{f', and {len(more):,} more' if more else ''}\n    {reason}")
    for wrong, number in report.broken.most_common():
        emit(f"  {wrong}: {number:,} of {len(verdicts):,}, a fault of the template: mend it, or refuse with a require what it cannot do here")
    for line in tried_lines(operator, report) if ran else ():
        emit(f"  {line}")


def _listed(candidates: Sequence[str]) -> str:
    return ", ".join(candidates[:MOST_ROWS]) + (", ..." if len(candidates) > MOST_ROWS else "")


def _faulty(verdict: Verdict) -> bool:
    return verdict.tryout is not None and verdict.tryout.faulty


def _reason(verdict: Verdict) -> str:
    if verdict.legal and verdict.tryout is not None:
        return f"{verdict.tryout.status}: {verdict.tryout.message.strip()}".replace("\n", "\n    ")
    said = verdict.message.strip().splitlines()
    return "; ".join(verdict.exceeds) or (said[-1] if said else str(verdict.status))
