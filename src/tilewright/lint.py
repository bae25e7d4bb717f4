"""What is wrong with a log: damage, and lines that can be read and cannot be true."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from operator import lt
from typing import Final, TypeVar

from tilewright.bestfile import protocol_rank
from tilewright.errors import LogError
from tilewright.finding import Finding, damaged, fault, race_faults
from tilewright.identity import Keys
from tilewright.lint_state import Reached, Trials
from tilewright.log import LogContents
from tilewright.record import (
    Line,
    Measurement,
    RaceRecord,
    Record,
    RecordedSpace,
    SessionEnd,
    SessionStart,
    Status,
    TrialStart,
    VendorRecord,
    config_key,
)
from tilewright.recorded_space import RecordedSearchSpace
from tilewright.target import Target
from tilewright.workload import Workload

_K = TypeVar("_K")

# Statuses of candidates that never ran, so that a time or a verdict beside one was not measured.
NEVER_RAN: Final = frozenset({Status.COMPILE_ERROR, Status.COMPILE_TIMEOUT, Status.OUT_OF_RESOURCES, Status.LAUNCH_ERROR})

# Least possible time in µs of a workload on a target by its operator's flops and bytes; None where its costs are not known.
FloorUs = Callable[[Workload, Target], float | None]
# What is wrong with a record in a line that a look-up reaches.
Inspect = Callable[[int, "Record"], "Iterator[Finding]"]


class Lint:
    """Goes over a log's lines in order. `floor_us`, `templates` and `inspect` as for `lint`."""

    def __init__(self, floor_us: FloorUs | None = None, templates: Mapping[str, frozenset[str]] | None = None, inspect: Inspect | None = None) -> None:
        self.keys = Keys()
        self._floor_us = floor_us
        self._floors: dict[tuple[str, str], float | None] = {}
        self._templates = templates
        self._inspect = inspect
        self._trials: dict[str, Trials] = {}
        self._reached: dict[tuple[str, str, str], Reached] = {}
        self._vendors: dict[tuple[str, str, str], int] = {}
        self._races: dict[tuple[str, str], int] = {}
        self._started: dict[str, int] = {}
        self._ended: dict[str, int] = {}
        self._counted: dict[str, int] = {}
        self._stale: dict[tuple[str, str], tuple[int, int]] = {}

    def line(self, number: int, line: Line) -> Iterator[Finding]:
        """Findings of one line, given those before it."""
        match line:
            case Record():
                yield from self._record(number, line)
            case VendorRecord():
                key = (line.session, line.name, self.keys.workload(line.workload))
                yield from self.vendor(number, key)
                yield from self._measured(number, line.status, line.measurement, line.message, line.workload, line.target)
            case SessionStart():
                yield from self.begin(number, line.session)
            case SessionEnd():
                yield from self.end(number, line.session, line.trials)
            case TrialStart():
                yield from self.belongs(number, line.session)
            case RaceRecord():
                yield from self.race(number, line.session, self.keys.workload(line.workload))
                yield from race_faults(number, line.racers, line.winner)
            case RecordedSpace():
                pass

    def _record(self, number: int, record: Record) -> Iterator[Finding]:
        yield from self._trial(number, record.session, record.trial)
        yield from self.belongs(number, record.session)
        yield from self._measured(number, record.status, record.measurement, record.message, record.workload, record.target)
        if record.status in NEVER_RAN and record.check is not None:
            yield fault(number, "status", f"status {record.status} with a correctness verdict, and such a candidate never ran")
        if record.trial < 0:
            yield fault(number, "trial", f"trial {record.trial} is below 0")
        if record.build_s < 0:
            yield fault(number, "time", f"build_s = {record.build_s} is below 0")
        self.template(number, record.workload.operator, record.template)
        if record.status is Status.OK and record.measurement is not None:
            key = (self.keys.workload(record.workload), self.keys.target(record.target), record.measurement.protocol)
            us = record.measurement.ranked_us
            self.reached(key, Reached(count=1, first=number, best_us=us, number=number, record=record))

    def _trial(self, number: int, session: str, trial: int) -> Iterator[Finding]:
        self._counted[session] = self._counted.get(session, 0) + 1
        first = self._trials.setdefault(session, Trials()).add(trial, number)
        if first is not None:
            yield fault(number, "duplicate", f"trial {trial} of session {session!r} stands twice, first in line {first}")

    def run(self, session: str, trials: Sequence[int], numbers: Sequence[int], starts: Sequence[int] = ()) -> Iterator[Finding]:
        """Trials of a session in the order of the log, with their lines and those of starts, in which nothing else is wrong."""
        ascending = isinstance(trials, range) or all(map(lt, trials, islice(trials, 1, None)))  # a range's step is 1
        seen = self._trials.setdefault(session, Trials())
        if session in self._started and session not in self._ended and ascending and (not trials or seen.add_run(trials, numbers)):
            self._counted[session] = self._counted.get(session, 0) + len(trials)
            return
        lines: list[tuple[int, int | None]] = [*zip(numbers, trials, strict=True), *((number, None) for number in starts)]
        for number, trial in sorted(lines, key=lambda line: line[0]):
            if trial is not None:
                yield from self._trial(number, session, trial)
            yield from self.belongs(number, session)

    def vendor(self, number: int, key: tuple[str, str, str]) -> Iterator[Finding]:
        """A vendor's record of a session, name and workload."""
        yield from self._repeated(self._vendors, key, number, f"vendor {key[1]!r} of {key[2]} stands twice in session {key[0]!r}")

    def begin(self, number: int, session: str) -> Iterator[Finding]:
        """A session's first line."""
        yield from self._repeated(self._started, session, number, f"session {session!r} begins twice")

    def end(self, number: int, session: str, trials: int) -> Iterator[Finding]:
        """A session's last line, with the records that it says it wrote."""
        yield from self._repeated(self._ended, session, number, f"session {session!r} ends twice")
        counted = self._counted.get(session, 0)
        if counted != trials:
            yield fault(number, "lost-records", f"session {session!r} says it wrote {trials} records; before its end the log has {counted}")
        yield from self.belongs(number, session)

    def template(self, number: int, operator: str, template: str, count: int = 1) -> None:
        """So many records come from a template, the first in this line."""
        current = self._templates.get(operator) if self._templates is not None and template else None
        if current is not None and template not in current:
            known = self._stale.get((operator, template), (0, number))
            self._stale[operator, template] = (known[0] + count, min(known[1], number))

    def reached(self, key: tuple[str, str, str], found: Reached) -> None:
        """Records of a workload key, target key and protocol."""
        known = self._reached.get(key)
        if known is None:
            self._reached[key] = found
            return
        known.count += found.count
        known.first = min(known.first, found.first)
        if (found.best_us, found.number) < (known.best_us, known.number):
            known.best_us, known.number, known.record = found.best_us, found.number, found.record

    def race(self, number: int, session: str, workload: str) -> Iterator[Finding]:
        """A race of a session and workload key."""
        yield from self.belongs(number, session)
        yield from self._repeated(self._races, (session, workload), number, f"a race of {workload} stands twice in session {session!r}")

    def _measured(self, number: int, status: Status, measurement: Measurement | None, message: str, workload: Workload, target: Target) -> Iterator[Finding]:
        if status is not Status.OK and not message:
            yield fault(number, "message", f"status {status} without a message")
        if measurement is None:
            if status is Status.OK:
                yield fault(number, "status", "status ok without a measurement")
            return
        if status in NEVER_RAN:
            yield fault(number, "status", f"status {status} with a time, and such a candidate never ran")
        if not 0 < measurement.min_us <= measurement.median_us <= measurement.max_us:
            yield fault(
                number,
                "time",
                f"times out of order: min {measurement.min_us}, median {measurement.median_us}, max {measurement.max_us} µs; all must be above 0 and rising",
            )
        if measurement.samples < 1 or (measurement.times_us and len(measurement.times_us) != measurement.samples):
            yield fault(number, "time", f"samples = {measurement.samples} and {len(measurement.times_us)} times kept")
        if measurement.anchor is not None and not (measurement.anchor.median_us > 0 and measurement.anchor.nominal_us > 0):
            yield fault(number, "time", f"an anchor of {measurement.anchor.median_us} µs, nominally {measurement.anchor.nominal_us}; both must be above 0")
        floor = self._floor(workload, target)
        if status is Status.OK and floor is not None and measurement.median_us < floor:
            yield fault(
                number,
                "impossible",
                f"{measurement.median_us} µs is under the roofline's {floor:.4g} µs for {self.keys.workload(workload)} on {target.name}; "
                "it should have status impossible",
            )

    def _floor(self, workload: Workload, target: Target) -> float | None:
        if self._floor_us is None or target.backend == "interpreter":
            return None
        key = (self.keys.workload(workload), self.keys.target(target))
        if key not in self._floors:
            self._floors[key] = self._floor_us(workload, target)
        return self._floors[key]

    def belongs(self, number: int, session: str) -> Iterator[Finding]:
        """A line of a session stands here."""
        if session not in self._started:
            yield fault(number, "session", f"session {session!r} has no line of kind `session` before this one")
            self._started[session] = number  # said once
        elif session in self._ended and self._ended[session] < number:
            yield fault(number, "session", f"session {session!r} ended in line {self._ended[session]}")

    @staticmethod
    def _repeated(seen: dict[_K, int], key: _K, number: int, message: str) -> Iterator[Finding]:
        if key in seen:
            yield fault(number, "duplicate", f"{message}, first in line {seen[key]}")
        else:
            seen[key] = number

    def rest(self) -> Iterator[Finding]:
        """What only the whole log shows."""
        for session, number in self._started.items():
            if session not in self._ended:
                yield Finding(number=number, rule="interrupted", severity="note", message=f"session {session!r} did not end in order; --resume goes on from it")
        for (operator, template), (count, first) in self._stale.items():
            yield Finding(
                number=first,
                rule="stale",
                severity="note",
                message=f"{count} record(s) of {operator} from template {template[:12]}, which is none of today's: they answer no look-up",
            )
        yield from self._unreached()

    def _unreached(self) -> Iterator[Finding]:
        """Records that no look-up reaches, and what is wrong with those that one does."""
        for (workload, target), (trusted, *others) in self._protocols().items():
            for protocol in others:
                found = self._reached[workload, target, protocol]
                message = f"{found.count} record(s) of {workload} on {found.record.target.name} by {protocol} are shadowed by those by {trusted}"
                yield Finding(number=found.first, rule="shadowed", severity="note", message=message)
        if self._inspect is not None:
            for number, record in self.looked_up():
                yield from self._inspect(number, record)

    def looked_up(self) -> Iterator[tuple[int, Record]]:
        """The record that a look-up reaches, of each workload and target, with its line."""
        for (workload, target), (trusted, *_) in self._protocols().items():
            best = self._reached[workload, target, trusted]
            yield best.number, best.record

    def _protocols(self) -> dict[tuple[str, str], list[str]]:
        """By which each workload and target was timed, the most trusted first."""
        protocols: dict[tuple[str, str], list[str]] = {}
        for workload, target, protocol in self._reached:
            protocols.setdefault((workload, target), []).append(protocol)
        return {place: sorted(names, key=protocol_rank) for place, names in protocols.items()}


