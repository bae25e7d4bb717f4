"""Spaces of several schedules: counted by schedule, suggestions that are passed over with their reasons, several workloads in one call."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tilewright import tally as tallies
from tilewright.cli import main
from tilewright.errors import ExitCode
from tilewright.space import Cfg, Space, SpaceCount, unconditional
from tilewright.tally import total


@unconditional
def flat(cfg: Cfg) -> None:
    tile = cfg.define_knob("tile", [16, 32, 64])
    cfg.require(tile < 64, "too large")  # type: ignore[operator]
    cfg.define_knob("warps", [1, 2])
    cfg.suggest(tile=64)
    cfg.suggest(tile=16, warps=2)


def conditional(cfg: Cfg) -> None:
    split = cfg.define_knob("split", [1, 2, 4])
    cfg.require(split < 4, "too large")  # type: ignore[operator]
    if split > 1:  # type: ignore[operator]
        depth = cfg.define_knob("depth", [1, 2, 3])
        cfg.require(depth == 3 or split > 2, "too shallow")  # type: ignore[operator]
    cfg.define_knob("stages", [1, 2])
    cfg.suggest(split=2, depth=1)
    cfg.suggest(split=1, depth=1)
    cfg.suggest(split=4)
    cfg.suggest(split=2, stages=8)
    cfg.suggest(split=2)


def test_few_points_are_counted_one_by_one_so_that_no_refusal_has_an_unknown_size(monkeypatch: pytest.MonkeyPatch) -> None:
    space = Space({"flat": flat, "conditional": conditional})
    counts = space.counts()
    assert counts["flat"] == SpaceCount(legal=4, points=6, rejected={"too large": 2})
    # split 1: 2 points; 2: 6, of which 4 are too shallow; 4: 6.
    assert counts["conditional"] == SpaceCount(legal=4, points=14, rejected={"too large": 6, "too shallow": 4})
    assert total(counts) == SpaceCount(legal=8, points=20, rejected={"too large": 8, "too shallow": 4})
    assert space.count() == SpaceCount(legal=8, points=None, rejected={"too large": 2}, cuts={"too large": 1, "too shallow": 2})
    monkeypatch.setattr(tallies, "MOST_WALKED", 17)  # 3 * 3 * 2 allow 18
    assert space.counts()["conditional"] == SpaceCount(legal=4, points=None, cuts={"too large": 1, "too shallow": 2})
    assert total(space.counts()) == space.count()


def test_what_fails_behind_a_require_is_counted_by_cuts(tmp_path: Path) -> None:
    from tilewright.target import named_target
    from tilewright.template import Template
    from tilewright.workload import parse_key

    path = tmp_path / "dividing.py.jinja"
    path.write_text(
        '{%- set part = cfg.define_knob("part", [0, 1, 2]) -%}\n{%- do cfg.require(part > 0, "nothing to part") -%}\n'
        '{%- if 8 // part > 4 -%}\n{%- set more = cfg.define_knob("more", [1, 2]) -%}\n{%- endif -%}\ndef launch(a): pass\n'
    )
    program = Template.load(path).program(parse_key("toy:N=8,dtype=float16"), named_target("sm_90"))
    assert Space({"dividing": program}).counts()["dividing"] == SpaceCount(legal=3, points=None, cuts={"nothing to part": 1})


def test_a_suggestion_that_is_passed_over_says_why() -> None:
    space = Space({"flat": flat, "conditional": conditional})
    assert [(passed.schedule, passed.text, dict(passed.reasons)) for passed in space.passed_over()] == [
        ("flat", "suggest(tile=64)", {"too large": 1}),
        ("conditional", "suggest(split=2, depth=1)", {"too shallow": 1}),
        ("conditional", "suggest(split=1, depth=1)", {"knob 'depth' is not declared at this point": 2}),
        ("conditional", "suggest(split=4)", {"too large": 1}),
        ("conditional", "suggest(split=2, stages=8)", {"stages=8 is no candidate here": 1}),
    ]
    assert space.suggestions() == [{"schedule": "flat", "tile": 16, "warps": 2}, {"schedule": "conditional", "split": 2, "depth": 3, "stages": 1}]
    assert {name: len(stated) for name, stated in space.stated().items()} == {"flat": 2, "conditional": 5}


FIRST = """
{%- set tile = cfg.define_split("tile", N, num_outputs=2, policy="power2", min_factor=64, max_factor=256) -%}
{%- do cfg.require(N > 500, "too short for this way") -%}
{%- do cfg.suggest(tile=[cdiv(N, 256), 256]) -%}
{%- do cfg.suggest(tile=[cdiv(N, 64), 64]) -%}
def launch(a, b, c): pass
"""
SECOND = """
{%- set warps = cfg.define_knob("warps", [1, 2, 4]) -%}
{%- if warps > 1 -%}{%- set depth = cfg.define_knob("depth", [1, 2]) -%}{%- do cfg.require(depth > 1, "shallow") -%}{%- endif -%}
{%- do cfg.suggest(warps=2) -%}
def launch(a, b, c): pass
"""


@pytest.fixture
def templates(vector_add: Any, tmp_path: Path) -> Path:
    vector_add.with_files(tmp_path / "vector_add")
    (tmp_path / "vector_add" / "first.py.jinja").write_text(FIRST)
    (tmp_path / "vector_add" / "second.py.jinja").write_text(SECOND)
    return tmp_path


def test_space_tells_schedules_apart_and_why_another_ones_suggestion_is_the_default(templates: Path, capsys: pytest.CaptureFixture[str]) -> None:
    argv = ["space", "vector_add", "--templates", str(templates), "-w", "N=100"]
    assert main(argv) == ExitCode.OK
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert lines[0] == "vector_add:N=100,dtype=float32 on sm_90: 3 legal configs of 7 points"
    assert {"first 0 2 0 of 2", "second 3 5 1 of 1", "first too short for this way 2 points", "second shallow 2 points"} <= set(lines)
    passed = lines[lines.index("suggestions passed over") + 1 :]
    assert passed[:4] == [
        "first: suggest(tile=[1, 256])",
        "tile=[1, 256] is no candidate here",
        "first: suggest(tile=[2, 64])",
        "too short for this way",
    ]
    assert lines[lines.index("default: schedule=second warps=2 depth=2") + 1] == "not of first: no suggestion of it fits"
    assert main([*argv, "--json"]) == ExitCode.OK
    told = json.loads(capsys.readouterr().out)
    assert (told["legal"], told["points"], told["rejected"], told["cuts"]) == (3, 7, {"shallow": 2, "too short for this way": 2}, {})
    assert [(one["name"], one["legal"], one["suggestions"], one["passed_over"]) for one in told["schedules"]] == [("first", 0, 2, 2), ("second", 3, 1, 0)]
    assert told["passed_over"][1] == {"schedule": "first", "suggestion": {"tile": [2, 64]}, "reasons": {"too short for this way": 1}}


def test_a_default_says_why_it_is_not_of_the_first_schedule(templates: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def told(first: str, *more: str) -> list[str]:
        (templates / "vector_add" / "first.py.jinja").write_text(first)
        assert main(["space", "vector_add", "--templates", str(templates), "-w", "N=100", *more]) == ExitCode.OK
        *_, last = capsys.readouterr().out.split("\n\n")
        return [line.strip() for line in last.splitlines()]

    long_first = FIRST.replace("N > 500", "N > 50")
    late = "not of first: its first suggestion does not fit, and its others come later, as schedules take turns"
    assert told(long_first) == ["default: schedule=second warps=2 depth=2", late], "although the second of the first schedule fits"
    stated_where_it_fits = long_first.replace(
        "{%- do cfg.suggest(tile=[cdiv(N, 256), 256]) -%}", "{%- if N > 128 -%}{%- do cfg.suggest(tile=[1, 256]) -%}{%- endif -%}"
    )
    assert told(stated_where_it_fits) == ["default: schedule=first tile=2x64"]
    assert told(long_first.replace(", 64]", ", 16]"), "--schedule", "first") == [
        "first candidate of first: schedule=first tile=2x64",
        "no suggestion fits: this is the first legal config",
    ]


def test_subtrees_of_unknown_size_are_explained(templates: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    argv = ["space", "vector_add", "--templates", str(templates), "-w", "N=100"]
    assert main(argv) == ExitCode.OK
    assert "a subtree is" not in capsys.readouterr().out
    monkeypatch.setattr(tallies, "MOST_WALKED", 5)
    assert main(argv) == ExitCode.OK
    out = capsys.readouterr().out
    lines = [" ".join(line.split()) for line in out.splitlines()]
    assert {"second 3 - 1 of 1", "first too short for this way 2 points", "second shallow 2 subtrees"} <= set(lines)
    assert lines[0].endswith("3 legal configs") and "a subtree is all points with the same values of the knobs up to a require" in out


def test_several_workloads_have_a_line_each(templates: Path, capsys: pytest.CaptureFixture[str]) -> None:
    argv = ["space", "vector_add", "--templates", str(templates), "-w", "N=100", "-w", "N=512", "-w", "N=100"]
    assert main(argv) == ExitCode.OK
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert lines[1] == "vector_add:N=100,dtype=float32 3 7 first 0, second 3 1 of 3 schedule=second warps=2 depth=2"
    assert lines[2] == "vector_add:N=512,dtype=float32 6 8 first 3, second 3 3 of 3 schedule=first tile=2x256"
    assert lines[3] == "", "one that is named twice is looked at once"
    assert main([*argv, "--list", "1", "--json"]) == ExitCode.OK
    told = json.loads(capsys.readouterr().out)
    assert [(one["workload"], one["legal"], one["configs"]) for one in told["spaces"]] == [
        ("vector_add:N=100,dtype=float32", 3, [{"schedule": "second", "warps": 1}]),
        ("vector_add:N=512,dtype=float32", 6, [{"schedule": "first", "tile": [8, 64]}]),
    ]
