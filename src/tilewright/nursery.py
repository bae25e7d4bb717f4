"""A process that has imported torch and triton, touched no device, and forks children that need not import them again.

Imports take 2 to 4 s; a fork of a process that has done them takes some 20 ms (Linux, torch 2.13, 2026-11). One nursery serves all children
of a session: builders, the child that measures, and its spares. Without one (another system, a fork that fails) children are started
afresh.
"""

from __future__ import annotations

import ctypes
import heapq
import itertools
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

_PR_SET_CHILD_SUBREAPER: Final = 36  # linux/prctl.h
_READY_S: Final = 60.0  # guess: a machine that takes longer to import torch once will not do better with one import for each child
_FORK_S: Final = 30.0  # guess: a hundred times what a fork and the first builder's imports take together
_LOOK_S: Final = 0.05  # how late a child that is not wanted any more is noticed
# Once the imports are done, whoever is waited for most is forked first, if it asks by then. guess: threads that all wait wake up within some ms.
_FIRST_S: Final = 0.1
_MESSAGE_BYTES: Final = 4096
_MODE: Final = "TRITON_INTERPRET"  # read when triton is imported
_POLL_S: Final = 0.005

# Linux sends the parent-death signal when the *thread* that forked ends. One thread that lives as long as the process starts
# all children, so that a short-lived thread may ask for one.
_spawner = ThreadPoolExecutor(max_workers=1, thread_name_prefix="tilewright-spawn")
_adopting = threading.Lock()


class CannotFork(Exception):
    """The nursery does not give a child; it is of no more use."""


def spawn(arguments: list[str], **options: Any) -> subprocess.Popen[bytes]:
    """Start a process in a session and group of its own, without standard input, that dies with this one."""
    started: subprocess.Popen[bytes] = _spawner.submit(
        lambda: subprocess.Popen(arguments, stdin=subprocess.DEVNULL, start_new_session=True, **options)
    ).result()
    return started


