"""Operators found in folders, and the recorded GEMM's space."""

from __future__ import annotations

import importlib.metadata
import os
import re
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from tilewright import library
from tilewright.errors import SpaceError, TemplateError, UsageError
from tilewright.library import Operator, find_operator, find_operators, shipped_templates
from tilewright.operator import TensorSpec, Tolerance
from tilewright.target import named_target

BENCHMARKS = Path(__file__).parents[2] / "benchmarks" / "operators"
TARGET = named_target("sm_90")

SPEC = """
from tilewright.operator import OperatorSpec, TensorSpec, Tolerance
tensor = lambda workload: {"x": TensorSpec(shape=(workload.dims["M"],), dtype="float16")}
SPEC = OperatorSpec(
    name=NAME, summary="a test's", dims=("M",), dtypes={"dtype": ("float16",)}, arguments=("x",), inputs=tensor, outputs=tensor,
    flops=lambda w: 1.0, bytes_moved=lambda w: 1.0, tolerance=lambda w: Tolerance(rel_norm=1.0, max_error=1.0, reason="none"), infer=lambda t: {},
)
"""
TILED = '{%- set w = cfg.define_knob("w", [1, 2]) -%}\n{%- do cfg.suggest(w=2) -%}\nW = {{ w }}\n\ndef launch(x, y):\n    pass\n'


def make(root: Path, name: str, spec: str | None = None, **templates: str) -> Path:
    folder = root / name
    folder.mkdir(parents=True)
    (folder / "spec.py").write_text(SPEC.replace("NAME", repr(name)) if spec is None else spec)
    for schedule, text in (templates or {"tiled": TILED}).items():
        (folder / f"{schedule}.py.jinja").write_text(text)
    return folder


@pytest.fixture(autouse=True)
def no_variable(monkeypatch):
    monkeypatch.delenv("TILEWRIGHT_TEMPLATES", raising=False)


def test_a_new_operator_is_a_new_folder(tmp_path):
    make(tmp_path, "scale")
    operator = find_operator("scale", [tmp_path])
    workload = operator.spec.workload("M=64")
    assert operator.space(workload, TARGET).default() == {"w": 2}
    source = operator.render(workload, TARGET, {"w": 2})
    assert source.text.startswith("W = 2\n") and source.schedule == "tiled"
    assert source.template_hash == operator.template_hash({"w": 2}) == operator.templates["tiled"].hash
    assert operator.reference == tmp_path.resolve() / "scale" / "reference.py"


def test_an_operators_own_folder_may_be_named_too(tmp_path):
    assert set(find_operators([make(tmp_path, "scale")])) >= {"scale"}


def test_several_schedules_are_raced_as_one(tmp_path):
    make(tmp_path, "scale", tiled=TILED, plain=TILED.replace("[1, 2]", "[2, 4]"))
    operator = find_operator("scale", [tmp_path])
    workload = operator.spec.workload("M=64")
    assert list(operator.templates) == ["plain", "tiled"]
    assert [tuple(config.values()) for config in operator.space(workload, TARGET)] == [("plain", 2), ("plain", 4), ("tiled", 1), ("tiled", 2)]
    assert operator.render(workload, TARGET, {"schedule": "plain", "w": 4}).text.startswith("W = 4\n")
    with pytest.raises(SpaceError, match="4 is no candidate"):
        operator.render(workload, TARGET, {"schedule": "tiled", "w": 4})
    with pytest.raises(UsageError, match="no schedule 'plane'; did you mean 'plain'"):
        operator.render(workload, TARGET, {"schedule": "plane", "w": 4})
    with pytest.raises(UsageError, match="does not say which schedule"):
        operator.template_hash({"w": 4})


