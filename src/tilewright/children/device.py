"""What a child's device is: a Target and a driver, read through torch and NVML without creating a context."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

import torch
import triton

from tilewright.target import NAMED_TARGETS, Target, Toolchain

INTERPRETER: Final = "interpreter"


def describe(device: str) -> dict[str, Any]:
    """The ready frame's account of a device.

    Args:
        device: torch's name of it, or `interpreter`.

    Returns:
        `toolchain` always; `target` and `device_id` where there is such a GPU; else `absent`, why there is none.
    """
    if device == INTERPRETER:
        return {"toolchain": _toolchain("")}
    absent = _absence(device)
    if absent:
        return {"toolchain": _toolchain(""), "absent": absent}
    properties = torch.cuda.get_device_properties(torch.device(device))
    nvml = _nvml(properties)
    target = _target(properties, nvml)
    identity = str(getattr(properties, "uuid", "")) or f"{target.backend}-{torch.device(device).index or 0}"
    return {"toolchain": _toolchain(str(nvml.get("driver", ""))), "target": target.to_json(), "device_id": identity}


def _toolchain(driver: str) -> dict[str, str]:
    known = Toolchain(triton=triton.__version__, torch=torch.__version__, driver=driver)
    return {"triton": known.triton, "ptxas": known.ptxas, "torch": known.torch, "driver": known.driver}


def has_gpu_build() -> bool:
    """Whether this torch could use a GPU at all."""
    return torch.version.cuda is not None or torch.version.hip is not None


def _absence(device: str) -> str:
    if not has_gpu_build():
        return f"torch {torch.__version__} is built for the CPU alone; install a build of torch for your GPU"
    if not torch.cuda.is_available():
        return f"torch {torch.__version__} finds no driver or no GPU (nvidia-smi shows what the driver sees; CUDA_VISIBLE_DEVICES may hide it)"
    count = torch.cuda.device_count()
    index = torch.device(device).index or 0
    return f"torch sees {count} GPU(s), numbered from 0" if index >= count else ""


def _target(properties: Any, nvml: Mapping[str, Any]) -> Target:
    """What torch says, then what NVML adds; published figures of the arch fill what neither tells."""
    hip = torch.version.hip is not None
    arch = str(properties.gcnArchName).split(":")[0] if hip else f"sm_{properties.major}{properties.minor}"
    published = NAMED_TARGETS.get(arch)
    sm_count = int(properties.multi_processor_count)
    per_block = int(properties.shared_memory_per_block)
    scale = sm_count / published.sm_count if published else 0.0
    mig = re.search(r"\bMIG (\S+)", properties.name)
    return Target(
        backend="hip" if hip else "cuda",
        arch=arch,
        name=str(properties.name),
        sm_count=sm_count,
        warp_size=int(getattr(properties, "warp_size", 64 if hip else 32)),
        # torch without the opt-in figure knows only the 48 KB that a kernel gets unasked.
        shared_memory_bytes=int(getattr(properties, "shared_memory_per_block_optin", 0)) or (published.shared_memory_bytes if published else per_block),
        shared_memory_per_sm_bytes=int(getattr(properties, "shared_memory_per_multiprocessor", 0)) or per_block,
        registers_per_sm=int(getattr(properties, "regs_per_multiprocessor", 0)) or (published.registers_per_sm if published else 65536),
        max_threads_per_sm=int(properties.max_threads_per_multi_processor),
        l2_bytes=int(properties.L2_cache_size),
        memory_bytes=int(properties.total_memory),
        bandwidth_gb_s=float(nvml.get("bandwidth_gb_s", 0.0)) or (published.bandwidth_gb_s * min(1.0, scale) if published else 0.0),
        # Dense rates go with the number of multiprocessors; clocks differ by a few percent between parts of one arch.
        tflops={dtype: round(rate * scale, 1) for dtype, rate in published.tflops.items()} if published else {},
        pci_id=str(nvml.get("pci_id", "")),
        power_limit_w=int(nvml.get("power_limit_w", 0)),
        mig_profile=mig.group(1) if mig else "",
    )


def _nvml(properties: Any) -> dict[str, Any]:
    """What NVML says of the device that torch describes; nothing where there is no NVML, and no field that it refuses."""
    try:
        import pynvml
    except ImportError:
        return {}
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return {}
    try:
        facts: dict[str, Any] = {"driver": _text(pynvml.nvmlSystemGetDriverVersion())}
        handle = nvml_handle(pynvml, properties)
        if handle is None:
            return facts

        def ask(name: str, *arguments: Any) -> Any:
            try:
                return getattr(pynvml, name)(handle, *arguments)
            except (pynvml.NVMLError, AttributeError):
                return None

        pci = ask("nvmlDeviceGetPciInfo")
        if pci is not None:
            facts["pci_id"] = f"0x{int(pci.pciDeviceId) >> 16:04x}"
        limit_mw = ask("nvmlDeviceGetEnforcedPowerLimit")
        if limit_mw:
            facts["power_limit_w"] = round(limit_mw / 1000)
        memory_mhz, bus_bits = ask("nvmlDeviceGetMaxClockInfo", pynvml.NVML_CLOCK_MEM), ask("nvmlDeviceGetMemoryBusWidth")
        if memory_mhz and bus_bits:
            facts["bandwidth_gb_s"] = round(2 * memory_mhz * bus_bits / 8 / 1000, 1)  # double data rate
        return facts
    finally:
        pynvml.nvmlShutdown()


def nvml_handle(pynvml: Any, properties: Any) -> Any:
    """NVML's handle of torch's device: numbers do not agree between the two, UUIDs and bus ids do."""
    uuid = str(getattr(properties, "uuid", ""))
    bus = (getattr(properties, "pci_domain_id", None), getattr(properties, "pci_bus_id", None), getattr(properties, "pci_device_id", None))
    attempts = []
    if uuid:
        attempts += [("nvmlDeviceGetHandleByUUID", f"{prefix}-{uuid}") for prefix in ("GPU", "MIG")]
    if None not in bus:
        attempts.append(("nvmlDeviceGetHandleByPciBusId", f"{bus[0]:08x}:{bus[1]:02x}:{bus[2]:02x}.0"))
    for name, value in attempts:
        try:
            return getattr(pynvml, name)(value.encode())
        except (pynvml.NVMLError, AttributeError):
            continue
    return None


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)
