"""What is left to do after an answer, and how long the stages of a request took."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tilewright.children.operands import Operands


@dataclass(frozen=True, slots=True, kw_only=True)
class Rest:
    """What a measured candidate leaves to do.

    Attributes:
        operands: it ran on.
        held_bytes: device memory of all operands before it ran.
        allocated_bytes: all device memory of this process before it ran.
        failed: whether it did not end well.
        ahead: the source that is likely measured next.
        payload: of its request.
    """

    operands: Operands
    held_bytes: int
    allocated_bytes: int
    failed: bool
    ahead: Mapping[str, Any] | None
    payload: Mapping[str, Any]


class Stages:
    """Wall time of the stages of something, in ms."""

    def __init__(self) -> None:
        self.ms: dict[str, float] = {}
        self._at = time.perf_counter()

    def mark(self, name: str) -> None:
        """A stage ends here."""
        now = time.perf_counter()
        self.ms[name] = round((now - self._at) * 1000, 3)
        self._at = now


def rss_bytes() -> int:
    """Memory that this process has in use, of the host."""
    pages = Path("/proc/self/statm").read_text().split()[1] if os.path.exists("/proc/self/statm") else "0"
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


def ms_since(began: float) -> float:
    """Wall time since a moment of `time.perf_counter`."""
    return round((time.perf_counter() - began) * 1000, 3)