def test_spaces_are_kept_for_each_workload_and_target(tmp_path):
    make(tmp_path, "scale")
    operator = find_operator("scale", [tmp_path])
    first = operator.space(operator.spec.workload("M=64"), TARGET)
    assert operator.space(operator.spec.workload("M=64"), TARGET) is first
    assert operator.space(operator.spec.workload("M=65"), TARGET) is not first


def test_finding_operators_imports_no_spec_and_loading_one_imports_only_its_own(tmp_path):
    make(tmp_path, "good")
    make(tmp_path, "broken", spec="raise RuntimeError('must not be imported')")
    operators = find_operators([tmp_path])
    assert {"good", "broken"} <= set(operators)
    assert operators["good"].spec.name == "good"
    with pytest.raises(UsageError, match="spec.py: does not load: RuntimeError: must not be imported"):
        _ = operators["broken"].spec


def test_two_specs_of_one_file_name_never_meet(tmp_path):
    one, two = (Operator(make(tmp_path, name)).spec for name in ("one", "two"))
    assert (one.name, two.name) == ("one", "two")
    assert sum(name.startswith(("tilewright_operator_one_", "tilewright_operator_two_")) for name in sys.modules) == 2


def test_one_name_in_two_places_is_an_error_that_names_both(tmp_path):
    one, two = make(tmp_path / "a", "scale"), make(tmp_path / "b", "scale")
    with pytest.raises(UsageError) as caught:
        find_operators([one.parent, two.parent])
    assert str(one) in str(caught.value) and str(two) in str(caught.value)


def test_the_same_folder_twice_is_one(tmp_path):
    root = make(tmp_path / "a", "scale").parent
    assert find_operators([root, root / ".." / "a"])["scale"].folder == root.resolve() / "scale"


def test_the_environment_variable_names_folders(tmp_path, monkeypatch):
    roots = [make(tmp_path / "a", "one").parent, make(tmp_path / "b", "two").parent]
    monkeypatch.setenv("TILEWRIGHT_TEMPLATES", os.pathsep.join(map(str, roots)))
    assert {"one", "two"} <= set(find_operators())
    monkeypatch.setenv("TILEWRIGHT_TEMPLATES", str(tmp_path / "none"))
    with pytest.raises(UsageError, match=r"none' \(TILEWRIGHT_TEMPLATES\) does not exist"):
        find_operators()


def test_entry_points_name_folders(tmp_path, monkeypatch):
    root = make(tmp_path / "a", "one").parent
    entry = importlib.metadata.EntryPoint(name="mine", value="os:getcwd", group="tilewright.templates")
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda group: [entry] if group == entry.group else [])
    monkeypatch.chdir(root)
    assert "one" in find_operators()
    broken = importlib.metadata.EntryPoint(name="mine", value="no_such_module:x", group="tilewright.templates")
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda group: [broken])
    with pytest.raises(UsageError, match="entry point 'mine'.*no_such_module"):
        find_operators()


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("raise SystemExit(9)", "does not load: SystemExit: 9"),
        ("X = 1", "must define SPEC, an OperatorSpec, not None"),
        (SPEC.replace("NAME", "'other'"), "SPEC is named 'other', and its folder 'scale'"),
    ],
)
def test_a_bad_spec_is_an_error_that_names_its_file(tmp_path, spec, message):
    with pytest.raises(UsageError) as caught:
        _ = Operator(make(tmp_path, "scale", spec=spec)).spec
    assert message in str(caught.value) and str(tmp_path) in str(caught.value)


def test_a_schedule_that_a_config_names_is_loaded_alone(tmp_path, monkeypatch):
    operator = Operator(make(tmp_path, "op", tiled=TILED, plain=TILED, broken="{% if %}"))
    loaded = []
    load = library.Template.load
    monkeypatch.setattr(library.Template, "load", lambda path: loaded.append(path.name) or load(path))
    tiled = operator.template({"schedule": "tiled", "w": 2})
    assert operator.template({"schedule": "tiled", "w": 1}) is tiled
    assert loaded == ["tiled.py.jinja"]
    with pytest.raises(TemplateError, match=re.escape("broken.py.jinja")):
        _ = operator.templates
    (operator.folder / "broken.py.jinja").unlink()
    assert list(operator.templates) == ["plain", "tiled"] and operator.templates["tiled"] is tiled
    assert loaded.count("tiled.py.jinja") == 1
    with pytest.raises(UsageError, match="no schedule '../op/tiled'"):
        operator.template({"schedule": "../op/tiled"})


