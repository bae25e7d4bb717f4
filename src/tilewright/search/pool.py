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

# Points first drawn of a space that is not listed. guess: a uniform draw takes up to half a millisecond where few points are legal.
_DRAWN: Final = 200
# A pool that is not listed is cut back to so many points when it has come to so many. guess: the model's cost grows with them.
HELD: Final = 2_000
MOST: Final = 3_000


class Pool:
    """Points of a space by number, encoded.

    Args:
        space: where they come from.
        seed: of the draws.
        most: list all legal points where they are at most so many by the space's bound.

    Attributes:
        listed: whether it holds every legal point.
        configs: the points; a number once given stays valid until `keep` says otherwise.
        rows: their index rows, `[points, knobs]`.
        vectors: their encoding, `[points, width]`.
    """

    def __init__(self, space: SearchSpace, *, seed: int, most: int = ENUMERABLE) -> None:
        self._space = space
        self._rng = random.Random(seed)
        self.listed = space.size_bound() <= most
        self.encoding = Encoding(space.knobs)
        self.configs: list[dict[str, Value]] = []
        self._keys: list[str] = []
        self._numbers: dict[str, int] = {}
        self.rows: NDArray[np.intp] = np.zeros((0, len(self.encoding.knobs)), dtype=np.intp)
        self.vectors: Matrix = np.zeros((0, self.encoding.width))
        self._add(space.enumerate() if self.listed else [*space.suggestions(), *self._draw(_DRAWN)])

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

    def spread(self, centres: Sequence[int], *, near: int, drawn: int = 0) -> None:
        """Add points, unless all are listed.

        Args:
            centres: points around which new ones are looked for, a knob or two away.
            near: how often.
            drawn: uniform draws besides.
        """
        if self.listed:
            return
        fresh = self._draw(drawn) if drawn else []
        for turn in range(near if centres else 0):
            neighbour = neighbour_of(self._space, self.configs[centres[turn % len(centres)]], self._rng)
            if neighbour is not None:
                fresh.append(neighbour)
        self._add(fresh)

    def keep(self, numbers: NDArray[np.intp]) -> None:
        """Drop all points but some, which then have the numbers 0, 1, ... in the order given."""
        self.configs = [self.configs[number] for number in numbers]
        self._keys = [self._keys[number] for number in numbers]
        self._numbers = {key: number for number, key in enumerate(self._keys)}
        self.rows, self.vectors = self.rows[numbers], self.vectors[numbers]

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
                self._numbers[key] = len(self._keys)
                self._keys.append(key)
                fresh.append(dict(config))
        self.configs += fresh
        rows = self.encoding.rows(fresh)
        self.rows = np.concatenate([self.rows, rows])
        self.vectors = np.concatenate([self.vectors, self.encoding.vectors(rows)])
