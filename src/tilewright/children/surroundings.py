"""What a candidate's code may leave changed in the process that runs it, for the next one to stumble on."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Mapping
from typing import Any, Final

import torch


def _set_environment(wanted: Mapping[str, str]) -> None:
    for name in [name for name in os.environ if name not in wanted]:
        del os.environ[name]
    os.environ.update(wanted)


def _streams() -> tuple[Any, ...]:
    return sys.stdin, sys.stdout, sys.stderr


def _set_streams(wanted: tuple[Any, ...]) -> None:
    sys.stdin, sys.stdout, sys.stderr = wanted


# What is put back: how it is read, and how it is set. Not the precision of float32 products, which torch refuses to tell once both of its ways
# to set it were used (2.9 to 2.13).
_PARTS: Final[Mapping[str, tuple[Callable[[], Any], Callable[[Any], Any]]]] = {
    "environment": (lambda: dict(os.environ), _set_environment),
    "streams": (_streams, _set_streams),
    "recursion limit": (sys.getrecursionlimit, sys.setrecursionlimit),
    "alarm": (lambda: signal.getitimer(signal.ITIMER_REAL)[0] > 0, lambda _: signal.setitimer(signal.ITIMER_REAL, 0)),
    "default dtype": (torch.get_default_dtype, torch.set_default_dtype),
    # With none set it is the CPU; to set that would put a mode around every call.
    "default device": (torch.get_default_device, lambda device: torch.set_default_device(None if device.type == "cpu" else device)),
    "gradients": (torch.is_grad_enabled, torch.set_grad_enabled),
    "CPU threads": (torch.get_num_threads, torch.set_num_threads),
    "determinism": (torch.get_deterministic_debug_mode, torch.set_deterministic_debug_mode),
}


class Surroundings:
    """This process as it is now: 50 µs to look at again (2026-11).

    A candidate that changes the environment, and with it where Triton keeps its cache or whether it interprets, failed all that came
    after it; one that sets an alarm, or leaves a thread or a fork behind, did so to the next one.
    """

    def __init__(self) -> None:
        self._values = {name: read() for name, (read, _) in _PARTS.items()}
        self._folder = os.open(".", os.O_PATH if hasattr(os, "O_PATH") else os.O_RDONLY)
        self._place = _identity(os.fstat(self._folder))
        self._threads = frozenset(threading.enumerate())
        self._children = _has_children()
        self._printed_to = _descriptors()

    def close(self) -> None:
        """Forget it."""
        os.close(self._folder)

    def put_back(self) -> tuple[str, ...]:
        """Undo what was changed since.

        Returns:
            What cannot be undone, after which this process is better replaced.
        """
        for name, (read, set_back) in _PARTS.items():
            if read() != self._values[name]:
                set_back(self._values[name])
        if _identity(os.stat(".")) != self._place:
            os.fchdir(self._folder)
        stays = {
            "threads": not self._threads.issuperset(threading.enumerate()),
            "child processes": _has_children() and not self._children,
            "another standard output": _descriptors() != self._printed_to,
        }
        return tuple(name for name, is_so in stays.items() if is_so)


def _identity(about: os.stat_result) -> tuple[int, int]:
    return about.st_dev, about.st_ino


def _descriptors() -> tuple[tuple[int, int] | None, ...]:
    """What lies behind the descriptors that are printed to; None for one that is closed."""
    found: list[tuple[int, int] | None] = []
    for descriptor in (1, 2):
        try:
            found.append(_identity(os.fstat(descriptor)))
        except OSError:
            found.append(None)
    return tuple(found)


def _has_children() -> bool:
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True
