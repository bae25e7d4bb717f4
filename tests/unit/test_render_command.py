"""`render`, `check --config` and `suggest` with `none`: configs that are given in part, matched against what is declared, and completed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tilewright.builder import BuildOutcome
from tilewright.cli import main
from tilewright.config_text import parse_config, written_config
from tilewright.errors import ExitCode, SpaceError, UsageError
from tilewright.formats import format_config
from tilewright.library import find_operator
from tilewright.record import Status
from tilewright.space import Cfg, Space
from tilewright.target import named_target
from tilewright.testing import FakeBuilder

SPEC = """
from tilewright.operator import OperatorSpec, TensorSpec, Tolerance

def vector(name):
    return lambda w: {name: TensorSpec(shape=(w["N"],), dtype=w["dtype"])}

SPEC = OperatorSpec(
    name="copy", summary="", dims=("N",), dtypes={"dtype": ("float16",)}, arguments=("a",), inputs=vector("a"), outputs=vector("b"),
    flops=lambda w: 1.0, bytes_moved=lambda w: 1.0, tolerance=lambda w: Tolerance(rel_norm=1e-3, max_error=1e-2, reason="a copy"),
    infer=lambda args: {"N": args["a"].shape[0], "dtype": "float16"}, schedules=("tiled", "flat"),
)
"""
TILED = """
{%- set tile = cfg.define_split("tile", N, policy="power2", min_factor=16, max_factor=256) -%}
{%- set inner = cfg.define_split("inner", 64, num_outputs=3, policy="candidate", candidates=[[1, 4, 16], [2, 2, 16], [4, 1, 16], [1, 8, 8]]) -%}
{%- set order = cfg.define_reorder("order", ["m", "n"]) -%}
{%- set warps = cfg.define_knob("warps", [1, 2, 4]) -%}
{%- do cfg.require(warps > 1 or tile.size[-1] < 256, "too much for a warp") -%}
{%- set split = cfg.define_knob("split", [1, 2]) -%}
{%- set part = 8 -%}
{%- if split > 1 -%}{%- set part = cfg.define_knob("part", [16, 32]) -%}{%- endif -%}
{%- set masked = cfg.define_knob("masked", [true, false]) -%}
{%- set way = cfg.define_knob("way", ["true", "a b", "1", 1]) -%}
{%- do cfg.require(not (masked and way == "a b"), "no such way with a mask") -%}
{%- do cfg.suggest(tile=[cdiv(N, 128), 128], warps=1, masked=true, way="true", split=1, part=none) -%}
import triton

def launch(a, b):
    return ({{ tile.size[-1] }}, {{ inner.size[1] }}, {{ order.axes[0] }}, {{ warps }}, {{ part }}, {{ masked }}, {{ way }})
"""
FLAT = """
{%- set rows = cfg.define_knob("rows", range(1, 40)) -%}
{%- do cfg.require(N < 5000, "too long to be flat") -%}
{%- do cfg.suggest(rows=4) -%}
import triton

def launch(a, b):
    return {{ rows }}
