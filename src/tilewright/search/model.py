"""A surrogate of a kernel's time over a pool of points: an estimate to start from, a learned residual, and feasibility."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Final

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from tilewright.record import Config, Resources
from tilewright.search.encoding import Matrix
from tilewright.search.expectation import Expectation
from tilewright.search.feasibility import Feasibility
from tilewright.search.foresight import FIRST, Foresight
from tilewright.search.gaussian import Gaussian, Prior
from tilewright.search.improvement import improvement
from tilewright.search.leads import Lead, Leads
from tilewright.search.past import Past, carried
from tilewright.search.past_result import PastResult
from tilewright.search.pool import Pool
from tilewright.search.pretrained import Correction

# A candidate's time in µs as physics has it, before the build (None) and with what the build says; None where it cannot run,
# and NaN where that cannot be said before the build.
Estimate = Callable[[Config, Resources | None], float | None]

# Standard deviation of log(measured / estimated), and of log(measured) where there is no estimate: what is thought of the
# spread before it is seen, with the weight of so many observations.
# benchmarks/search_efficiency.py, recorded GEMM, 2026-11: 0.13 to 0.20 on its 8 shapes.
_SPREAD_ESTIMATED: Final = 0.2
_SPREAD_BLIND: Final = 1.0
_SPREAD_WEIGHT: Final = 4

# How much more may stay unexplained here than among the past's own sources. guess.
_PAST_MARGIN: Final = 1.5
# Builds of the past that this search's own are foreseen from.
_PAST_BUILDS: Final = 250

# Observations at which the hyperparameters are first fitted, and the growth after which they are fitted again.
_FIRST_FIT: Final = 8
_FIT_GROWTH: Final = 1.4
# Observations after which they stay as they are. guess: so many say all that they can say of some ten length scales.
_LAST_FIT: Final = 400

# Standard deviation of the log of an estimate for foreseen resources, as thought before it is seen, and its weight in observations. guess.
_DOUBT: Final = 0.5
_DOUBT_WEIGHT: Final = 4
# The same where the same choices were built for another workload: mostly the same binary. guess.
_DOUBT_SAME: Final = 0.05
_HOPELESS: Final = 30.0


class TimeModel:
    """What is known and thought of the points of a pool.

    Args:
        pool: the points.
        estimate: an analytic estimate, where there is one.
        past: what other workloads' results say, where there are any.
    """

    def __init__(self, pool: Pool, estimate: Estimate | None = None, past: Past | None = None) -> None:
        self.pool = pool
        self._estimate = estimate
        self._foresight = Foresight(pool)
        self._expected = Expectation(pool, self._foresight, past)
        self._correction = Correction(estimate)
        self._leads = Leads(self._expected, self._correction, estimated=estimate is not None)
        spread = _SPREAD_BLIND if estimate is None else _SPREAD_ESTIMATED
        # What the past leaves unexplained elsewhere is what it will leave here, or more: sources are more alike than this one may be.
        self._spread = spread if self._expected.spread is None else min(spread, _PAST_MARGIN * self._expected.spread)
        self._gaussian = Gaussian(pool.encoding.groups, Prior())
        self._refit_at = _FIRST_FIT
        self._stale = True
        self.times: dict[int, float] = {}  # log of µs
        self._lengthen()
        self.failed: list[int] = []
        self.pending: list[int] = []
        self.known: NDArray[np.bool_] = np.zeros(0, dtype=bool)
        self._fates = Feasibility(pool)
        self._physics: Matrix = np.zeros(0)
        self._foreseen: Matrix = np.zeros(0)  # log of estimates for foreseen resources
        self._elsewhere: dict[bytes, Resources] = {}  # what the same choices needed elsewhere, by index row
        self._same: NDArray[np.bool_] = np.zeros(0, dtype=bool)  # whether what is foreseen comes from there
        self._misses: list[float] = []  # by how much they were wrong
        self.grow()

    def grow(self) -> None:
        """Take in points that the pool has gained."""
        held, count = len(self.known), len(self.pool)
        if held == count:
            return
        self.known = np.concatenate([self.known, np.zeros(count - held, dtype=bool)])
        self._fates.grow(list(self.times), self.failed)
        fresh = [self._log_estimate(self.pool.configs[number], None) for number in range(held, count)]
        self._physics = np.concatenate([self._physics, np.array(fresh, dtype=float)])
        self._foreseen = np.concatenate([self._foreseen, np.full(count - held, np.nan)])
        self._same = np.concatenate([self._same, np.zeros(count - held, dtype=bool)])
        self._expected.grow(count - held)
        self._correction.grow(count - held)
        if not self._stale:
            self._gaussian.extend(self.pool.vectors[held:])
        self._changed()

    def keep(self, numbers: NDArray[np.intp]) -> None:
        """Drop all points but some, which then have the numbers 0, 1, ...; what was told or built must be among them."""
        places = {int(number): place for place, number in enumerate(numbers)}
        self.times = {places[number]: time for number, time in self.times.items()}
        self.failed = [places[number] for number in self.failed]
        self.pending = [places[number] for number in self.pending]
        self.known = self.known[numbers]
        self._fates.keep(numbers)
        self._physics, self._foreseen, self._same = self._physics[numbers], self._foreseen[numbers], self._same[numbers]
        self._expected.keep(numbers)
        self._correction.keep(numbers)
        if not self._stale:
            self._gaussian.keep(numbers)
        self._changed()

    def _changed(self) -> None:
        self._gains: dict[Lead, Matrix] = {}

    def _log_estimate(self, config: Config, resources: Resources | None) -> float:
        if self._estimate is None:
            return 0.0
        time_us = self._estimate(config, resources)
        return math.inf if time_us is None else math.log(time_us)

    def build(self, number: int, resources: Resources | None) -> None:
        """Take in what a build says of a point; None where it failed."""
        if resources is None:
            self.tell(number, None)
            return
        before = self._physics[number]
        self._physics[number] = self._log_estimate(self.pool.configs[number], resources)
        self._expected.build(number, resources)
        self._correction.take([number], [self.pool.configs[number]], [resources], [self._physics[number]])
        if math.isnan(before) or self._expected:
            self._foresight.add(number, resources)
        # What was not foreseen is NaN, and no number is less.
        if math.isnan(before) and math.isfinite(self._physics[number]) and self._foreseen[number] < _HOPELESS and not self._same[number]:
            self._misses.append(float(self._physics[number] - self._foreseen[number]))
        self._changed()

    def consider(self, past: Past) -> None:
        """Take what other workloads' results say now instead of what they said before."""
        self._expected.consider(past)
        self._lengthen()
        self._changed()

    def _lengthen(self) -> None:
        """A knob that hardly matters elsewhere hardly matters here, until results say otherwise (decision 0023)."""
        if self._estimate is not None and len(self.times) < _FIRST_FIT:
            self._gaussian.lengthen(self._expected.lengths)
            self._stale = True

    def foresee(self, past: Sequence[PastResult]) -> None:
        """Take in what builds elsewhere needed: the same choices need about the same."""
        built = [result for result in past if result.resources is not None]
        encoding = self.pool.encoding
        rows = encoding.rows([carried(encoding, result.config) for result in built])
        fresh = {row.tobytes(): replace(result.resources, programs=None) for row, result in zip(rows, built, strict=True) if result.resources is not None}
        self._elsewhere.update(fresh)
        self._foreseen[:] = np.nan
        step = max(len(fresh) // _PAST_BUILDS, 1)
        for row, resources in [*fresh.items()][::step]:
            vector = encoding.vectors(np.frombuffer(row, dtype=np.intp)[None, :])[0]
            self._foresight.see(vector, resources)
        self._changed()

    def tell(self, number: int, time_us: float | None) -> None:
        """Take in a point's time, or that it failed."""
        self.known[number] = True
        self._fates.tell(number, failed=time_us is None)
        if number in self.pending:
            self.pending.remove(number)
        self._changed()
        if time_us is None:
            self.failed.append(number)
            return
        self.times[number] = math.log(time_us)
        if not self._stale and number not in self._gaussian.observed:
            self._gaussian.observe(number)

    def expect(self, number: int) -> None:
        """Take a point as on its way: until it is told, points like it gain less, so that a batch is diverse."""
        self.known[number] = True
        self.pending.append(number)
        self._changed()

    def feasible(self) -> Matrix:
        """Probability that each point runs."""
        return self._fates.chance()

    @property
    def physics(self) -> Matrix:
        """Log of the estimates in µs: infinite where a point cannot run, NaN where nothing is said before the build."""
        return self._physics

    def informed(self) -> bool:
        """Whether there is anything to go by: an estimate that speaks, a time, or other workloads' results that are believed."""
        return bool(self.times) or self._expected.trust > 0 or (self._estimate is not None and bool(np.isfinite(self._physics).any()))

    @property
    def led(self) -> bool:
        """As `Expectation.led`."""
        return self._expected.led

    @property
    def hedged(self) -> bool:
        """Whether other workloads' results take part, but were not tried on one another."""
        return self._expected.hedged

    @property
    def past_leads(self) -> bool:
        """Whether other workloads' results lead, if not every turn."""
        return self._leads.first is Lead.PAST

    def lead(self, turn: int, count: int) -> Lead:
        """As `Leads.lead`."""
        return self._leads.lead(turn, count)

    def predict(self, lead: Lead | None = None) -> tuple[Matrix, Matrix]:
        """Mean and standard deviation of log time at all points, as who leads has it; without a name, who knows most."""
        lead = lead or self._leads.first
        base, doubt = self._base()
        able = ~np.isposinf(self._physics)
        self._expected.ask(base - (base[able].min() if able.any() else 0.0))
        told_of = self._leads.told_of(base, learnt=len(self._foresight) >= FIRST or not np.isnan(self._physics).any())
        if not self.times:
            return base + told_of[:, 1:] @ self._leads.beliefs(lead)[0][1:], np.hypot(doubt, self._spread)
        if self._stale:
            self._gaussian.condition(self.pool.vectors, list(self.times))
            self._stale = False
        observed = self._gaussian.observed
        told = np.array([self.times[number] for number in observed])
        shares = self._leads.shares(lead, told_of[observed], told, self._spread)
        residuals = told - told_of[observed] @ shares
        centre = float(np.median(residuals) if self._estimate and len(residuals) > 2 else np.mean(residuals))
        spread = math.sqrt((_SPREAD_WEIGHT * self._spread**2 + float(((residuals - centre) ** 2).sum())) / (_SPREAD_WEIGHT + len(residuals)))
        if self._refit_at <= len(observed) <= _LAST_FIT:
            self._gaussian.fit(self.pool.vectors[observed], (residuals - centre) / spread)
            self._refit_at = max(int(len(observed) * _FIT_GROWTH), len(observed) + 1)
            self._gaussian.condition(self.pool.vectors, observed)
        series = np.column_stack([told, told_of[observed], np.ones(len(observed))])
        mean, deviation = self._gaussian.posterior(series, np.array([1.0, *-shares, -centre]) / spread)
        return told_of @ shares + centre + spread * mean, np.hypot(doubt, spread * deviation)

    def _base(self) -> tuple[Matrix, Matrix]:
        """Log of the estimates, with the standard deviation of those that had to be foreseen from other points' builds."""
        learnt = self._learnt() if self._expected or np.isnan(self._physics).any() else False
        sure = np.isfinite(self._physics)
        unsaid = np.isnan(self._physics)
        if not unsaid.any():
            return np.where(sure, self._physics, 0.0), np.zeros(len(sure))
        if not learnt:
            return np.zeros(len(sure)), np.ones(len(sure))
        fresh = np.flatnonzero(unsaid & np.isnan(self._foreseen))
        configs, needed = [self.pool.configs[number] for number in fresh], list(self._foresight.foresee(fresh))
        for place, number in enumerate(fresh):
            known = self._elsewhere.get(self.pool.rows[number].tobytes())
            self._same[number] = known is not None
            if known is not None:  # the same binary, but over this workload's grid
                needed[place] = replace(known, programs=needed[place].programs)
        estimated = np.array([self._log_estimate(config, needs) for config, needs in zip(configs, needed, strict=True)])
        self._correction.take(fresh, configs, needed, estimated)
        # Foreseen not to fit: the last to be built, but not ruled out.
        self._foreseen[fresh] = np.where(np.isfinite(estimated), estimated, _HOPELESS)
        misses = np.array(self._misses)
        doubt = math.sqrt((_DOUBT_WEIGHT * _DOUBT**2 + float((misses**2).sum())) / (_DOUBT_WEIGHT + len(misses)))
        return np.where(unsaid, self._foreseen, np.where(sure, self._physics, 0.0)), np.where(unsaid, np.where(self._same, _DOUBT_SAME, doubt), 0.0)

    def _learnt(self) -> bool:
        """Whether there are builds enough to foresee others; takes in what has come."""
        if self._foresight.due:
            self._foresight.learn()
            self._foreseen[:] = np.nan
            self._expected.relearn()
        return len(self._foresight) >= FIRST

    def gain(self, lead: Lead | None = None) -> Matrix:
        """Expected improvement of log time at all points, weighted by feasibility; zero where known or unable to run.

        Args:
            lead: as of `predict`.
        """
        lead = lead or self._leads.first
        if lead not in self._gains:
            mean, deviation = self.predict(lead)
            gain = improvement(mean, deviation, min(self.times.values())) if self.times else -mean + mean.max() + 1.0
            gain = gain * self.feasible()
            for point in self.pending:
                gain = gain * (1 - self._fates.likeness(point))
            gain[self.known | np.isposinf(self._physics)] = 0.0
            self._gains[lead] = gain
        return self._gains[lead]
