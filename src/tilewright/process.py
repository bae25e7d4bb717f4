"""One child process: started in its own group, heard through private pipes, killed as a group."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from tilewright.descendants import descendants, kill_all
from tilewright.errors import WorkerUnkillable
from tilewright.guardian import GUARDIAN
from tilewright.nursery import Forked, Nursery, spawn

KEPT_OUTPUT_BYTES: Final = 64 * 1024  # guess: a screenful of a compiler's diagnostics many times over; the first bytes of a flood are lost
_CATCH_UP_READS: Final = 32  # a pipe holds 64 KB, one read's worth; more only while a flood goes on, and that must not hold the reader
_MAX_FRAME_BYTES: Final = 64 * 1024 * 1024  # guess: a thousand times any frame of ours; a longer line is a child gone wrong
_KILL_WAIT_S: Final = 10.0  # guess: SIGKILL ends a process at once unless a driver call holds it in the kernel
_POLL_S: Final = 0.25  # how late a death is noticed where a grandchild keeps the pipe open; otherwise the pipe tells at once


class Timeout(Exception):
    """No frame within the time given."""


class Died(Exception):
    """The child ended, or closed its pipe."""


class Garbage(Exception):
    """A frame that is no JSON object."""


class Output:
    """The last 64 KB that a child printed, on stdout and stderr alike, read by a thread so that the child never blocks."""

    def __init__(self, descriptor: int) -> None:
        os.set_blocking(descriptor, False)
        self._descriptor = descriptor
        self._kept = bytearray()
        self._total = 0
        self._open = True
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._drain, name="tilewright-drain", daemon=True)
        self._thread.start()

    def _drain(self) -> None:
        poll = select.poll()
        poll.register(self._descriptor, select.POLLIN)
        while self._open:
            poll.poll()
            with self._lock:
                self._read()
        os.close(self._descriptor)  # only here, so that the poll never meets another's descriptor

    def _read(self) -> bool:
        """Take one chunk from the pipe, the lock being held; whether there may be more now."""
        try:
            chunk = os.read(self._descriptor, KEPT_OUTPUT_BYTES) if self._open else b""
        except BlockingIOError:
            return False
        self._open = bool(chunk)
        self._total += len(chunk)
        self._kept += chunk
        del self._kept[:-KEPT_OUTPUT_BYTES]
        return self._open

    def mark(self) -> int:
        """Bytes printed until now: where to read on from."""
        with self._lock:
            self._catch_up()
            return self._total

    def since(self, mark: int = 0) -> str:
        """What is kept of the text printed after `mark`, up to now: what came before a frame is in here once the frame is."""
        with self._lock:
            self._catch_up()
            fresh = self._total - mark
            return bytes(self._kept[-fresh:] if fresh else b"").decode(errors="replace")

    def _catch_up(self) -> None:
        for _ in range(_CATCH_UP_READS):
            if not self._read():
                return

    def settle(self, timeout_s: float = 1.0) -> None:
        """Wait for the end of the output, which comes with the end of the group."""
        self._thread.join(timeout_s)


class ChildProcess:
    """A child in its own session and process group, tied to this process, with its pipes.

    Args:
        command: what to run; `--fd-in`, `--fd-out` and `--parent` are appended.
        env: its whole environment.
        nursery: forks it in place of starting the command, with its imports done.
        kind: which child the nursery is to fork.
        rank: of those that wait for the nursery, the lowest is served first.
        wanted: whether the child is still wanted, asked while it waits for the nursery.

    Attributes:
        output: what it prints.
        forked: whether it was forked.
    """

    def __init__(
        self,
        command: Sequence[str],
        env: Mapping[str, str],
        nursery: Nursery | None = None,
        *,
        kind: str = "",
        rank: int = 0,
        wanted: Callable[[], bool] = lambda: True,
    ) -> None:
        theirs_in, self._to_child = os.pipe()
        self._from_child, theirs_out = os.pipe()
        output, theirs_output = os.pipe()
        arguments = [*command, "--fd-in", str(theirs_in), "--fd-out", str(theirs_out), "--parent", str(os.getpid())]
        try:
            self._process: subprocess.Popen[bytes] | Forked = (
                nursery.fork(kind, env, (theirs_in, theirs_out, theirs_output), rank=rank, wanted=wanted)
                if nursery is not None
                else spawn(arguments, stdout=theirs_output, stderr=theirs_output, pass_fds=(theirs_in, theirs_out), env=dict(env))
            )
        except BaseException:
            for descriptor in (self._to_child, self._from_child, output):
                os.close(descriptor)
            raise
        finally:
            for descriptor in (theirs_in, theirs_out, theirs_output):
                os.close(descriptor)
        GUARDIAN.watch(self.pid)
        os.set_blocking(self._to_child, False)
        self.forked = nursery is not None
        self.output = Output(output)
        self._buffer = bytearray()
        self._lock = threading.Lock()  # between a kill and the reaping, after which the id may be another's
        self._reaped = False
        self._dismissed = False
        self._ending = ""

    @property
    def pid(self) -> int:
        """Its process id, which is its group's too."""
        return self._process.pid

    def send(self, frame: Mapping[str, Any], deadline: float) -> None:
        """Write one frame.

        Raises:
            Timeout: the child did not read it by `deadline` (of `time.monotonic`).
            Died: the child is gone.
        """
        data = memoryview(json.dumps(frame, allow_nan=False).encode() + b"\n")
        while data:
            self._wait(self._to_child, deadline, writing=True)
            try:
                data = data[os.write(self._to_child, data) :]
            except BlockingIOError:
                continue
            except OSError as error:
                raise Died from error

    def receive(self, deadline: float) -> dict[str, Any]:
        """Read one frame.

        Raises:
            Timeout: none came by `deadline` (of `time.monotonic`).
            Died: the child is gone.
            Garbage: what came is no frame.
        """
        while (end := self._buffer.find(b"\n")) < 0:
            if len(self._buffer) > _MAX_FRAME_BYTES:
                raise Garbage(f"a frame of more than {_MAX_FRAME_BYTES} bytes")
            self._wait(self._from_child, deadline, writing=False)
            try:
                chunk = os.read(self._from_child, 1 << 16)
            except OSError as error:
                raise Died from error
            if not chunk:
                raise Died
            self._buffer += chunk
        line = bytes(self._buffer[:end])
        del self._buffer[: end + 1]
        try:
            frame = json.loads(line)
        except ValueError as error:
            raise Garbage(repr(line[:200].decode(errors="replace"))) from error
        if not isinstance(frame, dict):
            raise Garbage(repr(line[:200].decode(errors="replace")))
        return frame

    def _wait(self, descriptor: int, deadline: float, *, writing: bool) -> None:
        events = select.POLLOUT if writing else select.POLLIN
        while True:
            poll = select.poll()
            poll.register(descriptor, events)
            left = deadline - time.monotonic()
            if poll.poll(max(0.0, min(left, _POLL_S)) * 1000):
                return
            if self._gone():
                raise Died
            if left <= 0:
                raise Timeout

    @property
    def ended(self) -> bool:
        """Whether the leader has ended."""
        return self._gone()

    def _gone(self) -> bool:
        """Whether the leader has ended, without reaping it: its id, and so its group's, stays taken until then."""
        try:
            return os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
        except ChildProcessError:
            return True

    def kill(self) -> None:
        """Send SIGKILL to the whole group, and to what left it. Any thread may; whoever waits for a frame then learns that the child died."""
        with self._lock:
            if not self._reaped:
                below = descendants(self.pid)
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(self.pid, signal.SIGKILL)
                kill_all(below)

    def dismiss(self) -> None:
        """Close its pipe, at whose end it ends by itself; only the thread that talks to the child may, and `dispose` has to follow."""
        if not self._dismissed:
            self._dismissed = True
            os.close(self._to_child)

    def dispose(self, grace_s: float = 0.0) -> str:
        """End the whole group and release the pipes; only the thread that talks to the child may.

        Args:
            grace_s: how long the child may take to end by itself, its pipe being closed.

        Returns:
            How the leader ended: `exit code 3`, `SIGSEGV`.

        Raises:
            WorkerUnkillable: it outlived SIGKILL.
        """
        if self._ending:
            return self._ending
        self.dismiss()
        limit = time.monotonic() + grace_s
        while not self._gone() and time.monotonic() < limit:
            time.sleep(0.01)
        self.kill()
        os.close(self._from_child)
        self._ending = "unkillable"
        with self._lock:
            try:
                code = self._process.wait(_KILL_WAIT_S)
            except subprocess.TimeoutExpired:
                raise WorkerUnkillable(
                    f"child {self.pid} outlived SIGKILL by {_KILL_WAIT_S:.0f} s: it hangs in the kernel, most often in a device's driver; "
                    f"free or reset the device (nvidia-smi shows what holds it) before the next session"
                ) from None
            self._reaped = True
        GUARDIAN.forget(self.pid)
        self.output.settle()
        self._ending = f"exit code {code}" if code >= 0 else _signal_name(-code)
        return self._ending


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
