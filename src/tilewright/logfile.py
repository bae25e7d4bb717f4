"""Bytes of log files: appended under a lock, read up to where no writer is at work, compressed or not."""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Final

from tilewright.codec import decode_line
from tilewright.destination import new_file
from tilewright.errors import HostError, LogDamaged, LogError, SchemaTooNew, UsageError, nearest
from tilewright.filekind import kind_of, refuse_endless, seems

_CHUNK_BYTES: Final = 1 << 20  # guess: large enough that splitting dominates reading, small beside a log
_GZIP_MAGIC: Final = b"\x1f\x8b"
_GZIP_WBITS: Final = 31  # zlib's code for a gzip wrapper with the largest window
_GZIP_LEVEL: Final = 9

_KIND: Final = b'{"kind":"'  # what lines begin with that a crash cut short

_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_FORBIDDEN: Final = frozenset({errno.EACCES, errno.EPERM, errno.EROFS})
_NO_SYNC: Final = frozenset({errno.EINVAL, errno.ENOTSUP})  # pipes and character devices


class Broken(str):
    """Why the bytes of a log end before their time."""

    __slots__ = ()


def is_best_file(path: Path) -> bool:
    """Whether a file is a best file rather than a log, by its first line."""
    if path.suffix == ".gz" or not path.is_file():
        return False
    try:
        with path.open("rb") as file:
            first = file.read(4096).partition(b"\n")[0]
    except OSError as error:
        raise _host_error(path, "read", error) from error
    return b'"kind":"best"' in first or b'"kind":"range"' in first


def refuse_unfit(path: Path) -> None:
    """Raise a UsageError where a session is asked to append to what keeps no lines for it to read, or to a file that is no log."""
    kind = kind_of(path)
    if kind in ("named pipe", "socket", "disk"):
        raise UsageError(f"{path} is a {kind}, which keeps no lines for the next session to read; name a log with --log FILE")
    if is_best_file(path):
        raise UsageError(f"{path} is a best file, not a tuning log, and a session's lines would ruin it; name a log with --log FILE")
    if kind == "file" and not _is_log(path):
        raise UsageError(f"{path} has no line of a tuning log and seems to be {seems(path)}; a session's lines would ruin it: name a log with --log FILE")


def _is_log(path: Path) -> bool:
    """Whether a file has a line of a log, one that was torn included, or nothing at all."""
    found = True
    for raw in raw_lines(path):
        if isinstance(raw, Broken) or not raw or raw.isspace():
            continue
        found = _KIND.startswith(raw)  # the last line may be torn anywhere
        try:
            decode_line(raw)
        except SchemaTooNew:
            return True  # whoever reads it says so
        except LogDamaged:
            if raw.startswith(_KIND) and not raw.endswith(b"}"):
                return True
        else:
            return True
    return found


def append_bytes(path: Path, data: bytes, *, sync: bool) -> None:
    """Add bytes to a file under its lock, after ending a torn last line.

    Args:
        path: the file, created where it does not exist, with its folder.
        data: whole lines.
        sync: whether to wait until they are on the disk.

    Raises:
        UsageError: the file is a compressed one, by its name or its first bytes.
        HostError: it cannot be written here and now. What it held before is still there.
    """
    if path.suffix == ".gz":
        raise _packed(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o666)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            _write(descriptor, path, data, sync)
        finally:
            os.close(descriptor)  # which also unlocks
    except OSError as error:
        raise _host_error(path, "append to", error) from error


def _write(descriptor: int, path: Path, data: bytes, sync: bool) -> None:
    about = os.fstat(descriptor)
    regular = stat.S_ISREG(about.st_mode)
    if regular and os.pread(descriptor, len(_GZIP_MAGIC), 0) == _GZIP_MAGIC:
        raise _packed(path)
    if regular and about.st_size and os.pread(descriptor, 1, about.st_size - 1) != b"\n":
        data = b"\n" + data
    view = memoryview(data)
    # One write, but where the kernel takes only a part: the next one then says why, and the torn line stays for the next append to seal.
    while view:
        view = view[os.write(descriptor, view) :]
    if sync:
        _sync(descriptor)
        if regular and not about.st_size:
            _sync_folder(path.parent)  # a new file's name is on the disk only when its folder is


def _packed(path: Path) -> UsageError:
    return UsageError(f"{path} is compressed and cannot be appended to; name a .jsonl file, or decompress it first (gunzip -k)")


def write_new(path: Path, data: bytes) -> None:
    """Write a file that does not exist yet, compressed if its name ends in `.gz`; the same data give the same bytes.

    Raises:
        UsageError: the file exists.
        HostError: it cannot be written; nothing is left of it.
    """
    if path.suffix == ".gz":
        packer = zlib.compressobj(_GZIP_LEVEL, zlib.DEFLATED, _GZIP_WBITS)  # writes neither a time nor a name
        data = packer.compress(data) + packer.flush()
    try:
        with new_file(path) as file:
            view = memoryview(data)
            while view:
                view = view[file.write(view) :]
            _sync(file.fileno())
        _sync_folder(path.parent)
    except OSError as error:
        raise _host_error(path, "write", error) from error


