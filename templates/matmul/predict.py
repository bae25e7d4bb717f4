"""matmul: what a searcher starts from. Apart from spec.py, which an emitted package carries along and this is of no use to."""

from __future__ import annotations

from dataclasses import replace
from math import ceil

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
        persistent_per_sm=1 if config.get("schedule") == "tma_mixed" else int(str(config.get("programs_per_sm", 0))),
        accumulators=2 if config.get("schedule") in ("tma_thirds", "tma_row_thirds") else 1,
        pointers=config.get("schedule", "pointers") == "pointers",
        a_columns=workload.layout.get("a_layout") == "col",
        b_columns=workload.layout.get("b_layout") == "col",
    )
    dtype = workload.dtypes["dtype"]
    m, n, k = (workload.dims[name] for name in ("M", "N", "K"))

    def part_us(columns: int, tiles: Tiling) -> float | None:
        return matmul_us(m, columns, k, tiles, target, dtype=dtype, element_bytes=DTYPE_BYTES[dtype], resources=resources)

    if config.get("schedule") != "tma_mixed":
        return part_us(n, tiling)
    # The columns of whole waves, then the rest in narrower tiles.
    tiles_m, tiles_n = ceil(m / rows), ceil(n / columns)
    whole = tiles_m * tiles_n // target.sm_count * target.sm_count // tiles_m * columns
    first, last = part_us(whole, tiling), part_us(n - whole, replace(tiling, columns=int(str(config["rest_n"]))))
    return None if first is None or last is None else first + last
