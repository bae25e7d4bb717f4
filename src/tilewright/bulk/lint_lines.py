"""Lines as lint decodes them, many in one call: every field is checked, but for texts that repeat from line to line, which stay as they are."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal, TypeAlias, cast

import msgspec

from tilewright.bulk.other_lines import Race, Vendor
from tilewright.record import Resources, SessionEnd, SessionStart, Status

# Numbers that lint would tell are refused in decoding, which costs nothing: their lines are looked at one by one.
_TrialNumber: TypeAlias = Annotated[int, msgspec.Meta(ge=0, lt=1 << 62)]  # an array holds no trial number from there on
_Seconds: TypeAlias = Annotated[float, msgspec.Meta(ge=0)]
_AboveZero: TypeAlias = Annotated[float, msgspec.Meta(gt=0)]
_EMPTY: Final = cast("list[str]", ())  # where there is no list: to make an empty one of each takes longer than to read a number


class _Anchor(msgspec.Struct, frozen=True, gc=False):
    """As `record.Anchor`."""

    kind: str
    median_us: _AboveZero
    nominal_us: _AboveZero
    samples: int = 1


class _State(msgspec.Struct, frozen=True, gc=False):
    """As `record.DeviceState`."""

    sm_mhz: int | None = None
    memory_mhz: int | None = None
    power_w: float | None = None
    temperature_c: int | None = None
    throttle: list[str] = msgspec.field(default=_EMPTY)


class _Time(msgspec.Struct, frozen=True, gc=False):
    """As `record.Measurement`."""

    protocol: str
    median_us: float
    min_us: _AboveZero
    max_us: float
    cv: float = 0.0
    samples: Annotated[int, msgspec.Meta(ge=1)] = 1
    times_us: list[float] = msgspec.field(default_factory=list)
    anchor: _Anchor | None = None
    state: _State | None = None
    latency: _Anchor | None = None
    kernels: float | None = None
    anchored_us: _AboveZero | None = None


class _Check(msgspec.Struct, frozen=True, gc=False):
    """As `record.Check`."""

    rel_norm: float
    max_error: float
    rel_norm_allowed: float
    max_error_allowed: float
    ragged: str = ""


class Trial(msgspec.Struct, frozen=True, gc=False, tag_field="kind", tag="trial"):
    """A record, checked field by field, but for what repeats from line to line: that is checked once for each text."""

    schema: Literal[1]
    session: str
    trial: _TrialNumber
    workload: msgspec.Raw
    target: msgspec.Raw
    config: msgspec.Raw
    status: Status
    message: str = ""
    toolchain: msgspec.Raw = msgspec.Raw(b"{}")
    template: str = ""
    source: str = ""
    binary: str = ""
    measurement: _Time | None = None
    check: _Check | None = None
    resources: Resources | None = None
    build_s: _Seconds = 0.0
    default: bool = False


class Start(msgspec.Struct, frozen=True, kw_only=True, gc=False, tag_field="kind", tag="start"):
    """A candidate that is about to touch the device."""

    schema: Literal[1]
    session: str = ""
    workload: msgspec.Raw
    config: msgspec.Raw


LINE: Final = msgspec.json.Decoder(Trial | Start | Vendor | Race | SessionStart | SessionEnd)
LINES: Final[msgspec.json.Decoder[Any]] = msgspec.json.Decoder(list[Trial | Start | Vendor | Race | SessionStart | SessionEnd])  # of a block, as a list
