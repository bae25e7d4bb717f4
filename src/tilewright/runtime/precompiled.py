"""Kernels compiled ahead, in a folder that may be moved: written by `precompile`, read at the first call that wants one.

    manifest.json               format, Triton's version and build, Python's ABI
    kernels/<key>/kernel.json   Triton's metadata of a kernel, without paths
    kernels/<key>/kernel.cubin  or .hsaco
    modules/<key>/<name>.so     C modules that Triton compiles for itself: its driver's, and in 3.6 a launcher for each signature

A kernel's key covers the hash of its source with signature and constants, the options, the target, the build of Triton and the variables that
change code. Triton's own cache cannot be shipped: its index holds absolute paths, and its key takes 0.3 s to make, since it reads all of Triton.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.metadata
import json
import os
import shutil
import sysconfig
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import triton
from triton.compiler import CompiledKernel
from triton.runtime.cache import triton_key

FORMAT: Final = 1

# Line information changes no instruction; builders of reproducible kernels turn it off.
_HARMLESS: Final = frozenset({"TRITON_DISABLE_LINE_INFO"})


def build_id() -> str:
    """What tells this build of Triton from others of its version.

    The hashes of its files, as its wheel lists them; where there is no such list, Triton's own key, which reads every file.
    """
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
        record = importlib.metadata.distribution("triton").read_text("RECORD") or ""
        # pip adds lines of its own to the list: scripts outside of the package, byte code, and files that say who installed it.
        listed = sorted(line for line in record.splitlines() if line.startswith("triton/") and ",sha256=" in line and not line.startswith("triton/__pycache__"))
        if listed:
            return hashlib.sha256("\n".join(listed).encode()).hexdigest()
    return hashlib.sha256(triton_key().encode()).hexdigest()


def toolchain() -> dict[str, Any]:
    """What has to be the same for a folder to be of use."""
    return {"format": FORMAT, "triton": triton.__version__, "build": build_id(), "python": str(sysconfig.get_config_var("EXT_SUFFIX"))}


class Store:
    """A folder of kernels, as `kernels.Recorder` asks it: before Triton's compiler.

    Args:
        folder: need not exist.
        writing: whether kernels that are not there yet are compiled into it.

    Attributes:
        refused: why nothing of the folder is used, or empty.
        loaded: kernels taken from the folder so far.
    """

    def __init__(self, folder: Path, *, writing: bool = False) -> None:
        self.folder = folder
        self.loaded = 0
        self._writing = writing
        self.refused = "" if writing else self._mismatch()

    def _mismatch(self) -> str:
        try:
            manifest = json.loads((self.folder / "manifest.json").read_text())
        except (OSError, ValueError) as error:
            return f"no precompiled kernels: {error}"
        if not isinstance(manifest, dict) or manifest.get("format") != FORMAT or manifest.get("triton") != triton.__version__:
            return f"precompiled with Triton {manifest.get('triton')!r}, and this is {triton.__version__}" if isinstance(manifest, dict) else "no manifest"
        here = toolchain()  # its hash costs a millisecond, so the version is compared first
        differing = [name for name, value in here.items() if name != "python" and manifest.get(name) != value]
        if differing:
            return f"precompiled with another build of Triton {triton.__version__}"
        if manifest.get("python") == here["python"]:
            self._seed()
        return ""

    def _seed(self) -> None:
        """Give Triton's cache the C modules that it would compile; it tells by their names, hashes of their source, whether it wants them."""
        cache = Path(triton.knobs.cache.dir)
        for path in sorted((self.folder / "modules").glob("*/*.so")):
            place = cache / path.parent.name / path.name
            if not place.exists():
                # A cache that cannot be written is no reason to fail: Triton says so itself when it needs one.
                with contextlib.suppress(OSError):
                    _copy(path, place)

    def __call__(self, compile_now: Callable[[], Any], source: Any, target: Any, options: Any) -> Any:
        """The kernel of a source: from the folder, else compiled."""
        if self.refused:
            return compile_now()
        place = self.folder / "kernels" / _key(source, target, options)
        if (place / "kernel.json").exists():
            try:
                kernel = _load(place, source)
            except (OSError, ValueError, KeyError, TypeError, StopIteration) as error:
                self.refused = f"{place} is damaged ({error})"
                return compile_now()
            self.loaded += 1
            return kernel
        kernel = compile_now()
        if self._writing:
            _save(place, kernel)
        return kernel

    def finish(self) -> None:
        """Write the manifest, and the C modules that Triton compiled for the kernels where they were loaded here."""
        for path in _loaded_modules():
            _copy(path, self.folder / "modules" / path.parent.name / path.name)
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / "manifest.json").write_text(json.dumps(toolchain(), indent=1, sort_keys=True) + "\n")


