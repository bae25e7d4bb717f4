"""A merge that is killed leaves no log that looks finished, nothing that holds up the next one, and no processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tilewright.bulk.merge import merge_files

# Slowed down at one place, so that the signal meets it.
SLOW = """
import sys, time
from pathlib import Path
from tilewright.bulk import merge, parts
def slow(was):
    def then(*given):
        time.sleep(0.05)
        return was(*given)
    return then
where, out, *logs = sys.argv[1:]
if where == "copy":
    merge._COPY_BYTES = 1000
    merge._Output.put = slow(merge._Output.put)
else:
    was = merge.blocks_of
    def blocks(part):
        for block in was(part):
            time.sleep(0.05)
            yield block
    merge.blocks_of = blocks
    parts.BLOCK_BYTES = parts._PART_BYTES = 1000
    merge.processes = lambda: 4
print("begun", flush=True)
merge.merge_files([Path(log) for log in logs], Path(out))
"""


@pytest.fixture
def logs(tmp_path: Path) -> list[Path]:
    """Two whose sessions take turns."""
    paths = [tmp_path / "0.jsonl", tmp_path / "1.jsonl"]
    for number, path in enumerate(paths):
        lines = []
        for name in range(number, 200, 2):
            head = f'"schema":1,"session":"s{name:03d}"'
            lines.append(f'{{"kind":"session",{head},"started_at":"2026-11-30T00:00:00.{name:03d}"}}\n')
            lines += [f'{{"kind":"trial",{head},"trial":{trial}}}\n' for trial in range(100)]
        path.write_text("".join(lines))
    return paths


def until(true: Callable[[], object], seconds: float = 20.0) -> bool:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if true():
            return True
        time.sleep(0.01)
    return False


def children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL, signal.SIGINT])
def test_killed_while_it_copies(logs: list[Path], tmp_path: Path, how: signal.Signals) -> None:
    folder = tmp_path / "out"
    out = folder / "merged.jsonl"
    with subprocess.Popen([sys.executable, "-c", SLOW, "copy", str(out), *map(str, logs)], stderr=subprocess.DEVNULL) as process:
        try:
            assert until(lambda: folder.exists() and any(path.stat().st_size > 5000 for path in folder.iterdir()))
        finally:
            process.send_signal(how)
    assert process.returncode != 0
    left = [path.name for path in folder.iterdir()]
    assert out.name not in left
    assert all(name.startswith("merged.jsonl.unfinished-") for name in left) and len(left) == (0 if how is signal.SIGINT else 1)
    merged = merge_files(logs, out)
    assert (merged.sessions, merged.lines) == (200, 200 * 101)
    assert len(out.read_bytes().splitlines()) == 200 * 101


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_the_processes_of_a_merge_end_with_it(logs: list[Path], tmp_path: Path, how: signal.Signals) -> None:
    command = [sys.executable, "-c", SLOW, "read", str(tmp_path / "out.jsonl"), *map(str, logs)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        assert process.stdout is not None and process.stdout.readline()
        helpers: list[int] = []
        try:
            assert until(lambda: len(children(process.pid)) == 3)
            helpers = children(process.pid)
        finally:
            process.send_signal(how)
            process.wait()
        assert until(lambda: not any(map(alive, helpers)), 3.0)
        for pid in filter(alive, helpers):
            os.kill(pid, signal.SIGKILL)
