"""A recorded space walks as the conditional space that it records did."""

from __future__ import annotations

import random
from collections.abc import Iterator

from hypothesis import given, settings
from hypothesis import strategies as st

from tilewright.errors import SpaceError
from tilewright.knobs import Knob
from tilewright.record import KnobInfo, Value, config_key
from tilewright.recorded_space import RecordedSearchSpace

Config = dict[str, Value]


@st.composite
def spaces(draw: st.DrawFn) -> tuple[list[KnobInfo], list[Config]]:
    """A define-by-run space by nested loops: each knob may hang on a value of an earlier one, and some points are refused."""
    count = draw(st.integers(min_value=1, max_value=4))
    knobs = [KnobInfo(name=f"k{i}", candidates=list(range(draw(st.integers(min_value=1, max_value=3))))) for i in range(count)]
    conditions = [draw(st.none() | st.tuples(st.integers(0, i - 1), st.integers(0, 2))) if i else None for i in range(count)]

    def points(index: int, config: Config) -> Iterator[Config]:
        if index == count:
            yield config
            return
        condition = conditions[index]
        if condition is not None and config.get(f"k{condition[0]}") != condition[1]:
            yield from points(index + 1, config)
            return
        for value in knobs[index].candidates:
            yield from points(index + 1, {**config, f"k{index}": value})

    everything = list(points(0, {}))
    legal = [config for config in everything if draw(st.integers(0, 3)) > 0] or everything[:1]
    return knobs, legal


@given(spaces(), st.integers())
@settings(max_examples=60, deadline=None)
def test_every_walk_ends_in_a_recorded_point_or_a_violation(made: tuple[list[KnobInfo], list[Config]], seed: int) -> None:
    knobs, legal = made
    rng = random.Random(seed)
    space = RecordedSearchSpace(knobs, rng.sample(legal, len(legal)))
    recorded = {config_key(config) for config in legal}
    for _ in range(20):
        met: list[str] = []

        def choose(knob: Knob, met: list[str] = met) -> Value:
            met.append(knob.name)
            return rng.choice(knob.values)

        evaluation = space.evaluate(choose)
        assert list(evaluation.config) == met
        assert met == sorted(set(met))
        assert (config_key(evaluation.config) in recorded) == (evaluation.violations == ())


@given(spaces())
@settings(max_examples=60, deadline=None)
def test_recorded_points_are_all_there_in_order(made: tuple[list[KnobInfo], list[Config]]) -> None:
    knobs, legal = made
    space = RecordedSearchSpace(knobs, reversed(legal))
    assert list(space.enumerate()) == legal  # the nested loops ran in the order of candidates
    assert space.count().legal == space.size_bound() == len(legal)
    for index, config in enumerate(legal):
        assert space[index] == config
        assert space.validate(config) == config
        assert space.evaluate(lambda knob, config=config: config[knob.name]).violations == ()  # type: ignore[misc]
        try:
            space.validate({name: value for name, value in config.items() if name != "k0"})
        except SpaceError:
            continue
        raise AssertionError(f"{config} passed without k0")
