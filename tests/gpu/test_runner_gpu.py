"""The runner's promises on a GPU: the faults of the interpreter's tests again, those that need a device, and the timing."""

import re
import statistics
import time
from dataclasses import replace

import pytest

from tilewright.anchoring import LATENCY_US
from tilewright.errors import HostError, NoDevice
from tilewright.protocols import EVENTS_PROTOCOL, GRAPH_PROTOCOL
from tilewright.record import Status
from tilewright.runner import DeviceRunner, RaceJob

pytestmark = pytest.mark.gpu

LARGE = 2**25  # elements: 400 MB for the three vectors in fp32, eight times an L2 of 50 MB
SMALL = 2**18  # 3 MB: some 3 µs a call


@pytest.fixture(scope="module")
def runner(tmp_path_factory):
    with DeviceRunner("cuda:0", cache_dir=tmp_path_factory.mktemp("cache"), timeout_s=10.0) as runner:
        yield runner


def test_the_device_is_told(runner):
    target = runner.target
    assert target.backend == "cuda" and re.fullmatch(r"sm_\d+", target.arch) and target.sm_count > 0
    assert target.shared_memory_bytes > 48 * 1024 and target.l2_bytes > 2**20 and target.memory_bytes > 2**30
    assert target.bandwidth_gb_s > 100 and re.fullmatch("0x[0-9a-f]{4}", target.pci_id) and target.power_limit_w > 0
    assert runner.toolchain.driver and runner.toolchain.triton and runner.toolchain.torch


def test_faults(runner, vector_add, candidate_fault):
    workload = vector_add.workload(3000)
    outcome = runner.measure(vector_add.changed(candidate_fault.old, candidate_fault.new, workload))
    # An unknown name in a kernel is found by the compiler here, and by running it in the interpreter.
    expected = {candidate_fault.status, Status.COMPILE_ERROR} if "nothing" in candidate_fault.new else {candidate_fault.status}
    assert outcome.status in expected, outcome
    assert re.search(candidate_fault.said, outcome.message), outcome.message
    after = runner.measure(vector_add.job(workload=workload))
    assert after.status is Status.OK, after.message


DEVICE_FAULTS = {
    "illegal_address": ("tl.store(c + offsets", "tl.store(c + offsets + (1 << 40)", {Status.CRASH}, "illegal memory access"),
    "misaligned_address": (
        "    tl.store(c + offsets, total, mask=mask)",
        "    tl.store((c.to(tl.int64) + 4 * offsets.to(tl.int64) + 2).to(tl.pointer_type(tl.float32)), total, mask=mask)",
        {Status.CRASH},
        "misaligned address",
    ),
    "device_assert": (
        "@triton.jit\n",
        "@triton.jit(debug=True)\n",
        {Status.CRASH, Status.LAUNCH_ERROR},
        "assert|no offset is below 0",
    ),
    "never_ends": (
        "    tl.store(c",
        "    i = 0\n    while i >= 0:\n        i = tl.atomic_add(c.to(tl.pointer_type(tl.int32)), 0) & 1\n    tl.store(c",
        {Status.RUN_TIMEOUT},
        "within 10 s",
    ),
    "all_memory": (
        "    n = c.numel()\n",
        "    import torch; kept = [torch.empty(2**40, dtype=torch.uint8, device=c.device)]\n    n = c.numel()\n",
        {Status.OUT_OF_RESOURCES},
        "out of memory",
    ),
}


@pytest.mark.parametrize("name", DEVICE_FAULTS)
def test_faults_of_a_device(runner, vector_add, name):
    old, new, statuses, said = DEVICE_FAULTS[name]
    workload = vector_add.workload(2**16)
    began = time.monotonic()
    asserting = "    tl.device_assert(offsets < 0, 'no offset is below 0')\n    tl.store(c" if name == "device_assert" else "    tl.store(c"
    text = vector_add.schedule.replace(old, new).replace("    tl.store(c", asserting)
    assert text != vector_add.schedule
    outcome = runner.measure(vector_add.job(text, workload))
    assert outcome.status in statuses and re.search(said, outcome.message), outcome
    after = runner.measure(vector_add.job(workload=workload))
    assert after.status is Status.OK, after
    # The time-out, and then a warm spare that needs a context and a warm clock.
    assert time.monotonic() - began < 10 + 15


TOO_MUCH_SHARED_MEMORY = """
import triton
import triton.language as tl

@triton.jit
def product_kernel(a, b, c, n):
    rows, cols, inner = tl.arange(0, 128), tl.arange(0, 256), tl.arange(0, 64)
    total = tl.zeros((128, 256), tl.float32)
    for start in range(0, n, 64):
        x = tl.load(a + rows[:, None] * 64 + inner[None, :] + start)
        y = tl.load(b + inner[:, None] * 256 + cols[None, :] + start)
        total = tl.dot(x, y, total)
    tl.store(c + rows[:, None] * 256 + cols[None, :], total.to(tl.float16))

def launch(a, b, c):
    product_kernel[(1,)](a, b, c, 1024, num_warps=8, num_stages=7)
"""


