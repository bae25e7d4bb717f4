"""Softmax over rows: y = exp(x - max(x)) / sum(exp(x - max(x)))."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tilewright.errors import UsageError
from tilewright.operator import OperatorSpec, ScalarSpec, TensorArg, TensorSpec, Tolerance
from tilewright.workload import DTYPE_BYTES, Workload

# Half the distance between neighbouring numbers, relative: what rounding to the dtype may add.
UNIT_ROUNDOFF: Final[Mapping[str, float]] = {"float16": 2.0**-11, "bfloat16": 2.0**-8, "float32": 2.0**-24}
# Below this, fp16 numbers lose their relative precision: half the distance of fp16's subnormal numbers.
FP16_STEP: Final = 2.0**-25
ROWS: Final = (1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128, 256, 512, 1024, 1536, 2048, 3072, 4096)


def inputs(workload: Workload) -> dict[str, TensorSpec | ScalarSpec]:
    """x [rows, cols]."""
    return {"x": TensorSpec(shape=(workload.dims["rows"], workload.dims["cols"]), dtype=workload.dtypes["dtype"])}


def outputs(workload: Workload) -> dict[str, TensorSpec]:
    """y [rows, cols], in the dtype of x."""
    return {"y": TensorSpec(shape=(workload.dims["rows"], workload.dims["cols"]), dtype=workload.dtypes["dtype"])}


def flops(workload: Workload) -> float:
    """Compare, subtract, exponentiate, add and divide, for each element."""
    return 5.0 * workload.dims["rows"] * workload.dims["cols"]


def bytes_moved(workload: Workload) -> float:
    """x read once, y written once."""
    return float(2 * workload.dims["rows"] * workload.dims["cols"] * DTYPE_BYTES[workload.dtypes["dtype"]])


def tolerance(workload: Workload) -> Tolerance:
    """Rounding of the result to its dtype, and fp32 exponentials before it."""
    cols = workload.dims["cols"]
    dtype = workload.dtypes["dtype"]
    # exp(x) is computed as 2**(x * log2(e)): the rounded product of up to 20 in size costs 20 * 2**-24, the hardware's power 2 * 2**-24.
    arithmetic = 32 * 2.0**-24
    # Results near 1 / cols may be subnormal in fp16: the step, in units of the results' size (1 / cols at least).
    rounding = UNIT_ROUNDOFF[dtype] + (FP16_STEP * cols if dtype == "float16" else 0.0)
    # The largest of many: exp(5.7 - 1) = 110 times the rms for normal x, and never more than cols times.
    largest = min(cols, 128)
    return Tolerance(
        rel_norm=1.25 * rounding + arithmetic,
        max_error=1.25 * largest * (rounding + arithmetic),
        reason=f"rounding to the dtype ({rounding:.1e}) and fp32 exponentials ({arithmetic:.1e}); the largest result is under {largest} times their rms",
    )


def infer(args: Mapping[str, TensorArg]) -> dict[str, int | str]:
    """The workload of a call's x.

    Raises:
        UsageError: x is not [rows, cols] with contiguous rows.
    """
    x = args["x"]
    if len(x.shape) != 2:
        raise UsageError(f"softmax: x has shape {list(x.shape)}; it must be [rows, cols] (flatten leading dims with .reshape)")
    rows, cols = x.shape
    if cols > 1 and x.strides[1] != 1:
        raise UsageError(f"softmax: x has strides {list(x.strides)}; its rows must be contiguous: pass x.contiguous()")
    return {"rows": rows, "cols": cols, "dtype": x.dtype}


SPEC: Final = OperatorSpec(
    name="softmax",
    summary="softmax over rows, in fp32",
    dims=("rows", "cols"),
    dtypes={"dtype": ("float16", "bfloat16", "float32")},
    arguments=("x",),
    inputs=inputs,
    outputs=outputs,
    flops=flops,
    bytes_moved=bytes_moved,
    tolerance=tolerance,
    infer=infer,
    # Row lengths of attention scores and routers up to that of a vocabulary (Llama 3: 128256).
    workload_sets={
        "smoke": [{"rows": 16, "cols": 256}, {"rows": 5, "cols": 1000}],
        "rows2048": [{"rows": 2048, "cols": cols, "dtype": "bfloat16"} for cols in (1024, 2048, 4096, 8192, 16384, 32768)],
        "vocabulary": [{"rows": rows, "cols": 128256, "dtype": "bfloat16"} for rows in (1, 16, 64, 256)],
    },
    buckets={"rows": ROWS},
)
