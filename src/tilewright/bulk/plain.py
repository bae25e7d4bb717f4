"""Compressed logs as plain files, which can be read in parts and copied from."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tilewright.errors import HostError
from tilewright.logfile import Broken, is_packed, unpacked


@contextmanager
def plain_files(paths: Sequence[Path], folder: Path, note: Callable[[str], None]) -> Iterator[tuple[list[Path], int]]:
    """The logs, of which those that are compressed, by their first bytes, are unpacked; with how many of these end before their time.

    What is unpacked has no name in its folder, so that nothing of it outlives this process and those that it forks, which may open it too.

    Args:
        paths: files.
        folder: where there is room for them, unpacked.
        note: told of one whose compressed data is damaged: what comes before is taken.

    Raises:
        LogError, HostError: one cannot be read, or not be unpacked there.
    """
    plain: list[Path] = []
    broken = 0
    with ExitStack() as open_files:
        for path in paths:
            if not is_packed(path):
                plain.append(path)
                continue
            try:
                import tempfile  # with much else, for which plain logs do not wait

                folder.mkdir(parents=True, exist_ok=True)
                file = open_files.enter_context(tempfile.TemporaryFile(dir=folder, buffering=0))
                why = _unpack(path, file.fileno())
            except OSError as error:
                raise HostError(f"cannot unpack {path} in {folder}: {error.strerror or error}; make room there, or choose another place with -o") from error
            if why:
                broken += 1
                note(f"{path}: {why}; what comes before is merged")
            plain.append(Path(f"/proc/self/fd/{file.fileno()}"))
        yield plain, broken


def _unpack(path: Path, descriptor: int) -> str:
    """Write what a log holds; why it ends before its time, empty where it does not."""
    for chunk in unpacked(path):
        if isinstance(chunk, Broken):
            return str(chunk)
        view = memoryview(chunk)
        while view:
            view = view[os.write(descriptor, view) :]
    return ""
