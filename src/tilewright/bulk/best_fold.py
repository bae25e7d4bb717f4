"""A share of a log as choosing the best takes it: times by workload, target, protocol and template, and the few lines that decide among them."""

from __future__ import annotations

import json
from array import array
from collections.abc import Iterable
from math import inf
from typing import Annotated, Any, Final, Literal

import msgspec

from tilewright.bulk.candidates import LINE_BITS, NEAR_US, GroupKey
from tilewright.bulk.known import Known
from tilewright.bulk.other_lines import Race, Vendor
from tilewright.bulk.parts import Part, filled_lines, views_of
from tilewright.bulk.raced import Races
from tilewright.codec import decode_line
from tilewright.errors import LogDamaged, UsageError
from tilewright.identity import Keys
from tilewright.log import collector_paused
from tilewright.measured import TimeUs
from tilewright.races import WRONG
from tilewright.record import Line, RaceRecord, Record, Status, VendorRecord
from tilewright.target import Target
from tilewright.workload import Workload


class _Anchor(msgspec.Struct, frozen=True, gc=False):
    median_us: Annotated[float, msgspec.Meta(ge=0)]
    nominal_us: TimeUs


class _Time(msgspec.Struct, frozen=True, gc=False):
    protocol: str
    median_us: TimeUs
    anchor: _Anchor | None = None
    anchored_us: TimeUs | None = None


class Slim(msgspec.Struct, frozen=True, gc=False, tag_field="kind", tag="trial"):
    """What choosing needs of a record. The rest is checked where it may win."""

    schema: Literal[1]
    workload: msgspec.Raw
    target: msgspec.Raw
    status: Status
    message: str = ""
    template: str = ""
    source: str = ""
    measurement: _Time | None = None


class _Start(msgspec.Struct, frozen=True, gc=False, tag_field="kind", tag="start"):
    schema: Literal[1]


class Session(msgspec.Struct, frozen=True, gc=False, tag_field="kind", tag="session"):
    """A session's first line."""

    schema: Literal[1]
    session: str = ""


class End(msgspec.Struct, frozen=True, gc=False, tag_field="kind", tag="end"):
    """A session's last line."""

    schema: Literal[1]
    session: str = ""


# A block of these alone is decoded in one go; one with a damaged line, or one of another schema, line by line.
_SLIM: Final[msgspec.json.Decoder[Any]] = msgspec.json.Decoder(list[Slim | _Start | Session | End | Vendor | Race])

_NONE: Final = msgspec.Raw(b"")
# How often groups are put by, and from how many records on. guess: what 64 MB of records leave in lists, 2 MB, is still in some cache
_PUT_BY_BLOCKS: Final = 512
_PUT_BY_RECORDS: Final = 32


def _text(value: Workload | Target) -> bytes:
    return json.dumps(msgspec.to_builtins(value)).encode()  # msgspec writes no integers beyond 64 bits


class _Group:
    """Candidates of one workload, target, protocol and template: times, places, and hashes of their sources.

    They are appended to lists, and put by as arrays after many: an array takes twice the time of a list to append to, and numbers that have
    left the core's cache three times as long to put into one.

    Attributes:
        high: up to which time one is near the least so far.
    """

    __slots__ = ("_kept", "_near", "high", "places", "sources", "times")

    def __init__(self) -> None:
        self.times: list[float] = []
        self.places: list[int] = []
        self.sources: list[int] = []
        self.high = inf
        self._near: list[tuple[float, int]] = []
        self._kept = array("d"), array("q"), array("q")

    def __len__(self) -> int:
        return len(self._kept[0]) + len(self.times)

    def nearest(self, us: float) -> None:
        """Note that the next one's time is up to `high`: to look for such ones later takes a pass through all."""
        self._near.append((us, len(self)))
        self.high = min(self.high, us + NEAR_US)

    def put_by(self) -> None:
        """Make arrays of what lists hold."""
        times, places, sources = self._kept
        times.fromlist(self.times)
        places.fromlist(self.places)
        sources.fromlist(self.sources)
        self.times.clear()
        self.places.clear()
        self.sources.clear()

    def columns(self) -> tuple[bytes, bytes, bytes, list[int]]:
        """What was put by, in bytes, and positions of those near the least."""
        times, places, sources = (column.tobytes() for column in self._kept)
        return times, places, sources, [position for us, position in self._near if us <= self.high]


