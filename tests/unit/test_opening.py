"""A device that opens while candidates are built, what is read of a GPU before, and the timeline of it all."""

from __future__ import annotations

import ctypes
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tilewright.errors import HostError, UsageError
from tilewright.gpu_target import _ATTRIBUTES, Facts, driver_facts, quick_target, target_of
from tilewright.job import Job, MeasureJob, MeasureOutcome
from tilewright.opening import OpeningRunner, TargetDiffers
from tilewright.target import named_target
from tilewright.template import Source
from tilewright.testing import FakeRunner
from tilewright.timeline import Timeline, format_marks, process_began
from tilewright.workload import Workload

TARGET = named_target("sm_90")

# What torch and NVML said of an H200 (driver 580, torch 2.11, November 2026), and what the driver's attributes were.
H200 = {
    "shared_memory_per_block": 49152, "warp_size": 32, "sm_count": 132, "pci_bus": 3, "pci_device": 0, "l2_bytes": 62914560,
    "max_threads_per_sm": 2048, "pci_domain": 0, "major": 9, "minor": 0, "shared_memory_per_sm_bytes": 233472,
    "registers_per_sm": 65536, "shared_memory_bytes": 232448,
}  # fmt: skip


def opening(make: Any) -> OpeningRunner:
    return OpeningRunner(make, TARGET, protocol="fake/1", race_s=0.0)


def test_nothing_is_opened_until_it_is_needed() -> None:
    made: list[int] = []
    runner = opening(lambda: made.append(1) or FakeRunner(target=TARGET))
    assert runner.target == TARGET and not runner.ready
    runner.close()
    assert not made


def test_what_needs_the_device_waits_for_it() -> None:
    gate = threading.Event()

    def make() -> FakeRunner:
        gate.wait(5)
        return FakeRunner(target=TARGET)

    runner = opening(make)
    runner.start()
    assert not runner.ready
    threading.Timer(0.05, gate.set).start()
    assert runner.toolchain.triton and runner.ready


def test_a_device_that_is_another_one_than_was_read_is_refused() -> None:
    other = replace(TARGET, power_limit_w=500)
    with pytest.raises(TargetDiffers, match="500"):
        opening(lambda: FakeRunner(target=other)).runner()


def test_a_failure_to_open_is_raised_where_it_is_waited_for() -> None:
    def fail() -> FakeRunner:
        raise HostError("no room")

    runner = opening(fail)
    runner.start()
    with pytest.raises(HostError, match="no room"):
        runner.runner()
    runner.close()


def test_a_runner_that_is_made_after_the_end_is_closed() -> None:
    gate, fake = threading.Event(), FakeRunner(target=TARGET)

    def make() -> FakeRunner:
        gate.wait(5)
        return fake

    runner = opening(make)
    runner.start()
    runner.close()
    assert not fake.closed
    gate.set()
    limit = time.monotonic() + 5
    while not fake.closed and time.monotonic() < limit:
        time.sleep(0.01)
    assert fake.closed


def job(extent: int) -> Job:
    return Job(operator="o", folder=Path("o"), workload=Workload(operator="o", dims={"M": extent}, dtypes={}, layout={}))


class VendorRunner(FakeRunner):
    """Tells what vendors were asked for, and measures them when it is let."""

    def __init__(self, error: Exception | None = None) -> None:
        super().__init__(target=TARGET, vendors={"v": 1.0})
        self.asked: list[Job] = []
        self.gate = threading.Event()
        self._error = error

    def vendors(self, job: Job) -> list[tuple[str, MeasureOutcome]]:
        self.asked.append(job)
        assert self.gate.wait(5)
        if self._error is not None:
            raise self._error
        return super().vendors(job)


def opened_with(first: Job, inner: VendorRunner) -> OpeningRunner:
    """One that has begun with the vendors of its first job."""
    told = threading.Event()

    def make() -> FakeRunner:
        assert told.wait(5)
        return inner

    runner = opening(make)
    runner.start()
    runner.start(first)
    told.set()
    limit = time.monotonic() + 5
    while not inner.asked and time.monotonic() < limit:
        time.sleep(0.01)
    assert inner.asked == [first]
    return runner


