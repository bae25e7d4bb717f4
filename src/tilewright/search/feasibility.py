"""Where points fail: the share of failures among the points like one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from tilewright.search.encoding import Matrix
from tilewright.search.pool import Pool

# What one differing knob leaves of the likeness of two points' fates, and how much likeness to no failure at all each point starts
# with. guess. A regression on the knobs' logarithms builds a quarter fewer points that fail, and shuns the best, which lie beside them:
# recorded GEMM with the operator's estimate, 86% of the optimum after 8 instead of 99.8% (2026-11).
_LIKENESS: Final = 0.25
_TRUST: Final = 1.0


class Feasibility:
    """Counts of what became of points, weighted by likeness, at all points of a pool.

    Args:
        pool: the points.
    """

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._shares: Matrix = _LIKENESS ** np.arange(pool.rows.shape[1] + 1)
        self._alike: Matrix = np.zeros(0)
        self._failed: Matrix = np.zeros(0)

    def likeness(self, number: int) -> Matrix:
        """How much each point is like one: 1 for itself."""
        alike: Matrix = self._shares[np.count_nonzero(self._pool.rows != self._pool.rows[number], axis=1)]
        return alike

    def tell(self, number: int, *, failed: bool) -> None:
        """Take in what became of a point."""
        likeness = self.likeness(number)
        self._alike = self._alike + likeness
        if failed:
            self._failed = self._failed + likeness

    def grow(self, ran: Sequence[int], failed: Sequence[int]) -> None:
        """Take in points that the pool has gained, with what became of earlier ones."""
        first = len(self._alike)
        lost = self._sum(failed, first)
        self._alike = np.concatenate([self._alike, self._sum(ran, first) + lost])
        self._failed = np.concatenate([self._failed, lost])

    def keep(self, numbers: NDArray[np.intp]) -> None:
        """Drop all points but some, which then have the numbers 0, 1, ..."""
        self._alike, self._failed = self._alike[numbers], self._failed[numbers]

    def chance(self) -> Matrix:
        """Probability that each point runs."""
        return 1 - self._failed / (self._alike + _TRUST)

    def _sum(self, told: Sequence[int], first: int) -> Matrix:
        differing = np.count_nonzero(self._pool.rows[list(told)][:, None] != self._pool.rows[None, first:], axis=2)
        alike: Matrix = self._shares[differing].sum(axis=0)
        return alike
