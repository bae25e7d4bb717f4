"""What this machine has, and whether it can tune: the findings that `doctor` prints."""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean, median, pstdev
from typing import Any, Final, Literal

from tilewright.device_lock import DeviceLock
from tilewright.errors import ExitCode, HostError
from tilewright.gpu_target import handle_of

# Supported Triton, first and last minor version: docs/compatibility.md.
TRITON_RANGE: Final = ((3, 6), (3, 9))
# Imports of torch and triton took 5 s on a 2-core machine with a cold disk cache, 5.7 s with a CUDA context on an H200 machine (November 2026).
PROBE_TIMEOUT_S: Final = 120.0
# guess: a session's log takes some MB and a search's builds some 100 MB; below this, both are in danger.
LEAST_FREE_BYTES: Final = 2**30

# Anchors by graph replay varied by 1-3% beside 14 busy processes (H200, 2026-11).
MOST_NOISE: Final = 0.03
MOST_APART: Final = 0.05  # guess: of kernels of 30 to 100 µs, twenty to a pair of events

State = Literal["ok", "note", "fail"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that was looked at.

    Attributes:
        state: `fail` where it keeps Tilewright from tuning, `note` where it is only good to know.
        advice: the next step, where there is one.
    """

    name: str
    state: State
    detail: str
    advice: str = ""

    def to_json(self) -> dict[str, str]:
        """Plain JSON values."""
        return asdict(self)


def examine(log_folder: Path) -> Iterator[Finding]:
    """Look at the machine; findings come as they are made.

    Args:
        log_folder: where a log would be written; it need not exist.
    """
    yield _python()
    packages, versions = _packages()
    yield packages
    device_ids = [str(uuid) for uuid in versions.get("device_ids", ())]
    devices = list(_devices(device_ids))
    yield from devices
    if versions:
        yield _interpreter()
        if versions["cuda"] and not versions["cuda_devices"]:
            detail = f"torch was built for CUDA {versions['cuda']} and sees no GPU"
            yield Finding(name="cuda", state="note", detail=detail, advice="tune runs in the interpreter")
        elif not versions["cuda"] and any(device.name.startswith("gpu") for device in devices):
            advice = "install torch's CUDA build (extra: gpu), or remove .venv and run ./bootstrap again"
            yield Finding(name="cuda", state="fail", detail="there is a GPU, and torch is its CPU build", advice=advice)
        if versions["cuda_devices"]:
            yield from _measuring(device_ids[0] if device_ids else "")
    yield _folder("log folder", log_folder)
    cache = Path(os.environ.get("TILEWRIGHT_CACHE") or Path.home() / ".cache" / "tilewright")
    yield _folder("cache folder", cache)


def exit_code(findings: list[Finding]) -> ExitCode:
    """FAILED where something keeps Tilewright from tuning."""
    return ExitCode.FAILED if any(finding.state == "fail" for finding in findings) else ExitCode.OK


def _python() -> Finding:
    return Finding(name="python", state="ok", detail=f"{platform.python_version()} at {sys.executable}, {platform.platform()}, {os.cpu_count()} cores")


def _packages() -> tuple[Finding, Mapping[str, Any]]:
    try:
        versions = _probe("versions", {})
    except _ProbeFailed as failure:
        advice = "install torch and triton (extra: cpu or gpu), or run ./bootstrap"
        return Finding(name="torch and triton", state="fail", detail=str(failure), advice=advice), {}
    detail = f"torch {versions['torch']}, triton {versions['triton']}" + (f", CUDA {versions['cuda']}" if versions["cuda"] else ", CPU build")
    first, last = TRITON_RANGE
    minor = tuple(int(part) for part in versions["triton"].split(".")[:2])
    if not first <= minor <= last:
        advice = f"Tilewright works with Triton {first[0]}.{first[1]} to {last[0]}.{last[1]}: docs/compatibility.md"
        return Finding(name="torch and triton", state="fail", detail=detail, advice=advice), versions
    return Finding(name="torch and triton", state="ok", detail=detail), versions


def _interpreter() -> Finding:
    try:
        correct = _probe("interpreter", {"TRITON_INTERPRET": "1"})["correct"]
    except _ProbeFailed as failure:
        return Finding(name="interpreter", state="fail", detail=str(failure), advice="numpy may be too new for this Triton: docs/compatibility.md")
    if not correct:
        advice = "docs/compatibility.md names the versions that go together"
        return Finding(name="interpreter", state="fail", detail="a tiny kernel gave a wrong result", advice=advice)
    return Finding(name="interpreter", state="ok", detail="a tiny kernel gave the right result")


def _measuring(device_id: str) -> Iterator[Finding]:
    """Whether times of the first GPU can be trusted: measured, unless another session is at it."""
    lock = DeviceLock(device_id or "cuda-0")
    try:
        lock.acquire(lambda _: None, timeout_s=0.0)
    except HostError as error:
        yield Finding(name="timing", state="note", detail=f"not measured: {error}", advice="ask again when that session has ended")
        return
    try:
        answer = _probe("measuring", {})
    except _ProbeFailed as failure:
        yield Finding(name="timing", state="fail", detail=str(failure), advice="a kernel does not run on this GPU: compare torch's CUDA with the driver")
        return
    finally:
        lock.release()
    yield from judge_timing(answer)


def judge_timing(answer: Mapping[str, Any]) -> Iterator[Finding]:
    """Findings from times of the anchors, by graph replay and by events, and the device's state meanwhile."""
    for kind, times in answer["anchors"].items():
        graph, events = median(times["graph_us"]), median(times["events_us"])
        noise = pstdev(times["graph_us"]) / fmean(times["graph_us"])
        apart = abs(graph / events - 1)
        detail = f"{graph:.1f} µs ({graph / times['nominal_us']:.2f} of its nominal time), varies by {100 * noise:.1f}%, events say {events:.1f} µs"
        advice = ""
        if noise > MOST_NOISE:
            advice = "something else uses this GPU, or its clocks wander: times of short searches will not be worth much"
        elif apart > MOST_APART:
            advice = "graph replay and events disagree: the host may be too slow to keep the GPU busy, and what cannot be captured is timed badly"
        yield Finding(name=f"{kind} anchor", state="note" if advice else "ok", detail=detail, advice=advice)
    state = answer.get("state") or {}
    held = [reason for reason in state.get("throttle", []) if reason != "sw_power_cap"]
    detail = f"{state.get('sm_mhz', 'unknown')} MHz, {state.get('power_w', 'unknown')} W, {state.get('temperature_c', 'unknown')} °C"
    # Large kernels meet the power limit on any GPU; anchors correct for that. Heat, and limits that somebody set, are another matter.
    advice = "mend cooling or power, or lift the limit: times will not be those of other machines" if held else ""
    reasons = ", ".join(state.get("throttle", [])) or "nothing"
    yield Finding(name="clocks under load", state="note" if held else "ok", detail=f"{detail}; held down by {reasons}", advice=advice)


class _ProbeFailed(Exception):
    """The probe child did not answer."""


def _probe(question: str, env: Mapping[str, str]) -> dict[str, Any]:
    command = [sys.executable, "-m", "tilewright.children.probe", question]
    try:
        child = subprocess.run(command, capture_output=True, text=True, timeout=PROBE_TIMEOUT_S, env={**os.environ, **env}, check=False)
    except subprocess.TimeoutExpired:
        raise _ProbeFailed(f"no answer in {PROBE_TIMEOUT_S:.0f} s") from None
    if child.returncode != 0:
        said = child.stderr.strip().splitlines()
        raise _ProbeFailed(said[-1] if said else f"the child ended with {child.returncode}")
    answer: dict[str, Any] = json.loads(child.stdout.strip().splitlines()[-1])
    return answer


def _devices(device_ids: Sequence[str]) -> Iterator[Finding]:
    """The GPUs that torch sees, in its numbers; all that NVML sees, in NVML's, where torch sees none or does not say which they are."""
    import pynvml

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        yield Finding(name="device", state="note", detail=f"no NVIDIA GPU ({error})", advice="tune runs in Triton's interpreter, or on a recording")
        return
    try:
        yield Finding(name="driver", state="ok", detail=_asked(pynvml.nvmlSystemGetDriverVersion))
        if device_ids and all(device_ids):
            for index, uuid in enumerate(device_ids):
                yield _device(pynvml, index, handle_of(pynvml, uuid))
        else:
            for index in range(pynvml.nvmlDeviceGetCount()):
                yield _device(pynvml, index, pynvml.nvmlDeviceGetHandleByIndex(index))
    finally:
        pynvml.nvmlShutdown()


def _device(nvml: Any, index: int, handle: Any) -> Finding:
    if handle is None:
        return Finding(name=f"gpu {index}", state="note", detail="NVML does not know it, so its clocks, power and processes cannot be told")

    def clock(kind: int) -> str:
        now, most = _asked(nvml.nvmlDeviceGetClockInfo, handle, kind), _asked(nvml.nvmlDeviceGetMaxClockInfo, handle, kind)
        return f"{now} of {most} MHz"

    def watts(function: Callable[..., Any]) -> str:
        milliwatts = _asked(function, handle)
        return f"{int(milliwatts) / 1000:.0f}" if milliwatts.isdigit() else milliwatts

    processes = _processes(nvml, handle)
    parts = [
        _asked(nvml.nvmlDeviceGetName, handle),
        f"SM clock {clock(nvml.NVML_CLOCK_SM)}",
        f"memory clock {clock(nvml.NVML_CLOCK_MEM)}",
        f"{_asked(nvml.nvmlDeviceGetTemperature, handle, nvml.NVML_TEMPERATURE_GPU)} °C",
        f"power {watts(nvml.nvmlDeviceGetPowerUsage)} of {watts(nvml.nvmlDeviceGetEnforcedPowerLimit)} W",
        f"processes on it: {', '.join(map(str, processes)) or 'none'}",
    ]
    advice = "times of a shared GPU are worth little: end the other processes before tuning" if processes else ""
    return Finding(name=f"gpu {index}", state="note" if processes else "ok", detail=", ".join(parts), advice=advice)


def _processes(nvml: Any, handle: Any) -> list[int]:
    try:
        return [process.pid for process in nvml.nvmlDeviceGetComputeRunningProcesses(handle)]
    except nvml.NVMLError:
        return []  # not every driver mode lists them


def _asked(function: Callable[..., Any], *arguments: Any) -> str:
    """What NVML answers, as text; a device need not support every question."""
    import pynvml

    try:
        answer = function(*arguments)
    except pynvml.NVMLError:
        return "unknown"
    return answer.decode() if isinstance(answer, bytes) else str(answer)


def _folder(name: str, folder: Path) -> Finding:
    """Whether a folder, or the nearest one above that exists, can be written and has room."""
    existing = folder.absolute()
    while not existing.exists():
        existing = existing.parent
    try:
        with tempfile.TemporaryFile(dir=existing):
            pass
    except OSError as error:
        return Finding(name=name, state="fail", detail=f"{folder}: cannot write ({error.strerror})", advice="choose a folder that can be written")
    free = shutil.disk_usage(existing).free
    detail = f"{folder}: {free / 2**30:.1f} GiB free"
    if free < LEAST_FREE_BYTES:
        return Finding(name=name, state="fail", detail=detail, advice=f"free some space: less than {LEAST_FREE_BYTES / 2**30:.0f} GiB is left")
    return Finding(name=name, state="ok", detail=detail)
