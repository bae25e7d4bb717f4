"""Spaces declared by plain Python programs: counting, cutting, indexing, sampling, suggesting, and refusing."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from tilewright.declare import run_pass
from tilewright.errors import SpaceError
from tilewright.knobs import Knob
from tilewright.space import Cfg, Space, SpaceCount, unconditional


def flat(cfg: Cfg) -> None:
    a = cfg.define_knob("a", [1, 2, 4])
    cfg.require(a != 2, "a must not be 2")
    b = cfg.define_knob("b", [1, 2, 4, 8])
    cfg.require(a * b <= 8, "too large")


def nested(cfg: Cfg) -> None:
    mode = cfg.define_knob("mode", ["plain", "split"])
    ways = 1
    if mode == "split":
        ways = cfg.define_knob("ways", [2, 4, 8])
        if ways == 8:
            cfg.define_knob("atomic", [False, True])
    stages = cfg.define_knob("stages", [2, 3])
    cfg.require(not (ways == 4 and stages == 3), "four ways need two stages")


NESTED = [
    {"mode": "plain", "stages": 2},
    {"mode": "plain", "stages": 3},
    {"mode": "split", "ways": 2, "stages": 2},
    {"mode": "split", "ways": 2, "stages": 3},
    {"mode": "split", "ways": 4, "stages": 2},
    {"mode": "split", "ways": 8, "atomic": False, "stages": 2},
    {"mode": "split", "ways": 8, "atomic": False, "stages": 3},
    {"mode": "split", "ways": 8, "atomic": True, "stages": 2},
    {"mode": "split", "ways": 8, "atomic": True, "stages": 3},
]


def test_rejections_count_points_where_every_pass_meets_the_same_knobs():
    def fixed(cfg: Cfg) -> None:
        flat(cfg)

    count = Space({"s": unconditional(fixed)}).count()
    assert count == SpaceCount(legal=6, points=12, rejected={"a must not be 2": 4, "too large": 2})


def test_rejections_count_cuts_where_sizes_are_unknown():
    assert Space({"s": flat}).count() == SpaceCount(legal=6, points=None, cuts={"a must not be 2": 1, "too large": 2})


def test_a_failed_require_cuts_its_whole_subtree():
    passes = 0

    def counted(cfg: Cfg) -> None:
        nonlocal passes
        passes += 1
        flat(cfg)

    space = Space({"s": counted})
    passes = 0
    assert len(list(space)) == 6
    assert passes == 4 + 1 + 4


def test_a_conditional_space_lists_exactly_its_points_in_order():
    space = Space({"s": nested})
    assert list(space.enumerate()) == NESTED
    assert [space[i] for i in range(9)] == NESTED and space[-1] == NESTED[-1]
    with pytest.raises(IndexError):
        space[9]


def test_knobs_under_conditions_are_found_and_stand_where_they_are_declared():
    space = Space({"s": nested})
    assert [knob.name for knob in space.knobs] == ["mode", "ways", "atomic", "stages"]
    assert space.size_bound() == 2 * 3 * 2 * 2


def test_evaluate_goes_on_to_the_end_and_notes_every_violation():
    asked: list[str] = []

    def choose(knob: Knob) -> int:
        asked.append(knob.name)
        return {"a": 2, "b": 8}[knob.name]

    evaluation = Space({"s": flat}).evaluate(choose)
    assert asked == ["a", "b"]
    assert evaluation.config == {"a": 2, "b": 8}
    assert evaluation.violations == ("a must not be 2", "too large")


def test_evaluate_refuses_a_value_that_is_no_candidate():
    with pytest.raises(SpaceError, match="knob 'a': 3 is no candidate; one of: 1, 2, 4"):
        Space({"s": flat}).evaluate(lambda knob: 3)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"mode": "plain"}, "no value for knob 'stages'; one of: 2, 3"),
        ({"mode": "plain", "stages": 2, "stagse": 2}, "unknown knob 'stagse'; did you mean 'stages'"),
        ({"mode": "plane", "stages": 2}, "knob 'mode': 'plane' is no candidate; did you mean 'plain'"),
        ({"mode": "plain", "stages": 2.0}, "knob 'stages': 2.0 is no candidate"),
        ({"mode": "plain", "stages": True}, "knob 'stages': True is no candidate"),
        ({"mode": "plain", "stages": {"a": 1}}, "knob 'stages': {'a': 1} is no candidate"),
        ({"mode": "plain", "ways": 2, "stages": 2}, "knob 'ways' that is not declared at this point"),
        ({"mode": "split", "ways": 4, "stages": 3}, "refused by its template: four ways need two stages"),
    ],
)
def test_validate_says_why_a_config_is_not_in_the_space(config, message):
    with pytest.raises(SpaceError) as caught:
        Space({"s": nested}, origin="nested.py.jinja").validate(config)
    assert message in str(caught.value) and str(caught.value).startswith("nested.py.jinja: ")


def test_validate_gives_every_config_back_in_order_of_declaration():
    space = Space({"s": nested})
    for config in NESTED:
        shuffled = dict(reversed(config.items()))
        assert list(space.validate(shuffled).items()) == list(config.items())


def test_configs_given_out_share_nothing_with_the_space():
    space = Space({"s": lambda cfg: cfg.define_split("t", 8) and None})
    space[0]["t"].append(99)
    space.default()["t"].append(99)
    assert space[0] == {"t": [8, 1]} and space.default() == {"t": [8, 1]}


def several() -> dict:
    def one(cfg: Cfg) -> None:
        cfg.define_knob("warps", [4, 8])
        cfg.define_knob("tile", [16, 32])
        cfg.suggest(warps=8, tile=32)
        cfg.suggest(warps=4)

    def two(cfg: Cfg) -> None:
        cfg.define_knob("warps", [4, 8])
        cfg.define_knob("tile", [64])
        cfg.suggest(tile=64)

    return {"one": one, "two": two}


def test_several_schedules_are_one_space_with_the_schedule_as_first_knob():
    space = Space(several())
    assert [knob.id for knob in space.knobs] == ["schedule", "warps", "one.tile", "two.tile"]
    assert [list(config.values()) for config in space] == [["one", 4, 16], ["one", 4, 32], ["one", 8, 16], ["one", 8, 32], ["two", 4, 64], ["two", 8, 64]]
    assert all(next(iter(config)) == "schedule" for config in space)
    assert space.count().legal == 6 == space.size_bound()


def test_suggestions_take_turns_between_schedules():
    assert [list(config.values()) for config in Space(several()).suggestions()] == [["one", 8, 32], ["two", 4, 64], ["one", 4, 16]]


def test_a_config_must_name_its_schedule_only_where_there_are_several():
    with pytest.raises(SpaceError, match="does not say which schedule; one of: 'one', 'two'"):
        Space(several()).validate({"warps": 4, "tile": 16})
    with pytest.raises(SpaceError, match="did you mean 'two'"):
        Space(several()).validate({"schedule": "twoo", "warps": 4, "tile": 64})
    assert Space({"one": several()["one"]}).validate({"schedule": "one", "warps": 4, "tile": 16}) == {"warps": 4, "tile": 16}


def test_a_partial_suggestion_is_completed_by_the_first_candidates_that_make_it_legal():
    def program(cfg: Cfg) -> None:
        warps = cfg.define_knob("warps", [1, 2, 4])
        tile = cfg.define_knob("tile", [16, 32])
        cfg.require(tile == 16 or warps > 1, "one warp is too few")
        cfg.suggest(tile=32)

    assert Space({"s": program}).default() == {"warps": 2, "tile": 32}


def test_suggestions_that_cannot_be_had_are_left_out():
    def program(cfg: Cfg) -> None:
        warps = cfg.define_knob("warps", [1, 2, 4])
        cfg.require(warps != 4, "no")
        cfg.suggest(warps=64)
        cfg.suggest(warps=4)
        cfg.suggest(warps=2)

    assert Space({"s": program}).suggestions() == [{"warps": 2}]


def test_without_a_legal_suggestion_the_first_legal_config_is_the_default():
    assert Space({"s": nested}).default() == NESTED[0]


def test_a_suggestion_of_an_undeclared_knob_is_an_error():
    def program(cfg: Cfg) -> None:
        cfg.define_knob("warps", [1, 2])
        cfg.suggest(warp=2)

    with pytest.raises(SpaceError, match=r"suggest\(warp=2\) of schedule 's' names an unknown knob 'warp'; did you mean 'warps'"):
        Space({"s": program})


def test_a_suggestion_of_a_conditional_knob_takes_the_branch_that_declares_it():
    def program(cfg: Cfg) -> None:
        nested(cfg)
        cfg.suggest(ways=4)

    assert Space({"s": program}).default() == {"mode": "split", "ways": 4, "stages": 2}


def test_an_empty_space_names_what_emptied_it():
    def program(cfg: Cfg) -> None:
        cfg.define_knob("warps", [1, 2])
        cfg.require(False, "needs a newer device")

    space = Space({"s": program}, origin="s.py.jinja")
    assert space.count().legal == 0 and list(space) == []
    with pytest.raises(SpaceError, match=r"s\.py\.jinja: the space is empty: no point is legal; refused by require: needs a newer device \(2\)"):
        space.default()


def test_sampling_gives_up_in_words(monkeypatch):
    monkeypatch.setattr("tilewright.space.MAX_TRIES", 50)

    def program(cfg: Cfg) -> None:
        cfg.define_knob("warps", [1, 2])
        cfg.require(False, "never")

    with pytest.raises(SpaceError, match=r"none of 50 random points in a row is legal; refused by require: never \(50\)"):
        Space({"s": program}).sample(1, random.Random(0))


@pytest.mark.parametrize("programs", [{"s": nested}, {"nested": nested, "flat": flat}])
def test_samples_are_uniform_over_legal_configs(programs):
    space = Space(programs)
    legal = [repr(config) for config in space]
    n = 400 * len(legal)
    counts = Counter(repr(config) for config in space.sample(n, random.Random(7)))
    assert set(counts) == set(legal)
    chi_square = sum((counts[config] - 400) ** 2 / 400 for config in legal)
    degrees = len(legal) - 1
    # Wilson and Hilferty's approximation of the 99.9% point of chi-square; 3.09 is the normal's.
    assert chi_square < degrees * (1 - 2 / (9 * degrees) + 3.09 * (2 / (9 * degrees)) ** 0.5) ** 3


def test_schedules_of_short_paths_cost_few_walks(monkeypatch):
    def long(cfg: Cfg) -> None:
        for name in "abcdef":
            cfg.define_knob(name, list(range(8)))

    def short(cfg: Cfg) -> None:
        cfg.define_knob("a", [0, 1])

    space = Space({"long": long, **{f"short{place}": short for place in range(5)}})
    walks = []
    monkeypatch.setattr("tilewright.space.run_pass", lambda *given, **more: walks.append(given[0].name) or run_pass(*given, **more))
    assert len(space.sample(200, random.Random(0))) == 200
    assert len(walks) < 220


def rare_early(cfg: Cfg) -> None:
    chosen = []
    for place, legal in enumerate((lambda v: v < 2, lambda v: v == chosen[0], lambda v: v == 3, lambda v: True, lambda v: v % 4 == chosen[3] % 4)):
        chosen.append(cfg.define_knob(f"k{place}", list(range(16))))
        cfg.require(legal(chosen[-1]), f"knob {place}")


def test_rare_points_are_sampled_uniformly_and_soon(monkeypatch):
    space = Space({"s": rare_early})
    legal = [repr(config) for config in space]
    assert len(legal) == 128
    monkeypatch.setattr("tilewright.space.MAX_TRIES", 5_000)  # walks alone would give up: 1 in 8,192 ends at a legal point
    drawn = space.sample(128 * 50, random.Random(7))
    counts = Counter(map(repr, drawn))
    assert set(counts) == set(legal)
    assert min(counts.values()) > 20 and max(counts.values()) < 90  # 50 each, 7 standard deviation
    assert space.sample(9, random.Random(3)) == space.sample(9, random.Random(3))


def test_a_space_without_a_legal_point_is_found_out_while_sampling():
    def program(cfg: Cfg) -> None:
        first, second = (cfg.define_knob(name, list(range(100))) for name in ("first", "second"))
        cfg.require(first < 0, "negative")

    with pytest.raises(SpaceError, match=r"no point is legal; refused by require: negative \(10000\)"):
        Space({"s": program}).sample(1, random.Random(0))


def test_samples_repeat_with_the_seed():
    assert Space({"s": nested}).sample(20, random.Random(3)) == Space({"s": nested}).sample(20, random.Random(3))


def test_a_batch_starts_again_when_a_longer_path_turns_up():
    space = Space({"s": nested})
    space._heaviest = dict.fromkeys(space._heaviest, 1)  # as if probing had met only the shortest path
    assert space.sample(50, random.Random(5)) == Space({"s": nested}).sample(50, random.Random(5))


def refuse(program, message):
    with pytest.raises(SpaceError) as caught:
        Space({"s": program})
    assert message in str(caught.value)


def test_a_name_declared_twice_is_an_error():
    def program(cfg: Cfg) -> None:
        cfg.define_knob("warps", [1, 2])
        cfg.define_knob("warps", [1, 2])

    refuse(program, "knob 'warps' is declared twice")


def test_candidates_that_depend_on_another_knob_are_an_error():
    def program(cfg: Cfg) -> None:
        a = cfg.define_knob("a", [1, 2])
        cfg.define_knob("b", [a, 2 * a])

    refuse(program, "knob 'b' has other candidates at another point of the same space: [1, 2], then [2, 4]; candidates may depend on the workload")


def test_the_schedule_knob_cannot_be_declared():
    refuse(lambda cfg: cfg.define_knob("schedule", [1]), "knob name 'schedule' is taken")


@pytest.mark.parametrize(
    ("candidates", "message"),
    [
        ([], "empty list of candidates"),
        ([1, None], "candidate None must be"),
        ([[1]], "candidate [1] must be"),
        ([float("nan")], "candidate nan must be"),
        ([0, True], "mix booleans and numbers"),
        ("abc", "must be a list such as [2, 4, 8], not 'abc'"),
        (4, "must be a list such as [2, 4, 8], not 4"),
    ],
)
def test_bad_candidates_are_errors(candidates, message):
    refuse(lambda cfg: cfg.define_knob("k", candidates), message)


@pytest.mark.parametrize("reason", ["", None, 3])
def test_a_require_needs_a_reason(reason):
    refuse(lambda cfg: cfg.require(True, reason), "the reason must be a text")


def test_repeated_candidates_are_one_and_a_generator_may_state_them():
    space = Space({"s": lambda cfg: cfg.define_knob("k", (min(x, 4) for x in (2, 4, 8))) and None})
    assert [config["k"] for config in space] == [2, 4]
    assert space.knobs[0].ordered


def test_a_space_without_schedules_is_an_error():
    with pytest.raises(SpaceError, match="at least one schedule"):
        Space({})


def test_equal_knobs_are_equal_and_types_keep_them_apart():
    assert Knob(name="a", kind="knob", values=(1, 2)) == Knob(name="a", kind="knob", values=(1, 2))
    assert Knob(name="a", kind="knob", values=(1, 2)) != Knob(name="a", kind="knob", values=(1.0, 2))
    assert len({Knob(name="a", kind="split", values=([4, 1], [2, 2])), Knob(name="a", kind="split", values=([4, 1], [2, 2]))}) == 1
