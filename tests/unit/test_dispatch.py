"""`tilewright.load`, in Triton's interpreter."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("triton")


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    # The interpreter has to be chosen before Triton is first imported.
    done = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("dispatch_interpreted.py"))], capture_output=True, text=True, timeout=240,
        env={**os.environ, "TRITON_INTERPRET": "1", "TILEWRIGHT_CACHE": str(tmp_path_factory.mktemp("cache"))},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-4000:]
    return dict(json.loads(done.stdout))


@pytest.mark.parametrize("case", ["exact", "range", "default", "nearest", "vendor", "function"])
def test_results_are_right(answers: dict[str, Any], case: str) -> None:
    errors = answers[case] if isinstance(answers[case], list) else [answers[case]]
    assert errors and max(errors) < 1e-4


def test_outputs_may_be_given_and_inputs_named(answers: dict[str, Any]) -> None:
    assert answers["out"] is True


def test_a_miss_names_the_nearest_record_and_what_differs(answers: dict[str, Any]) -> None:
    kind, said = answers["miss"]
    assert kind == "Miss" and "no record of rms_norm:cols=300,rows=7,dtype=float32" in said
    assert "nearest: cols=300,rows=8,dtype=float32 differs in rows (8, asked 7)" in said


def test_the_nearest_schedule_has_to_be_legal(answers: dict[str, Any]) -> None:
    assert answers["illegal"][0] == "Miss"


def test_a_source_that_renders_differently_is_stale(answers: dict[str, Any]) -> None:
    kind, said = answers["stale"]
    assert kind == "Stale" and "recorded 000000000000" in said
    assert "  not served by one_pass#1: " in answers["stale_explained"] and "the call raises Stale: " in answers["stale_explained"]
    # Nor does it serve others.
    assert answers["stale_nearest"][0] == "Miss"


@pytest.mark.parametrize(
    ("case", "kind", "part"), [("mode", "UsageError", "'nearest'"), ("wrong", "UsageError", "w has shape"), ("explain_other", "UsageError", "no tuned")]
)
def test_wrong_use_is_said(answers: dict[str, Any], case: str, kind: str, part: str) -> None:
    assert answers[case][0] == kind and part in answers[case][1]


def test_the_interpreter_is_given_no_bfloat16(answers: dict[str, Any]) -> None:
    # It computes matmul's wrongly by orders of magnitude, and says nothing.
    kind, said = answers["bfloat16"]
    assert kind == "ValueError" and "rms_norm: Triton's interpreter computes bfloat16 wrongly; use float16 or float32, or a GPU" in said
    assert answers["bfloat16_vendor"] == ["", "torch.bfloat16"]


def test_a_function_that_gives_nothing_is_named_in_the_miss(answers: dict[str, Any]) -> None:
    kind, said = answers["nothing"]
    assert kind == "Miss" and "On_miss was asked, and gave no schedule: allow it more time" in said


def test_explain_and_counters(answers: dict[str, Any]) -> None:
    first, second, *others = answers["explain"].splitlines()
    assert "rms_norm:cols=256,rows=4,dtype=float32" in first and "the record of" in second
    assert any(line.startswith("  not by ") and "cols is 300" in line for line in others)
    assert answers["counters"]["misses"] == {"cols=300,rows=7,dtype=float32": 1}
    assert answers["counters"]["never"] == []
    assert answers["counters"]["calls"]["cols=256,rows=4,dtype=float32"] >= 1  # there are no plans in the interpreter
    assert answers["file"] == 3


def test_one_tuner_for_a_key(answers: dict[str, Any]) -> None:
    tuned = answers["tune"]
    assert max(tuned["errors"]) < 1e-4 and tuned["served"] == ["what on_miss answered"] * 3
    # The second operator asks a session of its own, which a real one answers from the log.
    assert tuned["asked"] == ["rms_norm:cols=64,rows=3,dtype=float32 on interpreter for 5.0 s"] * 2
