"""Probing: meet a schedule's knobs, and find candidates that depend on other knobs, before a search does."""

from __future__ import annotations

import random
from math import prod
from typing import Final

from tilewright.declare import Declared, Pick, Schedule, run_pass
from tilewright.errors import TemplateError

# Candidates of one knob that are tried; of a longer list, about as many at even steps.
# guess: a list that depends on another knob differs at some of the first, last and evenly spread points.
_CANDIDATES: Final = 64
# Random passes that look for knobs under nested conditions, after every candidate has been tried once by itself. guess.
_WALKS: Final = 64


def probe(schedule: Schedule) -> int:
    """Run a new schedule at its first candidates, then at each other candidate of one knob at a time, then at random.

    A knob that appears at one candidate of another is tried beside that candidate, so chains of conditions are followed.

    Returns:
        The largest product of candidate counts on a path, over the passes made.

    Raises:
        SpaceError: a declaration breaks the rules at a point looked at.
        TemplateError: the schedule fails at a point that no require refuses.
    """
    heaviest = 1

    def look(pick: Pick) -> list[Declared]:
        nonlocal heaviest
        path: list[Declared] = []
        refused: list[str] = []

        def noted(declared: Declared) -> int:
            path.append(declared)
            return pick(declared)

        try:
            run_pass(schedule, noted, collecting=True, violations=refused)
        except TemplateError:
            if not refused:  # behind a failed require, a template may well divide by zero
                raise
        heaviest = max(heaviest, prod(declared.size for declared in path))
        return path

    pending: list[tuple[dict[str, int], Declared]] = [({}, declared) for declared in look(lambda declared: 0)]
    met = {declared.name for _, declared in pending}
    while pending:
        choices, turned = pending.pop(0)
        step = max(1, turned.size // _CANDIDATES)
        for index in sorted({*range(1, turned.size, step), turned.size - 1}):
            tried = {**choices, turned.name: index}
            for declared in look(lambda declared, tried=tried: tried.get(declared.name, 0)):  # type: ignore[misc]
                if declared.name not in met:
                    met.add(declared.name)
                    pending.append((tried, declared))
    if not schedule.fixed_path:
        rng = random.Random(0)
        for _ in range(_WALKS):
            look(lambda declared: rng.randrange(declared.size))
    return heaviest
