"""The list of a space's legal points, made little by little while sampling finds few of them."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Final

from tilewright.knobs import Value, copied

# Passes that a batch may waste before the listing begins, a pass for each further one wasted: where legal points are rare, cuts make the
# list short. guess: 30 ms; a space with 1 legal point in 10 wastes so many for some 100 samples, which it does not notice.
PATIENCE: Final = 1_000


class Census:
    """A listing that goes on by one pass at a time.

    Args:
        passes: the space's passes in order of enumeration: legal configs, and None for each cut.

    Attributes:
        complete: whether all are listed.
    """

    def __init__(self, passes: Iterator[dict[str, Value] | None]) -> None:
        self.complete = False
        self._passes = passes
        self._legal: list[dict[str, Value]] = []

    def go_on(self) -> bool:
        """One pass more; whether the list is complete."""
        try:
            config = next(self._passes)
        except StopIteration:
            self.complete = True
            return True
        if config is not None:
            self._legal.append(config)
        return False

    def __len__(self) -> int:
        return len(self._legal)

    def draw(self, n: int, rng: random.Random) -> list[dict[str, Value]]:
        """Listed configs drawn uniformly, with replacement."""
        return [copied(self._legal[rng.randrange(len(self._legal))]) for _ in range(n)]
