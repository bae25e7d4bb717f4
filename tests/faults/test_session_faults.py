"""The end of a session: the race of the finalists, signals, and what the host can do to it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tilewright.canonical import canonical_json, sha256_text
from tilewright.device import Device
from tilewright.errors import ExitCode, HostError, NoDevice
from tilewright.job import RaceEntrant, RaceJob, RaceOutcome
from tilewright.log import TuningLog
from tilewright.observer import Budget, Observers
from tilewright.record import RaceRecord, Record, SessionEnd, Status, config_key
from tilewright.report import end_notes, end_table
from tilewright.result import TuneResult
from tilewright.runner import MeasureJob, MeasureOutcome
from tilewright.session import Session
from tilewright.space import Cfg, Space
from tilewright.target import named_target
from tilewright.template import Source
from tilewright.testing import FakeBuilder, FakeRunner, timed
from tilewright.workload import parse_key

WORKLOAD = parse_key("toy:M=64,dtype=float16")
RECORDING = Path(__file__).parents[2] / "benchmarks" / "data" / "recorded_gemm_h200.jsonl.gz"


def declarations(cfg: Cfg) -> None:
    cfg.define_knob("tile", list(range(1, 13)))
    cfg.suggest(tile=12)


def true_us(tile: int) -> float:
    """The best is tile 1."""
    return 100.0 + 2 * tile


def source_of(config: Any) -> Source:
    text = canonical_json(dict(config))
    return Source(text=text, hash=sha256_text(text), schedule="", template_hash="t")


def tile_of(source: Source) -> int:
    return int(json.loads(source.text)["tile"])


def raced(job: RaceJob, *, wrong: tuple[int, ...] = ()) -> RaceOutcome:
    """A race on a heating device that tells the truth."""
    rounds = [1 + 0.01 * number for number in range(12)]

    def entrant(tile: int) -> RaceEntrant:
        if tile in wrong:
            return RaceEntrant(status=Status.WRONG_RESULT, message="what was timed does not compute what was checked")
        return RaceEntrant(status=Status.OK, times_us=tuple(true_us(tile) * heat for heat in rounds))

    vendor = RaceEntrant(status=Status.OK, times_us=tuple(153.0 * heat for heat in rounds))
    return RaceOutcome(schedules=tuple(entrant(tile_of(source)) for source in job.sources), vendors={"mm": vendor}, rounds=12)


class Rig:
    """A session on fakes whose single times mislead, and whose races do not."""

    def __init__(self, race: Callable[[RaceJob], RaceOutcome | None] = raced, measure: Callable[[int, int], MeasureOutcome] | None = None) -> None:
        self.races: list[list[int]] = []
        self.measured: list[int] = []

        def answer(job: MeasureJob) -> MeasureOutcome:
            tile = tile_of(job.source)
            self.measured.append(tile)
            # Each time that is measured looks faster than the one before: heat the other way round.
            return measure(tile, len(self.measured)) if measure else timed(true_us(tile) * (1 - 0.005 * len(self.measured)))

        def run_race(job: RaceJob) -> RaceOutcome | None:
            self.races.append([tile_of(source) for source in job.sources])
            return race(job)

        runner = FakeRunner(answer, vendors={"mm": 150.0}, race=run_race)
        runner.race_s = 1.0
        target = named_target("sm_90")
        self.device = Device(
            name="fake",
            label="fake",
            operator="toy",
            builder=FakeBuilder(),
            runner=runner,
            target=target,
            compile_target=target,
            lookahead=1,
            width=1,
            spec=None,
            folder=Path(),
            template_hashes=frozenset({"t"}),
            make_workload=lambda text: parse_key(f"toy:{text}"),
            make_space=lambda workload: Space({"toy": declarations}),
            make_source=lambda workload, config: source_of(config),
        )

    def session(self, log: Path, *, trials: int = 100, time_s: float | None = None, **options: Any) -> Session:
        return Session(
            device=self.device,
            workloads={WORKLOAD: 1.0},
            budget=Budget(trials=trials, time_s=time_s),
            search="random",
            seed=0,
            log=TuningLog(log),
            observer=Observers(),
            **{"resume": False, "force": False, "default_only": False, **options},
        )

    def run(self, log: Path, **options: Any) -> TuneResult:
        return self.session(log, **options).run()


def lines(log: Path) -> tuple[Any, ...]:
    contents = TuningLog(log).read()
    assert contents.damage == ()
    return contents.lines


def races(log: Path) -> list[RaceRecord]:
    return [line for line in lines(log) if isinstance(line, RaceRecord)]


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "toy.jsonl"


def test_the_race_decides_against_single_times(log: Path) -> None:
    rig = Rig()
    result = rig.run(log)
    (race,) = races(log)
    assert isinstance(lines(log)[-1], SessionEnd) and lines(log)[-2] == race
    assert len(rig.races) == 1 and len(rig.races[0]) >= 8 and 12 in rig.races[0]
    best = result.results[0].best
    assert best is not None and best.config["tile"] == min(rig.races[0])
    answer = result.results[0]
    assert answer.gain_over_vendor == pytest.approx(153.0 / true_us(int(best.config["tile"])), abs=1e-4)
    assert answer.gain_over_default == pytest.approx(true_us(12) / true_us(int(best.config["tile"])), abs=1e-4)
    assert answer.raced_vendor is not None and answer.raced_vendor.low == answer.raced_vendor.high == answer.raced_vendor.ratio
    assert any("won a race of" in note for note in end_notes(result)) and end_table(result).row_count == 1
    assert answer.to_json()["race"]["rounds"] == 12
    # The log answers with the race's winner, and its figures.
    again = Rig().run(log)
    assert again.reason == "log" and again.results[0].best == best and again.results[0].gain_over_vendor == answer.gain_over_vendor


def test_one_found_wrong_in_the_race_never_wins(log: Path) -> None:
    result = Rig(lambda job: raced(job, wrong=(1, 2))).run(log)
    best = result.results[0].best
    assert best is not None and best.config["tile"] == 3
    assert Rig().run(log).results[0].best == best


def test_a_race_that_does_not_end_leaves_the_single_times(log: Path) -> None:
    hung = RaceOutcome(schedules=(RaceEntrant(status=Status.OK),) * 12, message="the race did not end")
    result = Rig(lambda job: RaceOutcome(schedules=hung.schedules[: len(job.sources)], message=hung.message)).run(log)
    assert races(log)[0].winner is None and races(log)[0].reason == "the race did not end"
    best = result.results[0].best
    assert best is not None and result.results[0].race is None
    ok = [line for line in lines(log) if isinstance(line, Record)]
    assert best == min(ok, key=lambda record: record.measurement.median_us)


def test_time_is_set_aside_for_the_race(log: Path) -> None:
    rig = Rig(measure=lambda tile, number: time.sleep(0.05) or timed(true_us(tile)))  # type: ignore[func-returns-value]
    result = rig.run(log, time_s=0.4)
    assert 0 < len(rig.measured) < 7 and len(rig.races) == 1
    assert result.reason == "budget" and result.wall_s < 0.45


def test_the_default_alone_does_not_race(log: Path) -> None:
    rig = Rig()
    rig.run(log, default_only=True)
    assert rig.races == []


def pressing(number: int, *signals: signal.Signals) -> Callable[[int, int], MeasureOutcome]:
    """While the nth candidate is measured, the signals come."""

    def measure(tile: int, count: int) -> MeasureOutcome:
        if count == number:
            for one in signals:
                os.kill(os.getpid(), one)
                time.sleep(0.01)
        return timed(true_us(tile))

    return measure


def test_ctrl_c_once_finishes_the_measurement_races_and_ends(log: Path) -> None:
    rig = Rig(measure=pressing(4, signal.SIGINT))
    result = rig.run(log)
    assert result.reason == "interrupted" and result.exit_code is ExitCode.INTERRUPTED
    assert len(rig.measured) == 4 == len([line for line in lines(log) if isinstance(line, Record)])
    assert len(rig.races) == 1 and result.results[0].race is not None
    assert lines(log)[-1].reason == "interrupted" and lines(log)[-1].finished == []


@pytest.mark.parametrize("signals", [(signal.SIGINT, signal.SIGINT), (signal.SIGTERM,)])
def test_ctrl_c_twice_or_sigterm_stops_now(log: Path, signals: tuple[signal.Signals, ...]) -> None:
    rig = Rig(measure=pressing(4, *signals))
    result = rig.run(log)
    assert result.reason == "interrupted" and rig.races == []
    assert len([line for line in lines(log) if isinstance(line, Record)]) == 3
    assert lines(log)[-1].reason == "interrupted"
    # What was on the device is tried once more, first.
    again = Rig()
    again.run(log)
    assert again.measured[0] == rig.measured[3]


def test_ctrl_c_in_the_race_stops_it(log: Path) -> None:
    def interrupted(job: RaceJob) -> RaceOutcome:
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(1)
        raise AssertionError("still racing")

    result = Rig(interrupted).run(log)
    assert result.reason == "interrupted" and races(log) == [] and result.results[0].best is not None


def test_the_gpu_gone_is_a_named_exit_and_the_session_goes_on_later(log: Path) -> None:
    def measure(tile: int, number: int) -> MeasureOutcome:
        if number == 4:
            raise NoDevice("no device cuda:0: torch finds no driver or no GPU")
        return timed(true_us(tile))

    with pytest.raises(HostError, match="no driver or no GPU"):
        Rig(measure=measure).run(log)
    assert lines(log)[-1].reason.startswith("NoDevice: no device cuda:0")
    rig = Rig()
    assert rig.run(log).reason == "exhausted" and len(rig.measured) == 9


def test_two_sessions_on_one_log_lose_nothing(log: Path) -> None:
    rigs = [Rig(), Rig()]
    sessions = [rig.session(log, force=True) for rig in rigs]
    threads = [threading.Thread(target=session.run) for session in sessions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
    found = [line for line in lines(log) if isinstance(line, Record)]
    for session in sessions:
        assert len({config_key(record.config) for record in found if record.session == session.id}) == 12
    assert len(races(log)) == 2 and sum(isinstance(line, SessionEnd) for line in lines(log)) == 2


def test_a_clock_that_jumps_backwards_changes_nothing(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    moments = iter(range(10**9, 0, -3600))
    monkeypatch.setattr(time, "time", lambda: float(next(moments)))
    result = Rig().run(log, time_s=60)
    assert result.reason == "exhausted" and 0 < lines(log)[-1].wall_s < 30


def command(log: Path, *more: str) -> list[str]:
    tune = [sys.executable, "-m", "tilewright", "tune", "recorded_gemm", "-w", "M=512,N=2048,K=2048", "--device", f"recorded:{RECORDING}", "--search", "random"]
    return [*tune, "--trials", "40", "--log", str(log), *more]


def test_a_disk_that_fills_up_is_a_named_exit_and_the_session_goes_on_later(tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    workload = next(line.workload for line in TuningLog(RECORDING).read().lines if isinstance(line, Record))
    tune = command(log)
    tune[tune.index("-w") + 1] = ",".join(f"{name}={value}" for name, value in workload.parameters.items())
    # 16 blocks of 1024 bytes: the log may not grow further.
    full = subprocess.run(["bash", "-c", 'ulimit -f 16; exec "$@"', "bash", *tune], capture_output=True, text=True, check=False)
    assert full.returncode == ExitCode.HOST, full.stderr
    assert f"cannot append to {log}: File too large; make room" in full.stderr
    kept = [line for line in TuningLog(log).read().lines if isinstance(line, Record)]
    assert 0 < len(kept) < 40 and len(TuningLog(log).read().damage) <= 1
    assert subprocess.run(tune, capture_output=True, check=False).returncode == 0
    after = [line for line in TuningLog(log).read().lines if isinstance(line, Record)]
    assert after[: len(kept)] == kept and len({config_key(record.config) for record in after}) == len(after) == 40


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="this system has no /dev/full")
def test_a_log_on_a_device_without_room_is_a_named_exit_and_not_a_read_without_end() -> None:
    workload = next(line.workload for line in TuningLog(RECORDING).read().lines if isinstance(line, Record))
    tune = command(Path("/dev/full"))
    tune[tune.index("-w") + 1] = ",".join(f"{name}={value}" for name, value in workload.parameters.items())
    done = subprocess.run(tune, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == ExitCode.HOST and "cannot append to /dev/full: No space left on device; make room" in done.stderr


def test_a_log_in_a_folder_that_cannot_be_written_is_a_named_exit() -> None:
    workload = next(line.workload for line in TuningLog(RECORDING).read().lines if isinstance(line, Record))
    tune = command(Path("/proc/tilewright/log.jsonl"))
    tune[tune.index("-w") + 1] = ",".join(f"{name}={value}" for name, value in workload.parameters.items())
    done = subprocess.run(tune, capture_output=True, text=True, check=False)
    assert done.returncode == ExitCode.HOST and "cannot append to /proc/tilewright/log.jsonl" in done.stderr
