"""Configs in which every candidate occurs, and the faults that they show."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from tilewright.builder import BuildOutcome, BuildRequest
from tilewright.cli import main
from tilewright.each_candidate import absent, distinct_sample, each_candidate
from tilewright.library import find_operator
from tilewright.record import Status
from tilewright.space import Cfg, Space
from tilewright.target import NAMED_TARGETS
from tilewright.testing import FakeBuilder

SPEC = """
from tilewright.operator import OperatorSpec, TensorSpec, Tolerance

def vector(w):
    return {"a": TensorSpec(shape=(w["N"],), dtype=w["dtype"])}

SPEC = OperatorSpec(
    name="branchy", summary="", dims=("N",), dtypes={"dtype": ("float16",)}, arguments=("a",), inputs=vector,
    outputs=lambda w: {"b": TensorSpec(shape=(w["N"],), dtype=w["dtype"])}, flops=lambda w: 1.0, bytes_moved=lambda w: 1.0,
    tolerance=lambda w: Tolerance(rel_norm=1e-3, max_error=1e-2, reason="a copy"), infer=lambda args: {"N": 1},
)
"""
TEMPLATE = """
{%- set way = cfg.define_knob("way", ["plain", "fancy", "odd"]) -%}
{%- set warps = cfg.define_knob("warps", [2, 4, 8, 32]) -%}
{%- do cfg.require(warps < 32, "too many") -%}
{%- do cfg.suggest(way="plain", warps=4) -%}
import triton

def launch(a, b):
{%- if way == "fancy" %}
    undefined_name(a, b)
{%- endif %}
    return {{ warps }}
"""


def declared(cfg: Cfg) -> None:
    way = cfg.define_knob("way", ["plain", "fancy"])
    cfg.define_knob("stages", [1, 2, 3, 4])
    if way == "fancy":
        cfg.define_knob("extra", ["x", "y"])
    cfg.define_knob("never", [1, 2])
    cfg.require(cfg._config["never"] == 1, "no")
    cfg.suggest(way="fancy", stages=2, extra="x", never=1)


def test_every_candidate_occurs_in_as_many_configs_as_the_longest_knob_needs() -> None:
    space = Space({"s": declared})
    chosen = each_candidate(space)
    assert chosen[0] == space.default()
    assert len(chosen) == 4
    assert {config["stages"] for config in chosen} == {1, 2, 3, 4}
    assert {config.get("extra") for config in chosen} == {"x", "y", None}
    assert absent(space, chosen) == ["never=2"]


def test_a_large_space_is_sampled_and_its_schedules_count_apart() -> None:
    operator = find_operator("matmul")
    space = operator.space(operator.workload("M=4096,N=4096,K=4096,dtype=bfloat16"), NAMED_TARGETS["sm_90"])
    chosen = each_candidate(space)
    assert len(chosen) < 40
    for schedule in ("pointers", "tma", "tma_persistent"):
        assert {config["num_warps"] for config in chosen if config["schedule"] == schedule} >= {4, 8}
    assert all(space.validate(config) == config for config in chosen)


@pytest.mark.parametrize("seed", range(20))
def test_a_sample_has_no_config_twice_and_is_all_of_them_where_there_are_no_more(seed: int) -> None:
    space = Space({"s": declared})
    everything = {str(config) for config in space.enumerate()}
    assert len(everything) == 12
    for n in (1, 7, 11, 12, 13, 1000):
        drawn = distinct_sample(space, n, random.Random(seed))
        assert len(drawn) == len({str(config) for config in drawn}) == min(n, 12)
        assert {str(config) for config in drawn} <= everything
    assert distinct_sample(space, 7, random.Random(seed)) == distinct_sample(space, 7, random.Random(seed))


def test_every_config_is_as_likely_to_be_in_a_sample() -> None:
    space, rng = Space({"s": declared}), random.Random(0)
    counts = dict.fromkeys(map(str, space.enumerate()), 0)
    for _ in range(1200):
        for config in distinct_sample(space, 3, rng):
            counts[str(config)] += 1
    assert min(counts.values()) > 240 and max(counts.values()) < 360, counts  # of 300, whose standard deviation is 15


def test_check_each_shows_the_fault_of_a_branch_that_nobody_suggests(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "branchy"
    folder.mkdir()
    (folder / "spec.py").write_text(SPEC)
    (folder / "only.py.jinja").write_text(TEMPLATE)

    def build(request: BuildRequest) -> BuildOutcome:
        broken = "undefined_name" in request.source.text
        return BuildOutcome(status=Status.LAUNCH_ERROR, message="NameError: name 'undefined_name'") if broken else BuildOutcome(status=Status.OK)

    monkeypatch.setattr("tilewright.commands.check.CompileBuilder", lambda jobs, timeout_s: FakeBuilder(build))
    command = ["check", "branchy", "-w", "N=64", "--templates", str(tmp_path)]
    main([*command, "--json"])
    assert json.loads(capsys.readouterr().out)["checks"][0]["statuses"] == {"ok": 1}
    main([*command, "--each", "--json"])
    (told,) = json.loads(capsys.readouterr().out)["checks"]
    assert told["statuses"] == {"launch_error": 1, "ok": 2}
    assert told["absent"] == ["warps=32"]
    assert main([*command, "--each"]) == 1
    out = capsys.readouterr().out
    assert "way=fancy" in out and "undefined_name" in out and "no legal config with it was met: warps=32" in out
    assert main([*command, "--each", "--sample", "3"]) == 2
    capsys.readouterr()
    for asked, checked, said in ((9, 9, False), (10, 9, True)):
        main([*command, "--sample", str(asked), "--json"])
        (told,) = json.loads(capsys.readouterr().out)["checks"]
        assert (told["asked"], told["checked"]) == (asked, checked), "3 ways by 3 numbers of warps"
        main([*command, "--sample", str(asked)])
        assert ("all 9 legal configs of the space were checked, fewer than the 10 asked for" in capsys.readouterr().out) == said
