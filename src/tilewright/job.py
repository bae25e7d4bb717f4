"""What a runner is asked, and what it answers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tilewright.record import Anchor, Check, DeviceState, Measurement, Status
from tilewright.template import Source
from tilewright.workload import Workload


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A workload to measure something on.

    Attributes:
        operator: the operator's name.
        folder: the operator's folder, with `spec.py` and `reference.py`.
        workload: shape and dtypes.
        seed: of the random inputs; each check draws fresh ones from it.
        default: the author's default schedule, which is trusted where the operator declares no reference.
    """

    operator: str
    folder: Path
    workload: Workload
    seed: int = 0
    default: Source | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasureJob(Job):
    """A candidate to check, and to time.

    Attributes:
        source: the rendered module.
        cut_above_us: best time so far: a candidate more than three times slower after its first runs is cut short.
        neighbours: workloads of ragged extents for which the same source is rendered, the most telling first: it is checked at
            the first of them that its own binary serves.
        ahead: the module that is likely measured next, where that is known: once this candidate's answer is sent, it is imported and its
            binary loaded, while the device draws its inputs and the caller writes records. Without it nothing changes but time.
        ahead_workload: that module's workload, where it is another one.
        timed: whether it is timed at all; one that is only checked has no measurement.
    """

    source: Source
    cut_above_us: float | None = None
    neighbours: tuple[Workload, ...] = ()
    ahead: Source | None = None
    ahead_workload: Workload | None = None
    timed: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class RaceJob(Job):
    """Schedules to race against each other and against the operator's vendors.

    Attributes:
        sources: rendered modules, each measured before.
    """

    sources: tuple[Source, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RaceEntrant:
    """How one fared in a race.

    Attributes:
        status, message: of its check in the race; `ok` where it ran.
        times_us: of one call, by round, in the same order for all that ran.
    """

    status: Status
    message: str = ""
    times_us: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RaceOutcome:
    """Times of a race.

    Attributes:
        schedules: in the order of the job's sources.
        vendors: by name.
        rounds: turns of each.
        anchor: the anchor of the workload's kind, over the race.
        state: clocks, power and throttling at its end.
        message: why nothing ran, where nothing did.
    """

    schedules: tuple[RaceEntrant, ...]
    vendors: Mapping[str, RaceEntrant] = field(default_factory=dict)
    rounds: int = 0
    anchor: Anchor | None = None
    state: DeviceState | None = None
    message: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasureOutcome:
    """How a measurement ended.

    Attributes:
        status, message: as they go into the record.
        measurement: the times; for `cut` and `impossible` too, where they say why. None of a candidate that was only checked.
        check: the errors found and allowed, where outputs could be compared.
        bitwise_equal: whether two runs on the same inputs gave the same bits; None where it did not come to that.
        phases_ms: wall time in the child by phase: prepare, check, capture, time, release.
    """

    status: Status
    message: str = ""
    measurement: Measurement | None = None
    check: Check | None = None
    bitwise_equal: bool | None = None
    phases_ms: Mapping[str, float] = field(default_factory=dict)
