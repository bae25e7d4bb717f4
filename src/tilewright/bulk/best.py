"""The best entries of large logs: times are read from every line, whole records only of those that may win."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final, Literal

import msgspec

from tilewright.best import BestEntry, VendorTime, best_entries, vendor_times, with_vendors
from tilewright.bulk.parts import LARGE_BYTES, Part, blocks_of, filled_lines, fold_parts, is_large, parts_of, processes
from tilewright.codec import decode_line, encode_line
from tilewright.errors import LogDamaged, UsageError
from tilewright.identity import Keys
from tilewright.log import TuningLog, collector_paused
from tilewright.races import WRONG, winners, wrong_in
from tilewright.record import Line, RaceRecord, Record, Status, VendorRecord, config_key
from tilewright.target import Target
from tilewright.workload import Workload

__all__ = ["LARGE_BYTES", "best_of_files", "is_large"]

# A candidate's place: the block's number above, the line's number in it below.
_LINE_BITS: Final = 20
_LINE_MASK: Final = (1 << _LINE_BITS) - 1

GroupKey = tuple[str, str, str]


class _Anchor(msgspec.Struct, frozen=True, gc=False):
    median_us: float
    nominal_us: float


class _Time(msgspec.Struct, frozen=True, gc=False):
    protocol: str
    median_us: float
    anchor: _Anchor | None = None


class _Slim(msgspec.Struct, frozen=True, gc=False, tag_field="kind", tag="trial"):
    """What choosing needs of a record. The rest is checked where it may win."""

    schema: Literal[1]
    workload: msgspec.Raw
    target: msgspec.Raw
    status: str
    source: str = ""
    measurement: _Time | None = None


class _Start(msgspec.Struct, frozen=True, gc=False, tag_field="kind", tag="start"):
    schema: Literal[1]


class _Session(msgspec.Struct, frozen=True, gc=False, tag_field="kind", tag="session"):
    schema: Literal[1]


class _End(msgspec.Struct, frozen=True, gc=False, tag_field="kind", tag="end"):
    schema: Literal[1]


# A block of these alone is decoded in one go; one with a damaged line, or one of another schema, line by line.
_SLIM: Final = msgspec.json.Decoder(_Slim | _Start | _Session | _End | VendorRecord | RaceRecord)
_WORKLOAD: Final = msgspec.json.Decoder(Workload)
_TARGET: Final = msgspec.json.Decoder(Target)


class Known:
    """Keys of workloads and targets by their raw text; "" for a text that is neither."""

    def __init__(self) -> None:
        self.workloads: dict[bytes, str] = {}
        self.targets: dict[bytes, str] = {}

    def workload(self, raw: bytes) -> str:
        """The workload's key."""
        key = self.workloads.get(raw)
        if key is None:
            key = self.workloads[raw] = _key(_WORKLOAD, raw)
        return key

    def target(self, raw: bytes) -> str:
        """The target's key."""
        key = self.targets.get(raw)
        if key is None:
            key = self.targets[raw] = _key(_TARGET, raw)
        return key


def _key(decoder: msgspec.json.Decoder[Any], raw: bytes) -> str:
    try:
        return str(decoder.decode(raw).key)
    except (msgspec.MsgspecError, UsageError, ValueError, RecursionError):
        return ""


class _Group:
    """Candidates of one workload, target and protocol: times, places, and hashes of their sources."""

    __slots__ = ("places", "sources", "times")

    def __init__(self) -> None:
        self.times = array("d")
        self.places = array("q")
        self.sources = array("q")


class _Fold:
    """What a part comes to: candidates by group, the lines that decide among them, vendors, and how many lines are damaged."""

    def __init__(self) -> None:
        self._known = Known()
        self._keys = Keys()
        self._groups: dict[GroupKey, _Group] = {}
        self._deciding: list[bytes] = []
        self._vendors: list[VendorRecord] = []
        self._damaged = 0

    def result(self, blocks: array[int]) -> dict[str, Any]:
        """Plain values for `fold_parts`."""
        whole = {key: group for key, group in self._groups.items() if key[0] and key[1]}
        return {
            "blocks": blocks.tobytes(),
            "groups": [(*key, group.times.tobytes(), group.places.tobytes(), group.sources.tobytes()) for key, group in whole.items()],
            "deciding": self._deciding,
            "vendors": [(*key, time.name, time.median_us) for key, time in vendor_times(self._vendors).items()],
            "damaged": self._damaged + sum(len(group.times) for key, group in self._groups.items() if key not in whole),
        }

    def block(self, first: int, block: bytes) -> None:
        """Take a block; `first` is the place of its first line."""
        try:
            lines = _SLIM.decode_lines(block)
        except (msgspec.MsgspecError, UsageError, ValueError, RecursionError):
            for place, raw in enumerate(filled_lines(block), first):
                self._line(place, raw)
            return
        groups, workload_of, target_of = self._groups, self._known.workload, self._known.target
        for place, line in enumerate(lines, first):
            if line.__class__ is _Slim:
                time = line.measurement
                if line.status == "ok":
                    if time is not None:
                        key = (workload_of(bytes(line.workload)), target_of(bytes(line.target)), time.protocol)
                        group = groups.get(key)
                        if group is None:
                            group = groups[key] = _Group()
                        group.times.append(time.median_us if time.anchor is None else _ranked(time))
                        group.places.append(place)
                        group.sources.append(hash(line.source))
                elif line.status in WRONG:
                    self._line(place, filled_lines(block)[place - first])
            elif isinstance(line, VendorRecord):
                self._vendors.append(line)
            elif isinstance(line, RaceRecord):
                self._deciding.append(encode_line(line))

    def _line(self, place: int, raw: bytes) -> None:
        try:
            line = decode_line(raw)
        except LogDamaged:
            self._damaged += 1
            return
        if isinstance(line, VendorRecord):
            self._vendors.append(line)
        elif isinstance(line, RaceRecord) or (isinstance(line, Record) and line.status in WRONG):
            self._deciding.append(raw)
        elif isinstance(line, Record) and line.status is Status.OK and line.measurement is not None:
            key = (self._keys.workload(line.workload), self._keys.target(line.target), line.measurement.protocol)
            group = self._groups.setdefault(key, _Group())
            group.times.append(line.measurement.ranked_us)
            group.places.append(place)
            group.sources.append(hash(line.source))


