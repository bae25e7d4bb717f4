"""A child that waits for the one in service to fail."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, Final

from tilewright.process import ChildProcess, Died, Garbage, Timeout

_AHEAD_ID: Final = 0  # requests count from 1


class Spare:
    """Started, ready, then prepared by one request that it may be asked ahead; looked after whenever somebody calls `tend`.

    Args:
        child: just started.
        ahead: the request's operation; none where empty.

    Attributes:
        child: the process.
        info: what its ready frame said; None until then.
        refused: whether it answered the request with an error, so that another spare need not be asked.
        told: its answer to the request.
    """

    def __init__(self, child: ChildProcess, ahead: str = "") -> None:
        self.child = child
        self.info: dict[str, Any] | None = None
        self.refused = False
        self.told: Mapping[str, Any] = {}
        self._ahead = ahead
        self._asked = False

    @property
    def pid(self) -> int:
        """Its process id."""
        return self.child.pid

    @property
    def preparing(self) -> bool:
        """Whether it works on the request made ahead."""
        return self._asked

    def kill(self) -> None:
        """End it, from any thread."""
        self.child.kill()

    def tend(self, wait_s: float = 0.0) -> bool:
        """Take what it has sent, and ask it the request ahead once it is ready.

        Args:
            wait_s: how long to wait for what it is at.

        Returns:
            Whether there is nothing to wait for: it is prepared, or has failed, which whoever takes it over will see.
        """
        deadline = time.monotonic() + wait_s
        try:
            if self.info is None:
                frame = self.child.receive(deadline)
                if frame.get("ready") is not True or not isinstance(frame.get("info"), dict):
                    self.kill()
                    return True
                self.info = frame["info"]
                if self._ahead:
                    self.child.send({"id": _AHEAD_ID, "op": self._ahead, "payload": {}}, time.monotonic() + 1.0)
                    self._asked = True
            if self._asked:
                frame = self.child.receive(deadline)
                self._asked = False
                self.refused = "result" not in frame
                self.told = frame.get("result", {})
        except Timeout:
            return False
        except (Died, Garbage):
            self.kill()
        return True