def lint(
    contents: LogContents, *, floor_us: FloorUs | None = None, templates: Mapping[str, frozenset[str]] | None = None, inspect: Inspect | None = None
) -> tuple[Finding, ...]:
    """All findings of a log, by line.

    Args:
        contents: the log, as read.
        floor_us: least possible time of a workload on a target, where its operator is known.
        templates: hashes of today's templates by operator; records from others are told as stale. Operators not in it are skipped.
        inspect: asked of the best record of each workload and target, which a look-up reaches, what is wrong with it.
    """
    checks = Lint(floor_us, templates, inspect)
    findings = [damaged(damage.number, damage.reason) for damage in contents.damage]
    for number, line in zip(contents.numbers, contents.lines, strict=True):
        findings.extend(checks.line(number, line))
    findings.extend(checks.rest())
    findings.extend(_spaces(contents))
    return tuple(sorted(findings, key=lambda finding: (finding.number, finding.rule, finding.message)))


def _spaces(contents: LogContents) -> Iterator[Finding]:
    """Records that do not fit the recorded space of their operator."""
    spaces = {line.operator: (number, line) for number, line in zip(contents.numbers, contents.lines, strict=True) if isinstance(line, RecordedSpace)}
    for operator, (number, space) in spaces.items():
        configs: dict[str, dict[str, Record]] = {}
        for line in contents.lines:
            if isinstance(line, Record) and line.workload.operator == operator:
                configs.setdefault(line.workload.key, {})[config_key(line.config)] = line
        for records in configs.values():
            try:
                RecordedSearchSpace(space.knobs, (record.config for record in records.values()))
            except LogError as error:
                yield fault(number, "space", str(error))
