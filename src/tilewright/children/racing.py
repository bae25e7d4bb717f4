"""A race: captured graphs of several schedules replayed in turns, so that heat, clocks and neighbours are the same for all."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any, Final

import torch

from tilewright.anchoring import AnchorKind
from tilewright.children import timing
from tilewright.children.anchors import Anchors
from tilewright.children.buffers import bits_of
from tilewright.children.captured import Captured, CaptureFailed
from tilewright.children.check import compare_all
from tilewright.children.failure import CandidateFailed
from tilewright.children.operands import Operands
from tilewright.children.sensors import Sensors
from tilewright.record import Status

# At 300 µs a turn, 10 racers take 3 ms a round: 60 rounds are 0.2 s.
_BUDGET_US: Final = 400_000.0  # guess: of device time for one workload, where its rounds are short enough
_MOST_ROUNDS: Final = 60  # the median's 95% interval then spans 16 of 60 ranks
_LEAST_ROUNDS: Final = 12  # the median's 95% interval leaves out the two extremes on either side
_LONGEST_US: Final = 1_500_000.0  # of device time for the least rounds; slower kernels get fewer
_FEWEST_ROUNDS: Final = 4
HUNG_S: Final = 2.0  # guess: a turn takes 0.3 to 60 ms
_HUNG_TIMES: Final = 20.0  # guess: times what it took before, for the slowest
_POLL_S: Final = 0.0001  # guess: short beside a batch of some ms
_AT_ONCE: Final = 4  # rounds sent to the device without a wait between: enough that it never idles, some 50 events


@dataclass(slots=True, kw_only=True)
class Entrant:
    """One that runs in the race.

    Attributes:
        graph: what a turn replays.
        call_us: roughly, of one call.
        last_set: the rotating set that the last call of a turn writes; None for a vendor, whose outputs are its own.
        status, message: how it stands.
        times_us: of one call, by round.
    """

    graph: Captured
    call_us: float
    last_set: int | None
    status: Status = Status.OK
    message: str = ""
    times_us: list[float] = field(default_factory=list)


class RacerFailed(Exception):
    """A racer hangs, or breaks the context. This process is of no more use.

    Attributes:
        place: among those that entered.
        status, message: how it failed.
    """

    def __init__(self, place: int, status: Status, message: str) -> None:
        super().__init__(message)
        self.place, self.status, self.message = place, status, message


class Race:
    """Entrants on the same operands.

    Args:
        operands: of the workload; fresh inputs are drawn, and the rotating sets hold them.
        device: torch's.
        anchors: are timed in every round.
        kind: which of them tells of this workload.
        sensors: tell clocks and power.
    """

    def __init__(self, operands: Operands, device: Any, *, anchors: Anchors | None, kind: AnchorKind, sensors: Sensors) -> None:
        self.operands = operands
        self._device = device
        self._anchors, self._kind, self._sensors = anchors, kind, sensors
        self.stack = ExitStack()  # what entrants keep open: their modules
        self._entrants: list[Entrant] = []
        operands.draw()
        operands.refresh_sets()

    def enter(self, calls: Sequence[Callable[[], Any]], *, checks: bool) -> None:
        """Capture a checked candidate's calls.

        Args:
            calls: one for each rotating set.
            checks: whether what the graph computes can be compared afterwards.

        Raises:
            CandidateFailed: it cannot be captured.
        """
        torch.cuda.synchronize(self._device)
        with torch.cuda.stream(timing.stream(self._device)):
            first_us = timing.replay(calls[0], 1, 1, lead=False)[0]
            try:
                graph, call_us = timing.capture_long_enough(calls, self._device, first_us)
            except CaptureFailed as error:
                raise CandidateFailed(Status.LAUNCH_ERROR, f"it cannot be captured in a graph, and only graphs race: {error}", spoiled=False) from error
        self.stack.callback(graph.reset)
        last = (graph.calls - 1) % len(calls) if checks and not self.operands.spec.mutates else None
        self._entrants.append(Entrant(graph=graph, call_us=call_us, last_set=last))

    def run(self, rounds: int | None = None) -> dict[str, Any]:
        """All rounds, then a check of what the very graphs that were timed compute.

        Args:
            rounds: that many, in place of what the budget allows.

        Raises:
            RacerFailed: one hangs, or breaks the context.
        """
        anchor_us: list[float] = []
        state = None
        anchor = self._anchors.graph(self._kind) if self._anchors is not None else None
        with torch.cuda.stream(timing.stream(self._device)):
            left = rounds = rounds or self._rounds()
            while left > 0:
                batch = min(_AT_ONCE, left)
                turns = [turn for number in range(rounds - left, rounds - left + batch) for turn in order(len(self._entrants), number)]
                anchor_us += self._turns(turns, anchor)
                if state is None or left <= _AT_ONCE:
                    state = self._sensors.read()
                left -= batch
            for place in range(len(self._entrants)):
                self._verify(place)
        told = self._anchors.told(self._kind, anchor_us) if self._anchors is not None else None
        return {"entrants": self._entrants, "anchor": told, "state": state, "rounds": rounds}

    def close(self) -> None:
        """Free the graphs and what they hold."""
        torch.cuda.synchronize(self._device)
        self._entrants = []
        self.stack.close()

    def _rounds(self) -> int:
        round_us = sum(entrant.call_us * entrant.graph.calls for entrant in self._entrants) or 1.0
        wanted = max(_LEAST_ROUNDS, min(_MOST_ROUNDS, int(_BUDGET_US / round_us)))
        affordable = max(_FEWEST_ROUNDS, int(_LONGEST_US / round_us))
        return min(wanted, affordable) // 2 * 2  # even: each order has its reverse

    def _turns(self, turns: Sequence[int], anchor: Captured | None) -> list[float]:
        """Replay entrants in turn, all sent at once; returns times of the anchor, which runs first and last."""
        events = [torch.cuda.Event(enable_timing=True) for _ in range(len(turns) + 1)]
        edges = [torch.cuda.Event(enable_timing=True) for _ in range(2)]
        # Keeps the device busy while the host sends the rest.
        (anchor or self._entrants[turns[0]].graph).replay()
        if anchor is not None:
            edges[0].record()
            anchor.replay()
        events[0].record()
        for place, event in zip(turns, events[1:], strict=True):
            self._entrants[place].graph.replay()
            event.record()
        if anchor is not None:
            anchor.replay()
            edges[1].record()
        for place, event in zip(turns, events[1:], strict=True):
            self._await(place, event)
        torch.cuda.synchronize(self._device)
        for place, start, end in zip(turns, events, events[1:], strict=False):
            entrant = self._entrants[place]
            entrant.times_us.append(start.elapsed_time(end) * 1000 / entrant.graph.calls)
        if anchor is None:
            return []
        return [edges[0].elapsed_time(events[0]) * 1000 / anchor.calls, events[-1].elapsed_time(edges[1]) * 1000 / anchor.calls]

    def _await(self, place: int, event: Any) -> None:
        """Wait for the end of a racer's turn, all before it being done: what does not end then is this one's fault."""
        entrant = self._entrants[place]
        allowed_s = max(HUNG_S, _HUNG_TIMES * entrant.call_us * entrant.graph.calls * 1e-6)
        limit = time.monotonic() + allowed_s
        try:
            while not event.query():
                if time.monotonic() > limit:
                    raise RacerFailed(place, Status.RUN_TIMEOUT, f"its turn did not end within {allowed_s:g} s")
                time.sleep(_POLL_S)
        except RacerFailed:
            raise
        except Exception as error:  # a broken context answers so, whatever it is asked
            raise RacerFailed(place, Status.CRASH, f"{type(error).__name__}: {error}") from error

    def _verify(self, place: int) -> None:
        """Whether the graph that was timed computes what the checked call did: a launch may behave otherwise once it was checked."""
        entrant = self._entrants[place]
        if entrant.last_set is None:
            return
        outputs = self.operands.ready_set(entrant.last_set)
        for tensor, guarded in zip(outputs, self.operands.outputs, strict=True):
            bits_of(tensor).fill_(guarded.pattern(0))
        torch.cuda.synchronize(self._device)
        try:
            entrant.graph.replay()
            done = torch.cuda.Event()
            done.record()
            self._await(place, done)
            compare_all(self.operands, outputs)
        except CandidateFailed as failed:
            entrant.status, entrant.message, entrant.times_us = failed.status, f"what was timed does not compute what was checked: {failed.message}", []


def order(count: int, number: int) -> list[int]:
    """The order of a round: ABC, then CBA, then the same from the next on, BCA, ACB, and so on."""
    shift = number // 2 % count if count else 0
    forward = [(place + shift) % count for place in range(count)]
    return forward[::-1] if number % 2 else forward
