"""What a log's records are worth to a session that starts today."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from pathlib import Path

import msgspec

from tilewright.device import Device
from tilewright.errors import SpaceError, UsageError
from tilewright.races import first_of
from tilewright.record import RaceRecord, Record, Status, config_key
from tilewright.state import LogState
from tilewright.workload import Workload


def records_that_hold(state: LogState, device: Device, workload: Workload, note: Callable[[str], None]) -> list[Record]:
    """A workload's records that are of today's templates and protocol, and of configs that the space still has.

    Args:
        state: the log.
        device: templates, protocol and target.
        workload: whose records.
        note: told of records with values that the space does not have: a log is data, and may say anything.
    """
    space = device.make_space(workload)
    records, refused = [], []
    for record in state.records(workload, device.target):
        if record.template in device.template_hashes and counts(record, device.runner.protocol):
            try:
                space.validate(record.config)
            except SpaceError as error:
                refused.append(str(error))
            else:
                records.append(record)
    if refused:
        note(
            f"{workload.key}: skipped {len(refused)} record(s) of the log whose config the space does not have ({refused[0]}); `tilewright log lint` names them"
        )
    return records


def races_that_hold(races: Iterable[RaceRecord], records: Iterable[Record]) -> list[RaceRecord]:
    """Races, those without a winner that were won by a schedule of an older template: it wins no more, and puts no other out.

    Args:
        races: of one workload on one target.
        records: those that hold.
    """
    schedules = {(config_key(record.config), record.source) for record in records}

    def holds(race: RaceRecord) -> bool:
        racer = first_of(race.racers, race.winner)
        if racer is None:
            return True
        return (config_key(racer.config), racer.source) in schedules

    return [race if holds(race) else msgspec.structs.replace(race, winner=None) for race in races]


def refuse_other_recordings(state: LogState, device: Device, workloads: Collection[Workload], log: Path) -> None:
    """See that a log's records of these workloads are not of another recording: they would look like this device's own.

    Raises:
        UsageError: a session of the log had another recording stand in for the same target.
    """
    keys = {workload.key for workload in workloads}
    for start in (session.start for session in state.sessions.values()):
        if start is None or start.target.key != device.target.key or keys.isdisjoint(workload.key for workload in start.workloads):
            continue
        theirs = start.options.get("recording")
        if device.recording and theirs and theirs != device.recording:
            raise UsageError(
                f"{log} has these workloads by {start.options.get('device')}, sha256 {str(theirs)[:8]}, and {device.name}, sha256 {device.recording[:8]}, "
                "is another recording: name another log with --log FILE"
            )


def counts(record: Record, protocol: str) -> bool:
    """Whether a record is a trial's, by this protocol. What a session left unmeasured when it ended is not."""
    return record.status is not Status.CUT if record.measurement is None else record.measurement.protocol == protocol
