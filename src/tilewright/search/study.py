"""Any Optuna sampler behind the common protocol, by ask and tell."""

from __future__ import annotations

import random
import warnings
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

import optuna
from optuna.exceptions import ExperimentalWarning
from optuna.samplers import BaseSampler
from optuna.trial import Trial, create_trial

from tilewright.record import Config, Value, config_key
from tilewright.search.base import Book, History
from tilewright.search.params import PENALTY, encoded, objective, parameters, suggest

if TYPE_CHECKING:
    from tilewright.space import Knob, SearchSpace

# Uniform draws before the estimator takes over: with 16, tpe is at 98.4% of the optimum of the recorded GEMM after 64 (decision 0010).
_STARTUP: Final = 16

# Draws in one ask before an unknown legal point is drawn uniformly instead: of known points, and of any.
# guess: TPE repeats itself in 30% of its draws on a space of 2,304 points, so 12 in one ask mean that it is stuck.
_REPEATS: Final = 12
_DRAWS: Final = 64

# Random passes over the space to see whether knobs depend on others.
_PROBES: Final = 32


class StudyProposer:
    """A study of one sampler: the author's candidates are enqueued, refused and failed points are told as penalties.

    Args:
        space: where configs come from.
        sampler: proposes parameters.
        seed: of what is drawn beside the sampler.
        history: results known from before.
    """

    def __init__(self, space: SearchSpace, sampler: BaseSampler, *, seed: int, history: History = ()) -> None:
        self._book = Book(space, seed=seed, history=history)
        self._space = space
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        self.study = optuna.create_study(sampler=sampler)
        self._open: dict[str, Trial] = {}
        for key, config in self._book.configs.items():
            self._add(config, self._book.results[key])

    @property
    def rejected(self) -> Mapping[str, int]:
        """Distinct points that the sampler drew and a `require` refused, by reason."""
        return self._book.rejected

    def ask(self) -> dict[str, Value] | None:
        """The author's candidates first, then the sampler's, then whatever legal point is left."""
        config = self._book.first()
        if config is not None:
            return self._start(config)
        repeats = 0
        for _ in range(_DRAWS):
            trial = self.study.ask()
            evaluation = self._space.evaluate(lambda knob, trial=trial: suggest(trial, knob))  # type: ignore[misc]
            if evaluation.violations:
                self._book.refused(evaluation.config, evaluation.violations[0])
                self.study.tell(trial, PENALTY)
            elif self._book.knows(evaluation.config):
                # Told again as what it is known for: the densities then move on, instead of drawing it for ever.
                time_us = self._book.results.get(config_key(evaluation.config))
                self.study.tell(trial, objective(time_us))
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
            self.study.tell(trial, objective(time_us))

    def _start(self, config: dict[str, Value], trial: Trial | None = None) -> dict[str, Value]:
        if trial is None:
            params = encoded(self._space, config)
            self.study.enqueue_trial(params)
            trial = self.study.ask()
            asked = trial
            self._space.evaluate(lambda knob: suggest(asked, knob))
        self._open[config_key(config)] = trial
        self._book.asked(config)
        return dict(config)

    def _add(self, config: Config, time_us: float | None) -> None:
        params, distributions = parameters(self._space, config)
        self.study.add_trial(create_trial(params=params, distributions=distributions, value=objective(time_us)))


def tpe_sampler(space: SearchSpace, *, seed: int) -> BaseSampler:
    """Multivariate TPE, by groups where knobs depend on others; ordered knobs are integers, so that it learns from neighbours."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", category=ExperimentalWarning, message="Argument ``group`` is an experimental feature")
        return optuna.samplers.TPESampler(seed=seed, group=conditional(space, seed=seed), n_startup_trials=_STARTUP, constant_liar=True)


def conditional(space: SearchSpace, *, seed: int) -> bool:
    """Whether some random pass does not reach all knobs."""
    rng = random.Random(seed)
    everything = {knob.id for knob in space.knobs}
    for _ in range(_PROBES):
        reached: set[str] = set()

        def choose(knob: Knob, reached: set[str] = reached) -> Value:
            reached.add(knob.id)
            return rng.choice(knob.values)

        space.evaluate(choose)
        if reached != everything:
            return True
    return False
