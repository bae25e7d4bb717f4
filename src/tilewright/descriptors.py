"""What tells built kernels of any operator apart, in numbers that mean the same for all of them. Pure."""

from __future__ import annotations

from collections.abc import Callable
from math import ceil, log, log2, prod
from typing import Final

from tilewright.operator import OperatorSpec
from tilewright.product import OVERHEAD_REGISTERS, occupancy
from tilewright.record import Config, Resources
from tilewright.target import Target
from tilewright.tiles import stage_namer
from tilewright.workload import Workload

# Where a build does not say: as in the general estimate.
_WARPS: Final = 4
# Results of a thread that are as good as none, so that few and very few are not doublings apart. guess.
_NO_RESULTS: Final = 1e-3
# Stages from which more say no more. guess.
_MOST_STAGES: Final = 16

# Of a config, its build, and the general estimate in µs.
Describe = Callable[[Config, Resources, float], tuple[float, ...]]

NAMES: Final = (
    "warps",
    "registers",
    "spilled",
    "shared",
    "occupancy",
    "resident_warps",
    "programs",
    "waves",
    "filled",
    "imbalance",
    "bytes",
    "bytes_a_thread",
    "operations_a_thread",
    "results",
    "results_a_thread",
    "scratch",
    "estimate",
    "stack",
    "register_bytes",
    "shared_in_use",
    "bytes_a_slot",
    "stages",
)


def describe_for(spec: OperatorSpec, workload: Workload, target: Target) -> Describe:
    """What describes a workload's candidates: logarithms, to base 2 but for the estimate's, by `NAMES`.

    Of a program: warps, registers of a thread and what it spills, shared memory, stack; its share of the operands' bytes and of the results, and of these
    and of the operations each of its threads' own.
    Of a multiprocessor: programs that it holds, their warps, registers and shared memory in bytes; programs that it is given, and these over those that it
    holds; how much of the waves is filled, and the busiest one's share over the mean.
    Of the launch: scratch as a share of the operands' bytes, and these for each thread that the device holds. Stages, by the knob's name, are as they are,
    and 0 without one; so is the filled share.
    """
    flops, bytes_moved = float(spec.flops(workload)), max(float(spec.bytes_moved(workload)), 1.0)
    results = max(prod(output.shape) for output in spec.outputs(workload).values())
    sms, stages_of = target.sm_count, stage_namer(workload)

    def describe(config: Config, resources: Resources, time_us: float) -> tuple[float, ...]:
        warps, registers = resources.num_warps or _WARPS, resources.registers or OVERHEAD_REGISTERS
        shared, threads = resources.shared_memory_bytes, warps * target.warp_size
        resident = max(occupancy(target, warps=warps, shared_memory_bytes=shared, registers=registers), 1)
        programs = resources.programs or sms * resident
        waves, each = programs / (sms * resident), bytes_moved / programs
        return (
            log2(warps),
            log2(registers),
            log2(1 + (resources.spill_bytes or 0)),
            log2(1 + shared),
            log2(resident),
            log2(resident * warps),
            log2(programs / sms),
            log2(waves),
            waves / ceil(waves),
            log2(ceil(programs / sms) / (programs / sms)),
            log2(each),
            log2(each / threads),
            log2(1 + flops / programs / threads),
            log2(1 + results / programs),
            log2(_NO_RESULTS + results / programs / threads),
            log2(1 + (resources.scratch_bytes or 0) / bytes_moved),
            log(time_us),
            log2(1 + (resources.stack_bytes or 0)),
            log2(resident * threads * registers * 4),
            log2(1 + resident * shared),
            log2(bytes_moved / (sms * resident * threads)),
            float(min(stages_of(config), _MOST_STAGES)),
        )

    return describe
