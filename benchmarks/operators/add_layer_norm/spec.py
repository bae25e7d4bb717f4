"""Residual add and layer norm, forward: h = x + residual; y = (h - mean(h)) / sqrt(var(h) + eps) * weight + bias."""

from tilewright.errors import UsageError
from tilewright.operator import OperatorSpec, ScalarSpec, TensorSpec, Tolerance
from tilewright.workload import DTYPE_BYTES

UNIT_ROUNDOFF = {"bfloat16": 2.0**-8, "float16": 2.0**-11}
EPS = 1e-5


def inputs(w):
    shape, dtype = (w.dims["rows"], w.dims["cols"]), w.dtypes["dtype"]
    vector = TensorSpec(shape=shape[1:], dtype=dtype)
    return {
        "x": TensorSpec(shape=shape, dtype=dtype),
        "residual": TensorSpec(shape=shape, dtype=dtype),
        "weight": vector,
        "bias": vector,
        "eps": ScalarSpec(value=EPS),
    }


def outputs(w):
    both = TensorSpec(shape=(w.dims["rows"], w.dims["cols"]), dtype=w.dtypes["dtype"])
    return {"y": both, "new_residual": both}


def flops(w):
    return 8.0 * w.dims["rows"] * w.dims["cols"]


def bytes_moved(w):
    rows, cols = w.dims["rows"], w.dims["cols"]
    return float((4 * rows * cols + 2 * cols) * DTYPE_BYTES[w.dtypes["dtype"]])


def tolerance(w):
    rounding = UNIT_ROUNDOFF[w.dtypes["dtype"]]
    # Sums over a row are trees or chains of fp32 additions of at most a few hundred terms each.
    arithmetic = 64 * 2.0**-24
    return Tolerance(
        rel_norm=1.25 * rounding + arithmetic,
        max_error=10 * (rounding + arithmetic),
        reason=f"one rounding to the dtype ({rounding:.1e}) of either output, fp32 arithmetic ({arithmetic:.1e}); the largest of many normal results is under "
        "10 times their rms",
    )


def infer(args):
    x = args["x"]
    if len(x.shape) != 2:
        raise UsageError(f"add_layer_norm: x has shape {list(x.shape)}; it must be [rows, cols] (flatten leading dims with .reshape)")
    rows, cols = x.shape
    for name, t in args.items():
        shape, strides = (x.shape, (cols, 1)) if name in ("x", "residual") else ((cols,), (1,))
        if t.shape != shape:
            raise UsageError(f"add_layer_norm: {name} has shape {list(t.shape)}, wanted {list(shape)}")
        if any(got != want and extent > 1 for got, want, extent in zip(t.strides, strides, shape, strict=True)):
            raise UsageError(f"add_layer_norm: {name} has strides {list(t.strides)}; it must be contiguous: pass {name}.contiguous()")
        if t.dtype != x.dtype:
            raise UsageError(f"add_layer_norm: x is {x.dtype}, {name} is {t.dtype}; all must have one dtype")
    return {"rows": rows, "cols": cols, "dtype": x.dtype}


SPEC = OperatorSpec(
    name="add_layer_norm",
    summary="h = x + residual; y = layer_norm(h) * weight + bias; gives y and h",
    dims=("rows", "cols"),
    dtypes={"dtype": ("bfloat16", "float16")},
    arguments=("x", "residual", "weight", "bias", "eps"),
    inputs=inputs,
    outputs=outputs,
    flops=flops,
    bytes_moved=bytes_moved,
    tolerance=tolerance,
    infer=infer,
    workload_sets={"smoke": [{"rows": 5, "cols": 1000, "dtype": "float16"}, {"rows": 16, "cols": 256, "dtype": "float16"}]},
    schedules=("whole_row", "looped"),
)
