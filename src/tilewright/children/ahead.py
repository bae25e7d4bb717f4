"""The candidate that is likely next: imported, and its binary loaded, while the device and the parent are busy with other things."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from triton.backends import backends
from triton.runtime.jit import JITFunction

from tilewright.children.modules import load_rendered, source_file, unload


class Ahead:
    """At most one module, kept until it is taken or another one comes."""

    def __init__(self) -> None:
        self._kept: tuple[str, ModuleType] | None = None

    def load(self, source: Mapping[str, Any], folder: Path, bind: Callable[[ModuleType], None]) -> None:
        """Import a module and have its kernels loaded. What it raises is for its own turn to say: here nobody would hear it.

        Args:
            source: its `text` and `hash`.
            folder: where rendered modules are kept.
            bind: calls its `launch` in `binding`.
        """
        self.drop()
        with contextlib.suppress(BaseException):
            path = source_file(folder, source["text"], source["hash"])
            module = load_rendered(path)
            self._kept = (source["hash"], module)
            bind(module)

    def take(self, source_hash: str) -> ModuleType | None:
        """The module of that hash, once; any other one is dropped."""
        kept, self._kept = self._kept, None
        if kept is None:
            return None
        if kept[0] == source_hash:
            return kept[1]
        unload(kept[1])
        return None

    def drop(self) -> None:
        """Forget it."""
        self.take("")


class NotBuilt(Exception):
    """A binary is not in the cache. Compiling takes seconds, and nobody waits for it here."""


@contextlib.contextmanager
def binding() -> Iterator[None]:
    """Within, a launch takes what it would run from the cache and loads it, and runs nothing. Not for the interpreter.

    Leans on `JITFunction.run`, `CompiledKernel._init_handles` and the backends' `add_stages` of Triton 3.6 to 3.9. Where they are
    others, less is done ahead.

    Raises:
        NotBuilt: within, where a kernel would have to be compiled.
    """
    really = JITFunction.run

    def refuse(*_: Any, **__: Any) -> None:
        raise NotBuilt

    def run(function: Any, *args: Any, grid: Any, warmup: bool = True, **kwargs: Any) -> Any:
        kernel = really(function, *args, grid=grid, warmup=True, **kwargs)
        getattr(kernel, "_init_handles", lambda: None)()
        return kernel

    stages = [(one.compiler, one.compiler.add_stages) for one in backends.values()]
    JITFunction.run = run
    for compiler, _ in stages:
        compiler.add_stages = refuse
    try:
        yield
    finally:
        JITFunction.run = really
        for compiler, add_stages in stages:
            compiler.add_stages = add_stages
