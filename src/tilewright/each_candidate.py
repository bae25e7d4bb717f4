"""Which configs to compile so that a fault of a template shows: a few in which every candidate of every knob occurs, or a sample without repeats."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable
from typing import Final

from tilewright.knobs import SCHEDULE, Config, Value, typed_key
from tilewright.points import SearchSpace
from tilewright.record import config_key
from tilewright.space import Space

# Spaces of at most so many points are listed; of larger ones so many configs are drawn. guess: a second or two, in which a
# candidate of 1 legal point in 220 is met with 99%.
_LISTED: Final = 20_000
_DRAWN: Final = 1_000
# Draws in a row that are all known before the rest is looked up in the list of the space. guess: where a tenth is not known, 1 in 29 rows.
_KNOWN: Final = 32


def each_candidate(space: SearchSpace, seed: int = 0) -> list[dict[str, Value]]:
    """Legal configs that together have every candidate that a legal config of the sample has, the author's candidates before others.

    Each schedule's knobs count by themselves: a branch of one template is not that of another.

    Args:
        space: to choose from.
        seed: of the draws, where the space is too large to list.

    Raises:
        SpaceError: nothing is legal.
    """
    pool = list(space.enumerate()) if space.size_bound() <= _LISTED else space.sample(_DRAWN, random.Random(seed))
    first = space.suggestions() or [space.default()]
    chosen: list[dict[str, Value]] = []
    distinct = {config_key(config): config for config in (*first, *pool)}
    pairs = [(config, _pairs(config)) for config in distinct.values()]
    missing = {pair for _, had in pairs for pair in had}
    while missing:
        # Earlier ones win ties, so the author's candidates do.
        best, had = max(pairs, key=lambda item: len(missing & item[1]))
        chosen.append(best)
        missing -= had
    return chosen


def distinct_sample(space: SearchSpace, n: int, rng: random.Random) -> list[dict[str, Value]]:
    """Legal configs drawn uniformly, none twice: `n` of them, or all where the space has fewer.

    Raises:
        SpaceError: nothing is legal, or legal points are too rare to be met.
    """
    found: dict[str, dict[str, Value]] = {}
    while len(found) < n:
        before = len(found)
        for config in space.sample(max(n - before, _KNOWN), rng):
            found.setdefault(config_key(config), config)
        if len(found) == before:  # few are left, or none
            rest = [config for config in space.enumerate() if config_key(config) not in found]
            found |= {config_key(config): config for config in rng.sample(rest, min(len(rest), n - before))}
            break
    return list(found.values())[:n]


def _pairs(config: Config) -> frozenset[tuple[object, ...]]:
    schedule = config.get(SCHEDULE)
    return frozenset((schedule, name, typed_key(value)) for name, value in config.items())


def absent(space: Space, configs: Iterable[Config]) -> list[str]:
    """Candidates that none of the configs has: a `require` refuses them, or legal points with them are rare.

    Returns:
        `knob=value`, or `schedule.knob=value` where several schedules have a knob of that name; `schedule=name` for all of one that no config is of.
    """
    schedules = space.schedules
    had = {pair for config in configs for pair in _pairs({SCHEDULE: next(iter(schedules)), **config})}
    owners = Counter(knob.name for knobs in schedules.values() for knob in knobs)
    found = []
    for schedule, knobs in schedules.items():
        if len(schedules) > 1 and (schedule, SCHEDULE, typed_key(schedule)) not in had:
            found.append(f"{SCHEDULE}={schedule}")
            continue
        lacking = [(knob.name, value) for knob in knobs for value in knob.values if (schedule, knob.name, typed_key(value)) not in had]
        found += [f"{f'{schedule}.' if owners[name] > 1 else ''}{name}={_text(value)}" for name, value in lacking]
    return found


def _text(value: Value) -> str:
    return "x".join(map(str, value)) if isinstance(value, list) else str(value)