def test_shared_memory_over_the_limit(runner, vector_add):
    """Seven stages of (128 + 256) x 64 16-bit elements are 336 KB: it compiles, and the device refuses it."""
    workload = vector_add.workload(2**16, "float16")
    outcome = runner.measure(vector_add.job(TOO_MUCH_SHARED_MEMORY, workload))
    assert outcome.status is Status.OUT_OF_RESOURCES and "shared memory" in outcome.message, outcome
    assert runner.measure(vector_add.job(workload=workload)).status is Status.OK


def test_a_large_vector_is_timed_by_graph_replay(runner, vector_add):
    workload = vector_add.workload(LARGE)
    first, second = (runner.measure(vector_add.job(workload=workload)) for _ in range(2))
    for outcome in (first, second):
        assert outcome.status is Status.OK, outcome.message
        assert outcome.measurement.protocol == GRAPH_PROTOCOL and outcome.measurement.samples >= 5
        assert outcome.measurement.cv < 0.05
    assert second.measurement.median_us == pytest.approx(first.measurement.median_us, rel=0.05)
    floor = 3 * 4 * LARGE / runner.target.bandwidth_gb_s * 1e-3
    assert floor * 0.95 < second.measurement.median_us < floor * 3


def test_a_short_kernel_is_not_timed_by_the_host(runner, vector_add):
    """Launching takes the host some 20 µs; the kernel itself takes a few."""
    times = [runner.measure(vector_add.job(workload=vector_add.workload(SMALL))).measurement.median_us for _ in range(5)]
    assert max(times) < 10
    assert statistics.pstdev(times) / statistics.fmean(times) < 0.05


def test_vendors_are_timed_by_the_same_protocol(runner, vector_add):
    outcomes = dict(runner.vendors(vector_add.vendor_job(vector_add.workload(LARGE))))
    assert outcomes["torch.add"].status is Status.OK, outcomes["torch.add"].message
    assert outcomes["torch.add"].measurement.protocol == GRAPH_PROTOCOL
    ours = runner.measure(vector_add.job(workload=vector_add.workload(LARGE)))
    assert outcomes["torch.add"].measurement.median_us == pytest.approx(ours.measurement.median_us, rel=0.25)
    assert outcomes["wrong"].status is Status.WRONG_RESULT


def test_what_cannot_be_captured_falls_back_to_events(runner, vector_add):
    synchronous = vector_add.changed("    n = c.numel()\n", "    a[0].item()\n    n = c.numel()\n", vector_add.workload(LARGE))
    outcome = runner.measure(synchronous)
    assert outcome.status is Status.OK, outcome.message
    assert outcome.measurement.protocol == EVENTS_PROTOCOL
    after = runner.measure(vector_add.job(workload=vector_add.workload(LARGE)))
    assert after.status is Status.OK and after.measurement.protocol == GRAPH_PROTOCOL


IDLE_AFTER_THE_CHECK = """
_right, _calls = launch, []

def launch(a, b, c):
    _calls.append(1)
    if len(_calls) <= 2:
        _right(a, b, c)
    else:
        c[:1].zero_()
"""


def test_a_schedule_that_stops_working_once_checked_is_impossible(runner, vector_add):
    text = vector_add.schedule + IDLE_AFTER_THE_CHECK
    outcome = runner.measure(vector_add.job(text, vector_add.workload(LARGE)))
    assert outcome.status is Status.IMPOSSIBLE, outcome
    assert "peak rate" in outcome.message and outcome.measurement is not None


def test_a_hopeless_candidate_is_cut(runner, vector_add):
    outcome = runner.measure(vector_add.job(workload=vector_add.workload(LARGE), cut_above_us=1.0))
    assert outcome.status is Status.CUT and outcome.measurement.samples < 5


def test_memory_that_a_candidate_keeps_is_taken_back(runner, vector_add):
    keep = "    import builtins, torch\n    if not hasattr(builtins, 'kept'):\n        builtins.kept = torch.empty(2**28, dtype=torch.uint8, device=c.device)\n"
    leaking = f"{keep}    n = c.numel()\n"
    pid = runner._worker.pid
    assert runner.measure(vector_add.changed("    n = c.numel()\n", leaking)).status is Status.OK
    assert runner.measure(vector_add.job()).status is Status.OK
    assert runner._worker.pid != pid


def test_a_measured_candidate_costs_milliseconds(runner, vector_add):
    workload = vector_add.workload(LARGE)
    spent = []
    for number in range(6):
        job = vector_add.job(vector_add.schedule + f"# {number}\n", workload)
        began = time.perf_counter()
        assert runner.measure(job).status is Status.OK
        spent.append(time.perf_counter() - began)
    # Kernels that are compiled already: without a builder the first one compiles here.
    assert statistics.median(spent[1:]) < 0.1


def test_a_second_session_on_the_device_waits(runner):
    said = []
    with pytest.raises(HostError, match="held by another session"):
        DeviceRunner("cuda:0", say=said.append, lock_timeout_s=0.5, spare=False)
    assert len(said) == 1 and "measures on it" in said[0]


