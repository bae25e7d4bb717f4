"""The cost-model searcher as an Optuna sampler: where an estimate and its learned residual expect the largest gain."""

from __future__ import annotations

import random
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from optuna.distributions import BaseDistribution
from optuna.samplers import BaseSampler, RandomSampler
from optuna.study import Study
from optuna.trial import FrozenTrial, TrialState

from tilewright.knobs import Value
from tilewright.record import Config, Resources
from tilewright.search.densities import Densities
from tilewright.search.model import Estimate, TimeModel
from tilewright.search.params import decoded, distribution_of, encoded, failed
from tilewright.search.pool import Pool

if TYPE_CHECKING:
    from tilewright.space import SearchSpace

# Uniform draws at the start, where there is no estimate to start from. benchmarks/search_efficiency.py, 2026-11: 8 and 16 are
# alike within the noise on the recorded spaces.
_STARTUP: Final = 8
# Proposals after which the points of a space too large to list are drawn anew. guess.
_RENEW: Final = 16
# Without an estimate, every fourth point is chosen by densities instead. benchmarks/search_efficiency.py, 2026-11: on the recorded
# GEMM expected improvement alone is at 91% of the optimum after 64 measurements, with every second or fourth by densities at 95 and
# 97%; on convolution_A100 of the benchmark hub it scores 0.78 alone, 0.75 and 0.80 with them (10 to 15 seeds, +-0.04).
_TURNS: Final = 4
# Best points around which new ones are drawn.
_CENTRES: Final = 8


class CostSampler(BaseSampler):
    """Samples the point of the largest expected improvement, over all legal points where they can be listed.

    The study may be anyone's: what it holds of running and finished trials is all the sampler goes by, besides builds.

    Args:
        space: where configs come from.
        seed: of all draws.
        estimate: an analytic estimate of a config's time, before and after its build; None to go by knobs alone.
        turns: without an estimate, choose every second point by densities.
    """

    def __init__(self, space: SearchSpace, *, seed: int, estimate: Estimate | None = None, turns: bool = True) -> None:
        self._space = space
        self._pool = Pool(space, seed=seed)
        self._rng = random.Random(seed)
        self._estimate = estimate
        self._turns = turns and estimate is None
        self._model = TimeModel(self._pool, estimate)
        self._densities = Densities(self._pool, seed=seed)
        self._independent = RandomSampler(seed=seed)
        self._open: dict[int, int] = {}  # points of running trials, by trial number
        self._told: list[tuple[dict[str, Value], float | None]] = []
        self._synced = 0
        self._built: dict[int, Resources] = {}
        self._proposed = 0

    def infer_relative_search_space(self, study: Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        """All knobs, from the first trial on."""
        return {knob.id: distribution_of(knob) for knob in self._space.knobs}

    def sample_relative(self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]) -> dict[str, Any]:
        """The parameters of the next point; none where no point is left."""
        self._sync(study, trial.number)
        number = self._choose(self._unknown())
        return {} if number is None else encoded(self._space, self._pool.configs[number])

    def sample_independent(self, study: Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution) -> Any:
        """Uniform: only where no point is left, or for parameters that are not the space's."""
        return self._independent.sample_independent(study, trial, param_name, param_distribution)

    # Build wide, measure narrow.

    def widen(self, study: Study, count: int) -> list[dict[str, Value]]:
        """Configs worth building next, the most promising first; none of them built, running or measured.

        Those already built take no part, whatever became of them.
        """
        self._sync(study, None)
        unknown = self._unknown()
        unknown = unknown[[number not in self._built for number in unknown]] if len(unknown) else unknown
        if not self._model.informed():
            order = self._rng.sample(range(len(unknown)), min(count, len(unknown)))
            return [dict(self._pool.configs[unknown[position]]) for position in order]
        gain = self._model.gain()[unknown]
        return [dict(self._pool.configs[number]) for number in unknown[np.argsort(-gain, kind="stable")[:count]]]

    def built(self, config: Config, resources: Resources | None) -> None:
        """Take in what the build of a config says; None where it failed, which teaches where failures lie."""
        number = self._pool.number(config)
        self._model.grow()
        self._model.build(number, resources)
        if resources is None:
            self._told.append((dict(config), None))
            self._built.pop(number, None)
        else:
            self._built[number] = resources

    def choose(self, study: Study, among: Iterable[Config]) -> dict[str, Value] | None:
        """Which of some built configs to measure next; None where none is left to measure."""
        self._sync(study, None)
        numbers = [self._pool.number(config) for config in among]
        self._model.grow()
        number = self._choose(np.array([number for number in numbers if not self._model.known[number]], dtype=np.intp))
        return None if number is None else dict(self._pool.configs[number])

    def _unknown(self) -> np.ndarray[Any, np.dtype[np.intp]]:
        return np.flatnonzero(~self._model.known)

    def _choose(self, numbers: np.ndarray[Any, np.dtype[np.intp]]) -> int | None:
        if not len(numbers):
            return None
        if not self._model.informed() or (self._estimate is None and len(self._told) + len(self._open) < _STARTUP):
            return int(numbers[self._rng.randrange(len(numbers))])
        if self._turns and self._model.times and (len(self._told) + len(self._open)) % _TURNS == 0:
            return self._densities.choose(self._model.times, self._model.failed, numbers)
        gain = self._model.gain()[numbers]
        return int(numbers[int(np.argmax(gain))])

    def _sync(self, study: Study, asking: int | None) -> None:
        """Take in the study's trials that are new or have ended."""
        trials = study.get_trials(deepcopy=False)
        for trial in [*(trials[number] for number in list(self._open)), *trials[self._synced :]]:
            if trial.number == asking or not trial.params:
                continue
            config = decoded(self._space, trial.params)
            if config is None:  # a refused point, or not of this space
                continue
            if trial.state in (TrialState.RUNNING, TrialState.WAITING):
                if trial.number not in self._open:
                    self._open[trial.number] = self._number(config)
                    self._model.expect(self._open[trial.number])
            else:
                self._open.pop(trial.number, None)
                time_us = None if trial.state != TrialState.COMPLETE or failed(trial.value) else float(np.exp(trial.value or 0.0))
                self._told.append((config, time_us))
                self._model.tell(self._number(config), time_us)
        self._synced = len(trials) if asking is None else min(len(trials), asking)
        self._proposed += 1
        if not self._pool.listed and self._proposed % _RENEW == 0:
            self._renew()

    def _number(self, config: Config) -> int:
        number = self._pool.number(config)
        self._model.grow()
        return number

    def _renew(self) -> None:
        """Draw the points of a large space anew, around the best."""
        best = sorted(self._model.times, key=self._model.times.__getitem__)[:_CENTRES]
        keep = [self._pool.configs[number] for number in sorted({*np.flatnonzero(self._model.known).tolist(), *self._built})]
        built = [(self._pool.configs[number], resources) for number, resources in self._built.items()]
        opened = {trial: self._pool.configs[number] for trial, number in self._open.items()}
        self._pool.renew([self._pool.number(config) for config in keep], best)
        self._model.restart()
        self._built = {self._pool.number(config): resources for config, resources in built}
        for number, resources in self._built.items():
            self._model.build(number, resources)
        for config, time_us in self._told:
            self._model.tell(self._pool.number(config), time_us)
        self._open = {trial: self._pool.number(config) for trial, config in opened.items()}
        for number in self._open.values():
            self._model.expect(number)
