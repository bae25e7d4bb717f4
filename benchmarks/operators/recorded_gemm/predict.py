"""The recorded GEMM's estimate: knobs are BM, BN, BK, W (warps) and S (stages)."""

from __future__ import annotations

from tilewright.product import Tiling, matmul_us
from tilewright.record import Config, Resources
from tilewright.target import Target
from tilewright.workload import DTYPE_BYTES, Workload


def predict(workload: Workload, target: Target, config: Config, resources: Resources | None) -> float | None:
    """Estimated time of a schedule in µs, by the tiled-product model of `tilewright.product`."""
    rows, columns, depth, warps, stages = (int(str(config[knob])) for knob in ("BM", "BN", "BK", "W", "S"))
    tiling = Tiling(rows=rows, columns=columns, depth=depth, warps=warps, stages=stages)
    m, n, k = (workload.dims[dim] for dim in ("M", "N", "K"))
    dtype = workload.dtypes["dtype"]
    return matmul_us(m, n, k, tiling, target, dtype=dtype, element_bytes=DTYPE_BYTES[dtype], resources=resources)
