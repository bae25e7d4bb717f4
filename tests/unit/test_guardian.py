"""What ends a session's processes: those below a child, and the one that outlives the session by a moment."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tilewright.descendants import descendants, kill_all
from tilewright.guardian import Guardian

SLEEPS = "import time; time.sleep(60)"
HAS_A_CHILD = (
    f"import subprocess, sys; child = subprocess.Popen([sys.executable, '-c', {SLEEPS!r}], start_new_session=True); print(child.pid, flush=True); child.wait()"
)


def test_a_child_in_a_session_of_its_own_is_found_and_ended() -> None:
    with subprocess.Popen([sys.executable, "-c", HAS_A_CHILD], stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        below = descendants(os.getpid())
        assert {parent.pid, child} <= set(below) and descendants(parent.pid) == [child]
        kill_all([child])
        assert parent.wait(20) == 0


def test_a_process_that_ends_while_it_is_looked_at_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    def gone(path: Path, pattern: str) -> Any:
        raise ProcessLookupError(path)

    assert descendants(2**22 + 1) == []
    monkeypatch.setattr(Path, "glob", gone)
    assert descendants(os.getpid()) == []


def test_groups_that_are_watched_end_with_the_guardian_and_forgotten_ones_do_not() -> None:
    guardian = Guardian()
    watched, forgotten = (subprocess.Popen([sys.executable, "-c", SLEEPS], start_new_session=True) for _ in range(2))
    try:
        for process in (watched, forgotten):
            guardian.watch(process.pid)
        guardian.forget(forgotten.pid)
        guardian.close()
        assert watched.wait(20) == -signal.SIGKILL
        time.sleep(0.05)
        assert forgotten.poll() is None
    finally:
        for process in (watched, forgotten):
            process.kill()
            process.wait()


def test_a_closed_guardian_may_be_told_of_a_group_all_the_same() -> None:
    guardian = Guardian()
    guardian.watch(2**22 + 1)
    guardian.close()
    guardian.forget(2**22 + 1)
