"""The C launchers that Triton 3.6 makes for kernels: read once a process, and made by builders ahead of the runner.

A launcher is compiled by a C compiler, some tenths of a second, for each signature of a kernel; Triton 3.9 has one for all.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any


class Launchers:
    """Makes the launchers of compiled kernels into Triton's cache, where the runner finds them.

    Attributes:
        wanted: kernels whose launchers are to be made.
    """

    def __init__(self) -> None:
        self.wanted: Sequence[Any] = ()
        self._possible = True
        remember_launchers()

    def make(self) -> None:
        """Make those that are wanted; where one cannot be made, as without a driver's library, none is tried again."""
        wanted, self.wanted = self.wanted, ()
        try:
            from triton.backends.nvidia import driver

            for kernel in wanted:
                if self._possible and kernel.metadata.target.backend == "cuda" and hasattr(driver, "make_launcher"):
                    driver.CudaLauncher(kernel.src, kernel.metadata)
        except Exception:
            self._possible = False


def remember_launchers() -> None:
    """Have Triton 3.6 read each compiled launcher once a process: it looks one up on the disk, and loads it, for each kernel anew."""
    with contextlib.suppress(Exception):  # 3.9 has one launcher for all
        from triton.backends.nvidia import driver

        driver.compile_module_from_src = _remembering(driver.compile_module_from_src)


def _remembering(really: Callable[..., ModuleType]) -> Callable[..., ModuleType]:
    known: dict[str, ModuleType] = {}

    def compile_module(*args: Any, **kwargs: Any) -> ModuleType:
        key = repr((args, sorted(kwargs.items())))
        if key not in known:
            known[key] = really(*args, **kwargs)
        return known[key]

    return compile_module
