"""The cost-model searcher as an Optuna sampler: where an estimate and its learned residual expect the largest gain."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Sequence, Sized
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray
from optuna.distributions import BaseDistribution
from optuna.samplers import BaseSampler, RandomSampler
from optuna.study import Study
from optuna.trial import FrozenTrial, TrialState

from tilewright.knobs import Value
from tilewright.record import Config, Resources
from tilewright.search.base import ENUMERABLE
from tilewright.search.climb import climb
from tilewright.search.densities import Densities
from tilewright.search.leads import Lead
from tilewright.search.model import Estimate, TimeModel
from tilewright.search.moves import Descent
from tilewright.search.params import decoded, distribution_of, encoded, failed
from tilewright.search.past import Past
from tilewright.search.past_result import PastResult
from tilewright.search.pool import HELD, MOST, Pool

if TYPE_CHECKING:
    from tilewright.space import SearchSpace

# Steps of a descent at the start, where there is no estimate to start from. Scores by knobs alone on pnpoly_RTX_3090 and the recorded GEMM: 0.84 and
# 0.76 with 8, 0.80 and 0.84 with 10, 0.57 and 0.83 with 12 (12 to 16 seeds, 2026-11; decision 0025).
_STARTUP: Final = 10
# Points up to which a template's space is listed where there is an estimate. guess: a pass over it takes some 60 µs.
_LISTED: Final = 4_000
# Measurements by an estimate before the default, where that has not been measured; decision 0028 has figures.
_UNCONTRASTED: Final = 2
# Looks around the best, and uniform draws, before each choice from a space that is not listed.
_NEAR: Final = 40
_DRAWN: Final = 4
# Without an estimate, every fourth point is chosen by densities instead. 10 seeds, recorded GEMM, 2026-11: expected improvement alone was at
# 91% of the optimum after 64 measurements, with every fourth by densities at 97%; on other spaces the difference was within the noise.
_TURNS: Final = 4
# Every so many builds are for a point that differs from one of so many of the best in one knob, once so many are measured. Recorded GEMM
# with the general estimate, 2026-11: 13 of 48 searches were not at the optimum after 64 measurements without them, 1 of 40 with them.
_POLISH: Final = 4
_POLISHED: Final = 2
_POLISH_FROM: Final = 6
# Results heard of other workloads at which they are first thought over. guess: some from each of a few.
_FIRST_HEARD: Final = 32
# The growth after which they are thought over anew, and own results from which they are not. guess: 600 of them cost 0.4 s.
_HEARD_GROWTH: Final = 4
_OWN: Final = 16
# Best points around which new ones are drawn.
_CENTRES: Final = 8


class CostSampler(BaseSampler):
    """Samples the point of the largest expected improvement, over all legal points where they can be listed.

    The study may be anyone's: what it holds of running and finished trials is all the sampler goes by, besides builds.

    Args:
        space: where configs come from.
        seed: of all draws.
        estimate: an analytic estimate of a config's time, before and after its build; None to go by knobs alone.
        turns: without an estimate, choose every fourth point by densities.
        past: results of other workloads.
        features: this workload's, as the past results have theirs.
    """

    def __init__(
        self,
        space: SearchSpace,
        *,
        seed: int,
        estimate: Estimate | None = None,
        turns: bool = True,
        past: Sequence[PastResult] = (),
        features: Sequence[float] = (),
    ) -> None:
        self._space = space
        self._default = space.default()
        # A recording has its points at hand; a template's are found by a pass each, and an estimate says where to look.
        self._pool = Pool(space, seed=seed, most=ENUMERABLE if estimate is None or isinstance(space, Sized) else _LISTED)
        self._rng = random.Random(seed)
        self._estimate = estimate
        self._turns = turns and estimate is None
        self._features = tuple(features)
        self._results = list(past)
        self._heard: list[Callable[[], PastResult]] = []  # since they were last thought over
        self._foreseen = len(self._results)  # of them, those whose builds the model knows
        self._consider_at = max(_FIRST_HEARD, _HEARD_GROWTH * len(past))
        learnt = Past(self._pool.encoding, past, features, estimated=estimate is not None) if past else None
        self._model = TimeModel(self._pool, estimate, learnt)
        self._model.foresee(past)
        if not self._pool.listed and estimate is not None:
            climb(self._pool, self._model)
        self._densities = Densities(self._pool, seed=seed)
        self._descent = Descent(space, self._rng, restarts=False)  # steps may only be unbuilt
        self._independent = RandomSampler(seed=seed)
        self._open: dict[int, int] = {}  # points of running trials, by trial number
        self._failures = 0  # of builds, which are no trials
        self._synced = 0
        self._built: set[int] = set()
        self._widened = self._batches = self._turns_of_builds = 0
        self._handed: set[int] = set()  # to be built

    def infer_relative_search_space(self, study: Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        """All knobs, from the first trial on."""
        return {knob.id: distribution_of(knob) for knob in self._space.knobs}

    def sample_relative(self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]) -> dict[str, Any]:
        """The parameters of the next point; none where no point is left."""
        self._sync(study, trial.number)
        if not self._pool.listed:
            self._refresh()
        number = self._choose(np.flatnonzero(~self._model.known))
        return {} if number is None else encoded(self._space, self._pool.configs[number])

    def sample_independent(self, study: Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution) -> Any:
        """Uniform: only where no point is left, or for parameters that are not the space's."""
        return self._independent.sample_independent(study, trial, param_name, param_distribution)

    def heard(self, result: Callable[[], PastResult]) -> None:
        """Take in another workload's result: when there are so many times as many as before, all of them are thought over anew.

        Not any more where the search has results enough of its own.

        Args:
            result: makes it, once it is thought over: with many workloads most of what is heard never is.
        """
        if self._count >= _OWN:
            self._heard.clear()
            return
        self._heard.append(result)
        if len(self._results) + len(self._heard) >= self._consider_at:
            self._results += [made() for made in self._heard]
            self._heard.clear()
            self._consider_at = _HEARD_GROWTH * len(self._results)
            self._model.foresee(self._results[self._foreseen :])
            self._foreseen = len(self._results)
            self._model.consider(Past(self._pool.encoding, self._results, self._features, estimated=self._estimate is not None))

    # Build wide, measure narrow.

    def widen(self, study: Study, count: int) -> list[dict[str, Value]]:
        """Configs worth building next, the most promising first; none of them built, running or measured.

        Those already built, or handed out to be built, take no part, whatever became of them.
        """
        self._sync(study, None)
        free = ~self._model.known
        free[[*self._built, *self._handed]] = False
        unknown = np.flatnonzero(free)
        if not self._model.informed():
            numbers = unknown[self._rng.sample(range(len(unknown)), min(count, len(unknown)))].tolist()
        else:
            numbers = self._worth_building(unknown, count)
        self._handed.update(numbers)
        return [dict(self._pool.configs[number]) for number in numbers]

    def _worth_building(self, unknown: NDArray[np.intp], count: int) -> list[int]:
        """The most promising ones; every few builds, one that is a knob away from the best points."""
        self._batches += 1
        ranked: dict[Lead, Iterator[int]] = {}
        polishing: Iterator[int] = iter(())
        chosen: dict[int, None] = {}
        while len(chosen) < min(count, len(unknown)):
            # Where other workloads' results lead, they have a batch to themselves: decision 0031 has figures.
            lead = self._model.lead(self._batches if self._model.past_leads else self._turns_of_builds, self._count)
            if lead not in ranked:
                order = unknown[np.argsort(-self._model.gain(lead)[unknown], kind="stable")]
                ranked[lead] = iter(order.tolist())
                if len(ranked) == 1 and len(self._model.times) >= _POLISH_FROM:
                    polishing = iter(self._beside(order).tolist())
            self._widened += 1
            number = next(polishing, None) if self._widened % _POLISH == 0 else None
            if number is None:
                number = next(ranked[lead])
                self._turns_of_builds += number not in chosen
            chosen[number] = None
        return list(chosen)

    def _beside(self, numbers: NDArray[np.intp]) -> NDArray[np.intp]:
        """Those of some points that differ from one of the best in one knob."""
        rows = self._pool.rows[numbers]
        near = np.zeros(len(numbers), dtype=bool)
        for best in self._best(_POLISHED):
            near |= np.count_nonzero(rows != self._pool.rows[best], axis=1) == 1
        return numbers[near]

    def built(self, config: Config, resources: Resources | None) -> None:
        """Take in what the build of a config says; None where it failed, which teaches where failures lie."""
        number = self._number(config)
        self._model.build(number, resources)
        self._handed.discard(number)
        if resources is None:
            self._built.discard(number)
            self._failures += 1
        else:
            self._built.add(number)

    def choose(self, study: Study, among: Iterable[Config]) -> dict[str, Value] | None:
        """Which of some built configs to measure next; None where none is left to measure."""
        self._sync(study, None)
        if not self._pool.listed:
            self._refresh()
        numbers = [self._number(config) for config in among]
        number = self._choose(np.array([number for number in numbers if not self._model.known[number]], dtype=np.intp))
        return None if number is None else dict(self._pool.configs[number])

    @property
    def _count(self) -> int:
        """Points told or asked."""
        return len(self._model.times) + len(self._model.failed) + len(self._open)

    def _choose(self, numbers: NDArray[np.intp]) -> int | None:
        if not len(numbers):
            return None
        contrast = self._contrast()
        if contrast is not None and self._count >= _UNCONTRASTED and contrast in numbers:
            return contrast
        blind = self._estimate is None and not self._model.led and not (self._model.hedged and self._lead is Lead.PAST)
        if not self._model.informed() or (blind and self._count < _STARTUP):
            return self._step(numbers)
        if self._turns and self._model.times and (self._count) % _TURNS == 0:
            return self._densities.choose(self._model.times, self._model.failed, numbers)
        gain = self._model.gain(self._lead)[numbers]
        return int(numbers[int(np.argmax(gain))])

    def _contrast(self) -> int | None:
        """The default, until it is known: points that an estimate likes say nothing of what it is blind to, one of somebody else's choice does.

        None without an estimate, and where other workloads' results lead, which have such points.
        """
        if self._estimate is None or self._model.led:
            return None
        number = self._number(self._default)
        return None if self._model.known[number] else number

    def _step(self, numbers: NDArray[np.intp]) -> int:
        """Of some points, one that differs from the best in one knob; where there is none, any."""
        allowed = set(numbers.tolist())
        steps = (self._pool.find(move) for move in self._descent.moves() if move is not None)
        return next((number for number in steps if number is not None and number in allowed), int(numbers[self._rng.randrange(len(numbers))]))

    @property
    def _lead(self) -> Lead:
        """Who leads this choice."""
        return self._model.lead(self._count, self._count)

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
                self._model.tell(self._number(config), time_us)
                self._descent.told(config, time_us)
        self._synced = len(trials) if asking is None else min(len(trials), asking)

    def _number(self, config: Config) -> int:
        number = self._pool.number(config)
        self._model.grow()
        return number

    def _refresh(self) -> None:
        """Turn over the points of a space too large to list: more around the best, fewer of those that promise little."""
        gain = self._model.gain()
        centres = [*self._best(_CENTRES // 2), *np.argsort(-gain)[: _CENTRES // 2].tolist()]
        self._pool.spread(centres, near=_NEAR, drawn=_DRAWN)
        self._model.grow()
        if len(self._pool) <= MOST:
            return
        gain = self._model.gain().copy()
        gain[self._model.known] = np.inf
        gain[[*self._built, *self._handed, *self._open.values()]] = np.inf
        kept = np.sort(np.argsort(-gain, kind="stable")[: max(HELD, int(np.isposinf(gain).sum()))])
        self._pool.keep(kept)
        self._model.keep(kept)
        places = {int(number): place for place, number in enumerate(kept)}
        self._built = {places[number] for number in self._built}
        self._handed = {places[number] for number in self._handed}
        self._open = {trial: places[number] for trial, number in self._open.items()}

    def _best(self, count: int) -> list[int]:
        return sorted(self._model.times, key=self._model.times.__getitem__)[:count]
