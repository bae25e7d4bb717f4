"""What races decided, put together over sessions. Nothing here depends on the order of lines."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from types import MappingProxyType
from typing import TypeAlias

from tilewright.identity import Keys
from tilewright.record import Racer, RaceRecord, Status

# A schedule among those of one workload and target: its config's text and its source's hash.
Schedule: TypeAlias = tuple[str, str]

# Verdicts that a schedule is wrong. One of them outweighs any number of passes of the same code: a race shows only sometimes.
WRONG = frozenset({Status.WRONG_RESULT, Status.OUT_OF_BOUNDS})


def schedule_of(racer: Racer, keys: Keys) -> Schedule:
    """What tells a raced schedule apart."""
    return keys.config(racer.config), racer.source


def first_of(racers: Sequence[Racer], winner: int | None) -> Racer | None:
    """The racer that won; None where no schedule ran, or where a place is given at which none stands, which `log lint` tells."""
    return racers[winner] if winner is not None and 0 <= winner < len(racers) else None


def wrong_in(races: Iterable[RaceRecord], keys: Keys) -> frozenset[tuple[str, str, str, str]]:
    """Schedules that were found wrong in a race: workload key, target key, config and source."""
    return frozenset(
        (keys.workload(race.workload), keys.target(race.target), *schedule_of(racer, keys))
        for race in races
        for racer in race.racers
        if not racer.vendor and racer.status in WRONG
    )


def winners(
    races: Iterable[RaceRecord], keys: Keys, stale: Mapping[tuple[str, str, str], Set[Schedule]] = MappingProxyType({})
) -> Mapping[tuple[str, str, str], frozenset[Schedule]]:
    """The schedules that won, by workload key, target key and protocol.

    A winner of one race that lost another to one that it never beat itself is out: the two met, and that decided. Where
    winners beat each other in a circle, all of them stay.

    Args:
        races: in any order.
        keys: of workloads, targets and configs.
        stale: schedules that cannot win, and put no other out, by the same keys.
    """
    beats: dict[tuple[str, str, str], set[tuple[Schedule, Schedule]]] = defaultdict(set)
    won: dict[tuple[str, str, str], set[Schedule]] = defaultdict(set)
    sources: set[str] = set()
    decided: list[tuple[RaceRecord, tuple[str, str, str], Schedule]] = []
    for race in races:
        racer = first_of(race.racers, race.winner)
        if racer is None:
            continue
        key = (keys.workload(race.workload), keys.target(race.target), race.protocol)
        first = schedule_of(racer, keys)
        won[key].add(first)
        sources.add(first[1])
        decided.append((race, key, first))
    for race, key, first in decided:
        # Of those beaten, only winners of other races matter: few, and told mostly by their source.
        others = [schedule_of(other, keys) for other in race.racers if not other.vendor and other.source in sources]
        beats[key] |= {(first, other) for other in others if other != first}
    found: dict[tuple[str, str, str], frozenset[Schedule]] = {}
    for key, all_schedules in won.items():
        schedules = all_schedules - stale.get(key, frozenset())
        pairs = beats[key]
        left = {loser for loser in schedules if not any((winner, loser) in pairs and (loser, winner) not in pairs for winner in schedules)}
        found[key] = frozenset(left or schedules)
    return found


def first_places(races: Iterable[RaceRecord], keys: Keys) -> Mapping[tuple[str, str, str], frozenset[Schedule]]:
    """The schedules that won any race, whatever others say, by workload key, target key and protocol."""
    won: dict[tuple[str, str, str], set[Schedule]] = defaultdict(set)
    for race in races:
        racer = first_of(race.racers, race.winner)
        if racer is not None:
            won[keys.workload(race.workload), keys.target(race.target), race.protocol].add(schedule_of(racer, keys))
    return {key: frozenset(schedules) for key, schedules in won.items()}


def vendor_ratios(races: Iterable[RaceRecord], keys: Keys) -> Mapping[tuple[str, str, str, Schedule], Mapping[str, float]]:
    """Vendors' times over the winner's, by workload key, target key, protocol and winner, then by vendor.

    Both ran in turns, so that the ratio holds what times taken at different moments do not. The geometric mean where the same schedule won several races.
    """
    return _ratios(races, keys, lambda racer, place: racer.vendor)


def default_ratios(
    races: Iterable[RaceRecord], keys: Keys, stale: Mapping[tuple[str, str, str], Set[Schedule]] = MappingProxyType({})
) -> Mapping[tuple[str, str, str, Schedule], float]:
    """The author's default schedule's time over the winner's, as `vendor_ratios` has the vendors'; `stale` ones, as of `winners`, are no defaults."""

    def name(racer: Racer, place: tuple[str, str, str]) -> str:
        return "default" if racer.default and not racer.vendor and schedule_of(racer, keys) not in stale.get(place, ()) else ""

    found = _ratios(races, keys, name)
    return {key: ratios["default"] for key, ratios in found.items() if ratios}


def _ratios(
    races: Iterable[RaceRecord], keys: Keys, name: Callable[[Racer, tuple[str, str, str]], str]
) -> Mapping[tuple[str, str, str, Schedule], Mapping[str, float]]:
    logs: dict[tuple[str, str, str, Schedule], dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for race in races:
        first = first_of(race.racers, race.winner)
        if first is None:
            continue
        place = (keys.workload(race.workload), keys.target(race.target), race.protocol)
        won = logs[*place, schedule_of(first, keys)]
        for racer in race.racers:
            if racer.status is Status.OK and racer.ratio is not None and racer.ratio > 0 and (named := name(racer, place)):
                won[named].append(math.log(racer.ratio))
    return {key: {name: math.exp(math.fsum(found) / len(found)) for name, found in sorted(named.items())} for key, named in logs.items()}
