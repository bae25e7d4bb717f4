"""The build child: compiles what a rendered module would launch, on a machine that needs no device."""

from __future__ import annotations

import errno
import hashlib
import os
import re
import time
from collections.abc import Collection, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from tilewright.children import wire
from tilewright.children.modules import load_rendered, source_file, unload
from tilewright.children.resources import bad_grid, over_limits, summary
from tilewright.children.wire import text_of
from tilewright.descendants import kill_own
from tilewright.record import Status

_LINES: Final = 3  # guess: what is wrong stands in the first complaints, the rest follows from them
_LINE_CHARS: Final = 300
_HOST_FAULTS: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM, errno.EMFILE, errno.ENFILE})
# A module that opens what it may not is its own fault; it need not have run out of anything.
_SHORTAGES: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE})
_KILLED: Final = re.compile(r"ptxas.* failed with error code -\d+")  # by a signal, as for want of memory


class Builder:
    """The handlers of the child, and the state between requests."""

    def __init__(self) -> None:
        self._collector: Any = None
        self._launchers: Any = None

    def ready(self) -> dict[str, Any]:
        """Import torch and triton, which takes seconds, and tell their versions."""
        from tilewright.children import launchers, standin

        self._collector = standin.Collector()
        self._launchers = launchers.Launchers()
        return standin.toolchain()

    def idle(self) -> None:
        """Work after an answer: what the runner would have to do before its first launch of what was built."""
        self._launchers.make()

    def retire(self, _: dict[str, Any]) -> dict[str, Any]:
        """End this process at once, and what it was left."""
        kill_own()
        os._exit(0)

    def build(self, payload: dict[str, Any]) -> dict[str, Any]:
        """Compile one module for one target.

        Args:
            payload: `text`, `hash`, `folder` (for the module's file), `arguments` (JSON forms of tensors and numbers, in launch
                order), `outputs` (how many of these, the last ones, are outputs) and `target` (attributes of the Target, its backend being
                the one that compiles).

        Returns:
            `status` and `message`; `resources`, `binary`, `files` and `exceeds` (limits) where everything compiled; `build_s`; `transient` where
            another try may end otherwise; `retire` where the module left something in this process that cannot be undone. Or
            `host_fault`, what the machine lacks, in place of a verdict on the module.
        """
        from tilewright.children.surroundings import Surroundings

        start = time.perf_counter()
        before = Surroundings()
        try:
            verdict = self._verdict(payload)
        except OSError as error:
            if error.errno not in _HOST_FAULTS:
                raise
            return {"host_fault": f"{type(error).__name__}: {error}"}
        finally:
            stays = before.put_back()
            before.close()
        return {**verdict, **({"retire": True} if stays else {}), "build_s": time.perf_counter() - start}

    def _verdict(self, payload: dict[str, Any]) -> dict[str, Any]:
        path = source_file(Path(payload["folder"]), payload["text"], payload["hash"])
        try:
            module = load_rendered(path)
        except BaseException as error:
            _raise_host_fault(error, _SHORTAGES)
            return _failed(Status.COMPILE_ERROR, f"the module does not load: {explain(error)}")
        try:
            return self._compile(module, payload)
        finally:
            unload(module)

    def _compile(self, module: ModuleType, payload: dict[str, Any]) -> dict[str, Any]:
        from tilewright.children import standin

        target = payload["target"]
        with self._collector.collecting(target) as compiled:
            try:
                arguments = [standin.argument(spec) for spec in payload["arguments"]]
                workspace = getattr(module, "workspace", None)
                scratch = standin.scratch(workspace(*arguments) if workspace else None)
                module.launch(*arguments, *scratch)
            except BaseException as error:
                if type(error).__name__ == "CompileFailed":  # what `launch` itself raises is its own fault, such as a file that it may not open
                    _raise_host_fault(error)
                return _classified(error)
        if not compiled:
            return _failed(Status.LAUNCH_ERROR, "launch: it launched no kernel")
        self._launchers.wanted = [one.kernel for one in compiled.values()]
        first_output = len(arguments) - payload.get("outputs", 0)
        kernels = [one.resources(arguments[:first_output], arguments[first_output:]) for one in compiled.values()]
        digest = hashlib.sha256()
        for binary in sorted(hashlib.sha256(one.binary).digest() for one in compiled.values()):
            digest.update(binary)
        built = {
            "resources": summary(kernels, sum(tensor.numel() * tensor.element_size() for tensor in scratch)),
            "binary": digest.hexdigest(),
            "files": [file for one in compiled.values() for file in one.files],
        }
        excess = [broken for kernel in kernels for broken in over_limits(kernel, target)]
        if excess:
            exceeds = list(dict.fromkeys(broken.limit for broken in excess))
            return {"status": Status.OUT_OF_RESOURCES, "message": "; ".join(broken.reason for broken in excess), "exceeds": exceeds, **built}
        refused = "; ".join(filter(None, map(bad_grid, kernels)))
        return {"status": Status.LAUNCH_ERROR if refused else Status.OK, "message": refused, **built}


