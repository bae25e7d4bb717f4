"""`triton.Config` lists as first candidates: read as data, matched to knobs, refused with a reason."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tilewright.errors import UsageError
from tilewright.interchange.chosen import Chosen
from tilewright.interchange.config_files import GivenConfig, read_configs
from tilewright.interchange.names import Names
from tilewright.interchange.suggested import Suggestions, match_configs, suggesting
from tilewright.interchange.triton_configs import triton_snippet
from tilewright.library import find_operator
from tilewright.search import SEARCHERS, make_proposer
from tilewright.space import Cfg, SearchSpace, Space
from tilewright.target import NAMED_TARGETS
from tilewright.workload import Workload


def tiled(cfg: Cfg) -> None:
    tile = cfg.define_split("tile_m", 64, num_outputs=2, policy="power2", min_factor=16, max_factor=64)
    deep = cfg.define_split("tile_k", 64, num_outputs=3, policy="power2", min_factor=2, max_factor=8)
    warps = cfg.define_knob("num_warps", [2, 4, 8])
    if warps > 2:
        cfg.define_knob("group", [1, 8])
    cfg.define_knob("kind", ["plain", "fancy"])
    cfg.define_reorder("order", ["m", "n"], policy="all")
    cfg.require(tile.size[-1] >= 8 * warps, "too many warps")
    cfg.require(deep.size[1] <= deep.size[2], "odd")
    cfg.suggest(tile_m=[2, 32], tile_k=[16, 2, 2], num_warps=2, kind="fancy", order=["n", "m"])
    cfg.suggest(tile_m=[4, 16], tile_k=[16, 2, 2], num_warps=2, kind="plain", order=["n", "m"])


def narrow(cfg: Cfg) -> None:
    cfg.define_split("tile_m", 64, num_outputs=2, policy="power2", min_factor=16, max_factor=16)
    cfg.define_knob("only", [1, 2])


@pytest.fixture
def space() -> Space:
    return Space({"tiled": tiled})


def python(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "configs.py"
    path.write_text(text)
    return path


def matched(path: Path, space: SearchSpace, *rules: str) -> Suggestions:
    return match_configs(read_configs(path), space, Names.parse(rules))


def test_calls_of_config_are_read_as_they_are_written(tmp_path: Path) -> None:
    text = """
