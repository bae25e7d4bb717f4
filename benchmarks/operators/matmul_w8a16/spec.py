"""Weight-only int8 matrix product: c[M, N] = a[M, K] @ (b[K, N] * scale[N]), a and c in bf16 or fp16, b in int8, scale in fp32."""

from tilewright.errors import UsageError
from tilewright.operator import OperatorSpec, TensorSpec, Tolerance

UNIT_ROUNDOFF = {"float16": 2.0**-11, "bfloat16": 2.0**-8}


def inputs(w):
    m, n, k = w.dims["M"], w.dims["N"], w.dims["K"]
    return {
        "a": TensorSpec(shape=(m, k), dtype=w.dtypes["dtype"]),
        "b": TensorSpec(shape=(k, n), dtype="int8"),
        "scale": TensorSpec(shape=(n,), dtype="float32"),
    }


def outputs(w):
    return {"c": TensorSpec(shape=(w.dims["M"], w.dims["N"]), dtype=w.dtypes["dtype"])}


def flops(w):
    return 2.0 * w.dims["M"] * w.dims["N"] * w.dims["K"]


def bytes_moved(w):
    m, n, k = w.dims["M"], w.dims["N"], w.dims["K"]
    return float(2 * m * k + k * n + 4 * n + 2 * m * n)


def tolerance(w):
    k = w.dims["K"]
    rounding = UNIT_ROUNDOFF[w.dtypes["dtype"]]
    # int8 is exact in either dtype, and so is each product in fp32; the sum is as matmul's: 2**-24 * sqrt(K), times four for truncation.
    summing = 2.0**-22 * k**0.5
    # Scales differ by up to 1.5 from column to column, so the largest result is that much further from the rms.
    largest = 1.5 * (7.0 + 24.0 / k**0.5)
    return Tolerance(
        rel_norm=rounding + summing,
        max_error=largest * (rounding + summing),
        reason=f"rounding to the dtype ({rounding:.1e}), and an fp32 sum of K={k} products ({summing:.1e})",
    )


def infer(args):
    a, b, scale = args["a"], args["b"], args["scale"]
    if len(a.shape) != 2 or len(b.shape) != 2 or a.shape[1] != b.shape[0] or scale.shape != (b.shape[1],):
        raise UsageError(f"matmul_w8a16: a {list(a.shape)}, b {list(b.shape)}, scale {list(scale.shape)}; they must be [M, K], [K, N], [N]")
    if b.dtype != "int8" or scale.dtype != "float32":
        raise UsageError(f"matmul_w8a16: b is {b.dtype}, scale is {scale.dtype}; they must be int8 and float32")
    (m, k), n = a.shape, b.shape[1]
    for name, tensor in (("a", a), ("b", b)):
        rows, cols = tensor.shape
        if (cols > 1 and tensor.strides[1] != 1) or (rows > 1 and tensor.strides[0] != cols):
            raise UsageError(f"matmul_w8a16: {name} has strides {list(tensor.strides)}; pass {name}.contiguous()")
    if n > 1 and scale.strides != (1,):
        raise UsageError("matmul_w8a16: scale must be contiguous")
    return {"M": m, "N": n, "K": k, "dtype": a.dtype}


SPEC = OperatorSpec(
    name="matmul_w8a16",
    summary="c = a @ (b * scale), b in int8 with a scale for each column",
    dims=("M", "N", "K"),
    dtypes={"dtype": ("bfloat16", "float16")},
    arguments=("a", "b", "scale"),
    inputs=inputs,
    outputs=outputs,
    flops=flops,
    bytes_moved=bytes_moved,
    tolerance=tolerance,
    infer=infer,
    workload_sets={
        "smoke": [{"M": 20, "N": 72, "K": 136, "dtype": "float16"}],
        "llama3-8b": [{"M": m, "N": n, "K": k} for n, k in ((6144, 4096), (4096, 4096), (28672, 4096), (4096, 14336)) for m in (1, 16, 128, 1024)],
    },
    buckets={"M": (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096)},
    schedules=("tiled", "split_k", "persistent"),
)
