"""Convolution of stride 1, padded so that the image keeps its size: out[b, y, x, :] = sum over r, s of x[b, y+r-R//2, x+s-S//2, :] @ w[:, r, s, :].T."""

from __future__ import annotations

from tilewright.errors import UsageError
from tilewright.operator import OperatorSpec, TensorSpec, Tolerance

HALF = 2


def inputs(workload):
    d = workload.dims
    dtype = workload.dtypes["dtype"]
    return {
        "x": TensorSpec(shape=(d["batch"], d["H"], d["W"], d["C"]), dtype=dtype),
        "w": TensorSpec(shape=(d["OC"], d["R"], d["S"], d["C"]), dtype=dtype),
    }


def outputs(workload):
    d = workload.dims
    oh = d["H"] + 2 * (d["R"] // 2) - d["R"] + 1
    ow = d["W"] + 2 * (d["S"] // 2) - d["S"] + 1
    return {"out": TensorSpec(shape=(d["batch"], oh, ow, d["OC"]), dtype=workload.dtypes["dtype"])}


def _taps(extent, taps):
    """How many (output, tap) pairs along one axis read a pixel of the image, not of the padding."""
    pad = taps // 2
    return sum(max(0, min(extent, extent + pad - t) - max(0, pad - t)) for t in range(taps))


def flops(workload):
    d = workload.dims
    # Products with the padding need not be done.
    return 2.0 * d["batch"] * _taps(d["H"], d["R"]) * _taps(d["W"], d["S"]) * d["C"] * d["OC"]


def bytes_moved(workload):
    d = workload.dims
    pixels = d["batch"] * d["H"] * d["W"]
    return float(HALF * (pixels * d["C"] + d["R"] * d["S"] * d["C"] * d["OC"] + pixels * d["OC"]))


def tolerance(workload):
    d = workload.dims
    k = d["R"] * d["S"] * d["C"]
    rounding = 2.0**-11
    summing = 2.0**-22 * k**0.5  # fp32 sums; tensor cores truncate, hence four times the usual
    largest = 8.0 + 24.0 / k**0.5
    return Tolerance(
        rel_norm=1.25 * rounding + summing,
        max_error=largest * (rounding + summing),
        reason=f"rounding to fp16 ({rounding:.1e}), and an fp32 sum of {k} products ({summing:.1e})",
    )


def infer(tensors):
    x, w = tensors["x"], tensors["w"]
    for name, t in (("x", x), ("w", w)):
        if len(t.shape) != 4:
            raise UsageError(f"conv2d_nhwc: {name} has shape {list(t.shape)}; it must have four dims")
        expected = 1
        for extent, stride in zip(reversed(t.shape), reversed(t.strides), strict=True):
            if extent > 1 and stride != expected:
                raise UsageError(f"conv2d_nhwc: {name} has strides {list(t.strides)}; pass {name}.contiguous()")
            expected *= extent
    if x.shape[3] != w.shape[3]:
        raise UsageError(f"conv2d_nhwc: x has {x.shape[3]} channels, w {list(w.shape)} takes {w.shape[3]}; x is [batch, H, W, C], w is [OC, R, S, C]")
    if w.shape[1] % 2 == 0 or w.shape[2] % 2 == 0:
        raise UsageError(f"conv2d_nhwc: a filter of {w.shape[1]} x {w.shape[2]}; both must be odd")
    if x.dtype != w.dtype:
        raise UsageError(f"conv2d_nhwc: x is {x.dtype}, w is {w.dtype}; both must have one dtype")
    batch, h, width, c = x.shape
    return {"batch": batch, "H": h, "W": width, "C": c, "OC": w.shape[0], "R": w.shape[1], "S": w.shape[2], "dtype": x.dtype}


SPEC = OperatorSpec(
    name="conv2d_nhwc",
    summary="2-D convolution, channels last, stride 1, 'same' padding, fp16 with fp32 sums",
    dims=("batch", "H", "W", "C", "OC", "R", "S"),
    dtypes={"dtype": ("float16",)},
    arguments=("x", "w"),
    inputs=inputs,
    outputs=outputs,
    flops=flops,
    bytes_moved=bytes_moved,
    tolerance=tolerance,
    infer=infer,
    schedules=("implicit_gemm", "split_reduction"),
    workload_sets={
        "smoke": [
            {"batch": 1, "H": 8, "W": 8, "C": 32, "OC": 32, "R": 3, "S": 3},
            {"batch": 2, "H": 5, "W": 7, "C": 20, "OC": 24, "R": 1, "S": 1},
        ],
    },
)