def device_is_here() -> bool:
    """Whether Triton drives a device: nothing stands in for one."""
    return type(triton.runtime.driver.active).__module__.startswith("triton.")


def _loaded_modules() -> list[Path]:
    """C modules of Triton's cache that this process has loaded: those of its own kernels, whatever else the cache holds."""
    cache, suffix = os.path.realpath(triton.knobs.cache.dir) + os.sep, str(sysconfig.get_config_var("EXT_SUFFIX"))
    try:
        mapped = {line.split(maxsplit=5)[5].strip() for line in Path("/proc/self/maps").read_text().splitlines() if line.count(" ") >= 5 and "/" in line}
    except OSError:
        return []
    return sorted(Path(path) for path in mapped if path.startswith(cache) and path.endswith(suffix))


def _key(source: Any, target: Any, options: Mapping[str, Any]) -> str:
    from triton._C.libtriton import get_cache_invalidating_env_vars

    variables = {name: value for name, value in get_cache_invalidating_env_vars().items() if name not in _HARMLESS}
    parts = [FORMAT, source.hash(), [target.backend, target.arch, target.warp_size], _without_paths(dict(options)), variables]
    return hashlib.sha256(json.dumps(parts, sort_keys=True, default=repr).encode()).hexdigest()


def _without_paths(value: Any) -> Any:
    """A JSON form in which files stand under their names alone: Triton names those of its own package by absolute paths."""
    if isinstance(value, str):
        return os.path.basename(value) if os.path.isabs(value) else value
    if isinstance(value, Mapping):
        return {str(name): _without_paths(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_without_paths(item) for item in value]
    if isinstance(value, (set, frozenset)):
        return sorted(map(repr, value))
    return value


def _load(place: Path, source: Any) -> Any:
    binary = next(path for path in sorted(place.iterdir()) if path.suffix in (".cubin", ".hsaco"))
    group = {"kernel.json": str(place / "kernel.json"), f"kernel{binary.suffix}": str(binary)}
    return CompiledKernel(source, group, json.loads((place / "kernel.json").read_text())["hash"])


def _save(place: Path, kernel: Any) -> None:
    """Write one kernel; whoever sees its `kernel.json` sees all of it."""
    extension = next(name for name in ("cubin", "hsaco") if name in kernel.asm)
    metadata = {name: vars(value) if hasattr(value, "backend") else value for name, value in kernel.metadata._asdict().items()}
    place.mkdir(parents=True, exist_ok=True)
    (place / f"kernel.{extension}").write_bytes(kernel.asm[extension])
    (place / "kernel.json").write_text(json.dumps(_without_paths(metadata), indent=1, sort_keys=True, default=repr) + "\n")


def _copy(path: Path, place: Path) -> None:
    place.parent.mkdir(parents=True, exist_ok=True)
    descriptor, temporary = tempfile.mkstemp(dir=place.parent, suffix=".tmp")
    os.close(descriptor)
    shutil.copyfile(path, temporary)
    os.chmod(temporary, 0o755)
    os.replace(temporary, place)


def precompile(dispatcher: Any, folder: Path, target: int = 0) -> list[str]:
    """Compile into a folder all that the calls of a dispatcher's table can ask for on one of its targets.

    Args:
        dispatcher: a `Dispatcher`.
        folder: written; kernels that are there already are kept.
        target: index into the dispatcher's targets. Without that device, the active driver of Triton has to stand in for it.

    Returns:
        What could not be compiled, and why.
    """
    store = Store(Path(folder), writing=True)
    problems: list[str] = dispatcher.compile_into(store, target)
    store.finish()
    return problems
