"""Files that commands write: whole or not at all, through links, straight into what is no file."""

from __future__ import annotations

import errno
import os
import shutil
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tilewright import destination
from tilewright.cli import main
from tilewright.destination import is_stream, new_file, replacing
from tilewright.emit.write import write_package
from tilewright.errors import ExitCode, HostError, UsageError
from tilewright.log import write_log
from tilewright.record import Line, Measurement, Record, SessionStart, Status
from tilewright.target import Toolchain, named_target
from tilewright.workload import Workload

WORKLOAD = Workload(operator="m", dims={"M": 16}, dtypes={})
TARGET = named_target("sm_90")
TIME = Measurement(protocol="graph/3", median_us=2.0, min_us=1.0, max_us=3.0, samples=2, times_us=[1.0, 3.0])
LINES: list[Line] = [
    SessionStart(
        session="s", started_at="2026-11-30T10:00:00", tilewright="0", operator="m", workloads=[WORKLOAD], target=TARGET, toolchain=Toolchain()
    ),
    Record(session="s", workload=WORKLOAD, target=TARGET, trial=0, config={"tile": 16}, status=Status.OK, measurement=TIME, toolchain=Toolchain()),
]  # fmt: skip


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "a.jsonl"
    write_log(path, LINES)
    return path


def best_text(log: Path, tmp_path: Path) -> str:
    out = tmp_path / "plain.best"
    assert main(["best", str(log), "-o", str(out)]) == ExitCode.OK
    return out.read_text()


def drafts(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir() if "unfinished" in path.name or path.name.startswith(".")]


