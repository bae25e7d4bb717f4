"""Analytic estimates of a kernel's time: physics a searcher starts from. Pure.

They are meant to rank, and to be corrected by what is measured; so constants that scale all candidates alike hardly matter.
An operator's spec may build its `predict` from these helpers; `general_us` serves those that have none, once a candidate is built.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import ceil, nan, prod, sqrt
from typing import Final

from tilewright.operator import OperatorSpec
from tilewright.record import Config, Resources
from tilewright.target import Target
from tilewright.workload import Workload

# All constants below are fitted, and rounded, to every point of the recorded GEMM: 8 shapes x 1,700 configs, H200, Triton 3.6,
# event timing, November 2026. There, log(measured / estimated) has a standard deviation of 0.13 to 0.20 over the points within
# a factor of two of the best, and the rank correlation is 0.89 to 0.93 on each shape.

# Bytes per µs that one multiprocessor draws from L2 at best.
_L2_BYTES_PER_SM_US: Final = 76_000.0
# Share of the data sheet's bandwidth that is reached.
_DRAM_SHARE: Final = 0.7
# From asking for a tile to having it, in µs; stages in flight share it.
_LATENCY_US: Final = 0.8
# Share of the tensor cores' rate through per-warp MMA instructions, where the warpgroup's cannot be used on Hopper.
_PER_WARP_MMA: Final = 0.58
# Columns at which a warpgroup MMA is at half its rate: each reads its 64 rows of A beside its columns of B.
_HALF_RATE_COLUMNS: Final = 8.0
# Slow-down for each byte spilled by a thread.
_SPILL_COST: Final = 0.023
# A launch, in µs, and the share of a tile's store that does not overlap.
_LAUNCH_US: Final = 4.0
_STORE_SHARE: Final = 0.25
_STORE_LATENCY_US: Final = 1.5
# How sharply the slowest of several overlapping streams dominates: the exponent of a power mean.
_SHARPNESS: Final = 3.4
# Warps that one multiprocessor needs to keep its four tensor cores busy.
_BUSY_WARPS: Final = 4
# Registers of a thread that hold no accumulator. guess, from the same recording.
_OVERHEAD_REGISTERS: Final = 40
_MOST_REGISTERS: Final = 255
# Allocation granularity: CUDA C++ Programming Guide, "Technical Specifications per Compute Capability".
_BLOCKS_PER_SM: Final = 32
_RESERVED_SHARED_BYTES: Final = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Tiling:
    """How a matrix product is cut.

    Attributes:
        rows, columns, depth: of a block's tile.
        warps: of a block.
        stages: tiles in flight.
        splits: parts of the summed dim that run side by side.
        persistent_per_sm: blocks that stay on each multiprocessor and take tile after tile; 0 for a block a tile.
    """

    rows: int
    columns: int
    depth: int
    warps: int
    stages: int
    splits: int = 1
    persistent_per_sm: int = 0


def occupancy(target: Target, *, warps: int, shared_memory_bytes: float, registers: float) -> int:
    """Blocks that one multiprocessor holds at a time; 0 where not even one fits."""
    threads = warps * target.warp_size
    allocated = ceil(max(registers, 16) / 8) * 8
    limits = [_BLOCKS_PER_SM, target.max_threads_per_sm // threads, int(target.registers_per_sm // (allocated * threads))]
    if shared_memory_bytes > target.shared_memory_bytes:
        return 0
    limits.append(int(target.shared_memory_per_sm_bytes // (shared_memory_bytes + _RESERVED_SHARED_BYTES)))
    return max(min(limits), 0)


def overlapped(*streams: float) -> float:
    """Time of streams that run at once: the longest, and a little of the others."""
    longest = max(streams)
    return longest * sum((stream / longest) ** _SHARPNESS for stream in streams) ** (1 / _SHARPNESS) if longest > 0 else 0.0


def spilling(spill_bytes: float) -> float:
    """Factor by which spilled registers slow a kernel down."""
    return 1 + _SPILL_COST * spill_bytes


def uses_warpgroups(tiling: Tiling, target: Target) -> bool:
    """Whether Triton multiplies by warpgroup instructions: on Hopper, with 64 rows and four warps at least."""
    return target.arch == "sm_90" and tiling.rows >= 64 and tiling.warps % 4 == 0


def guessed_resources(tiling: Tiling, element_bytes: int, target: Target) -> Resources:
    """What a tiled matrix product will need, before it is built: buffers in flight, and accumulators in registers.

    Triton 3.6 keeps as many buffers as stages for warpgroup instructions, which read them in place, and one fewer for others.
    """
    threads = tiling.warps * target.warp_size
    buffers = tiling.stages if uses_warpgroups(tiling, target) else max(tiling.stages - 1, 1)
    loaded = (tiling.rows + tiling.columns) * tiling.depth
    registers = tiling.rows * tiling.columns / threads + _OVERHEAD_REGISTERS + 0.1 * loaded / threads
    return Resources(
        shared_memory_bytes=loaded * element_bytes * buffers,
        registers=round(min(registers, _MOST_REGISTERS)),
        spill_bytes=round(8 * max(registers - _MOST_REGISTERS, 0)),
        num_warps=tiling.warps,
    )


def matmul_us(m: int, n: int, k: int, tiling: Tiling, target: Target, *, dtype: str, element_bytes: int, resources: Resources | None = None) -> float | None:
    """Estimated time in µs of a tiled matrix product [m, k] @ [k, n].

    Args:
        m: rows of the result.
        n: columns of the result.
        k: the summed extent.
        tiling: how it is cut.
        target: peak rates and limits.
        dtype: torch name, for the peak rate.
        element_bytes: of the operands.
        resources: what the build needs; guessed where not built yet.

    Returns:
        The estimate, or None where a block does not fit a multiprocessor.
    """
    needs = resources or guessed_resources(tiling, element_bytes, target)
    spilled = needs.spill_bytes or 0
    resident = occupancy(target, warps=tiling.warps, shared_memory_bytes=needs.shared_memory_bytes, registers=needs.registers or _OVERHEAD_REGISTERS)
    if resident == 0:
        if needs.shared_memory_bytes > target.shared_memory_bytes:
            return None
        resident = 1  # register limits are the compiler's to keep
    tiles = ceil(m / tiling.rows) * ceil(n / tiling.columns) * tiling.splits
    trips = ceil(k / (tiling.depth * tiling.splits))
    sms = target.sm_count
    rate = target.tflops.get(dtype, 0.0) * 1e6 / sms or _L2_BYTES_PER_SM_US * 64
    warpgroup = uses_warpgroups(tiling, target)
    share = tiling.columns / (tiling.columns + _HALF_RATE_COLUMNS) if warpgroup else (_PER_WARP_MMA if target.arch == "sm_90" else 0.9)
    bandwidth = (target.bandwidth_gb_s or 1000.0) * 1e3 * _DRAM_SHARE

    def wave(blocks: int) -> float:
        """Time of one tile on each multiprocessor for as many blocks as it holds."""
        fed = min(1.0, blocks * tiling.warps / _BUSY_WARPS)
        trip = overlapped(
            blocks * 2.0 * tiling.rows * tiling.columns * tiling.depth / (rate * share * fed),
            blocks * (tiling.rows + tiling.columns) * tiling.depth * element_bytes / _L2_BYTES_PER_SM_US,
            _LATENCY_US / max(tiling.stages - 1, 0.6),
        )
        store = blocks * tiling.rows * tiling.columns * element_bytes / (bandwidth / sms) * _STORE_SHARE
        # Persistent blocks store one tile while they load the next.
        return trips * trip + (max(store, _STORE_LATENCY_US / 2) if tiling.persistent_per_sm else store + _STORE_LATENCY_US)

    if tiling.persistent_per_sm:
        resident = min(resident, tiling.persistent_per_sm)
    full, left = divmod(tiles, sms * resident)
    time_us = full * wave(resident) + (wave(ceil(left / sms)) if left else 0.0)
    moved = float((m * k + k * n + m * n) * element_bytes)
    if tiling.splits > 1:
        moved += 2.0 * tiling.splits * m * n * 4
        time_us += _LAUNCH_US
    return max(time_us * spilling(spilled), moved / bandwidth) + _LAUNCH_US


def general_us(*, flops: float, bytes_moved: float, outputs: float, target: Target, dtype: str, resources: Resources) -> float | None:
    """Estimated time in µs of any built kernel, from what every operator and every binary says.

    Registers tell the size of a block's tile, as accumulators live there: a square one reads `2 / sqrt(elements)` operands
    from L2 for each operation.

    Args:
        flops: of the workload.
        bytes_moved: of the workload.
        outputs: elements of its results.
        target: peak rates and limits.
        dtype: torch name, for the peak rate.
        resources: what the build needs.

    Returns:
        The estimate, or None where a block does not fit a multiprocessor.
    """
    warps = resources.num_warps or _BUSY_WARPS
    registers = resources.registers or _OVERHEAD_REGISTERS
    resident = occupancy(target, warps=warps, shared_memory_bytes=resources.shared_memory_bytes, registers=registers)
    if resident == 0:
        if resources.shared_memory_bytes > target.shared_memory_bytes:
            return None
        resident = 1
    tile = max(registers - _OVERHEAD_REGISTERS, 8) * warps * target.warp_size
    blocks = max(outputs / tile, 1.0)
    slots = target.sm_count * resident
    # Blocks of the last wave leave multiprocessors idle.
    tail = max(ceil(blocks / slots) * slots / blocks, 1.0)
    rate = target.tflops.get(dtype, 0.0) * 1e6 or _L2_BYTES_PER_SM_US * 64 * target.sm_count
    computing = flops / rate * tail * max(1.0, _BUSY_WARPS / (resident * warps))
    reading = 0.0
    if flops > 16 * bytes_moved:  # operands are used again and again
        reading = flops * 2 / sqrt(tile) / (_L2_BYTES_PER_SM_US * min(float(target.sm_count), blocks))
    moving = bytes_moved / ((target.bandwidth_gb_s or 1000.0) * 1e3 * _DRAM_SHARE)
    return overlapped(computing, reading, moving) * spilling(resources.spill_bytes or 0) + _LAUNCH_US


def estimate_for(spec: OperatorSpec, workload: Workload, target: Target) -> Callable[[Config, Resources | None], float | None] | None:
    """What a searcher may ask of a config, before its build and after: the author's `predict`, else the general estimate.

    Args:
        spec: the operator; its `predict` is called with workload, target, config, and the build's resources or None.
        workload: the shape and dtypes.
        target: limits and peak rates.

    Returns:
        A function that gives µs, None where the config cannot run, and NaN where nothing can be said before the build. None under
        the interpreter, whose time says nothing of a device.
    """
    if target.backend == "interpreter":
        return None
    predict = spec.predict
    if predict is not None:
        return lambda config, resources: predict(workload, target, config, resources)
    dtype = max(workload.dtypes.values(), key=lambda name: target.tflops.get(name, 0.0), default="")
    outputs = float(sum(prod(output.shape) for output in spec.outputs(workload).values()))

    def estimate(config: Config, resources: Resources | None) -> float | None:
        if resources is None:
            return nan
        return general_us(
            flops=float(spec.flops(workload)),
            bytes_moved=float(spec.bytes_moved(workload)),
            outputs=outputs,
            target=target,
            dtype=dtype,
            resources=resources,
        )

    return estimate
