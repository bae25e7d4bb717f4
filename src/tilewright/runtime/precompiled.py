"""Kernels compiled ahead, in a folder that may be moved: written by `precompile`, read at the first call that wants one.

    manifest.json               format, Triton's version and build, Python's ABI
    kernels/<key>/kernel.json   Triton's metadata of a kernel, without paths
    kernels/<key>/kernel.cubin  or .hsaco
    kernels/<key>/key.json      what the key is made of, to say why another does not match
    modules/<hash>/<name>.so    C modules that Triton compiles for itself, by the text of their source (cmodules.py)

A kernel's key covers the hash of its source with signature and constants, the options, the target, the build of Triton and the variables that
change code. Triton's own cache cannot be shipped: its index holds absolute paths, and its key takes 0.3 s to make, since it reads all of Triton.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.metadata
import json
import os
import sysconfig
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import triton
from triton.compiler import CompiledKernel
from triton.runtime.cache import triton_key

from . import cmodules

FORMAT: Final = 2  # 1 had the C modules by Triton's own keys

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
        writing: as given.
        refused: why nothing of the folder is used, or empty.
        loaded: kernels taken from the folder so far.
        missing: kernels that were not in it, with what tells the nearest of the same name from them.
    """

    def __init__(self, folder: Path, *, writing: bool = False) -> None:
        self.folder = folder
        self.loaded = 0
        self.writing = writing
        self.missing: dict[str, str] = {}
        self._kernels: list[Any] = []
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
            cmodules.offer(self.folder / "modules")
        return ""

    def __call__(self, compile_now: Callable[[], Any], source: Any, target: Any, options: Any) -> Any:
        """The kernel of a source: from the folder, else compiled."""
        if self.refused:
            return compile_now()
        parts = _parts(source, target, options)
        place = self.folder / "kernels" / _key(parts)
        if (place / "kernel.json").exists():
            try:
                kernel = _load(place, source)
            except (OSError, ValueError, KeyError, TypeError, StopIteration) as error:
                self.refused = f"{place} is damaged ({error})"
                return compile_now()
            self.loaded += 1
        else:
            if not self.writing:
                self.missing[parts["name"]] = self._why(parts)
            kernel = compile_now()
            if self.writing:
                _save(place, kernel, parts)
        if self.writing:
            self._kernels.append(kernel)
        return kernel

    def _why(self, parts: Mapping[str, Any]) -> str:
        """What tells the nearest kernel of the same name from one that is not there."""
        here, nearest = _flat(parts), None
        for path in sorted(self.folder.glob("kernels/*/key.json")):
            with contextlib.suppress(OSError, ValueError, AttributeError):
                there = _flat(json.loads(path.read_text()))
                if there.get("name") == here["name"]:
                    differing = {name: there.get(name) for name in sorted({*here, *there}) if here.get(name) != there.get(name)}
                    nearest = differing if nearest is None or len(differing) < len(nearest) else nearest
        if nearest is None:
            return "none of its name is there"
        return "; ".join(f"{name} is {here.get(name)!r}, and {value!r} there" for name, value in nearest.items())

    def finish(self) -> list[str]:
        """Write the manifest, and the C modules that launching the kernels takes.

        Returns:
            What could not be built, and why.
        """
        cuda = [kernel for kernel in self._kernels if kernel.metadata.target.backend == "cuda"]
        problems = cmodules.make(cuda, self.folder / "modules") if cuda else []
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / "manifest.json").write_text(json.dumps(toolchain(), indent=1, sort_keys=True) + "\n")
        return problems


def _parts(source: Any, target: Any, options: Mapping[str, Any]) -> dict[str, Any]:
    """All that can change a kernel, bar the build of Triton. `code` and `signature` are in `source` too; they are there to be read."""
    from triton._C.libtriton import get_cache_invalidating_env_vars

    signature = {name: [str(kind), ""] for name, kind in source.signature.items()}
    for (place, *_), value in [*source.attrs.items(), *source.constants.items()]:
        list(signature.values())[place][1] += str(value)
    return {
        "format": FORMAT,
        "name": source.name,
        "source": source.hash(),
        "code": source.fn.cache_key,
        "signature": {name: f"{kind} {about}".strip() for name, (kind, about) in signature.items()},
        "target": {"backend": target.backend, "arch": target.arch, "warp_size": target.warp_size},
        "options": _without_paths(dict(options)),
        "variables": {name: value for name, value in get_cache_invalidating_env_vars().items() if name not in _HARMLESS},
    }


def _key(parts: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(parts, sort_keys=True, default=repr).encode()).hexdigest()


def _flat(value: Any, name: str = "") -> dict[str, str]:
    if isinstance(value, Mapping):
        return {key: text for part, item in value.items() for key, text in _flat(item, f"{name}.{part}" if name else str(part)).items()}
    return {name: value if isinstance(value, str) else json.dumps(value, default=repr)}


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


def _save(place: Path, kernel: Any, parts: Mapping[str, Any]) -> None:
    """Write one kernel; whoever sees its `kernel.json` sees all of it."""
    extension = next(name for name in ("cubin", "hsaco") if name in kernel.asm)
    metadata = {name: vars(value) if hasattr(value, "backend") else value for name, value in kernel.metadata._asdict().items()}
    place.mkdir(parents=True, exist_ok=True)
    (place / f"kernel.{extension}").write_bytes(kernel.asm[extension])
    (place / "key.json").write_text(json.dumps(parts, indent=1, sort_keys=True, default=repr) + "\n")
    (place / "kernel.json").write_text(json.dumps(_without_paths(metadata), indent=1, sort_keys=True, default=repr) + "\n")


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
    return [*problems, *store.finish()]
