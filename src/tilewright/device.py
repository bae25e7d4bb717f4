"""Where candidates are built and measured: a GPU, Triton's interpreter, or a recording that stands in for a GPU."""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Final

from tilewright.builder import Builder, CompileBuilder
from tilewright.canonical import sha256_file
from tilewright.carrying import carries
from tilewright.errors import NoDevice, UsageError
from tilewright.filekind import refuse_no_file
from tilewright.gpu_target import gpu_count, quick_target
from tilewright.library import find_operator
from tilewright.log import TuningLog
from tilewright.neighbours import Neighbours
from tilewright.nursery import Nursery, nursery_of_session
from tilewright.opening import OpeningRunner
from tilewright.operator import OperatorSpec
from tilewright.record import Config
from tilewright.recorded import Recording
from tilewright.recorded_operator import operator_of
from tilewright.runner import DeviceRunner, InterpreterRunner, Job, Runner, refuse_on_interpreter
from tilewright.sampling import GRAPH_PROTOCOL
from tilewright.space import SearchSpace
from tilewright.target import DEFAULT_TARGET, Target, Toolchain, named_target
from tilewright.template import Source
from tilewright.timeline import Timeline
from tilewright.workload import Workload, parse_key

if TYPE_CHECKING:
    from tilewright.history import LogHistory

# To set aside for a race: eight to ten racers took 0.23 to 0.43 s (six bf16 GEMMs, H200, 2026-11, benchmarks/tune_bars.py).
RACE_S: Final = 0.5


@dataclass(kw_only=True)
class Device:
    """A builder and a runner that belong together, and what they know of the operator.

    Attributes:
        name, label: what is said to the user, and the folder name of its logs.
        recording: hash of the recording that stands in for a device; empty where none does.
        operator: the operator's name.
        builder, runner: seams to the children.
        target: what records are keyed by.
        compile_target: what spaces and sources are made for; differs from `target` under the interpreter.
        lookahead: candidates in flight to the builder. 1 where results are instant, so that a seed reproduces.
        width: builds a measurement, at most, for searchers that choose among what is built.
        spec, note: the operator's spec, where its folder is at hand, and what is said to the user where it is not, or not all of it fits.
        folder: the operator's folder, or that of the recording.
        template_hashes: current hash of each of the operator's templates, for telling stale records.
        make_workload, make_space: read workload parameters, and give the space of a workload.
        make_source: renders a config.
        history: logs that searches start from; None where they start cold.
        neighbours: finds ragged workloads that a source serves too, for checks; None where nothing runs.
        timeline: of the session.
        nursery: forks the children of both, where they run on a GPU.
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
    history: LogHistory | None = None
    timeline: Timeline = field(default_factory=Timeline)
    nursery: Nursery | None = None
    recording: str = ""
    note: str = ""
    _toolchain: Toolchain | None = None

    @property
    def toolchain(self) -> Toolchain:
        """What turned sources into measured binaries: the runner's versions, and the builder's where only it has them."""
        if self._toolchain is None:
            ran, built = self.runner.toolchain, self.builder.toolchain
            self._toolchain = Toolchain(triton=ran.triton or built.triton, ptxas=ran.ptxas or built.ptxas, torch=ran.torch or built.torch, driver=ran.driver)
        return self._toolchain

    @property
    def overlaps(self) -> bool:
        """Whether measuring takes time in which something else can be done; where it takes none, a seed reproduces."""
        return self.lookahead > 1

    def start(self, first: Job | None = None) -> None:
        """Begin to open what takes seconds, in the background, and to measure the vendors of a first job, if any. May be called again."""
        if isinstance(self.runner, OpeningRunner):
            self.runner.start(first)
            self.timeline.mark("runner asked for")
        if isinstance(self.builder, CompileBuilder) and self.overlaps:
            self.builder.start()
            self.timeline.mark("builders asked for")

    def settle(self) -> None:
        """Wait until there is something to measure on.

        Raises:
            TargetDiffers: it is not what was expected.
            HostError: it cannot be had.
        """
        if isinstance(self.runner, OpeningRunner):
            self.runner.runner()

    @property
    def is_settled(self) -> bool:
        """Whether `settle` need not wait."""
        return not isinstance(self.runner, OpeningRunner) or self.runner.ready

    def done_building(self) -> float | None:
        """Begin to end the builders, which takes some tenths of a second, while the device goes on.

        Returns:
            The share of their time that they were building, where they tell.
        """
        if not isinstance(self.builder, CompileBuilder):
            return None
        asked = [mark.at_s for mark in self.timeline.marks if mark.name == "first build asked for"]
        threading.Thread(target=self.builder.close, name="tilewright-close", daemon=True).start()
        return self.builder.busy_s / (self.builder.jobs * max(0.001, self.timeline.elapsed_s - asked[0])) if asked else None

    def __enter__(self) -> Device:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Close all at once: some take tenths of a second to end their children."""
        closing = [one.close for one in (self.runner, self.builder, self.nursery) if one is not None]
        with ThreadPoolExecutor(len(closing)) as closers:
            for closed in [closers.submit(close) for close in closing]:
                closed.result()
        self.timeline.mark("device closed")


