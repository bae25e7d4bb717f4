"""Who gets the next trial."""

from __future__ import annotations

import pytest

from tilewright.allocation import LEAST_TRIALS, Standing, choose


def standing(*best_us: float, asked: int = LEAST_TRIALS, done: int = LEAST_TRIALS, weight: float = 1.0) -> Standing:
    return Standing(weight=weight, asked=asked, done=done, best_us=list(best_us))


def test_everyone_gets_the_least_share_first() -> None:
    steep = standing(100.0, 10.0, asked=LEAST_TRIALS - 1)
    new = standing(asked=0)
    assert choose([("steep", steep), ("new", new)]) == "new"
    new.asked = LEAST_TRIALS
    assert choose([("steep", steep), ("new", new)]) == "steep"


def test_what_waits_to_be_measured_is_measured_before_others_get_more() -> None:
    """Asked for its share but never told: it must not wait for ever behind those that already have times."""
    waiting = standing(asked=LEAST_TRIALS, done=0)
    busy = standing(100.0, 50.0, asked=60, done=50)
    assert choose([("busy", busy), ("waiting", waiting)], built=True) == "waiting"


def test_the_steepest_then_gets_the_trial() -> None:
    assert choose([("flat", standing(50.0, 50.0, 50.0)), ("steep", standing(60.0, 55.0, 50.0))]) == "steep"


def test_gains_are_shares_of_the_time() -> None:
    assert choose([("quick", standing(10.0, 8.0)), ("slow", standing(100.0, 90.0))]) == "quick"


def test_weight_counts() -> None:
    assert choose([("light", standing(10.0, 8.0)), ("heavy", standing(100.0, 90.0, weight=3.0))]) == "heavy"


def test_hope_fades_with_trials() -> None:
    tired = standing(*[100.0] * 40, asked=40)
    fresh = standing(*[100.0] * 10, asked=10)
    assert choose([("tired", tired), ("fresh", fresh)]) == "fresh"
    assert tired.gain == pytest.approx(fresh.gain / 4)


def test_one_that_never_succeeds_does_not_take_all() -> None:
    hopeless = standing(asked=LEAST_TRIALS)
    assert choose([("hopeless", hopeless), ("good", standing(50.0))]) == "good"
    assert choose([("hopeless", hopeless)]) == "hopeless"


def test_nobody_is_left() -> None:
    assert choose([]) is None
