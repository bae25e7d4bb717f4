"""Tuning at the first encounter: what a tuned operator may be told to do with a workload that no record serves."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Final

from tilewright.canonical import sha256_text
from tilewright.dispatch import source_module
from tilewright.errors import HostError
from tilewright.library import find_operator
from tilewright.runtime import Missed
from tilewright.target import compiled_for
from tilewright.tuner import tune

# guess: what a service can wait for once. A session's children take 6 s to start on an H200 machine.
_TIME_S: Final = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class TuneOnMiss:
    """Tunes a workload when it is first met, and appends to a log; give it to `load` as `on_miss`.

    The call waits. Other calls that miss the same workload wait too, in whichever thread or process, and take the answer from the log; those
    of other workloads go on. Nothing is tuned while a graph is captured: such a call is an error, so make it once before.

    Attributes:
        log: appended to; what it answers already is not tuned again.
        time_s: seconds for one workload.
        search: the searcher's name.
        templates: folders of operators, before those that come with Tilewright.
    """

    log: Path
    time_s: float = _TIME_S
    search: str = "auto"
    templates: Sequence[Path] = ()

    def __call__(self, missed: Missed) -> ModuleType | None:
        """The module of the best schedule found; None where no candidate was right.

        Raises:
            HostError: the device or the log is not to be had.
        """
        operator = find_operator(missed.operator, self.templates)
        workload = operator.spec.workload(missed.parameters)
        device = "interpreter" if missed.device < 0 else f"cuda:{missed.device}"
        with _alone(Path(self.log), f"{workload.key} on {device}"):
            (result,) = tune(
                missed.operator, [workload], time_s=self.time_s, search=self.search, device=device, log=Path(self.log), templates=self.templates
            ).results  # fmt: skip
        if result.best is None:
            return None
        return source_module(operator.instantiate(workload, compiled_for(result.best.target), result.best.config))


@contextlib.contextmanager
def _alone(log: Path, key: str) -> Iterator[None]:
    """Hold a key of a log: one tuner for it at a time, over threads and processes. The lock is the kernel's, so that nothing is left behind."""
    path = log.with_name(f".{log.name}.{sha256_text(key)[:16]}.lock")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    except OSError as error:
        raise HostError(f"the lock file {path} cannot be opened: {error.strerror}; name a log in a folder that can be written") from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
