"""The cache folder: compiled kernels, shared by builders and runners, and outcomes of builds by what they were made from."""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def cache_root(folder: Path | None = None) -> Path:
    """The cache folder: the given one, else `$TILEWRIGHT_CACHE`, else `~/.cache/tilewright`; absolute, as Triton's cache must be."""
    chosen = folder or Path(os.environ.get("TILEWRIGHT_CACHE") or Path.home() / ".cache" / "tilewright")
    return chosen.expanduser().resolve()


def child_environment(cache_dir: Path | None = None) -> dict[str, str]:
    """Variables that every child which compiles must share, so that a runner finds what a builder compiled.

    The folder is Triton's own cache, whose group files hold absolute paths. Line information would make a kernel's binary
    depend on the folder of its source, and the switch is part of Triton's kernel hash.

    Args:
        cache_dir: the cache folder, as for `cache_root`.
    """
    return {"TRITON_CACHE_DIR": str(cache_root(cache_dir) / "triton"), "TRITON_DISABLE_LINE_INFO": "1"}


class OutcomeCache:
    """JSON objects by key, one file each, complete whenever it is there.

    Args:
        folder: where they are kept.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def get(self, key: str) -> dict[str, Any] | None:
        """The object of that key; None where there is none, or its file is damaged."""
        try:
            entry = json.loads(self._path(key).read_bytes())
        except (OSError, ValueError):
            return None
        # The key stands in the file too: one copied or cut short by a full disk is no entry.
        return entry["value"] if isinstance(entry, dict) and entry.get("key") == key and isinstance(entry.get("value"), dict) else None

    def put(self, key: str, value: Mapping[str, Any]) -> None:
        """Keep an object.

        Raises:
            OSError: it cannot be written.
        """
        path = self._path(key)
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor, temporary = tempfile.mkstemp(dir=path.parent, suffix=".tmp")
        try:
            with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
                json.dump({"key": key, "value": dict(value)}, stream, allow_nan=False)
            os.replace(temporary, path)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
            raise

    def _path(self, key: str) -> Path:
        return self._folder / key[:2] / f"{key}.json"
