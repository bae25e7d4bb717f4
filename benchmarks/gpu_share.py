"""The share of the time in which a GPU is at work, as NVML has it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tilewright.gpu_target import driver_facts, handle_of


@contextmanager
def watching_gpu(counts: Callable[[], bool] = lambda: True) -> Iterator[list[int]]:
    """Percent of NVML's last sample period in which a kernel ran, some 10 times a second, while it counts.

    NVML looks back over a sixth of a second to a second: what the first 0.4 s would say reaches back before the start.
    """
    import pynvml

    pynvml.nvmlInit()
    # CUDA's first device, which need not be NVML's.
    handle = handle_of(pynvml, driver_facts(0).uuid) or pynvml.nvmlDeviceGetHandleByIndex(0)
    found: list[int] = []
    stop = threading.Event()

    def watch() -> None:
        since: float | None = None
        while not stop.wait(0.1):
            if not counts():
                since = None
                continue
            since = since or time.monotonic()
            if time.monotonic() - since > 0.4:
                found.append(int(pynvml.nvmlDeviceGetUtilizationRates(handle).gpu))

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield found
    finally:
        stop.set()
        thread.join()
        pynvml.nvmlShutdown()
