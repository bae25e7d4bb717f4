"""What a tuning session tells whoever watches it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from tilewright.record import Record, SessionStart, Status, VendorRecord
from tilewright.result import TuneResult, WorkloadResult
from tilewright.roofline import Roofline
from tilewright.workload import Workload


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """When to stop.

    Attributes:
        trials: candidates a workload that reach the build, those of a resumed session included; None for no limit.
        time_s: seconds of the whole session; None for no limit.
        early_stop: trials without a better time after which a workload ends; None for never.
    """

    trials: int | None = None
    time_s: float | None = None
    early_stop: int | None = None


@dataclass(slots=True, kw_only=True)
class Progress:
    """The state of one workload's search.

    Attributes:
        roofline: floor and rates of the workload on the target, where its operator's costs are known.
        vendors: vendors' kernels, once measured.
        best: the fastest correct record so far.
        default: the record of the author's default schedule.
        done: trials that ended, those of a resumed session included; a wide searcher's failed builds are records besides.
        asked: candidates asked for; `asked - done` are being built or wait for the device.
        statuses: records by status.
        sharing: workloads that share the session's trials.
    """

    workload: Workload
    budget: Budget
    roofline: Roofline | None = None
    vendors: tuple[VendorRecord, ...] = ()
    best: Record | None = None
    default: Record | None = None
    done: int = 0
    asked: int = 0
    statuses: Counter[Status] = field(default_factory=Counter)
    sharing: int = 1


class Observer(Protocol):
    """What a session tells whoever watches it. All calls come from the session's own thread."""

    def session(self, start: SessionStart, device: str, log: Path) -> None:
        """A search begins."""

    def note(self, text: str) -> None:
        """Something a person should know."""

    def progress(self, progress: Progress, record: Record | None, elapsed_s: float) -> None:
        """A workload's search begins (no record), or a record of it was written."""

    def answered(self, result: WorkloadResult) -> None:
        """A workload is done."""

    def end(self, result: TuneResult) -> None:
        """The session is over."""


class Observers:
    """Several observers as one; none at all is a silent one."""

    def __init__(self, members: Sequence[Observer] = ()) -> None:
        self._members = tuple(members)

    def session(self, start: SessionStart, device: str, log: Path) -> None:
        """A search begins."""
        for member in self._members:
            member.session(start, device, log)

    def note(self, text: str) -> None:
        """Something a person should know."""
        for member in self._members:
            member.note(text)

    def progress(self, progress: Progress, record: Record | None, elapsed_s: float) -> None:
        """A workload's search begins (no record), or a record of it was written."""
        for member in self._members:
            member.progress(progress, record, elapsed_s)

    def answered(self, result: WorkloadResult) -> None:
        """A workload is done."""
        for member in self._members:
            member.answered(result)

    def end(self, result: TuneResult) -> None:
        """The session is over."""
        for member in self._members:
            member.end(result)
