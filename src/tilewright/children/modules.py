"""Python files given by path: an operator's spec and reference, and candidates' rendered modules."""

from __future__ import annotations

import importlib.util
import os
import sys
import tempfile
from pathlib import Path
from types import ModuleType

from tilewright.canonical import sha256_text


def load_file(path: Path, name: str) -> ModuleType:
    """Import a file under a name of its own, which it keeps in `sys.modules` until `unload`.

    Raises:
        Exception: whatever the file raises.
    """
    found = importlib.util.spec_from_file_location(name, path)
    if found is None or found.loader is None:
        raise ImportError(f"{path} is no Python file")
    module = importlib.util.module_from_spec(found)
    sys.modules[name] = module
    try:
        found.loader.exec_module(module)
    except BaseException:
        sys.modules.pop(name, None)
        raise
    return module


def unload(module: ModuleType) -> None:
    """Forget a module, so that what it holds can be freed."""
    sys.modules.pop(module.__name__, None)


def operator_module(folder: Path, file: str) -> ModuleType:
    """An operator's `spec.py` or `reference.py`, loaded once a process."""
    path = folder / file
    name = f"tilewright_operator_{path.stem}_{sha256_text(str(path))[:16]}"
    return sys.modules.get(name) or load_file(path, name)


def source_file(folder: Path, text: str, source_hash: str) -> Path:
    """The file that holds a rendered module: one for each hash, complete whenever it is there.

    Triton reads a kernel's text back from its file, and tracebacks name it; so it is kept.
    """
    path = folder / f"source_{source_hash[:32]}.py"
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        descriptor, temporary = tempfile.mkstemp(dir=folder, suffix=".tmp")
        with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
            stream.write(text)
        os.replace(temporary, path)
    return path