def test_a_best_file_goes_through_a_link_and_keeps_its_permissions(log: Path, tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    target, link = tmp_path / "there" / "best.jsonl", tmp_path / "link.jsonl"
    link.symlink_to(target)
    assert main(["best", str(log), "-o", str(link)]) == ExitCode.OK  # to nothing as yet
    assert link.is_symlink() and target.read_text() == best_text(log, tmp_path)
    target.chmod(0o600)
    inode = target.stat().st_ino
    assert main(["best", str(log), "-o", str(link)]) == ExitCode.OK
    assert link.is_symlink() and stat.S_IMODE(target.stat().st_mode) == 0o600 and target.stat().st_ino != inode
    assert not drafts(tmp_path) and not drafts(tmp_path / "there")


def test_a_named_pipe_is_written_into(log: Path, tmp_path: Path) -> None:
    pipe, took = tmp_path / "pipe", []
    os.mkfifo(pipe)
    reader = threading.Thread(target=lambda: took.append(pipe.read_text()))
    reader.start()
    try:
        assert main(["best", str(log), "-o", str(pipe)]) == ExitCode.OK
        assert stat.S_ISFIFO(pipe.lstat().st_mode)
    finally:
        if not stat.S_ISFIFO(pipe.lstat().st_mode):
            os._exit(1)  # its reader would wait for ever
    reader.join(10)
    assert took == [best_text(log, tmp_path)]


@pytest.mark.parametrize("command", ["best", "csv"])
def test_a_terminal_is_written_into(log: Path, command: str) -> None:
    other, terminal = os.openpty()
    try:
        words = ["best", str(log)] if command == "best" else ["log", "export", "--format", "csv", str(log)]
        assert main([*words, "-o", os.ttyname(terminal)]) == ExitCode.OK
        assert (b'"kind":"best"' if command == "best" else b"workload") in os.read(other, 4096)
    finally:
        os.close(other)
        os.close(terminal)


@pytest.mark.parametrize(("minor", "code"), [(3, ExitCode.OK), (7, ExitCode.HOST)], ids=["null", "full"])
def test_a_device_is_never_replaced_by_a_file(log: Path, tmp_path: Path, minor: int, code: ExitCode) -> None:
    device = tmp_path / "device"
    try:
        os.mknod(device, 0o666 | stat.S_IFCHR, os.makedev(1, minor))
        device.open("wb").close()
    except OSError:
        pytest.skip("this user makes no devices here")
    assert main(["best", str(log), "-o", str(device)]) == code
    assert stat.S_ISCHR(device.lstat().st_mode)
    assert main(["log", "export", "--format", "csv", str(log), "-o", str(device)]) == code
    assert stat.S_ISCHR(device.lstat().st_mode) and not drafts(tmp_path)


def tilewright(*words: object) -> list[str]:
    return [sys.executable, "-m", "tilewright", *map(str, words)]


def test_standard_output_by_name_goes_where_the_shell_sends_it(log: Path, tmp_path: Path) -> None:
    wanted = best_text(log, tmp_path)
    out = tmp_path / "out"
    out.write_text("before\n")
    with out.open("a") as file:
        subprocess.run(tilewright("best", log, "-o", "/dev/fd/1"), stdout=file, check=True, timeout=60)
    assert out.read_text() == "before\n" + wanted
    assert is_stream(Path("/dev/stdout")) and is_stream(Path("/proc/self/fd/1"))  # not run: what fails here must not replace it
    assert subprocess.run(tilewright("best", log, "-o", "/dev/fd/1"), stdout=subprocess.PIPE, text=True, check=True, timeout=60).stdout == wanted


@pytest.mark.parametrize("kind", ["folder", "socket"])
def test_what_cannot_be_written_to_is_named(log: Path, tmp_path: Path, kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    there = tmp_path / "there"
    if kind == "folder":
        there.mkdir()
    else:
        os.mknod(there, 0o666 | stat.S_IFSOCK)
    assert main(["best", str(log), "-o", str(there)]) == ExitCode.USAGE
    assert main(["log", "export", "--format", "csv", "--overwrite", str(log), "-o", str(there)]) == ExitCode.USAGE
    assert capsys.readouterr().err.count(f"{there} is a {kind}") == 2
    assert not stat.S_ISREG(there.lstat().st_mode)


def test_a_file_system_that_is_read_only_is_a_named_exit(log: Path, tmp_path: Path) -> None:
    (tmp_path / "sealed").mkdir()
    script = 'mount -t tmpfs -o ro t "$1" || exit 77; shift; exec "$@"'
    unshare = shutil.which("unshare") or pytest.skip("no unshare here")
    for words in (("best", log), ("log", "export", "--format", "csv", log), ("log", "merge", log)):
        command = [unshare, "-rm", "bash", "-c", script, "bash", tmp_path / "sealed", *tilewright(*words, "-o", tmp_path / "sealed" / "out.jsonl")]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
        if done.returncode in (1, 77) and "tilewright" not in done.stderr and "Traceback" not in done.stderr:
            pytest.skip(f"no mounts here: {done.stderr}")
        assert done.returncode == ExitCode.HOST and "Read-only file system" in done.stderr, done.stderr
        assert "Traceback" not in done.stderr


def test_an_export_that_a_full_disk_stops_leaves_the_old_file(log: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.csv"
    out.write_text("old")
    words = tilewright("log", "export", "--format", "csv", "--overwrite", *[log] * 200, "-o", out)
    done = subprocess.run(["bash", "-c", 'ulimit -f 1; exec "$@"', "bash", *words], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == ExitCode.HOST and "File too large" in done.stderr and "Traceback" not in done.stderr, done.stderr
    assert out.read_text() == "old" and not drafts(tmp_path)


def test_a_reader_that_goes_away_ends_the_writing(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    try:
        assert is_stream(Path(f"/dev/fd/{writing}"))
        with replacing(Path(f"/dev/fd/{writing}")) as file:
            file.write("x" * 100_000)
    finally:
        os.close(writing)


def test_a_failure_leaves_what_was_there(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_text("old")
    with pytest.raises(HostError, match="cannot write"), replacing(path) as file:
        file.write("new")
        raise OSError(errno.ENOSPC, "No space left on device")
    assert path.read_text() == "old" and not drafts(tmp_path)


@pytest.mark.parametrize("links", [True, False])
def test_a_new_file_never_takes_anothers_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, links: bool) -> None:
    def refused(*_: object) -> None:
        raise OSError(errno.EPERM, "no links here")

    if not links:
        monkeypatch.setattr(destination.os, "link", refused)
    path = tmp_path / "a"
    with new_file(path) as file:
        file.write(b"mine")
        assert not path.exists() and len(drafts(tmp_path)) == 1
    assert path.read_bytes() == b"mine"
    path.unlink()
    with pytest.raises(UsageError, match="never rewritten"), new_file(path) as file:
        file.write(b"mine")
        path.write_bytes(b"theirs")
    assert path.read_bytes() == b"theirs" and not drafts(tmp_path)


def test_names_as_long_as_a_file_system_takes_are_written(tmp_path: Path) -> None:
    path = tmp_path / ("é" * 120)
    with new_file(path) as file:
        file.write(b"x")
    with replacing(path) as text:
        text.write("y")
    assert path.read_text() == "y"


def test_a_package_goes_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    link = tmp_path / "package"
    link.symlink_to(tmp_path / "there")
    write_package(link, {"a.py": "x"})
    assert link.is_symlink() and (tmp_path / "there" / "a.py").read_text() == "x"
