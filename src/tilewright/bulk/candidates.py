"""Records that may be the best of their group, by their places in a log; whole ones are read only where they may win."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator, Sequence, Set
from itertools import compress
from operator import itemgetter
from pathlib import Path
from typing import Final, TypeAlias

from tilewright.bulk.parts import nth_line
from tilewright.codec import decode_line
from tilewright.current import Templates, is_stale
from tilewright.errors import LogDamaged
from tilewright.identity import Keys
from tilewright.races import Schedule, first_places, winners, wrong_in
from tilewright.record import Line, RaceRecord, Record

# A candidate's place: the block's number above, the line's number in it below.
LINE_BITS: Final = 20
_LINE_MASK: Final = (1 << LINE_BITS) - 1
# How far rounding to three digits, as `Measurement.ranked_us` does, may move a time, and a bit for the sum's own error.
ROUNDING_US: Final = 0.000501
# What rounding can bring to the least time, and what it can bring to that.
NEAR_US: Final = 3 * ROUNDING_US
_HASH_BYTES: Final = 8

GroupKey = tuple[str, str, str]


class Reader:
    """Lines by their place in the blocks that a process has read.

    Args:
        paths: the files.
        files: of the blocks, by their number among the paths.
        starts: of the blocks, as bytes; one ends where the next starts.
    """

    def __init__(self, paths: Sequence[Path], files: array[int], starts: array[int]) -> None:
        self._paths = paths
        self._files = files
        self._starts = starts

    def where(self, place: int) -> tuple[int, int, int]:
        """What places of several readers are put in order by: file, block and line."""
        block = place >> LINE_BITS
        return self._files[block], self._starts[block], place & _LINE_MASK

    def __call__(self, places: Sequence[int]) -> Iterator[bytes]:
        """The lines at some places; neighbours are read together."""
        at, text = -1, b""
        for place in places:
            block = place >> LINE_BITS
            if block != at:
                start, stop = self._starts[block : block + 2]
                with self._paths[self._files[block]].open("rb", buffering=0) as file:
                    file.seek(start)
                    at, text = block, file.read(stop - start)
            yield nth_line(text, place & _LINE_MASK)


class Misplaced(Exception):
    """A line is not where it was counted to be: a torn line before it was read as one with the next."""


class Candidates:
    """Of one group and template, of the parts that one process took.

    Args:
        reader: of their lines.
        template: hash of the template that they are of.
        times: of the records, µs, those with an anchor not yet rounded; as the bytes of doubles.
        places: of the records, those with an anchor inverted; as those of 64-bit integers.
        sources: hashes of the records' sources, in the same way.
        near: positions of the records whose times are up to `NEAR_US` above the least; nearly always nobody asks for others.
    """

    def __init__(self, reader: Reader, template: str, times: bytes, places: bytes, sources: bytes, near: Sequence[int]) -> None:
        self._times: Final = memoryview(times).cast("d")
        self._places: Final = memoryview(places).cast("q")
        self._sources: Final = sources
        self._near: Final = near
        self._high: Final = min(self._times[position] for position in near) + NEAR_US
        self._reader: Final = reader
        self.template: Final = template
        self.all: Final[Sequence[int]] = range(len(self._times))  # positions of all

    def of_sources(self, sources: frozenset[int], positions: Sequence[int]) -> Sequence[int]:
        """Which of some have a source with one of these hashes."""
        hashes = memoryview(self._sources).cast("q")
        if positions is self.all:
            # Most are told by one byte of their hash, without making numbers of all: a fifth of the time.
            marks = bytearray(256)
            for byte in array("q", sources).tobytes()[::_HASH_BYTES]:
                marks[byte] = 1
            positions = list(compress(positions, self._sources[::_HASH_BYTES].translate(marks)))
        return [position for position in positions if hashes[position] in sources]

    def least(self, positions: Sequence[int]) -> float:
        """The fastest time of some."""
        if positions is self.all:
            return min(map(self._time, self._near))
        # Rounding moves a time by half a nanosecond at most, and takes longer than all else here: only times that may be the least are rounded.
        bound = min(map(self._times.__getitem__, positions)) + 2 * ROUNDING_US
        return min(map(self._time, self._within(0.0, bound, positions)))

    def times(self, positions: Sequence[int]) -> Iterator[float]:
        """The times of some, as records are ranked by."""
        return map(self._time, positions)

    def at(self, time: float, positions: Sequence[int]) -> Iterator[tuple[tuple[int, int, int], Record]]:
        """Those of some that have a time, with where they stand."""
        near = [position for position in self._within(time - ROUNDING_US, time + ROUNDING_US, positions) if self._time(position) == time]
        places = [place if place >= 0 else ~place for place in map(self._places.__getitem__, near)]
        for place, raw in zip(places, self._reader(places), strict=True):
            try:
                line = decode_line(raw)
            except LogDamaged:
                continue
            if not isinstance(line, Record) or line.measurement is None or line.measurement.ranked_us != time:
                raise Misplaced
            yield self._reader.where(place), line

    def _within(self, low: float, high: float, positions: Sequence[int]) -> list[int]:
        """Which of some have times from and up to these, not yet rounded."""
        if positions is self.all and high <= self._high:
            positions = self._near
        return [position for position in positions if low <= self._times[position] <= high]

    def _time(self, position: int) -> float:
        return self._times[position] if self._places[position] >= 0 else round(self._times[position], 3)


# Some candidates of one group: of each part, and their positions there.
_Some: TypeAlias = Sequence[tuple[Candidates, Sequence[int]]]


def possible(groups: dict[GroupKey, list[Candidates]], deciding: Sequence[Line], templates: Templates, over: Callable[[int], None]) -> Iterator[Record]:
    """Of each group, the records of which the best is chosen as it is of all.

    They are the fastest ones among which one is right, and the fastest right ones among those that may have won a race: of today's
    templates, where one of those is right.

    Args:
        groups: the candidates, by part.
        deciding: races, and records that were found wrong.
        templates: of operators at hand.
        over: told of each group, how many of its records are of older templates and give way.
    """
    keys = Keys()
    races = [line for line in deciding if isinstance(line, RaceRecord)]
    firsts = first_places(races, keys) if templates else {}
    wrong = {*wrong_in(races, keys)}
    for line in deciding:
        if isinstance(line, Record):
            wrong.add((keys.workload(line.workload), keys.target(line.target), keys.config(line.config), line.source))
    # As in choosing: what was found wrong puts no other out by having been faster.
    beaten: dict[tuple[str, str], set[Schedule]] = {}
    for workload, target, config, source in wrong:
        beaten.setdefault((workload, target), set()).add((config, source))
    won = winners(races, keys, {key: beaten[key[:2]] for key in groups if key[:2] in beaten})
    for key, group in groups.items():

        def right(record: Record, key: GroupKey = key) -> bool:
            return (key[0], key[1], keys.config(record.config), record.source) not in wrong

        def current(record: Record, right: Callable[[Record], bool] = right) -> bool:
            return right(record) and not is_stale(templates, record.workload.operator, record.template)

        some: _Some = [(candidates, candidates.all) for candidates in group]
        hashes = templates.get(key[0].partition(":")[0])
        today = _of_templates(some, hashes)
        older = _count(some) - _count(today)
        if older and any(map(current, found := list(_fastest(today, current)))):
            over(older)
            yield from found
            yield from _racers(some, hashes, firsts.get(key, frozenset()), keys)
            continue
        first = won.get(key)
        if first is not None:

            def raced(record: Record, first: frozenset[Schedule] = first, right: Callable[[Record], bool] = right) -> bool:
                return (keys.config(record.config), record.source) in first and right(record)

            yield from _fastest(_of_sources(some, first), raced)
        yield from _fastest(some, right)


def _racers(some: _Some, hashes: frozenset[str] | None, first: frozenset[Schedule], keys: Keys) -> Iterator[Record]:
    """Of each schedule that won a race, a record whatever its template, which shows that it has any, and its fastest ones of today."""
    some = _of_sources(some, first)
    today = _of_templates(some, hashes)
    for schedule in sorted(first):

        def its(record: Record, schedule: Schedule = schedule) -> bool:
            return (keys.config(record.config), record.source) == schedule

        yield from _fastest(_of_sources(some, {schedule}), its)
        yield from _fastest(_of_sources(today, {schedule}), its)


def _of_templates(some: _Some, hashes: frozenset[str] | None) -> _Some:
    return [(candidates, positions) for candidates, positions in some if hashes is None or candidates.template in hashes]


def _of_sources(some: _Some, schedules: Set[Schedule]) -> _Some:
    sources = frozenset(hash(source) for _, source in schedules)
    return [(candidates, candidates.of_sources(sources, positions)) for candidates, positions in some]


def _count(some: _Some) -> int:
    return sum(len(positions) for _, positions in some)


def _fastest(some: _Some, counts: Callable[[Record], bool]) -> Iterator[Record]:
    """Of some records, by time, those up to the time at which one counts."""
    for time in _ascending(some):
        placed = [found for candidates, positions in some for found in candidates.at(time, positions)]
        # In the order of the log, whichever process took which part: of two that agree in all that they are ranked by, the first is taken.
        found = [record for _, record in sorted(placed, key=itemgetter(0))]
        yield from found
        if any(map(counts, found)):
            break


def _ascending(some: _Some) -> Iterator[float]:
    """Distinct times, the least first: mostly it is the only one that is asked for, and sorting takes long."""
    leasts = [candidates.least(positions) for candidates, positions in some if positions]
    if leasts:
        yield min(leasts)
        yield from sorted({time for candidates, positions in some for time in candidates.times(positions)} - {min(leasts)})
