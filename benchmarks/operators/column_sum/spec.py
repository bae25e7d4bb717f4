"""Sums of columns, as the gradient of a bias: out[j] = sum over i of x[i, j], in fp32."""

from tilewright.errors import UsageError
from tilewright.operator import OperatorSpec, TensorSpec, Tolerance
from tilewright.workload import DTYPE_BYTES


def tolerance(workload):
    rows = workload.dims["rows"]
    # A running fp32 sum of terms of random sign rounds at each step by up to 2**-24 of what it has reached. One lane that adds all rows up
    # errs by 0.05 * 2**-24 * sqrt(rows) of the result's rms (fp16, simulated; 0.02 for bf16, most of whose sums are exact), more lanes by
    # less. Five times that, and one rounding; the largest of many columns is some 6 times the rms.
    summing = 2.0**-24 * (1 + 0.25 * rows**0.5)
    return Tolerance(rel_norm=summing, max_error=6 * summing, reason=f"an fp32 sum of {rows} terms: 2**-24 * (1 + sqrt(rows) / 4) = {summing:.1e}")


def infer(tensors):
    x = tensors["x"]
    if len(x.shape) != 2:
        raise UsageError(f"column_sum: x has shape {list(x.shape)}; it must be [rows, cols] (flatten leading dims with .reshape)")
    rows, cols = x.shape
    if (cols > 1 and x.strides[1] != 1) or (rows > 1 and x.strides[0] != cols):
        raise UsageError(f"column_sum: x has strides {list(x.strides)}; pass x.contiguous()")
    return {"rows": rows, "cols": cols, "dtype": x.dtype}


SPEC = OperatorSpec(
    name="column_sum",
    summary="out = x.sum(0), in fp32",
    dims=("rows", "cols"),
    dtypes={"dtype": ("bfloat16", "float16")},
    arguments=("x",),
    inputs=lambda w: {"x": TensorSpec(shape=(w.dims["rows"], w.dims["cols"]), dtype=w.dtypes["dtype"])},
    outputs=lambda w: {"out": TensorSpec(shape=(w.dims["cols"],), dtype="float32")},
    flops=lambda w: float(w.dims["rows"] * w.dims["cols"]),
    bytes_moved=lambda w: float(w.dims["rows"] * w.dims["cols"] * DTYPE_BYTES[w.dtypes["dtype"]] + 4 * w.dims["cols"]),
    tolerance=tolerance,
    infer=infer,
    schedules=("split_rows", "whole_columns"),
    workload_sets={"smoke": [{"rows": 300, "cols": 100, "dtype": "float16"}, {"rows": 512, "cols": 128, "dtype": "float16"}]},
)