class Fold:
    """What the parts that a process takes come to: candidates by group, the lines that decide among them, vendors, and how many lines are damaged."""

    def __init__(self) -> None:
        self._part = 0  # its place among all parts, to which order is told by
        self._known = Known()
        self._keys = Keys()
        self._groups: dict[GroupKey, dict[str, _Group]] = {}  # then by template
        self._places: dict[tuple[bytes, str], dict[bytes, dict[str, _Group]]] = {}  # the same, by texts of target and workload
        self._deciding: list[tuple[int, bytes]] = []  # with the part's place
        self._races = Races()
        self._vendors: dict[GroupKey, tuple[float, str]] = {}
        self._vendor_count = 0
        self._damaged = 0

    def take(self, parts: Iterable[tuple[int, Part]]) -> dict[str, Any]:
        """Fold parts, each with its place among all; plain values for `share_out`."""
        files, starts = array("q"), array("q")  # of blocks, by their number
        with collector_paused():
            for self._part, part in parts:
                for offset, block, listed, count in views_of(part):
                    self.block(len(starts) << LINE_BITS, block, listed, count)
                    starts.append(offset)
                    files.append(part.file)
                    if len(starts) % _PUT_BY_BLOCKS == 0:
                        self._put_by(_PUT_BY_RECORDS)
                # Where the last one ends: no block has that number.
                starts.append(part.stop)
                files.append(part.file)
        self._put_by(1)
        whole = {key: group for key, group in self._groups.items() if key[0] and key[1]}
        return {
            "files": files.tobytes(),
            "starts": starts.tobytes(),
            "groups": [(*key, template, *group.columns()) for key, groups in whole.items() for template, group in groups.items()],
            "deciding": self._deciding,
            "races": self._races.plain(),
            "vendors": [(*key, name, us) for key, (us, name) in self._vendors.items()],
            "damaged": self._damaged + sum(len(group) for key, groups in self._groups.items() if key not in whole for group in groups.values()),
        }

    def _put_by(self, least: int) -> None:
        for groups in self._groups.values():
            for group in groups.values():
                if len(group.times) >= least:
                    group.put_by()

    def block(self, first: int, block: memoryview, listed: memoryview, count: int) -> None:
        """Take a block, as of `views_of`; `first` is the place of its first line. Nothing of it may be kept but copies."""
        try:
            lines = _SLIM.decode(listed)
            if len(lines) != count:
                raise ValueError("a line torn in two was read as one, and places no longer count")
        except (msgspec.MsgspecError, UsageError, ValueError, RecursionError):
            for place, raw in enumerate(filled_lines(bytes(block)), first):
                self._line(place, raw)
            return
        known = self._known
        # Next to each other, lines mostly agree in their target: comparing with the last, in place, spares copying and hashing some 500 bytes a record.
        # `b"" + raw` copies a text in 40 ns, `bytes(raw)` in 200 (CPython 3.11, 2026-11).
        target, protocol, ok = _NONE, "", Status.OK
        templates: dict[bytes, dict[str, _Group]] = {}  # by workload, for that target and protocol, then by template
        texts: list[bytes] = []
        for place, line in enumerate(lines, first):
            kind = type(line)
            if kind is Slim:
                time = line.measurement
                if time is not None and line.status is ok:
                    if line.target != target or time.protocol != protocol:
                        target, protocol = line.target, time.protocol
                        templates = self._places.setdefault((b"" + target, protocol), {})
                    of_templates = templates.get(b"" + line.workload)
                    if of_templates is None:
                        workload = b"" + line.workload
                        key = (known.workload(workload), known.target(b"" + target), protocol)
                        of_templates = templates[workload] = self._groups.setdefault(key, {})
                        self._placed(key[0], key[1], target)
                    group = of_templates.get(line.template)
                    if group is None:
                        group = of_templates[line.template] = _Group()
                    us = time.anchored_us
                    if us is None:
                        us, anchor = time.median_us, time.anchor
                        if anchor is not None and anchor.median_us:
                            anchored = us * anchor.nominal_us / anchor.median_us
                            us, place = anchored if anchored < inf else us, ~place
                    if us <= group.high:
                        group.nearest(us)
                    group.times.append(us)
                    group.places.append(place)
                    group.sources.append(hash(line.source))
                    continue
                self._failed(line)
                if line.status in WRONG:
                    texts = texts or filled_lines(bytes(block))
                    self._deciding.append((self._part, texts[place - first]))
            elif kind is _Start:
                pass
            elif kind is Vendor or kind is Race:
                workload_key, target_key = known.workload(b"" + line.workload), known.target(b"" + line.target)
                if not workload_key or not target_key:
                    self._damaged += 1
                elif kind is Vendor:
                    self._vendor(workload_key, target_key, line)
                elif not self._race((workload_key, target_key), b"" + line.workload, b"" + line.target, line):
                    texts = texts or filled_lines(bytes(block))
                    self._deciding.append((self._part, texts[place - first]))
            else:
                self._other(line)

    def _vendor(self, workload: str, target: str, line: Vendor | VendorRecord) -> None:
        """Remember a vendor if it is the fastest; by name where two are as fast, as `vendor_times` has it."""
        self._vendor_count += 1
        if line.status is Status.OK and line.measurement is not None:
            key, found = (workload, target, line.measurement.protocol), (line.measurement.ranked_us, line.name)
            self._vendors[key] = min(found, self._vendors.get(key, found))

    def _race(self, place: tuple[str, str], workload: bytes, target: bytes, race: Race | RaceRecord) -> bool:
        """Whether a race could be put to the others; where not, it is kept as it stands."""
        try:
            self._races.add(place, workload, target, race)
        except (ValueError, OverflowError, TypeError, IndexError):
            return False
        return True

    def _placed(self, workload: str, target: str, text: msgspec.Raw) -> None:
        """The first record that counts of a workload and a target by their texts: their keys, and the text of the target."""

    def _failed(self, line: Slim) -> None:
        """A record without a time that counts, in a block read in one go."""

    def _other(self, line: Session | End) -> None:
        """A session's first or last line, in such a block."""

    def _seen(self, line: Line) -> None:
        """Any line, in a block read line by line."""

    def _line(self, place: int, raw: bytes) -> None:
        try:
            line = decode_line(raw)
        except LogDamaged:
            self._damaged += 1
            return
        self._seen(line)
        if isinstance(line, VendorRecord):
            self._vendor(self._keys.workload(line.workload), self._keys.target(line.target), line)
        elif isinstance(line, RaceRecord):
            if not self._race((self._keys.workload(line.workload), self._keys.target(line.target)), _text(line.workload), _text(line.target), line):
                self._deciding.append((self._part, raw))
        elif isinstance(line, Record) and line.status in WRONG:
            self._deciding.append((self._part, raw))
        elif isinstance(line, Record) and line.status is Status.OK and line.measurement is not None:
            key = (self._keys.workload(line.workload), self._keys.target(line.target), line.measurement.protocol)
            group = self._groups.setdefault(key, {}).setdefault(line.template, _Group())
            if line.measurement.ranked_us <= group.high:
                group.nearest(line.measurement.ranked_us)
            group.times.append(line.measurement.ranked_us)
            group.places.append(place)
            group.sources.append(hash(line.source))
