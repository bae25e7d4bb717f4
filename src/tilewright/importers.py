"""Recordings of other tools, as lines of a log: whole spaces that were measured point by point."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from tilewright.errors import UsageError, nearest
from tilewright.kernel_tuner import import_kernel_tuner
from tilewright.raw_recording import import_recorded
from tilewright.record import Line
from tilewright.t4_recording import import_t4

# By the name that `tilewright log import --format` takes.
IMPORTERS: Final[Mapping[str, Callable[[str | os.PathLike[str]], list[Line]]]] = {
    "recorded": import_recorded,
    "kernel-tuner": import_kernel_tuner,
    "t4": import_t4,
}


def import_log(path: str | os.PathLike[str], format: str) -> list[Line]:
    """Read another tool's recording.

    Args:
        path: the recording.
        format: a name in `IMPORTERS`.

    Raises:
        UsageError: the format is unknown, or the recording names an unknown device.
        LogError: there is no such file, or it is not of that format.
    """
    if format not in IMPORTERS:
        raise UsageError(f"unknown recording format {format!r}; {nearest(format, IMPORTERS)}")
    return IMPORTERS[format](path)


def import_logs(paths: Sequence[str | os.PathLike[str]], format: str, *, operator: str = "", workload: str = "", target: str = "") -> list[Line]:
    """Read a recording that may be in several files, with what they do not say.

    Args:
        paths: the files; several only of T4, one for each workload.
        format: a name in `IMPORTERS`.
        operator: as of `import_t4`, and only for that format, as are the next two.
        workload: as of `import_t4`.
        target: as of `import_t4`.

    Raises:
        UsageError: as `import_log`, or something is given that the format does not take.
        LogError: as `import_log`.
    """
    if format == "t4":
        return import_t4(paths, operator=operator, workload=workload, target=target)
    if len(paths) != 1:
        raise UsageError(f"{len(paths)} files of format {format}: each is a recording by itself; import them one by one, then see tilewright log merge")
    for name, value in (("--operator", operator), ("-w", workload), ("--target", target)):
        if value:
            raise UsageError(f"{name} {value}: files of format {format} say so themselves; it is for --format t4")
    return import_log(paths[0], format)


__all__ = ["IMPORTERS", "import_kernel_tuner", "import_log", "import_logs", "import_recorded", "import_t4"]
