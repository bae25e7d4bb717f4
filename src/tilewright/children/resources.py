"""What a compiled kernel needs, read from the texts that compilers and binary tools print, which limit it breaks, and which kernel is a launch's main one."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, Final

_SPILLS: Final = re.compile(r"(\d+) bytes spill stores, (\d+) bytes spill loads")
_USAGE: Final = re.compile(r"REG:(\d+) STACK:(\d+)")
# Of Triton's own dialect: what reads memory; what it gives, a tensor of some extents or one element, by its last type; and what may repeat
# loads, or hide them: loops, calls, and code of another language that is handed addresses.
_READS: Final = re.compile(r"\btt\.(?:load|descriptor_load|descriptor_gather|atomic_rmw|atomic_cas)\b")
_LOAD: Final = re.compile(_READS.pattern + r".*[:>] ?(?:tensor<((?:\d+x)*))?(!tt\.ptr<)?([a-z]+)(\d+)\w*(?:, \d+)?>* *$")
_HIDES: Final = re.compile(r"\b(?:scf\.(?:for|while)|cf\.(?:cond_)?br|tt\.call)\b|\btt\.(?:elementwise_inline_asm|extern_elementwise)\b.*(?:!tt\.ptr<|i64\b)")

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
    """What one launch of one kernel needs; None where its binary or log does not say.

    Attributes:
        product: whether it multiplies matrices on the device's units for that.
        input_bytes, output_bytes: of the call's inputs and outputs that the kernel is given, each counted once; of inputs, no more than its programs
            can ask for.
    """

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
    product: bool = False
    input_bytes: int = 0
    output_bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Excess:
    """A limit that a kernel breaks.

    Attributes:
        limit: which, with both figures, as `shared memory of a block: 245,760 of 232,448 bytes`.
        reason: the same as a sentence, with the kernel's name and what needs less.
    """

    limit: str
    reason: str


def spill_bytes(ptxas_log: str) -> int | None:
    """Bytes of spill stores and loads over all functions in a log of `ptxas -v`; None where it names none."""
    found = _SPILLS.findall(ptxas_log)
    return sum(int(stores) + int(loads) for stores, loads in found) if found else None


def loaded_bytes(ttir: str) -> int | None:
    """Bytes that one program's loads and atomics ask for, all elements counted; None where something may repeat or hide them, or they are not understood.

    Args:
        ttir: the kernel in Triton's dialect.
    """
    if _HIDES.search(ttir):
        return None
    loads = [line for line in ttir.splitlines() if _READS.search(line)]
    found = [_LOAD.search(line.split(" loc(")[0]) for line in loads]
    return sum(prod(map(int, (load[1] or "").split("x")[:-1])) * -(-int(load[4]) // 8) if load else 0 for load in found) if all(found) else None


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


def over_limits(kernel: KernelResources, target: Any) -> Iterable[Excess]:
    """What a launch of the kernel would be refused for.

    Args:
        kernel: the compiled kernel.
        target: the Target's attributes, as `Target.to_json` has them.
    """
    arch, name = target["arch"], kernel.name
    if kernel.shared_memory_bytes > (most := target["shared_memory_bytes"]):
        yield Excess(
            limit=f"shared memory of a block: {kernel.shared_memory_bytes:,} of {most:,} bytes",
            reason=f"kernel {name} needs {kernel.shared_memory_bytes} bytes of shared memory a block, {arch} has {most}; "
            "smaller tiles or fewer stages need less",
        )
    if kernel.tensor_memory_columns > MAX_TENSOR_MEMORY_COLUMNS:
        yield Excess(
            limit=f"tensor memory of a block: {kernel.tensor_memory_columns} of {MAX_TENSOR_MEMORY_COLUMNS} columns",
            reason=f"kernel {name} needs {kernel.tensor_memory_columns} columns of tensor memory, {arch} has {MAX_TENSOR_MEMORY_COLUMNS}; "
            "smaller tiles need less",
        )
    threads = kernel.num_warps * kernel.warp_size
    if threads > MAX_THREADS:
        yield Excess(
            limit=f"threads of a block: {threads:,} of {MAX_THREADS:,}",
            reason=f"kernel {name} needs {threads} threads a block ({kernel.num_warps} warps of {kernel.warp_size}), {arch} allows {MAX_THREADS}",
        )
    if arch.startswith("sm_") and kernel.registers is not None:
        needed = -(-kernel.registers * kernel.warp_size // _REGISTER_UNIT) * _REGISTER_UNIT * kernel.num_warps
        if needed > MAX_BLOCK_REGISTERS:
            yield Excess(
                limit=f"registers of a block: {needed:,} of {MAX_BLOCK_REGISTERS:,}",
                reason=f"kernel {name} needs {needed} registers a block ({kernel.registers} a thread), {arch} has {MAX_BLOCK_REGISTERS}",
            )


def bad_grid(kernel: KernelResources) -> str:
    """Why a launch over the kernel's grid would be refused; empty where it would not."""
    for axis, extent, most in zip("xyz", kernel.grid, MAX_GRID, strict=False):
        if extent > most:
            return f"kernel {kernel.name} is launched over a grid of {list(kernel.grid)}: {extent} blocks along {axis}, at most {most} are allowed"
    return ""


def main_kernel(kernels: Sequence[KernelResources]) -> KernelResources:
    """The kernel of a launch that does most of its work: docs/decisions/0026.

    A matrix product before what only prepares or gathers for it; then the one that is given most bytes of the call's inputs, of its outputs,
    and the one with most warps over all programs. One that only adds up another's parts reads no input, though it may have far more programs.
    """
    return max(kernels, key=lambda kernel: (kernel.product, kernel.input_bytes, kernel.output_bytes, programs(kernel.grid) * kernel.num_warps))


def summary(kernels: Sequence[KernelResources], workspace_bytes: int) -> dict[str, int]:
    """What some kernels need, one or more, as `record.Resources` has it; what is not known is left out.

    Registers, warps and programs are those of the main kernel; what a limit or the memory has to hold is the most over all of them, scratch
    with what the workspace asks for.
    """

    def most(values: Iterable[int | None]) -> int | None:
        known = [value for value in values if value is not None]
        return max(known) if known else None

    main = main_kernel(kernels)
    figures = {
        "shared_memory_bytes": most(kernel.shared_memory_bytes for kernel in kernels),
        "registers": main.registers,
        "spill_bytes": most(kernel.spill_bytes for kernel in kernels),
        "stack_bytes": most(kernel.stack_bytes for kernel in kernels),
        "scratch_bytes": workspace_bytes + (most(kernel.scratch_bytes for kernel in kernels) or 0),
        "num_warps": main.num_warps,
        "programs": programs(main.grid),
    }
    return {name: value for name, value in figures.items() if value is not None}


def programs(grid: Sequence[int]) -> int:
    """Number of program instances of a grid."""
    return prod(grid)
