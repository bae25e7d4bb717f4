"""Putting logs together: whole sessions in order of time, whatever the order of the files; a session in two files stands once."""

from __future__ import annotations

import errno
import os
import re
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, Final

import msgspec

from tilewright.bulk.parts import Part, blocks_of, fold_parts, parts_of, processes
from tilewright.bulk.plain import plain_files
from tilewright.destination import new_file
from tilewright.errors import HostError, UsageError
from tilewright.filekind import refuse_no_file
from tilewright.record import SCHEMA

# How every line that a log's writer writes begins.
_HEAD: Final = re.compile(rb'\{"kind":"([a-z]+)","schema":\d+,"session":"([^"\\]*)"')
_BRACE: Final = ord("}")
_COPY_BYTES: Final = 1 << 20  # at once. guess: 1 GB took 0.3 to 0.5 s so, and 0.8 in one go (ext4, AMD EPYC, 2026-11)
# Of an output, how much is let go of from memory at a time. 2.2 GB took 1.4 to 1.6 s with 8 and 16 MB, 2.2 with 32, and 7 to 12 where all stayed in
# memory that the machine had to be given first (ext4, a virtual machine, AMD EPYC, 2026-11; decision 0022)
_LET_GO_BYTES: Final = 1 << 24


class _Header(msgspec.Struct, frozen=True):
    kind: str
    schema: int
    session: str = ""
    started_at: str = ""


_HEADER: Final = msgspec.json.Decoder(_Header)


