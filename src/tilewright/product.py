"""Analytic estimate of a tiled matrix product's time. Pure.

It is meant to rank, and to be corrected by what is measured; so constants that scale all candidates alike hardly matter.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from typing import Final

from tilewright.record import Resources
from tilewright.target import Target

# All constants below are fitted together, and rounded. H200, Triton 3.6, November 2026: benchmarks/data/recorded_gemm_h200 (fp16, 8 shapes x
# 1,700 configs, event timing), coarse_matmul_h200 (bf16, 8 shapes, half of them ragged, 8,100 configs of three schedules, graph timing) and
# the trials of tuning_logs' matmul-llama3-8b (bf16, 72 shapes x 33 to 45, b by columns). Points count by the cube of their closeness to the
# best, shapes alike, but for Llama's: 0.15 of one each. log(measured / estimated) has, over the points within a factor of two of a shape's
# best, a standard deviation of 0.11, 0.10 and 0.10 (mean over shapes); rank correlation over the faster half is 0.93, 0.75 and 0.46. Fitted
# to one of the first two alone, and scored on the other: 0.10 and 0.12.

# Bytes per µs that one multiprocessor draws from L2 by TMA at best, and how much longer loads by pointers take.
_L2_BYTES_PER_SM_US: Final = 138_000.0
_BY_POINTERS: Final = 1.18
# What each contiguous stretch of a tile costs beside its bytes, in bytes; and beside that where stretches begin within a line of the cache.
LINE_BYTES: Final = 36.0
_LINE: Final = 128
_MISALIGNED_BYTES: Final = 80.0
# Share of the data sheet's bandwidth that is reached.
_DRAM_SHARE: Final = 0.95
# From asking for a tile to having it, in µs; and the share of its own computation for which a warpgroup's tile keeps its buffer.
_LATENCY_US: Final = 0.48
_KEPT_SHARE: Final = 0.5
# A trip's barriers and addresses, in µs for each warp.
_TRIP_US_PER_WARP: Final = 0.006
# Share of the tensor cores' rate through per-warp MMA instructions, where the warpgroup's cannot be used on Hopper.
_PER_WARP_MMA: Final = 0.36
_MMA_RESULTS: Final = 128
# Columns at which a warpgroup MMA is at half its rate: each reads its 64 rows of A beside its columns of B.
_HALF_RATE_COLUMNS: Final = 15.0
# Slow-down of warpgroup MMAs of 256 columns where B is stored by columns, but for persistent kernels: the same products take 4% less than
# with B by rows at 128 columns, and 13% (TMA) to 26% (pointers) more at 256. Measured, not understood.
_WIDE_BY_COLUMNS: Final = 1.27
_WIDE: Final = 256
# Slow-down for each byte spilled by a thread in the loop, as it does where accumulators leave no registers; and the most there is.
_SPILL_COST: Final = 0.033
_MOST_SPILL_COST: Final = 10.0
_CROWDED: Final = 0.75
# Bytes per µs that one multiprocessor spills and loads again once a tile.
_SPILLED_BYTES_PER_SM_US: Final = 80_000.0
# A tile's store, in bytes per µs of one multiprocessor, and what begins and ends a tile, in µs; the share of both left to persistent programs.
_STORE_BYTES_PER_SM_US: Final = 530_000.0
_TILE_US: Final = 2.2
_PERSISTENT_SHARE: Final = 0.75
# A launch, in µs; one that follows in the same graph, which adds up the parts of a sum, and the share of the bandwidth that it reaches.
_LAUNCH_US: Final = 4.2
_NEXT_LAUNCH_US: Final = 0.4
_SUM_SHARE: Final = 0.5
# How sharply the slowest of several streams that overlap dominates, in a multiprocessor and between it and memory: the exponent of a power mean.
_SHARPNESS: Final = 7.0
_MEMORY_SHARPNESS: Final = 3.0
# Warps that one multiprocessor needs to keep its four tensor cores busy.
_BUSY_WARPS: Final = 4
# Registers of a thread that hold no accumulator. guess, from the recorded GEMM.
OVERHEAD_REGISTERS: Final = 40
_MOST_REGISTERS: Final = 255
# Allocation granularity: CUDA C++ Programming Guide, "Technical Specifications per Compute Capability".
_BLOCKS_PER_SM: Final = 32
_RESERVED_SHARED_BYTES: Final = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Tiling:
    """How a matrix product is cut, and its operands are read.

    Attributes:
        rows, columns, depth: of a block's tile.
        warps: of a block.
        stages: tiles in flight.
        splits: parts of the summed dim that run side by side.
        persistent_per_sm: blocks that stay on each multiprocessor and take tile after tile; 0 for a block a tile.
        accumulators: side by side, that make up the columns.
        pointers: whether operands are read by pointers, and not by TMA.
        a_columns, b_columns: whether the operand is stored column by column.
    """

    rows: int
    columns: int
    depth: int
    warps: int
    stages: int
    splits: int = 1
    persistent_per_sm: int = 0
    accumulators: int = 1
    pointers: bool = True
    a_columns: bool = False
    b_columns: bool = False


def occupancy(target: Target, *, warps: int, shared_memory_bytes: float, registers: float) -> int:
    """Blocks that one multiprocessor holds at a time; 0 where not even one fits."""
    threads = warps * target.warp_size
    allocated = ceil(max(registers, 16) / 8) * 8
    limits = [_BLOCKS_PER_SM, target.max_threads_per_sm // threads, int(target.registers_per_sm // (allocated * threads))]
    if shared_memory_bytes > target.shared_memory_bytes:
        return 0
    limits.append(int(target.shared_memory_per_sm_bytes // (shared_memory_bytes + _RESERVED_SHARED_BYTES)))
    return max(min(limits), 0)


def overlapped(*streams: float, sharpness: float = _SHARPNESS) -> float:
    """Time of streams that run at once: the longest, and a little of the others."""
    longest = max(streams)
    return longest * sum((stream / longest) ** sharpness for stream in streams) ** (1 / sharpness) if longest > 0 else 0.0


def crowded(results: float, threads: int, target: Target) -> bool:
    """Whether a block's results leave its threads so few registers that they spill in the loop, and not only around it."""
    return results / threads > _CROWDED * min(_MOST_REGISTERS, target.registers_per_sm / threads)


