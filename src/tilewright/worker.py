"""The parent's side of a child that compiles or measures: requests with a time limit, and a new child after each fault."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal

from tilewright.errors import HostError
from tilewright.process import ChildProcess, Died, Garbage, Timeout

Kind = Literal["build", "bench", "interpret"]
ReplyKind = Literal["ok", "error", "timeout", "died", "garbage"]

# The interpreter is the bench child, with TRITON_INTERPRET set before triton is first imported; no other child may inherit it.
_MODULES: Final[Mapping[str, str]] = {"build": "tilewright.children.build", "bench": "tilewright.children.bench", "interpret": "tilewright.children.bench"}

# A fresh process with torch, triton and a CUDA context takes 5.7 s on an H200 machine with 16 cores.
# guess: twenty times that is a host that cannot start children.
START_TIMEOUT_S: Final = 120.0
_TAIL_CHARS: Final = 2000  # guess: what fits in a record's message
_DEATH_GRACE_S: Final = 1.0  # guess: a dying child closes its pipe some ms before it ends; without a wait its own ending is lost to our SIGKILL
_CLOSE_GRACE_S: Final = 2.0  # guess: an interpreter with torch tears down in 0.2-0.5 s


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """What came of a request.

    Attributes:
        kind: `ok`; `error`, an exception in the handler, after which the child lives on; `timeout`, `died` or `garbage` (an
            unreadable frame), after which it does not.
        result: the handler's answer for `ok`; class, message and traceback of its exception for `error`; else empty.
        message: why it is not `ok`, with the end of what the child printed meanwhile.
        output: what the child printed meanwhile, on stdout and stderr, the last 64 KB of it.
    """

    kind: ReplyKind
    result: Mapping[str, Any] = field(default_factory=dict)
    message: str = ""
    output: str = ""


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
    ) -> None:
        self.kind = kind
        # -P: a file of the working folder must not stand in for one of ours or of the standard library.
        self._command = list(command or [sys.executable, "-P", "-m", _MODULES[kind]])
        self._env = {**os.environ, **_import_path(), "TRITON_INTERPRET": "1" if kind == "interpret" else "0", **(env or {})}
        self._log_dir = log_dir
        self._keep_spare = spare
        self._start_timeout_s = start_timeout_s
        self._turn = threading.Lock()  # held by the thread that talks to the child
        self._closed = threading.Event()
        self._child: ChildProcess | None = None
        self._spare: ChildProcess | None = None
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
            return Reply(kind="error", result=frame["error"], message=_with_tail(f"{op}: {_exception(frame['error'])}", output), output=output)

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
            children, self._child, self._spare = (self._child, self._spare), None, None
            for child in children:
                if child:
                    child.dispose(grace_s)
        finally:
            self._turn.release()

    def _ready_child(self) -> ChildProcess:
        if self._closed.is_set():
            raise HostError(f"the {self.kind} worker is closed")
        if self._child is None:
            if self._spare is not None:
                self._child, self._spare = self._spare, None
                try:
                    self._await_ready(self._child)
                except HostError:
                    self._child = None  # it died in waiting: a fresh one may do better
            if self._child is None:
                child = self._child = ChildProcess(self._command, self._env)  # known to `close` before the wait
                try:
                    self._await_ready(child)
                except BaseException:
                    self._child = None
                    raise
        if self._keep_spare and self._spare is None:
            self._spare = ChildProcess(self._command, self._env)
        if self._closed.is_set():
            raise HostError(f"the {self.kind} worker was closed")
        return self._child

    def _await_ready(self, child: ChildProcess) -> None:
        problem = ""
        try:
            frame = child.receive(time.monotonic() + self._start_timeout_s)
            if frame.get("ready") is True and isinstance(frame.get("info"), dict):
                self._info = frame["info"]
                return
            error = frame.get("error")
            problem = _exception(error) if isinstance(error, dict) else f"its first frame was {str(frame)[:200]!r}"
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
        raise HostError(_with_tail(f"the {self.kind} child did not start ({' '.join(self._command)}): {problem or f'it died: {ending}'}", tail))

    def _fault(self, kind: ReplyKind, message: str, mark: int) -> Reply:
        child, self._child = self._child, None
        assert child is not None
        ending = child.dispose(_DEATH_GRACE_S if kind == "died" else 0.0)
        if kind == "died":
            message += f": {ending}" + (" (the worker was closed)" if self._closed.is_set() else "")
        tail = child.output.since(mark)
        self._keep(child, tail)
        return Reply(kind=kind, message=_with_tail(message, tail), output=tail)

    def _keep(self, child: ChildProcess, tail: str) -> None:
        if self._log_dir is not None and tail:
            self._log_dir.mkdir(parents=True, exist_ok=True)
            (self._log_dir / f"{self.kind}-{child.pid}.log").write_text(tail)


def _exception(error: Mapping[str, Any]) -> str:
    return f"{error.get('class', 'an exception')}: {error.get('message', '')}"


def _with_tail(message: str, output: str) -> str:
    tail = output.strip()
    if not tail:
        return message
    cut = f"...{tail[-_TAIL_CHARS:]}" if len(tail) > _TAIL_CHARS else tail
    return f"{message}\nit printed: {cut}"


def _import_path() -> dict[str, str]:
    """Lets the child import this same package where it was found by a path given to this process alone."""
    root = Path(__file__).resolve().parent.parent
    if root.name in ("site-packages", "dist-packages"):
        return {}  # it is found there anyway, and must not come before the standard library
    given = os.environ.get("PYTHONPATH")
    return {"PYTHONPATH": f"{root}{os.pathsep}{given}" if given else str(root)}