"""
DEFAULT = "schedule=tiled tile=8x128 inner=1x4x16 order=mxn warps=1 split=1 masked=True way=true"
Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "copy").mkdir()
    for name, text in (("spec.py", SPEC), ("tiled.py.jinja", TILED), ("flat.py.jinja", FLAT)):
        (tmp_path / "copy" / name).write_text(text)
    return tmp_path


@pytest.fixture
def run(folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    monkeypatch.setattr("tilewright.commands.check.CompileBuilder", lambda jobs, timeout_s: FakeBuilder(lambda request: BuildOutcome(status=Status.OK)))

    def command(*argv: str) -> tuple[int, str, str]:
        code = main([*argv, "--templates", str(folder)])
        return (code, *capsys.readouterr())

    return command


def test_the_default_is_rendered_where_nothing_is_said(run: Run, folder: Path) -> None:
    code, out, err = run("render", "copy", "-w", "N=1000")
    assert (code, out) == (ExitCode.OK, "import triton\n\ndef launch(a, b):\n    return (128, 4, 'm', 1, 8, True, 'true')\n")
    assert err == f"tilewright: copy:N=1000,dtype=float16 for sm_90: {DEFAULT}\n"
    told = json.loads(run("render", "copy", "-w", "N=1000", "--schedule", "flat", "--json", "--target", "sm_80")[1])
    assert (told["config"], told["target"], told["source"]) == ({"schedule": "flat", "rows": 4}, "sm_80", "import triton\n\ndef launch(a, b):\n    return 4\n")


def test_a_config_as_a_table_shows_it_reads_back(folder: Path) -> None:
    operator, target = find_operator("copy", [folder]), named_target("sm_90")
    workload = operator.spec.workload("N=1000")
    shown = [config for config in operator.space(workload, target) if config.get("way") not in ("1", 1)]
    assert len(shown) > 500
    for config in shown[::7]:
        assert written_config(operator, workload, target, format_config(config)).config == config


@pytest.mark.parametrize(
    ("text", "changed"),
    [
        ("tile=64", {"tile": [16, 64]}),
        ("tile=16x64", {"tile": [16, 64]}),
        ('tile=[16, 64], order=["n", "m"]', {"tile": [16, 64], "order": ["n", "m"]}),
        ("inner=8x8 warps=2", {"inner": [1, 8, 8], "warps": 2}),
        ("masked=False,way=a b", {"masked": False, "way": "a b"}),
        ("masked=false", {"masked": False}),
        ("way=1", {"way": 1}),
        ('way="1"', {"way": "1"}),
        ("tile=256", {"tile": [4, 256], "warps": 2}),
        ("split=2", {"split": 2, "part": 16}),
        ("part=32", {"split": 2, "part": 32}),
        ("schedule=tiled", {}),
    ],
)
def test_what_is_not_named_is_the_defaults_where_that_is_legal(folder: Path, text: str, changed: dict[str, object]) -> None:
    operator, target = find_operator("copy", [folder]), named_target("sm_90")
    workload = operator.spec.workload("N=1000")
    written = written_config(operator, workload, target, text)
    assert written.config == {**operator.space(workload, target).default(), **changed}
    other = {"tile=256": ("warps=2 (default 1)",), "part=32": ("split=2 (default 1)",)}.get(text, ())
    assert all(part in written.note for part in other) and bool(other) == bool(written.note)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("wraps=2", r"copy:N=1000.* for sm_90: 'wraps' is no knob of schedule 'tiled'; did you mean 'warps'"),
        ("rows=2", "'rows' is no knob of schedule 'tiled', but of flat: add schedule=flat"),
        ("warps=3", "knob 'warps': '3' is no candidate; one of: 1, 2, 4"),
        ("warps=2 + 2", r"knob 'warps': '2 \+ 2' is no candidate"),
        ("warps=__import__('os')", "is no candidate"),
        ("order=['n', 'm']", "knob 'order'.* is no candidate; one of: mxn, nxm"),
        ("way=tru", "did you mean 'true'"),
        ("schedule=flat rows=100", "'100' is no candidate; the nearest of 39: 28, 29, .*, 39$"),
        ("schedule=flag", "no schedule 'flag'; did you mean 'flat'"),
        ("tile=7x128", "knob 'tile': '7x128' is no candidate; did you mean '8x128'"),
        ("inner=1x16 inner=2x16", "inner is given twice"),
        ("warps", "not NAME=VALUE"),
        ("", "not NAME=VALUE"),
        ("fast warps=2", "not NAME=VALUE"),
        ("warps= tile=64", "warps has no value"),
    ],
)
def test_what_is_not_declared_is_refused_with_what_is(run: Run, text: str, said: str) -> None:
    code, out, err = run("render", "copy", "-w", "N=1000", "--config", text)
    assert (code, out) == (ExitCode.USAGE, "")
    with pytest.raises(AssertionError, match=said):
        raise AssertionError(err.strip())


def test_inner_parts_that_several_candidates_have_are_refused_with_those(folder: Path) -> None:
    (folder / "copy" / "flat.py.jinja").write_text(
        FLAT.replace("{%- do cfg.require", '{%- do cfg.define_split("s", 8, policy="candidate", candidates=[[1, 8], [2, 8]]) -%}{%- do cfg.require')
    )
    operator, target = find_operator("copy", [folder]), named_target("sm_90")
    with pytest.raises(UsageError, match=r"s=8 may be \[1, 8\] or \[2, 8\]"):
        written_config(operator, operator.spec.workload("N=64"), target, "s=8", "flat")
    assert written_config(operator, operator.spec.workload("N=64"), target, "s=2x8", "flat").config["s"] == [2, 8]


def test_a_require_refuses_with_its_reason(run: Run, folder: Path) -> None:
    code, out, err = run("render", "copy", "-w", "N=1000", "--config", "tile=256 warps=1")
    assert (code, out) == (
        ExitCode.USAGE,
        "",
    ) and "'tile=256 warps=1' is refused by its template at copy:N=1000,dtype=float16 for sm_90: too much for a warp\n" in err
    assert "knob 'part' is not declared at this point" in run("render", "copy", "-w", "N=1000", "--config", "part=16 split=1")[2]
    assert "refused by require: too long to be flat" in run("render", "copy", "-w", "N=6000", "--config", "schedule=flat rows=4")[2]
    operator = find_operator("copy", [folder])
    with pytest.raises(SpaceError, match="no such way with a mask"):
        written_config(operator, operator.spec.workload("N=1000"), named_target("sm_90"), "way=a b masked=true")
    code, _, err = run("render", "copy", "-w", "N=1000", "--schedule", "flat", "--config", "schedule=tiled")
    assert code == ExitCode.USAGE and "is of schedule 'tiled', and 'flat' is asked for" in err


def test_a_file_is_written_whole_and_only_an_unedited_kernel_of_its_own_is_replaced(run: Run, tmp_path: Path, folder: Path) -> None:
    place = tmp_path / "kernel.py"
    for tile in (64, 32):
        code, out, err = run("render", "copy", "-w", "N=1000", "--config", f"tile={tile}", "-o", str(place))
        assert (code, out) == (ExitCode.OK, "") and f"return ({tile}, 4," in place.read_text() and f"{place}: copy:N=1000" in err
    for work in ("tiled.py.jinja", "spec.py"):
        path = folder / "copy" / work
        before = path.read_text()
        code, _, err = run("render", "copy", "-w", "N=1000", "-o", str(path))
        assert code == ExitCode.USAGE and "not as render wrote it, so it is not overwritten" in err and path.read_text() == before
    place.write_text(place.read_text().replace("32, 4", "32, 5"))  # edited, to try something
    by_hand = "import triton\n\ndef launch(a, b):\n    return 1\n"
    (tmp_path / "by_hand.py").write_text(by_hand)
    for path, kept in ((place, "return (32, 5,"), (tmp_path / "by_hand.py", by_hand)):
        code, _, err = run("render", "copy", "-w", "N=1000", "-o", str(path))
        assert code == ExitCode.USAGE and "not as render wrote it" in err and kept in path.read_text()
    (tmp_path / "empty.py").touch()
    assert run("render", "copy", "-w", "N=1000", "-o", str(tmp_path / "empty.py"))[0] == ExitCode.OK
    code, out, _ = run("render", "copy", "-w", "N=1000")
    text, _, last = (tmp_path / "empty.py").read_text().removesuffix("\n").rpartition("\n")
    assert (out, last[:2]) == (f"{text}\n", "# "), "the kernel is what is printed; a comment is its last line"


def test_one_workload_alone(run: Run) -> None:
    code, _, err = run("render", "copy", "-w", "N=1000", "-w", "N=2000")
    assert code == ExitCode.USAGE and "2 workloads are given" in err
    assert run("render", "copy", "-w", "N=1000", "-w", "N=1000,dtype=float16")[0] == ExitCode.OK


def test_rendering_imports_neither_torch_nor_triton(folder: Path) -> None:
    program = (
        "import sys; from tilewright.cli import main\n"
        f"code = main(['render', 'copy', '-w', 'N=1000', '--config', 'tile=64', '--templates', {str(folder)!r}])\n"
        "assert code == 0 and not [name for name in sys.modules if name.partition('.')[0] in ('torch', 'triton')]"
    )
    assert subprocess.run([sys.executable, "-c", program], env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}, timeout=60).returncode == 0


def test_check_takes_configs_as_render_does(run: Run) -> None:
    argv = ("check", "copy", "-w", "N=1000", "-w", "N=500", "--json")
    code, out, err = run(*argv, "--config", "tile=256", "--config", "schedule=flat rows=2", "--config", "tile=256 warps=2")
    assert code == ExitCode.OK
    found = [[config["config"] for config in one["configs"]] for one in json.loads(out)["checks"]]
    expected = [
        [
            {"schedule": "tiled", "tile": [parts, 256], "inner": [1, 4, 16], "order": ["m", "n"], "warps": 2, "split": 1, "masked": True, "way": "true"},
            {"schedule": "flat", "rows": 2},
        ]
        for parts in (4, 2)
    ]
    assert found == expected, "the third is the first once more"
    assert "taken: warps=2 (default 1)" in err
    code, out, err = run(*argv, "--config", "rows=2", "--schedule", "flat")
    assert code == ExitCode.OK and {config["config"]["schedule"] for one in json.loads(out)["checks"] for config in one["configs"]} == {"flat"}
    code, out, err = run(*argv, "--config", "tile=256", "--config", "tile=256 warps=1")
    assert (code, out) == (ExitCode.USAGE, "") and "too much for a warp" in err and "compiling" not in err, "told before anything is built"
    assert run(*argv, "--config", "tile=256", "--each")[0] == ExitCode.USAGE


def test_parse_config_keeps_the_order_given() -> None:
    assert parse_config(" b=1 ,a=[2,  3]\n c=x y ") == {"b": "1", "a": "[2,  3]", "c": "x y"}


def test_a_string_as_of_json_keeps_its_blanks_and_what_looks_like_a_name(folder: Path) -> None:
    assert parse_config('way="a b=c, d=1",warps=2') == {"way": '"a b=c, d=1"', "warps": "2"}
    assert parse_config('way="a b=c') == {"way": '"a', "b": "c"}, "no string"
    (folder / "copy" / "flat.py.jinja").write_text(FLAT.replace("{%- do cfg.require", "{%- do cfg.define_knob('w', ['x', 'a b=c, d=1']) -%}{%- do cfg.require"))
    operator, target = find_operator("copy", [folder]), named_target("sm_90")
    found = written_config(operator, operator.spec.workload("N=64"), target, 'w="a b=c, d=1" schedule="flat"')
    assert dict(found.config) == {"schedule": "flat", "rows": 4, "w": "a b=c, d=1"}


WIDE = """
{%- set tile = cfg.define_knob("tile", [16, 32, 64]) -%}
{%- for name in ["a", "b", "c"] -%}{%- do cfg.define_knob(name, range(8)) -%}{%- endfor -%}
{%- set warps = cfg.define_knob("warps", [1, 2, 4, 8]) -%}
{%- do cfg.require(tile >= 16 * warps, "tile too small") -%}
def launch(a, b):
    return ({{ tile }}, {{ warps }})
