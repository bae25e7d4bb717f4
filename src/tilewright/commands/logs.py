"""Logs that a command reads: their lines together, with what could not be read said on stderr."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tilewright.commands.output import note
from tilewright.errors import UsageError
from tilewright.log import TuningLog
from tilewright.record import Line


def read_logs(paths: Sequence[Path]) -> tuple[Line, ...]:
    """The lines of several logs, in order; damage is noted and skipped.

    Raises:
        LogError: a log is not there, or was written by a newer Tilewright.
        UsageError: one of them is a best file.
    """
    lines: list[Line] = []
    for path in paths:
        contents = TuningLog(path).read()
        if not contents.lines and any('"kind":"best"' in damage.text for damage in contents.damage):
            raise UsageError(f"{path} is a best file, not a tuning log; `tilewright verify` and `tilewright emit` take it")
        lines += contents.lines
        if contents.damage:
            note(f"{path}: skipped {len(contents.damage)} damaged line(s); `tilewright log lint {path}` says which")
    return tuple(lines)
