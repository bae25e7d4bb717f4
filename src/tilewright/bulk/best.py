"""The best entries of large logs: times are read from every line, whole records only of those that may win."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from operator import itemgetter
from pathlib import Path
from types import MappingProxyType
from typing import Any

import msgspec

from tilewright.best import BestEntry, VendorTime, best_entries, with_vendors
from tilewright.bulk.best_fold import Fold
from tilewright.bulk.candidates import Candidates, GroupKey, Misplaced, Reader, possible
from tilewright.bulk.parts import LARGE_BYTES, Part, is_large, parts_of, processes, share_out
from tilewright.bulk.raced import races_of
from tilewright.codec import decode_line, schema_of
from tilewright.current import Templates, passed_over
from tilewright.errors import LogDamaged, SchemaTooNew
from tilewright.log import TuningLog, collector_paused
from tilewright.logfile import raw_lines
from tilewright.record import Line, RaceRecord, Record

__all__ = ["LARGE_BYTES", "best_of_files", "is_large"]


def _fold(parts: Iterator[tuple[int, Part]]) -> dict[str, Any]:
    return Fold().take(parts)


def best_of_files(
    paths: Sequence[Path], note: Callable[[str], None] = lambda text: None, templates: Templates | Callable[[], Templates] = MappingProxyType({})
) -> tuple[BestEntry, ...]:
    """The entries that `best_entries` gives for these logs, with the fastest vendors.

    Args:
        paths: logs, not compressed.
        note: told of damaged lines, and of records of older templates.
        templates: of operators at hand, as for `best_entries`; or what loads them, for which other processes do not wait.

    Raises:
        LogError, HostError: a log cannot be read.
    """
    with collector_paused():
        return _best_of_files(paths, note, templates if callable(templates) else lambda: templates)


def _best_of_files(paths: Sequence[Path], note: Callable[[str], None], load: Callable[[], Templates]) -> tuple[BestEntry, ...]:
    loaded: list[Templates] = []
    folded = fold_files(paths, _fold, lambda: loaded.append(load()))
    (templates,) = loaded
    vendors: dict[GroupKey, VendorTime] = {}
    for *key, name, us in sorted((vendor for answer in folded for vendor in answer["vendors"]), key=lambda vendor: (vendor[4], vendor[3])):
        vendors.setdefault((key[0], key[1], key[2]), VendorTime(name=name, median_us=us))
    over: list[int] = []
    deciding = deciding_lines(paths, folded, templates, over.append)
    note_damage(folded, note)
    if any(over):
        note(passed_over(over[0]))
    entries = best_entries(deciding, templates) if over else best_entries(deciding, templates, note)
    return with_vendors(entries, vendors, (line for line in deciding if isinstance(line, RaceRecord)))


def fold_files(
    paths: Sequence[Path], fold: Callable[[Iterator[tuple[int, Part]]], dict[str, Any]], before: Callable[[], object] = lambda: None
) -> list[dict[str, Any]]:
    """What each process makes of the parts that it takes of these files, as of `share_out`.

    Raises:
        SchemaTooNew: a line has a newer schema; the first is named, as by `TuningLog.scan`.
        LogError, HostError: a file cannot be read.
    """
    count = processes()
    try:
        return share_out(parts_of(paths, count), fold, count, before)
    except SchemaTooNew as error:
        for path in paths:
            for number, raw in enumerate(raw_lines(path), 1):
                try:
                    schema_of(raw if isinstance(raw, bytes) else b"")
                except SchemaTooNew as found:
                    raise SchemaTooNew(f"{path}, line {number}: {found}") from error
                except (msgspec.MsgspecError, ValueError, RecursionError):
                    continue  # damage
        raise


def note_damage(folded: Sequence[dict[str, Any]], note: Callable[[str], None]) -> None:
    """Say how many lines were skipped."""
    damaged = sum(answer["damaged"] for answer in folded)
    if damaged:
        note(f"skipped {damaged} damaged line(s); `tilewright log lint` says which")


def deciding_lines(
    paths: Sequence[Path],
    folded: Sequence[dict[str, Any]],
    templates: Templates = MappingProxyType({}),
    over: Callable[[int], None] = lambda count: None,
) -> list[Line]:
    """A few lines of which the best of all lines is chosen: of each group the fastest, possible winners of races, races put together, and verdicts.

    `over` is told how many records of older templates were passed over, unless the lines are all there are.
    """
    groups: dict[GroupKey, list[Candidates]] = {}
    for answer in folded:
        reader = Reader(paths, array("q", answer["files"]), array("q", answer["starts"]))
        for workload, target, protocol, template, *columns in answer["groups"]:
            groups.setdefault((workload, target, protocol), []).append(Candidates(reader, template, *columns))
    deciding: list[Line] = [*races_of([answer["races"] for answer in folded])]
    for _, raw in sorted((line for answer in folded for line in answer["deciding"]), key=itemgetter(0)):
        with suppress(LogDamaged):  # a verdict in a line that is damaged elsewhere says nothing
            deciding.append(decode_line(raw))
    counts: list[int] = []
    try:
        deciding += list(possible(groups, deciding, templates, counts.append))
        over(sum(counts))
        return deciding
    except Misplaced:
        with collector_paused():
            return [line for path in paths for _, line in TuningLog(path).scan() if isinstance(line, (Record, RaceRecord))]
