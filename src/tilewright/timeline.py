"""Where the seconds of a session go: named moments, from the shell's call to the end."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

# Field 22 of /proc/PID/stat, counted from 1; names may hold blanks and brackets, so fields are counted after the last bracket.
_START_FIELD = 22 - 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """A moment.

    Attributes:
        at_s: seconds since the session was asked for.
        name: what happened then.
    """

    at_s: float
    name: str


class Timeline:
    """Moments of one session; any thread may mark one.

    Args:
        began: when the session was asked for, by the monotonic clock; now by default.
    """

    def __init__(self, began: float | None = None) -> None:
        self.began = time.monotonic() if began is None else began
        self._marks: dict[str, Mark] = {}
        self._lock = threading.Lock()

    @property
    def elapsed_s(self) -> float:
        """Seconds since the session was asked for."""
        return time.monotonic() - self.began

    def mark(self, name: str, *, again: bool = False) -> None:
        """Note that something happens now.

        Args:
            name: what.
            again: whether the last time counts; else the first does.
        """
        with self._lock:
            if again or name not in self._marks:
                self._marks[name] = Mark(at_s=round(self.elapsed_s, 3), name=name)

    def at(self, name: str, moment: float) -> None:
        """Note what happened at a moment of the monotonic clock."""
        with self._lock:
            self._marks.setdefault(name, Mark(at_s=round(moment - self.began, 3), name=name))

    @property
    def marks(self) -> tuple[Mark, ...]:
        """All moments, in order of time."""
        with self._lock:
            return tuple(sorted(self._marks.values(), key=lambda mark: mark.at_s))


def format_marks(marks: Iterable[Mark]) -> str:
    """A line for each moment: when, how long after the one before, and what."""
    lines, before = [], 0.0
    for mark in marks:
        lines.append(f"{mark.at_s:8.2f} s  {mark.at_s - before:+7.2f}  {mark.name}")
        before = mark.at_s
    return "\n".join(lines)


def process_began() -> float:
    """When this process was started, by the monotonic clock, to 10 ms: a command's time counts from there. Now where the system does not say."""
    now = time.monotonic()
    try:
        fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
        started = int(fields[_START_FIELD]) / os.sysconf("SC_CLK_TCK")
        return now - max(0.0, time.clock_gettime(time.CLOCK_BOOTTIME) - started)
    except (OSError, ValueError, IndexError, AttributeError):  # no Linux
        return now
