"""Lint of large logs: lines in which nothing is wrong are told in runs, the others one at a time, to the same `Lint`."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, Literal

import msgspec

from tilewright.bulk.best import Known
from tilewright.bulk.parts import Part, blocks_of, fold_parts, parts_of, processes
from tilewright.codec import decode_line
from tilewright.errors import LogDamaged, SchemaTooNew, UsageError
from tilewright.identity import Keys
from tilewright.lint import NEVER_RAN, Finding, FloorUs, Inspect, Lint, Reached, damaged
from tilewright.log import collector_paused
from tilewright.record import (
    SCHEMA,
    Check,
    Measurement,
    RaceRecord,
    Record,
    RecordedSpace,
    Resources,
    SessionEnd,
    SessionStart,
    Status,
    Value,
    VendorRecord,
)
from tilewright.target import Target, Toolchain
from tilewright.workload import Workload

Templates = Mapping[str, frozenset[str]]


class _Trial(msgspec.Struct, frozen=True, gc=False, tag_field="kind", tag="trial"):
    """A record, checked field by field, but for what repeats from line to line: that is checked once for each text."""

    schema: Literal[1]
    session: str
    trial: int
    workload: msgspec.Raw
    target: msgspec.Raw
    config: dict[str, Value]
    status: Status
    message: str = ""
    toolchain: msgspec.Raw = msgspec.Raw(b"{}")
    template: str = ""
    source: str = ""
    binary: str = ""
    measurement: Measurement | None = None
    check: Check | None = None
    resources: Resources | None = None
    build_s: float = 0.0
    default: bool = False


class _Start(msgspec.Struct, frozen=True, gc=False, tag_field="kind", tag="start"):
    schema: Literal[1]
    workload: msgspec.Raw
    config: dict[str, Value]
    session: str = ""


_DECODER: Final = msgspec.json.Decoder(_Trial | _Start | VendorRecord | RaceRecord | SessionStart | SessionEnd)
_WORKLOAD: Final = msgspec.json.Decoder(Workload)
_TARGET: Final = msgspec.json.Decoder(Target)
_TOOLCHAIN: Final = msgspec.json.Decoder(Toolchain)


class _Fold:
    """What a part comes to: items in the order of its lines, which `lint_file` tells to a `Lint`.

    Items are `["run", session, trials, numbers, starts]`, `["begin", number, session]`, `["end", number, session, trials]`,
    `["vendor", number, session, name, workload]`, and `["line", number, raw]` for a line that wants a closer look. Numbers count
    from the part's first line.
    """

    def __init__(self, floor_us: FloorUs, templates: Templates) -> None:
        self._known = Known()
        self._keys = Keys()
        self._least: dict[tuple[str, str], float] = {}
        self._floor_us = floor_us
        self._templates = templates
        self._floors: dict[tuple[bytes, bytes], tuple[str, str, float, frozenset[str] | None, str]] = {}
        self._toolchains: dict[bytes, bool] = {}
        self._items: list[list[Any]] = []
        self._session = ""
        self._trials = array("q")
        self._numbers = array("q")
        self._starts = array("q")
        self._blank = 0
        self._stale: dict[tuple[str, str], list[int]] = {}
        # By keys: count, first line, best time, its line, its text.
        self._groups: dict[tuple[str, str, str], list[Any]] = {}

    def result(self, lines: int) -> dict[str, Any]:
        """Plain values for `fold_parts`."""
        self._flush()
        return {
            "lines": lines,
            "blank": self._blank,
            "items": self._items,
            "stale": [(*key, *counts) for key, counts in self._stale.items()],
            "groups": [(*key, *group) for key, group in self._groups.items()],
        }

    def _flush(self) -> None:
        if self._trials or self._starts:
            self._items.append(["run", self._session, self._trials.tobytes(), self._numbers.tobytes(), self._starts.tobytes()])
            self._trials, self._numbers, self._starts = array("q"), array("q"), array("q")

    def _enter(self, session: str) -> None:
        if session != self._session:
            self._flush()
            self._session = session

    def block(self, number: int, block: bytes) -> int:
        """Take a block whose first line has a number; how many lines it has, blank ones too."""
        count = block.count(b"\n") + 1
        try:
            lines = _DECODER.decode_lines(block)
        except (msgspec.MsgspecError, UsageError, ValueError, RecursionError):
            lines = []
        if len(lines) != count:  # something else is in it: blank lines, damage, another kind or schema
            for at, raw in enumerate(block.split(b"\n"), number):
                if raw and not raw.isspace():
                    self._single(at, raw)
                else:
                    self._blank += 1
            return count
        best: dict[tuple[str, str, str], int] = {}
        raws: list[bytes] = []
        clean, known = self._clean, self._known.workload
        for at, line in enumerate(lines, number):
            if line.__class__ is _Trial:
                if not clean(at, line, best):
                    raws = raws or block.split(b"\n")
                    self._suspect(at, raws[at - number])
            elif line.__class__ is _Start:
                if not known(bytes(line.workload)):
                    raws = raws or block.split(b"\n")
                    self._suspect(at, raws[at - number])
                else:
                    self._enter(line.session)
                    self._starts.append(at)
            else:
                self._other(at, line)
        if best:
            raws = raws or block.split(b"\n")
            for key, at in best.items():
                self._groups[key][4] = raws[at - number]
        return count

    def _single(self, at: int, raw: bytes) -> None:
        """A line by itself, in a block that holds something else."""
        try:
            line = _DECODER.decode(raw)
        except (msgspec.MsgspecError, UsageError, ValueError, RecursionError):
            self._suspect(at, raw)
            return
        if line.__class__ is _Trial:
            best: dict[tuple[str, str, str], int] = {}
            if not self._clean(at, line, best):
                self._suspect(at, raw)
            for key in best:
                self._groups[key][4] = raw
        else:
            self._suspect(at, raw)

    def _suspect(self, at: int, raw: bytes) -> None:
        self._flush()
        self._items.append(["line", at, raw])

    def _other(self, at: int, line: Any) -> None:
        self._flush()
        if line.schema == SCHEMA and isinstance(line, SessionStart):
            self._items.append(["begin", at, line.session])
        elif line.schema == SCHEMA and isinstance(line, SessionEnd):
            self._items.append(["end", at, line.session, line.trials])
        elif line.schema == SCHEMA and isinstance(line, VendorRecord) and self._right_vendor(line):
            self._items.append(["vendor", at, line.session, line.name, self._keys.workload(line.workload)])
        else:
            self._items.append(["line", at, msgspec.json.encode(line, enc_hook=dict)])

    def _right_vendor(self, line: VendorRecord) -> bool:
        time = line.measurement
        if line.status is not Status.OK or time is None or not 0 < time.min_us <= time.median_us <= time.max_us:
            return False
        if time.samples < 1 or (time.times_us and len(time.times_us) != time.samples):
            return False
        place = (self._keys.workload(line.workload), self._keys.target(line.target))
        if place not in self._least:
            self._least[place] = self._least_us(line.workload, line.target)
        return time.median_us >= self._least[place]

    def _least_us(self, workload: Workload, target: Target) -> float:
        return 0.0 if target.backend == "interpreter" else self._floor_us(workload, target) or 0.0

    def _clean(self, at: int, line: _Trial, best: dict[tuple[str, str, str], int]) -> bool:
        """Whether nothing is wrong with a record by itself; then it is taken."""
        place = (bytes(line.workload), bytes(line.target))
        about = self._floors.get(place)
        if about is None:
            about = self._floors[place] = self._about(*place)
        workload, target, floor, templates, operator = about
        if not workload or not target:
            return False
        toolchain = bytes(line.toolchain)
        if not (self._toolchains.get(toolchain) or self._check_toolchain(toolchain)):
            return False
        time, status, trial = line.measurement, line.status, line.trial
        if trial < 0 or trial >= 1 << 62 or line.build_s < 0:
            return False
        if time is None:
            if status is Status.OK or not line.message or (line.check is not None and status in NEVER_RAN):
                return False
        elif (
            not 0 < time.min_us <= time.median_us <= time.max_us
            or time.samples < 1
            or (time.times_us and len(time.times_us) != time.samples)
            or (status is not Status.OK and (not line.message or status in NEVER_RAN))
            or (status is Status.OK and time.median_us < floor)
        ):
            return False
        self._enter(line.session)
        self._trials.append(trial)
        self._numbers.append(at)
        if templates is not None and line.template and line.template not in templates:
            counts = self._stale.setdefault((operator, line.template), [0, at])
            counts[0] += 1
        if time is not None and status is Status.OK:
            key = (workload, target, time.protocol)
            us = time.median_us if time.anchor is None else time.ranked_us
            group = self._groups.get(key)
            if group is None:
                self._groups[key] = [1, at, us, at, b""]
                best[key] = at
            else:
                group[0] += 1
                if us < group[2]:
                    group[2], group[3] = us, at
                    best[key] = at
        return True

    def _about(self, workload: bytes, target: bytes) -> tuple[str, str, float, frozenset[str] | None, str]:
        """Keys, least time and today's templates for the texts of a workload and a target."""
        keys = (self._known.workload(workload), self._known.target(target))
        if not all(keys):
            return (*keys, 0.0, None, "")
        decoded, device = _WORKLOAD.decode(workload), _TARGET.decode(target)
        return (*keys, self._least_us(decoded, device), self._templates.get(decoded.operator), decoded.operator)

    def _check_toolchain(self, raw: bytes) -> bool:
        try:
            _TOOLCHAIN.decode(raw)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            return False
        self._toolchains[raw] = True
        return True


