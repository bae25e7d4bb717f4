"""What a record holds of a candidate's build, check and times."""

from __future__ import annotations

from math import inf
from typing import Annotated, TypeAlias

import msgspec

# Checked in decoding: a line with a time that cannot be is damaged, for all who read logs, and never competes.
TimeUs: TypeAlias = Annotated[float, msgspec.Meta(gt=0)]
# So is one with a build that needs less than nothing, which searches would learn from.
Count: TypeAlias = Annotated[int, msgspec.Meta(ge=0)]


class Resources(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """What the binaries of a candidate need. Of several kernels, registers, warps and programs are those of the one that does most of the
    work (docs/decisions/0026); what a limit or the memory has to hold is the largest over all of them. Older builds may mix kernels.

    Attributes:
        shared_memory_bytes: shared memory of a block, the most.
        registers: registers of a thread; None where the target's binary does not say.
        spill_bytes: bytes spilled by register allocation (stores and loads), the most; None where not known.
        stack_bytes: stack frame of a thread, the most.
        scratch_bytes: global scratch that the kernels and the workspace of `launch` ask for.
        num_warps: warps of a block.
        programs: blocks of the launch; they are this workload's, whatever else the binary serves. None where not known.
    """

    shared_memory_bytes: Count
    registers: Count | None = None
    spill_bytes: Count | None = None
    stack_bytes: Count | None = None
    scratch_bytes: Count = 0
    num_warps: Count | None = None
    programs: Count | None = None


class Check(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """The correctness verdict: the largest errors over the outputs, what was allowed, and the ragged neighbour checked too."""

    rel_norm: float
    max_error: float
    rel_norm_allowed: float
    max_error_allowed: float
    ragged: str = ""


class Anchor(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """A fixed kernel that was timed around a candidate, on the same device at the same moment.

    Attributes:
        kind: `compute` (a matrix product) or `memory` (a copy), whichever bounds the workload; `latency` (a short kernel) beside it.
        median_us: what it took.
        nominal_us: what it stands for: the time that the target's data sheet lets expect, or of a short kernel, what it takes as a
            rule. Always the same for a target, so that times anchored in two sessions compare.
        samples: how many.
    """

    kind: str
    median_us: Annotated[float, msgspec.Meta(ge=0)]  # 0: too short for the clock, and then no anchor
    nominal_us: TimeUs
    samples: int = 1


class DeviceState(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """What NVML said while a candidate ran; fields that it refuses are left out.

    Attributes:
        sm_mhz, memory_mhz: clocks.
        power_w: drawn.
        temperature_c: of the chip.
        throttle: why clocks are held down, such as `sw_power_cap`; empty where they are not.
    """

    sm_mhz: int | None = None
    memory_mhz: int | None = None
    power_w: float | None = None
    temperature_c: int | None = None
    throttle: list[str] = msgspec.field(default_factory=list)


class Measurement(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """Times of one candidate.

    Attributes:
        protocol: name of the timing protocol (`graph/3`, `events/3`, `interpreter/1`, or a recording's); times compare only
            within one.
        median_us, min_us, max_us: of one call, over the samples; the median is above 0.
        cv: coefficient of variation of the samples.
        samples: how many.
        times_us: the samples, where kept.
        anchor: the kernel that tells how fast the device was at that moment; None where none was timed.
        latency: the short kernel that tells what a kernel took beside its work at that moment; None where none was timed.
        kernels: of one call; None where not known.
        anchored_us: what it is ranked by, at the anchors' nominal times; None by a protocol from before `graph/3`, or without anchors.
        state: clocks, power and throttling meanwhile, where they could be read.
    """

    protocol: str
    median_us: TimeUs
    min_us: float
    max_us: float
    cv: float = 0.0
    samples: int = 1
    times_us: list[float] = msgspec.field(default_factory=list)
    anchor: Anchor | None = None
    state: DeviceState | None = None
    latency: Anchor | None = None
    kernels: float | None = None
    anchored_us: TimeUs | None = None

    @property
    def ranked_us(self) -> float:
        """What it is ranked by: the time at the anchors' nominal times; as measured where there is no anchor, or one that makes no time of it."""
        if self.anchored_us is not None:
            return self.anchored_us
        if self.anchor is None or not self.anchor.median_us:
            return self.median_us
        anchored = self.median_us * self.anchor.nominal_us / self.anchor.median_us
        return round(anchored if anchored < inf else self.median_us, 3)
