"""Child that checks and times candidates on one device, or in Triton's interpreter.

    python -m tilewright.children.bench --fd-in N --fd-out N --parent PID

`TILEWRIGHT_DEVICE` names the device: `cuda:0`, or `interpreter` (then TRITON_INTERPRET=1 must be set as well). Nothing touches
the device before `open`, so that a spare child holds no context.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, Final

from tilewright.children.wire import Handler, leave, serve
from tilewright.descendants import kill_own

OPERATIONS: Final = ("ping", "open_ahead", "open", "prepare", "measure", "vendor", "race_begin", "race_enter", "race_run", "retire")
_TRUSTED: Final = frozenset({"open", "prepare"})
# Not in a race, whose entrants all share this process; it is asked, and tells, after it.
_MAY_RETIRE: Final = frozenset({"measure", "vendor", "ping"})
_OF_CANDIDATES: Final = frozenset({"measure", "vendor", "race_enter", "race_run"})


class Bench:
    """The workbench, made when the parent waits for the ready frame: making it imports torch and triton, which takes seconds.

    Args:
        forked: whether this process was forked; then one without a device does not start, so that a fresh one is asked as well.
    """

    def __init__(self, *, forked: bool = False) -> None:
        self._forked = forked
        self._workbench: Any = None
        self._surroundings: Any = None
        self._spoiled: tuple[str, ...] = ()

    def ready(self) -> Mapping[str, Any]:
        """Import torch and triton, and read the device."""
        from tilewright.children.device import has_gpu_build
        from tilewright.children.racebench import RacingWorkbench

        self._workbench = RacingWorkbench(os.environ.get("TILEWRIGHT_DEVICE", "cuda:0"))
        info: Mapping[str, Any] = self._workbench.info
        if self._forked and "absent" in info and has_gpu_build():
            raise RuntimeError(f"forked, and without a device: {info['absent']}")
        return info

    def handler(self, operation: str) -> Handler:
        """The workbench's method of that name."""

        def handle(payload: dict[str, Any]) -> Mapping[str, Any]:
            if operation == "retire":
                kill_own()
            from tilewright.children.failure import HostFault

            try:
                answer: dict[str, Any] = getattr(self._workbench, operation)(payload)
            except HostFault as fault:
                return {"host_fault": str(fault)}
            finally:
                if operation in _OF_CANDIDATES:
                    self._put_back()
            if operation in _TRUSTED:
                self._keep_surroundings()  # what the operator's own code sets, it means
            if self._spoiled and operation in _MAY_RETIRE and "retire" in answer:
                answer["retire"] = True
                if "message" in answer:
                    answer["message"] = "; ".join(filter(None, (answer["message"], f"it left {' and '.join(self._spoiled)} behind: its process is replaced")))
            return answer

        return handle

    def idle(self) -> None:
        """Work between requests."""
        self._workbench.idle()
        self._put_back()  # it may have imported the next candidate

    def _keep_surroundings(self) -> None:
        from tilewright.children.surroundings import Surroundings

        if self._surroundings is not None:
            self._surroundings.close()
        self._surroundings = Surroundings()

    def _put_back(self) -> None:
        if self._surroundings is not None:
            self._spoiled = self._surroundings.put_back()


def main(*, forked: bool = False) -> None:
    """Serve until the parent is gone."""
    bench = Bench(forked=forked)
    serve({operation: bench.handler(operation) for operation in OPERATIONS}, bench.ready, idle=bench.idle)
    leave()


if __name__ == "__main__":
    main()
