"""A config of one workload as a config of another: the same tiles, where the other's space has them. Pure."""

from __future__ import annotations

from math import log2

from tilewright.errors import SpaceError
from tilewright.knobs import Knob
from tilewright.record import Config, Value
from tilewright.space import SearchSpace
from tilewright.workload import Workload


def translate(config: Config, space: SearchSpace) -> dict[str, Value] | None:
    """The config of a space that makes the same choices as a config of another workload, None where there is none.

    A split says the same if all its parts but the outermost agree: that one follows from the extent. A knob that exists only in this
    space takes no part in the other's choices, so there is no translation.
    """

    def choose(knob: Knob) -> Value:
        if knob.name not in config:
            raise SpaceError(f"config {dict(config)!r} has no value for knob {knob.name!r}")
        return knob.values[knob.carried(config[knob.name])]

    try:
        evaluation = space.evaluate(choose)
    except SpaceError:
        return None
    return None if evaluation.violations else evaluation.config


def distance(one: Workload, other: Workload) -> float:
    """How unlike two workloads of an operator are: by how many doublings their dims differ, and 8 for each dtype or layout that does."""
    doublings = sum(abs(log2(one.dims.get(name, 1) / other.dims.get(name, 1))) for name in {*one.dims, *other.dims})
    words = {**one.dtypes, **one.layout}.items() ^ {**other.dtypes, **other.layout}.items()
    return doublings + 8 * len({name for name, _ in words})
