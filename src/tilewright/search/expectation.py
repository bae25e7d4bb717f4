"""What other workloads' results let expect of the points of a pool; asked anew where more is known of a point than before."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from tilewright.record import Resources
from tilewright.search.encoding import Matrix
from tilewright.search.foresight import FIRST, Foresight, amounts
from tilewright.search.past import Past
from tilewright.search.pool import Pool

# Trust over which results of other workloads lead; under which sources that could not be tried on one another are left out. guess.
_LEADING: Final = 0.3
_LEAST_TRUST: Final = 0.2
# Measurements in which such results lead only every second turn: where they were tried on one another, and where they could not be.
# Decision 0018 has figures for the first; the second is a guess.
_TRIED: Final = 8
_HEDGED: Final = 32
# By how much, in doublings and powers of e, what is known of a point must have changed for the past to be asked again. guess.
_CHANGE: Final = 0.1


class Expectation:
    """What the past says of each point, by its knobs, what its build needs or is foreseen to need, and its estimate.

    Args:
        pool: the points.
        foresight: of what builds need.
        past: other workloads' results, where there are any.

    Attributes:
        mean: of log(time / estimate), up to a constant; zero without a past.
    """

    def __init__(self, pool: Pool, foresight: Foresight, past: Past | None) -> None:
        self._pool = pool
        self._foresight = foresight
        self._past: Past | None = None
        self.mean: Matrix = np.zeros(0)
        self._needs: Matrix = np.zeros((0, 3))  # log2 of what builds need: seen, foreseen, or NaN
        self._seen: NDArray[np.bool_] = np.zeros(0, dtype=bool)
        self._asked: Matrix = np.zeros((0, 4))  # needs and estimates by which it was asked; NaN where it was not
        if past is not None:
            self.consider(past)

    def __bool__(self) -> bool:
        """Whether there is anything that is believed."""
        return self._past is not None

    def consider(self, past: Past) -> None:
        """Take what other workloads' results say now instead of what they said before."""
        if len(past) and (past.tried or past.trust > _LEAST_TRUST):
            self._past = past
            self._asked[:] = np.nan

    @property
    def trust(self) -> float:
        """Share of what is said that is believed."""
        return self._past.trust if self._past is not None else 0.0

    @property
    def slope(self) -> float:
        """By how much of the estimate's differences times differ elsewhere; one where other workloads' results may not lead."""
        return self._past.slope if self._past is not None and self.led else 1.0

    @property
    def corrected(self) -> float:
        """What share of the general estimate's correction held elsewhere; none where nothing is known of it."""
        return self._past.corrected if self._past is not None else 0.0

    @property
    def lengths(self) -> Matrix | None:
        """Logarithms of the length scales of the encoding's groups elsewhere; None where other workloads' results may not lead."""
        return self._past.lengths if self._past is not None and self.led else None

    @property
    def spread(self) -> float | None:
        """Standard deviation of what was left unexplained where sources were tried on one another; None where they were not."""
        return self._past.spread if self._past is not None else None

    @property
    def led(self) -> bool:
        """Whether other workloads' results may lead: they were tried on one another, and held."""
        return self._past is not None and self._past.tried and self._past.trust > _LEADING

    @property
    def hedged(self) -> bool:
        """Whether other workloads' results take part, but were not tried on one another."""
        return self._past is not None and not self._past.tried

    def aside(self, turn: int, count: int) -> bool:
        """Whether other workloads' results take no part in a turn, for the first measurements: nobody knows yet what they are worth here.

        They would choose only points that they like, of which nobody learns whether they tell good points from bad ones.
        """
        return self._past is not None and turn % 2 == 1 and count < (_TRIED if self._past.tried else _HEDGED)

    def grow(self, count: int) -> None:
        """Take in points that the pool has gained."""
        self.mean = np.concatenate([self.mean, np.zeros(count)])
        self._seen = np.concatenate([self._seen, np.zeros(count, dtype=bool)])
        self._needs = np.vstack([self._needs, np.full((count, 3), np.nan)])
        self._asked = np.vstack([self._asked, np.full((count, 4), np.nan)])

    def keep(self, numbers: NDArray[np.intp]) -> None:
        """Drop all points but some, which then have the numbers 0, 1, ..."""
        self.mean, self._needs, self._seen, self._asked = self.mean[numbers], self._needs[numbers], self._seen[numbers], self._asked[numbers]

    def build(self, number: int, resources: Resources) -> None:
        """Take in what a build needs."""
        self._needs[number], self._seen[number] = amounts(resources), True

    def relearn(self) -> None:
        """What is foreseen has changed."""
        self._needs[~self._seen] = np.nan

    def ask(self, estimates: Matrix) -> None:
        """Ask for points of which other things are known than when the past was last asked.

        Args:
            estimates: log of the estimates over the least one, `[points]`.
        """
        if self._past is None:
            return
        unknown = np.flatnonzero(np.isnan(self._needs[:, 0]))
        if len(unknown) and len(self._foresight) >= FIRST:
            self._needs[unknown] = self._foresight.amounts(unknown)
        now = np.column_stack([self._needs, estimates])
        changed = np.flatnonzero(~(np.abs(np.nan_to_num(now) - self._asked) <= _CHANGE).all(axis=1))
        if len(changed):
            self._asked[changed] = np.nan_to_num(now[changed])
            self.mean[changed] = self._past.expect(self._pool.rows[changed], now[changed, :3], now[changed, 3])
