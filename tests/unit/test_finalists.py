"""Who races, who wins, and what several races say together."""

from __future__ import annotations

import random

import msgspec
import pytest

from tilewright.anchoring import anchor_kind, anchor_plans
from tilewright.best import best_entries, best_of, merge
from tilewright.finalists import decide, finalists
from tilewright.identity import Keys
from tilewright.job import RaceEntrant, RaceOutcome
from tilewright.library import find_operator
from tilewright.races import winners
from tilewright.record import Anchor, Measurement, Racer, RaceRecord, Record, Resources, Status
from tilewright.target import named_target
from tilewright.workload import parse_key

WORKLOAD = parse_key("toy:M=64,dtype=float16")
TARGET = named_target("sm_90")


def record(number: int, time_us: float, *, scratch: int = 0, spread: float = 0.001, default: bool = False, **changes: object) -> Record:
    samples = [time_us * (1 - spread), time_us, time_us * (1 + spread)]
    made = Record(
        trial=number,
        workload=WORKLOAD,
        target=TARGET,
        config={"tile": number},
        status=Status.OK,
        source=f"{number:064}",
        measurement=Measurement(protocol="graph/1", median_us=time_us, min_us=samples[0], max_us=samples[2], samples=3, times_us=samples),
        resources=Resources(shared_memory_bytes=1024, scratch_bytes=scratch),
        default=default,
    )
    return msgspec.structs.replace(made, **changes)


def ran(*times_us: float) -> RaceEntrant:
    return RaceEntrant(status=Status.OK, times_us=times_us)


def noisy(time_us: float, seed: int, noise: float = 0.01, rounds: int = 24, drift: float = 0.2) -> RaceEntrant:
    """Times that a heating device and its noise give."""
    draw = random.Random(seed)
    return ran(*(time_us * (1 + drift * number / rounds) * (1 + draw.gauss(0, noise)) for number in range(rounds)))


def test_the_best_eight_race_and_the_default_whatever_its_rank() -> None:
    records = [record(number, 100.0 + 10 * number) for number in range(12)] + [record(12, 900.0, default=True)]
    assert [racer.config["tile"] for racer in finalists(records, "graph/1")] == [*range(8), 12]


def test_all_within_the_noise_race_up_to_a_limit() -> None:
    assert len(finalists([record(number, 100.0 + 0.2 * number) for number in range(12)], "graph/1")) == 12
    assert len(finalists([record(number, 100.0 + 0.01 * number) for number in range(50)], "graph/1")) == 16


def test_failures_other_protocols_and_wrong_code_stay_out_and_equal_code_races_once() -> None:
    good = record(1, 100.0)
    twin = msgspec.structs.replace(good, config={"tile": 99}, default=True)
    other = record(2, 50.0, measurement=Measurement(protocol="events/1", median_us=50.0, min_us=50.0, max_us=50.0))
    once_wrong = [record(3, 60.0), msgspec.structs.replace(record(3, 60.0), status=Status.WRONG_RESULT, measurement=None, message="x")]
    cut = record(4, 40.0, status=Status.CUT, message="x")
    assert finalists([good, twin, other, *once_wrong, cut], "graph/1") == [twin]
    assert finalists([other], "graph/1") == []


def test_ranking_is_by_the_ratio_to_the_anchor() -> None:
    """The first was timed on a cool device, where the anchor took 90 µs and not 100."""
    cool, hot = record(1, 95.0), record(2, 100.0)
    cool = msgspec.structs.replace(cool, measurement=msgspec.structs.replace(cool.measurement, anchor=Anchor(kind="compute", median_us=90.0, nominal_us=100.0)))
    hot = msgspec.structs.replace(hot, measurement=msgspec.structs.replace(hot.measurement, anchor=Anchor(kind="compute", median_us=100.0, nominal_us=100.0)))
    assert finalists([cool, hot], "graph/1") == [hot, cool]
    assert next(iter(best_of([cool, hot]).values())) == hot
    assert best_entries([cool, hot])[0].median_us == 100.0


def test_the_fastest_wins_through_noise_and_drift() -> None:
    entrants = [record(1, 101.0), record(2, 100.0)]
    decision = decide(entrants, RaceOutcome(schedules=(noisy(100.0, 1), noisy(103.0, 2)), vendors={"mm": noisy(110.0, 3)}, rounds=24))
    assert decision.winner == 0 and "the fastest: the next takes 1.0" in decision.reason
    winner, loser, vendor = decision.racers
    assert winner.ratio == winner.low == winner.high == 1.0 and winner.tied and not loser.tied
    assert loser.low is not None and loser.low > 1.0
    assert vendor.vendor == "mm" and vendor.ratio == pytest.approx(1.1, abs=0.01) and vendor.low < 1.1 < vendor.high


