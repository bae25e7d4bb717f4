"""What `check` and `space` say of an operator's schedules: what does not compile, what was never met, one schedule alone, and what names are read as."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tilewright.builder import BuildOutcome, BuildRequest
from tilewright.cli import main
from tilewright.commands.tried import tried_lines
from tilewright.errors import ExitCode
from tilewright.legality import Legality, Verdict
from tilewright.library import find_operator
from tilewright.operator import TensorSpec
from tilewright.record import Status
from tilewright.target import named_target
from tilewright.testing import FakeBuilder
from tilewright.tryout import Tryout
from tilewright.workload import DTYPE_BYTES, parse_key

SPEC = """
from tilewright.operator import OperatorSpec, TensorSpec, Tolerance

def vector(name):
    return lambda w: {name: TensorSpec(shape=(w["rows"], w["cols"]), dtype=w["dtype"])}

SPEC = OperatorSpec(
    name="twice", summary="", dims=("rows", "cols", "inner"), dtypes={"dtype": ("float16",)}, arguments=("a",), inputs=vector("a"),
    outputs=vector("b"), flops=lambda w: 1.0, bytes_moved=lambda w: 1.0, tolerance=lambda w: Tolerance(rel_norm=1e-3, max_error=1e-2, reason="a copy"),
    infer=lambda args: {"rows": 64, "cols": 32, "inner": 8, "dtype": "float16"}, schedules=("wide", "narrow"),
)
"""
WIDE = """
{%- set tile_rows = cfg.define_knob("tile_rows", [16, 32, 64]) -%}
{%- set tile_cols = cfg.define_knob("tile_cols", [16, 32]) -%}
{%- do cfg.require(tile_rows < 64, "too tall") -%}
{%- set way = cfg.define_knob("way", ["plain", "fancy"]) -%}
{%- set num_stages = cfg.define_knob("num_stages", [1, 2, 3]) -%}
{%- do cfg.suggest(tile_rows=32, way="plain") -%}
import triton

def launch(a, b):
    return ({{ tile_rows }}, {{ way }}, {{ num_stages }})
"""
NARROW = """
{%- set tile_rows = cfg.define_knob("tile_rows", [16, 32]) -%}
{%- do cfg.require(rows > 1, "a row alone") -%}
{%- do cfg.require(tile_rows > 16, "too flat") -%}
{%- set stages = cfg.define_knob("stages", [1, 2]) -%}
import triton

def launch(a, b):
    return {{ tile_rows }}