def open_device(
    device: str,
    operator: str,
    *,
    target: str | None,
    templates: Sequence[Path],
    jobs: int | None,
    ahead: bool = False,
    timeline: Timeline | None = None,
) -> Device:
    """Open what `--device` names.

    Args:
        device: `auto`, `cuda:N`, `interpreter` or `recorded:FILE`.
        operator: the operator's name.
        target: named target to compile for, where no GPU says its own.
        templates: folders of operators.
        jobs: builder children; by default all cores but one.
        ahead: give a GPU back before it is open: its target is what the driver says, and `Device.start` and `settle` open it.
        timeline: of the session.

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
    return _open_children(device, operator, templates, target, jobs, ahead=ahead, timeline=timeline or Timeline())


def _open_children(device: str, name: str, templates: Sequence[Path], target: str | None, jobs: int | None, *, ahead: bool, timeline: Timeline) -> Device:
    jobs = jobs or max(1, len(os.sched_getaffinity(0)) - 1)  # a container or taskset may leave fewer than the machine has
    if target is not None and device != "interpreter":
        raise UsageError(f"--target {target}: {device} is its own target; --target is for work without a GPU")
    nursery = nursery_of_session() if device != "interpreter" else None
    builder = CompileBuilder(jobs, nursery=nursery)  # its children are started when they are needed
    runner: Runner
    if device == "interpreter":
        operator = find_operator(name, templates)
        compile_target = named_target(target or DEFAULT_TARGET)
        runner = InterpreterRunner(compile_target)
    else:
        with ExitStack() as undo:  # on an error
            for opened in (nursery, builder):
                undo.callback(opened.close if opened is not None else lambda: None)
            with ThreadPoolExecutor(1, thread_name_prefix="tilewright-target") as thread:
                reading = thread.submit(quick_target, device) if ahead else None
                operator = find_operator(name, templates)
                expected = reading.result() if reading is not None else None
            timeline.mark("target read")
            if expected is not None:
                runner = OpeningRunner(lambda: _device_runner(device, timeline, nursery), expected, protocol=GRAPH_PROTOCOL, race_s=RACE_S)
            else:
                builder.start()  # its children get ready while the runner opens the device
                runner = _device_runner(device, timeline, nursery)
            undo.pop_all()
        compile_target = runner.target

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
        make_source=lambda workload, config: operator.instantiate(workload, compile_target, config),
        neighbours=Neighbours(lambda workload, config, source: carries(operator.templates[source.schedule], workload, compile_target, config, source.hash)),
        timeline=timeline,
        nursery=nursery,
    )


def _device_runner(device: str, timeline: Timeline, nursery: Nursery | None) -> DeviceRunner:
    runner = DeviceRunner(device, nursery=nursery)
    if nursery is not None and nursery.ready_at is not None:
        timeline.at("children's imports done", nursery.ready_at)
    for stage in runner.stages:
        timeline.at(f"runner: {stage.name} done", stage.began_s + stage.seconds)
    timeline.mark("runner ready")
    return runner


def _open_recorded(path: Path, operator: str, templates: Sequence[Path]) -> Device:
    refuse_no_file(path, "a recording", "sessions tell recordings by their hashes")
    recording = Recording.read(TuningLog(path))
    if recording.operator != operator:
        raise UsageError(f"{path} records operator {recording.operator!r}, not {operator!r}")
    spec, note = operator_of(recording, templates)
    runner, digest = recording.runner(), sha256_file(path)
    return Device(
        name=f"recorded:{path.name} ({runner.target.name})",
        # Two recordings of one device are two devices: the log of one has no answers for the other.
        label=f"recorded-{_label(runner.target)}-{digest[:8]}".rstrip("-"),
        operator=operator,
        builder=recording.builder(),
        runner=runner,
        target=runner.target,
        compile_target=runner.target,
        lookahead=1,
        # Builds are free in a recording; the search benchmark's bars allow so many a measurement.
        width=8,
        spec=spec,
        note=note,
        folder=path.parent,
        template_hashes=frozenset({""}),
        make_workload=lambda parameters: recording.workload(parse_key(f"{operator}:{parameters}")),
        make_space=recording.space,
        make_source=recording.source,
        recording=digest,
    )


def _label(target: Target) -> str:
    """A target's marketing name as a folder's: `nvidia-h200`."""
    return re.sub(r"[^a-z0-9]+", "-", target.name.lower()).strip("-")