def _failed(status: Status, message: str) -> dict[str, Any]:
    return {"status": status, "message": message}


def _classified(error: BaseException) -> dict[str, Any]:
    if type(error).__name__ != "CompileFailed":
        return _failed(Status.LAUNCH_ERROR, f"launch: {explain(error)}")
    cause = error.__cause__ or error
    # Triton itself may find at compile time that a kernel asks for more than there is; LLVM finds it for AMD's LDS.
    exceeded = type(cause).__name__ == "OutOfResources" or "exceeds limit" in str(cause)
    killed = _KILLED.search(str(cause)) is not None
    return {**_failed(Status.OUT_OF_RESOURCES if exceeded else Status.COMPILE_ERROR, explain(cause)), **({"transient": True} if killed else {})}


def _raise_host_fault(error: BaseException, faults: Collection[int] = _HOST_FAULTS) -> None:
    """Raise what tells of this machine, now, and not of the module: no room, no right to write, no memory."""
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, MemoryError) or (isinstance(seen, OSError) and seen.errno in faults):
            raise seen
        seen = seen.__cause__


def explain(error: BaseException) -> str:
    """An exception of Triton's as a short text: where in the kernel, and the innermost reason.

    A CompilationError quotes the kernel up to the fault, and a PTXASError may come with the whole PTX: a record's message
    wants neither.
    """
    name = type(error).__name__
    if name == "PTXASError":
        complaints = [line.strip() for line in str(error).splitlines() if re.search(r"ptxas.*(error|fatal)", line) and "Repro command" not in line]
        return f"PTXASError: {_short(complaints or str(error).splitlines())}"
    place = ""
    reason = error
    while True:  # a fault in a function that the kernel calls comes wrapped once for each caller
        node, source = getattr(reason, "node", None), getattr(reason, "src", None)
        number = getattr(node, "lineno", 0)
        if isinstance(source, str) and 0 < number <= len(lines := source.splitlines()):
            place = f" at line {number} of `{_definition(lines)}` (`{lines[number - 1].strip()[:_LINE_CHARS]}`)"
        if reason.__cause__ is None:
            break
        reason = reason.__cause__
    text = getattr(reason, "error_message", None) or text_of(reason)
    inner = "" if reason is error or type(reason).__name__ == name else f"{type(reason).__name__}: "
    return f"{name}{place}: {inner}{_short(str(text).splitlines()) or 'no message'}"


def _definition(lines: list[str]) -> str:
    found = re.search(r"def (\w+)", lines[0])
    return found[1] if found else "the kernel"


def _short(lines: list[str]) -> str:
    return " | ".join([line.strip()[:_LINE_CHARS] for line in lines if line.strip()][:_LINES])


def main() -> None:
    """Serve build requests until the parent is done."""
    builder = Builder()
    handlers: Mapping[str, wire.Handler] = {"build": builder.build, "retire": builder.retire}
    wire.serve(handlers, builder.ready, idle=builder.idle)
    wire.leave()


if __name__ == "__main__":
    main()
