"""What a runner is asked, and what it answers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tilewright.record import Check, Measurement, Status
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
    """

    operator: str
    folder: Path
    workload: Workload
    seed: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasureJob(Job):
    """A candidate to check and to time.

    Attributes:
        source: the rendered module.
        cut_above_us: best time so far: a candidate more than three times slower after its first runs is cut short.
    """

    source: Source
    cut_above_us: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasureOutcome:
    """How a measurement ended.

    Attributes:
        status, message: as they go into the record.
        measurement: the times; for `cut` and `impossible` too, where they say why.
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
