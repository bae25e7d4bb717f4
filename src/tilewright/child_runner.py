"""What the runners share: a child that is opened once, and jobs turned into requests and back."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import msgspec

from tilewright.cache import cache_root, child_environment
from tilewright.errors import HostError, UsageError
from tilewright.job import Job, MeasureJob, MeasureOutcome, RaceEntrant, RaceJob, RaceOutcome
from tilewright.record import Anchor, DeviceState, Status
from tilewright.target import Toolchain
from tilewright.template import Source
from tilewright.worker import Kind, Reply, Worker
from tilewright.workload import Workload

_PREPARE_TIMEOUT_S: Final = 120.0  # guess: inputs and a reference in double precision of the largest workloads take seconds
_OPEN_TIMEOUT_S: Final = 60.0  # a CUDA context and warming up take 1-3 s (H200, 2026-11)
_PING_TIMEOUT_S: Final = 5.0  # guess: an idle child answers at once, however busy the machine
_RETIRE_TIMEOUT_S: Final = 5.0  # guess: leaving a process with a broken CUDA context is immediate, or hangs for good
_MEMORY_GROWTH_BYTES: Final = 4 * 2**30  # guess: some thousand kernels kept by Triton; a fresh child costs 6 s at most
_RACE_TIMEOUT_S: Final = 60.0  # guess: a race takes 0.2 to 1.5 s of device time
# The clock settles in 0.3 s of load. A child that replaces another finds the device warm: what this buys is cuBLAS loaded.
_WARM_S: Final = 0.3
_REWARM_S: Final = 0.1  # guess


class ChildRunner:
    """Asks a child, which it starts and replaces.

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
        self._warm_s = _WARM_S
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
        candidate = {**_source(job.source), "cut_above_us": job.cut_above_us, "neighbours": [_workload(workload) for workload in job.neighbours]}
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

    def _payload(self, job: Job) -> dict[str, Any]:
        return {
            "operator": job.operator,
            "folder": str(job.folder.resolve()),
            "workload": _workload(job.workload),
            "seed": job.seed,
            "sources": str(self._sources),
            "default": None if job.default is None else _source(job.default),
        }

    def _race(self, job: RaceJob) -> RaceOutcome:
        """Check and capture each racer, then time all in turns.

        A racer that fails is out. Where it took the child down, or may have written over what the others are compared with, those
        enter anew: each failure costs one racer, and nothing else.
        """
        entries: list[tuple[str, dict[str, Any]]] = [(f"schedule {place}", _source(source)) for place, source in enumerate(job.sources)]
        entries += [(f"vendor {name}", {"vendor": name}) for name in self._prepare(job)]
        out: dict[str, RaceEntrant] = {}
        found: Mapping[str, Any] = {}
        afresh = False
        for _ in range(2 * len(entries) + 1):  # more than each can fail; the child may be replaced for its size as well
            racing = [(name, entry) for name, entry in entries if name not in out]
            if not racing:
                break
            self._prepare(job)
            begin = {**self._payload(job), "afresh": afresh}
            self._expect(self._worker.request("race_begin", begin, _PREPARE_TIMEOUT_S), "the race cannot begin")
            pid = self._worker.pid
            afresh = False
            for name, entry in racing:
                reply = self._worker.request("race_enter", {**self._payload(job), **entry}, self._timeout_s)
                outcome = self._outcome(reply)
                if outcome.status is not Status.OK:
                    out[name] = RaceEntrant(status=outcome.status, message=outcome.message)
                    afresh = bool(reply.result.get("spoiled"))
                if afresh or self._worker.pid != pid:
                    break
            if afresh or self._worker.pid != pid:
                continue
            entered = [name for name, _ in racing if name not in out]
            reply = self._worker.request("race_run", self._payload(job), _RACE_TIMEOUT_S)
            if reply.kind != "ok":
                self._retire_if_told({"retire": reply.kind == "error"})
                # Whose fault, nobody can tell, and all passed their checks.
                return RaceOutcome(
                    schedules=tuple(out.get(f"schedule {place}", RaceEntrant(status=Status.CRASH, message=reply.message)) for place in range(len(job.sources))),
                    message=f"the race did not end: {reply.message}",
                )
            found = reply.result
            for name, entrant in zip(entered, found["entrants"], strict=True):
                out[name] = RaceEntrant(status=Status(entrant["status"]), message=entrant["message"], times_us=tuple(entrant["times_us"]))
            break
        unraced = RaceEntrant(status=Status.CRASH, message="the race could not be begun for the failures of others")
        return RaceOutcome(
            schedules=tuple(out.get(f"schedule {place}", unraced) for place in range(len(job.sources))),
            vendors={name.removeprefix("vendor "): entrant for name, entrant in out.items() if name.startswith("vendor ")},
            rounds=int(found.get("rounds", 0)),
            anchor=msgspec.convert(found.get("anchor"), Anchor | None),
            state=msgspec.convert(found.get("state"), DeviceState | None),
        )

    def _open(self) -> None:
        # A child may have been killed between two jobs: asking (0.1 ms) keeps that from becoming the next candidate's crash.
        if self._opened is not None and self._worker.pid == self._opened and self._worker.request("ping", {}, _PING_TIMEOUT_S).kind == "ok":
            return
        self._opened = None
        self._prepared.clear()
        self._worker.start()
        self._check_device(self._worker.info)
        warm_s, self._warm_s = self._warm_s, _REWARM_S
        result = self._expect(self._worker.request("open", {"warm_s": warm_s}, _OPEN_TIMEOUT_S), "the device cannot be opened")
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


def _source(source: Source) -> dict[str, str]:
    return {"text": source.text, "hash": source.hash}


def _workload(workload: Workload) -> dict[str, Any]:
    return {"operator": workload.operator, "dims": dict(workload.dims), "dtypes": dict(workload.dtypes), "layout": dict(workload.layout)}


_OUTCOME_FIELDS: Final = frozenset(MeasureOutcome.__dataclass_fields__)