class Whole(Exception):
    """A log that holds a recorded space, which only all of its records together can be matched with."""


def lint_file(path: Path, *, floor_us: FloorUs, templates: Templates, inspect: Inspect | None = None) -> tuple[int, tuple[Finding, ...]]:
    """How many lines of a log can be read, and the findings that `lint` gives for it.

    Args:
        path: a log, not compressed.
        floor_us, templates, inspect: as for `lint`; an operator that `floor_us` does not know has no least time.

    Raises:
        Whole: it holds a recorded space.
        SchemaTooNew: a line has a newer schema.
        LogError, HostError: the log cannot be read.
    """

    def fold(part: Part) -> dict[str, Any]:
        folded = _Fold(floor_us, templates)
        number = 1
        with collector_paused():
            for _, block in blocks_of(part):
                number += folded.block(number, block)
        return folded.result(number - 1)

    count = processes()
    checks = Lint(floor_us, templates, inspect)
    findings: list[Finding] = []
    readable = before = 0
    for answer in fold_parts(parts_of([path], count), fold, count):
        readable += answer["lines"] - answer["blank"]
        with collector_paused():
            _tell(path, answer, before, checks, findings)
        before += answer["lines"]
    readable -= sum(finding.rule == "damage" for finding in findings)
    findings.extend(checks.rest())
    return readable, tuple(sorted(findings, key=lambda finding: (finding.number, finding.rule, finding.message)))