@dataclass(slots=True, kw_only=True)
class _Session:
    """Where a session's lines are.

    Attributes:
        started_at: of its first line; empty where it has none.
        pieces: runs of its lines by file, as bytes from and up to.
    """

    started_at: str = ""
    pieces: dict[int, list[tuple[int, int]]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class MergedLogs:
    """What came of it.

    Attributes:
        sessions: how many.
        lines: how many were written.
        repeated: lines that stood in several files, and were written once.
        damaged: lines left out, as they are none of any session. Others that are damaged stay, for lint to find.
    """

    sessions: int
    lines: int
    repeated: int
    damaged: int


def _fold(part: Part) -> dict[str, Any]:
    pieces: list[tuple[str, int, int, int]] = []
    began: dict[str, str] = {}
    damaged = 0
    current, start, stop, count = "", -1, -1, 0
    # How the lines of the current session begin: looking for that in place takes a fifth of the time of matching each line.
    alike: tuple[bytes, ...] = ()
    for offset, block in blocks_of(part):
        at, size = 0, len(block)
        while at <= size:
            end = block.find(b"\n", at)
            if end < 0:
                end = size
            if start >= 0 and block.startswith(alike, at) and block[end - 1] == _BRACE:
                stop = offset + end
                count += 1
                at = end + 1
                continue
            raw = block[at:end]
            head = _HEAD.match(raw)
            session: str | None = None
            if head is not None and raw.endswith(b"}"):
                session = head[2].decode("utf-8", "replace")
                if head[1] == b"session":
                    began.setdefault(session, _started_at(raw))
            elif raw and not raw.isspace():
                try:
                    header = _HEADER.decode(raw)
                    session = header.session
                    if header.kind == "session":
                        began.setdefault(session, header.started_at)
                except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
                    damaged += 1
            if start >= 0 and (session != current or session is None):
                pieces.append((current, start, stop, count))
                start = -1
            if session is not None:
                if start < 0:
                    current, start, count = session, offset + at, 0
                    alike = _beginnings(head[2]) if head is not None else ()
                stop = offset + end
                count += 1
            at = end + 1
    if start >= 0:
        pieces.append((current, start, stop, count))
    return {"pieces": pieces, "began": list(began.items()), "damaged": damaged}


def _beginnings(session: bytes) -> tuple[bytes, ...]:
    return tuple(b'{"kind":"%s","schema":%d,"session":"%s"' % (kind, SCHEMA, session) for kind in (b"trial", b"start"))


def _started_at(raw: bytes) -> str:
    try:
        return _HEADER.decode(raw).started_at
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return ""


def merge_files(paths: Sequence[Path], output: Path, note: Callable[[str], None] = lambda text: None) -> MergedLogs:
    """Write the sessions of some logs to a new one: the same bytes for the same logs in any order.

    Sessions go by the time they started, then by id. Of a session in several files, the lines are taken of the file that has most
    of them, then those of the others that are not among them.

    Args:
        paths: logs, compressed or not; one that is, by its first bytes, is unpacked beside the output for as long as this takes.
        output: a file that does not exist.
        note: told of sessions whose lines differ between files, and of compressed data that is damaged.

    Raises:
        UsageError: the output exists or is named as a compressed one, or a log is a pipe, a folder or a device.
        LogError, HostError: a log cannot be read, or the output not written; nothing is left of it.
    """
    for path in paths:
        refuse_no_file(path, "a tuning log", "log merge reads each twice")
    if output.suffix == ".gz":
        raise UsageError(f"log merge writes no compressed log, as {output} is named; name a .jsonl file")
    if os.path.exists(output):
        raise UsageError(f"{output} exists, and a log is never rewritten; name another file or remove it first")
    distinct = sorted({Path(os.path.realpath(path)) for path in paths})
    with plain_files(distinct, Path(os.path.realpath(output)).parent, note) as (plain, broken):
        return _merged(plain, broken, output, note)


def _merged(distinct: Sequence[Path], broken: int, output: Path, note: Callable[[str], None]) -> MergedLogs:
    count = processes()
    parts = parts_of(distinct, count)
    folded = fold_parts(parts, _fold, count)
    sessions: dict[str, _Session] = {}
    lines = 0
    for part, answer in zip(parts, folded, strict=True):
        for name, start, stop, number in answer["pieces"]:
            sessions.setdefault(name, _Session()).pieces.setdefault(part.file, []).append((start, stop))
            lines += number
        for name, started_at in answer["began"]:
            session = sessions[name]
            session.started_at = min(filter(None, (session.started_at, started_at)), default="")
    ordered = sorted(sessions.items(), key=lambda item: (item[1].started_at, item[0]))
    files = [path.open("rb") for path in distinct]
    try:
        repeated = _write(output, files, ordered, note)
    finally:
        for file in files:
            file.close()
    damaged = broken + sum(answer["damaged"] for answer in folded)
    return MergedLogs(sessions=len(sessions), lines=lines - repeated, repeated=repeated, damaged=damaged)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Run:
    """Lines that stand next to each other in a file and in the output: bytes from `start` up to `stop`, and where they go."""

    file: int
    start: int
    stop: int
    to: int


def _write(output: Path, files: Sequence[BinaryIO], ordered: Sequence[tuple[str, _Session]], note: Callable[[str], None]) -> int:
    repeated = 0
    try:
        with new_file(output) as out:
            target = _Output(out.fileno())
            runs, to = [], 0
            for name, session in ordered:
                if len(session.pieces) == 1:
                    ((number, pieces),) = session.pieces.items()
                    for start, stop in pieces:
                        runs.append(_Run(file=number, start=start, stop=stop, to=to))
                        to += stop - start + 1
                else:
                    text, twice = _union(name, files, session, note)
                    target.put(text, to)
                    to += len(text)
                    repeated += twice
            # By this process alone: a file system lets one write to a file at a time, and others would only wait. Not waited for until it is on
            # the disk: the logs that it was made of still are.
            for run in _joined(runs):
                target.copy(files[run.file].fileno(), run)
    except OSError as error:
        raise HostError(f"cannot write {output}: {error.strerror or error}; choose another file with -o") from error
    return repeated


def _joined(runs: Sequence[_Run]) -> list[_Run]:
    """Runs put together where one goes on where the last ended."""
    whole: list[_Run] = []
    for run in runs:
        last = whole[-1] if whole else None
        # Between two lines there is one byte, the newline, in both files.
        if last is not None and run.file == last.file and run.start == last.stop + 1 and run.to - run.start == last.to - last.start:
            whole[-1] = _Run(file=run.file, start=last.start, stop=run.stop, to=last.to)
        else:
            whole.append(run)
    return whole


class _Output:
    """The file that is written.

    Args:
        descriptor: of the file.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._asked = self._gone = 0  # up to where it was asked to go to the disk, and is let go of

    def put(self, data: bytes, to: int) -> None:
        """Write at a place."""
        view = memoryview(data)
        while view:
            written = os.pwrite(self._descriptor, view, to)
            view, to = view[written:], to + written

    def copy(self, source: int, run: _Run) -> None:
        """Copy lines and the end of the last, inside the kernel where the file system lets it."""
        start, to = run.start, run.to
        while start < run.stop:
            try:
                os.lseek(self._descriptor, to, os.SEEK_SET)
                copied = os.sendfile(self._descriptor, source, start, min(_COPY_BYTES, run.stop - start))
            except OSError:
                copied = 0
            if not copied:
                data = os.pread(source, min(_COPY_BYTES, run.stop - start), start)
                if not data:
                    raise OSError(errno.EIO, "a log became shorter meanwhile")
                self.put(data, to)
                copied = len(data)
            start += copied
            to += copied
            if to - self._asked >= _LET_GO_BYTES:
                self._let_go(to)
        self.put(b"\n", to)  # the last line need not end in its own file

    def _let_go(self, to: int) -> None:
        """Have what was written go to the disk, and what has gone there out of memory, without waiting for either.

        Memory for gigabytes takes longer to get than the disk takes to write them, and what others had in it would have to go. The kernel lets
        go of what is on the disk, and begins to write the rest: so each part is asked for when it is written, and again once the next one is.
        """
        with suppress(OSError):  # it is advice, and not every file takes it
            os.posix_fadvise(self._descriptor, self._gone, to - self._gone, os.POSIX_FADV_DONTNEED)
        self._gone, self._asked = self._asked, to


def _union(name: str, files: Sequence[BinaryIO], session: _Session, note: Callable[[str], None]) -> tuple[bytes, int]:
    """The text of a session that stands in several files; how many lines stand in it once instead of twice."""
    versions: list[list[bytes]] = []
    for number, pieces in session.pieces.items():
        read = [os.pread(files[number].fileno(), stop - start, start) for start, stop in pieces]
        versions.append([line for block in read for line in block.split(b"\n")])
    versions.sort(key=lambda lines: (-len(lines), lines))
    # A start line may stand twice in one file: what counts is how often a line stands in the file that has it most often.
    wanted: Counter[bytes] = Counter()
    for lines in versions[1:]:
        wanted |= Counter(lines)
    extra = sorted((wanted - Counter(versions[0])).elements())
    written = [*versions[0], *extra]
    if extra:
        note(f"session {name}: {len(extra)} line(s) stand in one file and not in another; all are kept, and `tilewright log lint` finds those that clash")
    return b"".join(line + b"\n" for line in written), sum(map(len, versions)) - len(written)
