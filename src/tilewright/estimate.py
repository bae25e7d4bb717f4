"""Analytic estimates of a kernel's time: physics a searcher starts from. Pure.

They are meant to rank, and to be corrected by what is measured; so constants that scale all candidates alike hardly matter.
An operator's `predict` may be built from the helpers of `tilewright.product`, which are named here too; `general_us` serves those that have
none, once a candidate is built.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from math import ceil, exp, floor, log, log2, nan, prod, sqrt
from typing import Final

from tilewright.crosswise import crosswise_operands
from tilewright.descriptors import describe_for
from tilewright.operator import OperatorSpec
from tilewright.prediction import predicted_us
from tilewright.product import (
    LINE_BYTES,
    OVERHEAD_REGISTERS,
    Tiling,
    crowded,
    guessed_resources,
    matmul_us,
    occupancy,
    overlapped,
    spilled_once_us,
    spilling,
    summing_us,
    uses_warpgroups,
)
from tilewright.record import Config, Resources
from tilewright.streaming import streaming_us
from tilewright.target import Target
from tilewright.tiles import NamedTile, tile_namer
from tilewright.workload import DTYPE_BYTES, Workload

# Names that an operator's `predict` may take from here.
__all__ = ["Tiling", "estimate_for", "general_us", "guessed_resources", "matmul_us", "occupancy", "overlapped", "spilling", "uses_warpgroups"]

# All constants below are fitted, and rounded, to every point of the recorded GEMM: 8 shapes x 1,700 configs, H200, Triton 3.6,
# event timing, November 2026, for a model with the tile's true sides. What finer things `tilewright.product` knows, and so its constants,
# need more than a binary says.

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
# A launch, in µs, and the share of a tile's store that does not overlap.
_LAUNCH_US: Final = 4.0
_STORE_SHARE: Final = 0.25
_STORE_LATENCY_US: Final = 1.5
# How sharply the slowest of several overlapping streams dominates: the exponent of a power mean.
_SHARPNESS: Final = 3.4
# Warps that one multiprocessor needs to keep its four tensor cores busy.
_BUSY_WARPS: Final = 4
# Registers of a thread that hold no accumulator, as three guesses, over which the general estimate is averaged: on the same recording, the best 8 by
# estimate of 64 random builds hold a point at 97.4% of the best of the 64 (geometric mean); 95.8% with the middle one alone, or with powers of 2.
_OTHER_REGISTERS: Final = (28.0, 40.0, 60.0)
# Operations for each byte moved from which an operator is taken for a product, whose operands are read again and again. guess: 16 rows by a
# large matrix of 16 bits, the fewest that fill a tensor core's tile, are a little under 16.
_REUSE: Final = 8
_SMALLEST_SIDE: Final = 16.0
_WARPGROUP_ROWS: Final = 64
_SUM_BYTES: Final = 4
# Bytes in flight of a program that buffers nothing in shared memory. guess: what fits its registers.
_LEAST_IN_FLIGHT_BYTES: Final = 2048
# Stages on their way where there is but one: it is worked on half of the time. guess.
_ONE_STAGE: Final = 0.5
# How many more programs than tiles are still taken for one each. guess: foreseen ones are off by less.
_FORESEEN: Final = 1.1


def general_us(
    *,
    flops: float,
    bytes_moved: float,
    outputs: Sequence[int],
    target: Target,
    dtype: str,
    resources: Resources,
    element_bytes: int = 2,
    programs: int | None = None,
    tile: NamedTile | None = None,
    crosswise: int = 1,
) -> float | None:
    """Estimated time in µs of any built kernel, from what every operator and every binary says.

    Where operands are used again and again, an operator is taken for a product: `flops / 2 / outputs` long sums, in square tiles no
    higher than the result. Accumulators live in registers, so these tell the tile's size: not exactly, as nobody knows what else
    they hold, so the estimate is the geometric mean over some guesses. Tiles in flight live in shared memory, which tells how much
    latency is hidden.

    Args:
        flops: of the workload.
        bytes_moved: of the workload.
        outputs: extents of its largest result.
        target: peak rates and limits.
        dtype: torch name, for the peak rate.
        resources: what the build needs.
        element_bytes: of the operands.
        programs: of the launch, where known: they tell the tile's size better than registers, unless programs stay for several tiles.
        tile: of the result, where the knobs name it.
        crosswise: of how many operands neighbours in memory belong to different sums.

    Returns:
        The estimate, or None where a block does not fit a multiprocessor.
    """
    warps = resources.num_warps or _BUSY_WARPS
    registers = resources.registers or OVERHEAD_REGISTERS
    shared = resources.shared_memory_bytes
    resident = occupancy(target, warps=warps, shared_memory_bytes=shared, registers=registers)
    if resident == 0:
        if shared > target.shared_memory_bytes:
            return None
        resident = 1
    sms = target.sm_count
    elements = float(max(prod(outputs), 1))
    if flops <= _REUSE * bytes_moved:
        streamed = streaming_us(
            bytes_moved=bytes_moved, target=target, resources=resources, warps=warps, registers=registers, resident=resident, programs=programs
        )
        return streamed + _LAUNCH_US
    bandwidth = (target.bandwidth_gb_s or 1000.0) * 1e3 * _DRAM_SHARE
    spilled = resources.spill_bytes or 0
    moving, slower = bytes_moved / bandwidth, spilling(spilled)
    # A workspace of whole results in fp32 holds the parts of sums that are cut, each a program's; adding them up is a launch more.
    workspace = (resources.scratch_bytes or 0) / (elements * _SUM_BYTES)
    parts = int(workspace) if workspace >= 2 and workspace.is_integer() else 1
    depth = flops / 2 / elements / parts
    last = outputs[-1] if outputs else 1  # a single number has no axis
    lower, higher = sorted((float(last), elements / max(last, 1)))
    rate = target.tflops.get(dtype, 0.0) * 1e6 / sms or _L2_BYTES_PER_SM_US * 64
    adding = summing_us(elements, parts, element_bytes, target)

    threads = warps * target.warp_size
    # What a thread spilled were registers too.
    needed = registers + spilled / 8
    guesses = [min(max(needed - other, 4.0), 256.0) * threads for other in _OTHER_REGISTERS]
    # Fewer programs than tiles stay for several; more are no count of these tiles. Those foreseen may be off by a little.
    if tile is not None and programs and programs / parts > _FORESEEN * tile.count:
        tile = None
    # No program holds more results than it has registers: one with a larger share takes tile after tile, and says nothing of their size.
    known = float(tile.count) if tile is not None else programs / parts if programs else 0.0
    known = known if known and elements / known <= needed * threads else 0.0

    def tiled(held: float, known: float, named: NamedTile | None) -> float:
        """Time where a block has room for so many results, and there are so many tiles: a tile may be larger than what it covers of the result."""
        covered = max(elements / known, 1.0) if known else held
        # Where the results leave registers, what is spilled all the same is spilled around the loop.
        around = spilled_once_us(spilled, threads) if known and not crowded(covered, threads, target) else 0.0
        if named is not None:
            height, width = float(named.rows), float(named.columns)
        else:
            highest = float(2 ** ceil(log2(max(lower, _SMALLEST_SIDE))))
            height = min(2.0 ** floor(log2(covered) / 2) if known else sqrt(covered), highest)  # Triton's sides are powers of two
            width = covered / height
            height *= max(held / covered, 1.0) if height == highest else 1.0
        tile = height * width
        blocks = (known or ceil(lower / height) * ceil(higher / width)) * parts
        share = _PER_WARP_MMA if warps < _BUSY_WARPS or height < _WARPGROUP_ROWS > width else width / (width + _HALF_RATE_COLUMNS)
        # Rows that are padding take their time and room, too. Each row of a tile that lies across the sums is a stretch.
        filled = (height + width) * element_bytes * depth
        read = filled + crosswise * LINE_BYTES * depth
        in_flight = float(shared)
        if named is not None and named.depth and named.stages:
            # One stage is worked on while the others are on their way; what else lies in shared memory waits for nothing.
            in_flight = min(shared, (height + width) * element_bytes * named.depth * max(named.stages - 1, _ONE_STAGE))

        def wave(blocks_held: int) -> float:
            fed = min(1.0, blocks_held * warps / _BUSY_WARPS)
            computing = blocks_held * 2.0 * tile * depth / (rate * share * fed)
            waiting = filled * _LATENCY_US / max(in_flight, _LEAST_IN_FLIGHT_BYTES)
            loop = overlapped(computing, blocks_held * read / _L2_BYTES_PER_SM_US, waiting, sharpness=_SHARPNESS)
            return loop + blocks_held * (covered * (_SUM_BYTES if parts > 1 else element_bytes) / (bandwidth / sms) * _STORE_SHARE + around) + _STORE_LATENCY_US

        full, left = divmod(blocks, sms * resident)
        waves = (full * wave(resident) + (wave(ceil(left / sms)) if left else 0.0)) * (1.0 if around else slower)
        return overlapped(waves, moving, sharpness=_SHARPNESS) + adding + _LAUNCH_US

    named = tile if known else None
    times = [tiled(held, known, named) for held in guesses]
    if known and named is None and programs and programs % sms == 0 and log2(sms) % 1 > 0:
        # As many programs as fill the device may stay, too: tiles with sides of powers of two rarely come to that number.
        times += [tiled(held, 0.0, None) for held in guesses]
    return exp(sum(log(time) for time in times) / len(times))


def estimate_for(spec: OperatorSpec, workload: Workload, target: Target) -> Callable[[Config, Resources | None], float | None] | None:
    """What a searcher may ask of a config, before its build and after: the author's `predict`, else a `GeneralEstimate`.

    Args:
        spec: the operator; its `predict` is called with workload, target, config, and the build's resources or None.
        workload: the shape and dtypes.
        target: limits and peak rates.

    Returns:
        A function that gives µs, None where the config cannot run, and NaN where nothing can be said before the build. None under
        the interpreter, whose time says nothing of a device, and on a device of unknown limits.
    """
    if target.backend == "interpreter" or target.sm_count == 0:
        return None
    if spec.predict is not None:
        return lambda config, resources: predicted_us(spec, workload, target, config, resources)
    return GeneralEstimate(spec, workload, target)


class GeneralEstimate:
    """The general estimate of a workload's candidates; NaN before a build.

    Args:
        spec: the operator.
        workload: the shape and dtypes.
        target: limits and peak rates.

    Attributes:
        describe: what describes a candidate, for what is learned of all operators' kernels.
    """

    def __init__(self, spec: OperatorSpec, workload: Workload, target: Target) -> None:
        dtype = max(workload.dtypes.values(), key=lambda name: target.tflops.get(name, 0.0), default="")
        largest = max(spec.outputs(workload).values(), key=lambda output: prod(output.shape))
        self._tile_of = tile_namer(spec, workload)
        self._estimate = partial(
            general_us,
            flops=float(spec.flops(workload)),
            bytes_moved=float(spec.bytes_moved(workload)),
            outputs=largest.shape,
            element_bytes=min((DTYPE_BYTES[name] for name in workload.dtypes.values() if name == dtype), default=2),
            target=target,
            dtype=dtype,
            crosswise=crosswise_operands(spec, workload),
        )
        self.describe = describe_for(spec, workload, target)

    def __call__(self, config: Config, resources: Resources | None) -> float | None:
        if resources is None:
            return nan
        return self._estimate(resources=resources, programs=resources.programs, tile=self._tile_of(config))