class Forked:
    """A forked child, which is this process's own, with as much of `Popen` as is needed."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._code: int | None = None

    def wait(self, timeout_s: float) -> int:
        """Its exit code, negative for a signal, as `Popen` has it.

        Raises:
            subprocess.TimeoutExpired: it has not ended by then.
        """
        limit = time.monotonic() + timeout_s
        while self._code is None:
            try:
                pid, status = os.waitpid(self.pid, os.WNOHANG)
            except ChildProcessError:  # somebody else waited for it
                self._code = 0
                break
            if pid:
                self._code = os.waitstatus_to_exitcode(status)
            elif time.monotonic() > limit:
                raise subprocess.TimeoutExpired(str(self.pid), timeout_s)
            else:
                time.sleep(_POLL_S)
        return self._code


def base_environment(*, interpreted: bool = False) -> dict[str, str]:
    """This process's environment for a child: it imports this same package, with Triton's interpreter on or off."""
    root = Path(__file__).resolve().parent.parent
    chosen = {**os.environ, _MODE: "1" if interpreted else "0"}
    if root.name not in ("site-packages", "dist-packages"):  # there it is found anyway, and must not come before the standard library
        given = os.environ.get("PYTHONPATH")
        chosen["PYTHONPATH"] = f"{root}{os.pathsep}{given}" if given else str(root)
    return chosen


class Nursery:
    """Started at once, and ready some seconds later. Any thread may ask for children.

    Args:
        env: its whole environment. Children may have another one, but for what is read when torch and triton are imported.

    Attributes:
        env: as given.
        ready_at: when it was seen to be ready, by the monotonic clock; None until then.
    """

    def __init__(self, env: Mapping[str, str]) -> None:
        self.env = dict(env)
        self.ready_at: float | None = None
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._broken = False
        self._hearing = threading.Lock()
        self._turns = threading.Condition()
        self._line: list[tuple[int, int]] = []  # who waits to be served: rank, then number
        self._numbers = itertools.count()
        self._serving = False
        command = [sys.executable, "-P", "-W", "ignore", "-m", "tilewright.children.nursery"]
        with theirs:
            arguments = [*command, "--socket", str(theirs.fileno()), "--parent", str(os.getpid())]
            quiet = subprocess.DEVNULL
            self._process = spawn(arguments, stdout=quiet, stderr=quiet, pass_fds=(theirs.fileno(),), env=dict(env))

    @staticmethod
    def possible() -> bool:
        """Whether this system has what it takes."""
        return sys.platform == "linux"

    @property
    def broken(self) -> bool:
        """Whether it ended, or gave no child."""
        return self._broken

    def ready(self) -> bool:
        """Whether it can fork, without waiting for it."""
        with self._hearing:
            if self.ready_at is None and not self._broken and select.select([self._socket], [], [], 0)[0]:
                self._broken = self._receive() != b"ready"
                self.ready_at = time.monotonic()
        return self.ready_at is not None and not self._broken

    def fork(self, kind: str, env: Mapping[str, str], descriptors: tuple[int, int, int], *, rank: int = 0, wanted: Callable[[], bool] = lambda: True) -> Forked:
        """A child that serves on two pipes, and prints into a third; waits for it.

        Args:
            kind: which child, as `Worker` has it.
            env: its whole environment.
            descriptors: of requests, answers and output.
            rank: of those that wait, the lowest is served first.
            wanted: whether the child is still wanted, asked now and then.

        Raises:
            CannotFork: it gives none.
        """
        self._await(wanted)
        if env.get(_MODE) != self.env.get(_MODE):
            raise CannotFork(f"{_MODE} is another one here")
        order = {
            "kind": kind,
            "parent": os.getpid(),
            "set": {name: value for name, value in env.items() if self.env.get(name) != value},
            "unset": [name for name in self.env if name not in env],
        }
        with self._turn(rank):
            try:
                with _adoption():
                    socket.send_fds(self._socket, [json.dumps(order).encode()], list(descriptors))
                    if not select.select([self._socket], [], [], _FORK_S)[0]:
                        raise CannotFork("no answer")
                    return Forked(int(self._receive()))
            except (OSError, ValueError, CannotFork) as error:
                self._broken = True
                raise CannotFork(str(error)) from error

    def _await(self, wanted: Callable[[], bool]) -> None:
        limit = time.monotonic() + _READY_S
        while not self.ready():
            if self._broken or not wanted() or time.monotonic() > limit:
                raise CannotFork("it is not ready")
            with suppress(OSError, ValueError):  # closed meanwhile
                select.select([self._socket], [], [], _LOOK_S)

    @contextmanager
    def _turn(self, rank: int) -> Iterator[None]:
        """Wait for one's turn: one child at a time, the lowest rank first, which the others leave a moment to come."""
        head_start_s = (self.ready_at or 0.0) + _FIRST_S - time.monotonic()
        if rank and head_start_s > 0:
            time.sleep(head_start_s)
        with self._turns:
            mine = (rank, next(self._numbers))
            heapq.heappush(self._line, mine)
            try:
                self._turns.wait_for(lambda: not self._serving and self._line[0] == mine)
                self._serving = True
            finally:
                self._line.remove(mine)
                heapq.heapify(self._line)
                self._turns.notify_all()
        try:
            yield
        finally:
            with self._turns:
                self._serving = False
                self._turns.notify_all()

    def _receive(self) -> bytes:
        with suppress(OSError):
            return self._socket.recv(_MESSAGE_BYTES)
        return b""

    def close(self) -> None:
        """End it; its children stay. It may be called again, and from any thread."""
        self._broken = True
        if self._process.poll() is None:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)  # its children have groups of their own
        self._process.wait()
        with self._turns:
            self._turns.wait_for(lambda: not self._serving)  # whoever is served reads the end of the socket first
            with self._hearing:
                self._socket.close()


_early: list[Nursery] = []


def begin_early() -> None:
    """Start a nursery before it is known who needs it, for `nursery_of_session` to give: its imports are what a session waits for longest."""
    if Nursery.possible() and not _early:
        _early.append(Nursery(base_environment()))


def nursery_of_session() -> Nursery | None:
    """A nursery, which the caller closes: the one that was begun early, where its environment still holds; None where there can be none."""
    environment = base_environment()
    while _early:
        nursery = _early.pop()
        if nursery.env == environment:
            return nursery
        nursery.close()
    try:
        return Nursery(environment) if Nursery.possible() else None
    except OSError:
        return None


@contextmanager
def _adoption() -> Iterator[None]:
    """Within, an orphan of this process's descendants becomes its own child: the nursery forks twice to that end."""
    libc = ctypes.CDLL(None, use_errno=True)
    with _adopting:
        if libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
            raise CannotFork(os.strerror(ctypes.get_errno()))
        try:
            yield
        finally:
            libc.prctl(_PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)
