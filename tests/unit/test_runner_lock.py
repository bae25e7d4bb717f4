"""One device, one session."""

import subprocess
import sys
import textwrap
import threading

import pytest

from tilewright.device_lock import DeviceLock, lock_folder
from tilewright.errors import HostError

HOLDER = textwrap.dedent("""
    import sys
    from pathlib import Path
    from tilewright.device_lock import DeviceLock
    DeviceLock(sys.argv[1], Path(sys.argv[2])).acquire(print)
    print("held", flush=True)
    sys.stdin.read()
""")


@pytest.fixture
def holder(tmp_path):
    """Another process that holds device GPU-1."""
    command = [sys.executable, "-c", HOLDER, "GPU-1", str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "held\n"
        yield process
        process.kill()


def test_a_second_session_waits_and_names_the_first(holder, tmp_path):
    said = []
    with pytest.raises(HostError, match=f"process {holder.pid}.*gave up after 0.1 s"):
        DeviceLock("GPU-1", tmp_path).acquire(said.append, timeout_s=0.1)
    assert len(said) == 1 and f"process {holder.pid}" in said[0]


def test_the_wait_ends_with_the_holder_even_if_killed(holder, tmp_path):
    lock = DeviceLock("GPU-1", tmp_path)
    threading.Timer(0.3, holder.kill).start()
    lock.acquire(lambda _: None, timeout_s=20)
    lock.release()


def test_devices_do_not_wait_for_each_other(holder, tmp_path):
    said = []
    lock = DeviceLock("GPU-2", tmp_path)
    lock.acquire(said.append, timeout_s=0.1)
    lock.acquire(said.append)  # again: it has it
    assert not said
    lock.release()
    lock.release()


def test_a_lock_file_that_cannot_be_opened(tmp_path):
    lock = DeviceLock("a/b c", tmp_path)
    assert lock.path.name == "tilewright-a-b-c.lock"
    lock.path.mkdir()
    with pytest.raises(HostError, match="cannot be opened.*XDG_RUNTIME_DIR"):
        lock.acquire(lambda _: None)


def test_the_folder_is_the_users_own_where_there_is_one(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    assert lock_folder() == tmp_path
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "none"))
    assert lock_folder().is_dir() and lock_folder() != tmp_path / "none"
