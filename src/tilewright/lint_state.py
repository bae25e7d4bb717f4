"""What lint remembers of the lines it has seen."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from typing import overload

from tilewright.record import Record


class Shifted(Sequence[int]):
    """Numbers, all raised by one: few of those of a large log are ever looked at."""

    __slots__ = ("_by", "_numbers")

    def __init__(self, numbers: Sequence[int], by: int) -> None:
        self._numbers = numbers
        self._by = by

    def __len__(self) -> int:
        return len(self._numbers)

    @overload
    def __getitem__(self, place: int) -> int: ...
    @overload
    def __getitem__(self, place: slice) -> Shifted: ...
    def __getitem__(self, place: int | slice) -> int | Shifted:
        return Shifted(self._numbers[place], self._by) if isinstance(place, slice) else self._numbers[place] + self._by


class Trials:
    """Trial numbers of one session with their lines, runs of ascending ones in little memory."""

    __slots__ = ("_highest", "_runs", "_singles")

    def __init__(self) -> None:
        self._highest = -1
        self._singles: dict[int, int] = {}
        self._runs: list[tuple[Sequence[int], Sequence[int]]] = []

    def add(self, trial: int, number: int) -> int | None:
        """Take a trial; the line of an earlier one of its number, None where there is none."""
        first = None if trial > self._highest else self._find(trial)
        if first is None:
            self._singles[trial] = number
            self._highest = max(self._highest, trial)
        return first

    def add_run(self, trials: Sequence[int], numbers: Sequence[int]) -> bool:
        """Take ascending trials that all come after those taken; False where they do not."""
        if trials[0] <= self._highest:
            return False
        self._runs.append((trials, numbers))
        self._highest = trials[-1]
        return True

    def _find(self, trial: int) -> int | None:
        for trials, numbers in self._runs:
            place = bisect_left(trials, trial)
            if place < len(trials) and trials[place] == trial:
                return numbers[place]
        return self._singles.get(trial)


@dataclass(slots=True, kw_only=True)
class Reached:
    """Records of one workload and target by one protocol.

    Attributes:
        count: how many are ok and timed.
        first: line of the first.
        best_us: time of the best.
        number: its line.
        record: the best: a look-up reaches it, or a best file made from it.
    """

    count: int
    first: int
    best_us: float
    number: int
    record: Record
