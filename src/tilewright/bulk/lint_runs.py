"""Runs of a session's trials and starts, as they are sent from process to process and told to a `Lint`."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Any

from tilewright.lint_state import Shifted


def run_columns(trials: Sequence[int], numbers: Sequence[int], starts: Sequence[int]) -> list[Any]:
    """A run in plain values, a third as long as with eight bytes a number: what another process answers is waited for.

    Args:
        trials: numbers of trials, mostly each the next of the one before.
        numbers: their lines, ascending.
        starts: lines of starts, ascending.
    """
    code = "q" if max((*numbers[-1:], *starts[-1:]), default=0) >> 32 else "I"
    return [_plain(trials), code, array(code, numbers).tobytes(), array(code, starts).tobytes()]


def run_of(columns: Sequence[Any], before: int) -> tuple[Sequence[int], Sequence[int], Sequence[int]]:
    """Trials, numbers and starts, of a part before which there are so many lines."""
    trials, code, numbers, starts = columns
    return (
        array("q", trials) if isinstance(trials, bytes) else range(*trials),
        Shifted(array(code, numbers), before),
        Shifted(array(code, starts), before),
    )


def _plain(trials: Sequence[int]) -> bytes | list[int]:
    if trials and trials[-1] - trials[0] == len(trials) - 1 and trials == list(range(trials[0], trials[-1] + 1)):
        return [trials[0], trials[-1] + 1]
    return array("q", trials).tobytes()
