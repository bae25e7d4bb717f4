"""Workloads from a text file, one a line, as `-w @FILE` takes them: an error says where in the file it stands."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, TypeVar

from tilewright.errors import HostError, UsageError
from tilewright.filekind import refuse_endless
from tilewright.workload import parse_weighted

_T = TypeVar("_T")

# guess: some 50,000 workloads; more is another kind of file.
MAX_FILE_BYTES: Final = 4 << 20


class FileLine(str):
    """A workload's text that stood in a file.

    Attributes:
        place: the file and the line, as `shapes.txt:3`.
    """

    __slots__ = ("place",)
    place: str

    @classmethod
    def at(cls, text: str, path: Path, number: int) -> FileLine:
        """The text of a line, counted from 1."""
        line = cls(text)
        line.place = f"{path}:{number}"
        return line


def read_workloads(path: Path) -> list[FileLine]:
    """The workloads of a file: a line has `name=value,...`, and `:weight` behind it where it is not 1; blank lines and what follows a `#` say nothing.

    Raises:
        UsageError: there is no such file, it is no text, or there is no workload in it.
        HostError: it cannot be read.
    """
    refuse_endless(path, "a text file with a workload on each line")
    try:
        with path.open("rb") as file:
            data = file.read(MAX_FILE_BYTES + 1)
    except FileNotFoundError:
        raise UsageError(f"no file {path} with workloads; -w @FILE takes a text file with name=value,... on each line") from None
    except IsADirectoryError:
        raise UsageError(f"{path} is a folder, not a text file with a workload on each line; name a file") from None
    except OSError as error:
        raise HostError(f"cannot read {path}: {error.strerror or error}") from error
    if len(data) > MAX_FILE_BYTES:
        raise UsageError(f"{path} is larger than {MAX_FILE_BYTES >> 20} MiB, and so no list of workloads")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UsageError(f"{path} is no UTF-8 text: {error.reason} at byte {error.start}") from error
    stripped = [(number, line.partition("#")[0].strip()) for number, line in enumerate(text.split("\n"), 1)]
    lines = [FileLine.at(line, path, number) for number, line in stripped if line]
    if not lines:
        raise UsageError(f"{path} has no workload; write one on each line, as M=4096,N=4096,K=4096,dtype=float16")
    return lines


@contextmanager
def naming_line(text: object) -> Iterator[None]:
    """Around what is made of a workload's text: an error names file and line, where it stood in a file."""
    try:
        yield
    except UsageError as error:
        if not isinstance(text, FileLine):
            raise
        raise type(error)(f"{text.place}: {error}") from error


def each_workload(texts: Iterable[str], parse: Callable[[str], _T]) -> list[_T]:
    """What is made of each text, for a command to which weights say nothing.

    Args:
        texts: parameters, with or without a weight.
        parse: takes parameters without one.

    Raises:
        UsageError: one of them is none, with file and line where it stood in a file.
    """
    made = []
    for text in texts:
        with naming_line(text):
            made.append(parse(parse_weighted(text)[0]))
    return made
