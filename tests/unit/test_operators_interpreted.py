"""Every shipped schedule computes the right thing, on ragged shapes, in Triton's interpreter."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("triton")

EXAMPLES = str(Path(__file__).resolve().parents[2] / "examples" / "new_operator")


def _matmul(schedule: str, workload: str, tiles: Sequence[tuple[int, int]], **knobs: Any) -> tuple[None, str, str, dict[str, Any]]:
    m, n, k = tiles
    return (None, "matmul", workload, {"schedule": schedule, "tile_m": [*m], "tile_n": [*n], "tile_k": [*k], "num_warps": 2, "num_stages": 2, **knobs})


# Tiles of ragged shapes, each split as [count, size].
PLAIN = {"split_k": 1, "group_m": 8}
SPLIT = {"split_k": 2, "reduce_n": 256}
PERSISTENT = {"programs_per_sm": 1, "num_warps": 4, "group_m": 8}
CASES: dict[str, tuple[str | None, str, str, dict[str, Any]]] = {
    "pointers-ragged": _matmul("pointers", "M=33,N=200,K=96", ((3, 16), (4, 64), (3, 32)), **PLAIN),
    "pointers-K-tail-col-col": _matmul("pointers", "M=130,N=48,K=40,a_layout=col,b_layout=col", ((3, 64), (2, 32), (2, 32)), **PLAIN),
    "pointers-M1-split-k": _matmul("pointers", "M=1,N=200,K=200", ((1, 16), (4, 64), (7, 32)), **SPLIT),
    "pointers-fp32": _matmul("pointers", "M=17,N=48,K=40,dtype=float32,b_layout=col", ((2, 16), (2, 32), (2, 32)), **PLAIN),
    "tma-row-row": _matmul("tma", "M=33,N=200,K=96", ((3, 16), (4, 64), (3, 32)), **PLAIN),
    "tma-col-col-K-tail": _matmul("tma", "M=136,N=48,K=40,a_layout=col,b_layout=col", ((3, 64), (2, 32), (2, 32)), **PLAIN),
    "tma-M1-split-k": _matmul("tma", "M=1,N=200,K=200,b_layout=col", ((1, 16), (4, 64), (7, 32)), **SPLIT),
    "tma-fp32": _matmul("tma", "M=17,N=48,K=40,dtype=float32", ((2, 16), (2, 32), (2, 32)), **PLAIN),
    "persistent": _matmul("tma_persistent", "M=130,N=200,K=40", ((3, 64), (4, 64), (2, 32)), **{**PERSISTENT, "halves": 1}),
    "persistent-halves-col": _matmul(
        "tma_persistent", "M=136,N=200,K=40,a_layout=col,b_layout=col", ((3, 64), (4, 64), (2, 32)), **{**PERSISTENT, "halves": 2}
    ),
    "thirds": _matmul("tma_thirds", "M=65,N=184,K=96", ((3, 32), (4, 48), (3, 32)), num_warps=4, group_m=8),
    "thirds-col-col-K-tail": _matmul("tma_thirds", "M=72,N=184,K=40,a_layout=col,b_layout=col", ((3, 32), (4, 48), (2, 32)), num_warps=4, group_m=4),
    "row-thirds": _matmul("tma_row_thirds", "M=184,N=184,K=96", ((1, 192), (3, 64), (3, 32)), num_warps=4),
    "row-thirds-transposed": _matmul("tma_row_thirds", "M=90,N=200,K=40", ((1, 96), (4, 64), (2, 32)), num_warps=4),
    "row-thirds-transposed-col-col": _matmul(
        "tma_row_thirds", "M=136,N=200,K=40,a_layout=col,b_layout=col", ((3, 48), (4, 64), (2, 32)), num_warps=4, group_m=4
    ),
    "mixed": _matmul("tma_mixed", "M=128,N=768,K=40", ((1, 128), (6, 128), (2, 32)), rest_n=64, num_warps=4, halves=1),
    "mixed-halves-col-col": _matmul(
        "tma_mixed", "M=136,N=776,K=40,a_layout=col,b_layout=col", ((2, 128), (7, 128), (2, 32)), rest_n=32, num_warps=4, halves=2, group_m=4
    ),
    "rms-one": (None, "rms_norm", "rows=5,cols=1000", {"schedule": "one_pass", "tile_cols": [1, 1024], "tile_rows": [2, 4], "num_warps": 4}),
    "rms-two": (None, "rms_norm", "rows=3,cols=700,dtype=float32", {"schedule": "two_pass", "tile_cols": [3, 256], "num_warps": 4, "num_stages": 2}),
    "softmax-one": (None, "softmax", "rows=5,cols=1000", {"schedule": "one_pass", "tile_cols": [1, 1024], "tile_rows": [2, 4], "num_warps": 4}),
    "softmax-online": (None, "softmax", "rows=3,cols=700,dtype=float32", {"schedule": "online", "tile_cols": [3, 256], "num_warps": 4, "num_stages": 2}),
    "swiglu": (EXAMPLES, "swiglu", "rows=5,cols=1000", {"tile_cols": [4, 256], "tile_rows": [3, 2], "num_warps": 4, "num_stages": 2}),
}


@pytest.fixture(scope="module")
def answers() -> dict[str, dict[str, Any]]:
    """All cases from one child: most of its time is the start of torch and Triton."""
    # The interpreter has to be chosen before Triton is first imported.
    done = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("interpret_operators.py"))],
        input=json.dumps(list(CASES.values())), env={**os.environ, "TRITON_INTERPRET": "1"}, capture_output=True, text=True, timeout=240,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-4000:]
    return dict(zip(CASES, map(json.loads, done.stdout.splitlines()), strict=True))


@pytest.mark.parametrize("case", CASES)
def test_result_is_within_its_tolerance(case: str, answers: dict[str, dict[str, Any]]) -> None:
    answer = answers[case]
    for verdict in answer["verdicts"]:
        # A NaN left over from the poisoned output fails here too.
        assert verdict["rel_norm"] <= answer["allowed"]["rel_norm"]
        assert verdict["max_error"] <= answer["allowed"]["max_error"]


@pytest.mark.parametrize("case", CASES)
def test_inputs_are_realistic_and_left_alone(case: str, answers: dict[str, dict[str, Any]]) -> None:
    assert answers[case]["inputs_kept"]
    assert answers[case]["zeros"] < 0.01


@pytest.mark.parametrize("case", CASES)
def test_vendor_agrees_with_the_reference(case: str, answers: dict[str, dict[str, Any]]) -> None:
    # torch on the CPU may round an intermediate to fp16 once or twice more than the tolerance of a schedule allows.
    for name, error in answers[case]["vendors"].items():
        assert error <= 4 * answers[case]["allowed"]["rel_norm"], name


def test_inputs_have_the_strides_of_their_layouts(answers: dict[str, dict[str, Any]]) -> None:
    assert answers["pointers-K-tail-col-col"]["strides"] == {"a": [1, 130], "b": [1, 40]}
    assert answers["pointers-ragged"]["strides"] == {"a": [96, 1], "b": [200, 1]}


def test_only_split_k_asks_for_scratch(answers: dict[str, dict[str, Any]]) -> None:
    assert {case for case, answer in answers.items() if answer["scratch"]} == {"pointers-M1-split-k", "tma-M1-split-k"}
