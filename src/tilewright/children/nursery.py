"""Forks children from a process that has done their imports, and has touched no device.

    python -m tilewright.children.nursery --socket FD --parent PID

Says `ready` once torch and triton are imported. Then each message on the socket brings three descriptors (requests, answers, output), and says
which child to fork for them and how its environment differs. It is forked twice, so that it becomes a child of the session, which adopts
orphans meanwhile: the session can then wait for it and learn how it ended, and it dies with the session. It tells its process id on the
socket.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import json
import os
import socket
import sys
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, Final

from tilewright.children import bench, build
from tilewright.children.wire import die_with_parent

_ADOPTED_S: Final = 10.0  # guess: the parent in between ends at once, where the machine lets it
_MESSAGE_BYTES: Final = 2**20  # guess: many times any environment

_CHILDREN: Final[Mapping[str, Callable[[], None]]] = {
    "build": build.main,
    "bench": lambda: bench.main(forked=True),
    "interpret": lambda: bench.main(forked=True),
}


def main() -> None:
    """Serve until the session is gone."""
    parser = argparse.ArgumentParser(description="A child process of tilewright, started by it and not by hand.")
    parser.add_argument("--socket", type=int, required=True)
    parser.add_argument("--parent", type=int, required=True)
    options = parser.parse_args()
    die_with_parent(options.parent)
    orders = socket.socket(fileno=options.socket)
    orders.set_inheritable(False)
    gc.disable()  # a sixth of the imports' time, for little garbage
    _import()
    gc.freeze()  # what is shared with the children stays so: a collection would write to every object
    orders.send(b"ready")
    builds = False
    while True:
        message, descriptors, _, _ = socket.recv_fds(orders, _MESSAGE_BYTES, 3)
        if not message:
            return
        order = json.loads(message)
        if order["kind"] == "build" and not builds:
            builds = True
            with contextlib.suppress(Exception):  # a builder will say it
                _import_builders()
            gc.freeze()
        between = os.fork()
        if not between:
            try:
                if os.fork():
                    os._exit(0)
                _serve(orders, order, *descriptors)
            finally:
                os._exit(1)
        os.waitpid(between, 0)
        for descriptor in descriptors:
            os.close(descriptor)


def _import() -> None:
    """Import what all children need; meanwhile, Triton's key is made, for which it reads its library of some 300 MB."""
    import triton.runtime.cache

    def make_key() -> None:
        with contextlib.suppress(Exception):  # it is made again where it is needed
            triton.runtime.cache.triton_key()  # which keeps it

    keys = threading.Thread(target=make_key)
    keys.start()
    import tilewright.children.racebench  # noqa: F401  # torch and triton, and no device

    keys.join()  # a fork has one thread


def _import_builders() -> None:
    """Import what builders need besides, and find out what is the same for all of them."""
    from tilewright.children import standin

    standin.import_compiler()
    standin.toolchain()


def _serve(orders: socket.socket, order: Mapping[str, Any], fd_in: int, fd_out: int, output: int) -> None:
    """Be a child, from here to the end of the process."""
    os.setsid()
    gc.enable()
    session = int(order["parent"])
    limit = time.monotonic() + _ADOPTED_S
    while os.getppid() != session:
        if time.monotonic() > limit:
            os._exit(1)
        time.sleep(0.0005)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    for standard in (1, 2):
        os.dup2(output, standard)
    os.close(output)
    for name in order["unset"]:
        os.environ.pop(name, None)
    os.environ.update(order["set"])
    sys.argv = [sys.argv[0], "--fd-in", str(fd_in), "--fd-out", str(fd_out), "--parent", str(session)]
    orders.send(str(os.getpid()).encode())
    orders.close()
    _CHILDREN[order["kind"]]()


if __name__ == "__main__":
    main()
