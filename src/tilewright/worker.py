"""The parent's side of a child that compiles or measures: requests with a time limit, and a new child after each fault."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Literal

from tilewright.errors import HostError
from tilewright.nursery import CannotFork, Nursery, base_environment
from tilewright.process import ChildProcess, Died, Garbage, Timeout
from tilewright.reply import Reply as Reply
from tilewright.reply import ReplyKind, Stage, exception_text, with_tail
from tilewright.spare import Spare

Kind = Literal["build", "bench", "interpret"]

# The interpreter is the bench child, with TRITON_INTERPRET set before triton is first imported; no other child may inherit it.
_MODULES: Final[Mapping[str, str]] = {"build": "tilewright.children.build", "bench": "tilewright.children.bench", "interpret": "tilewright.children.bench"}

# A fresh process with torch, triton and a CUDA context takes 5.7 s on an H200 machine with 16 cores.
# guess: twenty times that is a host that cannot start children.
START_TIMEOUT_S: Final = 120.0
_DEATH_GRACE_S: Final = 1.0  # guess: a dying child closes its pipe some ms before it ends; without a wait its own ending is lost to our SIGKILL
_STAGES: Final = 1000  # guess: some hundred faults
_CLOSE_GRACE_S: Final = 2.0  # guess: an interpreter with torch tears down in 0.2-0.5 s


class Worker:
    """A child process that answers one request at a time, and is replaced when it fails.

    Requests from several threads queue. `close` may be called from any thread and ends a request in progress.

    Args:
        kind: which child: `build`, `bench`, or `interpret` (bench under Triton's interpreter).
        env: variables set for the child on top of this process's environment; an empty value is set as such.
        log_dir: folder where the last 64 KB that a failed child printed are kept; None keeps only the end in the message.
        spare: keep one more child started, past its imports, to take over at once after a fault.
        start_timeout_s: seconds that a child may take to get ready; requests' time limits start after that.
        command: another command to run as the child.
        ahead: operation that a spare is asked once it is ready, so that it takes over with less to do.
        nursery: forks all children; its owner closes it. Without it, a worker with a spare has one of its own, for all children but the first.
        rank: of those that wait for the nursery, the lowest is served first.
        spare_after: requests that are answered before there is a spare, which would be in the way of the first child's own start.

    Attributes:
        stages: what replacing children took, the latest last.
    """

    def __init__(
        self,
        kind: Kind,
        *,
        env: Mapping[str, str] | None = None,
        log_dir: Path | None = None,
        spare: bool = False,
        start_timeout_s: float = START_TIMEOUT_S,
        command: Sequence[str] | None = None,
        ahead: str = "",
        nursery: Nursery | None = None,
        rank: int = 0,
        spare_after: int = 0,
    ) -> None:
        self.kind = kind
        # -P: a file of the working folder must not stand in for one of ours or of the standard library.
        self._command = list(command or [sys.executable, "-P", "-m", _MODULES[kind]])
        self._env = {**base_environment(interpreted=kind == "interpret"), **(env or {})}
        self._log_dir = log_dir
        self._keep_spare = spare
        self._start_timeout_s = start_timeout_s
        self._turn = threading.Lock()  # held by the thread that talks to the child
        self._closed = threading.Event()
        self._child: ChildProcess | None = None
        self._spare: Spare | None = None
        self._ahead = ahead
        self._spare_after = spare_after
        self._rank = rank
        self._shared = nursery if command is None else None
        # Forks start children at once, where one fault follows another before a spare has done its imports.
        self._forks = spare and self._shared is None and command is None and Nursery.possible()
        self._nursery = self._shared
        self.stages: deque[Stage] = deque(maxlen=_STAGES)
        self._info: dict[str, Any] | None = None
        self._serial = 0

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def info(self) -> Mapping[str, Any]:
        """What the child's ready frame said; starts a child where none has said anything yet.

        Raises:
            HostError: no child starts.
        """
        if self._info is None:
            self.start()
        return self._info or {}

    @property
    def pid(self) -> int | None:
        """Process id of the running child, None between children."""
        return self._child.pid if self._child else None

    @property
    def alive(self) -> bool:
        """Whether the child runs."""
        child = self._child
        return child is not None and not child.ended

    def start(self) -> None:
        """Start the child, unless it runs, and wait until it is ready.

        Raises:
            HostError: it does not start.
        """
        with self._turn:
            self._ready_child()

    def request(self, op: str, payload: Mapping[str, Any], timeout_s: float) -> Reply:
        """Ask the child for one operation, and wait.

        Args:
            op: name of a handler of the child.
            payload: its argument, a JSON object.
            timeout_s: seconds it may take, from the moment that the child is ready.

        Raises:
            HostError: no child starts, or one cannot be killed (WorkerUnkillable).
        """
        with self._turn:
            child = self._ready_child()
            self._serial += 1
            mark = child.output.mark()
            deadline = time.monotonic() + timeout_s
            try:
                child.send({"id": self._serial, "op": op, "payload": dict(payload)}, deadline)
                frame = child.receive(deadline)
                if frame.get("id") != self._serial or not isinstance(frame.get("result", frame.get("error")), dict):
                    raise Garbage(repr(str(frame)[:200]))
            except Timeout:
                return self._fault("timeout", f"{op}: no answer within {timeout_s:g} s", mark)
            except Garbage as garbage:
                return self._fault("garbage", f"{op}: the child sent what is no answer: {garbage}", mark)
            except Died:
                return self._fault("died", f"{op}: the child died", mark)
            except BaseException:  # interrupted: an answer that nobody waits for any more would be taken for the next one's
                self._child = None
                child.dispose()
                raise
            output = child.output.since(mark)
            if "result" in frame:
                return Reply(kind="ok", result=frame["result"], output=output)
            return Reply(kind="error", result=frame["error"], message=with_tail(f"{op}: {exception_text(frame['error'])}", output), output=output)

    def close(self) -> None:
        """End the child and its spare, also in the middle of a request; no request is taken afterwards."""
        self._closed.set()
        if self._turn.acquire(blocking=False):
            grace_s = _CLOSE_GRACE_S  # idle: it ends by itself on reading the end of its pipe
        else:
            grace_s = 0.0
            for child in (self._child, self._spare):
                if child:
                    child.kill()
            self._turn.acquire()
        try:
            children = [self._child, self._spare.child if self._spare else None]
            self._child = self._spare = None
            self._leave_nursery()
            for one in children:
                if one:
                    one.dismiss()  # all of them first: they end at the same time
            for one in children:
                if one:
                    one.dispose(grace_s)
        finally:
            self._turn.release()

    def _ready_child(self) -> ChildProcess:
        if self._closed.is_set():
            raise HostError(f"the {self.kind} worker is closed")
        if self._child is None:
            with self.stage("start"):
                self._replace()
        if self._keep_spare and self._serial >= self._spare_after:
            self._tend_spare()
        if self._closed.is_set():
            raise HostError(f"the {self.kind} worker was closed")
        assert self._child is not None
        return self._child

    def _replace(self) -> None:
        """Put the spare into service, or else a new child, and wait until it is ready."""
        spare, self._spare = self._spare, None
        if spare is not None:
            self._child = spare.child  # known to `close` before the wait
            spare.tend()
            if spare.preparing:
                spare.tend(self._start_timeout_s)
            self._ahead = "" if spare.refused else self._ahead
            try:
                if spare.info is None:
                    self._await_ready(self._child)
                else:
                    self._info = spare.info
                    if self._child.ended:
                        self._child.dispose()
                        self._child = None
            except HostError:
                self._child = None  # it died in waiting: a fresh one may do better
        while self._child is None:
            child = self._child = self._new_child()
            try:
                self._await_ready(child)
            except BaseException as error:
                self._child = None
                if not (child.forked and isinstance(error, HostError)):
                    raise
                self._leave_nursery()  # from here on, children are started afresh

    def _tend_spare(self) -> None:
        if self._forks and self._nursery is None:
            self._nursery = Nursery(self._env)
        if self._spare is not None:
            self._spare.tend()
        elif not self._forks or self._nursery is None or self._nursery.broken or self._nursery.ready():
            self._spare = Spare(self._new_child(), self._ahead)

    def _new_child(self) -> ChildProcess:
        """A child that gets ready: forked where there is a nursery to fork it from, else started. Only one that all share is waited for."""
        if self._nursery is not None and not self._nursery.broken and (self._shared is not None or self._nursery.ready()):
            with contextlib.suppress(CannotFork):
                wanted = lambda: not self._closed.is_set()  # noqa: E731
                return ChildProcess(self._command, self._env, self._nursery, kind=self.kind, rank=self._rank, wanted=wanted)
            if self._closed.is_set():
                raise HostError(f"the {self.kind} worker was closed")
        return ChildProcess(self._command, self._env)

    def _leave_nursery(self) -> None:
        """Fork no more; one that is shared goes on for others."""
        nursery, self._nursery, self._forks = self._nursery, None, False
        if nursery is not None and nursery is not self._shared:
            nursery.close()

    @contextlib.contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Note what something took."""
        began = time.monotonic()
        try:
            yield
        finally:
            self.stages.append(Stage(name=name, began_s=began, seconds=time.monotonic() - began))

    def _await_ready(self, child: ChildProcess) -> None:
        problem = ""
        try:
            frame = child.receive(time.monotonic() + self._start_timeout_s)
            if frame.get("ready") is True and isinstance(frame.get("info"), dict):
                self._info = frame["info"]
                return
            error = frame.get("error")
            problem = exception_text(error) if isinstance(error, dict) else f"its first frame was {str(frame)[:200]!r}"
        except Timeout:
            problem = f"not ready within {self._start_timeout_s:g} s"
        except Garbage as garbage:
            problem = f"its first frame was {garbage}"
        except Died:
            pass
        except BaseException:
            child.dispose()
            raise
        ending = child.dispose(_DEATH_GRACE_S if not problem else 0.0)
        tail = child.output.since()
        self._keep(child, tail)
        raise HostError(with_tail(f"the {self.kind} child did not start ({' '.join(self._command)}): {problem or f'it died: {ending}'}", tail))

    def _fault(self, kind: ReplyKind, message: str, mark: int) -> Reply:
        child, self._child = self._child, None
        assert child is not None
        with self.stage("end"):
            ending = child.dispose(_DEATH_GRACE_S if kind == "died" else 0.0)
        if kind == "died":
            message += f": {ending}" + (" (the worker was closed)" if self._closed.is_set() else "")
        tail = child.output.since(mark)
        self._keep(child, tail)
        return Reply(kind=kind, message=with_tail(message, tail), output=tail)

    def _keep(self, child: ChildProcess, tail: str) -> None:
        if self._log_dir is not None and tail:
            self._log_dir.mkdir(parents=True, exist_ok=True)
            (self._log_dir / f"{self.kind}-{child.pid}.log").write_text(tail)
