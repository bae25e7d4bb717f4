"""Anchors: fixed kernels that tell how fast a device is at the moment, and the time each stands for. Pure.

A large GEMM read 187 µs on a cool H200 and 213 to 222 µs after seconds of load (2026-11). Under random heat and idling, the
coefficient of variation of its time fell from 5.9% to 0.83% as a ratio to a compute-bound anchor timed just before and after, that of
a GEMM of 16 rows from 2.5% to 0.59% with a memory-bound one, and to 1.4% with the wrong kind.

What a kernel takes beside its work has moods of its own: for some tenths of a second, in whatever process, an empty kernel of a graph took
0.53 µs in place of 0.70, a normalisation of 3.6 µs took 3.23, a GEMM in two kernels 17.0 in place of 17.5, and a copy past L2 the same
as ever. So it is told by a short kernel, and counts by kernels (decision 0020).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, Literal

from tilewright.measured import Anchor
from tilewright.operator import OperatorSpec
from tilewright.roofline import COLD_L2_MULTIPLE
from tilewright.target import Target
from tilewright.workload import Workload

AnchorKind = Literal["compute", "memory", "latency"]

# Shares of the data sheet's peaks. A convention: they fix what anchored microseconds mean, and any others would rank the same.
# cuBLAS reached 0.65 (hot) to 0.74 (cool) of an H200's peak at 4096³ bf16, 2026-11; guess: a copy reaches 0.9.
COMPUTE_SHARE: Final = 0.70
MEMORY_SHARE: Final = 0.90

# How much of the compute-bound anchor's change a time follows: a product that draws less power than cuBLAS's is held down less. From a cool to a
# hot H200, in logarithms, GEMMs of 60 to 1,300 µs slowed by 0.82 of the anchor, and under a mild power cap by 0.25 to 0.67 of it. A
# kernel of 1.2 ms, cool and hot together: cv 2.5% with 1, 1.1% with 0.75, 1.2% with 0.5, 4.3% with 0 (2026-11).
COMPUTE_EXPONENT: Final = 0.75
LATENCY_BELOW_US: Final = 100.0  # guess: above it, a change of 0.4 µs in a kernel is under 0.4%
# What the short kernel takes as a rule, by target: without such a figure there is none. H200: 2.79 µs in one mood, 2.42 in the other (2026-11).
LATENCY_US: Final[Mapping[str, float]] = MappingProxyType({"NVIDIA H200": 2.8})
_LEAST_SHARE: Final = 0.5  # guess: of a time, however the short kernel fared
LATENCY_BYTES: Final = 2**21  # that the short kernel reads, and writes

_EDGE: Final = 4096  # rows and columns of the product: some 4 waves of large tiles on 132 multiprocessors
COMPUTE_US: Final = 100.0  # guess: long beside the 0.5 µs resolution of events, short beside 25 ms a candidate
_LEAST_COPY_BYTES: Final = 2**24  # guess: for targets whose L2 is not known
_MIB: Final = 2**20


@dataclass(frozen=True, slots=True, kw_only=True)
class AnchorPlan:
    """What an anchor does, and the time that it stands for.

    Attributes:
        kind: what bounds it.
        nominal_us: its time at the stated share of the target's peak; of the short kernel, what it takes as a rule.
        dtype: torch's name of its operands' dtype.
        shape: of the product [M, K] @ [K, N], as (M, N, K); empty for a copy.
        copy_bytes: bytes that a call reads, and as many that it writes; 0 for a product.
    """

    kind: AnchorKind
    nominal_us: float
    dtype: str
    shape: tuple[int, ...] = ()
    copy_bytes: int = 0


def anchor_plans(target: Target) -> Mapping[AnchorKind, AnchorPlan]:
    """The anchors of a target, by kind; none of a kind whose peak rate is not known, nor under the interpreter."""
    if target.backend == "interpreter":
        return {}
    plans: dict[AnchorKind, AnchorPlan] = {}
    dtype = next((name for name in ("bfloat16", "float16") if target.tflops.get(name)), "")
    if dtype:
        rate = target.tflops[dtype] * 1e6 * COMPUTE_SHARE  # operations a µs
        k = max(256, round(COMPUTE_US * rate / (2 * _EDGE * _EDGE) / 256) * 256)
        plans["compute"] = AnchorPlan(kind="compute", nominal_us=round(2 * _EDGE * _EDGE * k / rate, 3), dtype=dtype, shape=(_EDGE, _EDGE, k))
    if target.bandwidth_gb_s:
        # Source and destination together are past the cache, as rotating operands are.
        size = -(-max(_LEAST_COPY_BYTES, COLD_L2_MULTIPLE * target.l2_bytes * 3 // 4) // _MIB) * _MIB
        nominal = 2 * size / (target.bandwidth_gb_s * 1e3 * MEMORY_SHARE)
        plans["memory"] = AnchorPlan(kind="memory", nominal_us=round(nominal, 3), dtype="float32", copy_bytes=size)
        if target.name in LATENCY_US:
            plans["latency"] = AnchorPlan(kind="latency", nominal_us=LATENCY_US[target.name], dtype="float32", copy_bytes=LATENCY_BYTES)
    return plans


def anchored_us(median_us: float, *, anchor: Anchor | None, latency: Anchor | None, kernels: float | None) -> float | None:
    """A time at the anchors' nominal times, in µs; None where no anchor tells anything.

    Args:
        median_us: as measured.
        anchor: of the kind that bounds the workload.
        latency: the short kernel.
        kernels: of one call: what the short kernel took too long or too short, each of them did.
    """
    time_us = median_us
    if latency is not None and latency.median_us and kernels:
        time_us = max(time_us - kernels * (latency.median_us - latency.nominal_us), _LEAST_SHARE * time_us)
    elif anchor is None or not anchor.median_us:
        return None
    if anchor is not None and anchor.median_us:
        time_us *= (anchor.nominal_us / anchor.median_us) ** (COMPUTE_EXPONENT if anchor.kind == "compute" else 1.0)
    return time_us


def anchor_kind(spec: OperatorSpec, workload: Workload, target: Target) -> AnchorKind:
    """What bounds a workload on a target, by its peak rates: `memory` where the rate of its dtypes is not known."""
    peak = max((target.tflops[dtype] for dtype in workload.dtypes.values() if dtype in target.tflops), default=0.0)
    if not peak:
        return "memory"
    if not target.bandwidth_gb_s:
        return "compute"
    return "compute" if float(spec.flops(workload)) / peak * 1e-6 >= float(spec.bytes_moved(workload)) / target.bandwidth_gb_s * 1e-3 else "memory"