def spilling(spill_bytes: float) -> float:
    """Factor by which registers that are spilled in the loop slow a kernel down."""
    return min(1 + _SPILL_COST * spill_bytes, _MOST_SPILL_COST)


def spilled_once_us(spill_bytes: float, threads: int) -> float:
    """Time of one multiprocessor for what the threads of a block spill around the loop, once a tile."""
    return spill_bytes * threads / _SPILLED_BYTES_PER_SM_US


def summing_us(results: float, parts: int, element_bytes: int, target: Target) -> float:
    """Time of the launch that adds up the parts of sums, in fp32; 0 where they are whole."""
    bandwidth = (target.bandwidth_gb_s or 1000.0) * 1e3 * _SUM_SHARE
    return _NEXT_LAUNCH_US + results * (4 * parts + element_bytes) / bandwidth if parts > 1 else 0.0


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
    registers = tiling.rows * tiling.columns / threads + OVERHEAD_REGISTERS + 0.1 * loaded / threads
    return Resources(
        shared_memory_bytes=loaded * element_bytes * buffers,
        registers=round(min(registers, _MOST_REGISTERS)),
        spill_bytes=round(8 * max(registers - _MOST_REGISTERS, 0)),
        num_warps=tiling.warps,
    )


def _computing_us(tiling: Tiling, target: Target, dtype: str) -> float:
    """Time of one tile's products on one multiprocessor, all of whose tensor cores have work."""
    rate = target.tflops.get(dtype, 0.0) * 1e6 / target.sm_count or _L2_BYTES_PER_SM_US * 64
    products = 2.0 * tiling.rows * tiling.columns * tiling.depth
    if not uses_warpgroups(tiling, target):
        # Warps that have no part of the result of their own repeat another's.
        repeated = max(1.0, _MMA_RESULTS * tiling.accumulators * tiling.warps / (tiling.rows * tiling.columns))
        return products * repeated / (rate * (_PER_WARP_MMA if target.arch == "sm_90" else 0.9))
    # Warpgroups without 64 rows of their own share the columns.
    instructions = tiling.accumulators * max(1.0, tiling.warps * 16 / tiling.rows)
    wide = tiling.b_columns and not tiling.persistent_per_sm and tiling.columns >= _WIDE * instructions
    return products * (1 + _HALF_RATE_COLUMNS * instructions / tiling.columns) / rate * (_WIDE_BY_COLUMNS if wide else 1.0)


