"""Standard output of the commands: text, aligned tables, JSON."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from tilewright.errors import HostError


@contextmanager
def writing() -> Iterator[None]:
    """Around what writes to standard output. A reader that went away (`| head`) ends the printing, not the command.

    Raises:
        HostError: standard output takes nothing more, as on a full disk.
    """
    try:
        yield
    except OSError as error:
        # From here on nobody reads; without this, Python would complain once more when it closes the stream.
        with suppress(OSError, ValueError):  # a stream that is no file
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if not isinstance(error, BrokenPipeError):
            reason = error.strerror or str(error)
            raise HostError(f"cannot write to standard output: {reason}; make room, or send the answer to another file") from error


def emit(text: str) -> None:
    """Print data.

    Raises:
        HostError: standard output takes nothing more.
    """
    with writing():
        print(text, flush=True)


def emit_json(value: Any) -> None:
    """Print a value as JSON, keys in their order, indented for people."""
    emit(json.dumps(value, indent=2, allow_nan=False))


def note(text: str) -> None:
    """Tell the person at the terminal something that is not data."""
    print(f"tilewright: {text}", file=sys.stderr)


def table(headers: Sequence[str], rows: Iterable[Sequence[object]], *, indent: str = "") -> str:
    """Rows under headers in aligned columns; columns that hold only numbers stand to the right."""
    cells = [[_cell(value) for value in row] for row in rows]
    columns = list(zip(headers, *cells, strict=True))
    numeric = [all(_numeric(text) for text in column[1:]) and len(column) > 1 for column in columns]
    widths = [max(map(len, column)) for column in columns]

    def line(texts: Sequence[str]) -> str:
        parts = [text.rjust(width) if right else text.ljust(width) for text, width, right in zip(texts, widths, numeric, strict=True)]
        return (indent + "  ".join(parts)).rstrip()

    return "\n".join(line(row) for row in (list(headers), *cells))


def _cell(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    return str(value)


def _numeric(text: str) -> bool:
    return text == "-" or text.replace(",", "").replace(".", "", 1).isdigit()
