"""Python files given by path: an operator's spec and reference, and candidates' rendered modules."""

from __future__ import annotations

import contextlib
import importlib.util
import inspect
import os
import sys
import tempfile
from collections.abc import Callable, Sequence
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType
from typing import Final

from tilewright.canonical import sha256_text

_SOURCE: Final = "source_"  # what files of rendered modules are named by
_MOST_BLOCKS: Final = 64  # guess: the kernels of several operators; each is some 4 KB of text


class _KeepingBytecode(SourceFileLoader):
    """Keeps bytecode beside the file also where this interpreter was told to write none (PYTHONDONTWRITEBYTECODE): the cache folder is ours.

    A candidate is imported by a builder and then by the runner, which waits for it: compiling is half a millisecond (2026-11).
    """

    def get_code(self, fullname: str) -> CodeType | None:
        before, sys.dont_write_bytecode = sys.dont_write_bytecode, False
        try:
            return super().get_code(fullname)
        except Exception:  # what is wrong with the text, it says again; half a file of bytecode, as a full disk leaves it, says nothing of it
            with contextlib.suppress(OSError):
                os.unlink(importlib.util.cache_from_source(self.path))
            return self.source_to_code(self.get_data(self.path), self.path)
        finally:
            sys.dont_write_bytecode = before


def load_rendered(path: Path) -> ModuleType:
    """Import a rendered module in a child process, as `load_file` does, under its file's name.

    Raises:
        Exception: whatever the module raises.
    """
    _remember_blocks()
    return load_file(path, path.stem, _KeepingBytecode(path.stem, str(path)))


def load_file(path: Path, name: str, loader: SourceFileLoader | None = None) -> ModuleType:
    """Import a file under a name of its own, which it keeps in `sys.modules` until `unload`.

    Raises:
        Exception: whatever the file raises.
    """
    found = importlib.util.spec_from_file_location(name, path, loader=loader)
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


def _remember_blocks() -> None:
    """Have this process find the end of a kernel's text once, not once a candidate: those of a template mostly differ in `launch` alone.

    `triton.jit` has Python tokenize the text up to its end, a millisecond for a GEMM (2026-11).
    """
    if not isinstance(inspect.getblock, _Blocks):
        inspect.getblock = _Blocks(inspect.getblock)  # type: ignore[assignment]


class _Blocks:
    """`inspect.getblock`, which finds the lines of the first block among lines, remembering what it found."""

    def __init__(self, really: Callable[[Sequence[str]], Sequence[str]]) -> None:
        self._really = really
        self._known: list[tuple[Sequence[str], int]] = []

    def __call__(self, lines: Sequence[str]) -> Sequence[str]:
        # What was read to find the end says the same end again: the block, and all up to the first line after it that is the module's own
        # (one of nothing but a backslash may be either's, from Python 3.12 on).
        for read, count in self._known:
            if lines[: len(read)] == read:
                return lines[:count]
        block = self._really(lines)
        end = next((place for place in range(len(block), len(lines)) if lines[place][:1] not in " \t\f#\\\r\n"), None)
        if end is not None:
            self._known = [(lines[: end + 1], len(block)), *self._known[: _MOST_BLOCKS - 1]]
        return block


def operator_module(folder: Path, file: str) -> ModuleType:
    """An operator's `spec.py` or `reference.py`, loaded once a process."""
    path = folder / file
    name = f"tilewright_operator_{path.stem}_{sha256_text(str(path))[:16]}"
    return sys.modules.get(name) or load_file(path, name)


def is_source_file(path: str) -> bool:
    """Whether a path is that of a rendered module, as `source_file` names them."""
    return os.path.basename(path).startswith(_SOURCE)


def source_file(folder: Path, text: str, source_hash: str) -> Path:
    """The file that holds a rendered module: one for each hash, complete whenever it is there.

    Triton reads a kernel's text back from its file, and tracebacks name it; so it is kept.
    """
    path = folder / f"{_SOURCE}{source_hash[:32]}.py"
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        descriptor, temporary = tempfile.mkstemp(dir=folder, suffix=".tmp")
        with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
            stream.write(text)
        os.replace(temporary, path)
    return path
