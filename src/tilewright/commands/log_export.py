"""`tilewright log export`: schedules and records in other tools' formats."""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from tilewright.best import best_entries
from tilewright.bestfile import parse_best_file
from tilewright.bulk.best import best_of_files, is_large
from tilewright.commands.logs import read_logs, templates_at_hand
from tilewright.commands.output import emit, emit_json, note
from tilewright.destination import is_stream, replacing
from tilewright.errors import ExitCode, HostError, UsageError
from tilewright.filekind import refuse_no_file
from tilewright.interchange.chosen import Chosen, chosen_entries, chosen_records, is_wanted, nothing_left, selected
from tilewright.interchange.names import Names
from tilewright.interchange.rows import csv_lines, wide_columns
from tilewright.interchange.t4 import t4_files
from tilewright.interchange.triton_configs import triton_snippet
from tilewright.interchange.vllm import parse_set, vllm_files
from tilewright.log import Damage, TuningLog
from tilewright.logfile import is_best_file
from tilewright.record import Line, Record, VendorRecord
from tilewright.target import Target
from tilewright.workload import Workload, parse_parameters
from tilewright.workload_file import each_workload

Wanted = Sequence[Mapping[str, int | str]]


def run(args: argparse.Namespace) -> ExitCode:
    """Choose, translate, write."""
    _refuse_options(args)
    wanted: Wanted = each_workload(args.workloads, parse_parameters)
    match args.format:
        case "triton":
            text = triton_snippet(_chosen(args, wanted), Names.parse(args.names), f"From {', '.join(path.name for path in args.files)}.")
            _write(args, {_output(args).name if args.output else "configs.py": text}, folder=False)
        case "vllm":
            _write(args, vllm_files(_chosen(args, wanted), Names.parse(args.names), parse_set(args.given)), folder=True)
        case "csv":
            _csv(args, wanted)
        case _:
            _t4(args, wanted)
    return ExitCode.OK


def _refuse_options(args: argparse.Namespace) -> None:
    """Options that a format has no use for would be passed over in silence."""
    for option, given, formats in (
        ("--map", args.names, ("triton", "vllm")),
        ("--set", args.given, ("vllm",)),
        ("--wide", args.wide, ("csv",)),
        ("--top", args.top != 1, ("triton",)),
        ("--json", args.json and args.output is None, ()),
    ):
        if given and args.format not in formats:
            hint = f"it is for --format {' and '.join(formats)}" if formats else "name a file or folder with -o, and it says what was written"
            raise UsageError(f"{option} has no meaning for --format {args.format}: {hint}")


def _chosen(args: argparse.Namespace, wanted: Wanted) -> tuple[Chosen, ...]:
    best = [path for path in args.files if is_best_file(path)]
    logs = [path for path in args.files if path not in best]
    if args.top > 1 and best:
        raise UsageError(f"--top {args.top}: {best[0]} is a best file, which has one schedule for each workload; give the logs")
    files = [parse_best_file(path.read_text(encoding="utf-8"), str(path)) for path in best]
    if any(file.ranges for file in files):
        note("ranges of best files are left out: these formats know exact workloads")
    templates = templates_at_hand(args.templates)
    if args.top > 1:
        return selected(chosen_records(read_logs(logs), args.top, templates), wanted, args.target)
    entries = [entry for file in files for entry in file.entries]
    if is_large(logs):
        entries += best_of_files(logs, note, templates)
        return selected(chosen_entries(entries, templates), wanted, args.target)
    lines = read_logs(logs)
    if not entries:
        return selected(chosen_records(lines, templates=templates) if logs else (), wanted, args.target)
    return selected(chosen_entries([*entries, *best_entries(lines, templates)], templates), wanted, args.target)


def _lines(args: argparse.Namespace) -> tuple[Line, ...]:
    for path in args.files:
        if is_best_file(path):
            raise UsageError(f"{path} is a best file, and {args.format} holds the records of a search; give the logs that it was made from")
    return read_logs(args.files)


