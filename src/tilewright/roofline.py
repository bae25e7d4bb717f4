"""The roofline: what a target's peak rates allow a workload, and what a measured time makes of them. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from typing import Final

from tilewright.operator import OperatorSpec, TensorSpec
from tilewright.target import Target
from tilewright.workload import Workload

# A time this far under the floor was not measured right, or the work was not done. Peak rates are data sheets' or clock times
# width, both a few percent off what a part does: H200, 2026-11, HBM3e counts 4,917 GB/s by its clock and 4,800 by its data sheet.
IMPOSSIBLE_MARGIN: Final = 0.10

# Rotating operands count as cold from this multiple of L2 on: at just over one, part of a set survives a round.
COLD_L2_MULTIPLE: Final = 2

# Copies of a call's operands, at most. Each costs a kernel launch to capture (18 µs of host time, H200, 2026-11), so 64 cost
# about 1 ms a candidate; operands over 1.6 MB are then cold in an L2 of 50 MB, and smaller ones stay in L2 in real use too.
MAX_OPERAND_SETS: Final = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Roofline:
    """Floor of a workload's time on a target.

    Attributes:
        flops: floating-point operations of the workload.
        bytes_moved: fewest bytes through device memory.
        compute_us: the operations at the peak rate; None where the target's rate for the workload's dtypes is not known.
        memory_us: the bytes at the full bandwidth; None where the bandwidth is not known, or the operands stay in L2.
    """

    flops: float
    bytes_moved: float
    compute_us: float | None = None
    memory_us: float | None = None

    @property
    def floor_us(self) -> float | None:
        """The later of the two bounds; None where neither is known."""
        return max((bound for bound in (self.compute_us, self.memory_us) if bound is not None), default=None)

    @property
    def bound(self) -> str:
        """`compute` or `memory`, whichever sets the floor; empty where there is none."""
        floor = self.floor_us
        if floor is None:
            return ""
        return "compute" if floor == self.compute_us else "memory"

    def tflops(self, time_us: float) -> float:
        """Rate reached at a time, in 1e12 operations per second."""
        return self.flops / time_us * 1e-6

    def gb_s(self, time_us: float) -> float:
        """Bandwidth reached at a time, in 1e9 bytes per second."""
        return self.bytes_moved / time_us * 1e-3

    def fraction(self, time_us: float) -> float | None:
        """Share of the roofline reached at a time: 1 is the floor; None where there is none."""
        floor = self.floor_us
        return None if floor is None else floor / time_us

    def impossible(self, time_us: float) -> bool:
        """Whether a time is under the floor by more than the margin for inexact peak rates."""
        floor = self.floor_us
        return floor is not None and time_us < floor * (1 - IMPOSSIBLE_MARGIN)


def roofline(spec: OperatorSpec, workload: Workload, target: Target, *, operand_bytes: int | None = None) -> Roofline:
    """The roofline of a workload on a target.

    Args:
        spec: the operator, for its flops and bytes.
        workload: the shape and dtypes.
        target: peak rates, bandwidth and L2. Under the interpreter there is no floor: its time says nothing of a device.
        operand_bytes: bytes that measuring cycles through; those of the rotating operand sets where not given. Memory
            bounds the time only where they are at least twice L2.
    """
    flops, moved = float(spec.flops(workload)), float(spec.bytes_moved(workload))
    if target.backend == "interpreter":
        return Roofline(flops=flops, bytes_moved=moved)
    one = set_bytes(spec, workload)
    cycled = one * operand_sets(one, target.l2_bytes) if operand_bytes is None else operand_bytes
    # The highest rate among its dtypes: a kernel may convert to any of them, and a floor must hold for all.
    peak = max((target.tflops[dtype] for dtype in workload.dtypes.values() if dtype in target.tflops), default=0.0)
    cold = target.bandwidth_gb_s > 0 and cycled >= COLD_L2_MULTIPLE * target.l2_bytes
    return Roofline(
        flops=flops,
        bytes_moved=moved,
        compute_us=flops / peak * 1e-6 if peak else None,
        memory_us=moved / target.bandwidth_gb_s * 1e-3 if cold else None,
    )


def floor_us(spec: OperatorSpec, workload: Workload, target: Target) -> float | None:
    """The least time in µs that the target's peak rates allow the workload; None where no rate is known."""
    return roofline(spec, workload, target).floor_us


def set_bytes(spec: OperatorSpec, workload: Workload) -> int:
    """Bytes of one call's operands: inputs and outputs."""
    specs = [*spec.inputs(workload).values(), *spec.outputs(workload).values()]
    return sum(item.nbytes for item in specs if isinstance(item, TensorSpec))


def operand_sets(one_set_bytes: int, l2_bytes: int, memory_bytes: int | None = None) -> int:
    """How many copies of a call's operands to rotate through, so that none is found in L2.

    Args:
        one_set_bytes: bytes of one copy.
        l2_bytes: second-level cache of the device.
        memory_bytes: what the copies may take of device memory; not bounded where None.
    """
    wanted = ceil(COLD_L2_MULTIPLE * l2_bytes / max(one_set_bytes, 1))
    affordable = MAX_OPERAND_SETS if memory_bytes is None else memory_bytes // max(one_set_bytes, 1)
    return max(1, min(wanted, MAX_OPERAND_SETS, affordable))
