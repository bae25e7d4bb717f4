"""Where candidates are built and measured: a GPU, Triton's interpreter, or a recording that stands in for a GPU."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType

from tilewright.builder import Builder, CompileBuilder
from tilewright.carrying import carries
from tilewright.errors import NoDevice, UsageError
from tilewright.library import Operator, find_operator
from tilewright.log import TuningLog
from tilewright.neighbours import Neighbours
from tilewright.operator import OperatorSpec
from tilewright.record import Config
from tilewright.recorded import Recording
from tilewright.runner import DeviceRunner, InterpreterRunner, Runner, refuse_on_interpreter
from tilewright.space import SearchSpace
from tilewright.target import DEFAULT_TARGET, Target, Toolchain, named_target
from tilewright.template import Source
from tilewright.workload import Workload, parse_key


@dataclass(kw_only=True)
class Device:
    """A builder and a runner that belong together, and what they know of the operator.

    Attributes:
        name: what is said to the user.
        label: the folder name of its logs.
        operator: the operator's name.
        builder, runner: seams to the children.
        target: what records are keyed by.
        compile_target: what spaces and sources are made for; differs from `target` under the interpreter.
        lookahead: candidates in flight to the builder. 1 where results are instant, so that a seed reproduces.
        width: builds a measurement, at most, for searchers that choose among what is built.
        spec: the operator's spec, where its folder is at hand.
        folder: the operator's folder, or that of the recording.
        template_hashes: current hash of each of the operator's templates, for telling stale records.
        make_workload: reads workload parameters.
        make_space: the space of a workload.
        make_source: renders a config.
        neighbours: finds ragged workloads that a source serves too, for checks; None where nothing runs.
    """

    name: str
    label: str
    operator: str
    builder: Builder
    runner: Runner
    target: Target
    compile_target: Target
    lookahead: int
    width: int
    spec: OperatorSpec | None
    folder: Path
    template_hashes: frozenset[str]
    make_workload: Callable[[str], Workload]
    make_space: Callable[[Workload], SearchSpace]
    make_source: Callable[[Workload, Config], Source]
    neighbours: Neighbours | None = None
    _stack: ExitStack = field(default_factory=ExitStack)

    @property
    def toolchain(self) -> Toolchain:
        """What turned sources into measured binaries: the runner's versions, and the builder's where only it has them."""
        built, ran = self.builder.toolchain, self.runner.toolchain
        return Toolchain(triton=ran.triton or built.triton, ptxas=ran.ptxas or built.ptxas, torch=ran.torch or built.torch, driver=ran.driver)

    def __enter__(self) -> Device:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._stack.close()


def open_device(device: str, operator: str, *, target: str | None, templates: Sequence[Path], jobs: int | None) -> Device:
    """Open what `--device` names.

    Args:
        device: `auto`, `cuda:N`, `interpreter` or `recorded:FILE`.
        operator: the operator's name.
        target: named target to compile for, where no GPU says its own.
        templates: folders of operators.
        jobs: builder children; by default all cores but one.

    Raises:
        NoDevice: a GPU was named and is not here.
        UsageError: the device's name, the target or the operator is unknown.
    """
    kind, _, rest = device.partition(":")
    if kind == "recorded":
        if not rest:
            raise UsageError("--device recorded:FILE needs the path of a recorded log")
        return _open_recorded(Path(rest), operator, templates)
    if not re.fullmatch(r"auto|interpreter|cuda(:\d+)?", device):
        raise UsageError(f"unknown device {device!r}; one of: auto, cuda:N, interpreter, recorded:FILE")
    if kind == "auto":
        device = "cuda:0" if gpu_count() else "interpreter"
    elif kind == "cuda":
        index = int(rest or 0)
        if index >= gpu_count():
            raise NoDevice(
                f"no device {device}: the NVIDIA driver here shows {gpu_count()} GPU(s); "
                "use --device interpreter to run in Triton's interpreter, or --device recorded:FILE for a recording"
            )
        device = f"cuda:{index}"
    return _open_children(device, find_operator(operator, templates), target, jobs)


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


def _open_children(device: str, operator: Operator, target: str | None, jobs: int | None) -> Device:
    jobs = jobs or max(1, (os.cpu_count() or 2) - 1)
    stack = ExitStack()
    try:
        builder = CompileBuilder(jobs)
        stack.callback(builder.close)
        runner: Runner
        if device == "interpreter":
            compile_target = named_target(target or DEFAULT_TARGET)
            runner = InterpreterRunner(compile_target)
        else:
            if target is not None:
                raise UsageError(f"--target {target}: {device} is its own target; --target is for work without a GPU")
            builder.start()  # its children import torch while the runner opens the device
            runner = DeviceRunner(device)
            compile_target = runner.target
        stack.callback(runner.close)
    except BaseException:
        stack.close()
        raise

    def make_workload(parameters: str) -> Workload:
        workload = operator.workload(parameters)
        if device == "interpreter":
            refuse_on_interpreter(workload)
        return workload

    return Device(
        name=f"{device} ({runner.target.name})" if device != "interpreter" else runner.target.name,
        label=f"interpreter-{compile_target.arch}" if device == "interpreter" else _label(runner.target),
        operator=operator.name,
        builder=builder,
        runner=runner,
        target=runner.target,
        compile_target=compile_target,
        # Results are told in the order asked, so a slow build holds up those behind it: with one candidate for each builder, 5 of 15
        # were at work on average (matmul, 226 trials in 24 s, H200 machine with 16 cores, 2026-11).
        lookahead=2 * jobs,
        # Compiling is the bottleneck: 15 builders give some 30 candidates a second, and the device measures 50 (H200, 2026-11).
        width=2,
        spec=operator.spec,
        folder=operator.folder,
        template_hashes=frozenset(template.hash for template in operator.templates.values()),
        make_workload=make_workload,
        make_space=lambda workload: operator.space(workload, compile_target),
        make_source=lambda workload, config: operator.render(workload, compile_target, config),
        neighbours=Neighbours(lambda workload, config, source: carries(operator.templates[source.schedule], workload, compile_target, config, source.hash)),
        _stack=stack,
    )


def _open_recorded(path: Path, operator: str, templates: Sequence[Path]) -> Device:
    recording = Recording.read(TuningLog(path))
    if recording.operator != operator:
        raise UsageError(f"{path} records operator {recording.operator!r}, not {operator!r}")
    try:
        spec: OperatorSpec | None = find_operator(operator, templates).spec
    except UsageError:
        # A recording needs no template; without the spec there are only times, no rates.
        spec = None

    def make_workload(parameters: str) -> Workload:
        return recording.workload(parse_key(f"{operator}:{parameters}"))

    runner = recording.runner()
    return Device(
        name=f"recorded:{path.name} ({runner.target.name})",
        label=f"recorded-{_label(runner.target)}",
        operator=operator,
        builder=recording.builder(),
        runner=runner,
        target=runner.target,
        compile_target=runner.target,
        lookahead=1,
        # Builds are free in a recording; the search benchmark's bars allow so many a measurement.
        width=8,
        spec=spec,
        folder=path.parent,
        template_hashes=frozenset({""}),
        make_workload=make_workload,
        make_space=recording.space,
        make_source=recording.source,
    )


def _label(target: Target) -> str:
    """A target's marketing name as a folder's: `nvidia-h200`."""
    return re.sub(r"[^a-z0-9]+", "-", target.name.lower()).strip("-")
