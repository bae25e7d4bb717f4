"""The parent's side of measuring: one child to a device, and every way a candidate can end as a status.

`DeviceRunner` measures on a GPU through torch, behind one lock; `InterpreterRunner` in Triton's interpreter on the CPU.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Protocol

import msgspec

from tilewright.child_race import RacingRunner
from tilewright.child_runner import ChildRunner
from tilewright.device_lock import DeviceLock
from tilewright.errors import NoDevice, UsageError
from tilewright.job import Job as Job
from tilewright.job import MeasureJob as MeasureJob
from tilewright.job import MeasureOutcome as MeasureOutcome
from tilewright.job import RaceJob as RaceJob
from tilewright.job import RaceOutcome as RaceOutcome
from tilewright.nursery import Nursery
from tilewright.operator import instead_of
from tilewright.protocols import GRAPH_PROTOCOL, INTERPRETER_PROTOCOL
from tilewright.target import Target, Toolchain
from tilewright.workload import Workload

# A candidate takes 10-25 ms (H200, 2026-11), a hopeless one some 100 ms.
RUN_TIMEOUT_S: Final = 10.0  # guess: three orders above a good candidate; all of it is lost on a kernel that never ends
RACE_S: Final = 1.0  # guess: checks and captures of ten racers 0.3 s, rounds 0.4 s, a final check of each 0.1 s
INTERPRETER_TIMEOUT_S: Final = 120.0  # a 256³ fp16 GEMM takes 0.2-1.6 s; guess: 512³ in small tiles must still end


class Runner(Protocol):
    """Measures candidates, one at a time."""

    @property
    def target(self) -> Target:
        """What is measured on; under the interpreter, `Target.interpreted` of what candidates are compiled for."""

    @property
    def toolchain(self) -> Toolchain:
        """Versions found in the child."""

    @property
    def protocol(self) -> str:
        """Name of the timing protocol; a measurement that had to fall back to another carries that one's name."""

    def measure(self, job: MeasureJob) -> MeasureOutcome:
        """Check a candidate's outputs, then time it."""

    def vendors(self, job: Job) -> list[tuple[str, MeasureOutcome]]:
        """Check and time the operator's vendor kernels, by name, with the same protocol."""

    def race(self, job: RaceJob) -> RaceOutcome | None:
        """Race schedules and vendors in turns; None where times need no race, since nothing disturbs them or they mean nothing."""

    @property
    def race_s(self) -> float:
        """Seconds to set aside for a race; 0 where there is none."""

    def close(self) -> None:
        """End the child, also in the middle of a measurement."""


class DeviceRunner(RacingRunner):
    """Measures on one GPU, which it holds for itself from its first breath to `close`.

    Args:
        device: torch's name, `cuda:0` (AMD's too).
        cache_dir: the cache folder, the builder's; as for `cache.cache_root`.
        timeout_s: most seconds for one candidate, check included.
        log_dir: where the output of failed children is kept.
        spare: keep a second child ready (imports done, context open), and a process that forks more, so that a fault costs little.
        say: told of waits for another session.
        lock_timeout_s: how long to wait for another session; without end where None.
        nursery: forks all children; its owner closes it.

    Raises:
        NoDevice: there is no such GPU, or torch cannot use it.
        HostError: the child does not start, or the wait for the device took too long.
    """

    protocol = GRAPH_PROTOCOL

    def __init__(
        self,
        device: str = "cuda:0",
        *,
        cache_dir: Path | None = None,
        timeout_s: float = RUN_TIMEOUT_S,
        log_dir: Path | None = None,
        spare: bool = True,
        say: Callable[[str], None] | None = None,
        lock_timeout_s: float | None = None,
        nursery: Nursery | None = None,
    ) -> None:
        self._device = device
        super().__init__("bench", device, cache_dir=cache_dir, timeout_s=timeout_s, log_dir=log_dir, spare=spare, nursery=nursery)
        self._lock: DeviceLock | None = None
        try:
            info = self._worker.info
            self._check_device(info)
            self._target = msgspec.convert(info["target"], Target)
            self._lock = DeviceLock(str(info["device_id"]))
            self._lock.acquire(say or _to_stderr, lock_timeout_s)
            self._open()
        except BaseException:
            self.close()
            raise

    @property
    def target(self) -> Target:
        """The device, as the child read it."""
        return self._target

    @property
    def race_s(self) -> float:
        """Seconds to set aside for a race."""
        return RACE_S

    def race(self, job: RaceJob) -> RaceOutcome:
        """Race schedules and vendors in turns.

        Raises:
            UsageError: the operator's own spec or reference fails for this workload.
            HostError: the device or the child cannot be had.
        """
        return self._race(job)

    def close(self) -> None:
        """End the child, also in the middle of a measurement, and give the device up."""
        super().close()
        if self._lock is not None:
            self._lock.release()

    def _check_device(self, info: Mapping[str, Any]) -> None:
        if "target" not in info:
            raise NoDevice(
                f"no device {self._device}: {info.get('absent', 'torch sees none')}; "
                "use --device interpreter to run in Triton's interpreter, or --device recorded:FILE for a recording"
            )


class InterpreterRunner(ChildRunner):
    """Checks candidates in Triton's interpreter on the CPU; its times are wall times of the interpreter.

    Args:
        target: what candidates are compiled for besides.
        cache_dir, timeout_s, log_dir, spare: as for `DeviceRunner`.
    """

    protocol = INTERPRETER_PROTOCOL

    def __init__(
        self,
        target: Target,
        *,
        cache_dir: Path | None = None,
        timeout_s: float = INTERPRETER_TIMEOUT_S,
        log_dir: Path | None = None,
        spare: bool = False,
    ) -> None:
        self._target = target.interpreted()
        super().__init__("interpret", "interpreter", cache_dir=cache_dir, timeout_s=timeout_s, log_dir=log_dir, spare=spare)

    @property
    def target(self) -> Target:
        """The interpreter, with the limits of the target that candidates are compiled for."""
        return self._target

    @property
    def race_s(self) -> float:
        """None to set aside."""
        return 0.0

    def race(self, job: RaceJob) -> None:
        """No race: the interpreter's times count programs, and say nothing of a device."""

    def _prepare(self, job: Job) -> tuple[str, ...]:
        refuse_on_interpreter(job.workload)
        return super()._prepare(job)


def refuse_on_interpreter(workload: Workload, dtypes: Mapping[str, Sequence[str]] | None = None) -> None:
    """Refuse what Triton's interpreter gets wrong without a word: arithmetic in bfloat16 (Triton 3.6 to 3.9).

    Args:
        workload: what is to be run.
        dtypes: the words that the operator takes, by dtype parameter, so that the message names those alone; None where not known.

    Raises:
        UsageError: the workload has a bfloat16 dtype.
    """
    for name, dtype in workload.dtypes.items():
        if dtype == "bfloat16":
            advice = instead_of(dtype, dtypes, [name])
            raise UsageError(f"{workload.shown}: Triton's interpreter computes bfloat16 wrongly, so nothing could be checked; {advice}")


def _to_stderr(message: str) -> None:
    print(message, file=sys.stderr, flush=True)
