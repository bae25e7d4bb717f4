"""What a tuning session found, in memory and as JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

import msgspec

from tilewright.errors import ExitCode
from tilewright.races import first_of
from tilewright.record import Config, Racer, RaceRecord, Record, Status, Value, VendorRecord
from tilewright.roofline import Roofline
from tilewright.space import Knob, SearchSpace
from tilewright.workload import Workload

Tier = Literal["log", "default", "search"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Edge:
    """A winner's knob that sits at an end of its candidates: the template may be too narrow there."""

    knob: str
    value: Value
    end: Literal["first", "last"]


def edges(config: Config, space: SearchSpace) -> tuple[Edge, ...]:
    """The ordered knobs of a config whose value is the first or last of three or more candidates."""
    reached: list[Knob] = []

    def choose(knob: Knob) -> Value:
        reached.append(knob)
        return config[knob.name]

    # A pass through the declarations: the same name may stand for other candidates in another schedule.
    space.evaluate(choose)
    found = []
    for knob in reached:
        if knob.ordered and len(knob.values) >= 3:
            place = knob.index(config[knob.name])
            if place in (0, len(knob.values) - 1):
                found.append(Edge(knob=knob.name, value=config[knob.name], end="last" if place else "first"))
    return tuple(found)


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadResult:
    """The answer for one workload.

    Attributes:
        tier: where it comes from: a record already in the log, the default schedule alone, or a search.
        best: the fastest correct record; None where every candidate failed.
        default: the record of the author's default schedule; None where it was not measured.
        vendors: the vendors' kernels, measured by the same protocol.
        statuses: records by status, those of an earlier session that was resumed among them.
        rejected: points refused by each `require` during this search.
        edges: where the winner sits at the end of a knob's candidates.
        reason: why the search ended.
        roofline: floor and rates of this workload on this target, where the operator's costs are known.
        race: the race that the best won; its times and paired ratios come before those of single measurements.
    """

    workload: Workload
    tier: Tier
    best: Record | None
    default: Record | None = None
    vendors: tuple[VendorRecord, ...] = ()
    statuses: Mapping[Status, int] = field(default_factory=dict)
    rejected: Mapping[str, int] = field(default_factory=dict)
    edges: tuple[Edge, ...] = ()
    reason: str = ""
    roofline: Roofline | None = None
    race: RaceRecord | None = None

    @property
    def best_us(self) -> float | None:
        """Median time of the winner in µs."""
        first = first_of(self.race.racers, self.race.winner) if self.race is not None else None
        if first is not None:
            return first.median_us
        return time_us(self.best)

    @property
    def raced_default(self) -> Racer | None:
        """The default schedule in the race, where it ran, and is today's: another code was the default of an older template."""
        source = self.default.source if self.default is not None else None
        return next((racer for racer in self.race.racers if racer.default and racer.ratio and racer.source == source), None) if self.race is not None else None

    @property
    def raced_vendor(self) -> Racer | None:
        """The fastest vendor in the race, where one ran."""
        ran = [racer for racer in self.race.racers if racer.vendor and racer.ratio] if self.race is not None else []
        return min(ran, key=lambda racer: racer.ratio or 0.0, default=None)

    @property
    def default_us(self) -> float | None:
        """Median time of the default schedule in µs."""
        return time_us(self.default) if self.raced_default is None else self.raced_default.median_us

    @property
    def vendor_us(self) -> float | None:
        """Median time in µs of the fastest vendor kernel."""
        if self.raced_vendor is not None:
            return self.raced_vendor.median_us
        return min((us for vendor in self.vendors if (us := time_us(vendor)) is not None), default=None)

    @property
    def gain_over_default(self) -> float | None:
        """Default's time over the winner's: paired where they raced."""
        return ranked_ratio(self.default, self.best) if self.raced_default is None else self.raced_default.ratio

    @property
    def gain_over_vendor(self) -> float | None:
        """The fastest vendor's time over the winner's: paired where they raced."""
        if self.raced_vendor is not None:
            return self.raced_vendor.ratio
        return min((ratio for vendor in self.vendors if (ratio := ranked_ratio(vendor, self.best)) is not None), default=None)

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values: records whole, and the figures drawn from them."""
        return {
            "workload": self.workload.key,
            "tier": self.tier,
            "best": msgspec.to_builtins(self.best),
            "default": msgspec.to_builtins(self.default),
            "vendors": msgspec.to_builtins(list(self.vendors)),
            "best_us": self.best_us,
            "default_us": self.default_us,
            "vendor_us": self.vendor_us,
            "gain_over_default": self.gain_over_default,
            "gain_over_vendor": self.gain_over_vendor,
            "race": msgspec.to_builtins(self.race),
            "statuses": {str(status): count for status, count in self.statuses.items()},
            "rejected": dict(self.rejected),
            "edges": [{"knob": edge.knob, "value": edge.value, "end": edge.end} for edge in self.edges],
            "reason": self.reason,
        }


def time_us(record: Record | VendorRecord | None) -> float | None:
    """Median time in µs of a record that is ok, else None."""
    if record is None or record.status is not Status.OK or record.measurement is None:
        return None
    return record.measurement.median_us


def learned_us(record: Record) -> float | None:
    """What a searcher is told of a record: its time, at the anchor's nominal speed, also of one that was cut short as hopeless; None for
    a failure.
    """
    return record.measurement.ranked_us if record.status in (Status.OK, Status.CUT) and record.measurement is not None else None


def ranked_ratio(other: Record | VendorRecord | None, best: Record | None) -> float | None:
    """The time of one over that of the best, both at their anchors' nominal speed; None where one has none."""
    if other is None or best is None or time_us(other) is None or time_us(best) is None or other.measurement is None or best.measurement is None:
        return None
    return other.measurement.ranked_us / best.measurement.ranked_us


@dataclass(frozen=True, slots=True, kw_only=True)
class Utilisation:
    """How busy a session kept its machine.

    Attributes:
        builders: share of the builders' time, from the first build asked for to the last measurement, that they were building; None
            where nothing tells.
        device: share of the time, from the first candidate on the device to the last, that its runner was at work.
        start_s: seconds from the call to the first candidate on the device.
    """

    builders: float | None
    device: float
    start_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class TuneResult:
    """The answers of one call of `tune`.

    Attributes:
        results: one for each workload, in the order asked for.
        log: path of the log.
        protocol: name of the timing protocol.
        device: what measured.
        reason: why the session ended: `budget`, `exhausted`, `early_stop`, `hopeless`, `default`, `log` or `interrupted`.
        wall_s: seconds from start to end.
        utilisation: of builders and device; None where nothing was searched, or measuring takes no time.
    """

    results: tuple[WorkloadResult, ...]
    log: str
    protocol: str
    device: str
    reason: str
    wall_s: float
    utilisation: Utilisation | None = None

    @property
    def exit_code(self) -> ExitCode:
        """INTERRUPTED after Ctrl-C, FAILED where a workload has no correct schedule, else OK."""
        if self.reason == "interrupted":
            return ExitCode.INTERRUPTED
        return ExitCode.OK if all(result.best is not None for result in self.results) else ExitCode.FAILED

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values."""
        return {
            "results": [result.to_json() for result in self.results],
            "log": self.log,
            "protocol": self.protocol,
            "device": self.device,
            "reason": self.reason,
            "wall_s": round(self.wall_s, 3),
            "utilisation": None if self.utilisation is None else asdict(self.utilisation),
        }
