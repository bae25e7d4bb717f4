"""Each fault of a child is one reply of its own kind, and the next request finds a child that works."""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from tilewright.errors import HostError
from tilewright.worker import Worker

CHILD = Path(__file__).with_name("faulty_child.py")


def make_worker(**options):
    return Worker("build", command=[sys.executable, "-P", str(CHILD)], **options)


@pytest.fixture(scope="module")
def shared():
    with make_worker() as worker:
        yield worker


def alive(pid):
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return stat.read().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def gone_within(pid, seconds):
    limit = time.monotonic() + seconds
    while alive(pid) and time.monotonic() < limit:
        time.sleep(0.02)
    return not alive(pid)


def read_pid(path, seconds=5.0):
    limit = time.monotonic() + seconds
    while time.monotonic() < limit:
        if path.exists() and path.read_text():
            return int(path.read_text())
        time.sleep(0.02)
    raise AssertionError(f"{path} was not written")


def works(worker):
    return worker.request("echo", {"n": 1}, 10).result["payload"] == {"n": 1}


def test_answers_from_one_child_and_tells_its_ready_info(shared):
    first, second = shared.request("echo", {}, 10), shared.request("echo", {}, 10)
    assert first.kind == "ok" and first.result["pid"] == second.result["pid"] == shared.info["pid"]


def test_hang_is_a_timeout_with_the_tail_and_the_next_request_works(shared):
    before = shared.request("echo", {}, 10).result["pid"]
    start = time.monotonic()
    reply = shared.request("hang", {}, 0.3)
    assert reply.kind == "timeout" and "0.3 s" in reply.message and "about to hang" in reply.message
    assert time.monotonic() - start < 5 and not alive(before)
    assert works(shared)


@pytest.mark.parametrize("name", ["SIGKILL", "SIGABRT", "SIGSEGV"])
def test_death_by_signal_names_the_signal(shared, name):
    reply = shared.request("stop", {"signal": name}, 10)
    assert reply.kind == "died" and name in reply.message and "last words" in reply.message
    assert works(shared)


def test_exit_is_a_death_with_its_code(shared):
    reply = shared.request("leave", {"code": 3}, 10)
    assert reply.kind == "died" and "exit code 3" in reply.message
    assert works(shared)


@pytest.mark.parametrize(("then", "kind"), [("hang", "timeout"), ("die", "died")])
def test_grandchild_goes_with_the_group(shared, tmp_path, then, kind):
    reply = shared.request("grandchild", {"pid_file": str(tmp_path / "pid"), "then": then}, 0.5 if then == "hang" else 10)
    assert reply.kind == kind
    assert gone_within(read_pid(tmp_path / "pid"), 2)


def test_death_is_noticed_though_a_fork_holds_the_pipe(shared):
    start = time.monotonic()
    reply = shared.request("forked", {}, 30)
    assert reply.kind == "died" and "exit code 9" in reply.message and time.monotonic() - start < 5


def test_flood_neither_blocks_nor_is_kept(shared):
    reply = shared.request("flood", {"megabytes": 100}, 30)
    assert reply.kind == "ok" and reply.result == {"flooded": True}
    assert len(reply.output) <= 64 * 1024 and reply.output.endswith("xthe end")
    assert shared._child.output.mark() >= 100 * 2**20


@pytest.mark.parametrize("text", ["Segmentation fault?", "[1, 2]", '{"id": 999999, "result": {}}', '{"id": 1, "result'])
def test_garbage_on_the_wire(shared, text):
    reply = shared.request("garbage", {"text": text}, 10)
    assert reply.kind == "garbage" and text.split('"')[0][:10] in reply.message
    assert works(shared)


def test_exception_is_an_error_reply_and_the_child_lives(shared):
    pid = shared.request("echo", {}, 10).result["pid"]
    reply = shared.request("fail", {}, 10)
    assert reply.kind == "error" and reply.result["class"] == "ValueError"
    assert "a value that says what is wrong" in reply.message and "in fail" in reply.result["traceback"]
    assert shared.request("unsendable", {}, 10).kind == "error"
    unknown = shared.request("no_such", {}, 10)
    assert unknown.kind == "error" and "one of: hang" in unknown.message
    assert shared.request("echo", {}, 10).result["pid"] == pid


