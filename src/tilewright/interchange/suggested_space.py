"""A space with first candidates that a person gave."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from tilewright.knobs import Config, Knob, Value, copied
from tilewright.points import Evaluation, SearchSpace, SpaceCount
from tilewright.record import config_key


class SuggestedSpace:
    """A space with first candidates of its own: after the author's default, before the author's others.

    Args:
        space: whose points these are.
        configs: legal configs of it.

    Attributes:
        given: these configs.
    """

    def __init__(self, space: SearchSpace, configs: Sequence[Config]) -> None:
        self._space = space
        self.given: Final[tuple[Config, ...]] = tuple(copied(config) for config in configs)

    @property
    def knobs(self) -> tuple[Knob, ...]:
        """As of the space."""
        return self._space.knobs

    def evaluate(self, choose: Callable[[Knob], Value]) -> Evaluation:
        """As of the space."""
        return self._space.evaluate(choose)

    def validate(self, config: Config) -> dict[str, Value]:
        """As of the space."""
        return self._space.validate(config)

    def enumerate(self) -> Iterator[dict[str, Value]]:
        """As of the space."""
        return self._space.enumerate()

    def count(self) -> SpaceCount:
        """As of the space."""
        return self._space.count()

    def size_bound(self) -> int:
        """As of the space."""
        return self._space.size_bound()

    def sample(self, n: int, rng: random.Random) -> list[dict[str, Value]]:
        """As of the space."""
        return self._space.sample(n, rng)

    def default(self) -> dict[str, Value]:
        """As of the space: what others suggest is measured against the author's default."""
        return self._space.default()

    def suggestions(self) -> list[dict[str, Value]]:
        """The author's default, the configs given, then the author's other candidates."""
        ordered = [self.default(), *self.given, *self._space.suggestions()]
        return [copied(config) for config in {config_key(config): config for config in ordered}.values()]

    def __getitem__(self, index: int) -> dict[str, Value]:
        """As of the space."""
        return self._space[index]


def suggested_configs(space: SearchSpace) -> tuple[Config, ...]:
    """The configs that a person gave for a space, beside the author's; none for a space as it is."""
    return space.given if isinstance(space, SuggestedSpace) else ()
