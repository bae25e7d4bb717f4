"""Flash decoding: one query row per head against a cache of keys and values; group query heads share one kv head."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tilewright.errors import UsageError
from tilewright.operator import OperatorSpec, ScalarSpec, TensorArg, TensorSpec, Tolerance
from tilewright.workload import DTYPE_BYTES, Workload

UNIT_ROUNDOFF: Final[Mapping[str, float]] = {"float16": 2.0**-11, "bfloat16": 2.0**-8}
HEAD_DIMS: Final = (64, 128)


def _dims(workload: Workload) -> tuple[int, int, int, int, int]:
    d = workload.dims
    return d["batch"], d["kv_heads"], d["group"], d["kv_len"], d["head_dim"]


def inputs(workload: Workload) -> dict[str, TensorSpec | ScalarSpec]:
    """q [batch, kv_heads * group, head_dim]; k and v [batch, kv_heads, kv_len, head_dim]."""
    batch, kv_heads, group, kv_len, head_dim = _dims(workload)
    dtype = workload.dtypes["dtype"]
    cache = TensorSpec(shape=(batch, kv_heads, kv_len, head_dim), dtype=dtype)
    return {"q": TensorSpec(shape=(batch, kv_heads * group, head_dim), dtype=dtype), "k": cache, "v": cache}


def outputs(workload: Workload) -> dict[str, TensorSpec]:
    """out, like q."""
    batch, kv_heads, group, _, head_dim = _dims(workload)
    return {"out": TensorSpec(shape=(batch, kv_heads * group, head_dim), dtype=workload.dtypes["dtype"])}


def flops(workload: Workload) -> float:
    """Two products: q with each key, and each weight with its value."""
    batch, kv_heads, group, kv_len, head_dim = _dims(workload)
    return 4.0 * batch * kv_heads * group * kv_len * head_dim


def bytes_moved(workload: Workload) -> float:
    """k and v read once, q read and out written once."""
    batch, kv_heads, group, kv_len, head_dim = _dims(workload)
    return 2.0 * batch * kv_heads * (kv_len + group) * head_dim * DTYPE_BYTES[workload.dtypes["dtype"]]


def tolerance(workload: Workload) -> Tolerance:
    """Rounding of the result, of the weights before the second product, and fp32 arithmetic."""
    rounding = UNIT_ROUNDOFF[workload.dtypes["dtype"]]
    # Weights are rounded to the dtype for the tensor core, each on its own: in norm that adds under one rounding of the result.
    # Scores are fp32 sums of head_dim products, some 8 at most; an error of theirs is a relative one of a weight.
    arithmetic = 8 * 2.0**-22 * workload.dims["head_dim"] ** 0.5
    return Tolerance(
        rel_norm=2.25 * rounding + arithmetic,
        max_error=10 * (2 * rounding + arithmetic),
        reason=f"rounding of result and weights to the dtype ({rounding:.1e} each), fp32 scores ({arithmetic:.1e}); the largest result is under 10 rms",
    )


def infer(args: Mapping[str, TensorArg]) -> dict[str, int | str]:
    """The workload of a call's q, k and v.

    Raises:
        UsageError: shapes or dtypes do not fit together, or a tensor is not contiguous.
    """
    q, k, v = args["q"], args["k"], args["v"]
    if len(q.shape) != 3 or len(k.shape) != 4 or k.shape != v.shape:
        raise UsageError(
            f"attention_decode: q {list(q.shape)}, k {list(k.shape)}, v {list(v.shape)}: not [batch, heads, head_dim] and [batch, kv_heads, kv_len, head_dim]"
        )
    batch, kv_heads, kv_len, head_dim = k.shape
    if q.shape[0] != batch or q.shape[2] != head_dim or q.shape[1] % kv_heads:
        raise UsageError(f"attention_decode: q {list(q.shape)} and k {list(k.shape)}: batch and head_dim must agree, and heads be a multiple of kv_heads")
    if head_dim not in HEAD_DIMS:
        raise UsageError(f"attention_decode: head_dim {head_dim}; the schedules take {HEAD_DIMS}")
    if not q.dtype == k.dtype == v.dtype:
        raise UsageError(f"attention_decode: q is {q.dtype}, k {k.dtype}, v {v.dtype}; they must have one dtype")
    for name, tensor in (("q", q), ("k", k), ("v", v)):
        expected = 1
        for extent, stride in zip(reversed(tensor.shape), reversed(tensor.strides), strict=True):
            if extent > 1 and stride != expected:
                raise UsageError(f"attention_decode: {name} has strides {list(tensor.strides)}; it must be contiguous: pass {name}.contiguous()")
            expected *= extent
    return {"batch": batch, "kv_heads": kv_heads, "group": q.shape[1] // kv_heads, "kv_len": kv_len, "head_dim": head_dim, "dtype": q.dtype}


SPEC: Final = OperatorSpec(
    name="attention_decode",
    summary="out = softmax(q k^T / sqrt(head_dim)) v, one query row a head, grouped heads",
    dims=("batch", "kv_heads", "group", "kv_len", "head_dim"),
    dtypes={"dtype": ("float16", "bfloat16")},
    arguments=("q", "k", "v"),
    inputs=inputs,
    outputs=outputs,
    flops=flops,
    bytes_moved=bytes_moved,
    tolerance=tolerance,
    infer=infer,
    workload_sets={
        "smoke": [
            {"batch": 1, "kv_heads": 2, "group": 4, "kv_len": 256, "head_dim": 128},
            {"batch": 2, "kv_heads": 1, "group": 5, "kv_len": 190, "head_dim": 128},
        ],
    },
    buckets={"batch": (1, 2, 4, 8, 16, 32, 64, 128), "kv_len": (1024, 2048, 4096, 8192, 16384, 32768)},
    schedules=("split_kv", "one_pass"),
)
