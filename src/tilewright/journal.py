"""What a session writes: the only writer of its log, and what it tells whoever watches."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from tilewright.device import Device
from tilewright.job import MeasureOutcome
from tilewright.log import TuningLog
from tilewright.observer import Observer
from tilewright.pipeline import Candidate
from tilewright.record import Line, RaceRecord, Record, TrialStart, VendorRecord
from tilewright.trials import Search

# Seconds between waits for the disk: a power cut costs at most this much measuring, a crash of this process nothing. An fsync takes
# 1-5 ms of the 10-25 ms that a candidate does (docs/decisions/0014).
SYNC_EVERY_S: Final = 0.5


class Journal:
    """The lines of one session.

    Args:
        log: where they go.
        session: its id.
        device: whose timeline is marked, and whose target and toolchain vendors' records name.
        observer: told of each record.

    Attributes:
        trial: number of the next record.
    """

    def __init__(self, log: TuningLog, session: str, device: Device, observer: Observer) -> None:
        self.session = session
        self.trial = 0
        self.observer = observer
        self._log = log
        self._device = device
        self._synced = time.monotonic()

    def line(self, line: Line) -> None:
        """Write a line that a power cut must not undo."""
        self._log.append(line)
        self._synced = time.monotonic()

    def starting(self, search: Search, candidate: Candidate) -> None:
        """A candidate is about to touch the device."""
        # Not synced: it must outlive this process, not the machine.
        self._log.append(TrialStart(session=self.session, workload=search.workload, config=candidate.config), sync=False)

    def record(self, search: Search, record: Record) -> Record:
        """Write how a candidate ended, and let its search learn of it; returns the record as written."""
        numbered = msgspec.structs.replace(record, session=self.session, trial=self.trial)
        due = time.monotonic() - self._synced >= SYNC_EVERY_S
        self._log.append(numbered, sync=due)
        if due:
            self._synced = time.monotonic()
        self.trial += 1
        search.tell(numbered)
        self.observer.progress(search.progress, numbered, self._device.timeline.elapsed_s)
        return numbered

    def leave(self, rest: Iterable[tuple[Search, Record]]) -> None:
        """Write down candidates that are not measured any more."""
        numbered = []
        for _, record in rest:
            numbered.append(msgspec.structs.replace(record, session=self.session, trial=self.trial))
            self.trial += 1
        self._log.extend(numbered)

    def vendors(self, search: Search, outcomes: Sequence[tuple[str, MeasureOutcome]]) -> None:
        """Write the times of a workload's vendors."""
        for name, outcome in outcomes:
            vendor = VendorRecord(
                session=self.session,
                name=name,
                workload=search.workload,
                target=self._device.target,
                status=outcome.status,
                message=outcome.message,
                toolchain=self._device.toolchain,
                measurement=outcome.measurement,
            )
            self._log.append(vendor, sync=False)
            search.progress.vendors += (vendor,)
        self.observer.progress(search.progress, None, self._device.timeline.elapsed_s)

    def race(self, search: Search, race: RaceRecord) -> None:
        """Write what a race decided."""
        self.line(msgspec.structs.replace(race, session=self.session))
        self.observer.progress(search.progress, None, self._device.timeline.elapsed_s)
