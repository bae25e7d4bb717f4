"""A captured graph of calls, and how many kernels it launches."""

from __future__ import annotations

import contextlib
import ctypes
import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch


class CaptureFailed(Exception):
    """The calls cannot be captured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Captured:
    """A graph of calls, one after the other.

    Attributes:
        graph: torch's.
        calls: how many.
        kernels: of one call, copies and fills among them; None where the driver cannot be asked.
    """

    graph: Any
    calls: int
    kernels: float | None

    def replay(self) -> None:
        """Send all calls to the device."""
        self.graph.replay()

    def reset(self) -> None:
        """Free what it holds."""
        self.graph.reset()


def capture(calls: Sequence[Callable[[], Any]], count: int, device: Any) -> Captured:
    """A graph of `count` calls, one after the other, taking turns in `calls`.

    By hand rather than with `torch.cuda.graph`, which empties torch's cache of device memory each time.

    Raises:
        CaptureFailed: the calls cannot be captured.
    """
    graph = torch.cuda.CUDAGraph()
    torch.cuda.synchronize(device)
    nodes = None
    try:
        graph.capture_begin(capture_error_mode="thread_local")
        try:
            for index in range(count):
                calls[index % len(calls)]()
            nodes = _nodes(torch.cuda.current_stream(device).cuda_stream)
        finally:
            graph.capture_end()
    except Exception as error:
        with contextlib.suppress(Exception):
            graph.reset()
        raise CaptureFailed(str(error)) from error
    return Captured(graph=graph, calls=count, kernels=None if nodes is None else round(nodes / count, 3))


@functools.cache
def _driver() -> Any:
    """The driver's library, where it has what is asked of it."""
    if torch.version.cuda is None:  # another vendor's streams, whatever libraries lie on this machine
        return None
    try:
        driver = ctypes.CDLL("libcuda.so.1")
        return driver if driver.cuStreamGetCaptureInfo_v2 and driver.cuGraphGetNodes else None
    except (OSError, AttributeError):  # no driver, or one older than 11.3: kernels go uncounted, and graphs are replayed as ever
        return None


def _nodes(stream: int) -> int | None:
    """Nodes of the graph that a stream is capturing (CUDA driver API, cuStreamGetCaptureInfo_v2 and cuGraphGetNodes)."""
    driver = _driver()
    if driver is None:
        return None
    status, graph, count = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_size_t()
    if driver.cuStreamGetCaptureInfo_v2(ctypes.c_void_p(stream), ctypes.byref(status), None, ctypes.byref(graph), None, None) or not graph:
        return None
    return None if driver.cuGraphGetNodes(graph, None, ctypes.byref(count)) else count.value
