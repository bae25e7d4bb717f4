"""A process that outlives this one by a moment, to end what its children leave behind when it is killed.

The kernel ends a child when this process dies (`prctl`), but not the child's own children: a compiler, or what a candidate started.
"""

from __future__ import annotations

import atexit
import subprocess
import sys
import threading
from contextlib import suppress
from typing import Final

_WAIT_S: Final = 2.0  # guess: it has nothing to do at the end but to leave
_SCRIPT: Final = """
import os, signal, sys
groups = set()
for line in sys.stdin.buffer:
    (groups.add if line[:1] == b"+" else groups.discard)(int(line[1:]))
for group in groups:
    try:
        os.killpg(group, signal.SIGKILL)
    except OSError:
        pass
"""


class Guardian:
    """Is told of process groups through a pipe, and ends those it was told of when the pipe does. Any thread may tell it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None

    def watch(self, group: int) -> None:
        """From now on, this process's end is the group's."""
        self._tell(f"+{group}\n")

    def forget(self, group: int) -> None:
        """The group has ended: its id may be another's."""
        self._tell(f"-{group}\n")

    def _tell(self, line: str) -> None:
        with self._lock, suppress(OSError, ValueError):  # without it (or once it was closed), children are ended by the kernel, and theirs stay
            if self._process is None:
                quiet = subprocess.DEVNULL
                command = [sys.executable, "-I", "-S", "-c", _SCRIPT]
                self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=quiet, stderr=quiet, start_new_session=True, bufsize=0)
                atexit.register(self.close)
            if self._process.stdin is not None:
                self._process.stdin.write(line.encode())

    def close(self) -> None:
        """End it, and with it the groups that it still watches."""
        process = self._process
        if process is not None and process.stdin is not None:
            with suppress(OSError, subprocess.TimeoutExpired):
                process.stdin.close()
                process.wait(_WAIT_S)


GUARDIAN: Final = Guardian()
