"""What all tests share: golden files, tests that need a GPU skipped where there is none, and a tiny operator to run."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from tilewright.canonical import sha256_text
from tilewright.record import Status
from tilewright.runner import InterpreterRunner, Job, MeasureJob
from tilewright.target import named_target
from tilewright.template import Source
from tilewright.workload import Workload


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="write golden files instead of comparing with them")


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[Path, str], None]:
    """Compare a text with a golden file, or with --update-golden write it."""

    def compare(path: Path, text: str) -> None:
        if request.config.getoption("--update-golden"):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        assert path.exists(), f"{path} is missing; if the change is meant, run pytest --update-golden and review the difference"
        assert text == path.read_text(encoding="utf-8"), f"{path.name} differs; if the change is meant, run pytest --update-golden"

    return compare


@pytest.fixture
def is_running() -> Callable[..., bool]:
    """Whether a process with this command runs, by `/proc`."""

    def look(*command: str) -> bool:
        def is_it(path: Path) -> bool:
            try:
                return path.read_bytes() == b"".join(word.encode() + b"\0" for word in command)
            except OSError:  # it has ended
                return False

        return any(map(is_it, Path("/proc").glob("[0-9]*/cmdline")))

    return look


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip `gpu` tests without a GPU; `nvidia-smi` is asked only if there are any."""
    needing = [item for item in items if item.get_closest_marker("gpu")]
    if needing and not _gpu_here():
        for item in needing:
            item.add_marker(pytest.mark.skip(reason="no NVIDIA GPU here"))


def _gpu_here() -> bool:
    try:
        listed = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, timeout=60, check=False)
    except OSError:
        return False
    return listed.returncode == 0 and "GPU" in listed.stdout


SPEC = """
from tilewright.operator import OperatorSpec, TensorSpec, Tolerance

def _vector(w):
    return TensorSpec(shape=(w["N"],), dtype=w["dtype"])

SPEC = OperatorSpec(
    name="vector_add", summary="c = a + b", dims=("N",), dtypes={"dtype": ("float32", "float16", "bfloat16", "int32")}, arguments=("a", "b"),
    inputs=lambda w: {"a": _vector(w), "b": _vector(w)},
    outputs=lambda w: {"c": TensorSpec(shape=(w["N"],), dtype=w["dtype"], strides=(w["step"],) if "step" in w.dims else None)},
    flops=lambda w: w["N"], bytes_moved=lambda w: 3 * _vector(w).nbytes,
    tolerance=lambda w: Tolerance(rel_norm=1e-3, max_error=1e-2, reason="one rounding of a 16-bit sum"),
    infer=lambda args: {"N": args["a"].shape[0], "dtype": args["a"].dtype}, mutates=MUTATES,
)
"""

REFERENCE = """
import torch

def make_inputs(workload, specs, generator, device):
    made = {}
    for name, spec in specs.items():
        values = torch.randn(spec.shape, generator=generator, device=device) * 100
        made[name] = values.to(getattr(torch, spec.dtype))
    return made

def reference(workload, inputs):
    wide = torch.int64 if inputs["a"].dtype == torch.int32 else torch.float64
    return {"c": inputs["a"].to(wide) + inputs["b"].to(wide)}

VENDORS = {
    "torch.add": lambda workload, inputs: torch.add(inputs["a"], inputs["b"]),
    "wrong": lambda workload, inputs: torch.sub(inputs["a"], inputs["b"]),
}
"""

SCHEDULE = """
import triton
import triton.language as tl

@triton.jit
def add_kernel(a, b, c, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    total = tl.load(a + offsets, mask=mask) + tl.load(b + offsets, mask=mask)
    tl.store(c + offsets, total, mask=mask)

def launch(a, b, c):
    n = c.numel()
    add_kernel[(triton.cdiv(n, 1024),)](a, b, c, n, BLOCK=1024)
"""


@dataclass(frozen=True, slots=True)
class CandidateFault:
    """A change that spoils the right schedule, the status it must end in, and what must be said."""

    old: str
    new: str
    status: Status
    said: str


