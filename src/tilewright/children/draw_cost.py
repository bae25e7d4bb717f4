"""How long fresh inputs take, without waiting for them."""

from __future__ import annotations

import time
from typing import Any

import torch


class DrawCost:
    """What a draw takes: the host's time to ask for it, or the device's to do it, whichever is longer.

    Args:
        device: torch's.
    """

    def __init__(self, device: Any) -> None:
        self._began = time.perf_counter()
        self._host_s = 0.0
        self._events = [torch.cuda.Event(enable_timing=True) for _ in range(2)] if device.type == "cuda" else []
        if self._events:
            self._events[0].record()

    def end(self) -> None:
        """All of it is asked for."""
        self._host_s = time.perf_counter() - self._began
        if self._events:
            self._events[1].record()

    def seconds(self) -> float:
        """Its cost; waits for the device."""
        if not self._events:
            return self._host_s
        self._events[1].synchronize()
        device_s: float = self._events[0].elapsed_time(self._events[1]) * 1e-3
        return max(self._host_s, device_s)
