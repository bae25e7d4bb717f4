"""Races of large logs, put together where they are read, decide as all of them do."""

from __future__ import annotations

import os
import random
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tilewright.best import best_entries, with_vendors
from tilewright.bulk import parts
from tilewright.bulk.best import best_of_files
from tilewright.bulk.best_fold import _Group
from tilewright.bulk.candidates import NEAR_US, Candidates, Reader
from tilewright.bulk.parts import share_out
from tilewright.bulk.raced import Races, races_of
from tilewright.codec import decode_line, encode_line
from tilewright.errors import UsageError
from tilewright.identity import Keys
from tilewright.log import TuningLog
from tilewright.races import first_places, vendor_ratios, winners, wrong_in
from tilewright.record import Line, Measurement, Racer, RaceRecord, Record, Status
from tilewright.target import named_target
from tilewright.workload import Workload

TARGETS = [named_target("sm_90"), named_target("sm_80")]
WORKLOADS = [Workload(operator="m", dims={"M": extent}, dtypes={}) for extent in (16, 32)]


def make_race(rng: random.Random) -> RaceRecord:
    """A race in which few values meet: circles, verdicts, vendors, races that nobody won."""
    racers = [
        Racer(config={"tile": rng.choice([16, 32]), "x": rng.choice([1, 1.0, True, [1, "a"]])}, source=rng.choice("abc"), ratio=1.0,
              status=rng.choice([Status.OK] * 9 + [Status.WRONG_RESULT, Status.OUT_OF_BOUNDS, Status.CRASH]))
        for _ in range(rng.randrange(1, 4))
    ]  # fmt: skip
    racers += [
        Racer(vendor=vendor, ratio=rng.choice([None, 0.0, 1.3, 0.7]), status=rng.choice([Status.OK, Status.CRASH])) for vendor in "vw" if rng.random() < 0.5
    ]
    rng.shuffle(racers)
    winner = rng.choice([None, *range(len(racers))])
    return RaceRecord(workload=rng.choice(WORKLOADS), target=rng.choice(TARGETS), protocol=rng.choice(["p/1", "p/2"]), racers=racers, winner=winner)


@pytest.mark.parametrize("count", [0, 1, 5, 60])
def test_races_put_together_decide_as_all_of_them_do(count: int) -> None:
    for seed in range(40):
        rng = random.Random(seed)
        races = [decode_line(encode_line(make_race(rng))) for _ in range(count)]
        shares = [Races(), Races(), Races()]
        for race in races:
            assert isinstance(race, RaceRecord)
            texts = msgspec.json.encode(race.workload), msgspec.json.encode(race.target)
            rng.choice(shares).add((race.workload.key, race.target.key), *texts, race)
        assert sum(share.count for share in shares) == count
        # As one process's answer stands, and as those of others come through a pipe.
        answers = [shares[0].plain(), *(msgspec.msgpack.decode(msgspec.msgpack.encode(share.plain())) for share in shares[1:])]
        few, keys = list(races_of(answers)), Keys()
        for question in (winners, first_places, wrong_in, vendor_ratios):
            ask: Any = question
            assert ask(few, keys) == ask(races, keys), f"seed {seed}: {question.__name__}"


def test_a_race_whose_winner_is_none_of_its_racers_is_not_put_to_others() -> None:
    race = RaceRecord(workload=WORKLOADS[0], target=TARGETS[0], protocol="p/1", racers=[Racer(source="a")], winner=3)
    share = Races()
    share.add(("w", "t"), msgspec.json.encode(WORKLOADS[0]), msgspec.json.encode(TARGETS[0]), race)
    assert list(races_of([share.plain()])) == []


def test_vendors_and_verdicts_of_races_count_in_large_logs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts.os, "sched_getaffinity", lambda pid: {0, 1})
    monkeypatch.setattr(parts, "_PART_BYTES", 3_000)
    for seed in range(20):
        rng = random.Random(seed)
        lines: list[Line] = []
        for trial in range(80):
            times = Measurement(protocol="p/1", median_us=rng.choice([1.0, 1.0004, 1.001, 2.0]), min_us=1.0, max_us=2.0)
            lines.append(
                Record(trial=trial, workload=rng.choice(WORKLOADS), target=rng.choice(TARGETS), status=Status.OK, source=rng.choice("abc"), measurement=times,
                       config={"tile": rng.choice([16, 32]), "x": rng.choice([1, 1.0, True, [1, "a"]])}, message=str(trial))
            )  # fmt: skip
            if rng.random() < 0.2:
                lines.append(make_race(rng))
        path = tmp_path / f"{seed}.jsonl"
        TuningLog(path).extend(lines, sync=False)
        assert len(parts.parts_of([path], 2)) > 4
        whole = with_vendors(best_entries(lines), {}, (line for line in lines if isinstance(line, RaceRecord)))
        assert best_of_files([path]) == whole, f"seed {seed}"


def test_sources_are_told_by_their_whole_hash() -> None:
    hashes = [0, 1, 256, -1, 2**62, 2**62 + 256, -(2**62), 1]
    columns = [memoryview(bytearray(8 * len(hashes))).cast(kind) for kind in "dqq"]
    for position, value in enumerate(hashes):
        columns[2][position] = value
    times, places, sources = (column.tobytes() for column in columns)
    candidates = Candidates(Reader([], columns[1], columns[1]), "", times, places, sources, range(len(hashes)))  # type: ignore[arg-type]
    for asked in ({1}, {256}, {-1}, {0, 2**62}, {5}, set(hashes), set[int]()):
        expected = [position for position, value in enumerate(hashes) if value in asked]
        assert list(candidates.of_sources(frozenset(asked), candidates.all)) == expected
        assert list(candidates.of_sources(frozenset(asked), range(1, len(hashes)))) == [position for position in expected if position]


def test_the_least_time_is_found_among_those_near_it() -> None:
    for seed in range(50):
        rng = random.Random(seed)
        group = _Group()
        times = [rng.choice([5.0, 1.0]) + rng.choice([0, 0.2, 0.9, 1.0, 1.5]) * NEAR_US for _ in range(rng.randrange(1, 60))]
        for us in times:
            if us <= group.high:
                group.nearest(us)
            group.times.append(us)
            group.places.append(0)
            group.sources.append(0)
            if rng.random() < 0.1:
                group.put_by()
        group.put_by()
        assert len(group) == len(times)
        near = group.columns()[3]
        assert near == [position for position, us in enumerate(times) if us <= min(times) + NEAR_US]


def test_other_processes_begin_while_this_one_gets_ready_and_what_that_raises_is_raised() -> None:
    parent = os.getpid()
    ready: list[int] = []
    answers = share_out(list(range(9)), lambda taken: [os.getpid(), [number for number, _ in taken]], 2, lambda: ready.append(os.getpid()))
    assert ready == [parent]
    assert sorted(number for _, numbers in answers for number in numbers) == list(range(9))

    def refuse() -> None:
        raise UsageError("no such folder")

    with pytest.raises(UsageError, match="no such folder"):
        share_out(list(range(9)), lambda taken: list(taken), 2, refuse)
