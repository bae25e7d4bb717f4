"""What a log's records are worth to a session that starts today."""

from __future__ import annotations

from collections.abc import Callable

from tilewright.device import Device
from tilewright.errors import SpaceError
from tilewright.record import Record, Status
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
        if record.template in device.template_hashes and _counts(record, device.runner.protocol):
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


def _counts(record: Record, protocol: str) -> bool:
    """Whether a record is a trial's, by this protocol. What a session left unmeasured when it ended is not."""
    return record.status is not Status.CUT if record.measurement is None else record.measurement.protocol == protocol
