"""Logs that a command reads: their lines together, with what could not be read said on stderr."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tilewright.commands.output import note
from tilewright.log import TuningLog
from tilewright.record import Line


def read_logs(paths: Sequence[Path]) -> tuple[Line, ...]:
    """The lines of several logs, in order; damage is noted and skipped.

    Raises:
        LogError: a log is not there, or was written by a newer Tilewright.
    """
    lines: list[Line] = []
    for path in paths:
        contents = TuningLog(path).read()
        lines += contents.lines
        if contents.damage:
            note(f"{path}: skipped {len(contents.damage)} damaged line(s); `tilewright log lint {path}` says which")
    return tuple(lines)
