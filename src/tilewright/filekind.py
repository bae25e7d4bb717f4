"""What stands at a path: a file, or something else that opens like one."""

from __future__ import annotations

import os
import re
import stat
from pathlib import Path
from typing import Final

from tilewright.errors import UsageError

_NULL: Final = os.makedev(1, 3)  # Linux's /dev/null by whatever name, and the one device whose bytes have an end: it has none

_HEAD_BYTES: Final = 4096  # guess: enough to tell by
_PYTHON: Final = re.compile(r"^(?:#!.*python|import \w|from [\w.]+ import |def \w+\(|class \w+[(:])", re.MULTILINE)


def kind_of(path: Path) -> str:
    """What is there, links followed: `file`, `folder`, `named pipe`, `socket`, `device` (of characters) or `disk`; empty where nothing is, or none may look."""
    try:
        mode = os.stat(path).st_mode
    except (OSError, ValueError):
        return ""
    kinds = ((stat.S_ISREG, "file"), (stat.S_ISDIR, "folder"), (stat.S_ISFIFO, "named pipe"), (stat.S_ISSOCK, "socket"), (stat.S_ISCHR, "device"))
    return next((kind for fits, kind in kinds if fits(mode)), "disk")


def refuse_endless(path: Path, wanted: str) -> None:
    """Refuse to read what has no end or no beginning: a socket, a disk, or a device that is neither a terminal nor /dev/null.

    Args:
        path: what is to be read.
        wanted: what should be there, such as `a tuning log`.

    Raises:
        UsageError: it is such a thing.
    """
    kind = kind_of(path)
    if kind in ("socket", "disk") or (kind == "device" and not _has_end(path)):
        raise UsageError(f"{path} is a {kind}, not {wanted}; name a file")


def seems(path: Path) -> str:
    """What a file of another kind than wanted seems to be, by its name and its first bytes, with its article; for a person, so a guess will do."""
    with path.open("rb") as file:
        head = file.read(_HEAD_BYTES)
    try:
        text = head.decode("utf-8") if len(head) < _HEAD_BYTES else head.decode("utf-8", "ignore")
    except UnicodeDecodeError:
        text = "\0"
    if "\0" in text:
        return "binary data"
    if path.suffix in (".py", ".pyi", ".jinja") or _PYTHON.search(text):
        return "a template" if path.suffix == ".jinja" else "Python source"
    if path.suffix == ".csv":
        return "a table"
    return "JSON of another kind" if text.lstrip()[:1] in ("{", "[") else "a text of another kind"


def refuse_no_file(path: Path, wanted: str, why: str) -> None:
    """Refuse all that is there and is no file: what is read from a pipe is gone.

    Args:
        path: what is to be read.
        wanted: what should be there, such as `a tuning log`.
        why: it has to be a file, as a sentence's end.

    Raises:
        UsageError: something else is there.
    """
    kind = kind_of(path)
    if kind not in ("", "file"):
        raise UsageError(f"{path} is a {kind}, not {wanted} in a file, and {why}; write it to a file first")


def _has_end(path: Path) -> bool:
    if os.stat(path).st_rdev == _NULL:
        return True
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOCTTY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return True  # whoever opens it hears why not
    try:
        return os.isatty(descriptor)
    finally:
        os.close(descriptor)
