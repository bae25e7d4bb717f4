"""What a compiled kernel needs, read from the texts that compilers and binary tools print, and which limit it breaks."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, Final

_SPILLS: Final = re.compile(r"(\d+) bytes spill stores, (\d+) bytes spill loads")
_USAGE: Final = re.compile(r"REG:(\d+) STACK:(\d+)")

# CUDA C++ Programming Guide, "Technical Specifications per Compute Capability": threads of a block, blocks along y and z, along
# x, 32-bit registers of a block. AMD's HIP has the same limit of threads.
MAX_THREADS: Final = 1024
MAX_GRID: Final = (2**31 - 1, 65535, 65535)
MAX_BLOCK_REGISTERS: Final = 65536
# Registers are handed to a warp in units of 256 (CUDA occupancy calculator, all of sm_80 to sm_120).
_REGISTER_UNIT: Final = 256
# PTX ISA, tcgen05.alloc: tensor memory has 512 columns.
MAX_TENSOR_MEMORY_COLUMNS: Final = 512
_VGPR_BYTES: Final = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelResources:
    """What one launch of one kernel needs; None where its binary or log does not say."""

    name: str
    shared_memory_bytes: int
    num_warps: int
    warp_size: int
    grid: tuple[int, ...]
    registers: int | None = None
    spill_bytes: int | None = None
    stack_bytes: int | None = None
    scratch_bytes: int = 0
    tensor_memory_columns: int = 0


def spill_bytes(ptxas_log: str) -> int | None:
    """Bytes of spill stores and loads over all functions in a log of `ptxas -v`; None where it names none."""
    found = _SPILLS.findall(ptxas_log)
    return sum(int(stores) + int(loads) for stores, loads in found) if found else None


def cubin_usage(listing: str) -> tuple[int, int] | None:
    """Registers and stack bytes of a thread, the most over the functions of `cuobjdump --dump-resource-usage`."""
    found = _USAGE.findall(listing)
    return (max(int(registers) for registers, _ in found), max(int(stack) for _, stack in found)) if found else None


def amdgcn_usage(assembly: str) -> tuple[int | None, int | None, int | None]:
    """Registers, stack bytes and spilled bytes of a thread, from the metadata at the end of AMD assembly.

    `.vgpr_count` counts accumulation registers too where the file is unified (gfx90a and later). Spills are counted in
    registers there; ptxas counts the bytes of the instructions instead, so the two do not compare.
    """

    def number(name: str) -> int | None:
        found = re.findall(rf"^\s*(?:- )?\.{name}:\s+(\d+)", assembly, re.MULTILINE)
        return max(map(int, found)) if found else None

    spilled = number("vgpr_spill_count")
    return number("vgpr_count"), number("private_segment_fixed_size"), None if spilled is None else spilled * _VGPR_BYTES


def over_limits(kernel: KernelResources, target: Any) -> Iterable[str]:
    """What a launch of the kernel would be refused for, with both figures.

    Args:
        kernel: the compiled kernel.
        target: the Target's attributes, as `Target.to_json` has them.
    """
    arch, name = target["arch"], kernel.name
    if kernel.shared_memory_bytes > target["shared_memory_bytes"]:
        yield (
            f"kernel {name} needs {kernel.shared_memory_bytes} bytes of shared memory a block, {arch} has {target['shared_memory_bytes']}; "
            f"smaller tiles or fewer stages need less"
        )
    if kernel.tensor_memory_columns > MAX_TENSOR_MEMORY_COLUMNS:
        yield f"kernel {name} needs {kernel.tensor_memory_columns} columns of tensor memory, {arch} has {MAX_TENSOR_MEMORY_COLUMNS}; smaller tiles need less"
    threads = kernel.num_warps * kernel.warp_size
    if threads > MAX_THREADS:
        yield f"kernel {name} needs {threads} threads a block ({kernel.num_warps} warps of {kernel.warp_size}), {arch} allows {MAX_THREADS}"
    if arch.startswith("sm_") and kernel.registers is not None:
        needed = -(-kernel.registers * kernel.warp_size // _REGISTER_UNIT) * _REGISTER_UNIT * kernel.num_warps
        if needed > MAX_BLOCK_REGISTERS:
            yield f"kernel {name} needs {needed} registers a block ({kernel.registers} a thread), {arch} has {MAX_BLOCK_REGISTERS}"


def bad_grid(kernel: KernelResources) -> str:
    """Why a launch over the kernel's grid would be refused; empty where it would not."""
    for axis, extent, most in zip("xyz", kernel.grid, MAX_GRID, strict=False):
        if extent > most:
            return f"kernel {kernel.name} is launched over a grid of {list(kernel.grid)}: {extent} blocks along {axis}, at most {most} are allowed"
    return ""


def summary(kernels: Sequence[KernelResources], workspace_bytes: int) -> dict[str, int]:
    """The largest need over the kernels as `record.Resources` has it, unknown ones left out; scratch that the workspace asks for is added.

    Programs are those of the kernel with the most shared memory a block, then the most registers: the one that all other figures are
    mostly about. A kernel that only adds up another's parts may have far more.
    """

    def most(values: Iterable[int | None]) -> int | None:
        known = [value for value in values if value is not None]
        return max(known) if known else None

    figures = {
        "shared_memory_bytes": most(kernel.shared_memory_bytes for kernel in kernels),
        "registers": most(kernel.registers for kernel in kernels),
        "spill_bytes": most(kernel.spill_bytes for kernel in kernels),
        "stack_bytes": most(kernel.stack_bytes for kernel in kernels),
        "scratch_bytes": workspace_bytes + (most(kernel.scratch_bytes for kernel in kernels) or 0),
        "num_warps": most(kernel.num_warps for kernel in kernels),
        "programs": programs(max(kernels, key=_block_needs).grid) if kernels else None,
    }
    return {name: value for name, value in figures.items() if value is not None}


def _block_needs(kernel: KernelResources) -> tuple[int, int, int]:
    return kernel.shared_memory_bytes, (kernel.registers or 0) * kernel.num_warps, programs(kernel.grid)


def programs(grid: Sequence[int]) -> int:
    """Number of program instances of a grid."""
    return prod(grid)
