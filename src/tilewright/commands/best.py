"""`tilewright best`: the best file of some logs, with ranges and economics where asked for."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tilewright.best import BestEntry, BestFile, Merged, best_entries, entry_text, merge, parse_best_file, vendor_times, with_vendors
from tilewright.bulk.best import best_of_files, is_large
from tilewright.commands.logs import read_logs, templates_at_hand
from tilewright.commands.output import emit, emit_json, note
from tilewright.current import Templates
from tilewright.destination import is_stream, replacing
from tilewright.errors import ExitCode, HostError, LogError, UsageError
from tilewright.formats import format_config, format_us
from tilewright.logfile import is_best_file
from tilewright.record import Line, RaceRecord, VendorRecord

if TYPE_CHECKING:
    from tilewright.cover import Cover


def run(args: argparse.Namespace) -> ExitCode:
    """Derive it, and print or write it."""
    best_files = [path for path in args.logs if is_best_file(path)]
    logs = [path for path in args.logs if path not in best_files]
    answer: dict[str, Any] = {}
    templates: Templates = {}
    found: tuple[Cover, ...] = ()
    lines: tuple[Line, ...] = ()

    def at_hand() -> Templates:
        nonlocal templates
        templates = templates_at_hand(args.templates)
        return templates

    asked_more = args.cover is not None or args.calls_per_day is not None
    if not asked_more and is_large(logs):
        entries = best_of_files(logs, note, at_hand)
    else:
        at_hand()
        lines = read_logs(logs)
        entries = _entries(lines, templates)
    if asked_more:
        from tilewright.commands import best_cover  # with templates' engine and more, for which a large log's other readers need not wait
    if args.cover is not None:
        found = best_cover.find_covers(args, lines, templates)
    given = [parse_best_file(path.read_text(encoding="utf-8"), str(path)) for path in best_files]
    merged = merge([*entries, *(entry for file in given for entry in file.entries)], (line for file in given for line in file.ranges), templates)
    _note_conflicts(merged)
    best = BestFile(entries=merged.entries, ranges=merged.ranges)
    if args.cover is not None:
        best = best_cover.covered(best, found, args, templates)
        answer["cover"] = [best_cover.cover_json(cover) for cover in found]
    text = best.text
    if args.calls_per_day is not None:
        economics = best_cover.savings(lines, args.calls_per_day, templates)
        answer["economics"] = [best_cover.saving_json(saving) for saving in economics]
    if args.output is not None:
        replace_file(args.output, text)
        note(f"{args.output}: {len(best.entries)} entries, {len(best.ranges)} ranges")
    if args.json:
        emit_json(_json(best, merged, args.output) | answer)
    elif args.cover is not None or args.calls_per_day is not None:
        if found:
            emit("\n\n".join(best_cover.cover_text(cover, best) for cover in found))
        if args.calls_per_day is not None:
            emit(("\n" if found else "") + best_cover.economics_text(economics))
    elif args.output is None and best.entries:
        emit(text.rstrip("\n"))
    if not best.entries:
        note("no record here is both correct and timed, so there is no best; `tilewright log stats` sums up the failures")
        return ExitCode.FAILED
    return ExitCode.OK


def _entries(lines: Sequence[Line], templates: Templates) -> tuple[BestEntry, ...]:
    times = vendor_times(line for line in lines if isinstance(line, VendorRecord))
    return with_vendors(best_entries(lines, templates, note), times, (line for line in lines if isinstance(line, RaceRecord)))


def _json(best: BestFile, merged: Merged, output: Path | None) -> dict[str, Any]:
    return {
        "entries": [json.loads(entry_text(entry)) for entry in best.entries],
        "ranges": [json.loads(entry_text(line)) for line in best.ranges],
        "conflicts": [[json.loads(entry_text(taken)), json.loads(entry_text(other))] for taken, other in merged.conflicts],
        "output": output and str(output),
    }


def _note_conflicts(merged: Merged) -> None:
    for taken, other in merged.conflicts:
        note(
            f"conflict: {taken.workload.key} on {taken.target.name}: "
            f"took {format_config(taken.config)} ({format_us(taken.median_us)} µs, {taken.pins.protocol}), "
            f"not {format_config(other.config)} ({format_us(other.median_us)} µs, {other.pins.protocol})"
        )
    for kept, beaten in merged.range_conflicts:
        note(f"conflict: two ranges of {kept.dim} for {kept.workload.key} on {kept.target.name}: took the one tuned at {kept.tuned}, not {beaten.tuned}")


def replace_file(path: Path, text: str) -> None:
    """Write a file whole or not at all: a best file is derived, so an older one may be replaced.

    Raises:
        UsageError: something else than a best file is there, or a folder, a socket or a disk.
        HostError: it cannot be written.
    """
    if not is_stream(path) and path.is_file():
        try:
            there = path.read_text(encoding="utf-8")
            if there:
                parse_best_file(there, str(path))
        except OSError as error:
            raise HostError(f"{path} is there and cannot be read ({error.strerror}), so it is not overwritten; name another file with -o") from error
        except (LogError, ValueError) as error:
            raise UsageError(f"{path} is there and is no best file, so it is not overwritten; name another file with -o") from error
    with replacing(path) as file:
        file.write(text)
