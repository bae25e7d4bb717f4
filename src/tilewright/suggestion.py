"""Some values of a config, as those that the author suggests: completed to a legal config, or why they cannot be."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from tilewright.declare import Cfg, Schedule, suggested
from tilewright.knobs import Value
from tilewright.odometer import walk

# Passes that complete one suggestion before it is given up: about a second at the 30,000 passes/s of benchmarks/knob_section.py.
_COMPLETIONS: Final = 30_000
# Passes in which a single knob gives way, where that many were not enough. guess: its candidates, times those of the knobs that only some of them have.
_ALONE: Final = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class PassedOver:
    """Values that no completion makes legal, as of a suggestion.

    Attributes:
        schedule: whose.
        stated: values by knob, as its author wrote them.
        reasons: why not, with the number of completions that each refuses: mostly the reason of the first `require` that they fail.
        given_up: there are more completions than were tried.
    """

    schedule: str
    stated: Mapping[str, Value]
    reasons: Mapping[str, int]
    given_up: bool = False

    @property
    def text(self) -> str:
        """The suggestion as its author would write it."""
        return suggested(self.stated)


def completed(schedule: Schedule, stated: Mapping[str, Value], first: Mapping[str, Value] | None = None) -> Cfg | PassedOver:
    """The pass of the first legal config that has all the stated values, or why there is none.

    Args:
        schedule: whose configs.
        stated: values by knob.
        first: values that the other knobs try before their others. Where there are too many completions to try them all, those follow in which
            all knobs but one have these values.
    """
    reasons: Counter[str] = Counter()
    foreign = [name for name, value in stated.items() if (declared := schedule.find(name)) is None or declared.knob.find(value) is None]
    if foreign:
        reasons.update(f"{name}={stated[name]!r} is no candidate here" for name in foreign)
        return PassedOver(schedule=schedule.name, stated=stated, reasons=dict(reasons))
    for cfg in itertools.islice(walk(schedule, stated, first=first), _COMPLETIONS):
        missing = [name for name in stated if name not in cfg._config]
        if not cfg._violations and not missing:
            return cfg
        reasons[cfg._violations[0] if cfg._violations else f"knob {missing[0]!r} is not declared at this point"] += 1
    given_up = reasons.total() == _COMPLETIONS
    found = _one_changed(schedule, stated, first) if given_up and first else None
    return found or PassedOver(schedule=schedule.name, stated=stated, reasons=dict(reasons.most_common()), given_up=given_up)


def _one_changed(schedule: Schedule, stated: Mapping[str, Value], first: Mapping[str, Value]) -> Cfg | None:
    """The first legal pass in which one knob alone, the last that can, has another value than the first."""
    for free in reversed([name for name in first if name not in stated]):
        fixed = {**{name: value for name, value in first.items() if name != free}, **stated}
        for cfg in itertools.islice(walk(schedule, fixed), _ALONE):
            if not cfg._violations and stated.keys() <= cfg._config.keys():
                return cfg
    return None
