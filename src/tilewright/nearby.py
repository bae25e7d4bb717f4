"""The nearest workloads to one that is missing, and what they differ in. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable

from tilewright.workload import Workload

_SHOWN = 3  # guess: enough to see a pattern


def distance(wanted: Workload, other: Workload) -> tuple[int, int, float, str]:
    """How far two workloads are apart: differing words, differing dims, then the dims' sizes in powers of two."""
    words = sum(wanted.parameters.get(name) != other.parameters.get(name) for name in {*wanted.dtypes, *wanted.layout, *other.dtypes, *other.layout})
    names = {*wanted.dims, *other.dims}
    dims = sum(wanted.dims.get(name) != other.dims.get(name) for name in names)
    sizes = math.fsum(abs(math.log2(wanted.dims.get(name, 1) / other.dims.get(name, 1))) for name in sorted(names))
    return (words, dims, sizes, other.key)


def nearest_workloads(wanted: Workload, known: Iterable[Workload], shown: int = _SHOWN) -> list[Workload]:
    """The nearest ones of the same operator, the nearest first."""
    alike = {other.key: other for other in known if other.operator == wanted.operator}
    return sorted(alike.values(), key=lambda other: distance(wanted, other))[:shown]


def differing(wanted: Workload, other: Workload) -> str:
    """The fields in which two workloads differ, such as `M (17, not 16)`: the first is wanted, the second is there."""
    ours, theirs = wanted.parameters, other.parameters
    names = [name for name in {**ours, **theirs} if ours.get(name) != theirs.get(name)]
    return ", ".join(f"{name} ({ours.get(name, 'absent')}, not {theirs.get(name, 'absent')})" for name in names) or "nothing"
