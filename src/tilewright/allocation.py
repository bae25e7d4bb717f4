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
        weight: what a share of its time is worth next to the same share of another's.
        asked: trials given to it, some of them still being built.
        ahead: builds besides, of which a wide searcher will choose.
        running: trials on the device, or next there.
        done: trials told.
        best_us: the best time after each trial told, in order; trials before the first correct one are left out.
    """

    weight: float = 1.0
    asked: int = 0
    ahead: int = 0
    running: int = 0
    done: int = 0
    best_us: list[float] = field(default_factory=list)

    def told(self, best_us: float | None) -> None:
        """Note the best time after one more trial; None where there is none yet."""
        self.done += 1
        if best_us is not None:
            self.best_us.append(best_us)

    @property
    def gain(self) -> float:
        """Expected gain of one more trial: the share of its time that it may save, weighted.

        As in Ansor's task scheduler (Zheng and others, OSDI 2020, section 6), it is the larger of what the last trials gained and what
        optimism allows, which fades with the trials spent. Unlike there, gains are shares and not times: in a session of 5 GEMMs from
        16 to 180 µs the time-weighted rule gave the smallest 18 trials and the largest 196, and left it 8% behind (H200, 2026-11).
        """
        if not self.best_us:
            return 0.0
        recent = self.best_us[-WINDOW - 1 :]
        slope = log(recent[0] / recent[-1]) / max(1, len(recent) - 1)
        return self.weight * max(slope, HOPE / max(self.asked, 1))


def choose(standings: Sequence[tuple[_K, Standing]], *, built: bool = False) -> _K | None:
    """Whose turn it is: each up to its least share, those behind first; then the steepest. None where there is nobody.

    Args:
        standings: who takes part.
        built: whether the turn is to measure what is built, so that trials done count; else to ask, so that trials asked do.
    """
    if not standings:
        return None

    def spent(item: tuple[_K, Standing]) -> int:
        return item[1].done + item[1].running if built else item[1].asked + item[1].ahead

    behind = min(standings, key=spent)
    if spent(behind) < LEAST_TRIALS:
        return behind[0]
    # One without a correct result in all of its least share goes on after the others.
    return max(standings, key=lambda item: item[1].gain)[0]
