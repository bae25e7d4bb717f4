"""The faults of `benchmarks/operators/faulty`: the status each must end in, and a session over all of them."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tilewright.builder import Builder, BuildOutcome, BuildRequest
from tilewright.carrying import carries
from tilewright.device import Device
from tilewright.library import Operator, find_operator
from tilewright.log import TuningLog
from tilewright.neighbours import Neighbours
from tilewright.observer import Budget, Observers, Progress
from tilewright.record import Record, Status
from tilewright.reply import Stage
from tilewright.result import TuneResult
from tilewright.runner import Runner
from tilewright.session import Session
from tilewright.target import Toolchain

OPERATORS: Final = Path(__file__).parent / "operators"

# What each must end in, and what its message must hold.
EXPECTED: Final[Mapping[str, tuple[frozenset[Status], str]]] = {
    "none": (frozenset({Status.OK, Status.CUT}), ""),
    "never_ends": (frozenset({Status.RUN_TIMEOUT}), "no answer within"),
    "raises": (frozenset({Status.LAUNCH_ERROR}), "no such thing"),
    "killed": (frozenset({Status.CRASH}), "SIGKILL"),
    "nan": (frozenset({Status.WRONG_RESULT}), "NaN"),
    "illegal_address": (frozenset({Status.CRASH}), "illegal memory access"),
    "half_unwritten": (frozenset({Status.WRONG_RESULT}), "never written"),
    "misaligned_address": (frozenset({Status.CRASH}), "misaligned address"),
    "row_past_the_end": (frozenset({Status.OUT_OF_BOUNDS}), "past its end"),
    "device_assert": (frozenset({Status.CRASH, Status.LAUNCH_ERROR}), "assert|no offset is below 0"),
    "input_overwritten": (frozenset({Status.WRONG_RESULT}), "changed input 'a'"),
    "garbage_on_the_wire": (frozenset({Status.CRASH}), "Segmentation fault"),
    "scratch_unwritten": (frozenset({Status.WRONG_RESULT}), "scratch that nobody wrote"),
    "grandchild_hangs": (frozenset({Status.RUN_TIMEOUT}), "no answer within"),
    "ragged": (frozenset({Status.WRONG_RESULT}), "right at its own extents, and at N="),
    "all_memory": (frozenset({Status.OUT_OF_RESOURCES}), "memory"),
    "race": (frozenset({Status.WRONG_RESULT}), "two runs on the same inputs differ"),
    "flood": (frozenset({Status.OK, Status.CUT}), ""),
    "shared_memory": (frozenset({Status.OUT_OF_RESOURCES}), "shared memory"),
    "compile_hangs": (frozenset({Status.COMPILE_TIMEOUT}), ""),
    "compiler_aborts": (frozenset({Status.COMPILE_ERROR}), ""),
}


@dataclass
class Watch(Observers):
    """Notes when each record came."""

    came: list[tuple[float, Record]] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__()

    def progress(self, progress: Progress, record: Record | None, elapsed_s: float) -> None:
        if record is not None:
            self.came.append((time.monotonic(), record))


@dataclass
class Kept:
    """A builder that several sessions use: a session ends its own builders once its search is over."""

    builder: Builder

    @property
    def toolchain(self) -> Toolchain:
        return self.builder.toolchain

    def submit(self, request: BuildRequest) -> Future[BuildOutcome]:
        return self.builder.submit(request)

    def close(self) -> None:
        """Left to whoever made it."""


def run_session(runner: Runner, builder: Builder, log: Path, *, faults: str, n: int = 65536, seed: int = 0, search: str = "grid") -> tuple[TuneResult, Watch]:
    """Tune `faulty` over its whole space, in order where the search is `grid`."""
    operator: Operator = find_operator("faulty", [OPERATORS])
    compile_target = runner.target
    device = Device(
        name="faults",
        label="faults",
        operator=operator.name,
        builder=Kept(builder),
        runner=runner,
        target=runner.target,
        compile_target=compile_target,
        lookahead=4,
        width=1,
        spec=operator.spec,
        folder=operator.folder,
        template_hashes=frozenset(template.hash for template in operator.templates.values()),
        make_workload=operator.spec.workload,
        make_space=lambda workload: operator.space(workload, compile_target),
        make_source=lambda workload, config: operator.render(workload, compile_target, config),
        neighbours=Neighbours(lambda workload, config, source: carries(operator.templates[source.schedule], workload, compile_target, config, source.hash)),
    )
    watch = Watch()
    session = Session(
        device=device,
        workloads={operator.spec.workload(f"N={n},faults={faults}"): 1.0},
        budget=Budget(trials=1000),
        search=search,
        seed=seed,
        log=TuningLog(log),
        resume=False,
        force=False,
        default_only=False,
        observer=watch,
    )
    return session.run(), watch


def costs_s(watch: Watch, began: float) -> dict[str, float]:
    """Seconds that each broken schedule cost: until its record, and what the right one after it took more than right ones do."""
    times = [began, *(moment for moment, _ in watch.came)]
    spans = [after - before for before, after in zip(times, times[1:], strict=False)]
    right = sorted(span for span, (_, record) in zip(spans, watch.came, strict=True) if record.config["fault"] == "none")
    usual = right[len(right) // 4] if right else 0.0  # most follow a fault, and some of those a replaced child
    found = {}
    for place, (_, record) in enumerate(watch.came):
        after = spans[place + 1] - usual if place + 1 < len(spans) else 0.0
        found[str(record.config["fault"])] = spans[place] + max(0.0, after)
    return found


def stages_of(watch: Watch, stages: Sequence[Stage]) -> dict[str, list[str]]:
    """What replacing children took after each broken schedule, stage by stage, as text."""
    found: dict[str, list[str]] = {}
    for stage in stages:
        done = [str(record.config["fault"]) for moment, record in watch.came if moment <= stage.began_s]
        running = next((str(record.config["fault"]) for moment, record in watch.came if moment > stage.began_s), "")
        # The child of a broken schedule ends before its record is written; the next one opens after it.
        fault = running if stage.name == "end" or not done else done[-1]
        parts = ", ".join(f"{name} {ms:.0f}" for name, ms in stage.parts_ms.items())
        found.setdefault(fault, []).append(f"{stage.name} {stage.seconds * 1000:.0f}" + (f" ({parts})" if parts else ""))
    return found
