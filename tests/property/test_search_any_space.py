"""Whatever the space, proposals are legal, distinct, and cover it."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tilewright.errors import SpaceError
from tilewright.record import config_key
from tilewright.search import SEARCHERS, make_proposer
from tilewright.space import Cfg, Program, Space

SHAPES = st.lists(st.integers(1, 4), min_size=1, max_size=3)


def program(sizes: list[int], gate: int, modulus: int, remainder: int) -> Program:
    def declare(cfg: Cfg) -> None:
        total = 0
        for number, size in enumerate(sizes):
            if number and total % 3 == gate:
                continue  # whether a knob stands depends on the ones before it
            values = list(range(size)) if number % 2 == 0 else [f"w{k}" for k in range(size)]
            total += values.index(cfg.define_knob(f"k{number}", values))
        cfg.require(total % modulus != remainder, "refused by remainder")

    return declare


@pytest.mark.parametrize("name", sorted(SEARCHERS))
@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(sizes=SHAPES, gate=st.integers(0, 3), modulus=st.integers(2, 5), remainder=st.integers(0, 4), seed=st.integers(0, 9), fails=st.integers(0, 6))
def test_proposals_are_legal_distinct_and_complete(name, sizes, gate, modulus, remainder, seed, fails):
    space = Space({"s": program(sizes, gate, modulus, remainder)})
    try:
        proposer = make_proposer(name, space, seed=seed)
    except SpaceError:
        assert not list(space.enumerate())
        return
    asked = []
    while (config := proposer.ask()) is not None:
        space.validate(config)
        asked.append(config_key(config))
        proposer.tell(config, None if len(asked) % 7 < fails else 1.0 + len(asked) % 5)
        assert len(asked) <= 64
    assert len(set(asked)) == len(asked)
    assert set(asked) == {config_key(config) for config in space.enumerate()}
