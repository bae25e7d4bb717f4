"""Optuna's tree-structured Parzen estimator behind the common protocol, by ask and tell."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution, IntDistribution
from optuna.exceptions import ExperimentalWarning
from optuna.trial import Trial, create_trial

from tilewright.record import Config, Value, config_key
from tilewright.search.base import Book, History, configured

if TYPE_CHECKING:
    from tilewright.space import Knob, SearchSpace

# Objective of a point that is refused or failed: log of a time that no kernel takes. TPE only ranks, and a finite penalty
# teaches it where failures lie (trials told as FAIL teach it nothing: 4.7 asks an evaluation instead of 1.3).
_PENALTY: Final = math.log(1e12)

# Uniform draws before the estimator takes over; facts: 16 start-up trials reached the optimum of the recorded GEMM at 64.
_STARTUP: Final = 16

# Draws in one ask before an unknown legal point is drawn uniformly instead: of known points, and of any.
# guess: TPE repeats itself in 30% of its draws on a space of 2,304 points, so 12 in one ask mean that it is stuck.
_REPEATS: Final = 12
_DRAWS: Final = 64

# Random passes over the space to see whether knobs depend on others.
_PROBES: Final = 32


class TpeProposer:
    """Multivariate TPE over the knobs; ordered knobs are integers, which lets it learn from neighbours.

    Args:
        space: where configs come from.
        seed: of all draws.
        history: results known from before.
    """

    def __init__(self, space: SearchSpace, *, seed: int, history: History = ()) -> None:
        self._book = Book(space, seed=seed, history=history)
        self._space = space
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", category=ExperimentalWarning, message="Argument ``group`` is an experimental feature")
            sampler = optuna.samplers.TPESampler(seed=seed, group=self._conditional(), n_startup_trials=_STARTUP, constant_liar=True)
        self._study = optuna.create_study(sampler=sampler)
        self._open: dict[str, Trial] = {}
        for key, config in self._book.configs.items():
            self._add(config, self._book.results[key])

    @property
    def rejected(self) -> Mapping[str, int]:
        """Distinct points that TPE drew and a `require` refused, by reason."""
        return self._book.rejected

    def ask(self) -> dict[str, Value] | None:
        """The author's candidates first, then TPE's, then whatever legal point is left."""
        config = self._book.first()
        if config is not None:
            return self._start(config)
        repeats = 0
        for _ in range(_DRAWS):
            trial = self._study.ask()
            evaluation = self._space.evaluate(lambda knob, trial=trial: _suggest(trial, knob))  # type: ignore[misc]
            if evaluation.violations:
                self._book.refused(evaluation.config, evaluation.violations[0])
                self._study.tell(trial, _PENALTY)
            elif self._book.knows(evaluation.config):
                # Told again as what it is known for: the densities then move on, instead of drawing it for ever.
                time_us = self._book.results.get(config_key(evaluation.config))
                self._study.tell(trial, _objective(time_us))
                repeats += 1
                if repeats == _REPEATS:
                    break
            else:
                return self._start(evaluation.config, trial)
        config = self._book.unknown()
        return None if config is None else self._start(config)

    def tell(self, config: Config, time_us: float | None) -> None:
        """Report a candidate's time; a failed one is told as a penalty."""
        trial = self._open.pop(config_key(config), None)
        self._book.told(config, time_us)
        if trial is None:
            self._add(config, time_us)
        else:
            self._study.tell(trial, _objective(time_us))

    def _start(self, config: dict[str, Value], trial: Trial | None = None) -> dict[str, Value]:
        if trial is None:
            params, _ = self._encode(config)
            self._study.enqueue_trial(params)
            trial = self._study.ask()
            asked = trial
            self._space.evaluate(lambda knob: _suggest(asked, knob))
        self._open[config_key(config)] = trial
        self._book.asked(config)
        return dict(config)

    def _add(self, config: Config, time_us: float | None) -> None:
        params, distributions = self._encode(config)
        self._study.add_trial(create_trial(params=params, distributions=distributions, value=_objective(time_us)))

    def _encode(self, config: Config) -> tuple[dict[str, int], dict[str, BaseDistribution]]:
        params: dict[str, int] = {}
        distributions: dict[str, BaseDistribution] = {}
        follow = configured(config)

        def choose(knob: Knob) -> Value:
            value = follow(knob)
            params[knob.id] = knob.index(value)
            distributions[knob.id] = _distribution(knob)
            return value

        self._space.evaluate(choose)
        return params, distributions

    def _conditional(self) -> bool:
        everything = {knob.id for knob in self._space.knobs}
        for _ in range(_PROBES):
            reached: set[str] = set()

            def choose(knob: Knob, reached: set[str] = reached) -> Value:
                reached.add(knob.id)
                return self._book.rng.choice(knob.values)

            self._space.evaluate(choose)
            if reached != everything:
                return True
        return False


def _objective(time_us: float | None) -> float:
    return _PENALTY if time_us is None else math.log(time_us)


def _distribution(knob: Knob) -> BaseDistribution:
    count = len(knob.values)
    return IntDistribution(0, count - 1) if knob.ordered else CategoricalDistribution(range(count))


def _suggest(trial: Trial, knob: Knob) -> Value:
    count = len(knob.values)
    index = trial.suggest_int(knob.id, 0, count - 1) if knob.ordered else trial.suggest_categorical(knob.id, range(count))
    return knob.values[index]
