"""Ragged neighbours of a workload that its sources serve too: where a missing mask shows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Final

from tilewright.errors import TilewrightError
from tilewright.record import Config
from tilewright.template import Source
from tilewright.workload import Workload

# Divisibility by 16 is what Triton specialises on, so that 16 more or less is served by the same binary, and no multiple of most tiles.
STEP: Final = 16


def device_steps(extent: int) -> tuple[int, ...]:
    """16 less and 16 more; of an extent of 1 neither, which Triton takes for a constant."""
    return () if extent == 1 else tuple(other for other in (extent - STEP, extent + STEP) if other > 1)


def interpreted_steps(extent: int) -> tuple[int, ...]:
    """16 less, and 1 less or more for extents that have no 16 to give: nothing is specialised in the interpreter, and what is larger takes longer there."""
    return () if extent == 1 else tuple(other for other in (extent - STEP, extent - 1, extent + 1) if other > 1)


class Neighbours:
    """Finds, for a candidate, workloads whose extents are a little less or more, and for which its template renders the same text.

    Which of a workload's neighbours a schedule's binaries serve turns out in the runner (a `launch` may work constants out of the
    extents), and is remembered, so that in the end one rendering a candidate is enough.

    Args:
        serves: whether a config of another workload is legal for this one and renders the same source.
        steps: the extents to try for one, in order.
    """

    def __init__(self, serves: Callable[[Workload, Config, Source], bool], steps: Callable[[int], tuple[int, ...]] = device_steps) -> None:
        self._serves = serves
        self._steps = steps
        self._served: dict[tuple[str, str], Mapping[str, int]] = {}

    def of(self, workload: Workload, config: Config, source: Source) -> tuple[Workload, ...]:
        """The neighbours to check a source at, in the order in which to try them."""
        known = self._served.get((workload.key, source.schedule))
        if known is not None and (found := self._rendered(workload, config, source, known)) is not None:
            return (found,)
        changed = self._greedy(workload, config, source)
        # The last dim is most often the one that a kernel loops over, and asks to be told whether its tiles divide it.
        names = list(changed)
        return tuple(
            found
            for count in range(len(names), 0, -1)
            if (found := self._rendered(workload, config, source, {name: changed[name] for name in names[:count]})) is not None
        )

    def learn(self, workload: Workload, source: Source, served: str) -> None:
        """Remember which neighbour a source's binary served.

        Args:
            workload: whose neighbour.
            source: the candidate's.
            served: the neighbour's key; empty where its binary served none of those tried.
        """
        place = (workload.key, source.schedule)
        self._served.pop(place, None)
        for dims in self._combinations(workload) if served else ():
            if replace(workload, dims={**workload.dims, **dims}).key == served:
                self._served[place] = dims
                return

    def _greedy(self, workload: Workload, config: Config, source: Source) -> dict[str, int]:
        """As many dims as can be changed together, each to the first extent that serves."""
        changed: dict[str, int] = {}
        for name, extent in workload.dims.items():
            for other in self._steps(extent):
                if self._rendered(workload, config, source, {**changed, name: other}) is not None:
                    changed[name] = other
                    break
        return changed

    def _rendered(self, workload: Workload, config: Config, source: Source, dims: Mapping[str, int]) -> Workload | None:
        """The workload with other extents, where the same text is rendered for it."""
        other = replace(workload, dims={**workload.dims, **dims})
        try:
            return other if self._serves(other, config, source) else None
        except TilewrightError:
            return None  # the template does not take such extents

    def _combinations(self, workload: Workload) -> Iterator[dict[str, int]]:
        """Every way to change some of the dims."""
        found: list[dict[str, int]] = [{}]
        for name, extent in workload.dims.items():
            found += [{**dims, name: other} for dims in found for other in self._steps(extent)]
        yield from found[1:]
