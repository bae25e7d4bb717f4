"""`kill -9` of a session at random moments: nothing acknowledged is lost or measured again, and resuming gets to the end."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from tilewright.log import TuningLog, write_log
from tilewright.record import Line, Record, RecordedSpace, SessionEnd, TrialStart, config_key

RECORDING = Path(__file__).parents[2] / "benchmarks" / "data" / "recorded_gemm_h200.jsonl.gz"
TRIALS = 1600  # of 1,700: enough that ten sessions cannot come to the end


def one_workload(path: Path) -> Path:
    """A recording of one shape alone: it loads in an instant."""
    kept = [line for line in TuningLog(RECORDING).read().lines if isinstance(line, RecordedSpace) or (isinstance(line, Record) and line.workload["K"] == 8192)]
    write_log(path, [line for line in kept if not isinstance(line, Record) or line.workload["M"] == 512])
    return path


def command(log: Path, recording: Path) -> list[str]:
    return [
        *[sys.executable, "-m", "tilewright", "tune", "recorded_gemm", "-w", "M=512", "--device", f"recorded:{recording}", "--search", "random"],
        *["--trials", str(TRIALS), "--log", str(log), "--resume"],
    ]


def lines(log: Path) -> tuple[Line, ...]:
    return TuningLog(log).read().lines if log.exists() else ()


LAUNCHING = """
import sys
from pathlib import Path
from tilewright.worker import Worker
worker = Worker("build", command=[sys.executable, "-P", sys.argv[1]])
worker.request("build", {"text": "grandchild"}, 600.0)
"""


def test_a_killed_session_leaves_no_grandchild(is_running: Callable[..., bool]) -> None:
    """The kernel ends a child with its parent, and not what the child has started."""
    child = Path(__file__).with_name("faulty_build_child.py")
    session = subprocess.Popen([sys.executable, "-c", LAUNCHING, str(child)])

    def becomes(state: bool, within_s: float) -> bool:
        limit = time.monotonic() + within_s
        while is_running("sleep", "86394") is not state and time.monotonic() < limit:
            time.sleep(0.05)
        return is_running("sleep", "86394") is state

    assert becomes(True, 30.0)
    os.kill(session.pid, signal.SIGKILL)
    session.wait()
    assert becomes(False, 2.0)


def test_ten_kills_and_a_resume(tmp_path: Path) -> None:
    log = tmp_path / "killed.jsonl"
    recording = one_workload(tmp_path / "recording.jsonl")
    moments = random.Random(5)
    acknowledged: tuple[Line, ...] = ()
    kills = 0
    while kills < 10:
        child = subprocess.Popen(command(log, recording), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        # From the moment that this session has written something: before it, there is nothing to lose.
        before = log.stat().st_size if log.exists() else 0
        while child.poll() is None and (not log.exists() or log.stat().st_size == before):
            time.sleep(0.002)
        time.sleep(moments.uniform(0.0, 0.05))
        assert child.poll() is None, "the session ended before it could be killed"
        os.kill(child.pid, signal.SIGKILL)
        child.wait()
        kills += 1
        now = lines(log)
        assert now[: len(acknowledged)] == acknowledged
        acknowledged = now
    assert len([line for line in acknowledged if isinstance(line, Record)]) > 10
    assert subprocess.run(command(log, recording), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False).returncode == 0
    final = lines(log)
    assert final[: len(acknowledged)] == acknowledged
    measured = Counter(config_key(line.config) for line in final if isinstance(line, Record))
    assert len(measured) == TRIALS and set(measured.values()) == {1}
    starts = Counter(config_key(line.config) for line in final if isinstance(line, TrialStart))
    assert max(starts.values()) <= 2
    assert isinstance(final[-1], SessionEnd) and final[-1].reason == "budget"
