"""The parent's side of measuring: one child to a device, and every way a candidate can end as a status.

`DeviceRunner` measures on a GPU through torch, behind one lock; `InterpreterRunner` in Triton's interpreter on the CPU.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Protocol, Self

import msgspec

from tilewright.cache import cache_root, child_environment
from tilewright.device_lock import DeviceLock
from tilewright.errors import HostError, NoDevice, UsageError
from tilewright.job import Job as Job
from tilewright.job import MeasureJob as MeasureJob
from tilewright.job import MeasureOutcome as MeasureOutcome
from tilewright.record import Status
from tilewright.sampling import GRAPH_PROTOCOL, INTERPRETER_PROTOCOL
from tilewright.target import Target, Toolchain
from tilewright.worker import Kind, Reply, Worker
from tilewright.workload import Workload

# A candidate takes 10-25 ms (H200, 2026-11), a hopeless one some 100 ms.
RUN_TIMEOUT_S: Final = 10.0  # guess: three orders above a good candidate; all of it is lost on a kernel that never ends
INTERPRETER_TIMEOUT_S: Final = 120.0  # a 256³ fp16 GEMM takes 0.2-1.6 s; guess: 512³ in small tiles must still end
_PREPARE_TIMEOUT_S: Final = 120.0  # guess: inputs and a reference in double precision of the largest workloads take seconds
_OPEN_TIMEOUT_S: Final = 60.0  # a CUDA context and warming up take 1-3 s (H200, 2026-11)
_PING_TIMEOUT_S: Final = 5.0  # guess: an idle child answers at once, however busy the machine
_RETIRE_TIMEOUT_S: Final = 5.0  # guess: leaving a process with a broken CUDA context is immediate, or hangs for good
_MEMORY_GROWTH_BYTES: Final = 4 * 2**30  # guess: some thousand kernels kept by Triton; a fresh child costs 6 s at most


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

    def close(self) -> None:
        """End the child, also in the middle of a measurement."""


class _ChildRunner:
    """What the runners share: a child that is opened once, and jobs turned into requests and back.

    A child's life: ready (imports done, device read, no context), `open` (context, warm clock), `prepare` once for each
    workload (inputs, reference), then `measure`. Time limits are for each of these, so that a candidate pays for itself alone.
    """

    protocol: str

    def __init__(self, kind: Kind, device: str, *, cache_dir: Path | None, timeout_s: float, log_dir: Path | None, spare: bool) -> None:
        self._timeout_s = timeout_s
        self._sources = cache_root(cache_dir) / "sources"
        self._worker = Worker(kind, env={**child_environment(cache_dir), "TILEWRIGHT_DEVICE": device}, log_dir=log_dir, spare=spare)
        self._opened: int | None = None  # process id of the child that was opened
        self._baseline_bytes = 0
        self._prepared: dict[tuple[str, int], tuple[str, ...]] = {}  # vendors' names, by workload and seed

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """End the child, also in the middle of a measurement."""
        self._worker.close()

    @property
    def toolchain(self) -> Toolchain:
        """Versions found in the child, which is started to tell them."""
        return msgspec.convert(dict(self._worker.info["toolchain"]), Toolchain)

    def measure(self, job: MeasureJob) -> MeasureOutcome:
        """Check a candidate's outputs, then time it.

        Raises:
            UsageError: the operator's own spec or reference fails for this workload.
            HostError: the device or the child cannot be had.
        """
        self._prepare(job)
        candidate = {"text": job.source.text, "hash": job.source.hash, "sources": str(self._sources), "cut_above_us": job.cut_above_us}
        return self._outcome(self._worker.request("measure", {**self._payload(job), **candidate}, self._timeout_s))

    def vendors(self, job: Job) -> list[tuple[str, MeasureOutcome]]:
        """Check and time the operator's vendor kernels, by name.

        Raises:
            UsageError: the operator's own spec or reference fails for this workload.
            HostError: the device or the child cannot be had.
        """
        measured = []
        for name in self._prepare(job):
            self._prepare(job)  # again: the vendor before may have cost the child
            measured.append((name, self._outcome(self._worker.request("vendor", {**self._payload(job), "name": name}, self._timeout_s))))
        return measured

    @staticmethod
    def _payload(job: Job) -> dict[str, Any]:
        workload = job.workload
        named = {"operator": workload.operator, "dims": dict(workload.dims), "dtypes": dict(workload.dtypes), "layout": dict(workload.layout)}
        return {"operator": job.operator, "folder": str(job.folder.resolve()), "workload": named, "seed": job.seed}

    def _open(self) -> None:
        # A child may have been killed between two jobs: asking (0.1 ms) keeps that from becoming the next candidate's crash.
        if self._opened is not None and self._worker.pid == self._opened and self._worker.request("ping", {}, _PING_TIMEOUT_S).kind == "ok":
            return
        self._opened = None
        self._prepared.clear()
        self._worker.start()
        self._check_device(self._worker.info)
        result = self._expect(self._worker.request("open", {}, _OPEN_TIMEOUT_S), "the device cannot be opened")
        self._baseline_bytes = int(result["rss_bytes"])
        self._opened = self._worker.pid

    def _check_device(self, info: Mapping[str, Any]) -> None:
        """Refuse a child that found no device; a runner without one has nothing to check."""

    def _prepare(self, job: Job) -> tuple[str, ...]:
        """Have the child hold the job's inputs and reference; returns the names of its vendors."""
        self._open()
        key = (job.workload.key, job.seed)
        if key not in self._prepared:
            reply = self._worker.request("prepare", self._payload(job), _PREPARE_TIMEOUT_S)
            result = self._expect(reply, f"operator {job.operator}: inputs and reference for {job.workload.key} could not be made")
            self._prepared[key] = tuple(result["vendors"])
        return self._prepared[key]

    def _expect(self, reply: Reply, what: str) -> Mapping[str, Any]:
        """The result of a request that no candidate has a part in.

        Raises:
            UsageError: the operator's own code failed.
            HostError: the child failed.
        """
        if reply.kind != "ok":
            raise HostError(f"{what}: {reply.message}")
        if "fault" in reply.result:
            self._retire_if_told(reply.result)
            raise UsageError(str(reply.result["fault"]))
        return reply.result

    def _outcome(self, reply: Reply) -> MeasureOutcome:
        if reply.kind == "timeout":
            return MeasureOutcome(status=Status.RUN_TIMEOUT, message=reply.message)
        if reply.kind != "ok":
            # An exception where none was expected, child alive: its context may be broken as well.
            self._retire_if_told({"retire": reply.kind == "error"})
            return MeasureOutcome(status=Status.CRASH, message=reply.message)
        result = self._expect(reply, "measuring failed")
        self._retire_if_told(result)
        return msgspec.convert({name: value for name, value in result.items() if name in _OUTCOME_FIELDS}, MeasureOutcome)

    def _retire_if_told(self, result: Mapping[str, Any]) -> None:
        """Replace a child whose context is broken, that leaks, or that has grown.

        Whatever comes of asking, the worker then has no child, and starts another (the spare) at the next request.
        """
        grown = int(result.get("rss_bytes", 0)) - self._baseline_bytes
        if result.get("retire") or grown > _MEMORY_GROWTH_BYTES:
            self._worker.request("retire", {}, _RETIRE_TIMEOUT_S)


