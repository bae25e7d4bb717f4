"""What importers share: the file's text, errors that name the place, the session's lines."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tilewright.errors import HostError, LogDamaged, LogError, UsageError, nearest
from tilewright.filekind import refuse_endless
from tilewright.record import SessionEnd, SessionStart
from tilewright.target import Target, Toolchain
from tilewright.workload import Workload


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportSession:
    """What all lines of one imported recording share."""

    name: str
    operator: str
    target: Target
    toolchain: Toolchain
    protocol: str
    source: str

    def start(self, workloads: Iterable[Workload]) -> SessionStart:
        """The session's first line."""
        return SessionStart(
            session=self.name,
            started_at="",  # the recordings do not say; the time of the import would make two imports differ
            tilewright="",  # it was not Tilewright that measured, and an import is the same with every version
            operator=self.operator,
            workloads=list(workloads),
            target=self.target,
            toolchain=self.toolchain,
            options={"search": "grid", "imported_from": self.source},
        )

    def end(self, trials: int, workloads: Iterable[Workload]) -> SessionEnd:
        """The session's last line."""
        return SessionEnd(session=self.name, ended_at="", reason="exhausted", trials=trials, finished=[workload.key for workload in workloads])


def known_device(path: Path, name: str, known: Mapping[str, Target], module: str) -> Target:
    """The target that a recording names.

    Raises:
        UsageError: nothing is known of it.
    """
    if name not in known:
        raise UsageError(f"{path}: nothing is known of its device {name!r}; {nearest(name, known)}; add its limits to src/tilewright/{module}.py")
    return known[name]


def recording_text(path: Path) -> str:
    """The text of a recording, decompressed.

    Raises:
        LogError, LogDamaged, HostError: there is none, it is damaged, or it cannot be read.
        UsageError: it is a socket, a disk, or a device without an end.
    """
    refuse_endless(path, "a recording")
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        raise LogError(f"no recording {path}") from None
    except OSError as error:
        raise HostError(f"cannot read {path}: {error.strerror or error}") from error
    with naming(path, "the file"):
        return (gzip.decompress(data) if data.startswith(b"\x1f\x8b") else data).decode()


_MALFORMED: Final = (ValueError, KeyError, TypeError, AttributeError, IndexError, OverflowError, RecursionError, EOFError, zlib.error, gzip.BadGzipFile)


class naming:  # noqa: N801 - reads as a word: `with naming(path, ...)`
    """Turns whatever a malformed file provokes into an error that names the file and the place."""

    def __init__(self, path: Path, where: str) -> None:
        self._path = str(path)
        self._place = f"{path}, {where}"

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        # A UsageError that does not name the file comes from a name or an extent that breaks the rules.
        unnamed = isinstance(error, UsageError) and self._path not in str(error)
        if unnamed or isinstance(error, _MALFORMED):
            said = f"{error.args[0]!r} is missing" if isinstance(error, KeyError) else str(error)
            raise LogDamaged(f"{self._place}: {said}; it is not a recording of this format, or damaged") from error
