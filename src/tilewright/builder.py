"""The parent's side of compiling: a pool of children that need no device, and every way a build can end as a status.

Builder (protocol)
├── CompileBuilder            compiles, in parallel, behind a cache
├── recorded.RecordedBuilder  answers from a recording
└── testing.FakeBuilder       answers as a test says
"""

from __future__ import annotations

import contextlib
import os
import re
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

import msgspec

from tilewright.cache import OutcomeCache, cache_root, child_environment
from tilewright.canonical import sha256_json
from tilewright.errors import HostError
from tilewright.grouped_queue import GroupedQueue
from tilewright.nursery import Nursery
from tilewright.operator import ScalarSpec, TensorSpec
from tilewright.record import Resources, Status
from tilewright.target import Target, Toolchain
from tilewright.worker import Reply, Worker

if TYPE_CHECKING:
    from tilewright.template import Source

_RANK: Final = 1  # children of a session are forked one by one: first the one that measures, which needs longest to get ready
BUILD_SCHEMA: Final = 5  # raised whenever the same source would be judged differently
# A GEMM takes 0.2-0.8 CPU-seconds (an H200 machine, and one of 2 cores, 2026-11). A tile far too large for its warps takes 48 s
# (128x128x64 on one warp, sm_90, 2 busy cores): LLVM, not ptxas, and 20 KB of spills at the end of it.
BUILD_TIMEOUT_S: Final = 60.0  # guess: what takes longer is hopeless, even on a busy machine
_RETIRE_TIMEOUT_S: Final = 5.0  # guess: leaving a process is immediate
_NOISE_LINES: Final = 2  # guess: MLIR's first complaint is the reason, the rest dumps the module
_NOISE_CHARS: Final = 300

