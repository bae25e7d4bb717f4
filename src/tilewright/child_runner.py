"""What the runners share: a child that is opened once, and jobs turned into requests and back."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import msgspec

from tilewright.cache import cache_root, child_environment
from tilewright.errors import HostError, UsageError
from tilewright.job import Job, MeasureJob, MeasureOutcome
from tilewright.nursery import Nursery
from tilewright.record import Status
from tilewright.reply import Reply, Stage
from tilewright.target import Toolchain
from tilewright.template import Source
from tilewright.worker import Kind, Worker
from tilewright.workload import Workload

PREPARE_TIMEOUT_S: Final = 120.0  # guess: inputs and a reference in double precision of the largest workloads take seconds
_OPEN_TIMEOUT_S: Final = 60.0  # a CUDA context and warming up take 1-3 s (H200, 2026-11)
_PING_TIMEOUT_S: Final = 5.0  # guess: an idle child answers at once, however busy the machine
_RETIRE_TIMEOUT_S: Final = 5.0  # guess: leaving a process with a broken CUDA context is immediate, or hangs for good
_MEMORY_GROWTH_BYTES: Final = 4 * 2**30  # guess: some thousand kernels kept by Triton; a fresh child costs 6 s at most
# The clock settles in 0.3 s of load. A child that replaces another finds the device warm: what this buys is cuBLAS loaded.
_WARM_S: Final = 0.3
_REWARM_S: Final = 0.1  # guess
_SPARE_AFTER: Final = 2  # its context would be created while the first child creates its own: `open` and `prepare` come first


class ChildRunner:
    """Asks a child, which it starts and replaces.

    A child's life: ready (imports done, device read, no context), `open` (context, warm clock), `prepare` once for each
    workload (inputs, reference), then `measure`. Time limits are for each of these, so that a candidate pays for itself alone.
    """

    protocol: str

    def __init__(
        self, kind: Kind, device: str, *, cache_dir: Path | None, timeout_s: float, log_dir: Path | None, spare: bool, nursery: Nursery | None = None
    ) -> None:
        self._timeout_s = timeout_s
        self._sources = cache_root(cache_dir) / "sources"
        environment = {**child_environment(cache_dir), "TILEWRIGHT_DEVICE": device}
        on_device = kind == "bench"
        self._worker = Worker(
            kind,
            env=environment,
            log_dir=log_dir,
            spare=spare,
            ahead="open_ahead" if on_device else "",
            nursery=nursery,
            spare_after=_SPARE_AFTER if on_device else 0,
        )
        self._opened: int | None = None  # process id of the child that was opened
        self._baseline_bytes = 0
        self._warm_s = _WARM_S
        self._prepared: dict[tuple[str, int], tuple[str, ...]] = {}  # vendors' names, by workload and seed
        self._ahead: tuple[int | None, str] = (None, "")  # the child that was given a candidate's source ahead, and that source's hash

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
        """Check a candidate's outputs, then time it where the job asks for that.

        Raises:
            UsageError: the operator's own spec or reference fails for this workload.
            HostError: the device or the child cannot be had.
        """
        candidate = {
            **source_payload(job.source),
            "cut_above_us": job.cut_above_us,
            "neighbours": [_workload(workload) for workload in job.neighbours],
            "timed": job.timed,
            "timeout_s": self._timeout_s,
        }
        # A child that is at this candidate already is not asked first: what it does from here on is this candidate's, and in its time-out.
        # One that died of it, or of something else, is replaced, and the candidate shows again what it does.
        loading = self._ahead == (self._worker.pid, job.source.hash) and self._is_prepared(job) and self._worker.alive
        if not loading:
            self._prepare(job)
        return self._outcome(self._measure(job, candidate))

    def _measure(self, job: MeasureJob, candidate: Mapping[str, Any]) -> Reply:
        ahead = None if job.ahead is None else {**source_payload(job.ahead), "workload": _workload(job.ahead_workload or job.workload)}
        self._ahead = (self._worker.pid, job.ahead.hash if job.ahead is not None else "")
        return self._worker.request("measure", {**self._payload(job), **candidate, "ahead": ahead}, self._timeout_s)

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

    def _payload(self, job: Job) -> dict[str, Any]:
        return {
            "operator": job.operator,
            "folder": str(job.folder.resolve()),
            "workload": _workload(job.workload),
            "seed": job.seed,
            "sources": str(self._sources),
            "default": None if job.default is None else source_payload(job.default),
        }

    def _open(self) -> None:
        # A child may have been killed between two jobs: asking (0.1 ms) keeps that from becoming the next candidate's crash.
        if self._opened is not None and self._worker.pid == self._opened:
            reply = self._worker.request("ping", {}, _PING_TIMEOUT_S)
            self._retire_if_told(reply.result)
            if reply.kind == "ok" and not reply.result.get("retire"):
                return
        self._opened = None
        self._prepared.clear()
        self._worker.start()
        self._check_device(self._worker.info)
        warm_s, self._warm_s = self._warm_s, _REWARM_S
        reply = self._staged("open", {"warm_s": warm_s}, _OPEN_TIMEOUT_S)
        if reply.kind == "died":  # or was dead, killed while it waited for its first job
            reply = self._staged("open", {"warm_s": warm_s}, _OPEN_TIMEOUT_S)
        result = self._expect(reply, "the device cannot be opened")
        self._baseline_bytes = int(result["rss_bytes"])
        self._opened = self._worker.pid

    def _staged(self, op: str, payload: Mapping[str, Any], timeout_s: float) -> Reply:
        """A request that a new child gets; what it took is noted among the stages."""
        began = time.monotonic()
        reply = self._worker.request(op, payload, timeout_s)
        parts = reply.result.get("stages_ms", {}) if reply.kind == "ok" else {}
        self._worker.stages.append(Stage(name=op, began_s=began, seconds=time.monotonic() - began, parts_ms=parts))
        return reply

    @property
    def stages(self) -> Sequence[Stage]:
        """What replacing children took, the latest last: `end`, `start`, `open`, `prepare`."""
        return tuple(self._worker.stages)

    def _is_prepared(self, job: Job) -> bool:
        return self._opened is not None and self._worker.pid == self._opened and (job.workload.key, job.seed) in self._prepared

    def _check_device(self, info: Mapping[str, Any]) -> None:
        """Refuse a child that found no device; a runner without one has nothing to check."""

    def _prepare(self, job: Job) -> tuple[str, ...]:
        """Have the child hold the job's inputs and reference; returns the names of its vendors."""
        self._open()
        key = (job.workload.key, job.seed)
        if key not in self._prepared:
            reply = self._staged("prepare", self._payload(job), PREPARE_TIMEOUT_S)
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
        if "host_fault" in reply.result:
            raise HostError(f"{what}: {reply.result['host_fault']}")
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


def source_payload(source: Source) -> dict[str, str]:
    """A rendered module as a request has it."""
    return {"text": source.text, "hash": source.hash}


def _workload(workload: Workload) -> dict[str, Any]:
    return {"operator": workload.operator, "dims": dict(workload.dims), "dtypes": dict(workload.dtypes), "layout": dict(workload.layout)}


_OUTCOME_FIELDS: Final = frozenset(MeasureOutcome.__dataclass_fields__)
