"""Grouped GEMM of a mixture of experts: out[e] = x[e] @ w[e].T for each expert, equally many tokens to each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tilewright.errors import UsageError
from tilewright.operator import OperatorSpec, ScalarSpec, TensorArg, TensorSpec, Tolerance
from tilewright.workload import DTYPE_BYTES, Workload

UNIT_ROUNDOFF: Final[Mapping[str, float]] = {"float16": 2.0**-11, "bfloat16": 2.0**-8}
TOKENS: Final = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)


def _dims(workload: Workload) -> tuple[int, int, int, int]:
    return workload.dims["E"], workload.dims["T"], workload.dims["N"], workload.dims["K"]


def inputs(workload: Workload) -> dict[str, TensorSpec | ScalarSpec]:
    """x [E, T, K] and w [E, N, K]: weights as they are stored, K contiguous."""
    e, t, n, k = _dims(workload)
    dtype = workload.dtypes["dtype"]
    return {"x": TensorSpec(shape=(e, t, k), dtype=dtype), "w": TensorSpec(shape=(e, n, k), dtype=dtype)}


def outputs(workload: Workload) -> dict[str, TensorSpec]:
    """out [E, T, N]."""
    e, t, n, _ = _dims(workload)
    return {"out": TensorSpec(shape=(e, t, n), dtype=workload.dtypes["dtype"])}


def flops(workload: Workload) -> float:
    """A multiplication and an addition for each of E * T * N * K."""
    e, t, n, k = _dims(workload)
    return 2.0 * e * t * n * k


def bytes_moved(workload: Workload) -> float:
    """Tokens and weights read once, results written once."""
    e, t, n, k = _dims(workload)
    return float(e * (t * k + n * k + t * n) * DTYPE_BYTES[workload.dtypes["dtype"]])


def tolerance(workload: Workload) -> Tolerance:
    """Rounding of the result, and an fp32 sum over K."""
    k = workload.dims["K"]
    rounding = UNIT_ROUNDOFF[workload.dtypes["dtype"]]
    summing = 2.0**-22 * k**0.5
    largest = 8.0 + 24.0 / k**0.5
    return Tolerance(
        rel_norm=1.25 * rounding + summing,
        max_error=largest * (rounding + summing),
        reason=f"rounding to the dtype ({rounding:.1e}), and an fp32 sum of K={k} products ({summing:.1e})",
    )


def infer(args: Mapping[str, TensorArg]) -> dict[str, int | str]:
    """The workload of a call's x and w.

    Raises:
        UsageError: shapes or dtypes do not fit each other, or a tensor is not contiguous.
    """
    x, w = args["x"], args["w"]
    if len(x.shape) != 3 or len(w.shape) != 3:
        raise UsageError(f"moe_gemm: x {list(x.shape)} and w {list(w.shape)} must be [E, T, K] and [E, N, K]")
    if x.shape[0] != w.shape[0] or x.shape[2] != w.shape[2]:
        raise UsageError(f"moe_gemm: x {list(x.shape)} is [E, T, K], w {list(w.shape)} is [E, N, K]; E and K must agree")
    if x.dtype != w.dtype:
        raise UsageError(f"moe_gemm: x is {x.dtype}, w is {w.dtype}; both must have one dtype")
    for name, tensor in (("x", x), ("w", w)):
        _, rows, cols = tensor.shape
        for extent, stride, expected in zip(tensor.shape, tensor.strides, (rows * cols, cols, 1), strict=True):
            if extent > 1 and stride != expected:
                raise UsageError(f"moe_gemm: {name} has strides {list(tensor.strides)}; pass {name}.contiguous()")
    return {"E": x.shape[0], "T": x.shape[1], "N": w.shape[1], "K": x.shape[2], "dtype": x.dtype}


SPEC: Final = OperatorSpec(
    name="moe_gemm",
    summary="out[e] = x[e] @ w[e].T for E experts of T tokens each: fp32 sums",
    dims=("E", "T", "N", "K"),
    dtypes={"dtype": ("float16", "bfloat16")},
    arguments=("x", "w"),
    inputs=inputs,
    outputs=outputs,
    flops=flops,
    bytes_moved=bytes_moved,
    tolerance=tolerance,
    infer=infer,
    workload_sets={
        "smoke": [{"E": 2, "T": 17, "N": 96, "K": 128}, {"E": 3, "T": 40, "N": 72, "K": 100}],
        "mixtral": [{"E": 8, "T": t, "N": 7168, "K": 4096, "dtype": "bfloat16"} for t in TOKENS],
        "qwen3-30b": [{"E": 128, "T": t, "N": 1536, "K": 2048, "dtype": "bfloat16"} for t in TOKENS if t <= 256],
        "deepseek": [{"E": 32, "T": t, "N": 512, "K": 7168, "dtype": "bfloat16"} for t in TOKENS],
    },
    buckets={"T": TOKENS},
    schedules=("grouped", "persistent"),
)
