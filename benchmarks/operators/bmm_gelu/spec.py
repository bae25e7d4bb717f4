"""Batched matrix product with bias and GELU: out[b] = gelu(a[b] @ b[b] + bias[b]), GELU by erf."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tilewright.errors import UsageError
from tilewright.operator import OperatorSpec, ScalarSpec, TensorArg, TensorSpec, Tolerance
from tilewright.workload import DTYPE_BYTES, Workload

UNIT_ROUNDOFF: Final[Mapping[str, float]] = {"float16": 2.0**-11, "bfloat16": 2.0**-8}


def _ints(workload: Workload) -> tuple[int, int, int, int]:
    return workload.dims["batch"], workload.dims["M"], workload.dims["N"], workload.dims["K"]


def inputs(workload: Workload) -> dict[str, TensorSpec | ScalarSpec]:
    """a [batch, M, K], b [batch, K, N], bias [batch, N], all contiguous."""
    batch, m, n, k = _ints(workload)
    dtype = workload.dtypes["dtype"]
    return {
        "a": TensorSpec(shape=(batch, m, k), dtype=dtype),
        "b": TensorSpec(shape=(batch, k, n), dtype=dtype),
        "bias": TensorSpec(shape=(batch, n), dtype=dtype),
    }


def outputs(workload: Workload) -> dict[str, TensorSpec]:
    """out [batch, M, N]."""
    batch, m, n, _ = _ints(workload)
    return {"out": TensorSpec(shape=(batch, m, n), dtype=workload.dtypes["dtype"])}


def flops(workload: Workload) -> float:
    """The product alone; bias and GELU hide behind it."""
    batch, m, n, k = _ints(workload)
    return 2.0 * batch * m * n * k


def bytes_moved(workload: Workload) -> float:
    """Operands and bias read once, the result written once."""
    batch, m, n, k = _ints(workload)
    return float(batch * (m * k + k * n + n + m * n) * DTYPE_BYTES[workload.dtypes["dtype"]])


def tolerance(workload: Workload) -> Tolerance:
    """Rounding of the result to its dtype, and an fp32 sum over K. A sum errs relative to itself, and gelu(x) has 0.65 of the rms of x."""
    k = workload.dims["K"]
    rounding = UNIT_ROUNDOFF[workload.dtypes["dtype"]]
    summing = 2.0 * 2.0**-22 * k**0.5
    # Of normal x, the largest gelu(x) is some 6 times rms(x), so 9 times rms(gelu(x)); with few products to a sum the tail is longer.
    largest = 10.0 + 24.0 / k**0.5
    return Tolerance(
        rel_norm=1.25 * rounding + summing,
        # A vendor's separate product, addition and GELU round three times; at the largest results that may add up to some twice one rounding.
        max_error=largest * (2.0 * rounding + summing),
        reason=f"rounding to the dtype ({rounding:.1e}), and an fp32 sum of K={k} products, relative to gelu's smaller rms (2**-21 * sqrt(K) = {summing:.1e})",
    )


def _contiguous(tensor: TensorArg) -> bool:
    """Row-major without padding; a dim of extent 1 has no meaningful stride."""
    expected = 1
    for extent, stride in zip(reversed(tensor.shape), reversed(tensor.strides), strict=True):
        if extent > 1 and stride != expected:
            return False
        expected *= extent
    return True


def infer(args: Mapping[str, TensorArg]) -> dict[str, int | str]:
    """The workload of a call's a, b and bias.

    Raises:
        UsageError: shapes or dtypes do not fit, or a tensor is not contiguous.
    """
    a, b, bias = args["a"], args["b"], args["bias"]
    if len(a.shape) != 3 or len(b.shape) != 3:
        raise UsageError(f"bmm_gelu: a is {list(a.shape)}, b is {list(b.shape)}; they must be [batch, M, K] and [batch, K, N]")
    batch, m, k = a.shape
    n = b.shape[2]
    if b.shape[:2] != (batch, k):
        raise UsageError(f"bmm_gelu: a {list(a.shape)} and b {list(b.shape)} do not multiply; b must be [{batch}, {k}, N]")
    if bias.shape != (batch, n):
        raise UsageError(f"bmm_gelu: bias is {list(bias.shape)}; it must be [{batch}, {n}]: use .expand(...).contiguous() for one of all batches")
    if not a.dtype == b.dtype == bias.dtype:
        raise UsageError(f"bmm_gelu: a is {a.dtype}, b is {b.dtype}, bias is {bias.dtype}; all must have one dtype")
    for name, tensor in (("a", a), ("b", b), ("bias", bias)):
        if not _contiguous(tensor):
            raise UsageError(f"bmm_gelu: {name} of shape {list(tensor.shape)} has strides {list(tensor.strides)}; pass {name}.contiguous()")
    return {"batch": batch, "M": m, "N": n, "K": k, "dtype": a.dtype}


SPEC: Final = OperatorSpec(
    name="bmm_gelu",
    summary="out = gelu(a @ b + bias) for each of a batch: fp32 sums, GELU by erf",
    dims=("batch", "M", "N", "K"),
    dtypes={"dtype": ("float16", "bfloat16")},
    arguments=("a", "b", "bias"),
    inputs=inputs,
    outputs=outputs,
    flops=flops,
    bytes_moved=bytes_moved,
    tolerance=tolerance,
    infer=infer,
    workload_sets={
        "smoke": [{"batch": 2, "M": 64, "N": 72, "K": 64}, {"batch": 3, "M": 17, "N": 35, "K": 50}],
        "experts": [{"batch": 8, "M": m, "N": 1408, "K": 2048, "dtype": "bfloat16"} for m in (64, 128, 256, 512)],
        "heads": [{"batch": 64, "M": 512, "N": 512, "K": 64}, {"batch": 96, "M": 512, "N": 64, "K": 512}],
    },
    buckets={"M": (1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048)},
    schedules=("tiles", "persistent"),
)