import triton, somewhere
CONFIGS = [
    triton.Config({"BLOCK_M": 16, "KIND": "fancy"}, num_warps=8),
    triton.Config(kwargs={"BLOCK_M": 32}, num_stages=2, maxnreg=None),
    Config({"BLOCK_M": 64, "SHIFT": -1, "ON": True}, 2, 3, 1),
]
@triton.autotune(
    configs=[triton.Config({"BLOCK_M": m}, num_warps=w) for m, w in [(16, 2), (32, 4)]]
    + list(triton.Config({"A": a, "B": b}) for a in (1, 2) for b in [3]),
    key=["M"],
)
def kernel(): ...
"""
    read = read_configs(python(tmp_path, text))
    assert [(one.values, one.refused) for one in read] == [
        ({"BLOCK_M": 16, "KIND": "fancy", "num_warps": 8}, ""),
        ({"BLOCK_M": 32, "num_stages": 2}, ""),
        ({"BLOCK_M": 64, "SHIFT": -1, "ON": True, "num_warps": 2, "num_stages": 3, "num_ctas": 1}, ""),
        ({"BLOCK_M": 16, "num_warps": 2}, ""),
        ({"BLOCK_M": 32, "num_warps": 4}, ""),
        ({"A": 1, "B": 3}, ""),
        ({"A": 2, "B": 3}, ""),
    ]
    assert read[0].place == "line 4"


@pytest.mark.parametrize(
    ("call", "said"),
    [
        ("triton.Config({'A': __import__('os').system('touch PWNED')})", "__import__.* is no literal"),
        ("triton.Config({'A': open('PWNED', 'w')})", "is no literal"),
        ("triton.Config({'A': BLOCK})", "BLOCK is no literal"),
        ("triton.Config({'A': 2 * 16})", "is no literal"),
        ("triton.Config({'A': f'{x}'})", "is no literal"),
        ("triton.Config({'A': 'x' * 10**9})", "is no literal"),
        ("triton.Config({**BASE, 'A': 1})", "is no literal"),
        ("triton.Config(**OPTIONS)", r"\*\*arguments are not evaluated"),
        ("triton.Config({'A': 1}, pre_hook=hook)", "hook is no literal"),
        ("triton.Config({'A': 1}, ir_override='/etc/passwd')", "ir_override changes the launch"),
        ("triton.Config({1: 1})", "1 is no name"),
        ("triton.Config({'A': [1, 2.5]})", "neither a number nor a word, nor a list of whole numbers"),
        ("triton.Config({'A': [1, True]})", "neither a number nor a word, nor a list of whole numbers"),
        ("triton.Config({'A': [1, 'k']})", "neither a number nor a word, nor a list of whole numbers"),
        ("triton.Config({'A': []})", "neither a number nor a word, nor a list of whole numbers"),
        ("triton.Config([1])", "is no object"),
        ("triton.Config({}, 1, 2, 3, 4, 5, 6)", "arguments by position"),
        ("[triton.Config({'A': a}) for a in range(10**9)]", r"range\(10 \*\* 9\) is no literal"),
        ("[triton.Config({'A': a}) for a in [1, 2] if a > 1]", "has a condition"),
        ("[triton.Config({'A': a}) for a, b in [1]]", "does not fit"),
    ],
)
def test_nothing_of_a_python_file_is_evaluated(tmp_path: Path, call: str, said: str, monkeypatch: pytest.MonkeyPatch, space: Space) -> None:
    monkeypatch.chdir(tmp_path)
    path = python(tmp_path, f"BLOCK = 16\nBASE = {{}}\n{call}\n")
    (one,) = read_configs(path)
    assert not one.values
    found = matched(path, space)
    assert (found.configs, found.given) == ((), 1)
    assert re.search(said, found.refused[0][1])
    assert sorted(item.name for item in tmp_path.iterdir()) == ["configs.py"]


def test_json_of_three_forms(tmp_path: Path) -> None:
    path = tmp_path / "configs.json"
    config = {"BLOCK_SIZE_M": 16, "num_warps": 4}
    for document in ([{"kwargs": {"BLOCK_SIZE_M": 16}, "num_warps": 4, "maxnreg": None}], {"16": config}, [config], config):
        path.write_text(json.dumps(document))
        assert [one.values for one in read_configs(path)] == [config]
    path.write_text(json.dumps([{"A": {"B": 1}}, 7, {"kwargs": 1}, {"A": None}]))
    assert [one.refused for one in read_configs(path)] == [
        "A={'B': 1} is neither a number nor a word, nor a list of whole numbers (a split's parts) or of words",
        "7 is no object with values by name",
        "kwargs 1 is no object",
        "A=None is neither a number nor a word, nor a list of whole numbers (a split's parts) or of words",
    ]


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("x.py", "def (", "line 1"),
        ("x.py", "a = 1", "has no triton.Config"),
        ("x.py", "[" * 5000, "x.py"),
        ("x.py", "a = '\0'", "x.py"),
        ("x.json", "{", "is no JSON"),
        ("x.json", "[" * 100_000, "is no JSON"),
        ("x.json", "[]", "has no triton.Config"),
        ("x.json", json.dumps([{"A": 1}] * 5000), "more than 4096"),
        ("x.py", "[Config({'A': a, 'B': b}) for a in HUNDRED for b in HUNDRED]".replace("HUNDRED", str([*range(100)])), "more than 4096"),
    ],
)
def test_a_file_that_holds_no_suggestions(tmp_path: Path, name: str, text: str, said: str) -> None:
    path = tmp_path / name
    path.write_text(text)
    with pytest.raises(UsageError, match=said):
        read_configs(path)


def test_a_file_that_is_not_there_or_no_text(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no file"):
        read_configs(tmp_path / "none.py")
    (tmp_path / "x.py").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UsageError, match="no UTF-8"):
        read_configs(tmp_path / "x.py")
    (tmp_path / "x.py").write_bytes(b"#" * (5 << 20))
    with pytest.raises(UsageError, match="larger than 4 MiB"):
        read_configs(tmp_path / "x.py")


def test_configs_become_points_of_the_space_by_name(tmp_path: Path, space: Space) -> None:
    text = """[
    Config({"BLOCK_M": 64, "GROUP": 8, "K1": 2, "K2": 4, "order": ("m", "n")}, num_warps=4),
    Config({"BLOCK_M": 64, "GROUP": 8}),
    Config({"tile_m_0": 99, "tile_m_1": 16, "kind": "plain"}, num_warps=2),
    Config({"BLOCK_M": 64, "GROUP": 8}, num_warps=4),
]"""
    found = matched(python(tmp_path, text), space, "tile_m=BLOCK_M", "group=GROUP", "tile_k.1=K1", "tile_k.2=K2")
    assert found.refused == ()
    assert [*found.configs] == [
        {"tile_m": [1, 64], "tile_k": [8, 2, 4], "num_warps": 4, "group": 8, "kind": "fancy", "order": ["m", "n"]},
        # Not named: Triton's default for the warps, the author's for the rest.
        {"tile_m": [1, 64], "tile_k": [16, 2, 2], "num_warps": 4, "group": 8, "kind": "fancy", "order": ["n", "m"]},
        # The outermost part follows from the extent.
        {"tile_m": [4, 16], "tile_k": [16, 2, 2], "num_warps": 2, "kind": "plain", "order": ["n", "m"]},
    ]
    assert all(space.validate(config) == config for config in found.configs)


def test_a_split_is_taken_as_logs_and_suggest_write_it(tmp_path: Path, space: Space) -> None:
    logged = {"tile_m": [2, 32], "tile_k": [4, 4, 4], "num_warps": 2, "kind": "plain", "order": ["m", "n"]}
    path = tmp_path / "configs.json"
    path.write_text(json.dumps([logged, {**logged, "tile_m": [9, 16]}, {"BLOCK_M": [1, 64]}]))
    found = matched(path, space, "tile_m=BLOCK_M")
    assert found.refused == ()
    assert found.configs[0] == logged
    assert found.configs[1] == {**logged, "tile_m": [4, 16]}, "of another extent: the outermost part follows"
    assert found.configs[2]["tile_m"] == [1, 64]
    text = f"[Config({logged!r})]"
    assert matched(python(tmp_path, text), space).configs == (logged,)


def test_every_config_of_a_space_is_a_suggestion_of_itself(tmp_path: Path, space: Space) -> None:
    configs = list(space.enumerate())
    path = tmp_path / "configs.json"
    path.write_text(json.dumps(configs))
    assert list(matched(path, space).configs) == configs


@pytest.mark.parametrize(
    ("values", "rules", "said"),
    [
        ({"BLOCK_M": 16}, [], r"'BLOCK_M' is no knob here: say which it is with --map KNOB=BLOCK_M"),
        ({"BLOCK_M": 16}, ["tile_x=BLOCK_M"], r"no such knob; did you mean 'tile_m'"),
        ({"tile_m": 128}, [], r"knob 'tile_m': no candidate is 128; one of"),
        ({"tile_m": "{{ 7 * 7 }}"}, [], r"no candidate is"),
        ({"tile_m": True}, [], r"no candidate is"),
        ({"kind": "../../etc/passwd"}, [], r"knob 'kind': no candidate is '\.\./\.\./etc/passwd'"),
        ({"num_warps": 4.0}, [], r"knob 'num_warps': no candidate is 4.0"),
        ({"tile_m": 16, "num_warps": 8}, [], r"too many warps"),
        ({"order": ("n", "n")}, [], r"knob 'order': no candidate is \['n', 'n'\]"),
        ({"tile_m": (2, 128)}, [], r"knob 'tile_m': no candidate is \[2, 128\]; one of"),
        ({"tile_m": (1, 2, 32)}, [], r"knob 'tile_m': no candidate is \[1, 2, 32\]; one of"),
        ({"tile_m": (32,)}, [], r"knob 'tile_m': no candidate is \[32\]; one of"),
        ({"num_warps": (2, 4)}, [], r"knob 'num_warps': no candidate is \[2, 4\]; one of"),
        ({"tile_k_7": 2}, [], r"no candidate is 2 in part 7"),
    ],
)
def test_what_is_not_legal_is_refused_with_the_reason(space: Space, values: dict[str, Any], rules: list[str], said: str) -> None:
    given = [GivenConfig(place="line 7", values=values), GivenConfig(place="line 8", values={"num_warps": 2})]
    found = match_configs(given, space, Names.parse(rules))
    assert (len(found.configs), found.given) == (1, 2)
    ((place, reason),) = found.refused
    assert place == "line 7"
    assert re.search(said, reason), reason
    summary = found.summary(Path("configs.py"), Workload(operator="op", dims={"M": 1}, dtypes={}))
    assert summary.startswith("configs.py: 1 first candidates of 2 configs for op:M=1; refused 1:\n  line 7: ")


def test_names_that_stand_for_no_knob_and_knobs_not_reached_are_passed_over(space: Space) -> None:
    given = [GivenConfig(place="line 1", values={"EVEN_K": True, "tile_m": 16, "num_warps": 2, "group": 8})]
    found = match_configs(given, space, Names.parse(["=EVEN_K"]))
    assert [config["tile_m"] for config in found.configs] == [[4, 16]]
    assert "group" not in found.configs[0]


def test_what_triton_takes_without_a_word_counts_under_other_names_too() -> None:
    def named(cfg: Cfg) -> None:
        cfg.define_knob("W", [2, 4, 8])
        cfg.define_knob("S", [2, 3])
        cfg.define_knob("B", [16, 32])

    given = [GivenConfig(place="", values={"B": 32}), GivenConfig(place="", values={"B": 32, "num_warps": 8})]
    found = match_configs(given, Space({"named": named}), Names.parse(["W=num_warps", "S=num_stages"]))
    assert [*found.configs] == [{"W": 4, "S": 3, "B": 32}, {"W": 8, "S": 3, "B": 32}]


def test_the_schedule_that_has_such_a_point_is_taken() -> None:
    several = Space({"tiled": tiled, "narrow": narrow})
    given = [{"tile_m": 16, "only": 2}, {"schedule": "narrow", "tile_m": 16}, {"schedule": "wide"}, {"tile_m": 32, "num_warps": 2}]
    found = match_configs([GivenConfig(place="", values=values) for values in given], several, Names())
    assert [(config["schedule"], config["tile_m"], config.get("only")) for config in found.configs] == [
        ("narrow", [4, 16], 2),
        ("narrow", [4, 16], 1),
        ("tiled", [2, 32], None),
    ]
    assert "no schedule 'wide'" in found.refused[0][1]


@pytest.mark.parametrize("search", [name for name in SEARCHERS if name not in ("auto", "cmaes")])
def test_every_searcher_asks_for_them_after_the_default(tmp_path: Path, search: str) -> None:
    notes: list[str] = []
    path = python(tmp_path, "[Config({'tile_m': 64, 'group': g}, num_warps=4) for g in (8, 1)]")
    space = suggesting(lambda workload: Space({"tiled": tiled}), path, [], notes.append)(Workload(operator="op", dims={}, dtypes={}))
    proposer = make_proposer(search, space, seed=0)
    asked = [proposer.ask() for _ in range(4)]
    assert asked[0] == space.default() == Space({"tiled": tiled}).default()
    assert [(config["tile_m"], config["num_warps"], config.get("group")) for config in asked[1:3] if config] == [([1, 64], 4, 8), ([1, 64], 4, 1)]
    assert asked[3] == Space({"tiled": tiled}).suggestions()[1]
    assert notes == [f"{path}: 2 first candidates of 2 configs for op:"]


def test_our_own_export_comes_back_as_suggestions_for_another_shape(tmp_path: Path) -> None:
    operator = find_operator("matmul")
    target = NAMED_TARGETS["sm_90"]
    one, other = (operator.workload(f"M={m},N=4096,K=4096,dtype=bfloat16") for m in (4096, 1000))
    space = operator.space(one, target)
    configs = [config for config in space.suggestions() if config["schedule"] == "pointers"][:4]
    chosen = [Chosen(workload=one, target=target, config=config, median_us=1.0, protocol="graph/1") for config in configs]
    path = python(tmp_path, triton_snippet(chosen, Names(), "here"))
    back = matched(path, space)
    assert back.refused == ()
    assert [{name: value for name, value in config.items() if name != "schedule"} for config in back.configs] == [
        {name: value for name, value in config.items() if name != "schedule"} for config in configs
    ]
    far = matched(path, operator.space(other, target))
    assert far.refused == ()
    assert [config["tile_m"][-1] for config in far.configs] == [config["tile_m"][-1] for config in configs]  # type: ignore[index]
