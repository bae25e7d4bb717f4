"""The points that a model chooses from: all legal ones where they can be listed, else a changing sample of them."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

from tilewright.errors import SpaceError
from tilewright.knobs import Value
from tilewright.record import Config, config_key
from tilewright.search.base import ENUMERABLE
from tilewright.search.encoding import Encoding, Matrix
from tilewright.search.moves import neighbour_of

if TYPE_CHECKING:
    from tilewright.space import SearchSpace

# Points held of a space that is too large to list: drawn uniformly, and one or two knobs away from the best ones.
# guess: a define-by-run pass takes some 30 µs, and a renewal must stay under 100 ms.
_DRAWN: Final = 600
_NEAR: Final = 900


class Pool:
    """Points of a space by number, encoded.

    Args:
        space: where they come from.
        seed: of the draws.

    Attributes:
        listed: whether it holds every legal point.
        configs: the points; a number once given stays valid until `renew` says otherwise.
        rows: their index rows, `[points, knobs]`.
        vectors: their encoding, `[points, width]`.
    """

    def __init__(self, space: SearchSpace, *, seed: int) -> None:
        self._space = space
        self._rng = random.Random(seed)
        self.listed = space.size_bound() <= ENUMERABLE
        self.encoding = Encoding(space.knobs)
        self.configs: list[dict[str, Value]] = []
        self._numbers: dict[str, int] = {}
        self.rows: NDArray[np.intp] = np.zeros((0, len(self.encoding.knobs)), dtype=np.intp)
        self.vectors: Matrix = np.zeros((0, self.encoding.width))
        self._add(space.enumerate() if self.listed else self._draw(_DRAWN))

    def __len__(self) -> int:
        return len(self.configs)

    def find(self, config: Config) -> int | None:
        """A point's number, None where the pool does not hold it."""
        return self._numbers.get(config_key(config))

    def number(self, config: Config) -> int:
        """A point's number; one that is new is added."""
        found = self.find(config)
        if found is None:
            self._add([dict(config)])
            found = len(self.configs) - 1
        return found

    def renew(self, keep: Sequence[int], best: Sequence[int]) -> None:
        """Replace all points but some, which then have the numbers 0, 1, ... in the order given.

        Args:
            keep: points that stay.
            best: points around which new ones are looked for.
        """
        near = [self.configs[number] for number in best]
        kept = [self.configs[number] for number in keep]
        self.configs, self._numbers = [], {}
        self.rows, self.vectors = self.rows[:0], self.vectors[:0]
        drawn = self._draw(_DRAWN)
        drawn += [neighbour for _ in range(_NEAR) if near and (neighbour := neighbour_of(self._space, self._rng.choice(near), self._rng)) is not None]
        self._add([*kept, *drawn])

    def _draw(self, count: int) -> list[dict[str, Value]]:
        try:
            return self._space.sample(count, self._rng)
        except SpaceError:  # legal points too rare to draw
            return []

    def _add(self, configs: Iterable[Config]) -> None:
        fresh: list[dict[str, Value]] = []
        for config in configs:
            key = config_key(config)
            if key not in self._numbers:
                self._numbers[key] = len(self.configs) + len(fresh)
                fresh.append(dict(config))
        self.configs += fresh
        rows = self.encoding.rows(fresh)
        self.rows = np.concatenate([self.rows, rows])
        self.vectors = np.concatenate([self.vectors, self.encoding.vectors(rows)])
