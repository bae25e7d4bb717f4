"""The best known schedules, chosen from records. Nothing here depends on the order of lines."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Final

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
from tilewright.identity import Keys
from tilewright.record import Record, Status, VendorRecord, config_key

__all__ = [
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
    "parse_best",
    "parse_best_file",
    "protocol_rank",
    "rank",
    "vendor_times",
    "with_vendors",
]

# Verdicts that a schedule is wrong. One of them outweighs any number of passes of the same code: a race shows only sometimes.
WRONG: Final = frozenset({Status.WRONG_RESULT, Status.OUT_OF_BOUNDS})


def rank(record: Record) -> tuple[float, int, int, int, str, str]:
    """The order in which records of one workload, target and protocol are preferred, the best first.

    By median time; then by global scratch, spills and shared memory; then by the config's text and the source's hash, which says
    nothing of quality but leaves no tie.

    Raises:
        ValueError: the record has no measurement.
    """
    if record.measurement is None:
        raise ValueError(f"a record of status {record.status} has no time to rank by")
    needs = _needs(record)
    return (record.measurement.median_us, *needs, config_key(record.config), record.source)


def _needs(record: Record) -> tuple[int, int, int]:
    needs = record.resources
    return (needs.scratch_bytes, needs.spill_bytes or 0, needs.shared_memory_bytes) if needs is not None else (0, 0, 0)


def best_of(records: Iterable[Record]) -> dict[tuple[str, str, str], Record]:
    """The best record by (workload key, target key, protocol).

    A record counts if its status is ok and it has a time. A schedule whose same code was found wrong on the same workload and
    target, in any record, is left out.
    """
    keys = Keys()
    candidates: dict[tuple[str, str, str], list[Record]] = defaultdict(list)
    wrong: set[tuple[str, str, str, str]] = set()
    for record in records:
        workload, target = keys.workload(record.workload), keys.target(record.target)
        if record.status in WRONG:
            wrong.add((workload, target, config_key(record.config), record.source))
        elif record.status is Status.OK and record.measurement is not None:
            candidates[workload, target, record.measurement.protocol].append(record)
    chosen: dict[tuple[str, str, str], Record] = {}
    for (workload, target, protocol), group in sorted(candidates.items(), key=lambda item: item[0]):
        right = [record for record in group if (workload, target, config_key(record.config), record.source) not in wrong] if wrong else group
        if right:
            chosen[workload, target, protocol] = _least(right)
    return chosen


def _least(records: list[Record]) -> Record:
    fastest = min(_median_us(record) for record in records)
    # Equal in all that a rank sees, two records can still differ in pins or labels: their text decides.
    return min((record for record in records if _median_us(record) == fastest), key=lambda record: (rank(record), entry_text(entry_of(record))))


def _median_us(record: Record) -> float:
    assert record.measurement is not None
    return record.measurement.median_us


def best_entries(records: Iterable[Record]) -> tuple[BestEntry, ...]:
    """The entries of a best file: for each workload and target, the best record of the most trusted protocol.

    Times of two protocols are never compared: the protocol is chosen first.
    """
    return merge(entry_of(record) for record in best_of(records).values()).entries


def entry_of(record: Record) -> BestEntry:
    """The line of a best file that a timed record amounts to."""
    assert record.measurement is not None
    scratch, spills, shared = _needs(record)
    return BestEntry(
        workload=record.workload,
        target=record.target,
        config=record.config,
        median_us=record.measurement.median_us,
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
        time = VendorTime(name=vendor.name, median_us=vendor.measurement.median_us)
        known = fastest.get(key)
        if known is None or (time.median_us, time.name) < (known.median_us, known.name):
            fastest[key] = time
    return fastest


def with_vendors(entries: Iterable[BestEntry], times: Mapping[tuple[str, str, str], VendorTime]) -> tuple[BestEntry, ...]:
    """The entries, each with the fastest vendor's time by its own protocol."""
    keys = Keys()
    named: list[BestEntry] = []
    for entry in entries:
        time = times.get((keys.workload(entry.workload), keys.target(entry.target), entry.pins.protocol))
        named.append(entry if time is None else msgspec.structs.replace(entry, vendor=time))
    return tuple(named)
