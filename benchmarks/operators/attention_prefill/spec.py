"""Attention of a whole prompt: out = softmax(q k^T / sqrt(head_dim)) v, causal or not."""

from __future__ import annotations

from collections.abc import Mapping
from math import log
from typing import Final

from tilewright.errors import UsageError
from tilewright.operator import OperatorSpec, ScalarSpec, TensorArg, TensorSpec, Tolerance
from tilewright.workload import DTYPE_BYTES, Workload

UNIT_ROUNDOFF: Final[Mapping[str, float]] = {"float16": 2.0**-11, "bfloat16": 2.0**-8}
HEAD_DIMS: Final = (64, 128)


def _dims(workload: Workload) -> tuple[int, int, int, int]:
    d = workload.dims
    return d["batch"], d["heads"], d["seq"], d["head_dim"]


def _tensor(workload: Workload) -> TensorSpec:
    return TensorSpec(shape=_dims(workload), dtype=workload.dtypes["dtype"])


def inputs(workload: Workload) -> dict[str, TensorSpec | ScalarSpec]:
    """q, k and v, all [batch, heads, seq, head_dim]."""
    return {name: _tensor(workload) for name in ("q", "k", "v")}


def outputs(workload: Workload) -> dict[str, TensorSpec]:
    """out, like q."""
    return {"out": _tensor(workload)}


def flops(workload: Workload) -> float:
    """Two products over the pairs of query and key that are not masked."""
    batch, heads, seq, head_dim = _dims(workload)
    pairs = seq * (seq + 1) / 2 if workload.layout["causal"] == "yes" else seq * seq
    return 4.0 * batch * heads * pairs * head_dim


def bytes_moved(workload: Workload) -> float:
    """Three tensors read, one written."""
    batch, heads, seq, head_dim = _dims(workload)
    return 4.0 * batch * heads * seq * head_dim * DTYPE_BYTES[workload.dtypes["dtype"]]


def tolerance(workload: Workload) -> Tolerance:
    """Rounding of the result, of the weights before the second product, and fp32 arithmetic."""
    seq = workload.dims["seq"]
    rounding = UNIT_ROUNDOFF[workload.dtypes["dtype"]]
    # As for attention_decode: weights are rounded to the dtype for the tensor core; scores are fp32 sums.
    arithmetic = 8 * 2.0**-22 * workload.dims["head_dim"] ** 0.5
    # With normal inputs a row is an average of n values weighted by exp(normal), of rms sqrt(e / n); the largest of many is under 10 times
    # that. Under a causal mask the first rows are values themselves (6 at most), and the rms over all is near sqrt(e * log(seq) / seq).
    largest = 10.0
    if workload.layout["causal"] == "yes":
        largest = max(largest, 6.0 * (seq / (2.7 * max(1.0, log(seq)))) ** 0.5)
    return Tolerance(
        rel_norm=2.25 * rounding + arithmetic,
        max_error=largest * (2 * rounding + arithmetic),
        reason=f"rounding of result and weights to the dtype ({rounding:.1e} each), fp32 scores ({arithmetic:.1e}); results under {largest:.0f} rms",
    )


def infer(args: Mapping[str, TensorArg]) -> dict[str, int | str]:
    """The workload of a call's q, k and v. Tensors do not say whether the mask is causal: a call is taken to be.

    Raises:
        UsageError: shapes or dtypes do not fit together, or a tensor is not contiguous.
    """
    q, k, v = args["q"], args["k"], args["v"]
    if len(q.shape) != 4 or not q.shape == k.shape == v.shape:
        raise UsageError(f"attention_prefill: q {list(q.shape)}, k {list(k.shape)} and v {list(v.shape)} must be [batch, heads, seq, head_dim], all alike")
    batch, heads, seq, head_dim = q.shape
    if head_dim not in HEAD_DIMS:
        raise UsageError(f"attention_prefill: head_dim {head_dim}; the schedules take {HEAD_DIMS}")
    if not q.dtype == k.dtype == v.dtype:
        raise UsageError(f"attention_prefill: q is {q.dtype}, k {k.dtype}, v {v.dtype}; they must have one dtype")
    for name, tensor in (("q", q), ("k", k), ("v", v)):
        expected = 1
        for extent, stride in zip(reversed(tensor.shape), reversed(tensor.strides), strict=True):
            if extent > 1 and stride != expected:
                raise UsageError(f"attention_prefill: {name} has strides {list(tensor.strides)}; it must be contiguous: pass {name}.contiguous()")
            expected *= extent
    return {"batch": batch, "heads": heads, "seq": seq, "head_dim": head_dim, "dtype": q.dtype, "causal": "yes"}


SPEC: Final = OperatorSpec(
    name="attention_prefill",
    summary="out = softmax(q k^T / sqrt(head_dim)) v over a whole prompt, causal or not",
    dims=("batch", "heads", "seq", "head_dim"),
    dtypes={"dtype": ("float16", "bfloat16")},
    layouts={"causal": ("yes", "no")},
    arguments=("q", "k", "v"),
    inputs=inputs,
    outputs=outputs,
    flops=flops,
    bytes_moved=bytes_moved,
    tolerance=tolerance,
    infer=infer,
    workload_sets={
        "smoke": [
            {"batch": 1, "heads": 2, "seq": 128, "head_dim": 64, "causal": "yes"},
            {"batch": 2, "heads": 1, "seq": 100, "head_dim": 128, "causal": "no"},
        ],
    },
    buckets={"batch": (1, 2, 4, 8), "seq": (512, 1024, 2048, 4096, 8192)},
    schedules=("pointers", "tma"),
)
