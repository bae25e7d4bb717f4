"""How searches by knobs alone start: a descent by turns of knobs, and draws where it has nowhere to go."""

from __future__ import annotations

import random
from itertools import islice

import numpy as np
import pytest

from tilewright.record import Config, Resources, config_key
from tilewright.search import Proposer, make_proposer
from tilewright.search.gaussian import Gaussian, Prior
from tilewright.search.margins import MarginChooser
from tilewright.search.moves import Descent
from tilewright.search.pool import Pool
from tilewright.search.pooled import Told
from tilewright.search.wide import CostProposer
from tilewright.space import Cfg, Space


def eights(cfg: Cfg) -> None:
    for knob in "abcd":
        cfg.define_knob(knob, list(range(8)))


def two_kinds(cfg: Cfg) -> None:
    if cfg.define_knob("split", [1, 2]) == 2:
        cfg.define_knob("second", [4, 5, 6, 7])
    cfg.define_knob("warps", [1, 2, 4, 8])


def differing(one: Config, other: Config) -> set[str]:
    return {name for name in {*one, *other} if one.get(name) != other.get(name)}


def next_move(descent: Descent) -> Config:
    return next(move for move in descent.moves() if move is not None)


def test_after_a_step_it_is_the_next_knobs_turn_and_each_has_its_turn_before_one_has_two() -> None:
    descent = Descent(Space({"s": eights}), random.Random(3))
    at: Config = dict.fromkeys("abcd", 3)
    descent.told(at, 100.0)
    turned = []
    for step in range(8):
        move = next_move(descent)
        (knob,) = differing(at, move)
        turned.append(knob)
        descent.told(move, 99.0 - step)
        at = move
    assert sorted(turned[:4]) == list("abcd")
    assert turned[4:] == turned[:4]


def test_knobs_that_gave_nothing_wait_until_the_others_had_their_turn() -> None:
    descent = Descent(Space({"s": eights}), random.Random(5))
    at: Config = dict.fromkeys("abcd", 3)
    descent.told(at, 100.0)
    moves = [move for move in islice(descent.moves(), 6) if move is not None]
    first, second, third = (next(iter(differing(at, moves[place]))) for place in (0, 2, 4))
    descent.told(moves[0], 200.0)  # the first knob gives nothing either way
    descent.told(moves[1], 200.0)
    descent.told(moves[2], 90.0)  # the second does
    assert differing(moves[2], next_move(descent)) == {third}
    assert len({first, second, third}) == 3


def test_a_knob_that_comes_up_with_a_step_takes_its_turn_too() -> None:
    space = Space({"s": two_kinds})
    descent = Descent(space, random.Random(0))
    descent.told({"split": 1, "warps": 2}, 100.0)
    larger = next(move for move in descent.moves() if move is not None and move["split"] == 2)
    descent.told(larger, 50.0)
    assert "second" in {name for move in descent.moves() if move is not None and "second" in move for name in differing(larger, move)}


def descended(proposer: Proposer, steps: int) -> Config:
    """The best after some steps, each of which must differ in one knob from the best before it."""
    best: tuple[float, Config] | None = None
    for _ in range(steps):
        config = proposer.ask()
        assert config is not None
        assert best is None or len(differing(best[1], config)) == 1
        time = 10.0 + sum((int(str(value)) - 5) ** 2 for value in config.values())
        best = min([best, (time, config)] if best else [(time, config)], key=lambda one: one[0])
        proposer.tell(config, time)
    assert best is not None
    assert best[0] < 80.0  # it began at 110, as all knobs are 0 in the first config
    return best[1]


@pytest.mark.parametrize("name", ["gp", "tpe"])
def test_first_candidates_differ_from_the_best_so_far_in_one_knob(name: str) -> None:
    descended(make_proposer(name, Space({"s": eights}), seed=1), 10)


@pytest.mark.parametrize("name", ["gp", "tpe"])
def test_where_nothing_runs_points_are_drawn_and_none_twice(name: str) -> None:
    proposer = make_proposer(name, Space({"s": eights}), seed=1)
    asked = []
    for _ in range(40):
        config = proposer.ask()
        assert config is not None
        asked.append(config_key(config))
        proposer.tell(config, None)
    assert len(set(asked)) == 40
    # Not around the first: that would be a walk among failures.
    assert len({key.split('"b":')[0] for key in asked}) > 5


def test_lengths_are_the_priors_again_once_other_workloads_are_not_believed() -> None:
    gaussian = Gaussian(Pool(Space({"s": eights}), seed=0).encoding.groups, Prior())
    prior = gaussian.lengths
    gaussian.lengthen(prior + np.array([1.0, *[0.0] * (len(prior) - 1)]))
    assert gaussian.lengths[0] > prior[0]
    gaussian.lengthen(None)
    np.testing.assert_array_equal(gaussian.lengths, prior)


def test_cost_starts_so_too_where_nothing_is_estimated_and_among_built_ones_only() -> None:
    space = Space({"s": eights})
    proposer = make_proposer("cost", space, seed=1)
    assert isinstance(proposer, CostProposer)
    best = descended(proposer, 9)
    near = {**best, "a": (int(str(best["a"])) + 2) % 8}
    for config in (dict.fromkeys("abcd", 7), near):
        proposer.built(config, Resources(shared_memory_bytes=1024))
    assert proposer.ask() == near


@pytest.mark.parametrize(("knobs", "steps"), [(1, 6), (3, 7), (4, 10), (5, 12), (7, 14)])
def test_gp_takes_steps_by_how_many_knobs_have_a_choice(knobs: int, steps: int) -> None:
    def declare(cfg: Cfg) -> None:
        cfg.define_knob("fixed", [1])
        for number in range(knobs):
            cfg.define_knob(f"knob{number}", [1, 2, 3])

    assert MarginChooser(Told(Pool(Space({"s": declare}), seed=0))).startup == steps


@pytest.mark.parametrize(("restarts", "centre"), [(True, 4), (False, 1)])
def test_a_descent_whose_steps_may_be_out_of_reach_stays_with_the_best(restarts: bool, centre: int) -> None:
    descent = Descent(Space({"s": eights}), random.Random(0), restarts=restarts)
    descent.told(dict.fromkeys("abcd", 1), 10.0)
    assert len(list(descent.moves())) > 0  # and none of them is taken
    descent.told(dict.fromkeys("abcd", 4), 20.0)
    assert len(differing(dict.fromkeys("abcd", centre), next_move(descent))) == 1
