"""A target: identity and limits of a device, read from it or published, and the toolchain that compiles for it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Final

from tilewright.canonical import canonical_json
from tilewright.errors import UsageError, nearest


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A device as code generation and ranking see it. Templates read these attributes as `target.<name>`.

    Attributes:
        backend: `cuda`, `hip`, or `interpreter` (Triton's, on the CPU).
        arch: `sm_90`, `gfx942`; under the interpreter, the arch that candidates are compiled for besides.
        name: marketing name; a label, never a key.
        sm_count: multiprocessors (compute units).
        warp_size: threads of a warp (wavefront).
        shared_memory_bytes: most shared memory one block may ask for (opt-in limit).
        shared_memory_per_sm_bytes: shared memory of one multiprocessor.
        registers_per_sm: 32-bit registers of one multiprocessor.
        max_threads_per_sm: threads resident on one multiprocessor.
        l2_bytes: second-level cache.
        memory_bytes: device memory.
        bandwidth_gb_s: device memory bandwidth, 1e9 bytes per second.
        tflops: dense peak rate by dtype (torch names), 1e12 operations per second.
        pci_id: PCI device id (`0x2335`), empty where unknown.
        power_limit_w: enforced power limit, 0 where unknown.
        mig_profile: MIG profile (`1g.18gb`), empty for a whole device.
    """

    backend: str
    arch: str
    name: str
    sm_count: int
    warp_size: int
    shared_memory_bytes: int
    shared_memory_per_sm_bytes: int
    registers_per_sm: int
    max_threads_per_sm: int
    l2_bytes: int
    memory_bytes: int
    bandwidth_gb_s: float
    tflops: Mapping[str, float] = field(default_factory=dict)
    pci_id: str = ""
    power_limit_w: int = 0
    mig_profile: str = ""

    @property
    def identity(self) -> dict[str, Any]:
        """What tells two targets apart: a result on one says nothing exact of the other."""
        return {
            "backend": self.backend,
            "arch": self.arch,
            "sm_count": self.sm_count,
            "l2_bytes": self.l2_bytes,
            "shared_memory_bytes": self.shared_memory_bytes,
            "memory_gib": round(self.memory_bytes / 2**30),
            "pci_id": self.pci_id,
            "power_limit_w": self.power_limit_w,
            "mig_profile": self.mig_profile,
        }

    @property
    def key(self) -> str:
        """The identity as canonical JSON."""
        return canonical_json(self.identity)

    def __hash__(self) -> int:
        return hash(self.key)

    @property
    def compile_backend(self) -> str:
        """Triton's name of the backend that compiles for `arch`."""
        return "hip" if self.arch.startswith("gfx") else "cuda"

    def interpreted(self) -> Target:
        """This target with kernels run by Triton's interpreter: same limits and arch, times not of a device."""
        return replace(self, backend="interpreter", name=f"Triton interpreter (compiled for {self.arch})", pci_id="", power_limit_w=0, mig_profile="")

    def to_json(self) -> dict[str, Any]:
        """All attributes as plain JSON values."""
        return asdict(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Toolchain:
    """Versions of what turned a source into a measured binary; empty where not known."""

    triton: str = ""
    ptxas: str = ""
    torch: str = ""
    driver: str = ""


_KIB: Final = 1024
_GIB: Final = 2**30

# Published limits, for work without the device. Sources: CUDA C++ Programming Guide, table "Technical Specifications per
# Compute Capability" (shared memory, registers, threads); vendors' data sheets (SM counts, L2, memory, bandwidth, dense peak
# rates). One representative part per arch: A100 80 GB SXM, H200 SXM, B200, RTX 5090, MI300X.
NAMED_TARGETS: Final[Mapping[str, Target]] = {
    "sm_80": Target(
        backend="cuda", arch="sm_80", name="NVIDIA A100-SXM4-80GB (published limits)", sm_count=108, warp_size=32,
        shared_memory_bytes=163 * _KIB, shared_memory_per_sm_bytes=164 * _KIB, registers_per_sm=65536, max_threads_per_sm=2048,
        l2_bytes=40 * 2**20, memory_bytes=80 * _GIB, bandwidth_gb_s=2039.0,
        tflops={"float16": 312.0, "bfloat16": 312.0, "float32": 156.0, "int8": 624.0},
    ),
    "sm_90": Target(
        backend="cuda", arch="sm_90", name="NVIDIA H200 (published limits)", sm_count=132, warp_size=32,
        shared_memory_bytes=227 * _KIB, shared_memory_per_sm_bytes=228 * _KIB, registers_per_sm=65536, max_threads_per_sm=2048,
        l2_bytes=50 * 2**20, memory_bytes=141 * 10**9, bandwidth_gb_s=4800.0,
        tflops={"float16": 989.0, "bfloat16": 989.0, "float32": 494.0, "float8_e4m3fn": 1979.0, "float8_e5m2": 1979.0, "int8": 1979.0},
    ),
    "sm_100": Target(
        backend="cuda", arch="sm_100", name="NVIDIA B200 (published limits)", sm_count=148, warp_size=32,
        shared_memory_bytes=227 * _KIB, shared_memory_per_sm_bytes=228 * _KIB, registers_per_sm=65536, max_threads_per_sm=2048,
        l2_bytes=126 * 2**20, memory_bytes=180 * 10**9, bandwidth_gb_s=8000.0,
        tflops={"float16": 2250.0, "bfloat16": 2250.0, "float32": 1125.0, "float8_e4m3fn": 4500.0, "float8_e5m2": 4500.0, "int8": 4500.0},
    ),
    "sm_120": Target(
        backend="cuda", arch="sm_120", name="NVIDIA GeForce RTX 5090 (published limits)", sm_count=170, warp_size=32,
        shared_memory_bytes=99 * _KIB, shared_memory_per_sm_bytes=100 * _KIB, registers_per_sm=65536, max_threads_per_sm=1536,
        l2_bytes=96 * 2**20, memory_bytes=32 * _GIB, bandwidth_gb_s=1792.0,
        tflops={"float16": 210.0, "bfloat16": 210.0, "float32": 105.0, "float8_e4m3fn": 419.0, "float8_e5m2": 419.0, "int8": 838.0},
    ),
    "gfx942": Target(
        backend="hip", arch="gfx942", name="AMD Instinct MI300X (published limits)", sm_count=304, warp_size=64,
        shared_memory_bytes=64 * _KIB, shared_memory_per_sm_bytes=64 * _KIB, registers_per_sm=131072, max_threads_per_sm=2048,
        l2_bytes=4 * 2**20, memory_bytes=192 * 10**9, bandwidth_gb_s=5300.0,
        tflops={"float16": 1307.0, "bfloat16": 1307.0, "float32": 653.0, "float8_e4m3fn": 2614.0, "float8_e5m2": 2614.0, "int8": 2614.0},
    ),
}  # fmt: skip


# What candidates are compiled for where no GPU is at hand and no target is named.
DEFAULT_TARGET: Final = "sm_90"


def named_target(name: str) -> Target:
    """The target of that name, with its published limits.

    Raises:
        UsageError: no limits are known under that name.
    """
    if name not in NAMED_TARGETS:
        raise UsageError(f"unknown target {name!r}; {nearest(name, NAMED_TARGETS)}")
    return NAMED_TARGETS[name]


def compiled_for(target: Target) -> Target:
    """What a record's source was rendered for: its target, or under the interpreter the one that it stood in for."""
    if target.backend != "interpreter":
        return target
    named = NAMED_TARGETS.get(target.arch)
    return named if named is not None and named.interpreted() == target else replace(target, backend=target.compile_backend)
