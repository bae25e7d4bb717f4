"""Configs as parameters of an Optuna trial, and times as its objective."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from optuna.distributions import BaseDistribution, CategoricalDistribution, IntDistribution
from optuna.trial import Trial

from tilewright.knobs import Knob, Value
from tilewright.record import Config

if TYPE_CHECKING:
    from tilewright.space import SearchSpace

# Objective of a point that is refused or failed: log of a time that no kernel takes. TPE only ranks, and a finite penalty
# teaches it where failures lie (trials told as FAIL teach it nothing: 4.7 asks an evaluation instead of 1.3).
PENALTY: Final = math.log(1e12)


def objective(time_us: float | None) -> float:
    """What a trial is told: the log of its time in µs, or the penalty."""
    return PENALTY if time_us is None else math.log(time_us)


def failed(value: float | None) -> bool:
    """Whether an objective stands for a failure."""
    return value is None or value >= PENALTY


def distribution_of(knob: Knob) -> BaseDistribution:
    """Positions among the candidates: integers where neighbours are alike, else categories."""
    count = len(knob.values)
    return IntDistribution(0, count - 1) if knob.ordered else CategoricalDistribution(range(count))


def suggest(trial: Trial, knob: Knob) -> Value:
    """A knob's value as a trial has it."""
    count = len(knob.values)
    index = trial.suggest_int(knob.id, 0, count - 1) if knob.ordered else trial.suggest_categorical(knob.id, range(count))
    return knob.values[index]


def parameters(space: SearchSpace, config: Config) -> tuple[dict[str, int], dict[str, BaseDistribution]]:
    """A config's parameters, and their distributions."""
    params: dict[str, int] = {}
    distributions: dict[str, BaseDistribution] = {}

    def choose(knob: Knob) -> Value:
        params[knob.id] = knob.index(config[knob.name])
        distributions[knob.id] = distribution_of(knob)
        return config[knob.name]

    space.evaluate(choose)
    return params, distributions


def encoded(space: SearchSpace, config: Config) -> dict[str, int]:
    """A config's parameters."""
    return parameters(space, config)[0]


class _Foreign(Exception):
    """A parameter that the space asks for is not among the trial's."""


def decoded(space: SearchSpace, params: Mapping[str, Any]) -> dict[str, Value] | None:
    """The legal config that parameters stand for; None where they stand for none."""

    def choose(knob: Knob) -> Value:
        if knob.id not in params:
            raise _Foreign
        return knob.values[int(params[knob.id])]

    try:
        evaluation = space.evaluate(choose)
    except _Foreign:
        return None
    return None if evaluation.violations else evaluation.config
