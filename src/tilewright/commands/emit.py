"""`tilewright emit`: a plain Python package of the schedules of a best file."""

from __future__ import annotations

import argparse
import importlib.metadata
from pathlib import Path

from tilewright.best import BestFile, best_entries, parse_best_file, vendor_times, with_vendors
from tilewright.bulk.best import best_of_files, is_large
from tilewright.commands.logs import read_logs
from tilewright.commands.output import emit, emit_json, note
from tilewright.current import Templates, current_templates
from tilewright.emit import Emitted, Mode, emit_package
from tilewright.emit.plan import Plan
from tilewright.emit.precompile import check_arch, precompile_package
from tilewright.errors import ExitCode, LogError, UsageError, nearest
from tilewright.library import Operator, find_operators
from tilewright.logfile import is_best_file
from tilewright.record import RaceRecord, VendorRecord
from tilewright.workload import Workload, parse_parameters


def run(args: argparse.Namespace) -> ExitCode:
    """Match, render and write; FAILED where the mode refuses."""
    operators = find_operators(args.templates)
    best = _read(args.best, current_templates(operators))
    if args.precompile is not None:
        # Before anything is written.
        check_arch(args.precompile, [*(entry.target for entry in best.entries), *(line.target for line in best.ranges)])
    triton = args.triton if args.triton is not None else installed_triton()
    problems: list[str] = []

    def complete(draft: Path, plan: Plan) -> None:
        if args.precompile is not None:
            problems.extend(precompile_package(draft, plan.targets, args.precompile))

    emitted = emit_package(
        best,
        operators,
        args.output,
        name=args.name,
        mode=Mode(args.mode),
        target=args.target or "",
        triton=".".join(triton.split(".")[:2]),
        required=_required(args, operators),
        vendors=args.vendors,
        on_miss=args.on_miss,
        complete=complete,
    )
    for misfit, message in emitted.plan.relaxed:
        note(f"let pass: {misfit}: {message}")
    for problem in problems:
        note(f"not precompiled: {problem}")
    _print(args, emitted)
    return ExitCode.OK


def _read(path: Path, templates: Templates) -> BestFile:
    if is_best_file(path):
        try:
            return parse_best_file(path.read_text(encoding="utf-8"), str(path))
        except UnicodeDecodeError as error:
            raise LogError(f"{path}: not a text file ({error})") from error
    if is_large([path]):
        return BestFile(entries=best_of_files([path], note, templates))
    lines = read_logs([path])
    times = vendor_times(line for line in lines if isinstance(line, VendorRecord))
    return BestFile(entries=with_vendors(best_entries(lines, templates, note), times, (line for line in lines if isinstance(line, RaceRecord))))


def installed_triton() -> str:
    """The version of Triton here, without importing it; empty where there is none."""
    try:
        return importlib.metadata.version("triton")
    except importlib.metadata.PackageNotFoundError:
        return ""


def _required(args: argparse.Namespace, operators: dict[str, Operator]) -> list[Workload]:
    """The workloads that must be served: `operator:M=16,...`, or `operator:set-name`."""
    found: list[Workload] = []
    for text in args.require:
        name, colon, rest = text.partition(":")
        if not colon or name not in operators:
            raise UsageError(f"--require {text!r} must be OPERATOR:WORKLOAD or OPERATOR:SET; {nearest(name, operators)}")
        spec = operators[name].spec
        found += [spec.workload(parse_parameters(rest))] if "=" in rest else spec.workload_set(rest)
    return found


def _print(args: argparse.Namespace, emitted: Emitted) -> None:
    parts = emitted.plan.operators
    if args.json:
        emit_json(
            {
                "folder": str(emitted.folder),
                "files": list(emitted.files),
                "operators": {
                    name: {
                        "entries": len(part.entries),
                        "ranges": len(part.ranges),
                        "schedules": sorted(part.sources),
                        "vendor_entries": sum(bool(chosen.vendor) for _, chosen in part.entries),
                    }
                    for name, part in parts.items()
                },
                "relaxed": [[str(misfit), message] for misfit, message in emitted.plan.relaxed],
            }
        )
        return
    for name, part in parts.items():
        vendor = sum(bool(chosen.vendor) for _, chosen in part.entries)
        share = f", {vendor} ({vendor / len(part.entries):.0%}) by a vendor's kernel" if vendor else ""
        emit(f"{name}: {len(part.entries)} workloads{share}, {len(part.ranges)} ranges, {len(part.sources)} schedules")
    interpreted = "TRITON_INTERPRET=1 " if all(target.backend == "interpreter" for target in emitted.plan.targets) else ""
    emit(f"wrote {emitted.folder}; check it: cd {args.output} && {interpreted}python -m unittest {args.name}.test_{args.name}")
