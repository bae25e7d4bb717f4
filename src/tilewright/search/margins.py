"""Expected improvement of a Gaussian process, by margins that take turns: what a search by knobs alone does best."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

from tilewright.search.base import History
from tilewright.search.chances import Chances
from tilewright.search.encoding import Matrix
from tilewright.search.gaussian import Gaussian, Prior
from tilewright.search.improvement import improvement
from tilewright.search.pooled import PooledProposer, Told

if TYPE_CHECKING:
    from tilewright.space import SearchSpace

# Steps of a descent at the start, for each knob that has a choice, and how many at least and at most; decisions 0013 and 0025 have the figures that
# these constants were chosen by. On convolution_A100 (7 knobs) 12 to 16 steps are alike, on pnpoly_RTX_3090 (4) each one beyond 10 is lost.
_STEPS: Final = 2.5
_LEAST_STEPS: Final = 6
_MOST_STEPS: Final = 14
# By how much a point is to be better than the best, in standard deviations of log time, in turn: the first refines what is
# known, the second looks elsewhere. Without the second, searches stay where they first found a plateau.
_MARGINS: Final = (0.0, 0.2)
# Logarithm of the length over which single powers of two depart from their trend, with its standard deviation: of such candidates each is
# mostly much like its neighbours, while multiples of 16, or unroll counts, are jagged.
_REGULAR: Final = (1.2, 1.0)
# What is left of differences between slower points than the median: their details say little of the fast ones.
_SLOW_SHARE: Final = 0.25
# Standard deviation of log time as thought before it is seen, and its weight in observations.
_SPREAD: Final = 1.0
_SPREAD_WEIGHT: Final = 4
# Growth of the observations after which the hyperparameters are fitted again, and observations after which they stay. guess.
_FIT_GROWTH: Final = 1.4
_LAST_FIT: Final = 400
# Chance to run under which a point is left for the last. Times are never seen where points fail, so that a large margin would
# choose just there once all else is known: in a made-up space, 10 of 24 proposals at 20% of legal points.
_HOPELESS: Final = 0.15
_LAST: Final = 1e-9
# What one differing knob leaves of the likeness of two points of a batch. guess.
_LIKENESS: Final = 0.25


class MarginChooser:
    """Chooses by expected improvement, times the chance to run.

    Args:
        told: what is known of the points.

    Attributes:
        startup: points before the first choice.
    """

    def __init__(self, told: Told) -> None:
        self._told = told
        choices = sum(len(knob.values) > 1 for knob in told.pool.encoding.knobs)
        self.startup = min(max(int(_STEPS * choices), _LEAST_STEPS), _MOST_STEPS)
        self._gaussian = Gaussian(told.pool.encoding.groups, Prior(regular=_REGULAR))
        self._chances = Chances(told.pool)
        self._shares: Matrix = _LIKENESS ** np.arange(told.pool.rows.shape[1] + 1)
        self._held = 0  # points that the process holds; 0 before the first choice
        self._fit_at = self.startup
        self._turn = 0

    def tell(self, number: int) -> None:
        """Take in a result."""
        ran = number in self._told.times
        self._chances.tell(number, failed=not ran)
        if ran and self._held and number not in self._gaussian.observed:
            self._gaussian.observe(number)

    def grow(self) -> None:
        """Take in points that the pool has gained."""
        self._chances.grow()
        if self._held:
            self._gaussian.extend(self._told.pool.vectors[self._held :])
            self._held = len(self._told.pool)

    def keep(self, numbers: NDArray[np.intp]) -> None:
        """Follow the pool."""
        self._chances.keep(numbers)
        if self._held:
            self._gaussian.keep(numbers)
            self._held = len(numbers)

    def choose(self, unknown: NDArray[np.intp]) -> int:
        """The point of the largest expected improvement by this turn's margin."""
        told, pool = self._told, self._told.pool
        if not self._held:
            self._gaussian.condition(pool.vectors, list(told.times))
            self._held = len(pool)
        scaled = self._scaled()
        if self._fit_at <= len(scaled) <= _LAST_FIT:
            self._gaussian.fit(pool.vectors[self._gaussian.observed], scaled)
            self._fit_at = max(int(len(scaled) * _FIT_GROWTH), len(scaled) + 1)
            self._gaussian.condition(pool.vectors, self._gaussian.observed)
        mean, deviation = self._gaussian.posterior(scaled)
        margin = _MARGINS[self._turn % len(_MARGINS)]
        self._turn += 1
        gain = improvement(mean[unknown], deviation[unknown], float(scaled.min()) - margin)
        chance = self._chances.running()[unknown]
        gain = gain * np.where(chance < _HOPELESS, _LAST * chance, chance)
        for point in told.pending:
            differing = np.count_nonzero(pool.rows[unknown] != pool.rows[point], axis=1)
            gain = gain * (1 - self._shares[differing])
        return int(unknown[int(np.argmax(gain))])

    def _scaled(self) -> Matrix:
        """Log times in order of observation, those of slow points drawn together, less their mean, in standard deviations."""
        logs = np.array([self._told.times[number] for number in self._gaussian.observed])
        middle = float(np.median(logs))
        logs = np.where(logs > middle, middle + _SLOW_SHARE * (logs - middle), logs)
        centred = logs - logs.mean()
        spread = math.sqrt((_SPREAD_WEIGHT * _SPREAD**2 + float(centred @ centred)) / (_SPREAD_WEIGHT + len(logs)))
        scaled: Matrix = centred / spread
        return scaled


def margin_search(space: SearchSpace, *, seed: int, history: History = ()) -> PooledProposer:
    """A search by knobs alone."""
    return PooledProposer(space, seed=seed, make=MarginChooser, history=history)
