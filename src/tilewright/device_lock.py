"""One device, one measuring session: a lock file for each device."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from tilewright.errors import HostError

_POLL_S: Final = 0.2  # guess: nobody notices a fifth of a second at the start of a session
_REPEAT_S: Final = 60.0  # guess: often enough to show that the wait goes on


def lock_folder() -> Path:
    """Where lock files lie: `$XDG_RUNTIME_DIR`, or the folder for temporary files."""
    folder = os.environ.get("XDG_RUNTIME_DIR", "")
    return Path(folder) if folder and Path(folder).is_dir() else Path(tempfile.gettempdir())


class DeviceLock:
    """Holds one device for measuring, from `acquire` to `release` or the end of the process, however it ends.

    The file stays; the lock on it is the kernel's (flock), so that a killed session leaves nothing behind.

    Args:
        device_id: what tells the device apart on this machine, such as its UUID.
        folder: where the lock file lies; `lock_folder()` by default.
    """

    def __init__(self, device_id: str, folder: Path | None = None) -> None:
        self._device_id = device_id
        self.path = (folder or lock_folder()) / f"tilewright-{re.sub(r'[^A-Za-z0-9._-]+', '-', device_id)}.lock"
        self._descriptor: int | None = None

    def acquire(self, say: Callable[[str], None], timeout_s: float | None = None) -> None:
        """Take the lock, waiting for another session to end.

        Args:
            say: told once a minute of whom the wait is for.
            timeout_s: how long to wait; without end where None.

        Raises:
            HostError: the lock file cannot be opened, or the wait took longer than `timeout_s`.
        """
        if self._descriptor is not None:
            return
        descriptor = self._open()
        try:
            self._wait(descriptor, say, timeout_s)
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
        except BaseException:
            os.close(descriptor)
            raise
        self._descriptor = descriptor

    def _open(self) -> int:
        try:
            # Without O_CREAT first: in a sticky folder Linux refuses it on another user's file (fs.protected_regular).
            return os.open(self.path, os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            pass
        except OSError as error:
            raise self._unusable(error) from error
        try:
            descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        except OSError as error:
            raise self._unusable(error) from error
        with contextlib.suppress(OSError):
            os.fchmod(descriptor, 0o666)  # whatever the umask: another user's session must be able to wait on it
        return descriptor

    def _unusable(self, error: OSError) -> HostError:
        advice = "remove it, or set XDG_RUNTIME_DIR to a folder of yours"
        return HostError(f"the lock file {self.path} of device {self._device_id} cannot be opened: {error.strerror}; {advice}")

    def _wait(self, descriptor: int, say: Callable[[str], None], timeout_s: float | None) -> None:
        started = time.monotonic()
        said: float | None = None
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            except BlockingIOError:
                pass
            now = time.monotonic()
            holder = os.pread(descriptor, 32, 0).decode(errors="replace").strip() or "unknown"
            if timeout_s is not None and now - started >= timeout_s:
                raise HostError(f"device {self._device_id} is held by another session (process {holder}, lock {self.path}); gave up after {timeout_s:g} s")
            if said is None or now - said >= _REPEAT_S:
                say(f"waiting for device {self._device_id}: another session measures on it (process {holder}, lock {self.path})")
                said = now
            time.sleep(_POLL_S)

    def release(self) -> None:
        """Give the device up; may be called again."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.ftruncate(descriptor, 0)
            os.close(descriptor)
