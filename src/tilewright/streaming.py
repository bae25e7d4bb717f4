"""The time of a kernel that passes over its operands once, by what its build needs: how much of device memory is on its way at a time. Pure."""

from __future__ import annotations

from math import ceil
from typing import Final

from tilewright.product import overlapped
from tilewright.record import Resources
from tilewright.target import Target

# All constants are fitted, and rounded, to the memory-bound workloads of five recorded spaces (softmax, rms_norm, attention_decode, layer_norm_backward,
# moe_gemm with up to four tokens an expert; H200, Triton 3.6, graph replay, November 2026): the best of the first one, four and eight by estimate among
# 64 random builds. Decision 0028 has figures, also of those left out of the fit.

# From asking for memory to having it while the device is busy, in µs.
_LATENCY_US: Final = 2.3
# Registers of a thread that hold nothing that is on its way.
_OTHER_REGISTERS: Final = 28
_LEAST_REGISTERS: Final = 8
_REGISTER_BYTES: Final = 4
# Bytes on their way of a program that has room for fewer: some are worked on as they come.
_LEAST_IN_FLIGHT_BYTES: Final = 7_200
# Share of the data sheet's bandwidth that is reached, and how many times its share of that a multiprocessor may draw.
_DRAM_SHARE: Final = 0.94
_MOST_OF_SHARE: Final = 3.0
# What a byte costs that is spilled and read back, in bytes of device memory.
_SPILLED: Final = 0.2
# How sharply the slower of two overlapping streams dominates, as in the general estimate.
_SHARPNESS: Final = 3.4
# Power to which what is slower than the bandwidth allows is believed: 0.6 and 1 found less, or later, on the five spaces together.
_BELIEVED: Final = 0.8


def streaming_us(*, bytes_moved: float, target: Target, resources: Resources, warps: int, registers: int, resident: int, programs: int | None) -> float:
    """Estimated time in µs, without the launch.

    A multiprocessor draws what its programs have on their way in a latency: the registers of their threads and their shared memory, up to what is theirs of
    the operands. The one with the most programs is done last.

    Args:
        bytes_moved: of the workload.
        target: bandwidth and multiprocessors.
        resources: shared memory and what is spilled.
        warps: of a program.
        registers: of a thread.
        resident: programs that a multiprocessor holds at a time.
        programs: of the launch; as many as the device holds where not known.
    """
    if bytes_moved <= 0:
        return 0.0
    sms = target.sm_count
    bandwidth = (target.bandwidth_gb_s or 1000.0) * 1e3 * _DRAM_SHARE
    threads = warps * target.warp_size
    programs = programs or sms * resident
    share = bytes_moved / programs
    room = threads * max(registers - _OTHER_REGISTERS, _LEAST_REGISTERS) * _REGISTER_BYTES + resources.shared_memory_bytes
    in_flight = min(share, max(room, _LEAST_IN_FLIGHT_BYTES))
    busiest = ceil(programs / sms)
    drawn = min(_MOST_OF_SHARE * bandwidth / sms, min(resident, busiest) * in_flight / _LATENCY_US)
    # What is spilled passes by with each trip over what is on its way.
    spilled = (resources.spill_bytes or 0) * threads * programs * (share / in_flight) * _SPILLED / bandwidth
    moving = bytes_moved / bandwidth
    slower = (overlapped(moving, busiest * share / drawn, sharpness=_SHARPNESS) + spilled) / moving
    return float(moving * slower**_BELIEVED)