_OUTCOME_FIELDS: Final = frozenset(MeasureOutcome.__dataclass_fields__)


class DeviceRunner(_ChildRunner):
    """Measures on one GPU, which it holds for itself from its first breath to `close`.

    Args:
        device: torch's name, `cuda:0` (AMD's too).
        cache_dir: the cache folder, the builder's; as for `cache.cache_root`.
        timeout_s: most seconds for one candidate, check included.
        log_dir: where the output of failed children is kept.
        spare: keep a second child ready (imports done, no CUDA context), so that a fault costs little.
        say: told of waits for another session.
        lock_timeout_s: how long to wait for another session; without end where None.

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
    ) -> None:
        self._device = device
        super().__init__("bench", device, cache_dir=cache_dir, timeout_s=timeout_s, log_dir=log_dir, spare=spare)
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


class InterpreterRunner(_ChildRunner):
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

    def _prepare(self, job: Job) -> tuple[str, ...]:
        refuse_on_interpreter(job.workload)
        return super()._prepare(job)


def refuse_on_interpreter(workload: Workload) -> None:
    """Refuse what Triton's interpreter gets wrong without a word: arithmetic in bfloat16 (Triton 3.6 to 3.9).

    Raises:
        UsageError: the workload has a bfloat16 dtype.
    """
    for name, dtype in workload.dtypes.items():
        if dtype == "bfloat16":
            advice = f"use {name}=float16 or {name}=float32, or a GPU"
            raise UsageError(f"{workload.key}: Triton's interpreter computes bfloat16 wrongly, so nothing could be checked; {advice}")


def _to_stderr(message: str) -> None:
    print(message, file=sys.stderr, flush=True)
