"""Triton without a device: a driver that answers with a target, and launches that only compile.

All that leans on Triton's inside is here; it holds for Triton 3.6 to 3.9.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import io
import json
import os
import re
import subprocess
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import torch
import triton
import triton.compiler
from triton import knobs
from triton._C.libtriton import get_cache_invalidating_env_vars
from triton.backends.compiler import GPUTarget
from triton.backends.driver import DriverBase
from triton.runtime.cache import get_cache_manager, triton_key
from triton.runtime.jit import JITFunction

from tilewright.children.resources import KernelResources, amdgcn_usage, cubin_usage, loaded_bytes, programs, spill_bytes

_SIDE_FILE: Final = "tilewright.json"  # in Triton's cache, beside the kernel's binary
_LOG_CHARS: Final = 64 * 1024  # a log of `ptxas -v` has some 100 characters a function; a failed ptxas prints the whole PTX
# A product of matrices in Triton's GPU dialects, whichever unit computes it: tt.dot, tt.dot_scaled, ttng.warp_group_dot, ttng.tc_gen5_mma.
_PRODUCT: Final = re.compile(r"\btt(?:ng)?\.(?:warp_group_)?(?:dot|tc_gen5_mma)")
# Variables with these prefixes may steer Triton, LLVM or ptxas, bar those that say where to put or what to print.
_PREFIXES: Final = ("TRITON_", "LLVM_", "MLIR_", "AMDGCN_", "NVPTX_", "PTXAS_", "DISABLE_", "ENABLE_", "USE_IR_LOC", "ALLOW_LHS_TMEM")
_HARMLESS: Final = frozenset(
    {"TRITON_CACHE_DIR", "TRITON_HOME", "TRITON_DUMP_DIR", "TRITON_OVERRIDE_DIR", "TRITON_DUMP_PTXAS_LOG", "TRITON_PRINT_AUTOTUNING", "TRITON_ALWAYS_COMPILE"}
)


class CompileFailed(Exception):
    """A launch did not compile; its cause is what Triton raised."""


class _StandIn(DriverBase):  # type: ignore[misc]  # Triton has no types
    """A driver for a device that is not there."""

    def __init__(self, target: Mapping[str, Any]) -> None:
        arch = target["arch"]
        self._target = GPUTarget(target["backend"], arch if target["backend"] == "hip" else int(arch.removeprefix("sm_")), target["warp_size"])

    @classmethod
    def is_active(cls) -> bool:
        return True

    def map_python_to_cpp_type(self, ty: str) -> str:
        raise NotImplementedError("nothing is launched here")

    def get_current_target(self) -> Any:
        return self._target

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, device: Any) -> int:
        return 0

    def get_active_torch_device(self) -> Any:
        return torch.device("meta")

    def get_benchmarker(self) -> Any:
        raise NotImplementedError("nothing is timed here")


def stand_in(target: Mapping[str, Any]) -> None:
    """Make Triton compile for a device that is not there (backend `cuda` or `hip`, arch, warp_size) from now on."""
    triton.runtime.driver.set_active(_StandIn(target))


class _Tail(io.TextIOBase):
    """A text stream that keeps its end."""

    def __init__(self) -> None:
        self.text = ""

    def write(self, text: str, /) -> int:
        self.text = (self.text + text)[-_LOG_CHARS:]
        return len(text)


@dataclass(frozen=True, slots=True, kw_only=True)
class Compiled:
    """A kernel that `launch` would have launched, its grid, bytes that ptxas spilled (None for AMD), and the storages of tensors it is given.

    Launched several times, it has the largest grid, the programs of all its launches, and all that it is ever given.
    """

    kernel: Any
    grid: tuple[int, ...]
    all_programs: int
    spill_bytes: int | None
    storages: frozenset[int]

    @property
    def binary(self) -> bytes:
        """The cubin or hsaco."""
        return bytes(self.kernel.kernel)

    @property
    def files(self) -> list[str]:
        """Paths of what Triton's cache holds of it."""
        return sorted(str(path) for path in self.kernel.metadata_group.values())

    def resources(self, inputs: Sequence[Any] = (), outputs: Sequence[Any] = ()) -> KernelResources:
        """What a launch needs, and how much of the call's inputs and outputs it is given."""
        metadata = self.kernel.metadata
        registers = stack = None
        spilled = self.spill_bytes
        if "amdgcn" in self.kernel.asm:
            registers, stack, spilled = amdgcn_usage(self.kernel.asm["amdgcn"])
        else:
            registers, stack = self._cubin_usage()
        # Scratch is allocated for every program of a launch, as the launcher of Triton's NVIDIA driver does; AMD's 3.6 has no such field.
        sizes = [getattr(metadata, f"{kind}_scratch_size", 0) or 0 for kind in ("global", "profile")]
        given, loaded = self._given_bytes(inputs), loaded_bytes(self.kernel.asm.get("ttir", "tt.call"))
        return KernelResources(
            name=metadata.name,
            shared_memory_bytes=metadata.shared,
            num_warps=metadata.num_warps,
            warp_size=metadata.warp_size,
            grid=self.grid,
            registers=registers,
            stack_bytes=stack,
            spill_bytes=spilled,
            scratch_bytes=sum(sizes) * programs(self.grid) * (getattr(metadata, "num_ctas", 1) or 1),
            tensor_memory_columns=getattr(metadata, "tmem_size", 0) or 0,
            product=_PRODUCT.search(self.kernel.asm.get("ttgir", "")) is not None,
            input_bytes=given if loaded is None else min(given, loaded * self.all_programs),
            output_bytes=self._given_bytes(outputs),
        )

    def _given_bytes(self, arguments: Sequence[Any]) -> int:
        """Bytes of those of the call's tensors that the kernel is given, whole or in part, as such or under another view."""
        given = {storage: tensor for tensor in _tensors(arguments) if (storage := _storage(tensor)) in self.storages}
        return sum(tensor.numel() * tensor.element_size() for tensor in given.values())

    def _cubin_usage(self) -> tuple[int | None, int | None]:
        path = next((path for path in self.files if path.endswith(".cubin")), None)
        if path is None:
            return None, None
        done = subprocess.run([knobs.nvidia.cuobjdump.path, "--dump-resource-usage", path], capture_output=True, text=True, check=False)
        return cubin_usage(done.stdout) or (None, None)


