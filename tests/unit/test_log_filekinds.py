"""Logs that are no files: each command reads them rightly or says what they are, and takes none for empty."""

from __future__ import annotations

import gzip
import os
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from tilewright.cli import main
from tilewright.dispatch import read_best
from tilewright.errors import ExitCode, UsageError
from tilewright.log import TuningLog, write_log
from tilewright.record import Line, Measurement, Record, SessionStart, Status
from tilewright.target import Toolchain, named_target
from tilewright.workload import Workload

WORKLOAD = Workload(operator="m", dims={"M": 16}, dtypes={})
TARGET = named_target("sm_90")
TIME = Measurement(protocol="graph/3", median_us=2.0, min_us=1.0, max_us=3.0, samples=2, times_us=[1.0, 3.0])
LINES: list[Line] = [
    SessionStart(session="s", started_at="2026", tilewright="0", operator="m", workloads=[WORKLOAD], target=TARGET, toolchain=Toolchain()),
    Record(session="s", workload=WORKLOAD, target=TARGET, trial=0, config={"tile": 16}, status=Status.OK, measurement=TIME, toolchain=Toolchain()),
]
READERS = {
    "best": ("best",),
    "lint": ("log", "lint"),
    "stats": ("log", "stats"),
    "show": ("show", "--config-only"),
    "csv": ("log", "export", "--format", "csv"),
    "triton": ("log", "export", "--format", "triton"),
}
TUNE = ("tune", "m", "-w", "M=16")


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "a.jsonl"
    write_log(path, LINES)
    return path


@contextmanager
def piped(path: Path, source: Path) -> Iterator[Path]:
    """A named pipe into which a file is written once, for whoever opens it first."""
    os.mkfifo(path)

    def write() -> None:
        with suppress(BrokenPipeError), path.open("wb") as pipe:
            pipe.write(source.read_bytes())

    writer = threading.Thread(target=write)
    writer.start()
    try:
        yield path
    finally:
        reading = os.open(path, os.O_RDONLY | os.O_NONBLOCK)  # where nobody opened it, the writer waits still
        writer.join()
        os.close(reading)


def run(capsys: pytest.CaptureFixture[str], *words: object) -> tuple[int, str, str]:
    code = main([str(word) for word in words])
    said = capsys.readouterr()
    return code, said.out, said.err


@pytest.mark.parametrize("command", READERS)
def test_a_pipe_is_read_as_the_file_is(log: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], command: str) -> None:
    wanted = run(capsys, *READERS[command], log)
    with piped(tmp_path / "pipe", log) as pipe:
        found = run(capsys, *READERS[command], pipe)
    assert wanted[0] == ExitCode.OK and found == (wanted[0], wanted[1].replace(str(log), str(pipe)).replace("a.jsonl", "pipe"), found[2])


@pytest.mark.parametrize("command", [*READERS, "merge", "history", "recorded"])
@pytest.mark.parametrize("kind", ["folder", "socket", "device"])
def test_what_is_no_log_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str], command: str, kind: str) -> None:
    there = tmp_path / "there.jsonl"
    if kind == "folder":
        there.mkdir()
    elif kind == "socket":
        os.mknod(there, 0o666 | stat.S_IFSOCK)
    else:
        there = Path("/dev/zero")  # only read from
    more = {
        "merge": ("log", "merge", there, "-o", tmp_path / "out.jsonl"),
        "history": (*TUNE, "--history", there),
        "recorded": (*TUNE, "--device", f"recorded:{there}"),
    }
    code, out, err = run(capsys, *more.get(command) or (*READERS[command], there))
    assert out.count("\n") <= (command == "csv") and str(there) in err and "Traceback" not in err
    if kind == "folder" and code == ExitCode.HOST:
        assert "Is a directory" in err
    else:
        assert code == ExitCode.USAGE and f"is a {kind}" in err
    assert not (tmp_path / "out.jsonl").exists()


@pytest.mark.parametrize("kind", ["merge", "wide", "recorded", "session"])
def test_a_pipe_is_refused_where_it_would_be_read_again(log: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], kind: str) -> None:
    words = {
        "merge": ("log", "merge", tmp_path / "pipe", log, "-o", tmp_path / "out.jsonl"),
        "wide": (*READERS["csv"], "--wide", tmp_path / "pipe"),
        "recorded": (*TUNE, "--device", f"recorded:{tmp_path / 'pipe'}"),
        "session": ("tune", "matmul", "-w", "M=16,N=16,K=16,dtype=float16", "--device", "interpreter", "--log", tmp_path / "pipe"),
    }[kind]
    with piped(tmp_path / "pipe", log):
        code, out, err = run(capsys, *words)
    assert code == ExitCode.USAGE and f"{tmp_path / 'pipe'} is a named pipe" in err and not out
    assert not (tmp_path / "out.jsonl").exists()


def test_a_shells_pipe_is_named_as_what_it_is(log: Path, tmp_path: Path) -> None:
    command = f"{sys.executable} -m tilewright log merge <(cat {log}) {log} -o {tmp_path / 'out.jsonl'}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == ExitCode.USAGE and "is a named pipe, not a tuning log in a file" in done.stderr


@pytest.mark.parametrize("format", ["recorded", "kernel-tuner", "t4"])
def test_a_recording_on_a_device_without_end_is_not_read(tmp_path: Path, format: str) -> None:
    words = [sys.executable, "-m", "tilewright", "log", "import", "--format", format, "/dev/zero", "-o", str(tmp_path / "out.jsonl")]
    # With little memory, so that what fails here fails early.
    done = subprocess.run(["bash", "-c", 'ulimit -v 4000000; exec "$@"', "bash", *words], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == ExitCode.USAGE and "/dev/zero is a device, not a recording" in done.stderr


def test_a_best_file_that_is_no_plain_one_is_not_taken_for_empty(log: Path, tmp_path: Path) -> None:
    best = tmp_path / "best.jsonl"
    assert main(["best", str(log), "-o", str(best)]) == ExitCode.OK
    packed = tmp_path / "best.jsonl.gz"
    packed.write_bytes(gzip.compress(best.read_bytes()))
    assert len(read_best(best).entries) == 1
    with pytest.raises(UsageError, match="compressed or in a pipe"):
        read_best(packed)
    with piped(tmp_path / "pipe", best) as pipe, pytest.raises(UsageError, match="compressed or in a pipe"):
        read_best(pipe)


def test_a_compressed_log_by_another_name_is_not_appended_to(log: Path, tmp_path: Path) -> None:
    packed = tmp_path / "packed.jsonl"
    packed.write_bytes(gzip.compress(log.read_bytes()))
    with pytest.raises(UsageError, match="gunzip"):
        TuningLog(packed).append(LINES[1])
    assert list(TuningLog(packed).read().lines) == LINES


def test_devices_take_lines_and_keep_none() -> None:
    assert not TuningLog(os.devnull).exists() and not TuningLog("/dev/full").exists()
    assert TuningLog(os.devnull).read().lines == ()
