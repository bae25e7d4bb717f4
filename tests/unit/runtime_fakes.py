"""A device that is not there, for tests of the runtime: Triton compiles for it, and its launches work on the memory of the CPU.

A fake launcher stands where Triton's C launcher would. It takes addresses, and does with them what the kernel of that name does.
"""

from __future__ import annotations

import contextlib
import ctypes
import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.backends.driver import DriverBase

from tilewright.children.modules import load_file
from tilewright.runtime.device import Runtime

ADD = """
import triton
import triton.language as tl

@triton.jit
def add_kernel(a, b, c, n, scale, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    total = tl.load(a + offsets, mask=mask) + tl.load(b + offsets, mask=mask) * scale
    tl.store(c + offsets, total, mask=mask)

def launch(a, b, scale, c):
    n = c.numel()
    add_kernel[(triton.cdiv(n, 128),)](a, b, c, n, scale, BLOCK=128, num_warps=1, enable_fp_fusion=True)
"""

# The sum in two kernels: b * scale to scratch, then a + scratch.
TWO = """
import triton
import triton.language as tl

@triton.jit
def scale_kernel(b, partial, n, scale, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(partial + offsets, tl.load(b + offsets, mask=offsets < n) * scale, mask=offsets < n)

@triton.jit
def plus_kernel(a, partial, c, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    tl.store(c + offsets, tl.load(a + offsets, mask=mask) + tl.load(partial + offsets, mask=mask), mask=mask)

def workspace(a, b, scale, c):
    return [((7,), "int8"), (a.shape, "float32")]

def launch(a, b, scale, c, unused, partial):
    n = c.numel()
    grid = lambda meta: (triton.cdiv(n, meta["BLOCK"]),)
    scale_kernel[grid](b, partial, n, scale, BLOCK=128, num_warps=1, enable_fp_fusion=True)
    plus_kernel[grid](a, partial, c, n, BLOCK=128, num_warps=1, enable_fp_fusion=True)
"""

VALUES = {"add_kernel": 5, "scale_kernel": 4, "plus_kernel": 4}


def floats(address: int, count: int) -> torch.Tensor:
    """The float32 numbers at an address."""
    return torch.frombuffer((ctypes.c_float * count).from_address(address), dtype=torch.float32)


def execute(name: str, values: tuple[Any, ...]) -> None:
    """Do what a kernel does."""
    if name == "add_kernel":
        a, b, c, n, scale = values[:5]
        floats(c, n).copy_(floats(a, n) + floats(b, n) * scale)
    elif name == "scale_kernel":
        b, partial, n, scale = values[:4]
        floats(partial, n).copy_(floats(b, n) * scale)
    elif name == "plus_kernel":
        a, partial, c, n = values[:4]
        floats(c, n).copy_(floats(a, n) + floats(partial, n))


class CLauncher:
    """In place of the C function: takes addresses or tensors."""

    def __init__(self, name: str, device: FakeDevice) -> None:
        self.name, self.device = name, device

    def __call__(self, *arguments: Any) -> None:
        values = tuple(value.data_ptr() if hasattr(value, "data_ptr") else value for value in arguments[-1])
        self.device.launches.append((self.name, arguments[:3], arguments[3], values))
        execute(self.name, values)


class Launcher:
    """In place of Triton's CudaLauncher, with the same attributes."""

    device: FakeDevice

    def __init__(self, source: Any, metadata: Any) -> None:
        self.launch = CLauncher(metadata.name, self.device)
        self.global_scratch_size = self.device.scratch_size
        self.profile_scratch_size = 0

    def __call__(self, x: int, y: int, z: int, stream: int, function: int, packed: Any, metadata: Any, enter: Any, leave: Any, *arguments: Any) -> None:
        if enter is not None and enter.calls:
            enter(metadata)
        self.launch(x, y, z, stream, function, False, False, packed, metadata, None, None, None, None, b"", b"", arguments)


@dataclass
class FakeDevice:
    """What was launched, and knobs of the device.

    Attributes:
        launches: kernel's name, grid, stream and values of each.
        stream, current, count: what torch would say.
        capturing: whether a graph is being captured.
        scratch_size: global scratch that Triton says a kernel needs.
    """

    launches: list[tuple[str, tuple[int, ...], int, tuple[Any, ...]]] = field(default_factory=list)
    stream: int = 7
    current: int = -1
    count: int = 1
    capturing: bool = False
    scratch_size: int = 0
    identity: dict[str, Any] = field(default_factory=lambda: {"backend": "cuda", "arch": "sm_90", "name": "fake", "sm_count": 4})

    def runtime(self) -> Runtime:
        """The runtime that goes with it: tensors of the CPU are its own, under the number -1."""
        return Runtime(
            stream=lambda device: self.stream, current=lambda: self.current, count=lambda: self.count, capturing=lambda: self.capturing,
            using=lambda device: contextlib.nullcontext(), bytes=lambda size, device: torch.empty(size, dtype=torch.uint8),
            identity=lambda device: self.identity, standin=True,
        )  # fmt: skip


class _Utils:
    def get_device_properties(self, device: int) -> dict[str, int]:
        return {"max_shared_mem": 232448}

    def load_binary(self, *_: Any) -> tuple[int, int, int, int, int]:
        return 1, 2, 32, 0, 1024

    def unload_module(self, module: int) -> None:
        pass

    def fill_tma_descriptor(self, *arguments: Any) -> Any:
        return ("map", *arguments)

    fill_tma_descriptor_tiled = fill_tma_descriptor


class Driver(DriverBase):
    """Triton's view of the device."""

    def __init__(self, launcher: type) -> None:
        self.launcher_cls = launcher
        self.utils = _Utils()

    @classmethod
    def is_active(cls) -> bool:
        return True

    def map_python_to_cpp_type(self, ty: str) -> str:
        raise NotImplementedError

    def get_current_target(self) -> GPUTarget:
        return GPUTarget("cuda", 90, 32)

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, device: Any) -> int:
        return 7

    def get_active_torch_device(self) -> torch.device:
        return torch.device("cpu")

    def get_benchmarker(self) -> Callable[..., Any]:
        raise NotImplementedError


@contextlib.contextmanager
def fake_device() -> Iterator[FakeDevice]:
    """Make the fake device Triton's, for a while."""
    device = FakeDevice()
    before = triton.runtime.driver._active
    triton.runtime.driver.set_active(Driver(type("BoundLauncher", (Launcher,), {"device": device})))
    try:
        yield device
    finally:
        triton.runtime.driver._active = before


_numbers = itertools.count()


def module(folder: Any, text: str) -> ModuleType:
    """A schedule's module, imported afresh: its kernels know nothing of earlier devices."""
    number = next(_numbers)
    path = folder / f"schedule_{number}.py"
    path.write_text(text)
    return load_file(path, f"runtime_schedule_{number}")