class Collector:
    """Stands between `launch` and Triton: every launch compiles, and nothing runs.

    One in a process: it replaces functions of Triton for good.
    """

    def __init__(self) -> None:
        self._printed = _Tail()
        self._spills: dict[str, int | None] = {}
        self._compiled: dict[str, Compiled] = {}
        self._really_compile = triton.compiler.compile
        self._really_run = JITFunction.run
        triton.compiler.compile = self._compile  # a JITFunction looks it up when it first meets a device
        collector = self

        def run(function: Any, *args: Any, grid: Any, warmup: bool = True, **kwargs: Any) -> Any:
            return collector._run(function, args, grid, kwargs)

        JITFunction.run = run

    @contextlib.contextmanager
    def collecting(self, target: Mapping[str, Any]) -> Iterator[dict[str, Compiled]]:
        """Compile for `target` (backend `cuda` or `hip`, arch, warp_size) what is launched within, into the mapping given."""
        stand_in(target)
        self._compiled = {}
        with contextlib.redirect_stdout(self._printed):
            yield self._compiled

    def _run(self, function: Any, args: tuple[Any, ...], grid: Any, kwargs: dict[str, Any]) -> Any:
        try:
            kernel = self._really_run(function, *args, grid=grid, warmup=True, **kwargs)
        except Exception as error:
            raise CompileFailed(str(error)) from error
        blocks = grid({**dict(zip(function.arg_names, args, strict=False)), **kwargs}) if callable(grid) else grid
        launched, given = tuple(int(extent) for extent in blocks), frozenset(map(_storage, _tensors((*args, *kwargs.values()))))
        known, ran = self._compiled.get(kernel.hash), programs(launched)
        if known is not None:
            launched, given, ran = max(known.grid, launched, key=programs), known.storages | given, known.all_programs + ran
        made = Compiled(kernel=kernel, grid=launched, all_programs=ran, spill_bytes=self._spills.get(kernel.hash), storages=given)
        self._compiled[kernel.hash] = made
        return kernel

    def _compile(self, source: Any, target: Any = None, options: Any = None, **more: Any) -> Any:
        """Triton's compile, keeping what ptxas logged: the binary does not say how many bytes it spills."""
        self._printed.text = ""
        try:
            kernel = self._really_compile(source, target=target, options=options, **more)
        except (KeyError, FileNotFoundError, ValueError):
            # Triton 3.6 stumbles over an entry of its cache that lost a file. What is the kernel's own fault fails again.
            kernel = self._compile_afresh(source, target, options, more)
        if "cubin" in kernel.asm:
            spilled = spill_bytes(self._printed.text)
            cache = get_cache_manager(kernel.hash)
            if spilled is None:
                spilled = _read_spills(cache.get_file(_SIDE_FILE))
            if spilled is None:  # compiled before by another process, one that kept no log
                kernel = self._compile_afresh(source, target, options, more)
                spilled = spill_bytes(self._printed.text)
            cache.put(json.dumps({"spill_bytes": spilled}), _SIDE_FILE, binary=False)
            self._spills[kernel.hash] = spilled
        return kernel

    def _compile_afresh(self, source: Any, target: Any, options: Any, more: Mapping[str, Any]) -> Any:
        self._printed.text = ""
        with _setting(knobs.compilation, "always_compile", True):
            return self._really_compile(source, target=target, options=options, **more)


