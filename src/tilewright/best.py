"""The best known schedules, chosen from records. Nothing here depends on the order of lines."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType

import msgspec

from tilewright.bestfile import (
    BEST_SCHEMA,
    BestEntry,
    BestFile,
    BestRange,
    Merged,
    Pins,
    Step,
    VendorTime,
    best_text,
    entry_text,
    merge,
    parse_best,
    parse_best_file,
    protocol_rank,
)
from tilewright.current import Templates, is_stale, passed_over
from tilewright.identity import Keys
from tilewright.races import WRONG, Schedule, vendor_ratios, winners, wrong_in
from tilewright.record import Line, RaceRecord, Record, Status, VendorRecord, config_key

__all__ = [
    "WRONG",
    "BEST_SCHEMA",
    "BestEntry",
    "BestFile",
    "BestRange",
    "Merged",
    "Pins",
    "Step",
    "VendorTime",
    "best_entries",
    "best_of",
    "best_text",
    "entry_of",
    "entry_text",
    "merge",
    "needs_of",
    "parse_best",
    "parse_best_file",
    "protocol_rank",
    "rank",
    "vendor_times",
    "with_vendors",
]


def rank(record: Record) -> tuple[float, int, int, int, str, str]:
    """The order in which records of one workload, target and protocol are preferred, the best first.

    By median time, at the anchor's nominal speed where one was timed; then by global scratch, spills and shared memory; then by the
    config's text and the source's hash, which says nothing of quality but leaves no tie.

    Raises:
        ValueError: the record has no measurement.
    """
    if record.measurement is None:
        raise ValueError(f"a record of status {record.status} has no time to rank by")
    needs = needs_of(record)
    return (record.measurement.ranked_us, *needs, config_key(record.config), record.source)


def needs_of(record: Record) -> tuple[int, int, int]:
    """What a schedule needs: global scratch, spilled bytes, shared memory; less of it wins a tie."""
    needs = record.resources
    return (needs.scratch_bytes, needs.spill_bytes or 0, needs.shared_memory_bytes) if needs is not None else (0, 0, 0)


def best_of(lines: Iterable[Line], templates: Templates = MappingProxyType({})) -> dict[tuple[str, str, str], Record]:
    """The best record by (workload key, target key, protocol).

    A record counts if its status is ok and it has a time. A schedule whose same code was found wrong on the same workload and
    target, in any record or race, is left out. Where some are of a template that the operator has now, only those count. Where
    races were run, only their winners count.

    Args:
        lines: of logs, in any order; all but records and races are passed over.
        templates: of operators at hand; of others, records of any template are alike.
    """
    return {key: record for key, (record, _) in _chosen(lines, templates)[0].items()}


def _chosen(lines: Iterable[Line], templates: Templates) -> tuple[dict[tuple[str, str, str], tuple[Record, bool]], int]:
    """As `best_of`, each record with whether a race chose it; and how many records of older templates were passed over."""
    keys = Keys()
    candidates: dict[tuple[str, str, str], list[Record]] = defaultdict(list)
    wrong: set[tuple[str, str, str, str]] = set()
    races: list[RaceRecord] = []
    for record in lines:
        if isinstance(record, RaceRecord):
            races.append(record)
        if not isinstance(record, Record):
            continue
        workload, target = keys.workload(record.workload), keys.target(record.target)
        if record.status in WRONG:
            wrong.add((workload, target, keys.config(record.config), record.source))
        elif record.status is Status.OK and record.measurement is not None:
            candidates[workload, target, record.measurement.protocol].append(record)
    wrong |= wrong_in(races, keys)
    stale: dict[tuple[str, str, str], set[Schedule]] = {}
    right: dict[tuple[str, str, str], list[Record]] = {}
    over = 0
    for place, group in sorted(candidates.items(), key=lambda item: item[0]):
        right[place] = [record for record in group if (*place[:2], keys.config(record.config), record.source) not in wrong] if wrong else group
        current = _current(right[place], templates)
        if current and len(today := _current(group, templates)) < len(group):
            # Racers do not say which template they were of: a schedule is stale where records have its code, and none of today's.
            stale[place] = {(keys.config(record.config), record.source) for record in group} - {(keys.config(record.config), record.source) for record in today}
            right[place] = current
            over += len(group) - len(today)
    if wrong:
        protocols: dict[tuple[str, str], list[tuple[str, str, str]]] = defaultdict(list)
        for place in right:
            protocols[place[:2]].append(place)
        for workload, target, config, source in wrong:
            # Nor does one that was found wrong put others out by having been faster.
            for place in protocols[workload, target]:
                stale.setdefault(place, set()).add((config, source))
    won = winners(races, keys, stale)
    chosen: dict[tuple[str, str, str], tuple[Record, bool]] = {}
    for place, group in right.items():
        first = won.get(place, frozenset())
        raced = [record for record in group if (keys.config(record.config), record.source) in first] if first else []
        if raced or group:
            chosen[place] = (_least(raced or group), bool(raced))
    return chosen, over


def _current(records: list[Record], templates: Templates) -> list[Record]:
    return [record for record in records if not is_stale(templates, record.workload.operator, record.template)] if templates else records


def _least(records: list[Record]) -> Record:
    fastest = min(_median_us(record) for record in records)
    # Equal in all that a rank sees, two records can still differ in pins or labels: their text decides.
    return min((record for record in records if _median_us(record) == fastest), key=lambda record: (rank(record), entry_text(entry_of(record))))


def _median_us(record: Record) -> float:
    assert record.measurement is not None
    return record.measurement.ranked_us


def best_entries(lines: Iterable[Line], templates: Templates = MappingProxyType({}), note: Callable[[str], None] = lambda text: None) -> tuple[BestEntry, ...]:
    """The entries of a best file: for each workload and target, the best record of the most trusted protocol.

    Times of two protocols are never compared: the protocol is chosen first, of those by which something current was timed.

    Args:
        lines: of logs, in any order.
        templates: of operators at hand, as for `best_of`.
        note: told how many records of older templates were passed over, where some were.
    """
    chosen, over = _chosen(lines, templates)
    if over:
        note(passed_over(over))
    return merge((entry_of(record, raced=raced) for record, raced in chosen.values()), templates=templates).entries


def entry_of(record: Record, *, raced: bool = False) -> BestEntry:
    """The line of a best file that a timed record amounts to.

    Args:
        record: a timed one.
        raced: whether a race chose it.
    """
    assert record.measurement is not None
    scratch, spills, shared = needs_of(record)
    return BestEntry(
        workload=record.workload,
        target=record.target,
        config=record.config,
        median_us=record.measurement.ranked_us,
        raced=raced,
        pins=Pins(
            protocol=record.measurement.protocol,
            source=record.source,
            template=record.template,
            triton=_leading(record.toolchain.triton, 2),
            driver=_leading(record.toolchain.driver, 1),
        ),
        scratch_bytes=scratch,
        spill_bytes=spills,
        shared_memory_bytes=shared,
    )


def _leading(version: str, parts: int) -> str:
    return ".".join(version.split(".")[:parts])


def vendor_times(vendors: Iterable[VendorRecord]) -> dict[tuple[str, str, str], VendorTime]:
    """The fastest vendor by (workload key, target key, protocol); by name where two are as fast."""
    keys = Keys()
    fastest: dict[tuple[str, str, str], VendorTime] = {}
    for vendor in vendors:
        if vendor.status is not Status.OK or vendor.measurement is None:
            continue
        key = (keys.workload(vendor.workload), keys.target(vendor.target), vendor.measurement.protocol)
        time = VendorTime(name=vendor.name, median_us=vendor.measurement.ranked_us)
        known = fastest.get(key)
        if known is None or (time.median_us, time.name) < (known.median_us, known.name):
            fastest[key] = time
    return fastest


def with_vendors(entries: Iterable[BestEntry], times: Mapping[tuple[str, str, str], VendorTime], races: Iterable[RaceRecord] = ()) -> tuple[BestEntry, ...]:
    """The entries, each with the fastest vendor's time.

    Args:
        entries: any.
        times: of vendors by themselves, by workload key, target key and protocol.
        races: where an entry won some of these against vendors, the vendor's time is the entry's, multiplied by the ratio of the two in the race.
    """
    keys = Keys()
    ratios = vendor_ratios(races, keys)
    named: list[BestEntry] = []
    for entry in entries:
        key = (keys.workload(entry.workload), keys.target(entry.target), entry.pins.protocol)
        raced = ratios.get((*key, (config_key(entry.config), entry.pins.source)))
        if raced:
            ratio, name = min((ratio, name) for name, ratio in raced.items())
            time: VendorTime | None = VendorTime(name=name, median_us=round(entry.median_us * ratio, 3))
        else:
            time = times.get(key)
        named.append(entry if time is None else msgspec.structs.replace(entry, vendor=time))
    return tuple(named)
