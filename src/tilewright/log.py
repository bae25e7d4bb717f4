"""The tuning log: JSON lines that are only ever appended to, by any number of processes at once."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tilewright.codec import UPCASTS, Upcast, decode_line, encode_lines
from tilewright.errors import LogDamaged, SchemaTooNew
from tilewright.filekind import kind_of
from tilewright.logfile import Broken, append_bytes, raw_lines, write_new
from tilewright.record import Line

_SHOWN_BYTES: Final = 80


@dataclass(frozen=True, slots=True, kw_only=True)
class Damage:
    """A line that could not be read.

    Attributes:
        number: of the line, from 1.
        reason: what is wrong with it.
        text: its beginning.
    """

    number: int
    reason: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LogContents:
    """What a log holds.

    Attributes:
        lines: those that could be read, in order.
        numbers: their line numbers, from 1.
        damage: the others.
    """

    lines: tuple[Line, ...]
    numbers: tuple[int, ...]
    damage: tuple[Damage, ...]

    @property
    def of_best_file(self) -> bool:
        """Whether they are those of a best file, of which a log's reader takes none."""
        return not self.lines and any('"kind":"best"' in damage.text or '"kind":"range"' in damage.text for damage in self.damage)


class TuningLog:
    """An append-only log of JSON lines.

    Writers in several processes and threads may append at once: each append holds the file's lock. A line torn by a crash stays
    as it is; the next append first ends it with a newline, so that it costs itself alone.

    Args:
        path: a `.jsonl` file, which need not exist before the first append; or, to read only, a gzip-compressed one.
        upcasts: by schema, the function that turns a line of it into one of the next.
    """

    def __init__(self, path: str | os.PathLike[str], *, upcasts: Mapping[int, Upcast] = UPCASTS) -> None:
        self.path = Path(path)
        self._upcasts = upcasts

    def __repr__(self) -> str:
        return f"TuningLog({str(self.path)!r})"

    def exists(self) -> bool:
        """Whether there is something to read: a device of characters, such as /dev/null or /dev/full, takes lines and keeps none."""
        return kind_of(self.path) not in ("", "device")

    def append(self, line: Line, *, sync: bool = True) -> None:
        """Add one line; when this returns, the line is in the log.

        Args:
            line: what to add.
            sync: whether it must also be on the disk, which a power cut does not undo.

        Raises:
            HostError: it cannot be written here and now. What the log held before is still readable.
            LogError: the line holds a value that a log cannot.
        """
        self.extend((line,), sync=sync)

    def extend(self, lines: Iterable[Line], *, sync: bool = True) -> None:
        """Add lines, next to each other.

        Raises:
            HostError, LogError: as `append`.
            UsageError: the log is compressed.
        """
        append_bytes(self.path, encode_lines(lines), sync=sync)

    def read(self) -> LogContents:
        """All that can be read, and an account of what cannot.

        Raises:
            SchemaTooNew: a line has a newer schema: skipping it could hide the truth.
            LogError: there is no such log.
            UsageError: it is a socket, a disk, or a device without an end.
            HostError: the file cannot be read.
        """
        lines: list[Line] = []
        numbers: list[int] = []
        damage: list[Damage] = []
        with collector_paused():
            for number, entry in self.scan():
                if isinstance(entry, Damage):
                    damage.append(entry)
                else:
                    lines.append(entry)
                    numbers.append(number)
        return LogContents(lines=tuple(lines), numbers=tuple(numbers), damage=tuple(damage))

    def scan(self) -> Iterator[tuple[int, Line | Damage]]:
        """Lines and damage with their numbers, one at a time, in little memory.

        Reads what the log held when the scan began: a line that is being written meanwhile is left out, whole.

        Raises:
            SchemaTooNew, LogError, UsageError, HostError: as `read`.
        """
        upcasts = self._upcasts
        for number, raw in enumerate(raw_lines(self.path), 1):
            if isinstance(raw, Broken):
                yield number, Damage(number=number, reason=str(raw), text="")
                continue
            if not raw or raw.isspace():
                continue
            try:
                yield number, decode_line(raw, upcasts)
            except SchemaTooNew as error:
                raise SchemaTooNew(f"{self.path}, line {number}: {error}") from error
            except LogDamaged as error:
                yield number, Damage(number=number, reason=str(error), text=raw[:_SHOWN_BYTES].decode("utf-8", "replace"))


@contextmanager
def collector_paused() -> Iterator[None]:
    """Keep Python's garbage collector still while many lines are read."""
    # Everything read stays alive, and the collector would look at all of it again and again: 17 µs a record against 9 without
    # (14,432 records of benchmarks/data, CPython 3.11, 2-core x86 machine).
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def write_log(path: str | os.PathLike[str], lines: Iterable[Line]) -> None:
    """Write a whole new log, compressed if its name ends in `.gz`; the same lines give the same bytes.

    Raises:
        UsageError: the file exists; a log is never rewritten.
        HostError: it cannot be written.
        LogError: a line holds a value that a log cannot.
    """
    write_new(Path(path), encode_lines(lines))
