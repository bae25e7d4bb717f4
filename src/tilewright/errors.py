"""Errors that end a command, and the exit codes they end it with.

    TilewrightError
    ├── UsageError            what was asked for cannot be done as asked
    │   ├── SpaceError        a declared space breaks the rules, or a config is not in it
    │   └── TemplateError     a template does not load or does not render
    ├── HostError             this machine cannot do it now
    │   ├── NoDevice          no such device here
    │   └── WorkerUnkillable  a child outlived SIGKILL
    └── LogError              a log cannot be used
        ├── SchemaTooNew      written by a newer Tilewright
        └── LogDamaged        lines that cannot be read where none may be skipped

A candidate's failure is a `Status` in its record, never one of these.
"""

from __future__ import annotations

import difflib
import enum
from collections.abc import Iterable
from typing import ClassVar


class ExitCode(enum.IntEnum):
    """Exit codes of the command line."""

    OK = 0
    FAILED = 1  # the command ran, and its answer is no: nothing legal, nothing measured, lint found faults
    USAGE = 2
    HOST = 3
    LOG = 4
    INTERRUPTED = 130


class TilewrightError(Exception):
    """Base of all errors that the command line reports in one line."""

    exit_code: ClassVar[ExitCode] = ExitCode.FAILED


class UsageError(TilewrightError):
    """What was asked for cannot be done as asked."""

    exit_code = ExitCode.USAGE


class SpaceError(UsageError):
    """A declared space breaks the rules, or a config is not in it."""


class TemplateError(UsageError):
    """A template does not load or does not render."""


class HostError(TilewrightError):
    """This machine cannot do it now."""

    exit_code = ExitCode.HOST


class NoDevice(HostError):
    """No such device here."""


class WorkerUnkillable(HostError):
    """A child process outlived SIGKILL, as one in an uninterruptible driver call does."""


class LogError(TilewrightError):
    """A log cannot be used."""

    exit_code = ExitCode.LOG


class SchemaTooNew(LogError):
    """The log was written by a newer Tilewright."""


class LogDamaged(LogError):
    """A log has lines that cannot be read, where none may be skipped."""


def nearest(value: str, allowed: Iterable[str]) -> str:
    """The end of an error message: the nearest allowed name, and all of them.

    Args:
        value: what was given.
        allowed: the names that would have been accepted.

    Returns:
        Text such as `did you mean 'tile_m'? One of: tile_k, tile_m`.
    """
    names = [str(name) for name in allowed]
    close = difflib.get_close_matches(value, names, n=1)
    hint = f"did you mean {close[0]!r}? One of" if close else "one of"
    return f"{hint}: {', '.join(names)}" if names else "none are declared"
