"""The child's end of the wire: JSON lines on two private pipes, one request at a time.

Parent to child `{"id": 1, "op": "build", "payload": {...}}`; child to parent first `{"ready": true, "info": {...}}` (or
`{"ready": false, "error": {...}}`), then for each request `{"id": 1, "result": {...}}` or `{"id": 1, "error": {...}}`.
Descriptors 1 and 2 are no part of it: whatever a kernel, a compiler or a driver prints there cannot break a frame.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import json
import os
import signal
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NoReturn

Handler = Callable[[dict[str, Any]], Mapping[str, Any]]

_PR_SET_PDEATHSIG: Final = 1  # linux/prctl.h
_TRACEBACK_FRAMES: Final = 6  # guess: the innermost frames say where; the rest is the wire itself
_MESSAGE_CHARS: Final = 8000  # guess: a screenful or two; ptxas and LLVM errors can hold a whole module


def serve(
    handlers: Mapping[str, Handler],
    info: Mapping[str, Any] | Callable[[], Mapping[str, Any]],
    argv: Sequence[str] | None = None,
    *,
    idle: Callable[[], None] | None = None,
) -> None:
    """Announce readiness, then answer requests until the parent closes its end.

    A handler's exception goes back as an error frame and the child lives on; `SystemExit` and `KeyboardInterrupt` end it.

    Args:
        handlers: by operation name; each takes the request's payload and returns a JSON object.
        info: what the ready frame says. Where it is a callable, it does the slow imports: it runs once the child is tied to
            its parent, and an exception in it is reported as a failed start.
        idle: is called after each answer, so that its work is done while the parent does its own; an exception in it ends there.
        argv: command line, `sys.argv[1:]` by default: `--fd-in N --fd-out N --parent PID`.
    """
    parser = argparse.ArgumentParser(description="A child process of tilewright, started by it and not by hand.")
    parser.add_argument("--fd-in", type=int, required=True)
    parser.add_argument("--fd-out", type=int, required=True)
    parser.add_argument("--parent", type=int, default=0)
    options = parser.parse_args(argv)
    for descriptor in (options.fd_in, options.fd_out):
        # A compiler that outlives this child must not hold the pipe open: the parent reads its closing as our death.
        os.set_inheritable(descriptor, False)
    die_with_parent(options.parent)
    mine = os.getpid()
    with os.fdopen(options.fd_in, "rb") as requests, os.fdopen(options.fd_out, "wb") as replies:
        try:
            told = info() if callable(info) else info
        except Exception as error:
            _send(replies, {"ready": False, "error": describe(error)})
            return
        _send(replies, {"ready": True, "info": dict(told)})
        for line in requests:
            request = json.loads(line)
            answer = _answer(handlers, request)
            _leave_to(mine)
            _send(replies, {"id": request["id"], **answer})
            if idle is not None:
                with contextlib.suppress(Exception):
                    idle()
                _leave_to(mine)


def _leave_to(pid: int) -> None:
    """End a copy of the child that code it ran has forked, and that came back from it: it would answer too, and take the next request."""
    if os.getpid() != pid:
        os._exit(0)


def leave() -> NoReturn:
    """End this process without taking torch and a context down piece by piece, which takes 0.3 to 0.5 s: the kernel does it at once."""
    with contextlib.suppress(OSError, ValueError):
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(0)


def text_of(error: BaseException) -> str:
    """An exception's text, where its class can tell one: a candidate may bring its own."""
    try:
        return str(error)
    except BaseException as broken:
        return f"its text raises {type(broken).__name__}"


def describe(error: BaseException) -> dict[str, str]:
    """An exception as an error frame has it: class name, message, and the innermost frames of its traceback."""
    frames = "".join(traceback.format_tb(error.__traceback__)[-_TRACEBACK_FRAMES:])
    return {"class": type(error).__name__, "message": text_of(error)[:_MESSAGE_CHARS], "traceback": frames[-_MESSAGE_CHARS:]}


def _answer(handlers: Mapping[str, Handler], request: Mapping[str, Any]) -> dict[str, Any]:
    handler = handlers.get(request["op"])
    try:
        if handler is None:
            raise LookupError(f"no operation {request['op']!r}; one of: {', '.join(handlers)}")
        answer = {"result": dict(handler(request["payload"]))}
        json.dumps(answer, allow_nan=False)
    except Exception as error:
        return {"error": describe(error)}
    return answer


def _send(replies: Any, frame: Mapping[str, Any]) -> None:
    sys.stdout.flush()
    sys.stderr.flush()
    replies.write(json.dumps(frame, allow_nan=False).encode() + b"\n")
    replies.flush()


def die_with_parent(parent: int) -> None:
    """Have the kernel kill this child when its parent dies: a hung compiler or driver never reads the closed pipe."""
    if sys.platform != "linux":
        return
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if parent and os.getppid() != parent:  # it died before the request to the kernel was made
        os._exit(1)