def test_large_request_and_a_child_that_does_not_read(shared):
    text = "x" * (1 << 20)
    assert len(shared.request("echo", {"text": text}, 10).result["payload"]["text"]) == len(text)
    os.kill(shared.pid, signal.SIGSTOP)
    assert shared.request("echo", {"text": text}, 0.3).kind == "timeout"
    assert works(shared)


def test_time_limit_starts_when_the_child_is_ready():
    with make_worker(env={"FAULTY_START": "slow"}) as worker:
        assert worker.request("echo", {}, 0.9).kind == "ok"


START_FAULTS = [("raise", "RuntimeError: no such toolchain"), ("die", "cannot load libsomething.so"), ("hang", "not ready within 0.5 s")]


@pytest.mark.parametrize(("mode", "said"), START_FAULTS)
def test_a_child_that_does_not_start_is_a_host_error(mode, said):
    with make_worker(env={"FAULTY_START": mode}, start_timeout_s=0.5 if mode == "hang" else 20) as worker:
        with pytest.raises(HostError, match="did not start") as raised:
            worker.request("echo", {}, 10)
        assert said in str(raised.value)


def test_spare_takes_over(tmp_path):
    with make_worker(spare=True, log_dir=tmp_path) as worker:
        worker.start()
        spare = worker._spare
        assert worker.request("stop", {"signal": "SIGKILL"}, 10).kind == "died"
        assert worker.request("echo", {}, 10).result["pid"] == spare.pid
        assert worker._spare is not None and worker._spare.pid != spare.pid
        worker._spare.kill()  # a spare that died in waiting is passed over
        dead = worker._spare.pid
        assert worker.request("leave", {"code": 1}, 10).kind == "died"
        assert worker.request("echo", {}, 10).result["pid"] != dead
        pids = (worker.pid, worker._spare.pid)
    assert not any(alive(pid) for pid in pids)
    assert [path.read_text().strip() for path in tmp_path.iterdir()] == ["last words"]


def test_close_ends_a_request_in_another_thread():
    worker = make_worker()
    worker.start()
    replies = []
    thread = threading.Thread(target=lambda: replies.append(worker.request("hang", {}, 60)))
    thread.start()
    time.sleep(0.2)
    worker.close()
    thread.join(5)
    assert replies[0].kind == "died" and "closed" in replies[0].message
    with pytest.raises(HostError, match="closed"):
        worker.request("echo", {}, 1)


def test_an_interrupt_ends_the_child_and_the_next_request_works(shared):
    before = shared.request("echo", {}, 10).result["pid"]

    def interrupt(*_):
        raise KeyboardInterrupt

    earlier = signal.signal(signal.SIGALRM, interrupt)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.2)
        with pytest.raises(KeyboardInterrupt):
            shared.request("hang", {}, 30)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, earlier)
    assert not alive(before) and works(shared)


def test_requests_of_several_threads_queue(shared):
    results = {}

    def ask(n):
        results[n] = shared.request("echo", {"n": n}, 10).result["payload"]["n"]

    threads = [threading.Thread(target=ask, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert results == {n: n for n in range(8)}


def test_child_outlives_the_thread_that_started_it_but_not_the_process(tmp_path):
    script = f"""
import sys, threading, time
from tilewright.worker import Worker
worker = Worker("build", command=[sys.executable, "-P", {str(CHILD)!r}])
thread = threading.Thread(target=worker.start); thread.start(); thread.join()
time.sleep(0.3)
assert worker.request("echo", {{}}, 10).result["pid"] == worker.info["pid"], "it died with the thread"
open({str(tmp_path / "pid")!r}, "w").write(str(worker.pid))
worker.request("hang", {{}}, 60)
"""
    environment = {**os.environ, "PYTHONPATH": str(Path(sys.modules["tilewright"].__file__).parent.parent)}
    parent = subprocess.Popen([sys.executable, "-c", script], env=environment)
    pid = read_pid(tmp_path / "pid", 20)
    time.sleep(0.2)
    parent.kill()
    parent.wait()
    assert gone_within(pid, 3)
