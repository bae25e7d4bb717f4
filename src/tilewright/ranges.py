"""Ranges of a dim that varies at run time: which of a cover's schedules serves the extents between the tuned ones. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Final

from tilewright.best import BestRange, Step, entry_of
from tilewright.cover import Cover, schedule_id
from tilewright.record import Record
from tilewright.workload import Workload

# Extents are 32-bit integers in kernels.
LARGEST_EXTENT: Final = 2**31 - 1

# Whether the schedule of a record, with its splits carried over, renders the same code for another workload and is legal there.
Legal = Callable[[Record, Workload], bool]


def ranges(cover: Cover, dim: str, legal: Legal) -> tuple[BestRange, ...]:
    """The ranges of a dim, one for each combination of the other parameters that the cover serves.

    An extent between two tuned ones goes to the schedule of the upper one, as a bucket would have it; where that schedule is not
    legal, to the nearest tuned one's that is. Candidates of tiles change at powers of two, so that is where ranges may change
    between tuned extents. The greatest tuned extent's schedule is the default outside, where it is legal there.

    Args:
        cover: schedules by workload.
        dim: a dim's name; workloads without it are left out.
        legal: asked at the ends, the middle and odd extents of each range: alignment shows at odd ones, limits at the ends.
    """
    groups: dict[str, dict[int, Record]] = defaultdict(dict)
    fixed: dict[str, Workload] = {}
    for served in cover.served.values():
        workload = served.record.workload
        if dim in workload.dims:
            rest = replace(workload, dims={name: extent for name, extent in workload.dims.items() if name != dim})
            fixed.setdefault(rest.key, rest)
            groups[rest.key][workload.dims[dim]] = served.record
    return tuple(_range(fixed[key], dim, groups[key], legal) for key in sorted(groups))


def _range(rest: Workload, dim: str, tuned: Mapping[int, Record], legal: Legal) -> BestRange:
    points = sorted(tuned)

    def fits(record: Record, low: int, high: int) -> bool:
        return all(legal(record, replace(rest, dims={**rest.dims, dim: extent})) for extent in probes(low, high))

    steps: list[Step] = []
    holes: list[tuple[int, int]] = []
    for low, high in pieces(points):
        above = [point for point in points if point >= high]
        below = [point for point in reversed(points) if point < low]
        order = [*above[:1], *below[:1], *above[1:], *below[1:]]
        at = next((point for point in order if fits(tuned[point], low, high)), None)
        if at is None:
            holes.append((low, high))
        elif steps and steps[-1].high == low - 1 and schedule_id(tuned[at]) == schedule_id(tuned[steps[-1].at]):
            last = steps.pop()
            steps.append(_step(tuned[last.at], last.low, high, last.at))
        else:
            steps.append(_step(tuned[at], low, high, at))
    outside = [*holes, (points[-1] + 1, 4 * points[-1])]
    greatest = tuned[points[-1]]
    default = _step(greatest, points[-1] + 1, LARGEST_EXTENT, points[-1]) if all(fits(greatest, low, high) for low, high in outside) else None
    return BestRange(workload=rest, target=greatest.target, dim=dim, steps=steps, tuned=points, default=default)


def _step(record: Record, low: int, high: int, at: int) -> Step:
    entry = entry_of(record)
    return Step(low=low, high=high, at=at, config=entry.config, pins=entry.pins)


def outside(line: BestRange) -> list[tuple[int, int]]:
    """The extents that a range leaves to its default: holes between its steps, and beyond the greatest up to four times that."""
    spans: list[tuple[int, int]] = []
    low = 1
    for step in line.steps:
        if low < step.low:
            spans.append((low, step.low - 1))
        low = step.high + 1
    greatest = max([low - 1, *line.tuned])
    return [*spans, (low, min(4 * max(greatest, 1), LARGEST_EXTENT))] if low <= LARGEST_EXTENT else spans


def pieces(points: list[int]) -> Iterator[tuple[int, int]]:
    """The extents from 1 to the last point, cut after each point and after each power of two."""
    low = 1
    for point in points:
        while low <= point:
            high = min(point, 1 << (low - 1).bit_length())
            yield low, high
            low = high + 1


def probes(low: int, high: int) -> list[int]:
    """Extents of a range to try: its ends, its middle, and odd ones beside them."""
    middle = (low + high) // 2
    return sorted({extent for extent in (low, low | 1, middle, middle | 1, high - 1, high) if low <= extent <= high})
