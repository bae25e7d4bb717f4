"""Where operators' folders are found: folders that were named, those of a variable and of entry points, and those that ship."""

from __future__ import annotations

import importlib.metadata
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from tilewright.errors import UsageError
from tilewright.template import SUFFIX

VARIABLE: Final = "TILEWRIGHT_TEMPLATES"
ENTRY_POINTS: Final = "tilewright.templates"
SPEC_FILE: Final = "spec.py"


def operator_folders(named: Sequence[Path]) -> Iterator[Path]:
    """Folders of operators, and of what is on its way to be one: they hold a spec, or a template.

    Args:
        named: folders that hold operators' folders, or are one themselves.

    Raises:
        UsageError: a folder is missing, or one that was named holds none.
    """
    for root, origin in _roots(named):
        if not root.is_dir():
            raise UsageError(f"templates folder {str(root)!r} ({origin}) does not exist; name a folder that holds <operator>/{SPEC_FILE}")
        found = [root] if _is_one(root) else sorted(folder for folder in root.iterdir() if _is_one(folder))
        if not found and origin == "--templates":
            raise UsageError(f"templates folder {str(root)!r} ({origin}) holds no operator; name a folder that holds <operator>/{SPEC_FILE}")
        yield from found


def shipped_templates() -> Path | None:
    """The folder of the operators that come with Tilewright: inside the installed package, or at the top of a checkout."""
    package = Path(__file__).resolve().parent
    for folder in (package / "templates", package.parents[1] / "templates"):
        if folder.is_dir():
            return folder
    return None


def _is_one(folder: Path) -> bool:
    return (folder / SPEC_FILE).is_file() or next(folder.glob(f"*{SUFFIX}"), None) is not None


def _roots(folders: Sequence[Path]) -> Iterator[tuple[Path, str]]:
    yield from ((Path(folder), "--templates") for folder in folders)
    yield from ((Path(folder), VARIABLE) for folder in os.environ.get(VARIABLE, "").split(os.pathsep) if folder)
    for entry in sorted(importlib.metadata.entry_points(group=ENTRY_POINTS), key=lambda entry: entry.name):
        yield from ((folder, f"entry point {entry.name!r} of group {ENTRY_POINTS}") for folder in _entry_folders(entry))
    shipped = shipped_templates()
    if shipped is not None:
        yield shipped, "shipped"


def _entry_folders(entry: importlib.metadata.EntryPoint) -> list[Path]:
    """Folders that an entry point names: a path, a function that returns one, or a package that holds them."""
    try:
        loaded: Any = entry.load()
        if isinstance(loaded, ModuleType):
            return [Path(folder) for folder in loaded.__path__]
        return [Path(loaded() if callable(loaded) else loaded)]
    except Exception as error:
        raise UsageError(
            f"entry point {entry.name!r} of group {ENTRY_POINTS} ({entry.value}) gives no folder: {type(error).__name__}: {error}; "
            "it must be a path, a function that returns one, or a package; correct or uninstall the package that declares it"
        ) from error
