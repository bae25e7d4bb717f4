"""The GEMM whose whole space is recorded in benchmarks/data: C = A @ B in fp16, row-major."""

from __future__ import annotations

import math
from collections.abc import Mapping

from tilewright.operator import OperatorSpec, TensorArg, TensorSpec, Tolerance
from tilewright.workload import DTYPE_BYTES, Workload

# (M, N, K) of the recording's eight workloads.
_RECORDED = (
    (4096, 4096, 4096),
    (1024, 14336, 4096),
    (16, 4096, 14336),
    (512, 512, 8192),
    (2048, 2048, 2048),
    (128, 28672, 8192),
    (8192, 1024, 4096),
    (8192, 8192, 8192),
)


def _inputs(workload: Workload) -> Mapping[str, TensorSpec]:
    dims, dtype = workload.dims, workload.dtypes["dtype"]
    return {"a": TensorSpec(shape=(dims["M"], dims["K"]), dtype=dtype), "b": TensorSpec(shape=(dims["K"], dims["N"]), dtype=dtype)}


def _outputs(workload: Workload) -> Mapping[str, TensorSpec]:
    return {"c": TensorSpec(shape=(workload.dims["M"], workload.dims["N"]), dtype=workload.dtypes["dtype"])}


def _flops(workload: Workload) -> float:
    return 2.0 * workload.dims["M"] * workload.dims["N"] * workload.dims["K"]


def _bytes_moved(workload: Workload) -> float:
    m, n, k = (workload.dims[dim] for dim in ("M", "N", "K"))
    return float(DTYPE_BYTES[workload.dtypes["dtype"]] * (m * k + k * n + m * n))


def _tolerance(workload: Workload) -> Tolerance:
    # One rounding to fp16 (2**-11 relative at most), and fp32 sums of K products whose error grows as sqrt(K) * 2**-24.
    accumulated = math.sqrt(workload.dims["K"]) * 2**-24
    return Tolerance(
        rel_norm=2 * (2**-11 + accumulated),
        max_error=8 * (2**-11 + accumulated),
        reason="one rounding to fp16 after an fp32 accumulation; a largest output of some 5 times their rms, rounded",
    )


def _infer(tensors: Mapping[str, TensorArg]) -> Mapping[str, int | str]:
    a, b = tensors["a"], tensors["b"]
    return {"M": a.shape[0], "N": b.shape[1], "K": a.shape[1], "dtype": a.dtype}


SPEC = OperatorSpec(
    name="recorded_gemm",
    summary="C[M, N] = A[M, K] @ B[K, N] in fp16, the plain tiled kernel of the recorded space",
    dims=("M", "N", "K"),
    dtypes={"dtype": ("float16",)},
    arguments=("a", "b"),
    inputs=_inputs,
    outputs=_outputs,
    flops=_flops,
    bytes_moved=_bytes_moved,
    tolerance=_tolerance,
    infer=_infer,
    workload_sets={"recorded": [{"M": m, "N": n, "K": k} for m, n, k in _RECORDED]},
)