def raw_lines(path: Path) -> Iterator[bytes | Broken]:
    """The lines of a file, without their newlines, one at a time; the last may be torn.

    Bytes that a writer adds after the first line was asked for are left out.

    Raises:
        LogError: there is no such file.
        UsageError: it is a socket, a disk, or a device without an end.
        HostError: it cannot be read.
    """
    tail = b""
    for chunk in unpacked(path):
        if isinstance(chunk, Broken):
            yield tail
            yield chunk
            return
        first, *rest = chunk.split(b"\n")
        if rest:
            yield tail + first
            yield from rest[:-1]
            tail = rest[-1]
        else:
            tail += first
    yield tail


def unpacked(path: Path) -> Iterator[bytes | Broken]:
    """The bytes of a file, decompressed if its first bytes say that it is compressed.

    Raises:
        LogError, UsageError, HostError: as `raw_lines`.
    """
    with _reading(path) as file:
        yield from _chunks(file, _stable_size(file))


def is_packed(path: Path) -> bool:
    """Whether a file is compressed, by its first bytes, whatever its name.

    Raises:
        LogError, UsageError, HostError: as `raw_lines`.
    """
    with _reading(path) as file:
        return file.read(len(_GZIP_MAGIC)) == _GZIP_MAGIC


def stable_size(path: Path) -> int:
    """Bytes of a regular file that no writer is working on.

    Raises:
        LogError, UsageError, HostError: as `raw_lines`.
    """
    with _reading(path) as file:
        return _stable_size(file) or 0


@contextmanager
def _reading(path: Path) -> Iterator[BinaryIO]:
    refuse_endless(path, "a tuning log")
    try:
        with path.open("rb") as file:
            yield file
    except FileNotFoundError:
        raise LogError(f"no log {path}; {_siblings(path)}") from None
    except OSError as error:
        raise _host_error(path, "read", error) from error


def _stable_size(file: BinaryIO) -> int | None:
    """Bytes that no writer is working on, None where the file has no size: a pipe or a terminal, which is read to its end."""
    about = os.fstat(file.fileno())
    if not stat.S_ISREG(about.st_mode):
        return None
    try:
        fcntl.flock(file, fcntl.LOCK_SH)
        size = os.fstat(file.fileno()).st_size
        fcntl.flock(file, fcntl.LOCK_UN)
    except OSError:  # no locks on this file system: there are no writers of ours either
        return about.st_size
    return size


def _chunks(file: BinaryIO, size: int | None) -> Iterator[bytes | Broken]:
    def plain() -> Iterator[bytes]:
        left = size
        while chunk := file.read(_CHUNK_BYTES if left is None else min(_CHUNK_BYTES, left)):
            if left is not None:
                left -= len(chunk)
            yield chunk

    chunks = plain()
    first = next(chunks, b"")
    if not first.startswith(_GZIP_MAGIC):
        yield first
        yield from chunks
        return
    unpacker = zlib.decompressobj(_GZIP_WBITS)
    packed = first
    try:
        while packed:
            yield unpacker.decompress(packed)
            packed = unpacker.unused_data
            if unpacker.eof and packed:  # gzip files may be laid end to end
                unpacker = zlib.decompressobj(_GZIP_WBITS)
            else:
                packed = next(chunks, b"")
                if unpacker.eof and packed:
                    unpacker = zlib.decompressobj(_GZIP_WBITS)
    except zlib.error as error:
        yield Broken(f"the compressed data is damaged from here on: {error}")
        return
    if not unpacker.eof:
        yield Broken("the compressed data is cut short here")


def _sync(descriptor: int) -> None:
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in _NO_SYNC:
            raise


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        _sync(descriptor)
    finally:
        os.close(descriptor)


def _siblings(path: Path) -> str:
    try:
        names = sorted(entry.name for entry in path.parent.iterdir() if ".jsonl" in entry.name)
    except OSError:
        return f"its folder {path.parent} cannot be read"
    return nearest(path.name, names) if names else f"there are no .jsonl files in {path.parent}"


def _host_error(path: Path, doing: str, error: OSError) -> HostError:
    reason = error.strerror or str(error)
    if error.errno in _FULL:
        hint = "make room, then go on with --resume: all that was acknowledged is in the log"
    elif error.errno in _FORBIDDEN:
        hint = "name a file that can be written with --log"
    elif error.errno in (errno.ENOTDIR, errno.EISDIR, errno.EEXIST):
        hint = "a log is a file in a folder; name another with --log"
    elif error.errno in (errno.ENOLCK, errno.EOPNOTSUPP):
        hint = "its file system has no file locks; put the log on a local disk"
    else:
        hint = "the log is as it was but for at most one torn line, which the next append seals"
    return HostError(f"cannot {doing} {path}: {reason}; {hint}")
