"""C modules that Triton compiles for itself before it can launch: its driver's, and in 3.6 a launcher for each signature.

Without them the first launch of a process runs a C compiler, some 0.4 s for each. They are built ahead, on a machine with or without the device, and
given to Triton by its own hook for builds (`triton.knobs.build.impl`), by the text of their source: Triton's cache cannot be filled from elsewhere,
since its keys cover absolute paths from 3.8 on.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import re
import shutil
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import triton
from triton.runtime import build as triton_build

Build = Callable[..., str]  # name, source's path, scratch folder, library folders, include folders, libraries

# The driver's functions that a source calls; cuda.h renames some of them to a later version of theirs.
_DRIVER_FUNCTION: Final = re.compile(r"\bcu[A-Z]\w+")
_lock = threading.Lock()


@dataclass(frozen=True, slots=True)
class Offer:
    """Answers Triton's wish for a C module from a folder, else as before."""

    folder: Path
    before: Build | None

    def __call__(self, name: str, source: str, scratch: str, *more: Any) -> str:
        """The path of the module."""
        found = _place(self.folder, Path(source)) / f"{name}.so"
        if found.exists():
            return str(found)
        return self.before(name, source, scratch, *more) if self.before is not None else _really_build(name, source, scratch, *more)


def offer(folder: Path) -> None:
    """Give Triton the modules of a folder whenever it would compile them."""
    if not folder.is_dir():
        return
    known = triton.knobs.build.impl
    while isinstance(known, Offer):
        if known.folder == folder:
            return
        known = known.before
    triton.knobs.build.impl = Offer(folder, triton.knobs.build.impl)


def make(kernels: Sequence[Any], folder: Path) -> list[str]:
    """Build what Triton would compile to launch some kernels, into a folder. Nothing is loaded, and no device is needed.

    Args:
        kernels: compiled ones, for CUDA.
        folder: written.

    Returns:
        What could not be built, and why.
    """
    from triton.backends.nvidia import driver

    problems: dict[str, None] = {}
    keep = _Keep(folder, _has_driver(driver))
    with (
        _lock,
        tempfile.TemporaryDirectory() as scratch,
        _aside(driver, Path(scratch), keep.has_driver),
        triton.knobs.cache.scope(),
        triton.knobs.build.scope(),
    ):
        triton.knobs.cache.dir = str(Path(scratch) / "cache")  # what Triton's own cache holds would not be built
        triton.knobs.build.impl = keep
        wanted: list[Callable[[], Any]] = [functools.partial(_utilities, driver)]
        if hasattr(driver, "make_launcher"):  # 3.6; later ones launch all kernels through the driver's module
            wanted += [functools.partial(driver.CudaLauncher, kernel.src, kernel.metadata) for kernel in kernels]
        for build in wanted:
            try:
                build()
            except Exception as error:  # no C compiler, or one that fails: the package is of use all the same
                problems[f"C modules of Triton: {type(error).__name__}: {error}; the first launch on a machine will compile them"] = None
    return list(problems)


def _utilities(driver: Any) -> None:
    aside: Any = type("Aside", (driver.CudaUtils,), {})
    aside.instance = object.__new__(aside)  # the class keeps one instance, and another one may be in use
    aside()


@dataclass(frozen=True, slots=True)
class _Keep:
    """Builds as Triton does, and keeps a copy."""

    folder: Path
    has_driver: bool

    def __call__(self, name: str, source: str, scratch: str, library_dirs: list[str], include_dirs: list[str], libraries: list[str]) -> str:
        place = _place(self.folder, Path(source)) / f"{name}.so"
        if place.exists():
            return str(place)
        folders = library_dirs if self.has_driver else [_driver_to_link(Path(source), Path(scratch)), *library_dirs]
        built = _really_build(name, source, scratch, folders, include_dirs, libraries)
        copy(Path(built), place)
        return built


def _driver_to_link(source: Path, scratch: Path) -> str:
    """A folder with a libcuda that has the functions a source calls, to link with where there is no NVIDIA driver; nothing ever loads it."""
    names = sorted({f"{name}{version}" for name in _DRIVER_FUNCTION.findall(source.read_text()) for version in ("", "_v2", "_v3")})
    folder = scratch / "driver"
    folder.mkdir()
    text = folder / "cuda.c"
    text.write_text("".join(f"void {name}(void) {{}}\n" for name in names))
    built = _really_build("cuda", str(text), str(folder), [], [], [], ["-Wl,-soname,libcuda.so.1"])
    os.replace(built, folder / "libcuda.so.1")
    return str(folder)


def _really_build(name: str, source: str, scratch: str, library_dirs: list[str], include_dirs: list[str], libraries: list[str], *flags: Any) -> str:
    with triton.knobs.build.scope():
        triton.knobs.build.impl = None
        built: str = triton_build._build(name, source, scratch, library_dirs, include_dirs, libraries, *(flags or ([],)))
        return built


def _has_driver(driver: Any) -> bool:
    driver.libcuda_dirs.cache_clear()
    try:
        return bool(driver.libcuda_dirs())
    except (AssertionError, OSError):
        return False


@contextlib.contextmanager
def _aside(driver: Any, scratch: Path, has_driver: bool) -> Iterator[None]:
    """Have Triton build modules without loading them, and forget it afterwards."""
    load, names = triton_build._load_module_from_path, dict(vars(driver))
    triton_build._load_module_from_path = lambda name, path: _Unloaded(name)
    try:
        with triton.knobs.nvidia.scope():
            if not has_driver:
                triton.knobs.nvidia.libcuda_path = str(scratch)
            for function in (driver.libcuda_dirs, driver.library_dirs):
                function.cache_clear()
            yield
    finally:
        triton_build._load_module_from_path = load
        for function in (driver.libcuda_dirs, driver.library_dirs):
            function.cache_clear()
        for name, value in names.items():
            if vars(driver)[name] is not value:
                setattr(driver, name, value)


class _Unloaded(ModuleType):
    """Stands for a module that was built; its functions are never called."""

    def __getattr__(self, name: str) -> Any:
        return object()


def _place(folder: Path, source: Path) -> Path:
    return folder / hashlib.sha256(source.read_bytes()).hexdigest()


def copy(path: Path, place: Path) -> None:
    """Copy a file, so that whoever sees it sees all of it."""
    place.parent.mkdir(parents=True, exist_ok=True)
    descriptor, temporary = tempfile.mkstemp(dir=place.parent, suffix=".tmp")
    os.close(descriptor)
    shutil.copyfile(path, temporary)
    os.chmod(temporary, 0o755)
    os.replace(temporary, place)
