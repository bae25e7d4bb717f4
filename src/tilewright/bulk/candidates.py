"""Records that may be the best of their group, by their places in a log; whole ones are read only where they may win."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from tilewright.bulk.parts import nth_line
from tilewright.codec import decode_line
from tilewright.errors import LogDamaged
from tilewright.identity import Keys
from tilewright.races import winners, wrong_in
from tilewright.record import Line, RaceRecord, Record, config_key

# A candidate's place: the block's number above, the line's number in it below.
LINE_BITS: Final = 20
_LINE_MASK: Final = (1 << LINE_BITS) - 1

GroupKey = tuple[str, str, str]


class Reader:
    """Lines of a part by their place."""

    def __init__(self, path: Path, blocks: array[int]) -> None:
        self._path = path
        self._blocks = blocks

    def __call__(self, places: Sequence[int]) -> Iterator[bytes]:
        """The lines at some places; neighbours are read together."""
        at, text = -1, b""
        with self._path.open("rb", buffering=0) as file:
            for place in places:
                block = place >> LINE_BITS
                if block != at:
                    start, stop = self._blocks[block : block + 2]
                    file.seek(start)
                    at, text = block, file.read(stop - start)
                yield nth_line(text, place & _LINE_MASK)


class Misplaced(Exception):
    """A line is not where it was counted to be: a torn line before it was read as one with the next."""


class Candidates:
    """Of one group, in one part."""

    def __init__(self, reader: Reader, times: array[float], places: array[int], sources: array[int]) -> None:
        self.times = times
        self._reader = reader
        self._places = places
        self._sources = sources

    def at(self, time: float) -> Iterator[Record]:
        """Those of a time."""
        yield from self._read([position for position, other in enumerate(self.times) if other == time])

    def of(self, sources: frozenset[int]) -> Iterator[Record]:
        """Those whose source has one of these hashes."""
        yield from self._read([position for position, source in enumerate(self._sources) if source in sources])

    def _read(self, positions: Sequence[int]) -> Iterator[Record]:
        for position, raw in zip(positions, self._reader([self._places[position] for position in positions]), strict=True):
            try:
                line = decode_line(raw)
            except LogDamaged:
                continue
            if not isinstance(line, Record) or line.measurement is None or line.measurement.ranked_us != self.times[position]:
                raise Misplaced
            yield line


def possible(groups: dict[GroupKey, list[Candidates]], deciding: Sequence[Line]) -> Iterator[Record]:
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
