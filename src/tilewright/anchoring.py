"""Anchors: fixed kernels that tell how fast a device is at the moment, and the time each stands for. Pure.

A large GEMM read 187 µs on a cool H200 and 213 to 222 µs after seconds of load (2026-11). Under random heat and idling, the
coefficient of variation of its time fell from 5.9% to 0.83% as a ratio to a compute-bound anchor timed just before and after, that of
a GEMM of 16 rows from 2.5% to 0.59% with a memory-bound one, and to 1.4% with the wrong kind.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

from tilewright.operator import OperatorSpec
from tilewright.roofline import COLD_L2_MULTIPLE
from tilewright.target import Target
from tilewright.workload import Workload

AnchorKind = Literal["compute", "memory"]

# Shares of the data sheet's peaks. A convention: they fix what anchored microseconds mean, and any others would rank the same.
# cuBLAS reached 0.65 (hot) to 0.74 (cool) of an H200's peak at 4096³ bf16, 2026-11; guess: a copy reaches 0.9.
COMPUTE_SHARE: Final = 0.70
MEMORY_SHARE: Final = 0.90

_EDGE: Final = 4096  # rows and columns of the product: some 4 waves of large tiles on 132 multiprocessors
COMPUTE_US: Final = 100.0  # guess: long beside the 0.5 µs resolution of events, short beside 25 ms a candidate
_LEAST_COPY_BYTES: Final = 2**24  # guess: for targets whose L2 is not known
_MIB: Final = 2**20


@dataclass(frozen=True, slots=True, kw_only=True)
class AnchorPlan:
    """What an anchor does, and the time that it stands for.

    Attributes:
        kind: what bounds it.
        nominal_us: its time at the stated share of the target's peak.
        dtype: torch's name of its operands' dtype.
        shape: of the product [M, K] @ [K, N], as (M, N, K); empty for a copy.
        copy_bytes: bytes that are read, and as many that are written; 0 for a product.
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
    return plans


def anchor_kind(spec: OperatorSpec, workload: Workload, target: Target) -> AnchorKind:
    """What bounds a workload on a target, by its peak rates: `memory` where the rate of its dtypes is not known."""
    peak = max((target.tflops[dtype] for dtype in workload.dtypes.values() if dtype in target.tflops), default=0.0)
    if not peak:
        return "memory"
    if not target.bandwidth_gb_s:
        return "compute"
    return "compute" if float(spec.flops(workload)) / peak * 1e-6 >= float(spec.bytes_moved(workload)) / target.bandwidth_gb_s * 1e-3 else "memory"
