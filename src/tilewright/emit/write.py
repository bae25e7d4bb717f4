"""Putting a package's files on the disk: all of them or none, and nothing that is not a package of ours is replaced."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

from tilewright.emit.package import MANIFEST
from tilewright.errors import HostError, UsageError


def write_package(folder: Path, files: Mapping[str, str], complete: Callable[[Path], None] = lambda draft: None) -> None:
    """Write a package's folder, in place of an older one that Tilewright emitted.

    Args:
        folder: the package's own.
        files: texts by path below it.
        complete: given the folder before it takes its place, under its own name in another folder; adds what is not a text. What it raises, Ctrl-C
            included, leaves what was there before.

    Raises:
        UsageError: something else is there.
        HostError: it cannot be written; what was there before is still there.
    """
    if folder.is_symlink():  # what it names is replaced
        folder = Path(os.path.realpath(folder))
    if folder.exists() and not _is_ours(folder):
        raise UsageError(f"{folder} exists and was not emitted by Tilewright; choose another folder with -o, another --name, or remove it")
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        aside = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
        draft, old = aside / folder.name, aside / ".old"
        try:
            draft.mkdir()
            draft.chmod(0o755)
            for path, text in files.items():
                target = draft / path
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_text(text, encoding="utf-8", newline="")
            complete(draft)
            try:
                if folder.exists():
                    folder.rename(old)
                draft.rename(folder)
            except BaseException:
                if old.exists() and not folder.exists():
                    old.rename(folder)
                raise
        finally:
            shutil.rmtree(aside, ignore_errors=True)
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
