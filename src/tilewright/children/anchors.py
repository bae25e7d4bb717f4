"""The anchors' graphs, captured once and kept while the process lives."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import torch

from tilewright.anchoring import AnchorKind, AnchorPlan, anchor_plans
from tilewright.children import timing
from tilewright.record import Anchor
from tilewright.sampling import median
from tilewright.target import Target

Take = Callable[[int], list[float]]

# To a replay: its start, 1-2 µs, is then 1-3% of it, and the same each time.
_CALLS: Final[Mapping[AnchorKind, int]] = {"compute": 1, "memory": 2}
_SEED: Final = 7


class Anchors:
    """A target's anchors on a device.

    Args:
        target: says what they do.
        device: torch's.

    Attributes:
        calls: what runs each of them once, by kind.

    Raises:
        torch.OutOfMemoryError: there is no room for them (some 250 MB on an H200).
    """

    def __init__(self, target: Target, device: Any) -> None:
        self._plans = anchor_plans(target)
        generator = torch.Generator(device=device).manual_seed(_SEED)
        self.calls: Mapping[AnchorKind, Callable[[], Any]] = {kind: _call(plan, device, generator) for kind, plan in self._plans.items()}
        torch.cuda.synchronize(device)
        with torch.cuda.stream(timing.stream(device)):
            for call in self.calls.values():
                call()  # outside of a capture, where libraries set up what they keep for a stream
            self._graphs: Mapping[AnchorKind, Any] = {kind: timing.capture([call], _CALLS[kind], device) for kind, call in self.calls.items()}

    def taker(self, kind: AnchorKind) -> Take | None:
        """Times the anchor of a kind that many times, in µs of one call; None where there is no such anchor."""
        graph = self._graphs.get(kind)
        if graph is None:
            return None

        def take(repeats: int) -> list[float]:
            return timing.replay(graph.replay, _CALLS[kind], repeats, lead=True)

        return take

    def graph(self, kind: AnchorKind) -> tuple[Callable[[], Any], int] | None:
        """What replays the anchor of a kind, and how many calls that is."""
        graph = self._graphs.get(kind)
        return None if graph is None else (graph.replay, _CALLS[kind])

    def told(self, kind: AnchorKind, samples_us: list[float]) -> Anchor | None:
        """What a record holds of samples of the anchor."""
        if kind not in self._plans or not samples_us:
            return None
        return Anchor(kind=kind, median_us=round(median(samples_us), 3), nominal_us=self._plans[kind].nominal_us, samples=len(samples_us))


def _call(plan: AnchorPlan, device: Any, generator: Any) -> Callable[[], Any]:
    if plan.kind == "compute":
        m, n, k = plan.shape
        dtype = getattr(torch, plan.dtype)
        # Random data: zeros draw less power, and so run faster.
        a = torch.randn(m, k, device=device, generator=generator).to(dtype)
        b = torch.randn(k, n, device=device, generator=generator).to(dtype)
        c = torch.empty(m, n, device=device, dtype=dtype)
        return lambda: torch.mm(a, b, out=c)
    source = torch.randn(plan.copy_bytes // 4, device=device, generator=generator)
    # An elementwise kernel: a copy of contiguous tensors becomes a memcpy, which may go another way through the memory system.
    destination = torch.empty_like(source)
    return lambda: torch.add(source, 1.0, out=destination)
