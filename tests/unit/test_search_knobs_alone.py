"""Searches by knobs alone: what `auto` takes, margins, chances, and pools that turn over."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest

from tilewright.errors import UsageError
from tilewright.record import Config, config_key
from tilewright.search import DEFAULT_SEARCHER, check_searcher, make_proposer
from tilewright.search.chances import Chances
from tilewright.search.margins import MarginChooser
from tilewright.search.pool import MOST, Pool
from tilewright.search.pooled import PooledProposer, Told
from tilewright.search.wide import CostProposer
from tilewright.space import Cfg, Space
from tilewright.tuner import tune


def tiles(cfg: Cfg) -> None:
    cfg.define_knob("m", [16, 32, 64, 128, 256])
    cfg.define_knob("n", [16, 32, 64, 128, 256])
    cfg.define_knob("warps", [2, 4, 8])


def vast(cfg: Cfg) -> None:
    for knob in "abcdefg":
        cfg.define_knob(knob, list(range(8)))


def area(config: Config) -> int:
    return int(str(config["m"])) * int(str(config["n"]))


def test_auto_goes_by_what_there_is():
    assert DEFAULT_SEARCHER == "auto"
    space = Space({"s": tiles})
    assert isinstance(make_proposer("auto", space, seed=0), PooledProposer)
    assert isinstance(make_proposer("auto", space, seed=0, estimate=lambda config, resources: 1.0), CostProposer)


def test_tune_refuses_an_unknown_searcher_before_it_opens_anything(monkeypatch):
    monkeypatch.setattr("tilewright.tuner.open_device", lambda *args, **options: pytest.fail("opened a device"))
    with pytest.raises(UsageError, match="unknown search 'cst'; did you mean 'cost'"):
        tune("matmul", ["M=16,N=16,K=16,dtype=float16"], search="cst")


def test_every_searcher_but_those_of_other_packages_is_there():
    for name in ("auto", "cost", "gp", "tpe", "optuna-tpe", "evolutionary", "annealing", "descent", "random", "grid"):
        check_searcher(name)


def test_chances_generalise_to_larger_tiles():
    pool = Pool(Space({"s": tiles}), seed=0)
    chances = Chances(pool)
    rng = random.Random(1)
    told = rng.sample(range(len(pool)), 30)
    for number in told:
        chances.tell(number, failed=area(pool.configs[number]) > 8192)
    found = chances.running()
    rest = [number for number in range(len(pool)) if number not in told]
    large = [found[number] for number in rest if area(pool.configs[number]) >= 32768]
    small = [found[number] for number in rest if area(pool.configs[number]) <= 2048]
    assert max(large) < 0.3 < 0.8 < min(small)


def test_without_a_failure_all_points_run():
    pool = Pool(Space({"s": tiles}), seed=0)
    chances = Chances(pool)
    chances.tell(3, failed=False)
    assert chances.running().tolist() == [1.0] * len(pool)


def test_chances_learn_as_they_are_told():
    pool = Pool(Space({"s": tiles}), seed=0)
    stepwise, at_once = Chances(pool), Chances(pool)
    for number in range(0, 40, 2):
        stepwise.tell(number, failed=number % 3 == 0)
        at_once.tell(number, failed=number % 3 == 0)
        if number == 38:
            break
        if number in (4, 6):
            stepwise.running()
    # Asked in between, it has other hyperparameters, but the same opinion of what it was told.
    for found in (stepwise.running(), at_once.running()):
        assert found[[0, 6, 12]].max() < 0.5 < found[[2, 4, 8]].min()


def test_slow_points_are_drawn_together_and_keep_their_order():
    told = Told(Pool(Space({"s": tiles}), seed=0))
    chooser = MarginChooser(told)
    for number, time_us in enumerate([1.0, 2.0, 4.0, 8.0, 1e6]):
        told.times[number] = math.log(time_us)
        told.known[number] = True
        chooser.tell(number)
    chooser.choose(np.flatnonzero(~told.known))
    scaled = chooser._scaled()
    steps = np.diff(scaled)
    assert (steps > 0).all()
    assert steps[2] == pytest.approx(steps[1] * 0.25)


def test_a_failing_corner_is_left_alone():
    def failing(cfg: Cfg) -> None:
        for knob in "abc":
            cfg.define_knob(knob, [2**place for place in range(8)])

    def time_us(config: Config) -> float | None:
        a, b, c = (int(str(value)) for value in config.values())
        return None if a * b > 2**8 else 10.0 + abs(math.log2(a) - 3) + abs(math.log2(b) - 3) + abs(math.log2(c) - 3)

    failures = []
    for seed in range(3):
        proposer = make_proposer("gp", Space({"s": failing}), seed=seed)
        fates = []
        for _ in range(48):
            config = proposer.ask()
            assert config is not None
            fates.append(time_us(config))
            proposer.tell(config, fates[-1])
        assert min(time for time in fates if time is not None) == 10.0
        failures.append(fates[24:].count(None))
    # A third of all points fail.
    assert sum(failures) <= 28, failures  # 38 without a limit under which a point is left for the last


@pytest.mark.parametrize("name", ["gp", "tpe"])
def test_a_pool_that_turns_over_forgets_no_result(name):
    proposer = make_proposer(name, Space({"s": vast}), seed=2)
    assert isinstance(proposer, PooledProposer)
    best, asked = math.inf, set()
    for _ in range(90):
        config = proposer.ask()
        assert config is not None
        asked.add(config_key(config))
        best = min(best, 1.0 + sum(abs(float(str(value)) - 5) for value in config.values()))
        proposer.tell(config, 1.0 + sum(abs(float(str(value)) - 5) for value in config.values()))
    told = proposer._told
    assert len(asked) == 90
    assert len(told.pool) <= MOST + 200
    assert {config_key(told.pool.configs[number]) for number in told.times} == asked
    assert math.exp(min(told.times.values())) == pytest.approx(best)


def test_gp_finds_the_optimum_of_a_vast_smooth_space_that_random_search_does_not():
    best = {}
    for name in ("gp", "random"):
        proposer = make_proposer(name, Space({"s": vast}), seed=0)
        times = []
        for _ in range(100):
            config = proposer.ask()
            assert config is not None
            times.append(1.0 + sum((float(str(value)) - 5) ** 2 for value in config.values()))
            proposer.tell(config, times[-1])
        best[name] = min(times)
    assert best["gp"] <= 4.0 < best["random"]
