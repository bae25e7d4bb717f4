"""Files that a command writes: whole or not at all, and nothing but a file is ever replaced."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, Final, TextIO

from tilewright.errors import HostError, UsageError
from tilewright.filekind import kind_of

# A stream of this process by name: opened again, a file that the shell appends to would be written from its beginning, and a socket not at all.
_STREAM: Final = re.compile(r"/dev/(?:(stdin|stdout|stderr)|fd/(\d+))|/proc/self/fd/(\d+)")
_STREAMS: Final = {"stdin": 0, "stdout": 1, "stderr": 2}
_NAME_CHARACTERS: Final = 50  # of the name in a draft's name: with four bytes each, it stays below the 255 that file systems take
# What file systems without hard links say to one.
_NO_LINKS: Final = frozenset({errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK})


def is_stream(path: Path) -> bool:
    """Whether writing there goes straight into something: a device of characters, a named pipe, or a stream of this process such as /dev/stdout."""
    return _STREAM.fullmatch(os.fspath(path)) is not None or kind_of(path) in ("device", "named pipe")


@contextmanager
def replacing(path: Path) -> Iterator[TextIO]:
    """A text file to write to, which takes its place when it is whole; what was there stays until then, and where that fails.

    A link is followed: what it names is replaced, with the permissions that it had. A device of characters, a named pipe and a stream of this
    process (`/dev/null`, `/dev/stdout`) are written into as they are; a reader of one that goes away ends the writing, not the command.

    Args:
        path: of the file.

    Raises:
        UsageError: a folder, a socket or a disk is there.
        HostError: it cannot be written.
    """
    try:
        if is_stream(path):
            with suppress(BrokenPipeError), os.fdopen(_open_stream(path), "w", encoding="utf-8", newline="\n") as file:
                yield file
            return
        kind = kind_of(path)
        if kind not in ("", "file"):
            raise UsageError(f"{path} is a {kind}; name a file with -o")
        target = Path(os.path.realpath(path))
        with _draft(target) as (draft, descriptor):
            with suppress(OSError):  # none there, or not ours to say
                os.fchmod(descriptor, os.stat(target).st_mode & 0o777)
            with os.fdopen(descriptor, "w", encoding="utf-8", newline="\n", closefd=False) as file:
                yield file
            draft.replace(target)
    except OSError as error:
        raise HostError(f"{path}: cannot write ({error.strerror or error}); choose another place with -o") from error


@contextmanager
def new_file(path: Path) -> Iterator[BinaryIO]:
    """A file to write to that does not exist yet, and has its name only when it is whole: one whose writer was killed never looks finished.

    Until then it is `NAME.unfinished-...` beside it, which is what a kill leaves; it holds up nobody and may be removed. A link to nothing is followed.

    Args:
        path: of the file; its folder is made where there is none.

    Raises:
        UsageError: the file exists, or does by the time that this one is whole; it is never replaced.
        OSError: it cannot be written.
    """
    target = Path(os.path.realpath(path))
    if os.path.lexists(target):
        raise _exists(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    with _draft(target) as (draft, descriptor):
        with os.fdopen(descriptor, "w+b", buffering=0, closefd=False) as file:
            yield file
        try:
            _link(draft, target)
        except FileExistsError:
            raise _exists(path) from None


@contextmanager
def _draft(target: Path) -> Iterator[tuple[Path, int]]:
    """A new file beside another, open; it is gone afterwards, by whatever name it was left."""
    draft = target.with_name(f"{target.name[:_NAME_CHARACTERS]}.unfinished-{os.urandom(4).hex()}")
    descriptor = os.open(draft, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
    try:
        yield draft, descriptor
    finally:
        os.close(descriptor)
        with suppress(OSError):
            draft.unlink(missing_ok=True)


def _link(draft: Path, target: Path) -> None:
    """Give a file a second name that must not be taken; where the file system knows one name only, that name is taken first, empty."""
    try:
        os.link(draft, target)
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        os.close(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666))
        try:
            draft.replace(target)
        except BaseException:
            target.unlink(missing_ok=True)
            raise


def _open_stream(path: Path) -> int:
    named = _STREAM.fullmatch(os.fspath(path))
    if named is None:
        return os.open(path, os.O_WRONLY | os.O_NOCTTY | os.O_CLOEXEC)  # and not O_CREAT, which protected folders refuse for others' pipes
    return os.dup(_STREAMS[named[1]] if named[1] else int(named[2] or named[3]))


def _exists(path: Path) -> UsageError:
    return UsageError(f"{path} exists, and a log is never rewritten; name another file or remove it first")
