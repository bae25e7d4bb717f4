"""An operator's own files, and what they import of Tilewright, made to stand alone inside an emitted package."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from tilewright.errors import UsageError

PRIVATE: Final = "_tw"  # the package's folder for modules of Tilewright
_HOME: Final = Path(__file__).resolve().parents[1]
_ROOT: Final = "tilewright"


def stand_alone(text: str, path: Path, *, prefix: str, allowed: Iterable[str] = ()) -> tuple[str, frozenset[str]]:
    """A module's text with its imports of Tilewright turned into relative ones.

    Args:
        text: the module.
        path: named in errors.
        prefix: what stands for `tilewright.`: `._tw.` for a module beside that folder, `.` for one inside it.
        allowed: packages it may import besides the standard library.

    Returns:
        The text, and the names of the modules of Tilewright that it needs.

    Raises:
        UsageError: it imports something that an emitted package may not, or imports Tilewright in a form that cannot be redirected.
    """
    lines = text.split("\n")
    needed: set[str] = set()
    for node in ast.walk(ast.parse(text, str(path))):
        if isinstance(node, ast.Import):
            for alias in node.names:
                _check(alias.name, path, node.lineno, allowed)
        elif isinstance(node, ast.ImportFrom) and node.level:
            raise UsageError(f"{path}:{node.lineno}: a relative import, which an emitted package cannot follow; put what it needs into this file")
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            root, _, module = node.module.partition(".")
            if root != _ROOT:
                _check(node.module, path, node.lineno, allowed)
                continue
            line = lines[node.lineno - 1]
            statement = f"from {node.module} import"
            if not module or "." in module or statement not in line or not (_HOME / f"{module}.py").is_file():
                raise UsageError(f"{path}:{node.lineno}: {line.strip()!r} cannot stand in an emitted package; import from one of Tilewright's modules by name")
            lines[node.lineno - 1] = line.replace(statement, f"from {prefix}{module} import", 1)
            needed.add(module)
    return "\n".join(lines), frozenset(needed)


def _check(module: str, path: Path, line: int, allowed: Iterable[str]) -> None:
    root = module.partition(".")[0]
    if root not in sys.stdlib_module_names and root not in allowed:
        names = ", ".join(["the standard library", *allowed, "tilewright's own plain modules"])
        raise UsageError(f"{path}:{line}: imports {module!r}, which an emitted package may not; allowed: {names}")


def private_modules(needed: Iterable[str]) -> Mapping[str, str]:
    """The texts of modules of Tilewright, and of those that they import in turn, for the package's private folder.

    Raises:
        UsageError: one of them needs more than the standard library.
    """
    texts: dict[str, str] = {}
    waiting = sorted(set(needed))
    while waiting:
        module = waiting.pop(0)
        if module not in texts:
            path = _HOME / f"{module}.py"
            texts[module], more = stand_alone(path.read_text(encoding="utf-8"), path, prefix=".")
            waiting += sorted(more)
    return dict(sorted(texts.items()))
