"""What a device and a process are brought to before the first measurement."""

from __future__ import annotations

import contextlib
import functools
import threading
import time
from typing import Any

import torch
import triton

from tilewright.children import timing
from tilewright.children.captured import CaptureFailed, capture
from tilewright.children.standin import import_compiler
from tilewright.protocols import WARM_S


def warm_up(device: Any, seconds: float = WARM_S) -> None:
    """Multiply matrices until the clock is steady: a cool device reads up to 15% faster than one under load."""
    a = torch.randn(4096, 4096, device=device, dtype=torch.float16)
    limit = time.perf_counter() + seconds
    while time.perf_counter() < limit:
        for _ in range(20):
            torch.mm(a, a)
        torch.cuda.synchronize(device)


def first_warm_up(device: Any, seconds: float) -> None:
    """Warm up; meanwhile, a thread gets what the first launch would wait for: imports, and with a new cache a C compiler."""

    def prepare() -> None:
        with contextlib.suppress(Exception):  # the first launch will say it
            import_compiler()
            _ = triton.runtime.driver.active.utils

    thread = threading.Thread(target=prepare)
    thread.start()
    warm_up(device, seconds)
    thread.join()


def rehearse(device: Any) -> None:
    """Create the context, and load the libraries and kernels that a check and a capture use, on tensors of next to no size.

    What runs on the device takes some µs in all, so that a measurement in another process is not disturbed.
    """
    torch.cuda.set_device(device)
    generator = torch.Generator(device=device).manual_seed(1)
    narrow = torch.randn(64, 64, device=device, generator=generator)
    for dtype in (torch.float32, torch.float16, torch.bfloat16):
        a = narrow.to(dtype)
        with torch.cuda.stream(timing.stream(device)):
            torch.mm(a, a)
            torch.add(a, 1.0, out=a)  # loaded before it is captured
            with contextlib.suppress(CaptureFailed):
                graph = capture([functools.partial(torch.add, a, 1.0, out=a)], 1, device)
                timing.replay(graph.replay, 1, 1, lead=False)
                graph.reset()
        c = torch.mm(a, a)
        bits = c.view({2: torch.int16, 4: torch.int32}[c.element_size()])
        bits.fill_(-1)
        flags = [(bits != bits.clone()).any(), c.isnan().any()]
        wide = c.to(torch.float32) - narrow
        norms = [torch.linalg.vector_norm(wide), torch.linalg.vector_norm(wide, ord=float("inf"))]
        torch.stack(flags).tolist(), torch.stack(norms).tolist()
    torch.cuda.synchronize(device)
