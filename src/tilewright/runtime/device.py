"""The device runtime that calls go through, and what a device is: the identity that records are matched by."""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import torch

_RELAXED: Final = 2  # CU_STREAM_CAPTURE_MODE_RELAXED


@dataclass(frozen=True, slots=True, kw_only=True)
class Runtime:
    """What a dispatcher asks of torch's device API. Devices are numbered as by `Tensor.get_device`: -1 is the CPU.

    Attributes:
        stream: raw handle of a device's current stream.
        current: number of the current device.
        count: number of devices; calls need not look at the current one where there is one alone.
        capturing: whether the current stream is being captured into a graph.
        using: makes a device the current one.
        bytes: a block of so many bytes on torch's device.
        identity: of a device, by its number.
        standin: whether tensors on the CPU stand in for those of a device.
    """

    stream: Callable[[int], int]
    current: Callable[[], int]
    count: Callable[[], int]
    capturing: Callable[[], bool]
    using: Callable[[int], AbstractContextManager[Any]]
    bytes: Callable[[int, Any], Any]
    identity: Callable[[int], dict[str, Any]]
    standin: bool = False


def torch_runtime() -> Runtime:
    """The CUDA (or ROCm) runtime of torch; on a build of torch for the CPU, one without devices."""
    absent = not hasattr(torch._C, "_cuda_getCurrentRawStream")
    return Runtime(
        stream=(lambda device: 0) if absent else torch._C._cuda_getCurrentRawStream,
        current=(lambda: -1) if absent else torch._C._cuda_getDevice,
        count=(lambda: 0) if absent else torch.cuda.device_count,
        capturing=(lambda: False) if absent else torch._C._cuda_isCurrentStreamCapturing,
        using=torch.cuda.device,
        bytes=lambda size, device: torch.empty(size, dtype=torch.uint8, device=device),
        identity=identity,
    )


def interpreted() -> bool:
    """Whether kernels run in Triton's interpreter, on the CPU."""
    return os.environ.get("TRITON_INTERPRET") == "1"


def refuse_bfloat16(spec: Any, tensors: Iterable[Any]) -> None:
    """Where kernels are interpreted, refuse what the interpreter gets wrong without a word; the message names dtypes that the operator takes.

    Raises:
        ValueError: one of the tensors is of bfloat16.
    """
    if interpreted() and any(tensor.dtype is torch.bfloat16 for tensor in tensors):
        others = [word for word in dict.fromkeys(word for allowed in spec.dtypes.values() for word in allowed) if word != "bfloat16"]
        advice = f"use {' or '.join(others)}, or a GPU" if others else "use a GPU: the operator takes no other dtype"
        raise ValueError(f"{spec.name}: Triton's interpreter computes bfloat16 wrongly; {advice}")


def identity(device: int) -> dict[str, Any]:
    """What tells a device from others, under the names that records give it."""
    if device < 0:
        return {"backend": "interpreter"}
    properties = torch.cuda.get_device_properties(device)
    hip = torch.version.hip is not None
    mig = re.search(r"\bMIG (\S+)", properties.name)
    return {
        "backend": "hip" if hip else "cuda",
        "arch": str(properties.gcnArchName).split(":")[0] if hip else f"sm_{properties.major}{properties.minor}",
        "sm_count": int(properties.multi_processor_count),
        "l2_bytes": int(properties.L2_cache_size),
        "shared_memory_bytes": int(getattr(properties, "shared_memory_per_block_optin", 0)) or int(properties.shared_memory_per_block),
        "memory_gib": round(int(properties.total_memory) / 2**30),
        "pci_id": _pci_id(properties),
        "power_limit_w": _power_limit_w(properties),
        "mig_profile": mig.group(1) if mig else "",
        "name": str(properties.name),
    }


def driver_branch() -> str:
    """Leading number of the NVIDIA driver's version, empty where there is none."""
    for path in (Path("/sys/module/nvidia/version"), Path("/proc/driver/nvidia/version")):
        with contextlib.suppress(OSError):
            found = re.search(r"\b(\d{3,})\.\d+", path.read_text())
            if found:
                return found.group(1)
    return ""


def _pci_id(properties: Any) -> str:
    domain, bus, slot = (int(getattr(properties, name, 0)) for name in ("pci_domain_id", "pci_bus_id", "pci_device_id"))
    try:
        return Path(f"/sys/bus/pci/devices/{domain:04x}:{bus:02x}:{slot:02x}.0/device").read_text().strip()
    except OSError:
        return _ask_nvml(properties, _nvml_pci_id)


def _power_limit_w(properties: Any) -> int:
    return int(_ask_nvml(properties, _nvml_power_limit) or 0)


def _nvml_pci_id(nvml: Any, handle: Any) -> str:
    # nvmlPciInfo_t: char[16], three unsigned ints (domain, bus, device), then the combined device and vendor id.
    info = ctypes.create_string_buffer(256)
    if nvml.nvmlDeviceGetPciInfo_v3(handle, info) != 0:
        return ""
    return f"0x{int.from_bytes(info.raw[28:32], 'little') >> 16:04x}"


def _nvml_power_limit(nvml: Any, handle: Any) -> str:
    limit = ctypes.c_uint()
    return str(round(limit.value / 1000)) if nvml.nvmlDeviceGetEnforcedPowerLimit(handle, ctypes.byref(limit)) == 0 else ""


def _ask_nvml(properties: Any, question: Callable[[Any, Any], str]) -> str:
    """What NVML says of torch's device, found by its UUID; empty where there is no NVML."""
    try:
        nvml = ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:
        return ""
    if nvml.nvmlInit_v2() != 0:
        return ""
    try:
        handle = ctypes.c_void_p()
        uuid = str(getattr(properties, "uuid", ""))
        found = any(nvml.nvmlDeviceGetHandleByUUID(f"{kind}-{uuid}".encode(), ctypes.byref(handle)) == 0 for kind in ("GPU", "MIG"))
        return question(nvml, handle) if found else ""
    finally:
        nvml.nvmlShutdown()


@contextlib.contextmanager
def relaxed_capture() -> Iterator[None]:
    """Let this thread load kernels while a stream is captured: the driver forbids it otherwise."""
    try:
        exchange = ctypes.CDLL("libcuda.so.1").cuThreadExchangeStreamCaptureMode
    except (OSError, AttributeError):
        yield
        return
    mode = ctypes.c_int(_RELAXED)
    exchange(ctypes.byref(mode))
    try:
        yield
    finally:
        exchange(ctypes.byref(mode))