# No device is visible; ptxas's log alone tells the bytes it spilled.
_CHILD: Final[Mapping[str, str]] = {
    "CUDA_VISIBLE_DEVICES": "",
    "HIP_VISIBLE_DEVICES": "",
    "ROCR_VISIBLE_DEVICES": "",
    "TRITON_DUMP_PTXAS_LOG": "1",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildRequest:
    """A module to compile for the arguments it will be launched with.

    Attributes:
        source: the rendered module.
        arguments: of `launch`: inputs then outputs, in its order; scratch is what `workspace` says.
        target: what to compile for.
        outputs: how many of the arguments, the last ones, are outputs: which kernel of a launch is its main one is told by what it reads.
    """

    source: Source
    arguments: tuple[TensorSpec | ScalarSpec, ...]
    target: Target
    outputs: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildOutcome:
    """How a build ended.

    Attributes:
        status: `ok`, `compile_error`, `compile_timeout`, `out_of_resources` or `launch_error`.
        message: why it is not `ok`.
        resources: what the kernels need, where all of them compiled.
        exceeds: limits of the target that one of them breaks, as `threads of a block: 2,048 of 1,024`.
        binary: SHA-256 over the kernels' binaries, empty where some did not compile.
        build_s: seconds of compiling; 0 where the cache had the outcome.
        cached: whether it had.
    """

    status: Status
    message: str = ""
    resources: Resources | None = None
    exceeds: tuple[str, ...] = ()
    binary: str = ""
    build_s: float = 0.0
    cached: bool = False


class Builder(Protocol):
    """What compiles candidates."""

    @property
    def toolchain(self) -> Toolchain:
        """What it compiles with."""
        ...

    def submit(self, request: BuildRequest) -> Future[BuildOutcome]:
        """Ask for a build; a fault of the candidate is an outcome, a fault of this machine the future's HostError."""
        ...

    def close(self) -> None:
        """Cancel what has not begun, and end the children."""
        ...


@dataclass(slots=True, kw_only=True)
class _Task:
    request: BuildRequest
    future: Future[BuildOutcome]


class CompileBuilder:
    """Compiles in `jobs` child processes.

    A future is cancelled, or raises CancelledError, where the builder was closed first. It raises HostError where this machine
    cannot build: no child starts, a folder cannot be written. Any fault of a candidate is an outcome.

    Args:
        jobs: children at most; each is started when there is work for it.
        cache_dir: the cache folder, `$TILEWRIGHT_CACHE` or `~/.cache/tilewright` by default.
        timeout_s: most seconds for one build.
        log_dir: where the output of failed children is kept.
        command: another command to run as the children.
        nursery: forks the children, so that one process imports torch and triton for all of them; its owner closes it.

    Attributes:
        jobs: as given.
        busy_s: seconds that the children were at work, added up.
    """

    def __init__(
        self,
        jobs: int = 1,
        cache_dir: Path | None = None,
        timeout_s: float = BUILD_TIMEOUT_S,
        *,
        log_dir: Path | None = None,
        command: Sequence[str] | None = None,
        nursery: Nursery | None = None,
    ) -> None:
        self.jobs = max(1, jobs)
        self.busy_s = 0.0
        self._root = cache_root(cache_dir)
        self._timeout_s = timeout_s
        self._outcomes = OutcomeCache(self._root / "builds")
        environment = {**child_environment(self._root), **_CHILD}
        self._workers = [Worker("build", env=environment, log_dir=log_dir, command=command, nursery=nursery, rank=_RANK) for _ in range(self.jobs)]
        # Requests of one source and arch share most of their kernels: one after another, all but the first find them compiled.
        self._queue: GroupedQueue[_Task] = GroupedQueue()
        self._threads: list[threading.Thread] = []
        self._threads_lock = threading.Lock()
        self._info_lock = threading.Lock()
        self._info: Mapping[str, Any] = {}

    def __enter__(self) -> CompileBuilder:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def toolchain(self) -> Toolchain:
        """Versions of Triton, ptxas and torch; starts a child the first time.

        Raises:
            HostError: no child starts.
        """
        info = self._identity(self._workers[0])
        return Toolchain(triton=info["triton"], ptxas=info["ptxas"], torch=info["torch"])

    def submit(self, request: BuildRequest) -> Future[BuildOutcome]:
        """Queue a build.

        Raises:
            HostError: the builder is closed.
        """
        task = _Task(request=request, future=Future())
        try:
            starved = self._queue.put((request.source.hash, request.target.arch), task)
        except ValueError:
            raise HostError("the builder is closed; make another one") from None
        if starved:
            self._add_thread()
        return task.future

    def start(self) -> None:
        """Start all children ahead of the first request, in the background: a fresh one takes seconds to import torch and triton."""
        while self._add_thread():
            pass

    def _add_thread(self) -> bool:
        with self._threads_lock:
            number = len(self._threads)
            if number == len(self._workers) or self._queue.closed:
                return False
            thread = threading.Thread(target=self._work, args=(self._workers[number],), name=f"tilewright-build-{number}", daemon=True)
            self._threads.append(thread)
            thread.start()
            return True

    def close(self) -> None:
        """Cancel what has not begun, end the children, and wait for the threads; may be called again."""
        for task in self._queue.close():
            task.future.cancel()
        with ThreadPoolExecutor(len(self._workers)) as closers:  # an interpreter with torch takes its time to end
            list(closers.map(Worker.close, self._workers))
        with self._threads_lock:
            threads = list(self._threads)
        for thread in threads:
            thread.join()

    def _work(self, worker: Worker) -> None:
        with contextlib.suppress(HostError):  # the first request says it to someone
            worker.start()
        while (taken := self._queue.get()) is not None:
            group, task = taken
            try:
                if task.future.set_running_or_notify_cancel():
                    began = time.monotonic()
                    self._settle(worker, task)
                    with self._threads_lock:
                        self.busy_s += time.monotonic() - began
            finally:
                self._queue.done(group)

    def _settle(self, worker: Worker, task: _Task) -> None:
        try:
            outcome = self._build(worker, task.request)
        except OSError as error:
            task.future.set_exception(HostError(f"the cache folder {self._root} cannot be written: {error}; free it, or name another in TILEWRIGHT_CACHE"))
        except BaseException as error:
            task.future.set_exception(CancelledError() if self._queue.closed else error)
        else:
            if self._queue.closed and outcome.status is Status.COMPILE_ERROR:
                task.future.set_exception(CancelledError())  # its child was ended by `close`
            else:
                task.future.set_result(outcome)

    def _build(self, worker: Worker, request: BuildRequest) -> BuildOutcome:
        payload = {
            "text": request.source.text,
            "hash": request.source.hash,
            "folder": str(self._root / "sources"),
            "arguments": [_argument(spec) for spec in request.arguments],
            "outputs": request.outputs,
            "target": {**request.target.to_json(), "backend": request.target.compile_backend},
        }
        key = self._key(worker, payload)
        known = self._lookup(key)
        if known is not None:
            return known
        reply = worker.request("build", payload, self._timeout_s)
        if reply.kind != "ok":
            return _failure(reply, self._timeout_s)
        result = dict(reply.result)
        if result.pop("retire", False):  # the module left a thread or a process behind: the next one gets a child of its own
            worker.request("retire", {}, _RETIRE_TIMEOUT_S)
        if "host_fault" in result:
            raise HostError(f"a build needs to write below {self._root} and the temporary folder: {result['host_fault']}")
        if result["status"] == Status.COMPILE_ERROR:
            result["message"] += _diagnosis(reply.output)
        if not result.get("transient"):
            self._outcomes.put(key, result)
        return _outcome(result, cached=False)

    def _key(self, worker: Worker, payload: Mapping[str, Any]) -> str:
        """The hash of everything that can change the outcome: what is compiled, for what, with what."""
        identity = self._identity(worker)
        target = payload["target"]
        limits = ("backend", "arch", "warp_size", "shared_memory_bytes")
        return sha256_json(
            {
                "schema": BUILD_SCHEMA,
                "source": payload["hash"],
                "arguments": payload["arguments"],
                "outputs": payload["outputs"],
                "target": {name: target[name] for name in limits},
                "toolchain": {name: identity[name] for name in ("triton_key", "ptxas", "environment")},
            }
        )

    def _identity(self, worker: Worker) -> Mapping[str, Any]:
        with self._info_lock:  # one child tells for all: they share interpreter and environment
            if not self._info:
                self._info = worker.info
            return self._info

    def _lookup(self, key: str) -> BuildOutcome | None:
        entry = self._outcomes.get(key)
        if entry is None:
            return None
        try:
            # An outcome whose kernels were swept from Triton's cache would leave the compiling to the runner.
            return _outcome(entry, cached=True) if all(os.path.exists(file) for file in entry.get("files", ())) else None
        except (ValueError, KeyError, TypeError):  # damaged: msgspec's ValidationError is a ValueError
            return None


def _argument(spec: TensorSpec | ScalarSpec) -> dict[str, Any]:
    if isinstance(spec, TensorSpec):
        return asdict(spec)
    # A float goes by its hexadecimal form, which is exact and has infinities.
    return {"float": spec.value.hex()} if isinstance(spec.value, float) else {"int": spec.value}


def _outcome(result: Mapping[str, Any], *, cached: bool) -> BuildOutcome:
    resources = result.get("resources")
    return BuildOutcome(
        status=Status(result["status"]),
        message=str(result["message"]),
        resources=None if resources is None else msgspec.convert(resources, Resources),
        exceeds=tuple(map(str, result.get("exceeds", ()))),
        binary=str(result.get("binary", "")),
        build_s=0.0 if cached else float(result["build_s"]),
        cached=cached,
    )


def _failure(reply: Reply, timeout_s: float) -> BuildOutcome:
    """A build without a verdict; it may do better another time, so it is not kept."""
    if reply.kind == "timeout":
        return BuildOutcome(status=Status.COMPILE_TIMEOUT, message=f"compiling took more than {timeout_s:g} s", build_s=timeout_s)
    return BuildOutcome(status=Status.COMPILE_ERROR, message=reply.message)


def _diagnosis(output: str) -> str:
    """MLIR and LLVM print what is wrong and raise only that something is."""
    lines = [line.strip()[:_NOISE_CHARS] for line in output.splitlines() if re.search(r"\b(error|fatal)\b", line, re.IGNORECASE)]
    return "".join(f" | {line}" for line in lines[:_NOISE_LINES])