def test_the_vendors_of_the_first_job_are_measured_once_as_soon_as_there_is_a_device() -> None:
    inner = VendorRunner()
    runner = opened_with(job(1), inner)
    source = Source(text="t", hash="h", schedule="s", template_hash="")
    candidate = MeasureJob(operator="o", folder=Path("o"), workload=job(1).workload, source=source)
    measuring = threading.Thread(target=runner.measure, args=(candidate,))
    measuring.start()
    time.sleep(0.05)
    assert not inner.jobs, "two things are measured at once"
    inner.gate.set()
    measuring.join(5)
    assert inner.jobs == [candidate]
    assert [name for name, _ in runner.vendors(job(1))] == ["v"] and inner.asked == [job(1)]
    runner.vendors(job(2))
    runner.vendors(job(1))  # whoever asks again wants new times
    assert inner.asked == [job(1), job(2), job(1)]


def test_a_session_that_ends_while_the_first_vendors_are_measured_closes_the_runner_once() -> None:
    closings: list[str] = []

    class Closing(VendorRunner):
        def close(self) -> None:
            closings.append(threading.current_thread().name)
            super().close()
            self.gate.set()  # what was being measured ends with the child

    runner = opened_with(job(1), Closing())
    runner.close()
    opener = next((thread for thread in threading.enumerate() if thread.name == "tilewright-open"), None)
    if opener is not None:
        opener.join(5)
    assert closings == [threading.current_thread().name]


def test_a_fault_of_the_first_vendors_is_raised_where_they_are_asked_for() -> None:
    inner = VendorRunner(UsageError("no such reference"))
    runner = opened_with(job(1), inner)
    inner.gate.set()
    assert runner.measure(
        MeasureJob(operator="o", folder=Path("o"), workload=job(1).workload, source=Source(text="t", hash="h", schedule="s", template_hash=""))
    )
    with pytest.raises(UsageError, match="no such reference"):
        runner.vendors(job(1))


class FakeCuda:
    """libcuda, as far as it is asked."""

    def __init__(self, code: int = 0) -> None:
        self._code = code

    def __getattr__(self, name: str) -> Any:
        def call(*arguments: Any) -> int:
            if name == "cuDeviceGetName":
                arguments[0].value = b"NVIDIA H200"
            elif name == "cuDeviceGetUuid_v2":
                arguments[0].raw = bytes(range(16))
            elif name == "cuDeviceTotalMem_v2":
                arguments[0]._obj.value = 150109880320
            elif name == "cuDeviceGetAttribute":
                names = {code: attribute for attribute, code in _ATTRIBUTES.items()}
                arguments[0]._obj.value = H200[names[arguments[1]]]
            return self._code

        return call


def test_the_driver_tells_what_torch_would() -> None:
    facts = driver_facts(0, FakeCuda())
    assert facts == Facts(name="NVIDIA H200", uuid="00010203-0405-0607-0809-0a0b0c0d0e0f", memory_bytes=150109880320, attributes=H200)
    target = target_of(facts, {"bandwidth_gb_s": 4814.3, "pci_id": "0x2335", "power_limit_w": 700})
    # As the runner's child described the same device in a log of that day.
    assert target == replace(
        TARGET, name="NVIDIA H200", shared_memory_bytes=232448, shared_memory_per_sm_bytes=233472, l2_bytes=62914560,
        memory_bytes=150109880320, bandwidth_gb_s=4814.3, pci_id="0x2335", power_limit_w=700,
    )  # fmt: skip
    assert ctypes.sizeof(ctypes.c_size_t) == 8


def test_no_driver_is_no_target(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(OSError, match="cuInit gave error 100"):
        driver_facts(0, FakeCuda(100))
    monkeypatch.setenv("LD_LIBRARY_PATH", "")
    if not Path("/dev/nvidiactl").exists():
        assert quick_target("cuda:0") is None


def test_a_mig_instance_is_told_apart() -> None:
    facts = Facts(name="NVIDIA H200 MIG 1g.18gb", uuid="", memory_bytes=2**34, attributes={**H200, "sm_count": 16})
    target = target_of(facts, {})
    assert target.mig_profile == "1g.18gb" and target.sm_count == 16
    assert target.tflops["float16"] == round(989 * 16 / 132, 1) and target.bandwidth_gb_s == 4800.0 * 16 / 132


def test_a_timeline_keeps_the_first_of_each_moment() -> None:
    timeline = Timeline(time.monotonic() - 2.0)
    timeline.mark("asked")
    time.sleep(0.02)
    timeline.mark("asked")
    timeline.mark("done")
    first, last = timeline.marks
    assert (first.name, last.name) == ("asked", "done") and 2.0 <= first.at_s < last.at_s
    text = format_marks(timeline.marks)
    assert text.count("\n") == 1 and text.endswith("done") and "+" in text


def test_a_process_knows_when_it_was_started() -> None:
    began = process_began()
    assert began <= time.monotonic() and time.monotonic() - began < 3600