"""


def test_one_that_stands_far_in_front_gives_way_too_and_giving_up_is_no_refusal(run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is tried before another first knob is 8 * 8 * 8 points."""
    monkeypatch.setattr("tilewright.suggestion._COMPLETIONS", 500)
    (folder / "copy" / "flat.py.jinja").write_text(WIDE)
    code, out, err = run("render", "copy", "-w", "N=1000", "--config", "schedule=flat warps=4")
    assert code == ExitCode.OK and "return (64, 4)" in out and "taken: tile=64 (default 16)" in err
    code, _, err = run("render", "copy", "-w", "N=1000", "--config", "schedule=flat warps=8")
    assert (
        code == ExitCode.USAGE
        and "no legal config with" in err
        and "among the first 500 ways to complete it; name more knobs" in err
        and "tile too small" in err
    )


def test_what_is_given_twice_is_checked_once_and_an_error_says_for_which_workload(run: Run, tmp_path: Path) -> None:
    (tmp_path / "shapes.txt").write_text("N=1000\r\nN=1000,dtype=float16:2\r\n")
    twice = ("-w", f"@{tmp_path}/shapes.txt", "-w", "N=1000", "--target", "sm_90", "--target", "sm_90")
    code, out, _ = run("check", "copy", *twice, "--config", "tile=64", "--json")
    assert code == ExitCode.OK and len(json.loads(out)["checks"]) == 1
    code, _, err = run("check", "copy", "-w", "N=1000", "-w", "N=200", "--config", "tile=1000")
    assert code == ExitCode.USAGE and "tilewright: error: copy:N=1000,dtype=float16 for sm_90: knob 'tile'" in err
    code, _, err = run("check", "copy", "-w", "N=1000", "-w", "N=50", "--config", "tile=64")
    assert code == ExitCode.USAGE and "copy:N=50,dtype=float16 for sm_90: 'tile' is no knob of schedule 'flat', but of tiled: add schedule=tiled" in err


