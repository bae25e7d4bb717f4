"""SwiGLU: y = silu(gate) * up, the activation between the two halves of a Llama-style feed-forward layer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tilewright.errors import UsageError
from tilewright.operator import OperatorSpec, ScalarSpec, TensorArg, TensorSpec, Tolerance
from tilewright.workload import DTYPE_BYTES, Workload

# Half the distance between neighbouring numbers, relative: what rounding to the dtype may add.
UNIT_ROUNDOFF: Final[Mapping[str, float]] = {"float16": 2.0**-11, "bfloat16": 2.0**-8, "float32": 2.0**-24}


def _tensor(workload: Workload) -> TensorSpec:
    return TensorSpec(shape=(workload.dims["rows"], workload.dims["cols"]), dtype=workload.dtypes["dtype"])


def inputs(workload: Workload) -> dict[str, TensorSpec | ScalarSpec]:
    """gate and up, both [rows, cols]."""
    return {"gate": _tensor(workload), "up": _tensor(workload)}


def outputs(workload: Workload) -> dict[str, TensorSpec]:
    """y [rows, cols]."""
    return {"y": _tensor(workload)}


def flops(workload: Workload) -> float:
    """Negate, exponentiate, add, divide and multiply, for each element."""
    return 5.0 * workload.dims["rows"] * workload.dims["cols"]


def bytes_moved(workload: Workload) -> float:
    """Two tensors read, one written."""
    return 3.0 * workload.dims["rows"] * workload.dims["cols"] * DTYPE_BYTES[workload.dtypes["dtype"]]


def tolerance(workload: Workload) -> Tolerance:
    """Rounding of the result to its dtype, and fp32 arithmetic before it."""
    rounding = UNIT_ROUNDOFF[workload.dtypes["dtype"]]
    arithmetic = 16 * 2.0**-24
    return Tolerance(
        rel_norm=1.25 * rounding + arithmetic,
        max_error=40 * (rounding + arithmetic),
        reason=f"rounding to the dtype ({rounding:.1e}) and fp32 arithmetic ({arithmetic:.1e}); the largest of many products of normal numbers is under 40 rms",
    )


def infer(args: Mapping[str, TensorArg]) -> dict[str, int | str]:
    """The workload of a call's gate and up.

    Raises:
        UsageError: they differ in shape or dtype, or their rows are not contiguous.
    """
    gate, up = args["gate"], args["up"]
    if len(gate.shape) != 2 or gate.shape != up.shape or gate.dtype != up.dtype:
        raise UsageError(f"swiglu: gate {list(gate.shape)} {gate.dtype} and up {list(up.shape)} {up.dtype} must be [rows, cols], of one shape and dtype")
    for name, tensor in (("gate", gate), ("up", up)):
        if tensor.shape[1] > 1 and tensor.strides[1] != 1:
            raise UsageError(f"swiglu: {name} has strides {list(tensor.strides)}; its rows must be contiguous: pass {name}.contiguous()")
    return {"rows": gate.shape[0], "cols": gate.shape[1], "dtype": gate.dtype}


SPEC: Final = OperatorSpec(
    name="swiglu",
    summary="y = silu(gate) * up",
    dims=("rows", "cols"),
    dtypes={"dtype": ("float16", "bfloat16", "float32")},
    arguments=("gate", "up"),
    inputs=inputs,
    outputs=outputs,
    flops=flops,
    bytes_moved=bytes_moved,
    tolerance=tolerance,
    infer=infer,
    workload_sets={
        "smoke": [{"rows": 16, "cols": 256}, {"rows": 5, "cols": 1000}],
        "llama3-8b": [{"rows": rows, "cols": 14336, "dtype": "bfloat16"} for rows in (1, 16, 256, 4096)],
    },
    buckets={"rows": (1, 16, 256, 4096)},
)
