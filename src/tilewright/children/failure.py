"""A candidate's failure, and how exceptions from its code become one."""

from __future__ import annotations

import linecache
import re
from collections.abc import Callable
from typing import Any, Final

import torch

from tilewright.children.modules import is_source_file
from tilewright.children.wire import text_of
from tilewright.record import Check, Status

_MESSAGE_CHARS: Final = 4000  # guess: an exception's text, not the whole PTX that some carry
_LINE_CHARS: Final = 200  # guess: more than a line of a kernel

# What the driver says where a launch asks for more than there is. Triton turns only the shared-memory limit into OutOfResources.
_RESOURCES: Final = re.compile(r"too many resources requested|out of resource|out of memory|ca(n.t|nnot) allocate memory|not enough memory", re.IGNORECASE)
# Errors after which the context answers everything with the same error. torch and Triton word them alike.
_POISONED: Final = re.compile(
    r"illegal memory access|illegal address|misaligned address|device-side assert|unspecified launch failure|illegal instruction"
    r"|invalid program counter|invalid address space|hardware stack error|launch timed out|uncorrectable|ECC error|HSA_STATUS_ERROR",
    re.IGNORECASE,
)


class CandidateFailed(Exception):
    """A candidate ended without a valid time.

    Attributes:
        status: how.
        message: why, as it goes into the record.
        check: the errors, where outputs were compared.
        spoiled: whether operands may have been overwritten and must be made again.
        poisoned: whether the device's context is broken and this process of no more use.
    """

    def __init__(self, status: Status, message: str, *, check: Check | None = None, spoiled: bool = True, poisoned: bool = False) -> None:
        super().__init__(message)
        self.status = status
        self.message = message[:_MESSAGE_CHARS]
        self.check = check
        self.spoiled = spoiled
        self.poisoned = poisoned


def classify(error: BaseException, what: str, synchronize: Callable[[], Any]) -> CandidateFailed:
    """The failure that an exception from a candidate's code amounts to.

    Args:
        error: what was raised.
        what: what was being done, for the message.
        synchronize: waits for the device; it raises again where the context is broken, which is the surest sign.
    """
    text = text_of(error)
    message = f"{what}: {type(error).__name__}: {text}"
    if _POISONED.search(text):
        return CandidateFailed(Status.CRASH, message, poisoned=True)
    try:
        synchronize()
    except Exception as second:
        return CandidateFailed(Status.CRASH, f"{message} (then {type(second).__name__}: {text_of(second)})", poisoned=True)
    if type(error).__name__ in ("OutOfResources", "OutOfMemoryError") or isinstance(error, MemoryError) or _RESOURCES.search(text):
        return CandidateFailed(Status.OUT_OF_RESOURCES, message)
    if type(error).__name__ in ("CompilationError", "CompileTimeAssertionFailure", "UnsupportedLanguageConstruct", "PTXASError"):
        return CandidateFailed(Status.COMPILE_ERROR, message)
    return CandidateFailed(Status.LAUNCH_ERROR, message + _place(error))


def _place(error: BaseException) -> str:
    """Where in the rendered module an exception came from, as the end of a message: its innermost line; empty where that cannot be told."""
    place = ""
    seen: set[int] = set()
    cause: BaseException | None = error
    while cause is not None and id(cause) not in seen:  # the interpreter wraps what a kernel raises, once a call
        seen.add(id(cause))
        trace = cause.__traceback__
        while trace is not None:
            if is_source_file(path := trace.tb_frame.f_code.co_filename):
                place = f" (line {trace.tb_lineno}: {linecache.getline(path, trace.tb_lineno).strip()[:_LINE_CHARS]})"
            trace = trace.tb_next
        cause = cause.__cause__
    return place


class HostFault(Exception):
    """This machine lacks what a measurement needs, such as room on its disk: nobody's candidate is to blame."""


class OperatorFault(Exception):
    """The operator's own spec or reference fails: nobody's candidate is to blame."""


def operator_fault(operator: str, what: str, error: BaseException) -> OperatorFault:
    """An operator's fault from an exception in its code, with the place in its file."""
    frames = []
    trace = error.__traceback__
    while trace is not None:
        if not trace.tb_frame.f_code.co_filename.startswith("<frozen importlib"):  # of a file that imports what is not there
            frames.append(f"{trace.tb_frame.f_code.co_filename}:{trace.tb_lineno}")
        trace = trace.tb_next
    place = f"{error.filename}:{error.lineno}" if isinstance(error, SyntaxError) else frames[-1] if frames else "?"
    return OperatorFault(f"operator {operator}: {what}: {type(error).__name__}: {error} (at {place}); correct its reference.py or spec.py")


def is_device_memory_error(error: BaseException) -> bool:
    """Whether torch ran out of the device's memory."""
    return isinstance(error, torch.OutOfMemoryError)
