"""Searchers that choose one of many listed points at a time: what is known of each point, and how the list turns over where it is a sample."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sized
from typing import TYPE_CHECKING, Final, Protocol

import numpy as np
from numpy.typing import NDArray

from tilewright.knobs import Value
from tilewright.record import Config
from tilewright.search.base import ENUMERABLE, Book, History
from tilewright.search.moves import Descent
from tilewright.search.pool import HELD, MOST, Pool

if TYPE_CHECKING:
    from tilewright.space import SearchSpace

# Uniform draws of which the one nearest the middle is taken, before a model chooses: where tiles are neither tiny nor huge. Knobs alone, scores
# on four shapes of the recorded GEMM, convolution_A100 and pnpoly_RTX_3090: 0.62, 0.80 and 0.83 with 1, 0.72, 0.78 and 0.90 with 2, 0.74, 0.77
# and 0.86 with 4 (16 to 20 seeds, +-0.04, 2026-11).
_TOURNAMENT: Final = 2
# Points up to which a template's space is listed. guess: a pass over it takes some 60 µs.
_LISTED: Final = 4_000
# Looks around the best, and uniform draws, before each choice from a space that is not listed. guess.
_NEAR: Final = 48
_DRAWN: Final = 12
_CENTRES: Final = 8


class Told:
    """What is known of the points of a pool.

    Args:
        pool: the points.

    Attributes:
        known: whether each point was asked or told.
        times: log of µs by point, in the order told.
        failed: points that failed.
        pending: points that were asked and not told yet.
    """

    def __init__(self, pool: Pool) -> None:
        self.pool = pool
        self.known: NDArray[np.bool_] = np.zeros(len(pool), dtype=bool)
        self.times: dict[int, float] = {}
        self.failed: list[int] = []
        self.pending: list[int] = []

    def __len__(self) -> int:
        return len(self.times) + len(self.failed) + len(self.pending)

    def best(self, count: int) -> list[int]:
        """The fastest points."""
        return sorted(self.times, key=self.times.__getitem__)[:count]

    def grow(self) -> None:
        """Take in points that the pool has gained."""
        self.known = np.concatenate([self.known, np.zeros(len(self.pool) - len(self.known), dtype=bool)])

    def keep(self, numbers: NDArray[np.intp]) -> None:
        """Follow a pool that has dropped all points but some, all known ones among them."""
        places = {int(number): place for place, number in enumerate(numbers)}
        self.known = self.known[numbers]
        self.times = {places[number]: time for number, time in self.times.items()}
        self.failed = [places[number] for number in self.failed]
        self.pending = [places[number] for number in self.pending]


class Chooser(Protocol):
    """How one of the unknown points is chosen.

    Attributes:
        startup: points before the first choice.
    """

    startup: int

    def choose(self, unknown: NDArray[np.intp]) -> int:
        """One of some points; one time at least has been told."""
        ...

    def tell(self, number: int) -> None:
        """A point has a time or has failed; what is known says which."""
        ...

    def grow(self) -> None:
        """The pool has gained points."""
        ...

    def keep(self, numbers: NDArray[np.intp]) -> None:
        """The pool has dropped all points but some, which now have the numbers 0, 1, ..."""
        ...


class PooledProposer:
    """The author's candidates, a descent from the best of them, then what a chooser chooses.

    Where nothing runs yet, or the descent has nowhere to go, points are drawn, rather near the middle than far from it.

    Args:
        space: where configs come from.
        seed: of the uniform draws and the pool.
        make: makes the chooser.
        history: results known from before.
    """

    def __init__(self, space: SearchSpace, *, seed: int, make: Callable[[Told], Chooser], history: History = ()) -> None:
        self._book = Book(space, seed=seed)
        self._space = space
        # A recording has its points at hand; a template's are found by a pass each.
        self._told = Told(Pool(space, seed=seed, most=ENUMERABLE if isinstance(space, Sized) else _LISTED))
        self._chooser = make(self._told)
        self._descent = Descent(space, self._book.rng)
        past = Book(space, seed=seed, history=history)
        for key, config in past.configs.items():
            self.tell(config, past.results[key])

    @property
    def rejected(self) -> Mapping[str, int]:
        """Always empty: refused points are cut before they are drawn."""
        return self._book.rejected

    def ask(self) -> dict[str, Value] | None:
        """The next unknown legal config."""
        config = self._book.first()
        if config is None and len(self._told) >= self._chooser.startup and self._told.times:
            config = self._choose()
        if config is None:
            config = self._step() or self._central()
        if config is None:
            return None
        self._book.asked(config)
        number = self._number(config)
        self._told.known[number] = True
        self._told.pending.append(number)
        return dict(config)

    def tell(self, config: Config, time_us: float | None) -> None:
        """Report a result."""
        self._book.told(config, time_us)
        self._descent.told(config, time_us)
        number = self._number(config)
        told = self._told
        told.known[number] = True
        if number in told.pending:
            told.pending.remove(number)
        if time_us is None:
            told.failed.append(number)
        else:
            told.times[number] = math.log(time_us)
        self._chooser.tell(number)

    def _step(self) -> dict[str, Value] | None:
        """An unknown config that differs from the best in one knob."""
        return next((move for move in self._descent.moves() if move is not None and not self._book.knows(move)), None)

    def _central(self) -> dict[str, Value] | None:
        """Of a few uniform draws, the one nearest the middle of the ordered knobs' candidates."""
        pool = self._told.pool
        unknown = np.flatnonzero(~self._told.known)
        if not len(unknown):
            return self._book.unknown()
        drawn = [pool.configs[unknown[self._book.rng.randrange(len(unknown))]] for _ in range(_TOURNAMENT)]
        nearest = min(range(_TOURNAMENT), key=lambda place: pool.encoding.off_centre(drawn[place]))
        return dict(drawn[nearest])

    def _choose(self) -> dict[str, Value] | None:
        told = self._told
        if not told.pool.listed:
            self._turn_over()
        unknown: NDArray[np.intp] = np.flatnonzero(~told.known)
        return dict(told.pool.configs[self._chooser.choose(unknown)]) if len(unknown) else None

    def _turn_over(self) -> None:
        """More points around the best; the oldest unknown ones go where there are many."""
        told = self._told
        told.pool.spread(told.best(_CENTRES), near=_NEAR, drawn=_DRAWN)
        self._grow()
        if len(told.pool) <= MOST:
            return
        kept = np.concatenate([np.flatnonzero(told.known), np.flatnonzero(~told.known)[-HELD:]])
        told.pool.keep(kept)
        told.keep(kept)
        self._chooser.keep(kept)

    def _number(self, config: Config) -> int:
        number = self._told.pool.number(config)
        self._grow()
        return number

    def _grow(self) -> None:
        if len(self._told.known) < len(self._told.pool):
            self._told.grow()
            self._chooser.grow()
