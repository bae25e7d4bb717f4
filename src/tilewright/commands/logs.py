"""Logs that a command reads: their lines together, with what could not be read said on stderr."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tilewright.commands.output import note
from tilewright.current import Templates, current_templates
from tilewright.errors import UsageError
from tilewright.log import TuningLog
from tilewright.logfile import is_best_file
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
        if contents.of_best_file and not is_best_file(path):
            raise UsageError(f"{path} is a best file, compressed or in a pipe; write it to a plain file first")
        if contents.of_best_file:
            raise UsageError(f"{path} is a best file, not a tuning log; `tilewright verify` and `tilewright emit` take it")
        lines += contents.lines
        if contents.damage:
            note(f"{path}: skipped {len(contents.damage)} damaged line(s); `tilewright log lint {path}` says which")
    return tuple(lines)


def templates_at_hand(folders: Sequence[Path]) -> Templates:
    """The templates that operators have now. Where none were named and they cannot be looked for, nothing is known: the command needs none.

    Raises:
        UsageError: a folder that was named is not there, or the operators in it are at odds.
    """
    from tilewright.library import find_operators  # with Jinja and more, 0.1 s, which those who ask only for lines do not wait for

    try:
        return current_templates(find_operators(folders))
    except UsageError as error:
        if folders:
            raise
        note(f"records of older templates are not told from today's: {error}")
        return {}