def _ranked(time: _Time) -> float:
    assert time.anchor is not None
    try:
        return round(time.median_us * time.anchor.nominal_us / time.anchor.median_us, 3)
    except ZeroDivisionError:
        return time.median_us


def fold_best(part: Part) -> dict[str, Any]:
    """What choosing needs of a part of a log."""
    fold = _Fold()
    blocks = array("q")
    with collector_paused():
        for offset, block in blocks_of(part):
            fold.block(len(blocks) << _LINE_BITS, block)
            blocks.append(offset)
    blocks.append(part.stop)
    return fold.result(blocks)


def best_of_files(paths: Sequence[Path], note: Callable[[str], None] = lambda text: None) -> tuple[BestEntry, ...]:
    """The entries that `best_entries` gives for these logs, with the fastest vendors.

    Args:
        paths: logs, not compressed.
        note: told of damaged lines.

    Raises:
        LogError, HostError: a log cannot be read.
    """
    count = processes()
    parts = parts_of(paths, count)
    folded = fold_parts(parts, fold_best, count)
    groups: dict[GroupKey, list[_Candidates]] = {}
    for part, answer in zip(parts, folded, strict=True):
        reader = _Reader(part.path, array("q", answer["blocks"]))
        for workload, target, protocol, times, places, sources in answer["groups"]:
            groups.setdefault((workload, target, protocol), []).append(_Candidates(reader, array("d", times), array("q", places), array("q", sources)))
    vendors: dict[GroupKey, VendorTime] = {}
    for *key, name, us in sorted((vendor for answer in folded for vendor in answer["vendors"]), key=lambda vendor: (vendor[4], vendor[3])):
        vendors.setdefault((key[0], key[1], key[2]), VendorTime(name=name, median_us=us))
    deciding = [decode_line(raw) for answer in folded for raw in answer["deciding"]]
    damaged = sum(answer["damaged"] for answer in folded)
    try:
        entries = best_entries([*deciding, *_possible(groups, deciding)])
    except _Misplaced:
        with collector_paused():
            entries = best_entries(line for path in paths for _, line in TuningLog(path).scan() if isinstance(line, (Record, RaceRecord)))
    if damaged:
        note(f"skipped {damaged} damaged line(s); `tilewright log lint` says which")
    return with_vendors(entries, vendors)


class _Reader:
    """Lines of a part by their place."""

    def __init__(self, path: Path, blocks: array[int]) -> None:
        self._path = path
        self._blocks = blocks

    def __call__(self, place: int) -> bytes:
        block = place >> _LINE_BITS
        start, stop = self._blocks[block : block + 2]
        with self._path.open("rb") as file:
            file.seek(start)
            return filled_lines(file.read(stop - start))[place & _LINE_MASK]


class _Misplaced(Exception):
    """A line is not where it was counted to be: a torn line before it was read as one with the next."""


class _Candidates:
    """Of one group, in one part."""

    def __init__(self, reader: _Reader, times: array[float], places: array[int], sources: array[int]) -> None:
        self.times = times
        self._reader = reader
        self._places = places
        self._sources = sources

    def at(self, time: float) -> Iterator[Record]:
        """Those of a time."""
        yield from self._read(position for position, other in enumerate(self.times) if other == time)

    def of(self, sources: frozenset[int]) -> Iterator[Record]:
        """Those whose source has one of these hashes."""
        yield from self._read(position for position, source in enumerate(self._sources) if source in sources)

    def _read(self, positions: Iterator[int]) -> Iterator[Record]:
        for position in positions:
            try:
                line = decode_line(self._reader(self._places[position]))
            except (LogDamaged, IndexError):
                continue
            if not isinstance(line, Record) or line.measurement is None or line.measurement.ranked_us != self.times[position]:
                raise _Misplaced
            yield line


def _possible(groups: dict[GroupKey, list[_Candidates]], deciding: Sequence[Line]) -> Iterator[Record]:
    """Of each group, the fastest records among which one is right, and those that may have won a race."""
    keys = Keys()
    races = [line for line in deciding if isinstance(line, RaceRecord)]
    won = winners(races, keys)
    wrong = {*wrong_in(races, keys)}
    for line in deciding:
        if isinstance(line, Record):
            wrong.add((keys.workload(line.workload), keys.target(line.target), config_key(line.config), line.source))
    for key, group in groups.items():
        if key in won:
            sources = frozenset(hash(source) for _, source in won[key])
            yield from (record for candidates in group for record in candidates.of(sources))
        for time in sorted({time for candidates in group for time in candidates.times}):
            found = [record for candidates in group for record in candidates.at(time)]
            yield from found
            if any((key[0], key[1], config_key(record.config), record.source) not in wrong for record in found):
                break
