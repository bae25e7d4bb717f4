"""Which shapes stand for all of a range, so that compiling for them compiles for every one."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from .table import Table

# Up to so many extents a range is gone through whole, at some 0.2 ms each (H200 machine: benchmarks/call_overhead.py).
_WHOLE: Final = 16_384

# Triton tells integers apart by ==1, % 16 == 0 and 32 or 64 bits. A launch passes extents, products of them, and counts of tiles: all classes of
# ceil(M / tile) come up among multiples of the tile and their neighbours.
_TILES: Final = tuple(2**exponent for exponent in range(17))
_BITS: Final = 2**31


def of_table(table: Table, targets: Sequence[int]) -> list[dict[str, Any]]:
    """All that a table holds for targets: its entries, and its ranges with a pair in place of the dim."""
    found: list[dict[str, Any]] = [dict(entry["workload"]) for entry in table.entries if entry["target"] in targets]
    for spread in table.ranges:
        if spread["target"] in targets:
            found += [{**spread["fixed"], spread["dim"]: (low, high)} for low, high, _ in spread["ranges"]]
    return found


def shapes(ranges: Iterable[Mapping[str, Any]], table: Table) -> Iterator[dict[str, Any]]:
    """Workload parameters, each once, that stand for all of the ranges.

    Args:
        ranges: workload parameters, in which a dim may be a pair of its least and largest extent.
        table: whose own ranges' ends are among the shapes.
    """
    seen: set[tuple[tuple[str, Any], ...]] = set()
    for parameters in ranges:
        spans = {name: value for name, value in parameters.items() if isinstance(value, (tuple, list))}
        ends = {end for spread in table.ranges for low, high, _ in spread["ranges"] for end in (low, high) if spread["dim"] in spans}
        room = _WHOLE if len(spans) < 2 else int(_WHOLE ** (1 / len(spans)))
        for extents in itertools.product(*(extents_of(low, high, room, ends) for low, high in spans.values())):
            made = {**parameters, **dict(zip(spans, extents, strict=True))}
            items = tuple(sorted(made.items()))
            if items not in seen:
                seen.add(items)
                yield made


def extents_of(low: int, high: int, room: int, ends: Iterable[int] = ()) -> Sequence[int]:
    """Extents that stand for all from `low` to `high`: all, if there is room, else those that Triton may tell apart."""
    if not 1 <= low <= high:
        raise ValueError(f"a range must go up, from 1 or more: ({low}, {high})")
    if high - low < room:
        return range(low, high + 1)
    chosen = {low, high, *ends, *range(low, low + min(room // 4, high - low))}
    for tile in _TILES:
        for count in (1, 2, 3, 15, 16, 17, 31, 32, 33, 48, 255, 256, 257):
            chosen.update(tile * count + near for near in (-1, 0, 1, 8, 16))
        start = low - low % tile
        chosen.update(start + tile * step + near for step in range(34) for near in (-1, 0, 1))
        for part in range(33):
            middle = (low + (high - low) * part // 32) // (16 * tile) * 16 * tile
            chosen.update(middle + near for near in (-tile, -1, 0, 1, 16, tile, tile + 1))
        bits = _BITS // tile
        chosen.update(bits + near for near in (-16, -1, 0, 1, 16))
    return sorted(extent for extent in chosen if low <= extent <= high)
