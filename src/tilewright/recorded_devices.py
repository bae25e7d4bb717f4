"""Devices that shared recordings name, with the limits that are published of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from tilewright.target import NAMED_TARGETS, Target

_KIB: Final = 1024
_MIB: Final = 2**20
_GIB: Final = 2**30


def _cuda(name: str, arch: str, *, sms: int, shared: int, threads: int, l2: int, memory: int, bandwidth: float, tflops: Mapping[str, float]) -> Target:
    return Target(
        backend="cuda", arch=arch, name=name, sm_count=sms, warp_size=32, shared_memory_bytes=(shared - 1) * _KIB, shared_memory_per_sm_bytes=shared * _KIB,
        registers_per_sm=65536, max_threads_per_sm=threads, l2_bytes=l2, memory_bytes=memory * _GIB, bandwidth_gb_s=bandwidth, tflops=tflops,
    )  # fmt: skip


# CUDA C++ Programming Guide, "Technical Specifications per Compute Capability"; vendors' data sheets and white papers.
RECORDED_DEVICES: Final[Mapping[str, Target]] = {
    "NVIDIA A100-PCIE-40GB": replace(NAMED_TARGETS["sm_80"], name="NVIDIA A100-PCIE-40GB", memory_bytes=40 * _GIB, bandwidth_gb_s=1555.0),
    "NVIDIA GeForce RTX 3090": _cuda(
        "NVIDIA GeForce RTX 3090", "sm_86", sms=82, shared=100, threads=1536, l2=6 * _MIB, memory=24, bandwidth=936.0,
        tflops={"float16": 142.0, "bfloat16": 71.0, "float32": 35.6},
    ),
    "NVIDIA RTX A4000": _cuda(
        "NVIDIA RTX A4000", "sm_86", sms=48, shared=100, threads=1536, l2=4 * _MIB, memory=16, bandwidth=448.0,
        tflops={"float16": 76.7, "bfloat16": 76.7, "float32": 19.2},
    ),
    "NVIDIA RTX A6000": _cuda(
        "NVIDIA RTX A6000", "sm_86", sms=84, shared=100, threads=1536, l2=6 * _MIB, memory=48, bandwidth=768.0,
        tflops={"float16": 154.8, "bfloat16": 154.8, "float32": 38.7},
    ),
}  # fmt: skip


def recorded_device(name: str) -> Target:
    """The device that a recording names; one of unknown limits, all 0, where nothing is known of it.

    A recorded space needs no limits: which of its configs run is on record.
    """
    if name in RECORDED_DEVICES:
        return RECORDED_DEVICES[name]
    backend = "hip" if name.startswith(("AMD", "gfx", "Radeon")) else "cuda"
    return Target(
        backend=backend, arch="unknown", name=name or "unknown device", sm_count=0, warp_size=64 if backend == "hip" else 32, shared_memory_bytes=0,
        shared_memory_per_sm_bytes=0, registers_per_sm=0, max_threads_per_sm=0, l2_bytes=0, memory_bytes=0, bandwidth_gb_s=0.0,
    )  # fmt: skip
