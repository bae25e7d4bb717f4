"""The text of rendered schedules, config by config: what a change of a template does to them is seen in review."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tilewright.library import find_operator
from tilewright.target import named_target

ROOT = Path(__file__).resolve().parents[2]
SOURCES = Path(__file__).parent / "sources"
# Not .py: they are the renderer's text, not ours to lint.
SUFFIX = ".py.txt"

TILES = {"tile_m": [32, 128], "tile_n": [32, 128], "tile_k": [64, 64], "num_warps": 4, "num_stages": 3}
DECODE = {"tile_m": [1, 16], "tile_n": [96, 64], "tile_k": [32, 128], "num_warps": 4, "num_stages": 5, "split_k": 4, "reduce_n": 256}
SQUARE = "M=4096,N=4096,K=4096,dtype=bfloat16"
CASES: dict[str, tuple[str, str, dict[str, Any]]] = {
    "matmul-pointers": ("matmul", SQUARE, {"schedule": "pointers", **TILES, "split_k": 1, "group_m": 8}),
    "matmul-pointers-split_k": ("matmul", "M=16,N=6144,K=4096,dtype=bfloat16", {"schedule": "pointers", **DECODE}),
    "matmul-tma": ("matmul", SQUARE, {"schedule": "tma", **TILES, "split_k": 1, "group_m": 8}),
    "matmul-tma-col-split_k": ("matmul", "M=16,N=6144,K=4096,a_layout=col,b_layout=col", {"schedule": "tma", **DECODE}),
    "matmul-tma_persistent": ("matmul", SQUARE + ",b_layout=col", {"schedule": "tma_persistent", **TILES, "programs_per_sm": 1, "halves": 2, "group_m": 8}),
    "matmul-tma_thirds": (
        "matmul",
        "M=512,N=6144,K=4096,dtype=bfloat16,b_layout=col",
        {"schedule": "tma_thirds", "tile_m": [4, 128], "tile_n": [32, 192], "tile_k": [64, 64], "num_warps": 8, "num_stages": 4, "group_m": 8},
    ),
    "matmul-tma_row_thirds": (
        "matmul",
        "M=1536,N=6144,K=4096,dtype=bfloat16,b_layout=col",
        {"schedule": "tma_row_thirds", "tile_m": [8, 192], "tile_n": [48, 128], "tile_k": [64, 64], "num_warps": 4, "num_stages": 4, "group_m": 8},
    ),
    "matmul-tma_row_thirds-transposed": (
        "matmul",
        "M=96,N=6144,K=4096,dtype=bfloat16,b_layout=col",
        {"schedule": "tma_row_thirds", "tile_m": [1, 96], "tile_n": [96, 64], "tile_k": [32, 128], "num_warps": 4, "num_stages": 5},
    ),
    "matmul-tma_mixed": (
        "matmul",
        "M=1536,N=28672,K=4096,dtype=bfloat16,b_layout=col",
        {
            **{"schedule": "tma_mixed", "tile_m": [12, 128], "tile_n": [112, 256], "tile_k": [64, 64], "rest_n": 64},
            **{"num_warps": 8, "num_stages": 4, "halves": 2, "group_m": 4},
        },
    ),
    "rms_norm-one_pass": ("rms_norm", "rows=2048,cols=4096", {"schedule": "one_pass", "tile_cols": [1, 4096], "tile_rows": [2048, 1], "num_warps": 8}),
    "rms_norm-two_pass": ("rms_norm", "rows=2048,cols=32768", {"schedule": "two_pass", "tile_cols": [8, 4096], "num_warps": 8, "num_stages": 2}),
    "softmax-one_pass": ("softmax", "rows=2048,cols=4096", {"schedule": "one_pass", "tile_cols": [1, 4096], "tile_rows": [2048, 1], "num_warps": 8}),
    "softmax-online": ("softmax", "rows=2048,cols=32768", {"schedule": "online", "tile_cols": [8, 4096], "num_warps": 8, "num_stages": 2}),
    "swiglu-tiled": ("swiglu", "rows=256,cols=14336", {"tile_cols": [14, 1024], "tile_rows": [64, 4], "num_warps": 4, "num_stages": 2}),
}


@pytest.mark.parametrize("case", CASES)
def test_rendered_source_is_as_reviewed(case: str, golden: Callable[[Path, str], None]) -> None:
    name, workload, config = CASES[case]
    operator = find_operator(name, [ROOT / "examples" / "new_operator"])
    source = operator.render(operator.spec.workload(workload), named_target("sm_90"), config)
    golden(SOURCES / f"{case}{SUFFIX}", source.text)


def test_no_golden_source_is_left_over() -> None:
    assert {path.name.removesuffix(SUFFIX) for path in SOURCES.iterdir()} == set(CASES)


def test_every_shipped_template_has_a_golden_source() -> None:
    covered = {(name, config.get("schedule", "tiled")) for name, _, config in CASES.values()}
    for name in ("matmul", "rms_norm", "softmax", "swiglu"):
        for schedule in find_operator(name, [ROOT / "examples" / "new_operator"]).templates:
            assert (name, schedule) in covered