def _csv(args: argparse.Namespace, wanted: Wanted) -> None:
    for path in args.files:
        if is_best_file(path):
            raise UsageError(f"{path} is a best file, and csv holds the records of a search; give the logs that it was made from")

    others: dict[tuple[Workload, Target], None] = {}

    def keep(line: Record | VendorRecord) -> bool:
        kept = is_wanted(line.workload, line.target, wanted, args.target)
        if not kept:
            others[line.workload, line.target] = None
        return kept

    # Read twice rather than held: a log may have a million records.
    for path in args.files if args.wide else ():
        refuse_no_file(path, "a tuning log", "--wide reads it twice")
    wide = wide_columns(line for line in _scan(args.files) if isinstance(line, Record | VendorRecord) and keep(line)) if args.wide else ()
    rows = csv_lines(_scan(args.files, say=True), keep=keep, wide=wide)
    first = list(itertools.islice(rows, 2))  # the header, and what there is to write at all
    if len(first) == 1 and others:
        raise nothing_left(list(others), wanted, args.target)
    rows = itertools.chain(first, rows)
    if args.output is None:
        for row in rows:
            emit(row.removesuffix("\n"))
        return
    output = _output(args)
    _refuse_existing(args, output)
    count = -1
    with _writing(output) as file:
        for row in rows:
            file.write(row)
            count += 1
    _said(args, [output], records=count)


def _scan(paths: Iterable[Path], *, say: bool = False) -> Iterator[Line]:
    for path in paths:
        damaged = 0
        for _, entry in TuningLog(path).scan():
            if isinstance(entry, Damage):
                damaged += 1
            else:
                yield entry
        if damaged and say:
            note(f"{path}: skipped {damaged} damaged line(s); `tilewright log lint {path}` says which")


def _t4(args: argparse.Namespace, wanted: Wanted) -> None:
    lines = _lines(args)
    there = [(line.workload, line.target) for line in lines if isinstance(line, Record)]
    if there and not any(is_wanted(workload, target, wanted, args.target) for workload, target in there):
        raise nothing_left(there, wanted, args.target)
    files = t4_files(lines, lambda record: is_wanted(record.workload, record.target, wanted, args.target))
    for file in files:
        if file.passed_over:
            note(f"{file.workload.key}: left out {file.passed_over} records of a less trusted timing protocol")
    folder = args.output is not None and (args.output.is_dir() or len(files) > 1)
    if len(files) > 1 and args.output is not None and args.output.suffix == ".json":
        raise UsageError(f"T4 has one file for each workload and device, and there are {len(files)}: name a folder with -o, or choose one with -w and --target")
    _write(args, {file.name: file.text for file in files}, folder=folder)


def _output(args: argparse.Namespace) -> Path:
    path: Path = args.output
    if path.is_dir():
        raise UsageError(f"{path} is a folder; -o names a file for --format {args.format}")
    return path


def _write(args: argparse.Namespace, files: Mapping[str, str], *, folder: bool) -> None:
    """Write texts by name: into a folder, or the only one to the file named; to standard output where nothing is."""
    if args.output is None:
        if len(files) > 1:
            raise UsageError(f"these are {len(files)} files ({', '.join(list(files)[:3])}, ...): name a folder with -o, or choose with -w and --target")
        for text in files.values():
            emit(text.rstrip("\n"))
        return
    paths: dict[Path, str] = {args.output / name if folder else args.output: text for name, text in files.items()}
    for path in paths:
        _refuse_existing(args, path)
    for path, text in paths.items():
        with _writing(path) as file:
            file.write(text)
    _said(args, list(paths))


def _refuse_existing(args: argparse.Namespace, path: Path) -> None:
    if path.exists() and not args.overwrite and not is_stream(path):
        raise UsageError(f"{path} is there already, and is not overwritten; name another with -o, or add --overwrite")


@contextmanager
def _writing(path: Path) -> Iterator[TextIO]:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise HostError(f"{path}: cannot write ({error.strerror}); choose another place with -o") from error
    with replacing(path) as file:
        yield file


def _said(args: argparse.Namespace, paths: Sequence[Path], **figures: int) -> None:
    for path in paths:
        note(f"wrote {path}")
    if args.json:
        emit_json({"format": args.format, "files": [str(path) for path in paths], **figures})
