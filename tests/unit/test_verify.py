"""`verify`: what holds, what does not, and what is appended."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tilewright.best import BestEntry, best_entries, best_text
from tilewright.canonical import canonical_json, sha256_text
from tilewright.cli import main
from tilewright.commands import verify as command
from tilewright.device import Device
from tilewright.errors import ExitCode
from tilewright.job import RaceEntrant, RaceJob, RaceOutcome
from tilewright.log import TuningLog
from tilewright.record import RaceRecord, Record, SessionEnd, SessionStart, Status, VendorRecord
from tilewright.runner import MeasureJob, MeasureOutcome
from tilewright.space import Cfg, Space
from tilewright.target import Toolchain, named_target
from tilewright.template import Source
from tilewright.testing import FakeBuilder, FakeRunner, timed
from tilewright.verify import verify
from tilewright.workload import parse_key

WORKLOAD = parse_key("toy:M=64,dtype=float16")
TARGET = named_target("sm_90")


def declarations(cfg: Cfg) -> None:
    cfg.define_knob("tile", [1, 2, 3])
    cfg.suggest(tile=3)


def source_of(config: Any, text: str = "") -> Source:
    text = canonical_json(dict(config)) + text
    return Source(text=text, hash=sha256_text(text), schedule="", template_hash="t")


def device(answer: Callable[[int], float | MeasureOutcome], *, text: str = "", race: Any = lambda job: None, toolchain: Toolchain | None = None) -> Device:
    def measure(job: MeasureJob) -> float | MeasureOutcome:
        return answer(int(json.loads(job.source.text.split("#")[0])["tile"]))

    return Device(
        name="fake",
        label="fake",
        operator="toy",
        builder=FakeBuilder(),
        runner=FakeRunner(measure, vendors={"mm": 12.0}, target=TARGET, race=race, toolchain=toolchain),
        target=TARGET,
        compile_target=TARGET,
        lookahead=1,
        width=1,
        spec=None,
        folder=Path(),
        template_hashes=frozenset({"t"}),
        make_workload=lambda text: parse_key(f"toy:{text}"),
        make_space=lambda workload: Space({"toy": declarations}),
        make_source=lambda workload, config: source_of(config, text),
    )


def record(tile: int = 1, time_us: float = 10.0) -> Record:
    return Record(
        session="s",
        trial=tile,
        workload=WORKLOAD,
        target=TARGET,
        config={"tile": tile},
        status=Status.OK,
        source=source_of({"tile": tile}).hash,
        template="t",
        toolchain=Toolchain(triton="3.6.0", driver="580.65.06"),
        measurement=timed(time_us).measurement,
    )


def entry(tile: int = 1) -> BestEntry:
    return best_entries([record(tile)])[0]


def verdict(answer: Any, **options: Any) -> Any:
    return next(verify(device(answer, **options), [entry()]))


@pytest.mark.parametrize(("now_us", "expected"), [(10.0, "holds"), (10.29, "holds"), (10.4, "slower"), (9.6, "faster")])
def test_a_time_holds_within_the_tolerance(now_us: float, expected: str) -> None:
    found = verdict(lambda tile: now_us)
    assert found.verdict == expected and found.ratio == pytest.approx(now_us / 10.0, abs=1e-4)
    assert [vendor.name for vendor in found.vendors] == ["mm"] and found.default.config == {"tile": 3}


def test_the_interpreter_says_that_outputs_are_right_and_nothing_of_the_time() -> None:
    interpreted = TARGET.interpreted()
    there = device(lambda tile: 9_999.0)
    there.target, there.runner = interpreted, FakeRunner(lambda job: 9_999.0, target=interpreted)
    (found,) = verify(there, [entry()])
    assert (found.verdict, found.ratio, found.low) == ("right", None, None)
    assert found.message == "its outputs are right; the interpreter's time says nothing of a device"
    assert found.to_json()["verdict"] == "right"


def test_wrong_failed_and_stale() -> None:
    wrong = verdict(lambda tile: MeasureOutcome(status=Status.WRONG_RESULT, message="off by 3"))
    assert wrong.verdict == "wrong" and wrong.message == "wrong_result: off by 3"
    assert verdict(lambda tile: MeasureOutcome(status=Status.RUN_TIMEOUT, message="no answer")).verdict == "failed"
    stale = verdict(lambda tile: 10.0, text="# changed", toolchain=Toolchain(triton="3.7.1", driver="590.1"))
    assert stale.verdict == "stale"
    assert stale.stale == ("the template renders other code", "Triton 3.7, not 3.6", "driver 590, not 580")
    (gone,) = verify(device(lambda tile: 10.0), [best_entries([record(9)])[0]])
    assert gone.verdict == "stale" and "no longer legal" in gone.stale[0] and gone.record is None


def test_what_fails_in_the_race_is_wrong() -> None:
    def race(job: RaceJob) -> RaceOutcome:
        entrants = (RaceEntrant(status=Status.WRONG_RESULT, message="not what was checked"), RaceEntrant(status=Status.OK, times_us=(9.0, 9.0)))
        return RaceOutcome(schedules=entrants, rounds=2)

    found = verdict(lambda tile: 10.0, race=race)
    assert found.verdict == "wrong" and "not what was checked" in found.message and found.race.winner == 1


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "log.jsonl"
    log = TuningLog(path)
    log.append(SessionStart(session="s", started_at="", tilewright="", operator="toy", workloads=[WORKLOAD], target=TARGET, toolchain=Toolchain()))
    log.append(record())
    log.append(SessionEnd(session="s", ended_at="", reason="budget", trials=1, finished=[WORKLOAD.key]))
    return path


def raced(job: RaceJob) -> RaceOutcome:
    return RaceOutcome(schedules=tuple(RaceEntrant(status=Status.OK, times_us=(10.0 + place, 10.0 + place)) for place in range(len(job.sources))), rounds=2)


def test_the_command_says_so_for_each_and_appends_on_request(log: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(command, "open_device", lambda *args, **options: device(lambda tile: 10.0, race=raced))
    before = log.read_bytes()
    assert main(["verify", str(log)]) == ExitCode.OK
    assert capsys.readouterr().out.startswith("holds   toy M=64,dtype=float16; 10 µs, then 10: 1.000x (1.000-1.000); the default takes 1.100x as long")
    assert log.read_bytes() == before
    assert main(["verify", str(log), "--update"]) == ExitCode.OK
    assert log.read_bytes().startswith(before)
    added = TuningLog(log).read().lines[3:]
    assert [type(line) for line in added] == [SessionStart, Record, Record, VendorRecord, RaceRecord, SessionEnd]
    assert added[-1].trials == 2 and {line.session for line in added} == {added[0].session}
    assert main(["log", "lint", str(log)]) == ExitCode.OK


def test_exit_codes_and_json(log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    best = tmp_path / "best.jsonl"
    best.write_text(best_text([entry()]))
    monkeypatch.setattr(command, "open_device", lambda *args, **options: device(lambda tile: 20.0))
    assert main(["verify", str(best), "--json"]) == ExitCode.FAILED
    answer = json.loads(capsys.readouterr().out)
    assert answer["ok"] is False and answer["entries"][0]["verdict"] == "slower" and answer["entries"][0]["ratio"] == 2.0
    assert main(["verify", str(best), "--update"]) == ExitCode.USAGE
    assert "name one with --log FILE" in capsys.readouterr().err
    elsewhere = device(lambda tile: 10.0)
    elsewhere.target = named_target("sm_80")
    monkeypatch.setattr(command, "open_device", lambda *args, **options: elsewhere)
    assert main(["verify", str(best)]) == ExitCode.FAILED
    assert "1 of 1 entries are of other devices" in capsys.readouterr().err
