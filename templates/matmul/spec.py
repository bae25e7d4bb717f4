"""Matrix multiplication: c[M, N] = a[M, K] @ b[K, N], each operand row- or column-major."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tilewright.errors import UsageError
from tilewright.operator import OperatorSpec, ScalarSpec, TensorArg, TensorSpec, Tolerance
from tilewright.workload import DTYPE_BYTES, Workload

# Half the distance between neighbouring numbers, relative: what rounding to the dtype may add.
UNIT_ROUNDOFF: Final[Mapping[str, float]] = {"float16": 2.0**-11, "bfloat16": 2.0**-8, "float32": 2.0**-24}

# Numbers of rows worth tuning for: decode batches, then prefill lengths. Sources: vLLM's benchmark weight shapes, FlagGems's
# pre-tune list, DeepGEMM's test generators, tritonbench's operators; so are the weights below.
ROWS: Final = (1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128, 256, 512, 1024, 1536, 2048, 3072, 4096)
WEIGHTS_NK: Final[Mapping[str, tuple[tuple[int, int], ...]]] = {
    "llama3-8b": ((6144, 4096), (4096, 4096), (28672, 4096), (4096, 14336)),
    "llama3-70b": ((10240, 8192), (8192, 8192), (57344, 8192), (8192, 28672)),
    "llama3-70b-tp8": ((1280, 8192), (8192, 1024), (7168, 8192), (8192, 3584)),
    "qwen2.5-7b": ((4608, 3584), (3584, 3584), (37888, 3584), (3584, 18944)),
    "qwen3-8b": ((6144, 4096), (4096, 4096), (24576, 4096), (4096, 12288), (151936, 4096)),
    "deepseek-v3": ((2112, 7168), (576, 7168), (24576, 1536), (32768, 512), (7168, 16384), (4096, 7168), (7168, 2048)),
}


def _ints(workload: Workload) -> tuple[int, int, int]:
    return workload.dims["M"], workload.dims["N"], workload.dims["K"]


def _stored(rows: int, cols: int, layout: str, dtype: str) -> TensorSpec:
    return TensorSpec(shape=(rows, cols), dtype=dtype, strides=(cols, 1) if layout == "row" else (1, rows))


def inputs(workload: Workload) -> dict[str, TensorSpec | ScalarSpec]:
    """a [M, K] and b [K, N], strided as their layouts say."""
    m, n, k = _ints(workload)
    dtype = workload.dtypes["dtype"]
    return {"a": _stored(m, k, workload.layout["a_layout"], dtype), "b": _stored(k, n, workload.layout["b_layout"], dtype)}


def outputs(workload: Workload) -> dict[str, TensorSpec]:
    """c [M, N], row-major, in the dtype of the operands."""
    m, n, _ = _ints(workload)
    return {"c": TensorSpec(shape=(m, n), dtype=workload.dtypes["dtype"])}


def flops(workload: Workload) -> float:
    """A multiplication and an addition for each of M * N * K."""
    m, n, k = _ints(workload)
    return 2.0 * m * n * k


def bytes_moved(workload: Workload) -> float:
    """Both operands read once, the result written once."""
    m, n, k = _ints(workload)
    return float((m * k + k * n + m * n) * DTYPE_BYTES[workload.dtypes["dtype"]])


def tolerance(workload: Workload) -> Tolerance:
    """Rounding of the result to its dtype, and an fp32 sum over K."""
    k = workload.dims["K"]
    rounding = UNIT_ROUNDOFF[workload.dtypes["dtype"]]
    # An fp32 sum of K products of random sign errs by some 2**-24 * sqrt(K) of the result's size; tensor cores truncate, hence four
    # times that. tf32 operands would err by 2**-11 and fail it for fp32 inputs: there fp32 means fp32.
    summing = 2.0**-22 * k**0.5
    # The largest of many normally distributed results is some 6 times their rms; with few products to a sum the tail is longer.
    largest = 8.0 + 24.0 / k**0.5
    return Tolerance(
        rel_norm=1.25 * rounding + summing,
        max_error=largest * (rounding + summing),
        reason=f"rounding to the dtype ({rounding:.1e}), and an fp32 sum of K={k} products (2**-22 * sqrt(K) = {summing:.1e})",
    )


def _layout(name: str, tensor: TensorArg) -> str:
    """`row` or `col`. A dim of extent 1 has no meaningful stride: then any layout that the other allows will do, row first."""
    if len(tensor.shape) != 2:
        raise UsageError(f"matmul: {name} has shape {list(tensor.shape)}; it must have two dims (flatten leading ones with .reshape)")
    rows, cols = tensor.shape
    row_stride, col_stride = tensor.strides
    if (col_stride == 1 or cols == 1) and (rows == 1 or row_stride >= cols):
        layout, lead, contiguous, counts = "row", row_stride, cols, rows > 1
    elif (row_stride == 1 or rows == 1) and (cols == 1 or col_stride >= rows):
        layout, lead, contiguous, counts = "col", col_stride, rows, cols > 1
    else:
        raise UsageError(f"matmul: {name} has strides {list(tensor.strides)}, neither row- nor column-major; pass {name}.contiguous()")
    if counts and lead != contiguous and lead * DTYPE_BYTES[tensor.dtype] % 16:
        # Tuned for the unpadded stride, the schedule may load by TMA, which takes only strides of whole 16 bytes.
        raise UsageError(f"matmul: {name} is padded to a stride of {lead} elements, no multiple of 16 bytes; pass {name}.contiguous()")
    return layout


def infer(args: Mapping[str, TensorArg]) -> dict[str, int | str]:
    """The workload of a call's a and b.

    Raises:
        UsageError: the shapes do not multiply, the dtypes differ, or a stride pattern is neither row- nor column-major.
    """
    a, b = args["a"], args["b"]
    a_layout, b_layout = _layout("a", a), _layout("b", b)
    if a.shape[1] != b.shape[0]:
        raise UsageError(f"matmul: a {list(a.shape)} and b {list(b.shape)} do not multiply; a's columns must equal b's rows")
    if a.dtype != b.dtype:
        raise UsageError(f"matmul: a is {a.dtype}, b is {b.dtype}; both must have one dtype")
    return {"M": a.shape[0], "N": b.shape[1], "K": a.shape[1], "dtype": a.dtype, "a_layout": a_layout, "b_layout": b_layout}


def _linear(weights: tuple[tuple[int, int], ...], rows: tuple[int, ...]) -> list[dict[str, int | str]]:
    """Linear layers: weights are stored [N, K], so that b is their transpose."""
    return [{"M": m, "N": n, "K": k, "dtype": "bfloat16", "b_layout": "col"} for n, k in weights for m in rows]


def _workload_sets() -> dict[str, list[dict[str, int | str]]]:
    sets: dict[str, list[dict[str, int | str]]] = {
        "smoke": [{"M": 64, "N": 64, "K": 64}, {"M": 17, "N": 48, "K": 96}],
        "headline": [
            {"M": m, "N": n, "K": k, "dtype": "bfloat16"}
            for m, n, k in ((4096, 4096, 4096), (16, 6144, 4096), (512, 8192, 3584), (1000, 3000, 2000), (77, 5000, 4104))
        ],
    }
    for model, weights in WEIGHTS_NK.items():
        sets[model] = _linear(weights, ROWS)
        sets[f"{model}-decode"] = _linear(weights, tuple(m for m in ROWS if m <= 64))
        sets[f"{model}-prefill"] = _linear(weights, tuple(m for m in ROWS if m >= 512))
    return sets


SPEC: Final = OperatorSpec(
    name="matmul",
    summary="c = a @ b: fp32 sums, operands row- or column-major",
    dims=("M", "N", "K"),
    dtypes={"dtype": ("float16", "bfloat16", "float32")},
    layouts={"a_layout": ("row", "col"), "b_layout": ("row", "col")},
    arguments=("a", "b"),
    inputs=inputs,
    outputs=outputs,
    flops=flops,
    bytes_moved=bytes_moved,
    tolerance=tolerance,
    infer=infer,
    workload_sets=_workload_sets(),
    buckets={"M": ROWS},
)
