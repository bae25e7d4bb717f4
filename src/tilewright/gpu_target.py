"""A GPU's Target in some tenths of a second: read through the CUDA driver and NVML, without torch and without a context.

    python -m tilewright.gpu_target cuda:0

It runs as a process of its own, since a driver may crash or hang. What it says is only what a session starts building for: the runner
reads the device by itself, and a session whose runner says otherwise starts over with the runner's word.
"""

from __future__ import annotations

import ctypes
import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec

from tilewright.target import NAMED_TARGETS, Target

_TIMEOUT_S: Final = 20.0  # guess: cuInit of a cold driver without persistence mode takes 1-3 s for each GPU

# enum CUdevice_attribute of cuda.h.
_ATTRIBUTES: Final[Mapping[str, int]] = {
    "shared_memory_per_block": 8,
    "warp_size": 10,
    "sm_count": 16,
    "pci_bus": 33,
    "pci_device": 34,
    "l2_bytes": 38,
    "max_threads_per_sm": 39,
    "pci_domain": 50,
    "major": 75,
    "minor": 76,
    "shared_memory_per_sm_bytes": 81,
    "registers_per_sm": 82,
    "shared_memory_bytes": 97,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What the CUDA driver says of a device: `cudaDeviceProp`, as far as a Target needs it.

    Attributes:
        name: marketing name, with the MIG profile where there is one.
        uuid: as NVML writes it, without its prefix.
        memory_bytes: in all.
        attributes: by the names of `_ATTRIBUTES`.
    """

    name: str
    uuid: str
    memory_bytes: int
    attributes: Mapping[str, int]


def gpu_count() -> int:
    """NVIDIA GPUs that the driver shows this process; 0 where there is no driver. Starts no CUDA context."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None and visible.strip() in ("", "-1"):
        return 0
    import pynvml

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return 0
    try:
        return len(visible.split(",")) if visible else int(pynvml.nvmlDeviceGetCount())
    finally:
        pynvml.nvmlShutdown()


def quick_target(device: str) -> Target | None:
    """The target behind `cuda:N`; None where the driver does not say in time."""
    command = [sys.executable, "-P", "-m", "tilewright.gpu_target", device]
    root = str(Path(__file__).resolve().parent.parent)
    given = os.environ.get("PYTHONPATH")
    environment = {**os.environ, "PYTHONPATH": f"{root}{os.pathsep}{given}" if given else root}
    try:
        done = subprocess.run(command, env=environment, stdin=subprocess.DEVNULL, capture_output=True, timeout=_TIMEOUT_S, check=True)
        return msgspec.json.decode(done.stdout.splitlines()[-1], type=Target)
    except (OSError, subprocess.SubprocessError, IndexError, msgspec.MsgspecError):
        return None


def target_of(facts: Facts, nvml: Mapping[str, Any]) -> Target:
    """A Target from what the CUDA driver says and what NVML adds; published figures of the arch fill what neither tells.

    Args:
        facts: the driver's.
        nvml: `bandwidth_gb_s`, `pci_id` and `power_limit_w`, as far as known.
    """
    told = facts.attributes
    arch = f"sm_{told['major']}{told['minor']}"
    published = NAMED_TARGETS.get(arch)
    scale = told["sm_count"] / published.sm_count if published else 0.0
    mig = re.search(r"\bMIG (\S+)", facts.name)
    return Target(
        backend="cuda",
        arch=arch,
        name=facts.name,
        sm_count=told["sm_count"],
        warp_size=told["warp_size"],
        shared_memory_bytes=told["shared_memory_bytes"],
        shared_memory_per_sm_bytes=told["shared_memory_per_sm_bytes"],
        registers_per_sm=told["registers_per_sm"],
        max_threads_per_sm=told["max_threads_per_sm"],
        l2_bytes=told["l2_bytes"],
        memory_bytes=facts.memory_bytes,
        bandwidth_gb_s=float(nvml.get("bandwidth_gb_s", 0.0)) or (published.bandwidth_gb_s * min(1.0, scale) if published else 0.0),
        tflops={dtype: round(rate * scale, 1) for dtype, rate in published.tflops.items()} if published else {},
        pci_id=str(nvml.get("pci_id", "")),
        power_limit_w=int(nvml.get("power_limit_w", 0)),
        mig_profile=mig.group(1) if mig else "",
    )


def driver_facts(index: int, cuda: Any = None) -> Facts:
    """What the CUDA driver says of the device of that number among those it shows; creates no context.

    Raises:
        OSError: there is no driver, or no such device.
    """
    cuda = cuda or ctypes.CDLL("libcuda.so.1")

    def call(name: str, *arguments: Any) -> None:
        code = getattr(cuda, name)(*arguments)
        if code:
            raise OSError(f"{name} gave error {code}")

    call("cuInit", 0)
    device = ctypes.c_int()
    call("cuDeviceGet", ctypes.byref(device), index)
    name = ctypes.create_string_buffer(256)
    call("cuDeviceGetName", name, len(name), device)
    uuid = ctypes.create_string_buffer(16)
    call("cuDeviceGetUuid_v2", uuid, device)  # of a MIG instance, its own
    memory = ctypes.c_size_t()
    call("cuDeviceTotalMem_v2", ctypes.byref(memory), device)
    found = {}
    for attribute, code in _ATTRIBUTES.items():
        value = ctypes.c_int()
        call("cuDeviceGetAttribute", ctypes.byref(value), code, device)
        found[attribute] = value.value
    digits = uuid.raw.hex()
    return Facts(
        name=name.value.decode(errors="replace"),
        uuid="-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:])),
        memory_bytes=memory.value,
        attributes=found,
    )


def nvml_facts(facts: Facts) -> dict[str, Any]:
    """What NVML says of a device; nothing where there is no NVML, and no field that it refuses."""
    import pynvml

    def asked(name: str, *arguments: Any) -> Any:
        try:
            return getattr(pynvml, name)(*arguments)
        except (pynvml.NVMLError, AttributeError):
            return None

    found: dict[str, Any] = {}
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return found
    try:
        told = facts.attributes
        bus = f"{told['pci_domain']:08x}:{told['pci_bus']:02x}:{told['pci_device']:02x}.0"
        handle = handle_of(pynvml, facts.uuid) or asked("nvmlDeviceGetHandleByPciBusId", bus.encode())
        if handle is None:
            return found
        pci = asked("nvmlDeviceGetPciInfo", handle)
        if pci is not None:
            found["pci_id"] = f"0x{int(pci.pciDeviceId) >> 16:04x}"
        limit_mw = asked("nvmlDeviceGetEnforcedPowerLimit", handle)
        if limit_mw:
            found["power_limit_w"] = round(limit_mw / 1000)
        memory_mhz, bus_bits = asked("nvmlDeviceGetMaxClockInfo", handle, pynvml.NVML_CLOCK_MEM), asked("nvmlDeviceGetMemoryBusWidth", handle)
        if memory_mhz and bus_bits:
            found["bandwidth_gb_s"] = round(2 * memory_mhz * bus_bits / 8 / 1000, 1)  # double data rate
        return found
    finally:
        pynvml.nvmlShutdown()


def handle_of(nvml: Any, uuid: str) -> Any:
    """NVML's handle of a GPU or a MIG instance by its UUID, None where it knows none: numbers of devices do not agree between CUDA and NVML.

    Args:
        nvml: the module pynvml.
        uuid: as CUDA and torch write it, without NVML's prefix.
    """
    for prefix in ("GPU", "MIG"):
        try:
            return nvml.nvmlDeviceGetHandleByUUID(f"{prefix}-{uuid}".encode())
        except (nvml.NVMLError, AttributeError):
            continue
    return None


def main() -> int:
    """Print the target of the device named as the first argument, as JSON."""
    facts = driver_facts(int(sys.argv[1].partition(":")[2] or 0))
    print(json.dumps(target_of(facts, nvml_facts(facts)).to_json()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
