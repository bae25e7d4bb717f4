"""What `doctor` finds wrong."""

from __future__ import annotations

import types
from pathlib import Path

import pytest

from tilewright import doctor
from tilewright.doctor import Finding, exit_code
from tilewright.errors import ExitCode


class FakeNvml(types.ModuleType):
    """NVML with one GPU that does not know its power limit and is shared by one process."""

    NVML_CLOCK_SM, NVML_CLOCK_MEM, NVML_TEMPERATURE_GPU = 1, 2, 0

    class NVMLError(Exception):
        pass

    def nvmlInit(self) -> None: ...
    def nvmlShutdown(self) -> None: ...
    def nvmlSystemGetDriverVersion(self) -> bytes:
        return b"580.95"

    def nvmlDeviceGetCount(self) -> int:
        return 1

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:
        return index

    def nvmlDeviceGetHandleByUUID(self, uuid: bytes) -> int:
        if uuid != b"GPU-d":
            raise self.NVMLError("not found")
        return 3

    def nvmlDeviceGetName(self, handle: int) -> str:
        return "NVIDIA H200" if handle == 0 else f"NVIDIA H200 number {handle}"

    def nvmlDeviceGetClockInfo(self, handle: int, kind: int) -> int:
        return 1700 if kind == 1 else 3200

    def nvmlDeviceGetMaxClockInfo(self, handle: int, kind: int) -> int:
        return 1980 if kind == 1 else 3201

    def nvmlDeviceGetTemperature(self, handle: int, kind: int) -> int:
        return 41

    def nvmlDeviceGetPowerUsage(self, handle: int) -> int:
        return 120_400

    def nvmlDeviceGetEnforcedPowerLimit(self, handle: int) -> int:
        raise self.NVMLError("not supported")

    def nvmlDeviceGetComputeRunningProcesses(self, handle: int) -> list[types.SimpleNamespace]:
        return [types.SimpleNamespace(pid=4711)]


def findings(monkeypatch: pytest.MonkeyPatch, folder: Path, answers: dict[str, dict[str, object] | str], gpu: bool) -> dict[str, Finding]:
    def probe(question: str, env: object) -> dict[str, object]:
        answer = answers[question]
        if isinstance(answer, str):
            raise doctor._ProbeFailed(answer)
        return answer

    fake = FakeNvml("pynvml")
    if not gpu:

        def missing() -> None:
            raise fake.NVMLError("library not found")

        fake.nvmlInit = missing  # type: ignore[method-assign]
    monkeypatch.setitem(__import__("sys").modules, "pynvml", fake)
    monkeypatch.setattr(doctor, "_probe", probe)
    monkeypatch.setenv("TILEWRIGHT_CACHE", str(folder / "cache"))
    return {finding.name: finding for finding in doctor.examine(folder / "logs")}


def versions(torch: str = "2.13.0+cpu", triton: str = "3.9.0", cuda: str = "", devices: int = 0) -> dict[str, object]:
    return {"torch": torch, "triton": triton, "cuda": cuda, "cuda_devices": devices}


WORKS: dict[str, object] = {"correct": True}


