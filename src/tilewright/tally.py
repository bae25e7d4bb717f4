"""Tallies: how many points a schedule has, how many of them are legal, and what refuses the others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from math import prod
from typing import Final

from tilewright.declare import Schedule
from tilewright.errors import SpaceError, TemplateError
from tilewright.odometer import walk
from tilewright.points import SpaceCount

# A schedule whose knobs allow at most so many points is counted point by point where that is asked for: about a second at the 30,000
# passes/s of benchmarks/knob_section.py.
MOST_WALKED: Final = 30_000


def tally(schedule: Schedule) -> SpaceCount:
    """Count by cuts: rejections are points where every pass meets the same knobs, else subtrees of unknown size."""
    below = [prod(declared.size for declared in schedule.order[depth:]) for depth in range(len(schedule.order) + 1)]
    legal = 0
    rejected: Counter[str] = Counter()
    cuts: Counter[str] = Counter()
    for cfg in walk(schedule, {}):
        if not cfg._violations:
            legal += 1
        elif schedule.fixed_path:
            rejected[cfg._violations[0]] += below[len(cfg._config)]
        else:
            cuts[cfg._violations[0]] += 1
    return SpaceCount(legal=legal, points=None if cuts else legal + rejected.total(), rejected=_sorted(rejected), cuts=_sorted(cuts))


def tally_points(schedule: Schedule) -> SpaceCount:
    """Count point by point where there are few, so that the sizes of subtrees are known; else as `tally`."""
    if schedule.fixed_path or prod(declared.size for declared in schedule.order) > MOST_WALKED:
        return tally(schedule)
    legal = 0
    rejected: Counter[str] = Counter()
    try:
        for cfg in walk(schedule, {}, cutting=False):
            if cfg._violations:
                rejected[cfg._violations[0]] += 1
            else:
                legal += 1
    except (SpaceError, TemplateError):
        return tally(schedule)  # behind a failed require, a template may well divide by zero, or split nothing
    return SpaceCount(legal=legal, points=legal + rejected.total(), rejected=_sorted(rejected))


def total(counts: Mapping[str, SpaceCount]) -> SpaceCount:
    """The count of a space of several schedules."""
    rejected: Counter[str] = Counter()
    cuts: Counter[str] = Counter()
    for count in counts.values():
        rejected.update(count.rejected)
        cuts.update(count.cuts)
    points = [count.points for count in counts.values() if count.points is not None]
    legal = sum(count.legal for count in counts.values())
    return SpaceCount(legal=legal, points=sum(points) if len(points) == len(counts) else None, rejected=_sorted(rejected), cuts=_sorted(cuts))


def _sorted(counter: Counter[str]) -> dict[str, int]:
    return dict(sorted(counter.items()))
