"""The best file's format: entries and ranges as canonical text, read strictly, merged in any order."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import Final

import msgspec

from tilewright.canonical import canonical_json
from tilewright.current import Templates, is_stale
from tilewright.errors import LogDamaged, SchemaTooNew, UsageError
from tilewright.identity import Keys
from tilewright.record import Value, config_key
from tilewright.target import Target
from tilewright.workload import Workload

BEST_SCHEMA: Final = 1

# Where one workload on one target was timed by several protocols. Graph replay sees the GPU alone; event timing of a kernel under
# some 40 µs reads the host (H200, November 2026, docs/decisions/0003), so it ranks below. Recordings and others come between.
_PROTOCOL_RANKS: Final = {"graph": 0, "events": 2, "interpreter": 3}
_OTHER_PROTOCOL_RANK: Final = 1
_VERSION: Final = re.compile(r"(.*)/(\d+)")


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


class VendorTime(msgspec.Struct, frozen=True, kw_only=True):
    """The fastest vendor's kernel for a workload, by the protocol of the entry that it stands in.

    Attributes:
        name: as in the operator's `VENDORS`, such as `torch.mm`.
        median_us: time of a call.
    """

    name: str
    median_us: float


class BestEntry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="kind", tag="best"):
    """One line of a best file: the schedule to run for a workload on a target.

    Attributes:
        schema: of the best file's format.
        median_us: expected time of a call.
        raced: whether the schedule won a race of finalists; one that did is preferred to one that did not.
        scratch_bytes, spill_bytes, shared_memory_bytes: what the schedule needs; less of it wins a tie.
        vendor: what a vendor's kernel takes, where one was measured.
    """

    schema: int = msgspec.field(default_factory=lambda: BEST_SCHEMA)
    workload: Workload
    target: Target
    config: dict[str, Value]
    median_us: float
    pins: Pins
    raced: bool = False
    scratch_bytes: int = 0
    spill_bytes: int = 0
    shared_memory_bytes: int = 0
    vendor: VendorTime | None = None


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """Extents of a dim that one schedule serves.

    Attributes:
        low, high: first and last of them.
        at: the tuned extent at which the config is in its template's space, and for which it is rendered.
        config: the schedule.
        pins: what it was true of there.
    """

    low: int
    high: int
    at: int
    config: dict[str, Value]
    pins: Pins


class BestRange(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="kind", tag="range"):
    """One line of a best file: which schedules serve a dim that varies at run time, all else being the same.

    Attributes:
        schema: of the best file's format.
        workload: all parameters but the dim's.
        dim: the dim that varies.
        steps: in ascending order, disjoint; extents in none of them are outside.
        default: serves the extents outside of all steps, holes between them too; None where they are a miss.
        tuned: extents that were measured.
    """

    schema: int = msgspec.field(default_factory=lambda: BEST_SCHEMA)
    workload: Workload
    target: Target
    dim: str
    steps: list[Step]
    tuned: list[int]
    default: Step | None = None

    def __post_init__(self) -> None:
        ends = [(step.low, step.high) for step in self.steps]
        if self.dim in self.workload.parameters:
            raise UsageError(f"a range over {self.dim} fixes {self.dim} too")
        if any(low < 1 or high < low for low, high in ends) or any(high >= low for (_, high), (low, _) in zip(ends, ends[1:], strict=False)):
            raise UsageError(f"a range over {self.dim} must have disjoint, ascending steps, not {ends}")


BestLine = BestEntry | BestRange


@dataclass(frozen=True, slots=True, kw_only=True)
class BestFile:
    """What a best file says.

    Attributes:
        entries: one for each workload and target, in canonical order.
        ranges: one for each dim, rest of the workload and target, in canonical order.
    """

    entries: tuple[BestEntry, ...]
    ranges: tuple[BestRange, ...] = ()

    @property
    def text(self) -> str:
        """The file: one line each, entries first."""
        return best_text(self.entries, self.ranges)


@dataclass(frozen=True, slots=True, kw_only=True)
class Merged:
    """Best files put together.

    Attributes:
        entries: one for each workload and target, in canonical order.
        conflicts: pairs of the entry taken and one it beat, where they name different schedules or pins.
        ranges: one for each dim, rest of the workload and target, in canonical order.
        range_conflicts: pairs of the range taken and one it beat.
    """

    entries: tuple[BestEntry, ...]
    conflicts: tuple[tuple[BestEntry, BestEntry], ...]
    ranges: tuple[BestRange, ...] = ()
    range_conflicts: tuple[tuple[BestRange, BestRange], ...] = ()


class _Header(msgspec.Struct, frozen=True):
    schema: int


_HEADER: Final = msgspec.json.Decoder(_Header)
_DECODER: Final = msgspec.json.Decoder(BestLine)


def protocol_rank(protocol: str) -> tuple[int, str, int]:
    """The order in which protocols are believed, the best first: by kind, then the newer version."""
    match = _VERSION.fullmatch(protocol)
    name, version = (match[1], int(match[2])) if match else (protocol, 0)
    return (_PROTOCOL_RANKS.get(name, _OTHER_PROTOCOL_RANK), name, -version)


def entry_text(entry: BestLine) -> str:
    """A line as canonical JSON, without the newline."""
    return canonical_json(msgspec.to_builtins(entry))


def best_text(entries: Iterable[BestEntry], ranges: Iterable[BestRange] = ()) -> str:
    """A best file: one line each, in canonical order, entries first."""
    lines: list[BestLine] = [*sorted(entries, key=place), *sorted(ranges, key=place)]
    return "".join(f"{entry_text(line)}\n" for line in lines)


def place(line: BestLine) -> tuple[str, tuple[tuple[str, int | str], ...], str, str, str]:
    """Where a line stands in its file. Dims go as numbers: M=16 stands before M=128."""
    workload = line.workload
    dims: tuple[tuple[str, int | str], ...] = tuple(sorted(workload.dims.items()))
    return (workload.operator, dims, workload.key, line.target.key, line.dim if isinstance(line, BestRange) else "")


def merge(entries: Iterable[BestEntry], ranges: Iterable[BestRange] = (), templates: Templates = MappingProxyType({})) -> Merged:
    """The union of best files' lines, with one for each key: one of today's templates where they are at hand, then that of the most
    trusted protocol, then one that a race chose, then the fastest.

    Of two ranges, the one tuned at more extents is taken, of today's templates first. The outcome does not depend on the order of the lines.
    """
    keys = Keys()
    groups: dict[tuple[str, str], dict[str, BestEntry]] = defaultdict(dict)
    for entry in entries:
        groups[keys.workload(entry.workload), keys.target(entry.target)][entry_text(entry)] = entry
    taken: list[BestEntry] = []
    conflicts: list[tuple[BestEntry, BestEntry]] = []
    for group in groups.values():
        first, *others = sorted(group.values(), key=partial(_preference, templates))
        vendors = [entry.vendor for entry in group.values() if entry.vendor is not None and entry.pins.protocol == first.pins.protocol]
        fastest = min(vendors, key=lambda vendor: (vendor.median_us, vendor.name), default=None)
        taken.append(first if fastest == first.vendor else msgspec.structs.replace(first, vendor=fastest))
        conflicts += [(first, other) for other in others if (other.config, other.pins) != (first.config, first.pins)]
    conflicts.sort(key=lambda pair: (place(pair[0]), _preference(templates, pair[1])))
    kept, range_conflicts = _merge_ranges(ranges, templates)
    return Merged(entries=tuple(sorted(taken, key=place)), conflicts=tuple(conflicts), ranges=kept, range_conflicts=range_conflicts)


def _merge_ranges(ranges: Iterable[BestRange], templates: Templates) -> tuple[tuple[BestRange, ...], tuple[tuple[BestRange, BestRange], ...]]:
    groups: dict[tuple[str, str, str], dict[str, BestRange]] = defaultdict(dict)
    for line in ranges:
        groups[line.workload.key, line.dim, line.target.key][entry_text(line)] = line
    ordered = [sorted(group.values(), key=partial(_range_preference, templates)) for group in groups.values()]
    ordered.sort(key=lambda group: place(group[0]))
    return tuple(group[0] for group in ordered), tuple((group[0], other) for group in ordered for other in group[1:])


def _range_preference(templates: Templates, line: BestRange) -> tuple[bool, tuple[int, str, int], int, str]:
    steps = (*line.steps, *([line.default] if line.default is not None else []))
    stale = any(is_stale(templates, line.workload.operator, step.pins.template) for step in steps)
    protocol = min((protocol_rank(step.pins.protocol) for step in line.steps), default=protocol_rank(""))
    return (stale, protocol, -len(line.tuned), entry_text(line))


def _preference(templates: Templates, entry: BestEntry) -> tuple[bool, tuple[int, str, int], bool, tuple[float, int, int, int, str, str], str]:
    needs = (entry.scratch_bytes, entry.spill_bytes, entry.shared_memory_bytes)
    stale = is_stale(templates, entry.workload.operator, entry.pins.template)
    order = (entry.median_us, *needs, config_key(entry.config), entry.pins.source)
    return (stale, protocol_rank(entry.pins.protocol), not entry.raced, order, entry_text(entry))


def parse_best(text: str, origin: str = "best file") -> tuple[BestEntry, ...]:
    """The entries of a best file, without its ranges.

    Raises:
        LogDamaged, SchemaTooNew: as `parse_best_file`.
    """
    return parse_best_file(text, origin).entries


def parse_best_file(text: str, origin: str = "best file") -> BestFile:
    """Read a best file.

    Args:
        text: its contents.
        origin: named in error messages, such as the file's path.

    Raises:
        LogDamaged: a line is neither entry nor range, or two are of one key. Best files are reviewed: none is skipped.
        SchemaTooNew: a line has a newer schema.
    """
    entries: list[BestEntry] = []
    ranges: list[BestRange] = []
    seen: dict[tuple[str, str, str], int] = {}
    keys = Keys()
    for number, raw in enumerate(text.split("\n"), 1):
        if not raw.strip():
            continue
        line = _parse_line(raw, f"{origin}, line {number}")
        key = (keys.workload(line.workload), keys.target(line.target), line.dim if isinstance(line, BestRange) else "")
        if key in seen:
            raise LogDamaged(f"{origin}, line {number}: {key[0]} stands in line {seen[key]} too; merge them: tilewright best LOG... -o FILE")
        seen[key] = number
        if isinstance(line, BestRange):
            ranges.append(line)
        else:
            entries.append(line)
    return BestFile(entries=tuple(entries), ranges=tuple(ranges))


def _parse_line(line: str, where: str) -> BestLine:
    if line.startswith(("<<<<<<<", "=======", ">>>>>>>")):
        raise LogDamaged(f"{where}: a merge conflict; take the lines of both sides, or make the file again: tilewright best LOG... -o FILE")
    try:
        schema = _HEADER.decode(line).schema
        if schema > BEST_SCHEMA:
            raise SchemaTooNew(f"{where}: schema {schema}, and this Tilewright reads best files up to schema {BEST_SCHEMA}: upgrade Tilewright")
        parsed: BestLine = _DECODER.decode(line)
    except (msgspec.MsgspecError, UsageError, ValueError, RecursionError) as error:
        raise LogDamaged(f"{where}: not an entry of a best file ({error}); make the file again: tilewright best LOG... -o FILE") from error
    times = [parsed.median_us, *([parsed.vendor.median_us] if parsed.vendor else [])] if isinstance(parsed, BestEntry) else []
    if times and min(times) <= 0:
        raise LogDamaged(f"{where}: median_us is {min(times):g}, and a time is above 0; make the file again: tilewright best LOG... -o FILE")
    return parsed
