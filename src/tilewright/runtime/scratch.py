"""Scratch memory of schedules: one block for each stream and thread, kept from call to call."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, Final

from .device import Runtime

_BLOCKS: Final = 64  # guess: streams times threads of one process that use one operator


class Scratch:
    """Blocks of one device.

    Calls on one stream run one after another, so they may share a block; but two threads that share a stream may launch in between each other's
    kernels, so each thread has its own. A stream that is being captured gets a fresh block each time: the graph owns it, and outlives the pool.

    Args:
        runtime: the device runtime.
        device: torch's device.
    """

    def __init__(self, runtime: Runtime, device: Any) -> None:
        self._runtime = runtime
        self._device = device
        self._blocks: dict[tuple[int, int], tuple[int, Any]] = {}

    def __call__(self, size: int) -> Callable[[int], tuple[int, Any]]:
        """What gives at least `size` bytes for a stream of this thread: the address, and the tensor that keeps it."""
        blocks, capturing, ident = self._blocks, self._runtime.capturing, threading.get_ident

        def get(stream: int) -> tuple[int, Any]:
            block = blocks.get((stream, ident()))
            if block is None or capturing() or block[1].nbytes < size:
                return self._fresh(stream, size)
            return block

        return get

    def _fresh(self, stream: int, size: int) -> tuple[int, Any]:
        # Allocated on the current stream, which is the one asked for; a block that this replaces is reused in the order of that stream.
        made = self._runtime.bytes(size, self._device)
        block = (made.data_ptr(), made)
        if not self._runtime.capturing():
            if len(self._blocks) >= _BLOCKS:
                self._blocks.clear()
            self._blocks[stream, threading.get_ident()] = block
        return block
