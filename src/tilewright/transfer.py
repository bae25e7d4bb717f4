"""A config of one workload as a config of another: the same tiles, where the other's space has them. Pure."""

from __future__ import annotations

from math import log2

from tilewright.knobs import Knob
from tilewright.record import Config, Value
from tilewright.space import SearchSpace
from tilewright.workload import Workload


class _NoSuch(Exception):
    """The other space has no such value."""


def translate(config: Config, space: SearchSpace) -> dict[str, Value] | None:
    """The config of a space that makes the same choices as a config of another workload, None where there is none.

    A split says the same if all its parts but the outermost agree: that one follows from the extent. Knobs that exist only in this
    space take no part in the other's choices, so there is no translation.
    """

    def choose(knob: Knob) -> Value:
        if knob.name not in config:
            raise _NoSuch
        value = config[knob.name]
        if knob.find(value) is not None:
            return value
        if knob.kind == "split" and isinstance(value, list):
            for candidate in knob.values:
                if isinstance(candidate, list) and candidate[1:] == value[1:]:
                    return candidate
        raise _NoSuch

    try:
        evaluation = space.evaluate(choose)
    except _NoSuch:
        return None
    return None if evaluation.violations else evaluation.config


def distance(one: Workload, other: Workload) -> float:
    """How unlike two workloads of an operator are: by how many doublings their dims differ, and 8 for each dtype or layout that does."""
    doublings = sum(abs(log2(one.dims.get(name, 1) / other.dims.get(name, 1))) for name in {*one.dims, *other.dims})
    words = {**one.dtypes, **one.layout}.items() ^ {**other.dtypes, **other.layout}.items()
    return doublings + 8 * len({name for name, _ in words})
