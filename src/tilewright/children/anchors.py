"""The anchors' graphs, captured once and kept while the process lives."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import torch

from tilewright.anchoring import AnchorKind, AnchorPlan, anchor_plans
from tilewright.children import timing
from tilewright.children.captured import Captured, capture
from tilewright.record import Anchor
from tilewright.sampling import median
from tilewright.target import Target

# To a replay: its start, 1-2 µs, is then 1-3% of it, and the same each time.
_CALLS: Final[Mapping[AnchorKind, int]] = {"compute": 1, "memory": 2, "latency": 40}
_SEED: Final = 7


class Anchors:
    """A target's anchors on a device.

    Args:
        target: says what they do.
        device: torch's.

    Attributes:
        calls: what runs each of them, by kind: calls to take turns in.

    Raises:
        torch.OutOfMemoryError: there is no room for them (some 250 MB on an H200).
    """

    def __init__(self, target: Target, device: Any) -> None:
        self._plans = anchor_plans(target)
        self.calls: Mapping[AnchorKind, Sequence[Callable[[], Any]]] = _calls(self._plans, device)
        torch.cuda.synchronize(device)
        with torch.cuda.stream(timing.stream(device)):
            for calls in self.calls.values():
                calls[0]()  # outside of a capture, where libraries set up what they keep for a stream
            self._graphs: Mapping[AnchorKind, Captured] = {kind: capture(calls, _CALLS[kind], device) for kind, calls in self.calls.items()}

    def taker(self, kind: AnchorKind) -> timing.Take | None:
        """Times the anchor of a kind that many times, in µs of one call; None where there is no such anchor."""
        graph = self._graphs.get(kind)
        if graph is None:
            return None

        def take(repeats: int) -> list[float]:
            return timing.replay(graph.replay, graph.calls, repeats, lead=True)

        return take

    def graph(self, kind: AnchorKind) -> Captured | None:
        """What replays the anchor of a kind."""
        return self._graphs.get(kind)

    def told(self, kind: AnchorKind, samples_us: Sequence[float]) -> Anchor | None:
        """What a record holds of samples of the anchor."""
        if kind not in self._plans or not samples_us:
            return None
        return Anchor(kind=kind, median_us=round(median(samples_us), 3), nominal_us=self._plans[kind].nominal_us, samples=len(samples_us))


def _calls(plans: Mapping[AnchorKind, AnchorPlan], device: Any) -> dict[AnchorKind, list[Callable[[], Any]]]:
    generator = torch.Generator(device=device).manual_seed(_SEED)
    found: dict[AnchorKind, list[Callable[[], Any]]] = {}
    if "compute" in plans:
        plan = plans["compute"]
        m, n, k = plan.shape
        dtype = getattr(torch, plan.dtype)
        # Random data: zeros draw less power, and so run faster.
        a = torch.randn(m, k, device=device, generator=generator).to(dtype)
        b = torch.randn(k, n, device=device, generator=generator).to(dtype)
        found["compute"] = [functools.partial(torch.mm, a, b, out=torch.empty(m, n, device=device, dtype=dtype))]
    if "memory" in plans:
        source = torch.randn(plans["memory"].copy_bytes // 4, device=device, generator=generator)
        # An elementwise kernel: a copy of contiguous tensors becomes a memcpy, which may go another way through the memory system.
        destination = torch.empty_like(source)
        found["memory"] = [functools.partial(torch.add, source, 1.0, out=destination)]
        if "latency" in plans:
            # Of its parts in turn, so that the short kernel finds as little in L2 as the copy does.
            parts = zip(source.split(plans["latency"].copy_bytes // 4), destination.split(plans["latency"].copy_bytes // 4), strict=True)
            found["latency"] = [functools.partial(torch.add, one, 1.0, out=other) for one, other in parts]
    return found