def test_a_knob_suggested_as_none_is_not_named(folder: Path) -> None:
    def program(cfg: Cfg) -> None:
        split = cfg.define_knob("split", [1, 2])
        if split == 2:
            cfg.define_knob("depth", [1, 2])
        for number, depth in ((1, None), (2, 2)):
            cfg.suggest(split=number, depth=depth, elsewhere=None)

    assert Space({"one": program}).suggestions() == [{"split": 1}, {"split": 2, "depth": 2}]

    def misspelt(cfg: Cfg) -> None:
        cfg.define_knob("split", [1, 2])
        cfg.suggest(splitt=2)

    with pytest.raises(SpaceError, match="unknown knob 'splitt'; did you mean 'split'.* give none where it is not"):
        Space({"one": misspelt})
    # In a template the word is Jinja's, also behind a condition, where one suggestion serves every extent.
    text = TILED.replace("split=1, part=none", "split=2 if N > 2000 else 1, part=32 if N > 2000 else none")
    assert text != TILED
    (folder / "copy" / "tiled.py.jinja").write_text(text)
    operator, target = find_operator("copy", [folder]), named_target("sm_90")
    small, large = (operator.space(operator.spec.workload(f"N={extent}"), target).default() for extent in (1000, 4000))
    assert (small["split"], "part" in small, large["split"], large["part"]) == (1, False, 2, 32)
