"""How long a call takes on the device.

`graph`: a CUDA graph of many calls over rotating operands, replayed with events between replays. The host only has to keep
ahead of whole replays, so that neither launch overhead nor a busy machine shows (measured with 14 busy processes beside it:
events around single launches varied by 23-63%, graph replay by 1-3%; H200, 2026-11).
`events`: the same calls launched one by one between events, for what cannot be captured.
`interpreter`: wall time of a call in Triton's interpreter.

`tilewright.protocols` has their settings, and their names.
"""

from __future__ import annotations

import functools
import gc
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import ceil
from typing import Any, Final, TypeAlias

import torch

from tilewright import protocols
from tilewright.anchoring import LATENCY_BELOW_US
from tilewright.children.captured import Captured, CaptureFailed, capture
from tilewright.protocols import EVENTS_PROTOCOL, GRAPH_PROTOCOL, INTERPRETER_PROTOCOL
from tilewright.sampling import relative_interval

Take: TypeAlias = Callable[[int], list[float]]  # times a kernel that many times, in µs of one call

_QUEUE_US: Final = 2000.0  # launching a graph takes 10 µs: below this a replay is sent ahead, so that the device is never idle
_HOST_US: Final = 1000.0  # a launch takes up to 50 µs of host time: above this a single one tells a factor of three


@dataclass(slots=True, kw_only=True)
class Timed:
    """Samples of a call.

    Attributes:
        protocol: the one that was used.
        samples_us: times of one call.
        cut: whether sampling stopped since the call is hopeless.
        capture_failed: whether a capture failed, after which the process is better replaced.
        phases_ms: wall time of capturing and of replaying.
        anchor_us: times of the anchor, taken before and after each batch of samples.
        latency_us: times of the short kernel, taken at the same moments; none for a call that is too long to need it.
        kernels: of one call; None where not known.
    """

    protocol: str
    samples_us: list[float] = field(default_factory=list)
    cut: bool = False
    capture_failed: bool = False
    phases_ms: dict[str, float] = field(default_factory=dict)
    anchor_us: list[float] = field(default_factory=list)
    latency_us: list[float] = field(default_factory=list)
    kernels: float | None = None


def time_on_device(
    calls: Sequence[Callable[[], Any]],
    device: Any,
    *,
    cut_above_us: float | None,
    anchor: Take | None = None,
    latency: Take | None = None,
    while_busy: Callable[[], Any] | None = None,
) -> Timed:
    """Time calls on a CUDA (or HIP) device.

    Args:
        calls: the same call on each set of rotating operands; the kernels are loaded already.
        device: torch's.
        cut_above_us: the best time known; a call more than three times slower is cut.
        anchor: times the anchor that many times.
        latency: the same of the short kernel.
        while_busy: called once, while the device works on a batch of samples.
    """
    beside = _Beside(anchor, latency, while_busy)
    torch.cuda.synchronize(device)
    with torch.cuda.stream(stream(device)):
        began = time.perf_counter()
        # Once outside of a capture, as libraries set up what they keep for each stream (cuBLAS its workspace).
        first_us = replay(calls[0], 1, 1, lead=False)[0]
        if _hopeless(first_us, cut_above_us) and first_us > _HOST_US:
            return Timed(protocol=EVENTS_PROTOCOL, samples_us=[first_us], cut=True, phases_ms={"time": _ms_since(began)})
        try:
            return _time_graph(calls, device, first_us, cut_above_us, beside)
        except CaptureFailed:
            torch.cuda.synchronize(device)
            timed = Timed(protocol=EVENTS_PROTOCOL, capture_failed=True)
            count = _call_count(len(calls), first_us)
            _sample(timed, lambda: _run_all(calls, count), count, first_us, cut_above_us, beside)
            return timed


@dataclass(slots=True)
class _Beside:
    """What is done beside sampling."""

    anchor: Take | None
    latency: Take | None
    while_busy: Callable[[], Any] | None

    def take_anchors(self, timed: Timed, call_us: float) -> None:
        if self.anchor is not None:
            timed.anchor_us += self.anchor(protocols.ANCHOR_SAMPLES)
        if self.latency is not None and call_us < LATENCY_BELOW_US:
            timed.latency_us += self.latency(1)

    def take_busy(self) -> Callable[[], Any] | None:
        once, self.while_busy = self.while_busy, None
        return once


@functools.cache
def stream(device: Any) -> Any:
    """The stream that everything is captured and timed on."""
    return torch.cuda.Stream(device)


def _time_graph(calls: Sequence[Callable[[], Any]], device: Any, first_us: float, cut_above_us: float | None, beside: _Beside) -> Timed:
    timed = Timed(protocol=GRAPH_PROTOCOL)
    began = time.perf_counter()
    graph, probe_us = capture_long_enough(calls, device, first_us, enough_us=None if cut_above_us is None else protocols.CUT_FACTOR * cut_above_us)
    timed.kernels = graph.kernels
    try:
        timed.phases_ms["capture"] = _ms_since(began)
        _sample(timed, graph.replay, graph.calls, probe_us, cut_above_us, beside)
    finally:
        torch.cuda.synchronize(device)
        graph.reset()
    return timed


