"""What every searcher must do, whatever it is good at."""

from __future__ import annotations

import importlib.util
import random
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tilewright import cli
from tilewright.errors import SpaceError, UsageError
from tilewright.record import Config, config_key
from tilewright.search import SEARCHERS, Proposer, make_proposer
from tilewright.space import Cfg, Space

CMAES = importlib.util.find_spec("cmaes") is not None
ALL = [name for name in sorted(SEARCHERS) if CMAES or name != "cmaes"]


def plain(cfg: Cfg) -> None:
    m = cfg.define_knob("m", [16, 32, 64, 128])
    n = cfg.define_knob("n", [16, 32, 64, 128])
    cfg.define_knob("order", ["row", "col", "swizzled"])
    cfg.suggest(m=64, n=32, order="col")
    cfg.suggest(m=32, n=32, order="row")
    cfg.require(m * n <= 4096, "tile too large")


def conditional(cfg: Cfg) -> None:
    split = cfg.define_knob("split", [1, 2, 4])
    if split > 1:
        cfg.define_knob("reduce", ["atomic", "workspace"])
    cfg.define_knob("warps", [2, 4, 8])


def needle(cfg: Cfg) -> None:
    values = [cfg.define_knob(name, list(range(8))) for name in "abc"]
    cfg.require(values in ([7, 7, 6], [7, 7, 7]), "haystack")


def legal(space: Space) -> set[str]:
    return {config_key(config) for config in space.enumerate()}


def cost(config: Config) -> float | None:
    """A made-up time in µs, with a failing corner."""
    if config.get("order") == "swizzled" and config["m"] == 128:
        return None
    return 10.0 + sum(len(value) if isinstance(value, str) else abs(float(str(value)) - 48) for value in config.values())


def drain(proposer: Proposer, limit: int = 500) -> list[str]:
    asked = []
    while (config := proposer.ask()) is not None:
        asked.append(config_key(config))
        proposer.tell(config, cost(config) if "m" in config else float(len(asked)))
        assert len(asked) <= limit
    return asked


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("program", [plain, conditional, needle])
def test_a_whole_space_is_proposed_once_and_then_it_ends(name, program):
    space = Space({"s": program})
    proposer = make_proposer(name, space, seed=3)
    asked = drain(proposer)
    assert len(asked) == len(set(asked))
    assert set(asked) == legal(space)
    assert proposer.ask() is None


@pytest.mark.parametrize("name", ALL)
def test_the_authors_candidates_come_first(name):
    space = Space({"s": plain})
    proposer = make_proposer(name, space, seed=0)
    assert [proposer.ask(), proposer.ask()] == space.suggestions()


@pytest.mark.parametrize("name", ALL)
def test_without_suggestions_the_default_comes_first(name):
    space = Space({"s": conditional})
    assert make_proposer(name, space, seed=5).ask() == space.default()


@pytest.mark.parametrize("name", ALL)
def test_asks_may_be_outstanding_and_told_in_any_order(name):
    space = Space({"s": plain})
    proposer = make_proposer(name, space, seed=1)
    batch = [proposer.ask() for _ in range(20)]
    assert None not in batch and len({config_key(c) for c in batch if c}) == 20
    for config in reversed(batch):
        proposer.tell(config, cost(config))
    rest = drain(proposer)
    assert {config_key(c) for c in batch if c} | set(rest) == legal(space)


@pytest.mark.parametrize("name", ALL)
def test_history_is_not_proposed_again_and_may_be_stale(name):
    space = Space({"s": plain})
    known = list(space.enumerate())[:15]
    history = [(config, cost(config)) for config in known] + [({"m": 7, "n": 16, "order": "row"}, 1.0), ({"gone": 1}, None)]
    asked = drain(make_proposer(name, space, seed=2, history=history))
    assert set(asked) == legal(space) - {config_key(config) for config in known}


@pytest.mark.parametrize("name", ALL)
def test_what_was_never_asked_may_be_told(name):
    space = Space({"s": plain})
    proposer = make_proposer(name, space, seed=2)
    told = list(space.enumerate())[20:24]
    for config in told:
        proposer.tell(config, cost(config))
    assert not {config_key(config) for config in told} & set(drain(proposer))


@pytest.mark.parametrize("name", ALL)
def test_equal_seeds_propose_alike_and_others_differ(name):
    runs = [drain(make_proposer(name, Space({"s": plain}), seed=seed)) for seed in (7, 7, 8)]
    assert runs[0] == runs[1]
    if name != "grid":
        assert runs[0] != runs[2]