def _tensors(values: Iterable[Any]) -> Iterator[torch.Tensor]:
    """The tensors among a launch's arguments, those in tuples and behind descriptors too."""
    for value in values:
        if isinstance(value, torch.Tensor):
            yield value
        elif isinstance(value, tuple | list):
            yield from _tensors(value)
        elif isinstance(base := getattr(value, "base", None), torch.Tensor):  # a TensorDescriptor, also Gluon's
            yield base


def _storage(tensor: torch.Tensor) -> int:
    """What a tensor has in common with its views. Without memory, its address tells nothing."""
    return int(tensor.untyped_storage()._cdata)


def import_compiler() -> None:
    """Import what Triton imports at the first launch and the first compilation of a process."""
    for name in ("triton.compiler.code_generator", "triton.experimental.gluon"):
        with contextlib.suppress(ImportError):  # another version's
            importlib.import_module(name)


def toolchain() -> dict[str, Any]:
    """Versions, and everything of this process that can change a binary."""
    legacy, blackwell = (getattr(knobs.nvidia, name, None) for name in ("ptxas", "ptxas_blackwell"))
    versions = list(dict.fromkeys(tool.version for tool in (legacy, blackwell) if tool is not None))
    chosen = {name: value for name, value in os.environ.items() if name.startswith(_PREFIXES) and name not in _HARMLESS}
    return {
        "triton": triton.__version__,
        "ptxas": "/".join(versions),  # the second one compiles for Blackwell, and from Triton 3.9 on for sm_90 too
        "torch": torch.__version__,
        "triton_key": hashlib.sha256(triton_key().encode()).hexdigest(),
        "environment": {**get_cache_invalidating_env_vars(), **chosen},
    }


def _read_spills(path: str | None) -> int | None:
    if path is None:
        return None
    try:
        value = json.loads(Path(path).read_text())["spill_bytes"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return value if isinstance(value, int) else None


@contextlib.contextmanager
def _setting(group: Any, name: str, value: Any) -> Iterator[None]:
    before = getattr(group, name)
    setattr(group, name, value)
    try:
        yield
    finally:
        setattr(group, name, before)


def argument(spec: Mapping[str, Any]) -> Any:
    """A launch argument from its JSON form: a tensor without memory, or a number.

    A meta tensor's address is 0, so Triton takes it for divisible by 16: right for the runner's buffers, which start at
    multiples of 256 bytes, as torch's allocator gives them.
    """
    if "shape" in spec:
        dtype = getattr(torch, spec["dtype"])
        if spec["strides"] is None:
            return torch.empty(spec["shape"], dtype=dtype, device="meta")
        return torch.empty_strided(spec["shape"], spec["strides"], dtype=dtype, device="meta")
    return float.fromhex(spec["float"]) if "float" in spec else spec["int"]


def scratch(wanted: Sequence[Any] | None) -> list[Any]:
    """Tensors without memory for what `workspace` asks for: pairs of shape and dtype."""
    return [argument({"shape": list(shape), "dtype": str(dtype).removeprefix("torch."), "strides": None}) for shape, dtype in wanted or ()]