def test_a_folder_without_templates_or_spec_is_an_error(tmp_path):
    folder = make(tmp_path, "scale")
    (folder / "tiled.py.jinja").unlink()
    with pytest.raises(TemplateError, match="no template; add <schedule>.py.jinja"):
        _ = Operator(folder).templates
    with pytest.raises(UsageError, match="no spec.py"):
        Operator(tmp_path)


def test_an_unknown_operator_names_the_nearest():
    with pytest.raises(UsageError, match="no operator 'recorded_gem'; did you mean 'recorded_gemm'"):
        find_operator("recorded_gem", [BENCHMARKS])


def test_operators_ship_with_a_checkout():
    folder = shipped_templates()
    assert folder is not None and folder.name == "templates"
    assert {path.parent.name for path in folder.glob("*/spec.py")} <= set(find_operators())


def test_the_recorded_space_counts_exactly():
    operator = find_operator("recorded_gemm", [BENCHMARKS])
    space = operator.space(next(iter(operator.spec.workload_set("recorded"))), TARGET)
    count = space.count()
    assert (count.points, count.legal) == (2304, 1804)
    assert count.rejected == {"accumulator exceeds the register file": 320, "operand tiles exceed 300 KiB of shared memory": 180}
    assert [knob.name for knob in space.knobs] == ["BM", "BN", "BK", "W", "S"] and all(knob.ordered for knob in space.knobs)
    assert space.default() == {"BM": 128, "BN": 128, "BK": 64, "W": 8, "S": 3}


def test_the_recorded_kernel_is_one_source_for_all_workloads():
    operator = find_operator("recorded_gemm", [BENCHMARKS])
    config = {"BM": 64, "BN": 32, "BK": 16, "W": 2, "S": 5}
    sources = {operator.render(workload, TARGET, config).hash for workload in operator.spec.workload_set("recorded")}
    assert len(sources) == 1
    assert operator.leaking_dims(next(iter(operator.spec.workload_set("recorded"))), TARGET, config) == ()


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("flops", lambda w: w.dims["q"], "flops raises KeyError: 'q'"),
        ("tolerance", lambda w: 0.1, "tolerance gives 0.1, of the wrong type"),
        ("tolerance", lambda w: Tolerance(rel_norm=float("nan"), max_error=1.0, reason=""), "rel_norm is nan; it must be a number of 0 or more"),
        ("outputs", lambda w: {"c": TensorSpec(shape=(-5,), dtype="float16")}, "shape (-5,): no extent may be below 0"),
        ("outputs", lambda w: {"c": TensorSpec(shape=(5,), dtype="flaot16")}, "a tensor of dtype 'flaot16'; did you mean 'float16'"),
        ("flops", lambda w: sys.exit(3), "flops raises SystemExit: 3"),
        ("infer", lambda x, alpha: {}, "infer raises TypeError"),
        ("inputs", lambda w: {"b": TensorSpec(shape=(1,), dtype="float16"), "a": TensorSpec(shape=(1,), dtype="float16")}, "make them the same"),
    ],
)
def test_a_faulty_spec_is_told_when_a_workload_is_made(field: str, value: object, message: str) -> None:
    operator = find_operator("matmul")
    operator._spec = replace(operator.spec, **{field: value})
    with pytest.raises(UsageError, match=re.escape(message)) as error:
        operator.workload("M=16,N=16,K=16")
    assert "spec.py" in str(error.value)
