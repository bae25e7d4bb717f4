"""A child of tiny jobs, each a fault that a compiler, a driver or a kernel has shown."""

import os
import signal
import subprocess
import sys
import time

from tilewright.children import wire


def _write_raw(text):
    options = dict(zip(sys.argv[1::2], sys.argv[2::2], strict=True))
    os.write(int(options["--fd-out"]), text.encode())


def hang(payload):
    print("about to hang", flush=True)
    time.sleep(600)
    return {}


def stop(payload):
    print("last words", file=sys.stderr, flush=True)
    os.kill(os.getpid(), getattr(signal, payload["signal"]))
    time.sleep(600)
    return {}


def leave(payload):
    raise SystemExit(payload["code"])


def grandchild(payload):
    """Start a process that outlives this one's own end unless the group is killed, tell its id, then hang or die."""
    process = subprocess.Popen(["sleep", "600"])
    with open(payload["pid_file"], "w") as file:
        file.write(str(process.pid))
    if payload["then"] == "die":
        os._exit(7)
    time.sleep(600)
    return {}


def forked(payload):
    """Die while a forked copy still holds every descriptor, the wire's included."""
    if os.fork() == 0:
        time.sleep(600)
    os._exit(9)


def flood(payload):
    block = b"x" * (1 << 20)
    for _ in range(payload["megabytes"]):
        os.write(1, block)
    os.write(2, b"the end")
    return {"flooded": True}


def garbage(payload):
    _write_raw(payload["text"] + "\n")
    time.sleep(600)
    return {}


def fail(payload):
    raise ValueError("a value that says what is wrong")


def unsendable(payload):
    return {"time": float("nan")}


def echo(payload):
    return {"pid": os.getpid(), "payload": payload}


HANDLERS = {f.__name__: f for f in (hang, stop, leave, grandchild, forked, flood, garbage, fail, unsendable, echo)}


def ready():
    mode = os.environ.get("FAULTY_START", "")
    if mode == "hang":
        time.sleep(600)
    if mode == "raise":
        raise RuntimeError("no such toolchain")
    if mode == "die":
        print("cannot load libsomething.so", flush=True)
        os._exit(127)
    if mode == "slow":
        time.sleep(1.0)
    return {"pid": os.getpid()}


if __name__ == "__main__":
    wire.serve(HANDLERS, ready)