def test_a_machine_without_a_gpu_can_tune(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    found = findings(monkeypatch, tmp_path, {"versions": versions(), "interpreter": WORKS}, gpu=False)
    assert found["device"].state == "note" and "interpreter" in found["device"].advice
    assert exit_code(list(found.values())) is ExitCode.OK


def test_a_gpu_is_described_as_far_as_nvml_answers(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    answers = {"versions": versions("2.11.0+cu130", "3.6.0", "13.0", 1), "interpreter": WORKS, "measuring": {"anchors": {}, "state": None}}
    found = findings(monkeypatch, tmp_path, answers, gpu=True)
    assert found["driver"].detail == "580.95"
    detail = found["gpu 0"].detail
    assert "NVIDIA H200, SM clock 1700 of 1980 MHz" in detail and "power 120 of unknown W" in detail and "4711" in detail
    assert found["gpu 0"].state == "note", "a shared GPU is worth a warning"
    assert exit_code(list(found.values())) is ExitCode.OK


def test_a_gpu_is_the_one_that_torch_sees_and_not_the_one_of_its_number(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    # CUDA_VISIBLE_DEVICES=3: torch's device 0 is NVML's 3; the second is one that NVML does not know.
    told = {**versions("2.11.0+cu130", "3.6.0", "13.0", 2), "device_ids": ["d", "unknown"]}
    found = findings(monkeypatch, tmp_path, {"versions": told, "interpreter": WORKS, "measuring": timing_answer()}, gpu=True)
    assert "NVIDIA H200 number 3" in found["gpu 0"].detail
    assert found["gpu 1"].state == "note" and "NVML does not know it" in found["gpu 1"].detail
    assert [name for name in found if name.startswith("gpu")] == ["gpu 0", "gpu 1"]
    told["device_ids"] = [""]  # an older torch does not say
    found = findings(monkeypatch, tmp_path, {"versions": told, "interpreter": WORKS, "measuring": timing_answer()}, gpu=True)
    assert "NVIDIA H200, SM" in found["gpu 0"].detail


@pytest.mark.parametrize(
    ("answers", "gpu", "name", "said"),
    [
        ({"versions": "ModuleNotFoundError: No module named 'torch'"}, False, "torch and triton", "./bootstrap"),
        ({"versions": versions(triton="3.5.1"), "interpreter": WORKS}, False, "torch and triton", "3.6 to 3.9"),
        ({"versions": versions(triton="3.10.0"), "interpreter": WORKS}, False, "torch and triton", "3.6 to 3.9"),
        ({"versions": versions(), "interpreter": "TypeError: only 0-d arrays"}, False, "interpreter", "numpy"),
        ({"versions": versions(), "interpreter": {"correct": False}}, False, "interpreter", "compatibility"),
        ({"versions": versions(), "interpreter": WORKS}, True, "cuda", "CUDA build"),
    ],
)
def test_what_keeps_it_from_tuning_fails_with_the_next_step(
    answers: dict[str, dict[str, object] | str], gpu: bool, name: str, said: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    found = findings(monkeypatch, tmp_path, answers, gpu)
    assert found[name].state == "fail" and said in found[name].advice
    assert exit_code(list(found.values())) is ExitCode.FAILED


def test_a_full_disk_fails(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(doctor.shutil, "disk_usage", lambda folder: types.SimpleNamespace(free=2**20))
    found = findings(monkeypatch, tmp_path, {"versions": versions(), "interpreter": WORKS}, gpu=False)
    assert found["log folder"].state == "fail" and "free some space" in found["log folder"].advice


def test_a_probe_that_dies_says_its_last_line(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(doctor._ProbeFailed, match="KeyError: 'nonsense'"):
        doctor._probe("nonsense", {})


def timing_answer(*, spread: float = 0.005, events: float = 100.0, throttle: tuple[str, ...] = ("sw_power_cap",)) -> dict[str, object]:
    graph = [100.0 * (1 + (spread if number % 2 else -spread)) for number in range(60)]
    anchors = {"compute": {"graph_us": graph, "events_us": [events] * 6, "nominal_us": 95.0}}
    return {"name": "NVIDIA H200", "anchors": anchors, "state": {"sm_mhz": 1650, "power_w": 690.0, "temperature_c": 60, "throttle": list(throttle)}}


@pytest.mark.parametrize(
    ("answer", "name", "state", "said"),
    [
        (timing_answer(), "compute anchor", "ok", "100.0 µs"),
        (timing_answer(spread=0.06), "compute anchor", "note", "something else uses this GPU"),
        (timing_answer(events=112.0), "compute anchor", "note", "disagree"),
        (timing_answer(), "clocks under load", "ok", "held down by sw_power_cap"),
        (timing_answer(throttle=("hw_thermal_slowdown",)), "clocks under load", "note", "hw_thermal_slowdown"),
    ],
)
def test_times_are_judged(answer: dict[str, object], name: str, state: str, said: str) -> None:
    finding = {found.name: found for found in doctor.judge_timing(answer)}[name]
    assert finding.state == state and said in f"{finding.detail} {finding.advice}"


def test_a_gpu_is_measured_unless_another_session_is_at_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from tilewright.device_lock import DeviceLock

    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    answers = {"versions": {**versions(cuda="13.0", devices=1), "device_ids": ["d"]}, "interpreter": WORKS, "measuring": timing_answer()}
    found = findings(monkeypatch, tmp_path, answers, gpu=True)
    assert found["compute anchor"].state == "ok" and "timing" not in found
    other = DeviceLock("d")
    other.acquire(lambda _: None)
    try:
        assert "held by another session" in findings(monkeypatch, tmp_path, answers, gpu=True)["timing"].detail
    finally:
        other.release()
    answers["measuring"] = "no kernel image is available"
    assert findings(monkeypatch, tmp_path, answers, gpu=True)["timing"].state == "fail"
