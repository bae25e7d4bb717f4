"""matmul: what a searcher starts from. Apart from spec.py, which an emitted package carries along and this is of no use to."""

from __future__ import annotations

from tilewright.product import Tiling, matmul_us
from tilewright.record import Config, Resources
from tilewright.target import Target
from tilewright.workload import DTYPE_BYTES, Workload


def predict(workload: Workload, target: Target, config: Config, resources: Resources | None) -> float | None:
    """Estimated time of a schedule in µs, by the tiled-product model of `tilewright.product`."""
    splits = {name: value for name, value in config.items() if name in ("tile_m", "tile_n", "tile_k") and isinstance(value, list)}
    rows, columns, depth = (int(splits[name][-1]) for name in ("tile_m", "tile_n", "tile_k"))
    tiling = Tiling(
        rows=rows,
        columns=columns,
        depth=depth,
        warps=int(str(config["num_warps"])),
        stages=int(str(config["num_stages"])),
        splits=int(str(config.get("split_k", 1))),
        persistent_per_sm=int(str(config.get("programs_per_sm", 0))),
        accumulators=2 if config.get("schedule") in ("tma_thirds", "tma_row_thirds") else 1,
        pointers=config.get("schedule", "pointers") == "pointers",
        a_columns=workload.layout.get("a_layout") == "col",
        b_columns=workload.layout.get("b_layout") == "col",
    )
    dtype = workload.dtypes["dtype"]
    m, n, k = (workload.dims[name] for name in ("M", "N", "K"))
    return matmul_us(m, n, k, tiling, target, dtype=dtype, element_bytes=DTYPE_BYTES[dtype], resources=resources)
