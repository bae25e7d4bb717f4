"""Vendors' lines and races, with workload and target as they stand: their texts repeat from line to line, and reading them is most of the work."""

from __future__ import annotations

from typing import Literal

import msgspec

from tilewright.record import Anchor, DeviceState, Measurement, Racer, Status
from tilewright.target import Toolchain


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
