"""Putting logs together: whole sessions in order of time, whatever the order of the files; a session in two files stands once."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, Final

import msgspec

from tilewright.bulk.parts import Part, blocks_of, fold_parts, parts_of, processes
from tilewright.errors import HostError, UsageError

# How every line that a log's writer writes begins.
_HEAD: Final = re.compile(rb'\{"kind":"([a-z]+)","schema":\d+,"session":"([^"\\]*)"')
_COPY_BYTES: Final = 1 << 20  # guess


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
    for offset, block in blocks_of(part):
        at = offset
        for raw in block.split(b"\n"):
            end = at + len(raw)
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
                    current, start, count = session, at, 0
                stop = end
                count += 1
            at = end + 1
    if start >= 0:
        pieces.append((current, start, stop, count))
    return {"pieces": pieces, "began": list(began.items()), "damaged": damaged}


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
        paths: logs, not compressed.
        output: a file that does not exist.
        note: told of sessions whose lines differ between files.

    Raises:
        UsageError: the output exists, or a log is compressed.
        LogError, HostError: a log cannot be read, or the output not written; nothing is left of it.
    """
    packed = [path for path in paths if path.suffix == ".gz"]
    if packed:
        raise UsageError(f"{packed[0]} is compressed; decompress it first (gunzip -k)")
    if output.exists():
        raise UsageError(f"{output} exists, and a log is never rewritten; name another file or remove it first")
    distinct = sorted({path.resolve() for path in paths})
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
    return MergedLogs(sessions=len(sessions), lines=lines - repeated, repeated=repeated, damaged=sum(answer["damaged"] for answer in folded))


def _write(output: Path, files: Sequence[BinaryIO], ordered: Sequence[tuple[str, _Session]], note: Callable[[str], None]) -> int:
    repeated = 0
    try:
        output.parent.mkdir(parents=True, exist_ok=True)
        with output.open("xb", buffering=0) as out:
            try:
                for name, session in ordered:
                    if len(session.pieces) == 1:
                        ((number, pieces),) = session.pieces.items()
                        for start, stop in pieces:
                            _copy(files[number], out, start, stop)
                    else:
                        repeated += _union(name, files, session, out, note)
                os.fsync(out.fileno())
            except BaseException:
                output.unlink(missing_ok=True)
                raise
    except OSError as error:
        raise HostError(f"cannot write {output}: {error.strerror or error}; choose another file with -o") from error
    return repeated


def _copy(source: BinaryIO, out: Any, start: int, stop: int) -> None:
    """Copy lines, inside the kernel where the file system lets it, and end the last one."""
    descriptor, target = source.fileno(), out.fileno()
    while start < stop:
        try:
            copied = os.copy_file_range(descriptor, target, stop - start, start)
        except OSError:
            copied = 0
        if not copied:
            copied = os.write(target, os.pread(descriptor, min(_COPY_BYTES, stop - start), start))
        start += copied
    os.write(target, b"\n")


def _union(name: str, files: Sequence[BinaryIO], session: _Session, out: Any, note: Callable[[str], None]) -> int:
    """Write a session that stands in several files; how many lines were written once instead of twice."""
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
    os.write(out.fileno(), b"".join(line + b"\n" for line in written))
    if extra:
        note(f"session {name}: {len(extra)} line(s) stand in one file and not in another; all are kept, and `tilewright log lint` finds those that clash")
    return sum(map(len, versions)) - len(written)
