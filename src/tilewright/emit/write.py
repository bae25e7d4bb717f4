"""Putting a package's files on the disk: all of them or none, and nothing that is not a package of ours is replaced."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path

from tilewright.emit.package import MANIFEST
from tilewright.errors import HostError, UsageError


def write_package(folder: Path, files: Mapping[str, str]) -> None:
    """Write a package's folder, in place of an older one that Tilewright emitted.

    Args:
        folder: the package's own.
        files: texts by path below it.

    Raises:
        UsageError: something else is there.
        HostError: it cannot be written; what was there before is still there.
    """
    if folder.exists() and not _is_ours(folder):
        raise UsageError(f"{folder} exists and was not emitted by Tilewright; choose another folder with -o, another --name, or remove it")
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        draft = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
        try:
            draft.chmod(0o755)
            for path, text in files.items():
                target = draft / path
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_text(text, encoding="utf-8", newline="")
            if folder.exists():
                old = draft.with_name(f"{draft.name}.old")
                folder.rename(old)
                draft.rename(folder)
                shutil.rmtree(old)
            else:
                draft.rename(folder)
        finally:
            shutil.rmtree(draft, ignore_errors=True)
    except OSError as error:
        raise HostError(f"cannot write {folder}: {error.strerror or error}; choose another folder with -o") from error


def _is_ours(folder: Path) -> bool:
    if not folder.is_dir():
        return False
    try:
        manifest = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return not any(folder.iterdir())
    return isinstance(manifest, dict) and str(manifest.get("generator", "")).startswith("tilewright ")