"""
WORKLOAD = "inner=8,cols=32,rows=64"
Run = Callable[..., tuple[int, str, str]]


def build(request: BuildRequest) -> BuildOutcome:
    """A branch of one schedule does not compile, and a launch of the other one fails with two rows."""
    if "'fancy'" in request.source.text:
        return BuildOutcome(status=Status.COMPILE_ERROR, message="CompilationError: no such thing as fancy")
    if request.arguments[0].shape[0] == 2 and request.source.schedule == "narrow":
        return BuildOutcome(status=Status.LAUNCH_ERROR, message="launch: NameError: grids")
    return BuildOutcome(status=Status.OK)


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    folder = tmp_path / "twice"
    folder.mkdir()
    for name, text in (("spec.py", SPEC), ("wide.py.jinja", WIDE), ("narrow.py.jinja", NARROW)):
        (folder / name).write_text(text)
    monkeypatch.setattr("tilewright.commands.check.CompileBuilder", lambda jobs, timeout_s: FakeBuilder(build))

    def command(*argv: str) -> tuple[int, str, str]:
        code = main([*argv, "--templates", str(tmp_path)])
        return (code, *capsys.readouterr())

    return command


def test_what_does_not_compile_is_the_templates_fault_and_said_once(run: Run):
    code, out, _ = run("check", "twice", "-w", WORKLOAD, "--sample", "100")
    assert code == ExitCode.FAILED, "although 14 others are legal"
    assert "does not compile (12)" in out and "compile_error" not in out and "not legal" not in out
    assert out.count("no such thing as fancy") == 1 and re.search(r"way=fancy num_stages=\d, and 11 more\n    CompilationError: no such", out)
    assert "does not compile: 12 of 26, a fault of the template" in out
    told = json.loads(run("check", "twice", "-w", WORKLOAD, "--sample", "100", "--json")[1])["checks"][0]
    assert (told["legal"], told["broken"], told["statuses"]) == (14, 12, {"compile_error": 12, "ok": 14})
    code, out, _ = run("check", "twice", "-w", "rows=2,cols=32,inner=8", "--schedule", "narrow")
    assert code == ExitCode.FAILED and "launch fails: 1 of 1, a fault of the template" in out
    assert run("check", "twice", "-w", WORKLOAD)[0] == ExitCode.OK, "the author's suggestions have no such branch"


def test_candidates_never_met_are_named_with_their_schedule_and_apart_from_those_that_failed(run: Run):
    told = json.loads(run("check", "twice", "-w", WORKLOAD, "--each", "--json")[1])["checks"][0]
    assert told["absent"] == ["wide.tile_rows=64", "narrow.tile_rows=16"]
    fancy, plain = ([found["config"] for found in told["configs"] if found["config"].get("way") == way] for way in ("fancy", "plain"))
    only = {(name, value) for config in fancy for name, value in config.items()} - {(name, value) for config in plain for name, value in config.items()}
    names = {"tile_rows": "wide.tile_rows"}
    assert set(told["unbuilt"]) == {f"{names.get(name, name)}={value}" for name, value in only} and "way=fancy" in told["unbuilt"]
    out = run("check", "twice", "-w", WORKLOAD, "--each")[1]
    assert "not checked, as no legal config with it was met: wide.tile_rows=64, narrow.tile_rows=16\n" in out
    assert f"met only in configs that could not be built, and so not checked: {', '.join(told['unbuilt'])}" in out
    told = json.loads(run("check", "twice", "-w", "rows=1,cols=32,inner=8", "--each", "--json")[1])["checks"][0]
    assert told["absent"] == ["wide.tile_rows=64", "schedule=narrow"], "of a schedule without a config, nothing more"


def test_one_schedule_alone(run: Run, tmp_path: Path):
    told = json.loads(run("check", "twice", "-w", WORKLOAD, "--each", "--schedule", "narrow", "--json")[1])["checks"][0]
    assert {found["config"]["schedule"] for found in told["configs"]} == {"narrow"} and told["absent"] == ["tile_rows=16"]
    code, out, _ = run("space", "twice", "-w", WORKLOAD, "--schedule", "narrow", "--json")
    told = json.loads(out)
    assert (code, told["legal"], [each["name"] for each in told["schedules"]]) == (ExitCode.OK, 2, ["narrow"])
    assert told["default"] == {"schedule": "narrow", "tile_rows": 32, "stages": 1}, "which names its schedule as logs do"
    assert run("space", "twice", "-w", WORKLOAD, "--schedule", "narrow")[1].startswith(
        "twice:rows=64,cols=32,inner=8,dtype=float16 on sm_90, schedule narrow alone: 2 legal"
    )
    code, _, err = run("check", "twice", "-w", "rows=1,cols=32,inner=8", "--schedule", "narrow")
    assert code == ExitCode.USAGE and "for sm_90 with schedule 'narrow' alone: no point is legal" in err
    assert "first candidate of narrow: schedule=narrow" in run("space", "twice", "-w", WORKLOAD, "--schedule", "narrow")[1]
    for command in ("check", "space"):
        code, out, err = run(command, "twice", "-w", WORKLOAD, "--schedule", "narow")
        assert (code, out) == (ExitCode.USAGE, "") and "no schedule 'narow'; did you mean 'narrow'? One of: wide, narrow" in err
    (tmp_path / "twice" / "narrow.py.jinja").unlink()
    (tmp_path / "twice" / "spec.py").write_text(SPEC.replace('"wide", "narrow"', '"wide",'))
    assert "schedule" not in json.loads(run("space", "twice", "-w", WORKLOAD, "--schedule", "wide", "--json")[1])["default"], "there is no other"


def test_space_says_what_names_are_read_as_where_there_is_no_predict(run: Run, tmp_path: Path):
    out = run("space", "twice", "-w", WORKLOAD)[1]
    assert "read from the names of knobs" in out
    assert "\n  wide: tile tile_rows of rows, tile_cols of cols; depth none of inner; stages num_stages\n" in out
    assert "\n  narrow: nothing, as no knob is named after cols\n" in out
    told = json.loads(run("space", "twice", "-w", WORKLOAD, "--json")[1])["read"]
    assert told["narrow"] == {"tile": {"rows": ["tile_rows"], "cols": []}, "depth": {"inner": []}, "stages": ["stages"]}
    assert "read from the names" not in run("space", "matmul", "-w", "M=64,N=64,K=64")[1], "matmul has a predict"
    (tmp_path / "twice" / "spec.py").write_text(SPEC.replace('outputs=vector("b")', "outputs=lambda w: w.missing"))
    code, out, _ = run("space", "twice", "-w", WORKLOAD)
    assert code == ExitCode.OK and "legal configs" in out and "read from" not in out, "a space needs no outputs"


def test_parameters_are_shown_in_the_declared_order_and_keys_stay_sorted(run: Run):
    shown, key = "twice:rows=64,cols=32,inner=8,dtype=float16", "twice:cols=32,inner=8,rows=64,dtype=float16"
    assert run("space", "twice", "-w", WORKLOAD)[1].startswith(f"{shown} on sm_90")
    assert shown in run("space", "twice", "-w", WORKLOAD, "-w", "rows=1,cols=1,inner=1")[1]
    out, err = run("check", "twice", "-w", WORKLOAD)[1:]
    assert out.count(shown) == 2 and f"compiling {shown} for sm_90" in err and key not in out + err
    assert json.loads(run("check", "twice", "-w", WORKLOAD, "--json")[1])["checks"][0]["workload"] == key
    assert json.loads(run("space", "twice", "-w", WORKLOAD, "--json")[1])["workload"] == key
    assert parse_key(shown).key == key


def test_why_a_config_was_not_run():
    def verdict(status: Status, tryout: Tryout | None = None) -> Verdict:
        return Verdict(config={}, status=status, message="", resources=None, exceeds=(), build_s=0.0, cached=False, tryout=tryout)

    statuses = (Status.COMPILE_ERROR, Status.LAUNCH_ERROR, Status.OUT_OF_RESOURCES, Status.COMPILE_TIMEOUT, Status.COMPILE_TIMEOUT)
    operator = find_operator("softmax")
    workload = operator.workload("rows=64,cols=64")

    def said(*verdicts: Verdict) -> list[str]:
        return list(tried_lines(operator, Legality(workload=workload, target=named_target("sm_90"), verdicts=verdicts, leaks={})))

    assert said(*map(verdict, statuses)) == ["2 not run, as they were not compiled in time (--compile-timeout)", "1 not run, as the target cannot run them"]
    assert said(verdict(Status.COMPILE_ERROR), verdict(Status.OK, Tryout(status=Status.OK))) == [], "what does not compile is told as that"


def test_the_inputs_of_the_page_on_operators_are_made_for_every_dtype():
    torch: Any = pytest.importorskip("torch")
    page = (Path(__file__).parents[2] / "docs" / "authoring.md").read_text(encoding="utf-8")
    made: dict[str, Any] = {}
    exec(next(block for block in re.findall(r"```python\n(.*?)```", page, re.DOTALL) if "def make_inputs" in block), made)
    specs = {dtype: TensorSpec(shape=(5, 3), dtype=dtype, strides=(1, 5)) for dtype in DTYPE_BYTES}
    values = made["make_inputs"](None, specs, torch.Generator().manual_seed(0), "cpu")
    assert {name: (str(value.dtype), value.stride()) for name, value in values.items()} == {name: (f"torch.{name}", (1, 5)) for name in specs}
    assert all(f"`{dtype}`" in page for dtype in DTYPE_BYTES)


def test_schedules_are_listed_in_the_order_that_suggestions_take_turns(run: Run, tmp_path: Path):
    listed = {each["name"]: each for each in json.loads(run("operators", "--json")[1])}
    assert listed["twice"]["schedules"] == ["wide", "narrow"]
    assert "  schedules: wide, narrow\n" in run("operators")[1]
    (tmp_path / "twice" / "wide.py.jinja").rename(tmp_path / "twice" / "broad.py.jinja")
    code, out, _ = run("operators")
    assert code == ExitCode.FAILED and "twice: cannot be used\n" in out and "schedules names 'wide'" in out


def test_all_workloads_that_refuse_a_config_are_told(run: Run):
    workloads = [argument for rows in (1, 64, 2, 1) for argument in ("-w", f"rows={rows},cols=32,inner=8")]
    assert run("check", "twice", *workloads[2:6], "--config", "schedule=narrow stages=2")[0] != ExitCode.USAGE
    code, out, err = run("check", "twice", *workloads, "--config", "schedule=narrow stages=2", "--config", "tile_rows=64")
    told = [line for line in err.splitlines() if " for sm_90" in line]
    assert code == ExitCode.USAGE and out == "" and len(told) == 4, told
    assert "rows=1," in told[0] and all("too tall" in line for line in told[1:])
