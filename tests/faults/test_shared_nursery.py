"""One process imports torch and triton for all children of a session; builders and measuring children are forks of it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tilewright import nursery as nursery_module
from tilewright.builder import BuildRequest, CompileBuilder
from tilewright.errors import HostError
from tilewright.library import find_operator
from tilewright.nursery import CannotFork, Nursery, base_environment, begin_early, nursery_of_session
from tilewright.record import Status
from tilewright.target import named_target
from tilewright.worker import Worker

pytestmark = pytest.mark.skipif(not Nursery.possible(), reason="no nursery on this system")


@pytest.fixture(scope="module")
def nursery() -> Iterator[Nursery]:
    shared = Nursery(base_environment())
    yield shared
    shared.close()


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def wait_for_end(*pids: int, seconds: float) -> bool:
    limit = time.monotonic() + seconds
    while any(map(alive, pids)) and time.monotonic() < limit:
        time.sleep(0.02)
    return not any(map(alive, pids))


def request(builder: CompileBuilder) -> BuildRequest:
    operator = find_operator("rms_norm", [])
    workload, target = operator.workload("rows=64,cols=256,dtype=float16"), named_target("sm_90")
    arguments = (*operator.spec.inputs(workload).values(), *operator.spec.outputs(workload).values())
    return BuildRequest(source=operator.instantiate(workload, target, operator.space(workload, target).default()), arguments=arguments, target=target)


def test_builders_are_forks_with_an_environment_and_a_group_of_their_own(nursery: Nursery, tmp_path: Path) -> None:
    with CompileBuilder(2, tmp_path, nursery=nursery) as builder:
        builder.start()
        built = builder.submit(request(builder)).result(60)
        assert built.status is Status.OK and built.resources is not None
        assert list((tmp_path / "triton").iterdir())  # the folder is named in the environment of builders alone
        for worker in builder._workers:
            worker.start()
        pids = [worker.pid or 0 for worker in builder._workers]
        assert len(set(pids)) == 2 and all(worker._child is not None and worker._child.forked for worker in builder._workers)
        assert all(os.getpgid(pid) == pid for pid in pids)
        assert {os.readlink(f"/proc/{pid}/fd/0") for pid in pids} == {os.devnull}
        # One that dies is a fault of its own, and the next is a fork again.
        os.kill(pids[0], signal.SIGKILL)
        assert builder._workers[0].request("build", {}, 10).message.endswith("SIGKILL")
        began = time.monotonic()
        builder._workers[0].start()
        assert builder._workers[0].pid not in pids and time.monotonic() - began < 3
        pids = [worker.pid or 0 for worker in builder._workers]
        began = time.monotonic()
    assert wait_for_end(*pids, seconds=0) and time.monotonic() - began < 2
    assert not nursery.broken


def test_a_child_outlives_the_thread_that_asked_for_it(nursery: Nursery) -> None:
    with Worker("build", nursery=nursery) as worker:
        thread = threading.Thread(target=worker.start)
        thread.start()
        thread.join()
        time.sleep(0.1)
        assert worker.alive and worker._child is not None and worker._child.forked


def test_the_lowest_rank_is_served_first(nursery: Nursery) -> None:
    served: list[int] = []
    limit = time.monotonic() + 60
    while not nursery.ready():
        assert time.monotonic() < limit
        time.sleep(0.02)

    def ask(rank: int) -> None:
        with nursery._turn(rank):
            served.append(rank)

    threads = [threading.Thread(target=ask, args=(rank,)) for rank in (2, 1, 0)]
    with nursery._turn(0):
        for thread in threads:
            thread.start()
        while len(nursery._line) < len(threads):
            time.sleep(0.01)
    for thread in threads:
        thread.join()
    assert served == [0, 1, 2]


def test_what_is_read_at_import_cannot_differ(nursery: Nursery) -> None:
    with pytest.raises(CannotFork, match="TRITON_INTERPRET"):
        nursery.fork("interpret", base_environment(interpreted=True), (0, 1, 2))
    assert not nursery.broken


def test_a_worker_that_is_closed_waits_for_no_nursery() -> None:
    nursery = Nursery(base_environment())
    worker = Worker("build", nursery=nursery)
    os.kill(nursery._process.pid, signal.SIGSTOP)
    raised: list[HostError] = []

    def start() -> None:
        try:
            worker.start()
        except HostError as error:
            raised.append(error)

    thread = threading.Thread(target=start)
    thread.start()
    time.sleep(0.2)
    worker.close()
    thread.join(2)
    nursery.close()
    assert not thread.is_alive() and "closed" in str(raised[0])


def test_without_a_nursery_children_are_started_afresh(tmp_path: Path) -> None:
    nursery = Nursery(base_environment())
    os.kill(nursery._process.pid, signal.SIGKILL)
    with CompileBuilder(1, tmp_path, nursery=nursery) as builder:
        assert builder.toolchain.triton
        child = builder._workers[0]._child
        assert child is not None and not child.forked and nursery.broken
    nursery.close()


def test_all_die_with_the_session(tmp_path: Path) -> None:
    script = f"""
import time
from pathlib import Path
from tilewright.builder import CompileBuilder
from tilewright.nursery import nursery_of_session
nursery = nursery_of_session()
builder = CompileBuilder(2, Path({str(tmp_path)!r}), nursery=nursery)
builder.start()
while not all(worker.alive for worker in builder._workers):
    time.sleep(0.02)
print(nursery._process.pid, *[worker.pid for worker in builder._workers], flush=True)
time.sleep(60)
"""
    session = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, env=base_environment())
    assert session.stdout is not None
    with session.stdout as told:
        pids = [int(word) for word in told.readline().split()]
    session.kill()
    session.wait()
    assert len(pids) == 3 and wait_for_end(*pids, seconds=2)


def test_one_begun_early_is_taken_where_its_environment_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    begin_early()
    begin_early()
    (early,) = nursery_module._early
    assert nursery_of_session() is early and not nursery_module._early
    early.close()
    begin_early()
    (early,) = nursery_module._early
    monkeypatch.setenv("TRITON_PTXAS_PATH", "/nowhere")
    other = nursery_of_session()
    assert other is not None and other is not early and early.broken
    other.close()
