"""What one line of a tuning log says. docs/log-format.md explains each field."""

from __future__ import annotations

import enum
from typing import Final

import msgspec

from tilewright.canonical import canonical_json
from tilewright.knobs import Config as Config
from tilewright.knobs import Value as Value
from tilewright.measured import Anchor as Anchor
from tilewright.measured import Check as Check
from tilewright.measured import DeviceState as DeviceState
from tilewright.measured import Measurement as Measurement
from tilewright.measured import Resources as Resources
from tilewright.measured import TimeUs
from tilewright.target import Target, Toolchain
from tilewright.workload import Workload

SCHEMA: Final = 1


def config_key(config: Config) -> str:
    """The canonical text of a config: what makes two trials the same."""
    return canonical_json(dict(config))


class Status(enum.StrEnum):
    """How a candidate ended."""

    OK = "ok"
    COMPILE_ERROR = "compile_error"
    COMPILE_TIMEOUT = "compile_timeout"
    OUT_OF_RESOURCES = "out_of_resources"
    LAUNCH_ERROR = "launch_error"
    RUN_TIMEOUT = "run_timeout"
    CRASH = "crash"
    WRONG_RESULT = "wrong_result"
    OUT_OF_BOUNDS = "out_of_bounds"
    IMPOSSIBLE = "impossible"
    CUT = "cut"


class _Line(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="kind"):
    schema: int = msgspec.field(default_factory=lambda: SCHEMA)  # a factory, so that it is always written
    session: str = ""


class SessionStart(_Line, frozen=True, kw_only=True, tag="session"):
    """A tuning session began.

    Attributes:
        started_at: UTC, ISO 8601.
        tilewright: version.
        options: search, seed, budgets and device as asked for.
        settings: of the timing protocol that the session measures by; empty for a recording's. docs/decisions/0011.
    """

    started_at: str
    tilewright: str
    operator: str
    workloads: list[Workload]
    target: Target
    toolchain: Toolchain
    options: dict[str, str | int | float | bool | None] = msgspec.field(default_factory=dict)
    settings: dict[str, str | int | float] = msgspec.field(default_factory=dict)


class TrialStart(_Line, frozen=True, kw_only=True, tag="start"):
    """A candidate is about to touch the device: if no record follows, it may have taken the session down."""

    workload: Workload
    config: dict[str, Value]


class Record(_Line, frozen=True, kw_only=True, tag="trial"):
    """A candidate that reached the build, and how it ended.

    Attributes:
        trial: number within the session, from 0, in ask order.
        workload, target, toolchain: what it was tuned for, and with.
        template: SHA-256 of the template's text; empty for a recording.
        config: knob values, `schedule` first where an operator has several.
        source, binary: SHA-256 of the rendered module, and over the kernels' binaries; empty for a recording, or where none was built.
        status, message: how it ended, and why.
        measurement: where it was timed.
        check: where its outputs were compared.
        resources: where it was built.
        build_s: seconds of compiling, 0 where the cache had it.
        default: whether this is the author's default schedule.
    """

    trial: int
    workload: Workload
    target: Target
    config: dict[str, Value]
    status: Status
    message: str = ""
    toolchain: Toolchain = msgspec.field(default_factory=Toolchain)
    template: str = ""
    source: str = ""
    binary: str = ""
    measurement: Measurement | None = None
    check: Check | None = None
    resources: Resources | None = None
    build_s: float = 0.0
    default: bool = False


class VendorRecord(_Line, frozen=True, kw_only=True, tag="vendor"):
    """A vendor's kernel for a workload, measured in the same session by the same protocol."""

    name: str
    workload: Workload
    target: Target
    status: Status
    message: str = ""
    toolchain: Toolchain = msgspec.field(default_factory=Toolchain)
    measurement: Measurement | None = None


class Racer(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One runner of a race.

    Attributes:
        vendor: its name; empty for a schedule.
        config, source: the schedule, as in its record; empty for a vendor.
        default: whether it is the author's default schedule.
        status, message: how its check in the race ended; `ok` where it ran.
        median_us: of one call, over the rounds; None where it did not run.
        ratio, low, high: its time over the winner's, paired by round: the median, and its 95% interval. None where it did not run
            or nothing won.
        tied: whether it was within the noise of the fastest, so that its needs decided.
    """

    vendor: str = ""
    config: dict[str, Value] = msgspec.field(default_factory=dict)
    source: str = ""
    default: bool = False
    status: Status = Status.OK
    message: str = ""
    median_us: TimeUs | None = None
    ratio: float | None = None
    low: float | None = None
    high: float | None = None
    tied: bool = False


class RaceRecord(_Line, frozen=True, kw_only=True, tag="race"):
    """The finalists of a workload's search, raced in turns beside the default and the vendors. Its winner is what ships.

    Attributes:
        protocol: of the times.
        racers: schedules in the order in which they were ranked before, then vendors.
        winner: place of the winner among the racers; None where no schedule ran.
        reason: why that one.
        rounds: turns of each.
        anchor: of the workload's kind, over the whole race.
        state: clocks, power and throttling at its end.
        wall_s: what it took.
    """

    workload: Workload
    target: Target
    protocol: str
    racers: list[Racer]
    winner: int | None = None
    reason: str = ""
    rounds: int = 0
    toolchain: Toolchain = msgspec.field(default_factory=Toolchain)
    anchor: Anchor | None = None
    state: DeviceState | None = None
    wall_s: float = 0.0


class SessionEnd(_Line, frozen=True, kw_only=True, tag="end"):
    """A tuning session ended in order.

    Attributes:
        ended_at: UTC, ISO 8601.
        reason: `budget`, `exhausted`, `early_stop`, `interrupted`, or a host fault's message.
        finished: keys of the workloads whose search ended in order.
        trials: records written by this session.
        rejected: points refused by each `require`, by its reason.
        wall_s: seconds from start to end.
    """

    ended_at: str
    reason: str
    trials: int
    finished: list[str] = msgspec.field(default_factory=list)
    rejected: dict[str, int] = msgspec.field(default_factory=dict)
    wall_s: float = 0.0


class KnobInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A knob of a recorded space: its name and ordered candidates."""

    name: str
    candidates: list[Value]


class RecordedSpace(_Line, frozen=True, kw_only=True, tag="space"):
    """The space that a complete recording covers: its knobs in declaration order. Its legal points are the recorded ones."""

    operator: str
    knobs: list[KnobInfo]
    complete: bool = True
    note: str = ""


Line = SessionStart | TrialStart | Record | VendorRecord | RaceRecord | SessionEnd | RecordedSpace
