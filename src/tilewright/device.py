"""Where candidates are built and measured: a builder and a runner that belong together."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

from tilewright.builder import Builder, CompileBuilder
from tilewright.neighbours import Neighbours
from tilewright.nursery import Nursery
from tilewright.opening import OpeningRunner
from tilewright.operator import OperatorSpec
from tilewright.record import Config
from tilewright.runner import Job, Runner
from tilewright.space import SearchSpace
from tilewright.target import Target, Toolchain
from tilewright.template import Source
from tilewright.timeline import Timeline
from tilewright.timeouts import Timeouts
from tilewright.workload import Workload

if TYPE_CHECKING:
    from tilewright.history import LogHistory


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
        timeouts: as asked for.
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
    timeouts: Timeouts = Timeouts()
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