@pytest.mark.parametrize("name", ALL)
def test_the_global_random_state_is_left_alone(name):
    random.seed(5)
    expected = random.random()
    random.seed(5)
    drain(make_proposer(name, Space({"s": conditional}), seed=1))
    assert random.random() == expected


@pytest.mark.parametrize("name", ALL)
def test_failures_alone_do_not_stop_a_search(name):
    space = Space({"s": plain})
    proposer = make_proposer(name, space, seed=4)
    for _ in range(30):
        config = proposer.ask()
        assert config is not None
        proposer.tell(config, None)


@pytest.mark.parametrize("name", ALL)
def test_an_empty_space_is_an_error_that_names_the_require(name):
    def empty(cfg: Cfg) -> None:
        cfg.define_knob("m", [1, 2])
        cfg.require(False, "never")

    with pytest.raises(SpaceError, match="never"):
        make_proposer(name, Space({"s": empty}), seed=0)


def test_points_that_a_require_refuses_cost_no_trial_and_are_counted_once():
    proposer = make_proposer("optuna-tpe", Space({"s": plain}), seed=3)
    drain(proposer)
    refused = 4 * 4 * 3 - len(legal(Space({"s": plain})))
    assert set(proposer.rejected) == {"tile too large"}
    assert 0 < proposer.rejected["tile too large"] <= refused


def test_models_find_a_smooth_optimum_that_random_search_misses():
    def smooth(cfg: Cfg) -> None:
        for name in "abcd":
            cfg.define_knob(name, list(range(10)))

    def time_us(config: Config) -> float:
        return 1.0 + sum((float(str(value)) - 6) ** 2 for value in config.values())

    best = {}
    for name in ("gp", "optuna-tpe", "random"):
        found = []
        for seed in range(2):
            proposer = make_proposer(name, Space({"s": smooth}), seed=seed)
            times = []
            for _ in range(100):
                config = proposer.ask()
                assert config is not None
                times.append(time_us(config))
                proposer.tell(config, times[-1])
            found.append(min(times))
        best[name] = sum(found) / 2
    assert max(best["gp"], best["optuna-tpe"]) < 0.7 * best["random"]


def test_grid_follows_the_order_of_enumeration():
    space = Space({"s": conditional})
    proposer = make_proposer("grid", space, seed=9)
    assert drain(proposer) == [config_key(config) for config in space.enumerate()]


def test_an_unknown_searcher_is_named_with_its_nearest():
    with pytest.raises(UsageError, match="did you mean 'tpe'"):
        make_proposer("tpee", Space({"s": plain}), seed=0)


def test_a_searcher_whose_package_is_missing_names_it_and_another(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(UsageError, match=r"needs the package cmaes.*tilewright\[search\].*--search auto"):
        make_proposer("cmaes", Space({"s": plain}), seed=0)


@pytest.mark.skipif(not CMAES, reason="needs the package cmaes")
def test_a_draw_of_cmaes_that_is_not_legal_moves_to_a_legal_neighbour():
    space = Space({"s": plain})
    proposer = make_proposer("cmaes", space, seed=0)
    for _ in range(12):
        config = proposer.ask()
        assert config is not None and not space.evaluate(lambda knob, config=config: config[knob.name]).violations
        proposer.tell(config, cost(config))


@pytest.mark.parametrize("name", ["tpe", *(["cmaes"] if CMAES else [])])
def test_a_space_too_large_to_list_is_searched_by_a_sample_of_it(name):
    def vast(cfg: Cfg) -> None:
        for knob in "abcdefg":
            cfg.define_knob(knob, list(range(8)))

    proposer = make_proposer(name, Space({"s": vast}), seed=1)
    asked = set()
    times = []
    for _ in range(60):
        config = proposer.ask()
        assert config is not None
        asked.add(config_key(config))
        times.append(1.0 + sum(abs(float(str(value)) - 5) for value in config.values()))
        proposer.tell(config, times[-1])
    assert len(asked) == 60
    assert min(times[30:]) < min(times[:10])


def test_optuna_is_imported_late():
    code = "import sys, tilewright.search; sys.exit(any(m in sys.modules for m in ('optuna', 'numpy', 'torch', 'triton')))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_searchers_are_listed_in_one_order() -> None:
    documented = (Path(__file__).parents[2] / "docs" / "search.md").read_text(encoding="utf-8")
    rows = [line.split("|")[1] for line in documented.splitlines() if line.startswith("| `")]
    named = [name for row in rows for name in re.findall(r"`([a-z-]+)`", row)]
    assert named[: len(SEARCHERS)] == list(SEARCHERS)
    assert re.findall(r"[a-z-]+", cli._SEARCHES.partition("(")[0].replace(" or ", ", ")) == list(SEARCHERS)
