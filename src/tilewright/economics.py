"""What tuning cost and what it saves: calls and days until it has paid for itself. Pure."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from types import MappingProxyType

from tilewright.best import VendorTime, best_of, protocol_rank, vendor_times
from tilewright.current import Templates, is_stale
from tilewright.identity import Keys
from tilewright.races import Schedule, default_ratios, vendor_ratios
from tilewright.record import Line, RaceRecord, Record, SessionEnd, Status, VendorRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class Saving:
    """One workload on one target.

    Attributes:
        workload: its key.
        target: the device's name.
        tuning_s: seconds of the sessions that tuned it, shared by records; None where none of them has an end line.
        best_us, default_us, vendor_us: times of a call; None where not measured by the same protocol. Where the best won a race that the other
            ran in, the other's is the best's, multiplied by the ratio of the two in the race.
        calls_per_day: as expected.
    """

    workload: str
    target: str
    tuning_s: float | None
    best_us: float
    default_us: float | None
    vendor_us: float | None
    calls_per_day: float

    @property
    def saved_over_default_us(self) -> float | None:
        """µs a call."""
        return None if self.default_us is None else self.default_us - self.best_us

    @property
    def saved_over_vendor_us(self) -> float | None:
        """µs a call."""
        return None if self.vendor_us is None else self.vendor_us - self.best_us

    def calls(self, saved_us: float | None) -> float | None:
        """Calls until tuning has paid for itself; None where it never does, or it is not known."""
        return self.tuning_s * 1e6 / saved_us if saved_us is not None and saved_us > 0 and self.tuning_s is not None else None

    def days(self, saved_us: float | None) -> float | None:
        """Days until then."""
        calls = self.calls(saved_us)
        return None if calls is None else calls / self.calls_per_day


def savings(lines: Iterable[Line], calls_per_day: float, templates: Templates = MappingProxyType({})) -> tuple[Saving, ...]:
    """The account of each workload and target, by the most trusted protocol it was measured by.

    A session's seconds are shared among its workloads by their records: they were tuned together.

    Args:
        lines: of logs, in any order.
        calls_per_day: of each workload.
        templates: of operators at hand, as for `best_of`.
    """
    keys = Keys()
    records: list[Record] = []
    races: list[RaceRecord] = []
    vendors: list[VendorRecord] = []
    wall: dict[str, float] = {}
    counts: dict[str, Counter[tuple[str, str]]] = defaultdict(Counter)
    for line in lines:
        if isinstance(line, Record):
            records.append(line)
            counts[line.session][keys.workload(line.workload), keys.target(line.target)] += 1
        elif isinstance(line, RaceRecord):
            races.append(line)
        elif isinstance(line, VendorRecord):
            vendors.append(line)
        elif isinstance(line, SessionEnd):
            wall[line.session] = line.wall_s
    spent: dict[tuple[str, str], float] = defaultdict(float)
    for session, shares in counts.items():
        if session in wall:
            for key, count in shares.items():
                spent[key] += wall[session] * count / shares.total()
    best = best_of([*records, *races], templates)
    defaults: dict[tuple[str, str, str], float] = {}
    older: dict[tuple[str, str, str], set[Schedule]] = defaultdict(set)
    counted: dict[tuple[str, str, str], set[Schedule]] = defaultdict(set)
    for record in records:
        if record.default and record.status is Status.OK and record.measurement is not None:
            place = (keys.workload(record.workload), keys.target(record.target), record.measurement.protocol)
            # As for the best: defaults of older templates give way to records of today's, even where none of those is a default's.
            passed = _is_stale(record, templates) and place in best and not _is_stale(best[place], templates)
            (older if passed else counted)[place].add((keys.config(record.config), record.source))
            if not passed:
                defaults[place] = min(defaults.get(place, record.measurement.ranked_us), record.measurement.ranked_us)
    times = vendor_times(vendors)
    vendors_raced = vendor_ratios(races, keys)
    defaults_raced = default_ratios(races, keys, {place: found - counted[place] for place, found in older.items()})
    chosen: dict[tuple[str, str], tuple[str, str, str]] = {}
    for workload, target, protocol in sorted(best, key=lambda key: (key[0], key[1], protocol_rank(key[2]))):
        chosen.setdefault((workload, target), (workload, target, protocol))
    found: list[Saving] = []
    for place in chosen.values():
        record = best[place]
        assert record.measurement is not None
        best_us, vendor, default_us = record.measurement.ranked_us, times.get(place), defaults.get(place)
        schedule = (keys.config(record.config), record.source)
        if ratios := vendors_raced.get((*place, schedule)):
            # As in best files: two that ran in turns are compared by that, which holds no drift between two moments.
            vendor = VendorTime(name=min(ratios, key=lambda name: ratios[name]), median_us=best_us * min(ratios.values()))
        if (ratio := defaults_raced.get((*place, schedule))) is not None:
            default_us = best_us * ratio
        found.append(
            Saving(
                workload=place[0],
                target=record.target.name,
                tuning_s=spent.get(place[:2]),
                best_us=best_us,
                default_us=default_us,
                vendor_us=None if vendor is None else vendor.median_us,
                calls_per_day=calls_per_day,
            )
        )
    return tuple(found)


def _is_stale(record: Record, templates: Templates) -> bool:
    return is_stale(templates, record.workload.operator, record.template)
