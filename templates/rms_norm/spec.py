"""RMS norm over rows: y = x / sqrt(mean(x²) + eps) * w."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tilewright.errors import UsageError
from tilewright.operator import OperatorSpec, ScalarSpec, TensorArg, TensorSpec, Tolerance
from tilewright.workload import DTYPE_BYTES, Workload

# Half the distance between neighbouring numbers, relative: what rounding to the dtype may add.
UNIT_ROUNDOFF: Final[Mapping[str, float]] = {"float16": 2.0**-11, "bfloat16": 2.0**-8, "float32": 2.0**-24}
EPS: Final = 1e-6
ROWS: Final = (1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128, 256, 512, 1024, 1536, 2048, 3072, 4096)


def inputs(workload: Workload) -> dict[str, TensorSpec | ScalarSpec]:
    """x [rows, cols], w [cols], and eps."""
    rows, cols = workload.dims["rows"], workload.dims["cols"]
    dtype = workload.dtypes["dtype"]
    return {"x": TensorSpec(shape=(rows, cols), dtype=dtype), "w": TensorSpec(shape=(cols,), dtype=dtype), "eps": ScalarSpec(value=EPS)}


def outputs(workload: Workload) -> dict[str, TensorSpec]:
    """y [rows, cols], in the dtype of x."""
    return {"y": TensorSpec(shape=(workload.dims["rows"], workload.dims["cols"]), dtype=workload.dtypes["dtype"])}


def flops(workload: Workload) -> float:
    """Square and add, then two multiplications, for each element."""
    return 4.0 * workload.dims["rows"] * workload.dims["cols"]


def bytes_moved(workload: Workload) -> float:
    """x and w read once, y written once."""
    rows, cols = workload.dims["rows"], workload.dims["cols"]
    return float((2 * rows * cols + cols) * DTYPE_BYTES[workload.dtypes["dtype"]])


def tolerance(workload: Workload) -> Tolerance:
    """Rounding of the result to its dtype, and fp32 arithmetic before it."""
    rounding = UNIT_ROUNDOFF[workload.dtypes["dtype"]]
    # A tree of fp32 sums of squares errs by a few 2**-24, and so do division, root and two products.
    arithmetic = 16 * 2.0**-24
    return Tolerance(
        rel_norm=1.25 * rounding + arithmetic,
        max_error=10 * (rounding + arithmetic),
        reason=f"rounding to the dtype ({rounding:.1e}) and fp32 arithmetic ({arithmetic:.1e}); the largest of many normal results is under 10 times their rms",
    )


def infer(args: Mapping[str, TensorArg]) -> dict[str, int | str]:
    """The workload of a call's x and w.

    Raises:
        UsageError: x is not [rows, cols] with contiguous rows, or w does not fit it.
    """
    x, w = args["x"], args["w"]
    if len(x.shape) != 2:
        raise UsageError(f"rms_norm: x has shape {list(x.shape)}; it must be [rows, cols] (flatten leading dims with .reshape)")
    rows, cols = x.shape
    if cols > 1 and x.strides[1] != 1:
        raise UsageError(f"rms_norm: x has strides {list(x.strides)}; its rows must be contiguous: pass x.contiguous()")
    if w.shape != (cols,) or (cols > 1 and w.strides != (1,)):
        raise UsageError(f"rms_norm: w has shape {list(w.shape)} and strides {list(w.strides)}; it must be contiguous, of shape [{cols}]")
    if x.dtype != w.dtype:
        raise UsageError(f"rms_norm: x is {x.dtype}, w is {w.dtype}; both must have one dtype")
    return {"rows": rows, "cols": cols, "dtype": x.dtype}


SPEC: Final = OperatorSpec(
    name="rms_norm",
    summary="y = x / sqrt(mean(x * x) + eps) * w over rows, in fp32",
    dims=("rows", "cols"),
    dtypes={"dtype": ("float16", "bfloat16", "float32")},
    arguments=("x", "w", "eps"),
    inputs=inputs,
    outputs=outputs,
    flops=flops,
    bytes_moved=bytes_moved,
    tolerance=tolerance,
    infer=infer,
    # Hidden sizes from small models to the largest; the shapes of tritonbench's operator.
    workload_sets={
        "smoke": [{"rows": 16, "cols": 256}, {"rows": 5, "cols": 1000}],
        "hidden": [{"rows": 2048, "cols": cols, "dtype": "bfloat16"} for cols in (1024, 2048, 4096, 8192, 16384, 32768)],
        "decode": [{"rows": rows, "cols": cols, "dtype": "bfloat16"} for cols in (4096, 8192) for rows in ROWS if rows <= 64],
    },
    buckets={"rows": ROWS},
)
