"""The best schedules of each workload on all others: what a later choice of a few schedules for many shapes needs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from tilewright.best import rank
from tilewright.cover import schedule_id
from tilewright.record import Record
from tilewright.transfer import distance
from tilewright.trials import Search

# Schedules of each workload that are measured on all others, the winners of all before the seconds of any. guess: on the recorded GEMM the
# cover of 8 shapes within 3% is made of firsts and seconds.
LAYERS: Final = 3
# Other workloads whose schedules a workload gets at once, the most alike first; then it is the next workload's turn. guess: as many as
# share the cost of fresh operands.
DONORS: Final = 8


def crossings(searches: Sequence[Search]) -> Iterator[list[tuple[Search, Record]]]:
    """Batches of a workload and another one's record to try on it, the most useful first. A batch may be cut short anywhere."""
    alike = {
        id(search): sorted((other for other in searches if other is not search), key=lambda other: distance(search.workload, other.workload))
        for search in searches
    }
    for layer in range(LAYERS):
        best = {id(search): ranked(search) for search in searches}
        for start in range(0, len(searches) - 1, DONORS):
            for search in searches:
                donors = alike[id(search)][start : start + DONORS]
                batch = [(search, best[id(donor)][layer]) for donor in donors if len(best[id(donor)]) > layer]
                if batch:
                    yield batch


def ranked(search: Search) -> list[Record]:
    """A workload's fastest schedules, the best first."""
    found: dict[str, Record] = {}
    for record in search.correct:
        name = schedule_id(record)
        if name not in found or rank(record) < rank(found[name]):
            found[name] = record
    return sorted(found.values(), key=rank)[:LAYERS]
