"""The best known schedules: chosen from records, written as canonical text, merged. Nothing here depends on the order of lines."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

import msgspec

from tilewright.canonical import canonical_json
from tilewright.errors import LogDamaged, SchemaTooNew, UsageError
from tilewright.identity import Keys
from tilewright.record import Record, Status, Value, config_key
from tilewright.target import Target
from tilewright.workload import Workload

BEST_SCHEMA: Final = 1

# Where one workload on one target was timed by several protocols. Graph replay sees the GPU alone; event timing of a kernel under
# some 40 µs reads the host (H200, November 2026, docs/decisions/0003), so it ranks below. Recordings and others come between.
_PROTOCOL_RANKS: Final = {"graph": 0, "events": 2, "interpreter": 3}
_OTHER_PROTOCOL_RANK: Final = 1
_VERSION: Final = re.compile(r"(.*)/(\d+)")

# Verdicts that a schedule is wrong. One of them outweighs any number of passes of the same code: a race shows only sometimes.
_WRONG: Final = frozenset({Status.WRONG_RESULT, Status.OUT_OF_BOUNDS})


class Pins(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a best entry was true of.

    Attributes:
        protocol: timing protocol.
        source: SHA-256 of the rendered module; empty for a recording.
        template: SHA-256 of the template's text; empty for a recording.
        triton: minor version (`3.6`); empty where not known.
        driver: driver branch (`580`); empty where not known.
    """

    protocol: str
    source: str = ""
    template: str = ""
    triton: str = ""
    driver: str = ""


class BestEntry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="kind", tag="best"):
    """One line of a best file: the schedule to run for a workload on a target.

    Attributes:
        schema: of the best file's format.
        median_us: expected time of a call.
        scratch_bytes, spill_bytes, shared_memory_bytes: what the schedule needs; less of it wins a tie.
    """

    schema: int = msgspec.field(default_factory=lambda: BEST_SCHEMA)
    workload: Workload
    target: Target
    config: dict[str, Value]
    median_us: float
    pins: Pins
    scratch_bytes: int = 0
    spill_bytes: int = 0
    shared_memory_bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Merged:
    """Best files put together.

    Attributes:
        entries: one for each workload and target, in canonical order.
        conflicts: pairs of the entry taken and one it beat, where they name different schedules or pins.
    """

    entries: tuple[BestEntry, ...]
    conflicts: tuple[tuple[BestEntry, BestEntry], ...]


_Rank = tuple[float, int, int, int, str, str]
_DECODER: Final = msgspec.json.Decoder(BestEntry)


class _Header(msgspec.Struct, frozen=True):
    schema: int


_HEADER: Final = msgspec.json.Decoder(_Header)


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


def protocol_rank(protocol: str) -> tuple[int, str, int]:
    """The order in which protocols are believed, the best first: by kind, then the newer version."""
    match = _VERSION.fullmatch(protocol)
    name, version = (match[1], int(match[2])) if match else (protocol, 0)
    return (_PROTOCOL_RANKS.get(name, _OTHER_PROTOCOL_RANK), name, -version)


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
        if record.status in _WRONG:
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
    return min((record for record in records if _median_us(record) == fastest), key=lambda record: (rank(record), entry_text(_entry(record))))


def _median_us(record: Record) -> float:
    assert record.measurement is not None
    return record.measurement.median_us


def best_entries(records: Iterable[Record]) -> tuple[BestEntry, ...]:
    """The entries of a best file: for each workload and target, the best record of the most trusted protocol.

    Times of two protocols are never compared: the protocol is chosen first.
    """
    return merge(_entry(record) for record in best_of(records).values()).entries


def _entry(record: Record) -> BestEntry:
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


def entry_text(entry: BestEntry) -> str:
    """An entry as one line of canonical JSON, without the newline."""
    return canonical_json(msgspec.to_builtins(entry))


def best_text(entries: Iterable[BestEntry]) -> str:
    """A best file: one entry a line, in canonical order."""
    return "".join(f"{entry_text(entry)}\n" for entry in sorted(entries, key=_place))


def _place(entry: BestEntry) -> tuple[str, tuple[tuple[str, int | str], ...], str, str]:
    # Dims as numbers: M=16 stands before M=128.
    workload = entry.workload
    dims: tuple[tuple[str, int | str], ...] = tuple(sorted(workload.dims.items()))
    return (workload.operator, dims, workload.key, entry.target.key)


def merge(entries: Iterable[BestEntry]) -> Merged:
    """The union of entries, with one for each workload and target: that of the most trusted protocol, then the fastest.

    The outcome does not depend on the order of the entries.
    """
    keys = Keys()
    groups: dict[tuple[str, str], dict[str, BestEntry]] = defaultdict(dict)
    for entry in entries:
        groups[keys.workload(entry.workload), keys.target(entry.target)][entry_text(entry)] = entry
    taken: list[BestEntry] = []
    conflicts: list[tuple[BestEntry, BestEntry]] = []
    for group in groups.values():
        first, *others = sorted(group.values(), key=_preference)
        taken.append(first)
        conflicts += [(first, other) for other in others if (other.config, other.pins) != (first.config, first.pins)]
    taken.sort(key=_place)
    conflicts.sort(key=lambda pair: (_place(pair[0]), _preference(pair[1])))
    return Merged(entries=tuple(taken), conflicts=tuple(conflicts))


def _preference(entry: BestEntry) -> tuple[tuple[int, str, int], _Rank, str]:
    needs = (entry.scratch_bytes, entry.spill_bytes, entry.shared_memory_bytes)
    return (protocol_rank(entry.pins.protocol), (entry.median_us, *needs, config_key(entry.config), entry.pins.source), entry_text(entry))


def parse_best(text: str, origin: str = "best file") -> tuple[BestEntry, ...]:
    """Read a best file.

    Args:
        text: its contents.
        origin: named in error messages, such as the file's path.

    Raises:
        LogDamaged: a line is not an entry, or two entries are of one workload and target. Best files are reviewed: none is skipped.
        SchemaTooNew: an entry has a newer schema.
    """
    entries: list[BestEntry] = []
    seen: dict[tuple[str, str], int] = {}
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        entry = _parse_entry(line, f"{origin}, line {number}")
        key = (entry.workload.key, entry.target.key)
        if key in seen:
            raise LogDamaged(f"{origin}, line {number}: {key[0]} stands in line {seen[key]} too; merge them: tilewright best LOG... -o FILE")
        seen[key] = number
        entries.append(entry)
    return tuple(entries)


def _parse_entry(line: str, where: str) -> BestEntry:
    if line.startswith(("<<<<<<<", "=======", ">>>>>>>")):
        raise LogDamaged(f"{where}: a merge conflict; take the lines of both sides, or make the file again: tilewright best LOG... -o FILE")
    try:
        schema = _HEADER.decode(line).schema
        if schema > BEST_SCHEMA:
            raise SchemaTooNew(f"{where}: schema {schema}, and this Tilewright reads best files up to schema {BEST_SCHEMA}: upgrade Tilewright")
        return _DECODER.decode(line)
    except (msgspec.MsgspecError, UsageError, ValueError, RecursionError) as error:
        raise LogDamaged(f"{where}: not an entry of a best file ({error}); make the file again: tilewright best LOG... -o FILE") from error
