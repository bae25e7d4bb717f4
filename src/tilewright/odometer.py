"""Enumeration of a define-by-run space: an odometer whose wheels appear as a pass comes to them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tilewright.declare import Cfg, Cut, Declared, Schedule, run_pass
from tilewright.knobs import Value


class Odometer:
    """Picks that visit all points in order: it repeats a path, and then turns the last wheel that can turn.

    Args:
        fixed: values that some knobs keep; one that is no candidate cuts the path.
    """

    __slots__ = ("_ends", "_path", "depth", "fixed")

    def __init__(self, fixed: Mapping[str, Value]) -> None:
        self.fixed = fixed
        self.depth = 0
        self._path: list[int] = []
        self._ends: list[int] = []

    def pick(self, declared: Declared) -> int:
        """The candidate that the knob has on this path; the first one where the path is new."""
        depth = self.depth
        self.depth = depth + 1
        if depth < len(self._path):
            return self._path[depth]
        first, end = 0, declared.size
        if declared.name in self.fixed:
            found = declared.knob.find(self.fixed[declared.name])
            if found is None:
                raise Cut
            first, end = found, found + 1
        self._path.append(first)
        self._ends.append(end)
        return first

    def advance(self) -> bool:
        """Turn to the next path; False after the last."""
        self.depth = 0
        while self._path:
            self._path[-1] += 1
            if self._path[-1] < self._ends[-1]:
                return True
            self._path.pop()
            self._ends.pop()
        return False


def walk(schedule: Schedule, fixed: Mapping[str, Value], *, first: Mapping[str, Value] | None = None, cutting: bool = True) -> Iterator[Cfg]:
    """A pass for each point that has the fixed values, the last knob varying fastest.

    Args:
        schedule: whose points.
        fixed: values by knob; one that is no candidate cuts.
        first: by knob, the value that comes before its other ones; one that is no candidate is passed over.
        cutting: a failed require cuts its whole subtree, which is passed over; else it is noted, and all points are visited.
    """
    odometer = Odometer(fixed)
    before = {name: value for name, value in (first or {}).items() if name not in fixed}

    def pick(declared: Declared) -> int:
        place = odometer.pick(declared)
        early = declared.knob.find(before[declared.name]) if declared.name in before else None
        return place if early is None else early if place == 0 else place - (place <= early)

    while True:
        yield run_pass(schedule, pick if before else odometer.pick, cutting=cutting)
        if not odometer.advance():
            return
