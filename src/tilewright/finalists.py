"""Who races, and who wins: decided on ratios that are paired by round. Pure.

The noise is what was measured, never a fixed number of microseconds: two schedules are tied where the 95% interval of their
paired ratio holds 1.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from tilewright.best import needs_of, rank
from tilewright.job import RaceEntrant, RaceOutcome
from tilewright.record import Racer, Record, Status, config_key
from tilewright.sampling import median_interval, recorded_us

LEAST: Final = 8  # the best eight race whatever their distance
MOST: Final = 16  # guess: 16 racers of 300 µs take 5 ms a round
# What two times of one schedule in one session differ by beyond their own spread, as ratios to an anchor: a coefficient of variation of
# 0.6-1.9% (H200, 2026-11), so that twice 2% separates nine in ten.
SESSION_NOISE: Final = 0.02


def finalists(records: Iterable[Record], protocol: str) -> list[Record]:
    """The schedules to race, the best ranked first: those within the noise of the best and at least the best eight, and the default.

    Args:
        records: of one workload on one device.
        protocol: records by another one do not compare, and stay out.
    """
    wrong: set[tuple[str, str]] = set()
    timed: dict[str, Record] = {}
    for record in records:
        if record.status in (Status.WRONG_RESULT, Status.OUT_OF_BOUNDS):
            wrong.add((config_key(record.config), record.source))
        if record.status is Status.OK and record.measurement is not None and record.measurement.protocol == protocol:
            # Equal code is one racer, that of the record ranked best; a default among them keeps its name.
            known = timed.get(record.source)
            if known is None or (record.default, rank(known)) > (known.default, rank(record)):
                timed[record.source] = record
    right = sorted((record for record in timed.values() if (config_key(record.config), record.source) not in wrong), key=rank)
    if not right:
        return []
    limit = _interval(right[0])[1] * (1 + SESSION_NOISE)
    near = sum(_interval(record)[0] * (1 - SESSION_NOISE) <= limit for record in right)
    chosen = right[: min(MOST, max(LEAST, near))]
    return chosen + [record for record in right[len(chosen) :] if record.default]


def _interval(record: Record) -> tuple[float, float]:
    """The 95% interval of a record's median, on the scale that it is ranked by."""
    found = record.measurement
    assert found is not None
    scale = found.ranked_us / found.median_us
    low, high = median_interval(found.times_us) if found.times_us else (found.min_us, found.max_us)
    return low * scale, high * scale


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """How a race ended.

    Attributes:
        racers: schedules in the order that they were ranked in, then vendors by name.
        winner: place among them; None where no schedule ran.
        reason: why that one.
    """

    racers: list[Racer]
    winner: int | None
    reason: str


def decide(entrants: Sequence[Record], outcome: RaceOutcome) -> Decision:
    """The winner of a race: the fastest schedule, or of those tied with it the one that needs least.

    Args:
        entrants: the records that raced, in the order of the outcome's schedules.
        outcome: their times by round.
    """
    times = {place: entrant.times_us for place, entrant in enumerate(outcome.schedules) if entrant.status is Status.OK and entrant.times_us}
    if not times:
        return Decision(racers=_racers(entrants, outcome, None, frozenset()), winner=None, reason=outcome.message or "no schedule ran to the end of the race")
    fastest = min(times, key=lambda place: (statistics.median(times[place]), rank(entrants[place])))
    tied = {place for place in times if place == fastest or ratio_interval(times[place], times[fastest])[1] <= 1.0}
    winner = min(tied, key=lambda place: (needs_of(entrants[place]), statistics.median(times[place]), rank(entrants[place])))
    racers = _racers(entrants, outcome, winner, frozenset(tied))
    if len(tied) == 1:
        second = min((racer for place, racer in enumerate(racers) if place != winner and not racer.vendor and racer.ratio), key=_ratio, default=None)
        reason = "the only schedule that ran" if second is None else f"the fastest: the next takes {_spoken(second)}"
    else:
        others = f"{len(tied) - 1} other{'s' if len(tied) > 2 else ''}"
        less = any(needs_of(entrants[winner]) < needs_of(entrants[place]) for place in tied)
        why = "of them it needs the least scratch, spills and shared memory" if less else "they need as much, and its median is the least"
        reason = f"tied with {others} within the measured noise; {why}"
    return Decision(racers=racers, winner=winner, reason=reason)


def ratio_interval(times_us: Sequence[float], base_us: Sequence[float]) -> tuple[float, float, float]:
    """The median of the ratios paired by round, and the ends of its distribution-free 95% interval.

    Returns:
        The median, the low end, the high end.
    """
    ratios = [time / base for time, base in zip(times_us, base_us, strict=True)]
    low, high = median_interval(ratios)
    return statistics.median(ratios), low, high


def _racers(entrants: Sequence[Record], outcome: RaceOutcome, winner: int | None, tied: frozenset[int]) -> list[Racer]:
    base = outcome.schedules[winner].times_us if winner is not None else ()

    def told(racer: Racer, entrant: RaceEntrant) -> Racer:
        if entrant.status is not Status.OK:
            return msgspec.structs.replace(racer, status=entrant.status, message=entrant.message)
        if not entrant.times_us:
            return msgspec.structs.replace(racer, status=Status.CRASH, message=outcome.message or "the race did not end")
        racer = msgspec.structs.replace(racer, median_us=recorded_us(statistics.median(entrant.times_us)))
        if not base:
            return racer
        median, low, high = ratio_interval(entrant.times_us, base)
        return msgspec.structs.replace(racer, ratio=round(median, 5), low=round(low, 5), high=round(high, 5))

    racers = []
    for place, (record, entrant) in enumerate(zip(entrants, outcome.schedules, strict=True)):
        racers.append(told(Racer(config=dict(record.config), source=record.source, default=record.default, tied=place in tied), entrant))
    racers += [told(Racer(vendor=name), entrant) for name, entrant in sorted(outcome.vendors.items())]
    return racers


def _ratio(racer: Racer) -> float:
    return racer.ratio or 0.0


def _spoken(racer: Racer) -> str:
    return f"{racer.ratio:.4f} times as long ({racer.low:.4f} to {racer.high:.4f})"