def test_a_device_that_is_not_there():
    with pytest.raises(NoDevice, match="torch sees"):
        DeviceRunner("cuda:99", spare=False)


def test_times_carry_an_anchor_and_the_devices_state(runner, vector_add):
    found = runner.measure(vector_add.job(workload=vector_add.workload(LARGE // 4))).measurement  # some 25 µs: the short kernel counts
    assert found.anchor.kind == "memory" and found.anchor.samples >= 4
    assert 0.5 < found.anchor.median_us / found.anchor.nominal_us < 2
    assert found.kernels == 1.0 and (found.latency is not None) is (runner.target.name in LATENCY_US)
    assert found.latency is None or 0.5 < found.latency.median_us / found.latency.nominal_us < 2
    beside = 0.0 if found.latency is None else found.latency.median_us - found.latency.nominal_us
    assert found.ranked_us == pytest.approx((found.median_us - beside) * found.anchor.nominal_us / found.anchor.median_us, abs=0.01)
    assert found.state.sm_mhz > 300 and found.state.power_w > 20


def test_a_ragged_neighbour_is_checked_with_the_same_binary(runner, vector_add):
    text = vector_add.schedule.replace("triton.cdiv(n, 1024),", "n // 1024,")
    workload, ragged = vector_add.workload(2**16), vector_add.workload(2**16 - 16)
    outcome = runner.measure(vector_add.job(text, workload, neighbours=(ragged,)))
    assert outcome.status is Status.WRONG_RESULT and "right at its own extents" in outcome.message, outcome
    after = runner.measure(vector_add.job(workload=workload, neighbours=(ragged,)))
    assert after.status is Status.OK and after.check.ragged == ragged.key, after
    # 8 less is no multiple of 16: another binary, which says nothing of this one.
    other = runner.measure(vector_add.job(workload=workload, neighbours=(vector_add.workload(2**16 - 8),)))
    assert other.status is Status.OK and other.check.ragged == "", other


def test_a_race_pairs_its_racers_and_finds_out_cheats(runner, vector_add):
    workload = vector_add.workload(SMALL)
    slow = vector_add.schedule.replace("    tl.store(c", "    for i in range(4096):\n        total += 1e-9\n    tl.store(c")
    cheat = vector_add.schedule + IDLE_AFTER_THE_CHECK
    crash = vector_add.schedule.replace("tl.store(c + offsets", "tl.store(c + offsets.to(tl.int64) + (1 << 40)")
    sources = tuple(vector_add.job(text).source for text in (slow, vector_add.schedule, crash, cheat))
    outcome = runner.race(RaceJob(operator="vector_add", folder=vector_add.folder, workload=workload, sources=sources))
    right, best, crashed, cheated = outcome.schedules
    assert right.status is Status.OK and best.status is Status.OK and len(best.times_us) == len(right.times_us) == outcome.rounds >= 12
    assert statistics.median(a / b for a, b in zip(right.times_us, best.times_us, strict=True)) > 1.05
    assert crashed.status is Status.CRASH and cheated.status is Status.WRONG_RESULT, outcome
    assert "what was timed" in cheated.message
    assert outcome.vendors["torch.add"].status is Status.OK and outcome.vendors["wrong"].status is Status.WRONG_RESULT
    assert outcome.anchor.kind == "memory" and outcome.state is not None
    assert runner.measure(vector_add.job(workload=workload)).status is Status.OK


def test_a_lost_child_costs_little_also_twice_in_a_row(runner, vector_add):
    """The bar is 1.5 s beyond the time-out; the spare has its context open, and the next one is forked."""
    job = vector_add.job(workload=vector_add.workload(2**16))
    crash = vector_add.changed("tl.store(c + offsets", "tl.store(c + offsets.to(tl.int64) + (1 << 40)", job.workload)
    assert runner.measure(job).status is Status.OK
    limit = time.monotonic() + 60
    while time.monotonic() < limit:
        runner.measure(job)
        spare = runner._worker._spare
        if spare is not None and spare.info is not None and not spare.preparing:
            break
    assert spare is not None and set(spare.told["stages_ms"]) == {"context", "libraries"} and not spare.refused, spare.told
    costs = []
    for _ in range(3):
        began = time.monotonic()
        assert runner.measure(crash).status is Status.CRASH
        assert runner.measure(job).status is Status.OK
        costs.append(time.monotonic() - began)
    assert max(costs) < 1.5, (costs, runner.stages[-12:])


def test_the_next_one_told_ahead_is_loaded_meanwhile(runner, vector_add):
    workload = vector_add.workload(LARGE)
    jobs = [vector_add.job(vector_add.schedule + f"# ahead {number}\n", workload) for number in range(8)]
    for job in jobs:
        assert runner.measure(job).status is Status.OK  # compiled
    pid = runner._worker.pid
    for job, following in zip(jobs, jobs[1:], strict=False):
        outcome = runner.measure(replace(job, ahead=following.source))
        assert outcome.status is Status.OK and outcome.measurement.protocol == GRAPH_PROTOCOL
    assert outcome.phases_ms["load"] < 1.0, outcome.phases_ms
    assert runner._worker.pid == pid
