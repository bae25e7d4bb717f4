"""A surrogate of a kernel's time over a pool of points: an estimate to start from, a learned residual, and feasibility."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final

import numpy as np
from numpy.typing import NDArray

from tilewright.record import Config, Resources
from tilewright.search.encoding import Matrix
from tilewright.search.gaussian import Gaussian, Prior
from tilewright.search.pool import Pool

# A candidate's time in µs as physics has it, before the build (None) and with what the build says; None where it cannot run,
# and NaN where that cannot be said before the build.
Estimate = Callable[[Config, Resources | None], float | None]

# Standard deviation of log(measured / estimated), and of log(measured) where there is no estimate: what is thought of the
# spread before it is seen, with the weight of so many observations.
# benchmarks/search_efficiency.py, recorded GEMM, 2026-11: 0.13 to 0.20 on its 8 shapes.
_SPREAD_ESTIMATED: Final = 0.2
_SPREAD_BLIND: Final = 1.0
_SPREAD_WEIGHT: Final = 4

# How far from one the slope of log(measured) by log(estimated) is thought to be. guess: an estimate may be half blind, or mislead.
_SLOPE_DEVIATION: Final = 0.3

# Observations at which the hyperparameters are first fitted, and the growth after which they are fitted again.
_FIRST_FIT: Final = 8
_FIT_GROWTH: Final = 1.4

# What one differing knob leaves of the likeness of two points' fates, and how much likeness to no failure at all each point
# starts with. guess.
_LIKENESS: Final = 0.25
_TRUST: Final = 1.0


class TimeModel:
    """What is known and thought of the points of a pool.

    Args:
        pool: the points.
        estimate: an analytic estimate, where there is one.
    """

    def __init__(self, pool: Pool, estimate: Estimate | None = None) -> None:
        self.pool = pool
        self._estimate = estimate
        spread = _SPREAD_BLIND if estimate is None else _SPREAD_ESTIMATED
        self._spread = spread
        self._gaussian = Gaussian(pool.encoding.groups, Prior())
        self._builds = Gaussian(pool.encoding.groups, Prior())
        self._refit_at = self._refit_builds_at = _FIRST_FIT
        self.restart()

    def restart(self) -> None:
        """Forget all points, whose numbers have changed, but not what was learnt of the function's nature."""
        self._stale = True
        self.times: dict[int, float] = {}  # log of µs
        self.failed: list[int] = []
        self.pending: list[int] = []
        self.known: NDArray[np.bool_] = np.zeros(0, dtype=bool)
        self._alike: Matrix = np.zeros(0)
        self._failed: Matrix = np.zeros(0)
        self._physics: Matrix = np.zeros(0)
        self._foreseen: tuple[int, Matrix, Matrix] | None = None
        self.grow()

    def grow(self) -> None:
        """Take in points that the pool has gained."""
        held, count = len(self.known), len(self.pool)
        if held == count:
            return
        self.known = np.concatenate([self.known, np.zeros(count - held, dtype=bool)])
        self._alike = np.concatenate([self._alike, np.zeros(count - held)])
        self._failed = np.concatenate([self._failed, np.zeros(count - held)])
        fresh = [self._log_estimate(self.pool.configs[number], None) for number in range(held, count)]
        self._physics = np.concatenate([self._physics, np.array(fresh, dtype=float)])
        self._stale = True

    def _log_estimate(self, config: Config, resources: Resources | None) -> float:
        if self._estimate is None:
            return 0.0
        time_us = self._estimate(config, resources)
        return math.inf if time_us is None else math.log(time_us)

    def build(self, number: int, resources: Resources | None) -> None:
        """Take in what a build says of a point; None where it failed."""
        if resources is None:
            self.tell(number, None)
        else:
            self._physics[number] = self._log_estimate(self.pool.configs[number], resources)

    def tell(self, number: int, time_us: float | None) -> None:
        """Take in a point's time, or that it failed."""
        self.known[number] = True
        likeness = self._likeness(number)
        self._alike = self._alike + likeness
        if number in self.pending:
            self.pending.remove(number)
        if time_us is None:
            self._failed = self._failed + likeness
            self.failed.append(number)
            return
        self.times[number] = math.log(time_us)
        if not self._stale and number not in self._gaussian.observed:
            self._gaussian.observe(number)

    def expect(self, number: int) -> None:
        """Take a point as on its way: until it is told, points like it gain less, so that a batch is diverse."""
        self.known[number] = True
        self.pending.append(number)

    def _likeness(self, number: int) -> Matrix:
        alike: Matrix = _LIKENESS ** (self.pool.rows != self.pool.rows[number]).sum(axis=1)
        return alike

    def feasible(self) -> Matrix:
        """Probability that each point runs."""
        return 1 - self._failed / (self._alike + _TRUST)

    def best(self) -> float:
        """Log of the shortest time."""
        return min(self.times.values())

    def informed(self) -> bool:
        """Whether there is anything to go by: an estimate that speaks, or a time."""
        return bool(self.times) or (self._estimate is not None and bool(np.isfinite(self._physics).any()))

    def predict(self) -> tuple[Matrix, Matrix]:
        """Mean and standard deviation of log time at all points."""
        base, doubt = self._base()
        if not self.times:
            return base, np.hypot(doubt, self._spread)
        observed = list(self.times)
        told = np.array([self.times[number] for number in observed])
        base = base * self._slope(base[observed], told)
        residuals = told - base[observed]
        centre = float(np.mean(residuals)) if len(residuals) < 3 else float(np.median(residuals)) if self._estimate else float(np.mean(residuals))
        spread = math.sqrt((_SPREAD_WEIGHT * self._spread**2 + float(((residuals - centre) ** 2).sum())) / (_SPREAD_WEIGHT + len(residuals)))
        scaled = (residuals - centre) / spread
        if len(observed) >= self._refit_at:
            self._gaussian.fit(self.pool.vectors[observed], scaled)
            self._refit_at = max(int(len(observed) * _FIT_GROWTH), len(observed) + 1)
            self._stale = True
        if self._stale:
            self._gaussian.condition(self.pool.vectors, observed)
            self._stale = False
        by_number = dict(zip(observed, scaled, strict=True))
        values = np.array([by_number[number] for number in self._gaussian.observed])
        mean, deviation = self._gaussian.posterior(values)
        return base + centre + spread * mean, np.hypot(doubt, spread * deviation)

    def _slope(self, estimated: Matrix, told: Matrix) -> float:
        """By how much of the estimate's differences times differ: one, as long as nothing says otherwise."""
        if self._estimate is None:
            return 1.0
        centred = estimated - estimated.mean()
        prior = (self._spread / _SLOPE_DEVIATION) ** 2
        return 1.0 + float(centred @ (told - told.mean() - centred)) / (float(centred @ centred) + prior)

    def _base(self) -> tuple[Matrix, Matrix]:
        """Log of the estimates, with the standard deviation of those that had to be foreseen from other points' builds."""
        sure = np.isfinite(self._physics)
        unsaid = np.isnan(self._physics)
        if not unsaid.any():
            return np.where(sure, self._physics, 0.0), np.zeros(len(sure))
        built = np.flatnonzero(sure)
        if not len(built):
            return np.zeros(len(sure)), np.ones(len(sure))
        if self._foreseen is None or self._foreseen[0] != len(built) or len(self._foreseen[1]) != len(sure):
            known = self._physics[built]
            centre, spread = float(known.mean()), float(known.std()) + 0.1
            scaled = (known - centre) / spread
            if len(built) >= self._refit_builds_at:
                self._builds.fit(self.pool.vectors[built], scaled)
                self._refit_builds_at = 2 * len(built)
            self._builds.condition(self.pool.vectors, built.tolist())
            mean, deviation = self._builds.posterior(scaled)
            self._foreseen = (len(built), centre + spread * mean, spread * deviation)
        return np.where(unsaid, self._foreseen[1], np.where(sure, self._physics, 0.0)), np.where(unsaid, self._foreseen[2], 0.0)

    def gain(self) -> Matrix:
        """Expected improvement of log time at all points, weighted by feasibility; zero where known or unable to run."""
        mean, deviation = self.predict()
        gain = improvement(mean, deviation, self.best()) if self.times else -mean + mean.max() + 1.0
        gain = gain * self.feasible()
        for point in self.pending:
            gain = gain * (1 - self._likeness(point))
        gain[self.known | np.isposinf(self._physics)] = 0.0
        return gain


def improvement(mean: Matrix, deviation: Matrix, best: float) -> Matrix:
    """Expected improvement below `best` of normal variables.

    The normal distribution function by Abramowitz and Stegun, 7.1.26 (error under 2e-7).
    """
    z = (best - mean) / deviation
    t = 1 / (1 + 0.3275911 * np.abs(z) / math.sqrt(2))
    falling = np.exp(-z * z / 2)
    tail = 0.5 * t * (0.254829592 + t * (-0.284496736 + t * (1.421413741 + t * (-1.453152027 + t * 1.061405429)))) * falling
    below = np.where(z > 0, 1 - tail, tail)
    gain = deviation * (z * below + falling / math.sqrt(2 * math.pi))
    # Far tails cancel; order them by z instead, under everything that does not cancel.
    result: Matrix = np.where(z > -4, gain, 1e-9 * deviation / (1 + z * z))
    return result
