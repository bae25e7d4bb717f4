"""CMA-ES over positions of candidates, each draw moved to the nearest legal point that is not known."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

import numpy as np
import optuna
from optuna.trial import Trial

from tilewright.knobs import Knob, Value
from tilewright.record import Config, config_key
from tilewright.search.base import Book, History
from tilewright.search.params import objective
from tilewright.search.pool import HELD, MOST, Pool
from tilewright.search.pooled import Told

if TYPE_CHECKING:
    from tilewright.space import SearchSpace

# Looks around a draw, and uniform draws, for a legal point near it where the space is not listed. guess.
_NEAR: Final = 48
_DRAWN: Final = 12


class SnappedProposer:
    """Optuna's CMA-ES as a searcher: it moves among positions of candidates as if they were continuous.

    Args:
        space: where configs come from.
        seed: of all draws.
        history: results known from before, which are not proposed again; Optuna's sampler cannot learn from what it did not draw.
    """

    def __init__(self, space: SearchSpace, *, seed: int, history: History = ()) -> None:
        self._book = Book(space, seed=seed, history=history)
        self._space = space
        self._pool = Pool(space, seed=seed)
        self._told = Told(self._pool)
        for known in self._book.configs.values():
            self._know(known)
        self._knobs = self._pool.encoding.knobs
        self._spans = np.array([len(knob.values) - 1 for knob in self._knobs], dtype=float)
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        self.study = optuna.create_study(sampler=optuna.samplers.CmaEsSampler(seed=seed, warn_independent_sampling=False))
        self._open: dict[str, Trial] = {}

    @property
    def rejected(self) -> Mapping[str, int]:
        """Distinct points that were drawn and that a `require` refused, by reason."""
        return self._book.rejected

    def ask(self) -> dict[str, Value] | None:
        """The author's candidates first, then the sampler's, moved to the nearest unknown legal point."""
        config = self._book.first()
        if config is None and self._knobs:
            trial = self.study.ask()
            drawn = {knob.id: trial.suggest_float(knob.id, -0.5, len(knob.values) - 0.5) for knob in self._knobs}
            config = self._snapped(drawn)
            if config is not None:
                self._open[config_key(config)] = trial
        if config is None:
            config = self._book.unknown()
        if config is None:
            return None
        self._book.asked(config)
        self._know(config)
        return dict(config)

    def tell(self, config: Config, time_us: float | None) -> None:
        """Report a result; the sampler takes it for that of its draw."""
        self._book.told(config, time_us)
        self._know(config)
        trial = self._open.pop(config_key(config), None)
        if trial is not None:
            self.study.tell(trial, objective(time_us))

    def _snapped(self, drawn: Mapping[str, float]) -> dict[str, Value] | None:
        """The drawn point where it is legal and unknown, else the nearest that is, by shares of each knob's range."""

        def choose(knob: Knob) -> Value:
            return knob.values[min(max(round(drawn.get(knob.id, 0.0)), 0), len(knob.values) - 1)]

        evaluation = self._space.evaluate(choose)
        if evaluation.violations:
            self._book.refused(evaluation.config, evaluation.violations[0])
        elif not self._book.knows(evaluation.config):
            return evaluation.config
        if not self._pool.listed:
            self._look_around(evaluation.config)
        unknown = np.flatnonzero(~self._told.known)
        if not len(unknown):
            return None
        rows = self._pool.rows[unknown]
        away = (rows - np.array([drawn[knob.id] for knob in self._knobs])) / self._spans
        away[rows > self._spans] = 0.0  # absent knobs, whose draws say nothing
        return dict(self._pool.configs[unknown[int(np.argmin((away * away).sum(axis=1)))]])

    def _look_around(self, config: Config) -> None:
        if len(self._pool) > MOST:
            kept = np.arange(len(self._pool) - HELD, len(self._pool))
            self._pool.keep(kept)
            self._told.keep(kept)
        near = [number] if (number := self._pool.find(config)) is not None else []
        self._pool.spread(near, near=_NEAR, drawn=_DRAWN)
        self._told.grow()
        for number in range(max(len(self._pool) - _NEAR - _DRAWN, 0), len(self._pool)):  # what was dropped may have come back
            self._told.known[number] |= self._book.knows(self._pool.configs[number])

    def _know(self, config: Config) -> None:
        number = self._pool.number(config)
        self._told.grow()
        self._told.known[number] = True
