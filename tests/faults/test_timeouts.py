"""How long a candidate may take is for the user to say; one that takes longer is a record, and the session goes on."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tilewright.builder import BUILD_TIMEOUT_S
from tilewright.cli import make_parser
from tilewright.errors import UsageError
from tilewright.log import TuningLog
from tilewright.record import Record, SessionStart, Status
from tilewright.runner import INTERPRETER_TIMEOUT_S, RUN_TIMEOUT_S
from tilewright.timeouts import Timeouts
from tilewright.tuner import tune

SPEC = """
from tilewright.operator import OperatorSpec, TensorSpec, Tolerance
tensor = lambda workload: {"x": TensorSpec(shape=(workload.dims["N"],), dtype="float16")}
SPEC = OperatorSpec(
    name="slow", summary="a test's", dims=("N",), dtypes={"dtype": ("float16",)}, arguments=("x",), inputs=tensor,
    outputs=lambda workload: {"out": tensor(workload)["x"]}, flops=lambda w: 1.0, bytes_moved=lambda w: 1.0,
    tolerance=lambda w: Tolerance(rel_norm=1e-3, max_error=1e-3, reason="copied"), infer=lambda t: {"N": t["x"].shape[0]},
)
"""
REFERENCE = """
import torch

def make_inputs(workload, specs, generator, device):
    return {"x": torch.randn(workload.dims["N"], generator=generator, device=device).to(torch.float16)}

def reference(workload, inputs):
    return {"out": inputs["x"].double()}
"""
TEMPLATE = """
{%- set sleeps = cfg.define_knob("sleeps", ["never", "built", "run"]) -%}
import triton
import triton.language as tl

{% if sleeps == "built" %}__import__("time").sleep(600){% endif %}

@triton.jit
def kernel(x, out, N, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    copied = tl.load(x + at, mask=at < N)
{%- if sleeps == "run" %}
    for _ in range(N * 1000000):
        copied = copied * 1.0
{%- endif %}
    tl.store(out + at, copied, mask=at < N)


def launch(x, out):
    kernel[(triton.cdiv(x.numel(), 128),)](x, out, x.numel(), BLOCK=128, num_warps=4, enable_fp_fusion=True)
"""


def test_what_takes_longer_than_was_said_is_a_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEWRIGHT_CACHE", str(tmp_path / "cache"))
    folder = tmp_path / "ops" / "slow"
    folder.mkdir(parents=True)
    for name, text in (("spec.py", SPEC), ("reference.py", REFERENCE), ("copy.py.jinja", TEMPLATE)):
        (folder / name).write_text(text)
    log = tmp_path / "log.jsonl"
    options = {"device": "interpreter", "templates": [folder.parent], "log": log, "search": "grid", "history": []}
    result = tune("slow", "N=256,dtype=float16", compile_timeout_s=8, run_timeout_s=4, **options)  # type: ignore[arg-type]
    records = [line for line in TuningLog(log).read().lines if isinstance(line, Record)]
    ended = {record.config["sleeps"]: (record.status, record.message) for record in records}
    assert ended["never"][0] is Status.OK and result.results[0].best is not None
    assert ended["built"] == (Status.COMPILE_TIMEOUT, "compiling took more than 8 s")
    assert ended["run"][0] is Status.RUN_TIMEOUT and "4 s" in ended["run"][1]
    assert Counter(record.status for record in records).total() == 3
    (start,) = [line for line in TuningLog(log).read().lines if isinstance(line, SessionStart)]
    assert (start.options["compile_timeout_s"], start.options["run_timeout_s"]) == (8, 4)


def test_each_has_a_default_of_its_own() -> None:
    default, given = Timeouts(), Timeouts(compile=5.0, run=2.0)
    assert (default.compile_s, default.measure_s, default.interpret_s) == (BUILD_TIMEOUT_S, RUN_TIMEOUT_S, INTERPRETER_TIMEOUT_S)
    assert (given.compile_s, given.measure_s, given.interpret_s) == (5.0, 2.0, 2.0)
    assert default.options == {} and given.options == {"compile_timeout_s": 5.0, "run_timeout_s": 2.0}


@pytest.mark.parametrize("command", [["tune", "op"], ["verify", "best.jsonl"]])
def test_the_command_line_takes_both(command: list[str]) -> None:
    args = make_parser().parse_args([*command, "--compile-timeout", "90", "--run-timeout", "0.5"])
    assert (args.compile_timeout, args.run_timeout) == (90.0, 0.5)


def test_a_time_out_is_a_time() -> None:
    with pytest.raises(UsageError, match="run_timeout_s must be a number of seconds above 0"):
        tune("matmul", ["M=16,N=16,K=16"], run_timeout_s=0)
