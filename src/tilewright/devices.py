"""The devices that there are: what `--device` names, opened."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from tilewright.builder import CompileBuilder
from tilewright.canonical import sha256_file
from tilewright.carrying import carries
from tilewright.device import Device
from tilewright.errors import NoDevice, UsageError
from tilewright.filekind import refuse_no_file
from tilewright.gpu_target import gpu_count, quick_target
from tilewright.library import find_operator
from tilewright.log import TuningLog
from tilewright.neighbours import Neighbours, device_steps, interpreted_steps
from tilewright.nursery import Nursery, nursery_of_session
from tilewright.opening import OpeningRunner
from tilewright.recorded import Recording
from tilewright.recorded_operator import operator_of
from tilewright.runner import DeviceRunner, InterpreterRunner, Runner, refuse_on_interpreter
from tilewright.sampling import GRAPH_PROTOCOL
from tilewright.target import DEFAULT_TARGET, Target, named_target
from tilewright.timeline import Timeline
from tilewright.timeouts import Timeouts
from tilewright.workload import Workload, parse_key

# To set aside for a race: eight to ten racers took 0.23 to 0.43 s (six bf16 GEMMs, H200, 2026-11, benchmarks/tune_bars.py).
RACE_S: Final = 0.5


def open_device(
    device: str,
    operator: str,
    *,
    target: str | None,
    templates: Sequence[Path],
    jobs: int | None,
    ahead: bool = False,
    timeline: Timeline | None = None,
    timeouts: Timeouts | None = None,
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
        timeouts: of a candidate, where not the defaults; a recording has none.

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
    return _open_children(device, operator, templates, target, jobs, ahead=ahead, timeline=timeline or Timeline(), timeouts=timeouts or Timeouts())


def _open_children(
    device: str, name: str, templates: Sequence[Path], target: str | None, jobs: int | None, *, ahead: bool, timeline: Timeline, timeouts: Timeouts
) -> Device:
    jobs = jobs or max(1, len(os.sched_getaffinity(0)) - 1)  # a container or taskset may leave fewer than the machine has
    if target is not None and device != "interpreter":
        raise UsageError(f"--target {target}: {device} is its own target; --target is for work without a GPU")
    nursery = nursery_of_session() if device != "interpreter" else None
    builder = CompileBuilder(jobs, timeout_s=timeouts.compile_s, nursery=nursery)  # its children are started when they are needed
    runner: Runner
    if device == "interpreter":
        operator = find_operator(name, templates)
        compile_target = named_target(target or DEFAULT_TARGET)
        runner = InterpreterRunner(compile_target, timeout_s=timeouts.interpret_s)
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
                runner = OpeningRunner(lambda: _device_runner(device, timeline, nursery, timeouts.measure_s), expected, protocol=GRAPH_PROTOCOL, race_s=RACE_S)
            else:
                builder.start()  # its children get ready while the runner opens the device
                runner = _device_runner(device, timeline, nursery, timeouts.measure_s)
            undo.pop_all()
        compile_target = runner.target

    def make_workload(parameters: str) -> Workload:
        workload = operator.workload(parameters)
        if device == "interpreter":
            refuse_on_interpreter(workload, operator.spec.dtypes)
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
        neighbours=Neighbours(
            lambda workload, config, source: carries(operator.templates[source.schedule], workload, compile_target, config, source.hash),
            interpreted_steps if device == "interpreter" else device_steps,
        ),
        timeline=timeline,
        nursery=nursery,
        timeouts=timeouts,
    )


def _device_runner(device: str, timeline: Timeline, nursery: Nursery | None, timeout_s: float) -> DeviceRunner:
    runner = DeviceRunner(device, timeout_s=timeout_s, nursery=nursery)
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
