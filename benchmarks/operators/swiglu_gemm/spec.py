"""SwiGLU's first half: out[M, N] = silu(x @ wg) * (x @ wu), both products in one kernel."""

from __future__ import annotations

from tilewright.errors import UsageError
from tilewright.operator import OperatorSpec, TensorSpec, Tolerance
from tilewright.workload import DTYPE_BYTES

UNIT_ROUNDOFF = {"bfloat16": 2.0**-8, "float16": 2.0**-11}
TOKENS = (16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192)


def _mnk(w):
    return w.dims["M"], w.dims["N"], w.dims["K"]


def inputs(w):
    m, n, k = _mnk(w)
    dtype = w.dtypes["dtype"]
    return {
        "x": TensorSpec(shape=(m, k), dtype=dtype),
        "wg": TensorSpec(shape=(k, n), dtype=dtype),
        "wu": TensorSpec(shape=(k, n), dtype=dtype),
    }


def outputs(w):
    m, n, _ = _mnk(w)
    return {"out": TensorSpec(shape=(m, n), dtype=w.dtypes["dtype"])}


def flops(w):
    m, n, k = _mnk(w)
    return 4.0 * m * n * k


def bytes_moved(w):
    m, n, k = _mnk(w)
    return float((m * k + 2 * k * n + m * n) * DTYPE_BYTES[w.dtypes["dtype"]])


def tolerance(w):
    k = w.dims["K"]
    rounding = UNIT_ROUNDOFF[w.dtypes["dtype"]]
    # Two fp32 sums over K, each off by some 2**-24 sqrt(K) (tensor cores truncate: four times that); silu's slope is at most 1.1,
    # and silu(g) * u has an rms of 0.6 where g and u have one of 1, so that an absolute error of either counts for under twice itself.
    summing = 4 * 2.0**-22 * k**0.5
    # Where g = u = 5 or so at once, the result is 25, and the rms 0.6: some 30 times the rms over 1e8 elements. Few products to a sum
    # have longer tails.
    largest = 32.0 + 64.0 / k**0.5
    return Tolerance(
        rel_norm=1.25 * rounding + summing,
        max_error=largest * (rounding + summing),
        reason=f"rounding to the dtype ({rounding:.1e}), fp32 sums of K={k} products ({summing:.1e}); the largest result is some {largest:.0f} times the rms",
    )


def infer(args):
    x, wg, wu = args["x"], args["wg"], args["wu"]
    for name, t in args.items():
        if len(t.shape) != 2:
            raise UsageError(f"swiglu_gemm: {name} has shape {list(t.shape)}; it must have two dims")
        rows, cols = t.shape
        if (cols > 1 and t.strides[1] != 1) or (rows > 1 and t.strides[0] != cols):
            raise UsageError(f"swiglu_gemm: {name} has strides {list(t.strides)}; it must be contiguous: pass {name}.contiguous()")
        if t.dtype != x.dtype:
            raise UsageError(f"swiglu_gemm: x is {x.dtype}, {name} is {t.dtype}; all must have one dtype")
    if wg.shape != wu.shape or x.shape[1] != wg.shape[0]:
        raise UsageError(f"swiglu_gemm: x {list(x.shape)}, wg {list(wg.shape)}, wu {list(wu.shape)} do not fit; want [M, K], [K, N], [K, N]")
    return {"M": x.shape[0], "N": wg.shape[1], "K": x.shape[1], "dtype": x.dtype}


SPEC = OperatorSpec(
    name="swiglu_gemm",
    summary="out = silu(x @ wg) * (x @ wu), sums and activation in fp32",
    dims=("M", "N", "K"),
    dtypes={"dtype": ("bfloat16", "float16")},
    arguments=("x", "wg", "wu"),
    inputs=inputs,
    outputs=outputs,
    flops=flops,
    bytes_moved=bytes_moved,
    tolerance=tolerance,
    infer=infer,
    workload_sets={
        "smoke": [{"M": 40, "N": 72, "K": 96, "dtype": "float16"}, {"M": 33, "N": 50, "K": 77, "dtype": "float16"}],
        "llama3-8b": [{"M": m, "N": 14336, "K": 4096} for m in TOKENS],
    },
    buckets={"M": TOKENS},
    schedules=("tiles", "persistent", "split_k"),
)
