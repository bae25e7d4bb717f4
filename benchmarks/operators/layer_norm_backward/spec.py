"""Backward pass of layer norm over rows: gradients of x, weight and bias, from the forward pass's mean and rstd."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tilewright.errors import UsageError
from tilewright.operator import OperatorSpec, ScalarSpec, TensorArg, TensorSpec, Tolerance
from tilewright.workload import DTYPE_BYTES, Workload

UNIT_ROUNDOFF: Final[Mapping[str, float]] = {"float16": 2.0**-11, "bfloat16": 2.0**-8}


def inputs(workload: Workload) -> dict[str, TensorSpec | ScalarSpec]:
    """dy and x [rows, cols], w [cols], and what the forward pass kept: mean and rstd [rows] in fp32."""
    rows, cols, dtype = workload.dims["rows"], workload.dims["cols"], workload.dtypes["dtype"]
    return {
        "dy": TensorSpec(shape=(rows, cols), dtype=dtype),
        "x": TensorSpec(shape=(rows, cols), dtype=dtype),
        "w": TensorSpec(shape=(cols,), dtype=dtype),
        "mean": TensorSpec(shape=(rows,), dtype="float32"),
        "rstd": TensorSpec(shape=(rows,), dtype="float32"),
    }


def outputs(workload: Workload) -> dict[str, TensorSpec]:
    """dx [rows, cols], dw and db [cols]."""
    rows, cols, dtype = workload.dims["rows"], workload.dims["cols"], workload.dtypes["dtype"]
    return {"dx": TensorSpec(shape=(rows, cols), dtype=dtype), "dw": TensorSpec(shape=(cols,), dtype=dtype), "db": TensorSpec(shape=(cols,), dtype=dtype)}


def flops(workload: Workload) -> float:
    """Normalise (2), two row sums (4), dx (4), and the column sums (3)."""
    return 13.0 * workload.dims["rows"] * workload.dims["cols"]


def bytes_moved(workload: Workload) -> float:
    """dy and x read once, dx written once, and the vectors."""
    rows, cols = workload.dims["rows"], workload.dims["cols"]
    return float((3 * rows * cols + 3 * cols) * DTYPE_BYTES[workload.dtypes["dtype"]] + 8 * rows)


def tolerance(workload: Workload) -> Tolerance:
    """Rounding of the results to the dtype, and fp32 sums over rows and columns."""
    rounding = UNIT_ROUNDOFF[workload.dtypes["dtype"]]
    arithmetic = 2.0**-22 * max(workload.dims["rows"], workload.dims["cols"]) ** 0.5
    return Tolerance(
        rel_norm=1.25 * rounding + arithmetic,
        max_error=12 * (rounding + arithmetic),
        reason=f"rounding to the dtype ({rounding:.1e}) and fp32 sums over rows and columns ({arithmetic:.1e}); results under 12 rms",
    )


def infer(args: Mapping[str, TensorArg]) -> dict[str, int | str]:
    """The workload of a call.

    Raises:
        UsageError: a shape, dtype or stride does not fit x's.
    """
    x = args["x"]
    if len(x.shape) != 2:
        raise UsageError(f"layer_norm_backward: x has shape {list(x.shape)}; it must be [rows, cols] (flatten leading dims with .reshape)")
    rows, cols = x.shape
    shapes = {"dy": (rows, cols), "x": (rows, cols), "w": (cols,), "mean": (rows,), "rstd": (rows,)}
    for name, shape in shapes.items():
        tensor = args[name]
        dtype = "float32" if name in ("mean", "rstd") else x.dtype
        if tuple(tensor.shape) != shape or tensor.dtype != dtype:
            raise UsageError(
                f"layer_norm_backward: {name} is {list(tensor.shape)} {tensor.dtype}, where x is {list(x.shape)} {x.dtype}; it must be {list(shape)} {dtype}"
            )
        if shape[-1] > 1 and tensor.strides[-1] != 1:
            raise UsageError(f"layer_norm_backward: {name} has strides {list(tensor.strides)}; pass {name}.contiguous()")
    return {"rows": rows, "cols": cols, "dtype": x.dtype}


SPEC: Final = OperatorSpec(
    name="layer_norm_backward",
    summary="dx, dw, db of layer norm over rows, in fp32",
    dims=("rows", "cols"),
    dtypes={"dtype": ("float16", "bfloat16")},
    arguments=("dy", "x", "w", "mean", "rstd"),
    inputs=inputs,
    outputs=outputs,
    flops=flops,
    bytes_moved=bytes_moved,
    tolerance=tolerance,
    infer=infer,
    workload_sets={
        "smoke": [{"rows": 16, "cols": 256}, {"rows": 37, "cols": 500}],
        "hidden": [{"rows": 4096, "cols": cols, "dtype": "bfloat16"} for cols in (768, 1024, 2048, 4096, 5120, 8192, 12288, 16384)],
    },
    buckets={"rows": (512, 1024, 2048, 4096, 8192, 16384)},
    schedules=("fused", "two_kernels"),
)