LAUNCH = "    n = c.numel()\n"
FAULTS = {
    "nan_output": CandidateFault("total, mask=mask", "total * float('nan'), mask=mask", Status.WRONG_RESULT, "3,000 of 3,000 elements are NaN"),
    "half_unwritten": CandidateFault("[(triton.cdiv(n, 1024),)]", "[(2,)]", Status.WRONG_RESULT, r"952 of 3,000 elements were never written.*\[2048\]"),
    "nothing_launched": CandidateFault(
        "add_kernel[(triton.cdiv(n, 1024),)]", "if False: add_kernel[(1,)]", Status.WRONG_RESULT, "3,000 of 3,000 elements were never"
    ),
    "slightly_wrong": CandidateFault("total, mask=mask", "total + 1, mask=mask", Status.WRONG_RESULT, r"allowed 0.001.*worst at"),
    "wrong_in_one_place": CandidateFault("total, mask=mask", "tl.where(offsets == 2999, 0, total), mask=mask", Status.WRONG_RESULT, r"worst at \[2999\]"),
    "past_the_end": CandidateFault(
        "mask = offsets < n", "mask = offsets < n + 8", Status.OUT_OF_BOUNDS, "output 'c'.*\\d\\d bytes past its end, the first \\d bytes after"
    ),
    "before_the_start": CandidateFault(
        "tl.store(c + offsets, total",
        "tl.store(c - 4 + offsets, total, mask=offsets < 4)\n    tl.store(c + offsets, total",
        Status.OUT_OF_BOUNDS,
        "1\\d bytes before",
    ),
    "input_changed": CandidateFault("    tl.store(c", "    tl.store(a + offsets, total, mask=mask)\n    tl.store(c", Status.WRONG_RESULT, "changed input 'a'"),
    "raises": CandidateFault(LAUNCH, "    raise ValueError('no such thing')\n", Status.LAUNCH_ERROR, "ValueError: no such thing \\(line 13: raise ValueError"),
    "exits": CandidateFault(LAUNCH, "    raise SystemExit(0)\n", Status.LAUNCH_ERROR, "SystemExit"),
    "interrupts": CandidateFault(LAUNCH, "    raise KeyboardInterrupt\n", Status.LAUNCH_ERROR, "KeyboardInterrupt"),
    "raises_what_has_no_text": CandidateFault(
        LAUNCH, "    raise type('Odd', (Exception,), {'__str__': lambda self: 1 / 0})\n", Status.LAUNCH_ERROR, "Odd: its text raises ZeroDivisionError"
    ),
    "kernel_raises": CandidateFault("total = tl.load(a + offsets", "total = tl.load(nothing + offsets", Status.LAUNCH_ERROR, r"total = tl\.load\(nothing"),
    "does_not_import": CandidateFault("import triton\n", "import trifon\n", Status.LAUNCH_ERROR, "importing the rendered module.*trifon"),
    "no_launch": CandidateFault("def launch(", "def lunch(", Status.LAUNCH_ERROR, "no attribute 'launch'"),
    "out_of_memory": CandidateFault(LAUNCH, "    raise MemoryError('8 EiB')\n", Status.OUT_OF_RESOURCES, "8 EiB"),
    "context_broken": CandidateFault(
        LAUNCH, "    raise RuntimeError('CUDA error: an illegal memory access was encountered')\n", Status.CRASH, "illegal memory access"
    ),
    "process_ends": CandidateFault(
        LAUNCH, "    import os, sys; print('last words', file=sys.stderr, flush=True); os._exit(3)\n", Status.CRASH, "exit code 3(?s:.*)last words"
    ),
    "killed": CandidateFault(LAUNCH, "    import os, signal; os.kill(os.getpid(), signal.SIGSEGV)\n", Status.CRASH, "SIGSEGV"),
    "never_ends": CandidateFault(LAUNCH, "    while True: pass\n", Status.RUN_TIMEOUT, "within \\d+ s"),
}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Tests that ask for a `candidate_fault` hold for each of them, on the interpreter and on a GPU."""
    if "candidate_fault" in metafunc.fixturenames:
        metafunc.parametrize("candidate_fault", FAULTS.values(), ids=FAULTS)


@dataclass(frozen=True, slots=True, kw_only=True)
class VectorAdd:
    """A tiny operator in a folder of its own, and a right schedule of it to spoil."""

    folder: Path
    schedule: str = SCHEDULE

    def workload(self, n: int = 1000, dtype: str = "float32", **dims: int) -> Workload:
        """`n` elements; `step=2` leaves gaps between the output's."""
        return Workload(operator="vector_add", dims={"N": n, **dims}, dtypes={"dtype": dtype})

    def job(self, text: str = SCHEDULE, workload: Workload | None = None, **options: object) -> MeasureJob:
        """A job that measures a module's text."""
        source = Source(text=text, hash=sha256_text(text), schedule="plain", template_hash="")
        return MeasureJob(operator="vector_add", folder=self.folder, source=source, workload=workload or self.workload(), **options)

    def changed(self, old: str, new: str, workload: Workload | None = None, **options: object) -> MeasureJob:
        """A job that measures the right schedule with one change."""
        assert old in self.schedule
        return self.job(self.schedule.replace(old, new), workload, **options)

    def vendor_job(self, workload: Workload | None = None) -> Job:
        """A job that measures the vendors' kernels."""
        return Job(operator="vector_add", folder=self.folder, workload=workload or self.workload())

    def with_files(self, folder: Path, *, spec: str = SPEC, reference: str = REFERENCE, mutates: tuple[str, ...] = ()) -> VectorAdd:
        """The same operator in another folder, with other files."""
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "spec.py").write_text(spec.replace("MUTATES", repr(mutates)))
        (folder / "reference.py").write_text(reference)
        return VectorAdd(folder=folder)


@pytest.fixture(scope="session")
def vector_add(tmp_path_factory: pytest.TempPathFactory) -> VectorAdd:
    """The operator, in a folder that lasts for the session."""
    folder = tmp_path_factory.mktemp("operators") / "vector_add"
    return VectorAdd(folder=folder).with_files(folder)


@pytest.fixture(scope="session")
def interpreter_runner(tmp_path_factory: pytest.TempPathFactory):
    """One runner for all tests of a process: its child takes seconds to start."""
    with InterpreterRunner(named_target("sm_90"), cache_dir=tmp_path_factory.mktemp("cache"), timeout_s=6.0) as runner:
        yield runner