def test_a_tie_within_the_measured_noise_goes_to_the_least_scratch() -> None:
    entrants = [record(1, 100.0, scratch=4096), record(2, 100.0), record(3, 100.0, scratch=1)]
    outcome = RaceOutcome(schedules=(noisy(100.0, 1), noisy(100.05, 2), noisy(104.0, 3)))
    decision = decide(entrants, outcome)
    assert decision.winner == 1 and "tied with 1 other within the measured noise; of them it needs the least scratch" in decision.reason
    assert [racer.tied for racer in decision.racers] == [True, True, False]


def test_one_that_failed_in_the_race_cannot_win_and_nothing_running_is_said() -> None:
    wrong = RaceEntrant(status=Status.WRONG_RESULT, message="off by 3")
    decision = decide([record(1, 90.0), record(2, 100.0)], RaceOutcome(schedules=(wrong, ran(100.0, 101.0, 100.0))))
    assert decision.winner == 1 and decision.reason == "the only schedule that ran"
    assert decision.racers[0].status is Status.WRONG_RESULT and decision.racers[0].median_us is None
    hung = decide([record(1, 90.0)], RaceOutcome(schedules=(RaceEntrant(status=Status.OK),), message="the race did not end"))
    assert hung.winner is None and hung.reason == "the race did not end" and hung.racers[0].status is Status.CRASH


def race(winner: int, *tiles: int, wrong: tuple[int, ...] = ()) -> RaceRecord:
    racers = [
        Racer(config={"tile": tile}, source=f"{tile:064}", status=Status.WRONG_RESULT, message="x")
        if tile in wrong
        else Racer(config={"tile": tile}, source=f"{tile:064}", median_us=1.0)
        for tile in tiles
    ]
    return RaceRecord(workload=WORKLOAD, target=TARGET, protocol="graph/1", racers=racers, winner=tiles.index(winner))


def best_tile(*lines: object) -> object:
    return next(iter(best_of(lines).values())).config["tile"]  # type: ignore[arg-type]


def test_what_a_race_decided_comes_before_single_times() -> None:
    records = [record(1, 100.0), record(2, 101.0), record(3, 99.0)]
    assert best_tile(*records) == 3
    assert best_tile(*records, race(2, 1, 2)) == 2
    assert [entry.raced for entry in best_entries([*records, race(2, 1, 2)])] == [True]
    assert [entry.raced for entry in best_entries(records)] == [False]
    # A wrong verdict in a race counts like one in a record, of a racer that won another race too.
    assert best_tile(*records, race(2, 1, 2), race(1, 1, 2, wrong=(2,))) == 1
    # One that was found wrong does not put out what it was faster than: 1 won a race against 3.
    assert best_tile(*records, race(2, 1, 2), race(1, 1, 3)) == 2
    assert best_tile(*records, race(2, 1, 2), race(1, 1, 3), race(3, 3, 2, wrong=(2,)), race(1, 1, 3)) == 1
    assert best_tile(*records, race(2, 1, 2), race(1, 1, 3), record(2, 98.0, status=Status.WRONG_RESULT)) == 1
    # A race of other code leaves the records alone.
    assert best_tile(*records, race(9, 9, 8)) == 3


def test_a_winner_that_lost_to_another_is_out_and_a_circle_stays() -> None:
    first, second = race(1, 1, 2), race(2, 1, 2, 3)
    again = race(1, 1, 3)
    key = (WORKLOAD.key, TARGET.key, "graph/1")

    def left(*races: RaceRecord) -> set[object]:
        return {config for config, _ in winners(races, Keys())[key]}

    assert left(first, second) == left(second, first) == {'{"tile":1}', '{"tile":2}'}  # each beat the other once
    assert left(again, second) == {'{"tile":2}'} == left(second, again)
    assert left(race(1, 1, 2), race(2, 2, 3), race(3, 3, 1)) == {'{"tile":1}', '{"tile":2}', '{"tile":3}'}


def test_a_raced_entry_is_preferred_in_a_merge() -> None:
    raced = best_entries([record(1, 100.0), record(2, 101.0), race(2, 1, 2)])
    single = best_entries([record(3, 99.0)])
    assert merge([*raced, *single]).entries == merge([*single, *raced]).entries == raced


def test_anchors_of_a_target_and_the_kind_of_a_workload() -> None:
    plans = anchor_plans(TARGET)
    assert plans["compute"].shape == (4096, 4096, 2048) and 90 < plans["compute"].nominal_us < 110
    assert plans["memory"].copy_bytes > TARGET.l2_bytes and 20 < plans["memory"].nominal_us < 60
    assert anchor_plans(TARGET.interpreted()) == {}
    matmul, norm = find_operator("matmul").spec, find_operator("rms_norm").spec
    assert anchor_kind(matmul, matmul.workload("M=4096,N=4096,K=4096,dtype=bfloat16"), TARGET) == "compute"
    assert anchor_kind(matmul, matmul.workload("M=16,N=6144,K=4096,dtype=bfloat16"), TARGET) == "memory"
    assert anchor_kind(norm, norm.workload("rows=64,cols=16384,dtype=bfloat16"), TARGET) == "memory"
