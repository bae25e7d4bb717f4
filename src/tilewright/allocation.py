"""Which workload of a session gets the next trial: the one whose expected gain, times its weight, is steepest. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import log
from typing import Final, TypeVar

# Trials that each workload gets before gains are compared. guess: the author's suggestions and a first look around.
LEAST_TRIALS: Final = 8
# Trials over which a workload's recent gain is taken. guess: a batch or two; Ansor looks back over 3 rounds of 64.
WINDOW: Final = 12
# How much a workload may still gain, as a share of its time, before anything is known of it. guess: between what 8 trials leave
# on the recorded GEMM shapes with a model (2%) and without one (32%; H200, November 2026, docs/decisions/0001).
HOPE: Final = 0.2

_K = TypeVar("_K")


@dataclass(slots=True, kw_only=True)
class Standing:
    """How far one workload has come.

    Attributes:
        weight: what a microsecond of it is worth next to one of the others, such as its calls a second.
        asked: trials given to it.
        best_us: the best time after each trial told, in order; trials before the first correct one are left out.
    """

    weight: float = 1.0
    asked: int = 0
    best_us: list[float] = field(default_factory=list)

    def told(self, best_us: float | None) -> None:
        """Note the best time after one more trial; None where there is none yet."""
        if best_us is not None:
            self.best_us.append(best_us)

    @property
    def gain_us(self) -> float:
        """Expected gain of one more trial, in weighted µs.

        As in Ansor's task scheduler (Zheng and others, OSDI 2020, section 6), it is the larger of what the last trials gained and what
        optimism allows, which fades with the trials spent. Gains are relative to the time: a share of a slow workload is worth more.
        """
        if not self.best_us:
            return float("inf")
        now = self.best_us[-1]
        recent = self.best_us[-WINDOW - 1 :]
        slope = log(recent[0] / now) / max(1, len(recent) - 1)
        return self.weight * now * max(slope, HOPE / self.asked)


def choose(standings: Sequence[tuple[_K, Standing]]) -> _K | None:
    """Who asks next: each up to its least share in turn, then the steepest; None where there is nobody."""
    if not standings:
        return None
    behind = min(standings, key=lambda item: item[1].asked)
    if behind[1].asked < LEAST_TRIALS:
        return behind[0]
    # No correct result in all of the least share: it goes on with the others, but not before them.
    finite = [item for item in standings if item[1].best_us]
    return max(finite, key=lambda item: item[1].gain_us)[0] if finite else behind[0]
