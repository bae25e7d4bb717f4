"""A finished search counts for the templates that it knew: after a template has changed it goes on, and the default has a time in any case."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tilewright.children.modules import load_file
from tilewright.log import TuningLog
from tilewright.record import Racer, RaceRecord, Record, SessionEnd, SessionStart, Status, TrialStart, config_key

toy: Any = load_file(Path(__file__).with_name("toy_rig.py"), "toy_rig")
TARGET, TEMPLATE = toy.TARGET, toy.TEMPLATE


@pytest.fixture
def rig(tmp_path: Path) -> Any:
    return toy.Rig(tmp_path)


def test_a_repaired_schedule_is_tried_by_the_same_command(rig: Any) -> None:
    first = rig.tune()
    stale = Counter(record.config["schedule"] for record in rig.records)["first"]
    assert 0 < stale < 6 and first.default_us is None  # the default is of the broken schedule
    rig.write("first")
    second = rig.tune()
    assert second.tier == "search" and len(rig.jobs) == stale
    assert second.default_us == 10.0 and second.gain_over_default == 1.0
    assert any("fine" in job.source.text and "first" in job.source.text for job in rig.jobs)
    counted = f"{stale} of its records count" if stale > 1 else "1 of its records counts"
    why = f"template first changed since this search finished, and {counted} no longer"
    assert rig.notes == [f"toy:N=64: {why}; going on from {6 - stale} record(s) (--force starts over)"]
    third = rig.tune()
    assert third.tier == "log" and rig.jobs == [] and rig.notes == [] and third.default_us == 10.0


def test_a_log_with_as_many_good_records_as_are_asked_for_gives_back_what_no_longer_counts(rig: Any) -> None:
    rig.tune(trials=12)
    rig.write("first")
    rig.tune(trials=3)
    assert len(rig.jobs) == 3 and any("first" in job.source.text for job in rig.jobs)
    rig.tune(trials=3)
    assert rig.jobs == []


def test_it_goes_on_too_where_nothing_was_right_before(rig: Any) -> None:
    rig.write("second", broken=True)
    assert rig.tune(trials=12).best is None
    rig.write("second")
    assert rig.tune(trials=4).best is not None and "template second changed" in rig.notes[0]


def test_a_schedule_that_was_added_is_tried(rig: Any) -> None:
    rig.tune()
    rig.write("third")
    assert rig.tune().tier == "search" and any("third" in job.source.text for job in rig.jobs)
    assert "templates are others" in rig.notes[0]
    assert rig.tune().tier == "log"


def test_sessions_that_do_not_say_what_templates_they_knew_are_told_by_their_records(rig: Any) -> None:
    rig.tune()
    lines = TuningLog(rig.log).read().lines
    rig.log.unlink()
    TuningLog(rig.log).extend(msgspec.structs.replace(line, options={}) if isinstance(line, SessionStart) else line for line in lines)
    assert rig.tune().tier == "log"
    rig.write("first")
    assert rig.tune().tier == "search" and "template first changed" in rig.notes[0]


def test_the_default_alone_is_measured_where_it_changed(rig: Any) -> None:
    rig.tune()
    rig.write("first")
    answer = rig.tune(default_only=True)
    assert (answer.tier, answer.default_us, len(rig.jobs)) == ("default", 10.0, 1)
    assert rig.tune(default_only=True).tier == "log"


@pytest.mark.parametrize("early_stop", [None, 1])
def test_a_default_is_never_cut(tmp_path: Path, early_stop: int | None) -> None:
    rig = toy.Rig(tmp_path, us=lambda text: 1000.0 if "first" in text else 10.0)
    rig.tune(trials=12)
    rig.write("first")
    answer = rig.tune(trials=12, resume=True, early_stop=early_stop)
    assert (answer.default_us, answer.gain_over_default) == (1000.0, 100.0)
    (default,) = [record for record in rig.records if record.default and record.status is not Status.LAUNCH_ERROR]
    assert default.status is Status.OK
    if early_stop is None:
        assert Status.CUT in {record.status for record in rig.records}  # others are


def test_a_default_of_the_same_code_as_one_that_was_cut_is_measured(tmp_path: Path) -> None:
    rig = toy.Rig(tmp_path)
    rig.write("first", text=TEMPLATE.replace("{{ tile }}", ""))
    rig.tune(trials=12)
    lines = [line for line in TuningLog(rig.log).read().lines if not isinstance(line, TrialStart) and not (isinstance(line, Record) and line.default)]
    rig.log.unlink()
    spoiled = [msgspec.structs.replace(line, status=Status.CUT) if isinstance(line, Record) and line.config["schedule"] == "first" else line for line in lines]
    TuningLog(rig.log).extend(spoiled)
    assert rig.tune(trials=12).default_us == 10.0 and len(rig.jobs) == 1


def test_a_log_without_a_time_of_the_default_is_gone_on_with(tmp_path: Path) -> None:
    rig = toy.Rig(tmp_path)
    rig.write("first")
    rig.tune()
    lines = [
        msgspec.structs.replace(line, status=Status.CUT, message="cut") if isinstance(line, Record) and line.default else line
        for line in TuningLog(rig.log).read().lines
    ]  # fmt: skip
    rig.log.unlink()
    TuningLog(rig.log).extend(lines)
    answer = rig.tune(trials=4)
    assert answer.default_us == 10.0 and len(rig.jobs) == 1
    assert "its default schedule has no time" in rig.notes[0]
    assert rig.tune(trials=4).tier == "log"


def test_a_race_that_a_schedule_of_an_older_template_won_decides_no_more(rig: Any) -> None:
    rig.us = lambda text: {"1\n": 10.0, "2\n": 11.0}.get(text.rpartition(" ")[2], 50.0)
    rig.write("first")
    rig.tune(trials=12)
    held = {(record.config["schedule"], record.config["tile"]): record for record in rig.records}
    slow, fast, old = held["second", 2], held["second", 1], held["first", 1]
    for won, *lost in ((slow, fast), (old, slow, fast)):
        racers = [Racer(config=one.config, source=one.source, median_us=10.0, ratio=1.0) for one in (won, *lost)]
        TuningLog(rig.log).append(RaceRecord(workload=won.workload, target=TARGET, protocol="fake/1", racers=racers, winner=0, rounds=3))
    rig.write("first", broken=True)
    answer = rig.tune(trials=12)
    assert answer.best is not None and answer.best.config == slow.config and answer.race is not None


def test_a_session_that_ended_is_told_by_its_end_line(rig: Any) -> None:
    rig.tune()
    (end,) = [line for line in TuningLog(rig.log).read().lines if isinstance(line, SessionEnd)]
    assert end.finished == ["toy:N=64"]
    assert len({config_key(record.config) for record in rig.records}) == 6


WIDE = TEMPLATE.replace("[1, 2, 4, 8, 16, 32]", str([2**place for place in range(40)]))
THREE = "N=64 N=128 N=192"


@pytest.fixture
def wide(rig: Any) -> Any:
    for name in ("first", "second"):
        rig.write(name, text=WIDE)
    return rig


def test_several_workloads_take_no_more_trials_than_were_asked_for(wide: Any) -> None:
    wide.tune(trials=4, workload=" ".join(f"N={64 * place}" for place in range(1, 9)))
    assert len(wide.jobs) == 4


def test_workloads_that_are_answered_give_no_trials_to_others(wide: Any) -> None:
    wide.tune(trials=40)
    wide.tune(trials=20, workload="N=64 N=128")
    assert wide.measured == {128: 20}


def test_a_workload_that_is_gone_on_with_takes_what_no_longer_counts_and_not_the_others_trials(wide: Any) -> None:
    wide.tune(trials=60, workload=THREE)
    wide.write("third", text=WIDE)
    wide.tune(trials=20)
    assert wide.measured == {64: 8}
    wide.tune(trials=60, workload=THREE)
    assert wide.measured == {128: 8, 192: 8}
    wide.tune(trials=60, workload=THREE)
    assert wide.jobs == []


def test_a_default_that_lacks_its_time_costs_one_trial_among_several_workloads(wide: Any) -> None:
    wide.tune(trials=60, workload=THREE)
    lines = TuningLog(wide.log).read().lines
    wide.log.unlink()
    TuningLog(wide.log).extend(
        msgspec.structs.replace(line, status=Status.CUT, message="cut") if isinstance(line, Record) and line.default and line.workload["N"] == 64 else line
        for line in lines
    )
    wide.tune(trials=60, workload=THREE)
    assert wide.measured == {64: 1}


def test_what_was_never_measured_does_not_reopen_a_search(rig: Any) -> None:
    rig.tune(trials=12)
    (start, *rest) = TuningLog(rig.log).read().lines
    left = next(line for line in rest if isinstance(line, Record))
    rig.log.unlink()
    unmeasured = msgspec.structs.replace(left, template="0" * 64, status=Status.CUT, measurement=None, config={**left.config, "tile": 999}, message="left")
    other = msgspec.structs.replace(start, options={name: value for name, value in start.options.items() if name != "templates"})
    TuningLog(rig.log).extend([other, unmeasured, *rest])
    assert rig.tune(trials=12).tier == "log" and rig.jobs == [] and rig.notes == []


@pytest.mark.parametrize("winner", [-1, 99])
def test_a_race_whose_winner_is_none_of_its_racers_does_not_stop_a_session(rig: Any, winner: int) -> None:
    rig.write("first")
    rig.tune(trials=12)
    held = rig.records[0]
    racer = Racer(config=held.config, source=held.source, median_us=1.0, ratio=1.0)
    TuningLog(rig.log).append(RaceRecord(workload=held.workload, target=TARGET, protocol="fake/1", racers=[racer], winner=winner, rounds=3))
    answer = rig.tune(trials=12)
    assert answer.tier == "log" and answer.race is None and answer.best_us == 10.0