def _reading_us(m: int, n: int, k: int, tiling: Tiling, element_bytes: int) -> float:
    """Time in which one multiprocessor draws the tiles of A and B for one trip from L2."""

    def drawn(lines: int, line: int, stride: int) -> float:
        """Bytes that so many contiguous stretches, of so many elements each, are worth."""
        misaligned = _MISALIGNED_BYTES if stride * element_bytes % _LINE else 0.0
        return lines * (line * element_bytes + LINE_BYTES + misaligned)

    a = drawn(tiling.depth, tiling.rows, m) if tiling.a_columns else drawn(tiling.rows, tiling.depth, k)
    b = drawn(tiling.columns, tiling.depth, k) if tiling.b_columns else drawn(tiling.depth, tiling.columns, n)
    return (a + b) / _L2_BYTES_PER_SM_US * (_BY_POINTERS if tiling.pointers else 1.0)


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
    resident = occupancy(target, warps=tiling.warps, shared_memory_bytes=needs.shared_memory_bytes, registers=needs.registers or OVERHEAD_REGISTERS)
    if resident == 0:
        if needs.shared_memory_bytes > target.shared_memory_bytes:
            return None
        resident = 1  # register limits are the compiler's to keep
    if tiling.persistent_per_sm:
        resident = min(resident, tiling.persistent_per_sm)
    sms, split = target.sm_count, tiling.splits > 1
    bandwidth = (target.bandwidth_gb_s or 1000.0) * 1e3
    tiles = ceil(m / tiling.rows) * ceil(n / tiling.columns) * tiling.splits
    trips = ceil(k / (tiling.depth * tiling.splits))
    threads = tiling.warps * target.warp_size
    results = tiling.rows * tiling.columns
    spilled = needs.spill_bytes or 0
    in_loop = crowded(results, threads, target)
    computing, reading = _computing_us(tiling, target, dtype), _reading_us(m, n, k, tiling, element_bytes)
    # A buffer is filled, and then read by the products, before it is filled again; a warpgroup's go on while the next trip begins.
    kept = computing / min(1.0, tiling.warps / _BUSY_WARPS) * (_KEPT_SHARE if uses_warpgroups(tiling, target) else 1.0)
    cycle = (_LATENCY_US + reading + kept) / max(tiling.stages - 1, 0.6)
    storing = results * (4 if split else element_bytes) / _STORE_BYTES_PER_SM_US + (0.0 if in_loop else spilled_once_us(spilled, threads))

    def wave(blocks: int) -> float:
        """Time of one tile on each multiprocessor for as many blocks as it holds."""
        fed = min(1.0, blocks * tiling.warps / _BUSY_WARPS)
        trip = overlapped(blocks * computing / fed, blocks * reading, cycle) + blocks * tiling.warps * _TRIP_US_PER_WARP
        # Persistent blocks store one tile while they load the next.
        return trips * trip + (blocks * storing + _TILE_US) * (_PERSISTENT_SHARE if tiling.persistent_per_sm else 1.0)

    full, left = divmod(tiles, sms * resident)
    time_us = full * wave(resident) + (wave(ceil(left / sms)) if left else 0.0)
    if in_loop:
        time_us *= spilling(spilled)
    moved = float((m * k + k * n) * element_bytes + m * n * (4 * tiling.splits if split else element_bytes))
    time_us = overlapped(time_us, moved / (bandwidth * _DRAM_SHARE), sharpness=_MEMORY_SHARPNESS)
    return time_us + summing_us(m * n, tiling.splits, element_bytes, target) + _LAUNCH_US