def capture_long_enough(calls: Sequence[Callable[[], Any]], device: Any, call_us: float, *, enough_us: float | None = None) -> tuple[Captured, float]:
    """A graph of as many calls as a sample needs, and the time of one call.

    Args:
        calls: the same call on each set of rotating operands.
        device: torch's.
        call_us: the time of one as the host sees it: for a short kernel, the host's own.
        enough_us: a call that takes longer needs no longer graph.

    Raises:
        CaptureFailed: the calls cannot be captured.
    """
    count = _call_count(len(calls), call_us)
    graph = capture(calls, count, device)
    try:
        probe_us = replay(graph.replay, count, 1, lead=call_us * count < _QUEUE_US)[0]
        wanted = _call_count(len(calls), probe_us)
        # Now that the device's own time is known, make the replay long enough.
        if probe_us * count < protocols.SHORTEST_REPLAY_US and wanted > count and not (enough_us is not None and probe_us > enough_us):
            graph.reset()
            graph = capture(calls, wanted, device)
    except CaptureFailed:
        raise
    except BaseException:
        graph.reset()
        raise
    return graph, probe_us


def _call_count(sets: int, call_us: float) -> int:
    """Calls to a graph: a whole number of rounds through the operand sets, long enough to time, short enough to repeat."""
    rounds = ceil(protocols.REPLAY_US / max(call_us, 0.01) / sets)
    longest = max(1, int(protocols.LONGEST_REPLAY_US / max(call_us, 0.01)))
    most = max(protocols.MOST_CALLS // sets, 1) * sets
    return min(max(rounds, 1) * sets, longest, most)


def _run_all(calls: Sequence[Callable[[], Any]], count: int) -> None:
    for index in range(count):
        calls[index % len(calls)]()


def _sample(timed: Timed, run: Callable[[], Any], calls: int, call_us: float, cut_above_us: float | None, beside: _Beside) -> None:
    """Fill in samples: at least 5 and some ms of them, until the median's 95% interval is under 1% of it or the budget is spent.

    Args:
        timed: gets them.
        run: sends `calls` calls to the device.
        calls: how many.
        call_us: the time of one, roughly.
        cut_above_us: as in `time_on_device`.
        beside: the anchor, timed before and after each batch, and what may be done while the device is busy.
    """
    began = time.perf_counter()
    if not _hopeless(call_us, cut_above_us):
        beside.take_anchors(timed, call_us)
    lead = call_us * calls < _QUEUE_US
    samples: list[float] = []
    spent_us = 0.0
    while len(samples) < protocols.MOST_SAMPLES:
        short = protocols.FEWEST_SAMPLES - len(samples)
        affordable = int((protocols.BUDGET_US - spent_us) / (call_us * calls))
        # The first look comes early, so that a hopeless call is cut after one.
        looking = not samples and _hopeless(call_us, cut_above_us)
        most = 1 if looking else max(1, int(protocols.BETWEEN_ANCHORS_US / (call_us * calls)))
        size = min(max(short, min(protocols.BATCH, affordable)), most)
        enough = spent_us >= protocols.LEAST_US and short <= 0 and relative_interval(samples) < protocols.INTERVAL
        if size <= 0 or enough:
            break
        samples += replay(run, calls, size, lead=lead, while_busy=None if looking else beside.take_busy())
        call_us = statistics.median(samples)
        spent_us += call_us * calls * (size + lead)
        if _hopeless(call_us, cut_above_us):
            timed.cut = True
            break
        beside.take_anchors(timed, call_us)
    timed.samples_us = samples
    timed.phases_ms["time"] = _ms_since(began)


def replay(run: Callable[[], Any], calls: int, repeats: int, *, lead: bool, while_busy: Callable[[], Any] | None = None) -> list[float]:
    """Times of one call in µs, from each of `repeats` runs of `calls` calls, sent to the device without a wait between.

    `while_busy` is called once all are sent, while the device works on them.
    """
    events = [torch.cuda.Event(enable_timing=True) for _ in range(repeats + 1)]
    if lead:
        run()  # keeps the device busy while the host sends the rest
    events[0].record()
    for event in events[1:]:
        run()
        event.record()
    if while_busy is not None:
        while_busy()
    events[-1].synchronize()
    return [start.elapsed_time(end) * 1000 / calls for start, end in zip(events, events[1:], strict=False)]


def _hopeless(call_us: float, cut_above_us: float | None) -> bool:
    return cut_above_us is not None and call_us > protocols.CUT_FACTOR * cut_above_us


def time_interpreted(call: Callable[[], Any], *, wall_us: float, cut_above_us: float | None) -> Timed:
    """Wall times of a call in the interpreter: the checked run's, and up to two more where they are short."""
    began = time.perf_counter()
    timed = Timed(protocol=INTERPRETER_PROTOCOL, samples_us=[wall_us], cut=_hopeless(wall_us, cut_above_us))
    while not timed.cut and len(timed.samples_us) < protocols.INTERPRETER_RUNS:
        if time.perf_counter() - began + statistics.fmean(timed.samples_us) * 1e-6 > protocols.INTERPRETER_S:
            break
        started = time.perf_counter()
        call()
        timed.samples_us.append((time.perf_counter() - started) * 1e6)
    timed.phases_ms["time"] = _ms_since(began)
    return timed


def settle_memory() -> None:
    """Put everything alive beyond the garbage collector's reach, so that `collect` has only a candidate's leavings to look at."""
    gc.collect()
    gc.freeze()


def collect() -> None:
    """Free what a candidate left in cycles, as modules and Triton's functions do."""
    gc.collect()


def _ms_since(began: float) -> float:
    return round((time.perf_counter() - began) * 1000, 3)
