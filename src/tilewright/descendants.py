"""Processes below a process, wherever they have put themselves: one in a session of its own outlives the killing of its parent's group."""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from pathlib import Path


def descendants(pid: int) -> list[int]:
    """Ids of the children of a process, of theirs, and so on; none where the system does not tell (`/proc/PID/task/TID/children`, Linux).

    One whose parent has ended is another's child by then, and not among them.
    """
    found: list[int] = []
    waiting = [pid]
    while waiting:
        try:
            lists = list(Path(f"/proc/{waiting.pop()}/task").glob("*/children"))
        except OSError:  # it ended while it was looked at
            continue
        for listed in lists:
            with suppress(OSError, ValueError):
                children = [int(child) for child in listed.read_text().split()]
                found += children
                waiting += children
    return found


def kill_own() -> None:
    """End all that this process has started, as it is about to end itself."""
    kill_all(descendants(os.getpid()))


def kill_all(pids: list[int]) -> None:
    """Send SIGKILL to each that is still there and ours."""
    for pid in pids:
        with suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)
