"""Vendors' lines and races, with workload and target as they stand: their texts repeat from line to line, and reading them is most of the work."""

from __future__ import annotations

from typing import Final, Literal

import msgspec

from tilewright.bulk.known import TARGET, WORKLOAD
from tilewright.codec import decode_line
from tilewright.errors import UsageError
from tilewright.record import Anchor, DeviceState, Line, Measurement, Racer, RaceRecord, Status
from tilewright.target import Target, Toolchain
from tilewright.workload import Workload


class Vendor(msgspec.Struct, frozen=True, tag_field="kind", tag="vendor"):
    """As `record.VendorRecord`."""

    schema: Literal[1]
    name: str
    workload: msgspec.Raw
    target: msgspec.Raw
    status: Status
    session: str = ""
    message: str = ""
    toolchain: Toolchain = msgspec.field(default_factory=Toolchain)
    measurement: Measurement | None = None


class Race(msgspec.Struct, frozen=True, tag_field="kind", tag="race"):
    """As `record.RaceRecord`."""

    schema: Literal[1]
    workload: msgspec.Raw
    target: msgspec.Raw
    protocol: str
    racers: list[Racer]
    session: str = ""
    winner: int | None = None
    reason: str = ""
    rounds: int = 0
    toolchain: Toolchain = msgspec.field(default_factory=Toolchain)
    anchor: Anchor | None = None
    state: DeviceState | None = None
    wall_s: float = 0.0


_RACE: Final = msgspec.json.Decoder(Race)


class RaceReader:
    """Reads races, each text of a workload or target once."""

    def __init__(self) -> None:
        self._workloads: dict[bytes, Workload] = {}
        self._targets: dict[bytes, Target] = {}

    def __call__(self, raw: bytes) -> Line:
        """The line of a race, or of another kind.

        Raises:
            LogDamaged, SchemaTooNew: as `decode_line`.
        """
        try:
            race = _RACE.decode(raw)
            workload, target = b"" + race.workload, b"" + race.target
            if workload not in self._workloads:
                self._workloads[workload] = WORKLOAD.decode(workload)
            if target not in self._targets:
                self._targets[target] = TARGET.decode(target)
        except (msgspec.MsgspecError, UsageError, ValueError, RecursionError):
            return decode_line(raw)
        return RaceRecord(**{**msgspec.structs.asdict(race), "workload": self._workloads[workload], "target": self._targets[target]})
