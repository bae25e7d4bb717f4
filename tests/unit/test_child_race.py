"""The parent's side of a race: each racer that fails is out, and the others run."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tilewright.child_race import RacingRunner
from tilewright.job import RaceJob, RaceOutcome
from tilewright.record import Status
from tilewright.template import Source
from tilewright.worker import Reply
from tilewright.workload import parse_key


class ScriptedWorker:
    """A child that fails at some racers, as told."""

    def __init__(self, faults: Mapping[str, str], run: str = "ok") -> None:
        self.faults, self.run = dict(faults), run
        self.pid: int | None = None
        self.started = 0
        self.entered: list[str] = []
        self.begun: list[bool] = []
        self.ran: list[list[str]] = []
        self.info: dict[str, Any] = {}
        self.stages: list[Any] = []

    def start(self) -> None:
        if self.pid is None:
            self.started += 1
            self.pid = self.started

    def request(self, op: str, payload: Mapping[str, Any], timeout_s: float) -> Reply:
        self.start()
        match op:
            case "race_begin":
                self.entered = []
                self.begun.append(bool(payload["afresh"]))
                return ok()
            case "race_enter":
                return self._enter(str(payload.get("vendor") or payload.get("text")))
            case "race_run":
                self.ran.append(list(self.entered))
                hung = [place for place, name in enumerate(self.entered) if self.faults.get(name) == "hangs"]
                if hung:
                    return ok(failed={"place": hung[0], "status": "run_timeout", "message": "its turn did not end within 2 s"})
                dies = any(self.faults.get(name) == "dies racing" for name in self.entered)
                if dies or (self.run != "ok" and len(self.entered) > 1):
                    self.pid = None
                    return Reply(kind="timeout", message="race_run: no answer within 60 s")
                entrants = [{"status": "ok", "message": "", "times_us": [float(len(name))] * 2} for name in self.entered]
                anchor = {"kind": "memory", "median_us": 31.0, "nominal_us": 30.0, "samples": 4}
                return ok(entrants=entrants, rounds=2, anchor=anchor, state={"sm_mhz": 1700})
            case "retire":
                self.pid = None
                return Reply(kind="died")
            case "prepare":
                return ok(vendors=["mm", "bad"])
        return ok(rss_bytes=0)

    def _enter(self, name: str) -> Reply:
        match self.faults.get(name):
            case "dies":
                self.pid = None
                return Reply(kind="died", message="race_enter: the child died: SIGSEGV")
            case "poisons":
                return ok(status="crash", message="illegal memory access", retire=True, spoiled=True)
            case "wrong":
                return ok(status="wrong_result", message="off by 3", spoiled=True)
            case "uncapturable":
                return ok(status="launch_error", message="only graphs race", spoiled=False)
        self.entered.append(name)
        return ok(status="ok")


def ok(**result: Any) -> Reply:
    return Reply(kind="ok", result={"rss_bytes": 0, **result})


def race(tmp_path: Path, faults: Mapping[str, str], run: str = "ok") -> tuple[RaceOutcome, ScriptedWorker]:
    runner = RacingRunner("bench", "cuda:0", cache_dir=tmp_path, timeout_s=1.0, log_dir=None, spare=False)
    worker = ScriptedWorker(faults, run)
    runner._worker = worker  # type: ignore[assignment]
    sources = tuple(Source(text=text, hash=text, schedule="", template_hash="") for text in ("one", "three", "fifteen"))
    return runner._race(RaceJob(operator="toy", folder=tmp_path, workload=parse_key("toy:M=1"), sources=sources)), worker


def test_all_run_and_times_go_to_whom_they_belong(tmp_path: Path) -> None:
    outcome, worker = race(tmp_path, {})
    assert [entrant.times_us for entrant in outcome.schedules] == [(3.0, 3.0), (5.0, 5.0), (7.0, 7.0)]
    assert {name: entrant.times_us for name, entrant in outcome.vendors.items()} == {"mm": (2.0, 2.0), "bad": (3.0, 3.0)}
    assert outcome.rounds == 2 and outcome.anchor is not None and outcome.anchor.median_us == 31.0
    assert outcome.state is not None and outcome.state.sm_mhz == 1700
    assert worker.begun == [False] and worker.started == 1


@pytest.mark.parametrize(
    ("fault", "status", "begun", "started"),
    [
        ("dies", Status.CRASH, [False, False], 2),
        ("poisons", Status.CRASH, [False, True], 2),
        ("wrong", Status.WRONG_RESULT, [False, True], 1),
        ("uncapturable", Status.LAUNCH_ERROR, [False], 1),
    ],
)
def test_one_that_fails_is_out_and_the_others_run(tmp_path: Path, fault: str, status: Status, begun: list[bool], started: int) -> None:
    outcome, worker = race(tmp_path, {"three": fault})
    assert [entrant.status for entrant in outcome.schedules] == [Status.OK, status, Status.OK]
    assert [len(entrant.times_us) for entrant in outcome.schedules] == [2, 0, 2]
    assert (worker.begun, worker.started) == (begun, started)


def test_all_failing_is_an_answer_too(tmp_path: Path) -> None:
    outcome, worker = race(tmp_path, dict.fromkeys(("one", "three", "fifteen", "mm", "bad"), "dies"))
    assert {entrant.status for entrant in (*outcome.schedules, *outcome.vendors.values())} == {Status.CRASH}
    assert worker.started == 5 and outcome.rounds == 0


def test_a_race_that_does_not_end_is_nobodys_fault(tmp_path: Path) -> None:
    outcome, _ = race(tmp_path, {"three": "uncapturable"}, run="hangs")
    assert "did not end" in outcome.message
    assert [entrant.status for entrant in outcome.schedules] == [Status.CRASH, Status.LAUNCH_ERROR, Status.CRASH]


def test_a_finalist_that_hangs_in_the_race_is_out_and_the_others_race(tmp_path: Path) -> None:
    outcome, worker = race(tmp_path, {"three": "hangs"})
    assert outcome.schedules[1].status is Status.RUN_TIMEOUT and "in the race: its turn did not end" in outcome.schedules[1].message
    assert [entrant.times_us for entrant in (outcome.schedules[0], outcome.schedules[2])] == [(3.0, 3.0), (7.0, 7.0)]
    assert outcome.rounds == 2 and outcome.message == "" and worker.started == 2
    assert worker.ran == [["one", "three", "fifteen", "mm", "bad"], ["one", "fifteen", "mm", "bad"]]


def test_one_that_takes_the_child_down_in_the_race_is_found_by_racing_each_alone(tmp_path: Path) -> None:
    outcome, worker = race(tmp_path, {"fifteen": "dies racing"})
    assert outcome.schedules[2].status is Status.RUN_TIMEOUT and "in the race: race_run: no answer" in outcome.schedules[2].message
    assert [entrant.status for entrant in outcome.schedules[:2]] == [Status.OK, Status.OK] and outcome.schedules[0].times_us == (3.0, 3.0)
    assert worker.ran[1:-1] == [["one"], ["three"], ["fifteen"], ["mm"], ["bad"]] and worker.ran[-1] == ["one", "three", "mm", "bad"]
