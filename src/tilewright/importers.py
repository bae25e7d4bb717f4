"""Recordings of other tools, as lines of a log: whole spaces that were measured point by point."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Final

from tilewright.errors import UsageError, nearest
from tilewright.kernel_tuner import import_kernel_tuner
from tilewright.raw_recording import import_recorded
from tilewright.record import Line

# By the name that `tilewright log import --format` takes.
IMPORTERS: Final[Mapping[str, Callable[[str | os.PathLike[str]], list[Line]]]] = {"recorded": import_recorded, "kernel-tuner": import_kernel_tuner}


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


__all__ = ["IMPORTERS", "import_kernel_tuner", "import_log", "import_recorded"]