def _tell(path: Path, answer: Mapping[str, Any], before: int, checks: Lint, findings: list[Finding]) -> None:
    for item in answer["items"]:
        findings.extend(_findings(path, item, before, checks))
    for operator, template, count, first in answer["stale"]:
        checks.template(before + first, operator, template, count)
    for workload, target, protocol, count, first, us, number, raw in answer["groups"]:
        record = decode_line(raw)
        assert isinstance(record, Record)
        checks.reached((workload, target, protocol), Reached(count=count, first=before + first, best_us=us, number=before + number, record=record))


def _findings(path: Path, item: list[Any], before: int, checks: Lint) -> Iterator[Finding]:
    match item:
        case ["run", session, trials, numbers, starts]:
            lines = [array("q", packed) for packed in (numbers, starts)]
            if before:
                lines = [array("q", (number + before for number in some)) for some in lines]
            yield from checks.run(session, array("q", trials), *lines)
        case ["begin", number, session]:
            yield from checks.begin(before + number, session)
        case ["end", number, session, trials]:
            yield from checks.end(before + number, session, trials)
        case ["vendor", number, session, name, workload]:
            yield from checks.vendor(before + number, (session, name, workload))
        case ["line", number, raw]:
            try:
                line = decode_line(raw)
            except SchemaTooNew as error:
                raise SchemaTooNew(f"{path}, line {before + number}: {error}") from error
            except LogDamaged as error:
                yield damaged(before + number, str(error))
                return
            if isinstance(line, RecordedSpace):
                raise Whole
            yield from checks.line(before + number, line)
