"""Causal depthwise convolution along the sequence, with bias and SiLU, as in Mamba blocks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tilewright.errors import UsageError
from tilewright.operator import OperatorSpec, TensorArg, TensorSpec, Tolerance
from tilewright.workload import DTYPE_BYTES, Workload

UNIT_ROUNDOFF: Final[Mapping[str, float]] = {"float16": 2.0**-11, "bfloat16": 2.0**-8}


def _shape(workload: Workload) -> tuple[int, int, int]:
    return workload.dims["batch"], workload.dims["seq"], workload.dims["channels"]


def inputs(workload: Workload) -> dict[str, TensorSpec]:
    """x [batch, seq, channels], weight [channels, width], bias [channels]."""
    channels, width, dtype = workload.dims["channels"], workload.dims["width"], workload.dtypes["dtype"]
    return {
        "x": TensorSpec(shape=_shape(workload), dtype=dtype),
        "weight": TensorSpec(shape=(channels, width), dtype=dtype),
        "bias": TensorSpec(shape=(channels,), dtype=dtype),
    }


def outputs(workload: Workload) -> dict[str, TensorSpec]:
    """y [batch, seq, channels], in the dtype of x."""
    return {"y": TensorSpec(shape=_shape(workload), dtype=workload.dtypes["dtype"])}


def flops(workload: Workload) -> float:
    """A multiplication and an addition for each tap of each element."""
    batch, seq, channels = _shape(workload)
    return 2.0 * workload.dims["width"] * batch * seq * channels


def bytes_moved(workload: Workload) -> float:
    """x, weight and bias read once, y written once."""
    batch, seq, channels = _shape(workload)
    return float((2 * batch * seq * channels + channels * (workload.dims["width"] + 1)) * DTYPE_BYTES[workload.dtypes["dtype"]])


def tolerance(workload: Workload) -> Tolerance:
    """Rounding of the result to its dtype, and fp32 arithmetic before it."""
    rounding = UNIT_ROUNDOFF[workload.dtypes["dtype"]]
    # A few products, exp and a division in fp32.
    arithmetic = 16 * 2.0**-24
    # Products of two normals have long tails: the largest of 1e8 results is some 13 times their rms. A vendor that rounds the sum as well, before
    # SiLU, errs by up to twice as much there.
    return Tolerance(
        rel_norm=1.25 * rounding + arithmetic,
        max_error=28 * (rounding + arithmetic),
        reason=f"rounding to the dtype ({rounding:.1e}) and fp32 arithmetic ({arithmetic:.1e}); the largest of many results is under 14 times their rms, "
        "and may be rounded before SiLU too",
    )


def infer(args: Mapping[str, TensorArg]) -> dict[str, int | str]:
    """The workload of a call's x, weight and bias.

    Raises:
        UsageError: x is not a contiguous [batch, seq, channels], or weight or bias does not fit it.
    """
    x, weight, bias = args["x"], args["weight"], args["bias"]
    if len(x.shape) != 3:
        raise UsageError(f"depthwise_conv1d: x has shape {list(x.shape)}; it must be [batch, seq, channels]")
    batch, seq, channels = x.shape
    if any(extent > 1 and stride != want for extent, stride, want in zip(x.shape, x.strides, (seq * channels, channels, 1), strict=True)):
        raise UsageError(f"depthwise_conv1d: x has strides {list(x.strides)}; it must be contiguous, channels last: pass x.contiguous()")
    if len(weight.shape) != 2 or weight.shape[0] != channels:
        raise UsageError(f"depthwise_conv1d: weight has shape {list(weight.shape)}; it must be [{channels}, width]")
    width = weight.shape[1]
    if any(extent > 1 and stride != want for extent, stride, want in zip(weight.shape, weight.strides, (width, 1), strict=True)):
        raise UsageError(f"depthwise_conv1d: weight has strides {list(weight.strides)}; it must be contiguous: pass weight.contiguous()")
    if bias.shape != (channels,) or (channels > 1 and bias.strides != (1,)):
        raise UsageError(f"depthwise_conv1d: bias has shape {list(bias.shape)} and strides {list(bias.strides)}; it must be contiguous, of shape [{channels}]")
    if not x.dtype == weight.dtype == bias.dtype:
        raise UsageError(f"depthwise_conv1d: x is {x.dtype}, weight {weight.dtype}, bias {bias.dtype}; all must have one dtype")
    return {"batch": batch, "seq": seq, "channels": channels, "width": width, "dtype": x.dtype}


SPEC: Final = OperatorSpec(
    name="depthwise_conv1d",
    summary="y = silu(causal depthwise conv1d(x, weight) + bias) over [batch, seq, channels], in fp32",
    dims=("batch", "seq", "channels", "width"),
    dtypes={"dtype": ("float16", "bfloat16")},
    arguments=("x", "weight", "bias"),
    inputs=inputs,
    outputs=outputs,
    flops=flops,
    bytes_moved=bytes_moved,
    tolerance=tolerance,
    infer=infer,
    schedules=("tiles", "walk"),
    workload_sets={
        "smoke": [{"batch": 1, "seq": 37, "channels": 72, "width": 4}, {"batch": 2, "seq": 17, "channels": 65, "width": 3}],
        # conv widths of mamba-130m, -1.4b and -2.8b, of mamba2-2.7b with its B and C.
        "mamba": [{"batch": 4, "seq": 2048, "channels": c, "width": 4, "dtype": "bfloat16"} for c in (1536, 4096, 5120, 5376)],
    },
    buckets={"batch": (1, 2, 4, 8, 16, 32, 64), "seq": (128, 512, 1024, 2048, 4096, 8192, 16384)},
)
