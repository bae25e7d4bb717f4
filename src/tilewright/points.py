"""What searchers see of a space: points with their verdicts, counts, and the protocol that every space meets."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from tilewright.knobs import Config, Knob, Value


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """One point: its config, and the reasons of the requires it fails (none: it is legal)."""

    config: dict[str, Value]
    violations: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SpaceCount:
    """Sizes of a space.

    Attributes:
        legal: configs that no require refuses.
        points: all of them, legal or not; None where a cut hides how many there are.
        rejected: refused points by the reason of the first require they fail.
        cuts: refused subtrees of unknown size, by reason.
    """

    legal: int
    points: int | None
    rejected: Mapping[str, int] = field(default_factory=dict)
    cuts: Mapping[str, int] = field(default_factory=dict)


class SearchSpace(Protocol):
    """What searchers need of a space, whether a template declares it or a recording covers it."""

    @property
    def knobs(self) -> tuple[Knob, ...]:
        """All knobs met so far, in order of declaration; `schedule` first where there are several."""

    def evaluate(self, choose: Callable[[Knob], Value]) -> Evaluation:
        """One pass to its end: `choose` is called once for each knob reached, in order; failed requires are noted."""

    def validate(self, config: Config) -> dict[str, Value]:
        """The config as the space holds it, or a SpaceError that says why it is not in it."""

    def enumerate(self) -> Iterator[dict[str, Value]]:
        """All legal configs, the last knob varying fastest."""

    def count(self) -> SpaceCount:
        """Exact sizes, by enumeration."""

    def size_bound(self) -> int:
        """At most so many points, without enumerating."""

    def sample(self, n: int, rng: random.Random) -> list[dict[str, Value]]:
        """Legal configs drawn uniformly, with replacement, without enumerating."""

    def default(self) -> dict[str, Value]:
        """The first legal suggestion, else the first legal config."""

    def suggestions(self) -> list[dict[str, Value]]:
        """The author's legal first candidates, the default first."""

    def __getitem__(self, index: int) -> dict[str, Value]:
        """The legal config at a position of the enumeration."""
