"""Logs under fire: several writers, killed writers, full disks."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from tilewright.errors import HostError
from tilewright.log import TuningLog, write_log
from tilewright.record import SessionEnd


def end(session: str, trials: int, reason: str = "x" * 300) -> SessionEnd:
    return SessionEnd(session=session, ended_at="", reason=reason, trials=trials)


# Appends lines numbered from 0 as one session, saying each number once it is in the log.
WRITER = """
import sys
from tilewright.log import TuningLog
from tilewright.record import SessionEnd
path, session, count, sync = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4] == "sync"
log = TuningLog(path)
print("ready", flush=True)
sys.stdin.readline()
for number in range(count):
    log.append(SessionEnd(session=session, ended_at="", reason="x" * 300, trials=number), sync=sync)
    print(number, flush=True)
"""


def writer(path: Path, session: str, count: int, sync: str = "sync") -> subprocess.Popen[str]:
    child = subprocess.Popen([sys.executable, "-c", WRITER, str(path), session, str(count), sync], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    assert child.stdout.readline() == "ready\n"
    return child


def go(child: subprocess.Popen[str]) -> None:
    assert child.stdin is not None
    child.stdin.write("go\n")
    child.stdin.flush()


def test_processes_that_append_at_once_lose_and_tear_nothing(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    path.write_bytes(b'{"kind":"end","torn')
    children = [writer(path, f"w{index}", 400, "nosync") for index in range(4)]
    for child in children:
        go(child)
    for child in children:
        child.communicate(timeout=60)
        assert child.returncode == 0
    contents = TuningLog(path).read()
    assert [damage.number for damage in contents.damage] == [1]
    for index in range(4):
        assert [line.trials for line in contents.lines if isinstance(line, SessionEnd) and line.session == f"w{index}"] == list(range(400))
    sessions = [line.session for line in contents.lines]
    assert sessions != sorted(sessions), "the writers took turns one after another, so nothing was tried"


def test_threads_of_one_process_lose_nothing(tmp_path: Path) -> None:
    log = TuningLog(tmp_path / "log.jsonl")
    threads = [threading.Thread(target=lambda name=f"t{index}": [log.append(end(name, number), sync=False) for number in range(50)]) for index in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
    contents = log.read()
    assert (len(contents.lines), contents.damage) == (200, ())


def test_kill_9_loses_nothing_acknowledged(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    acknowledged: dict[str, list[int]] = {}
    for turn in range(5):
        child = writer(path, f"k{turn}", 1_000_000)
        go(child)
        time.sleep(0.02 + 0.03 * turn)
        child.send_signal(signal.SIGKILL)
        said, _ = child.communicate(timeout=30)
        # The last line said may be cut too.
        acknowledged[f"k{turn}"] = [int(line) for line in said.splitlines(keepends=True) if line.endswith("\n")]
    log = TuningLog(path)
    log.append(end("after", 0))
    contents = log.read()
    assert contents.lines[-1] == end("after", 0)
    assert len(contents.damage) <= 5
    for session, numbers in acknowledged.items():
        written = [line.trials for line in contents.lines if isinstance(line, SessionEnd) and line.session == session]
        assert written[: len(numbers)] == numbers
        assert len(written) <= len(numbers) + 1
    assert any(acknowledged.values())


FULL = """
import resource, sys
from pathlib import Path
from tilewright.errors import HostError
from tilewright.log import TuningLog
from tilewright.record import SessionEnd
path = Path(sys.argv[1])
log = TuningLog(path)
log.append(SessionEnd(session="s", ended_at="", reason="before", trials=0))
# The file may grow by 50 bytes more: the next line fits only in part, as on a disk that fills up.
resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size + 50, resource.RLIM_INFINITY))
for attempt in range(2):
    try:
        log.append(SessionEnd(session="s", ended_at="", reason="lost" * 50, trials=1))
    except HostError as error:
        print(error)
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
log.append(SessionEnd(session="s", ended_at="", reason="after", trials=2))
"""


def test_a_disk_that_fills_up_is_a_host_error_and_costs_one_line(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    said = subprocess.run([sys.executable, "-c", FULL, str(path)], capture_output=True, text=True, timeout=60, check=True).stdout.splitlines()
    assert len(said) == 2
    assert all(line.startswith(f"cannot append to {path}: File too large; make room") for line in said)
    contents = TuningLog(path).read()
    assert [line.reason for line in contents.lines if isinstance(line, SessionEnd)] == ["before", "after"]
    assert [damage.number for damage in contents.damage] == [2]


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="this system has no /dev/full")
def test_no_space_at_all() -> None:
    with pytest.raises(HostError, match="cannot append to /dev/full: No space left on device; make room.*--resume"):
        TuningLog("/dev/full").append(end("s", 0))


@pytest.mark.parametrize(
    ("call", "number", "said"),
    [
        ("open", errno.EROFS, "Read-only file system; name a file that can be written with --log"),
        ("open", errno.EACCES, "Permission denied; name a file that can be written"),
        ("fsync", errno.EIO, "Input/output error; the log is as it was but for at most one torn line"),
    ],
)
def test_a_system_call_that_fails_is_a_host_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str, number: int, said: str) -> None:
    log = TuningLog(tmp_path / "log.jsonl")
    log.append(end("s", 0))

    def fail(*_: object) -> int:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(f"tilewright.logfile.os.{call}", fail)
    with pytest.raises(HostError, match=said):
        log.append(end("s", 1))
    monkeypatch.undo()
    assert log.read().lines[0] == end("s", 0)


def test_a_file_system_without_locks_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = TuningLog(tmp_path / "log.jsonl")
    log.append(end("s", 0))

    def fail(*_: object) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr("tilewright.logfile.fcntl.flock", fail)
    with pytest.raises(HostError, match="no file locks; put the log on a local disk"):
        log.append(end("s", 1))
    assert log.read().lines == (end("s", 0),)


@pytest.mark.parametrize("name", ["file/log.jsonl", "file/log.jsonl.gz"])
def test_a_folder_that_is_a_file(tmp_path: Path, name: str) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(HostError, match="a log is a file in a folder"):
        write_log(tmp_path / name, [end("s", 0)])
    if name.endswith("l"):
        with pytest.raises(HostError, match="a log is a file in a folder"):
            TuningLog(tmp_path / name).append(end("s", 0))


def test_a_new_log_that_cannot_be_finished_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("tilewright.logfile.os.fsync", fail)
    with pytest.raises(HostError, match="No space left"):
        write_log(tmp_path / "log.jsonl.gz", [end("s", 0)])
    assert list(tmp_path.iterdir()) == []
