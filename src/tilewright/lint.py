"""What is wrong with a log: damage, and lines that can be read and cannot be true."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, Literal, TypeVar

from tilewright.errors import LogError
from tilewright.identity import Keys
from tilewright.log import LogContents
from tilewright.record import Line, Measurement, Record, RecordedSpace, SessionEnd, SessionStart, Status, TrialStart, VendorRecord, config_key
from tilewright.recorded_space import RecordedSearchSpace
from tilewright.target import Target
from tilewright.workload import Workload

Severity = Literal["fault", "note"]
_K = TypeVar("_K")

# Statuses of candidates that never ran, so that a time or a verdict beside one was not measured.
_NEVER_RAN: Final = frozenset({Status.COMPILE_ERROR, Status.COMPILE_TIMEOUT, Status.OUT_OF_RESOURCES, Status.LAUNCH_ERROR})

# Least possible time in µs of a workload on a target by its operator's flops and bytes; None where its costs are not known.
FloorUs = Callable[[Workload, Target], float | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """Something lint found.

    Attributes:
        number: of the line, from 1.
        rule: short name, stable for scripts.
        severity: a `fault` fails the lint; a `note` is worth knowing.
        message: what is wrong.
    """

    number: int
    rule: str
    severity: Severity
    message: str


class _Lint:
    def __init__(self, floor_us: FloorUs | None, templates: Mapping[str, frozenset[str]] | None) -> None:
        self.keys = Keys()
        self._floor_us = floor_us
        self._floors: dict[tuple[str, str], float | None] = {}
        self._templates = templates
        self._trials: dict[tuple[str, int], int] = {}
        self._vendors: dict[tuple[str, str, str], int] = {}
        self._started: dict[str, int] = {}
        self._ended: dict[str, int] = {}
        self._counted: dict[str, int] = {}
        self._stale: dict[tuple[str, str], list[int]] = {}

    def line(self, number: int, line: Line) -> Iterator[Finding]:
        """Findings of one line, given those before it."""
        match line:
            case Record():
                yield from self._record(number, line)
            case VendorRecord():
                key = (line.session, line.name, self.keys.workload(line.workload))
                yield from self._repeated(self._vendors, key, number, f"vendor {line.name!r} of {key[2]} stands twice in session {line.session!r}")
                yield from self._measured(number, line.status, line.measurement, line.message, line.workload, line.target)
            case SessionStart():
                yield from self._repeated(self._started, line.session, number, f"session {line.session!r} begins twice")
            case SessionEnd():
                yield from self._repeated(self._ended, line.session, number, f"session {line.session!r} ends twice")
                counted = self._counted.get(line.session, 0)
                if counted != line.trials:
                    yield _fault(number, "lost-records", f"session {line.session!r} says it wrote {line.trials} records; before its end the log has {counted}")
                yield from self._belongs(number, line.session)
            case TrialStart():
                yield from self._belongs(number, line.session)
            case RecordedSpace():
                pass

    def _record(self, number: int, record: Record) -> Iterator[Finding]:
        self._counted[record.session] = self._counted.get(record.session, 0) + 1
        key = (record.session, record.trial)
        yield from self._repeated(self._trials, key, number, f"trial {record.trial} of session {record.session!r} stands twice")
        yield from self._belongs(number, record.session)
        yield from self._measured(number, record.status, record.measurement, record.message, record.workload, record.target)
        if record.status in _NEVER_RAN and record.check is not None:
            yield _fault(number, "status", f"status {record.status} with a correctness verdict, and such a candidate never ran")
        if record.trial < 0:
            yield _fault(number, "trial", f"trial {record.trial} is below 0")
        if record.build_s < 0:
            yield _fault(number, "time", f"build_s = {record.build_s} is below 0")
        if self._templates is not None and record.template:
            current = self._templates.get(record.workload.operator)
            if current is not None and record.template not in current:
                self._stale.setdefault((record.workload.operator, record.template), []).append(number)

    def _measured(self, number: int, status: Status, measurement: Measurement | None, message: str, workload: Workload, target: Target) -> Iterator[Finding]:
        if status is not Status.OK and not message:
            yield _fault(number, "message", f"status {status} without a message")
        if measurement is None:
            if status is Status.OK:
                yield _fault(number, "status", "status ok without a measurement")
            return
        if status in _NEVER_RAN:
            yield _fault(number, "status", f"status {status} with a time, and such a candidate never ran")
        if not 0 < measurement.min_us <= measurement.median_us <= measurement.max_us:
            yield _fault(
                number,
                "time",
                f"times out of order: min {measurement.min_us}, median {measurement.median_us}, max {measurement.max_us} µs; all must be above 0 and rising",
            )
        if measurement.samples < 1 or (measurement.times_us and len(measurement.times_us) != measurement.samples):
            yield _fault(number, "time", f"samples = {measurement.samples} and {len(measurement.times_us)} times kept")
        floor = self._floor(workload, target)
        if status is Status.OK and floor is not None and measurement.median_us < floor:
            yield _fault(
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

    def _belongs(self, number: int, session: str) -> Iterator[Finding]:
        if session not in self._started:
            yield _fault(number, "session", f"session {session!r} has no line of kind `session` before this one")
            self._started[session] = number  # said once
        elif session in self._ended and self._ended[session] < number:
            yield _fault(number, "session", f"session {session!r} ended in line {self._ended[session]}")

    @staticmethod
    def _repeated(seen: dict[_K, int], key: _K, number: int, message: str) -> Iterator[Finding]:
        if key in seen:
            yield _fault(number, "duplicate", f"{message}, first in line {seen[key]}")
        else:
            seen[key] = number

    def rest(self) -> Iterator[Finding]:
        """What only the whole log shows."""
        for session, number in self._started.items():
            if session not in self._ended:
                yield Finding(number=number, rule="interrupted", severity="note", message=f"session {session!r} did not end in order; --resume goes on from it")
        for (operator, template), numbers in self._stale.items():
            yield Finding(
                number=numbers[0],
                rule="stale",
                severity="note",
                message=f"{len(numbers)} record(s) of {operator} from template {template[:12]}, which is none of today's: they answer no look-up",
            )


def _fault(number: int, rule: str, message: str) -> Finding:
    return Finding(number=number, rule=rule, severity="fault", message=message)


def lint(contents: LogContents, *, floor_us: FloorUs | None = None, templates: Mapping[str, frozenset[str]] | None = None) -> tuple[Finding, ...]:
    """All findings of a log, by line.

    Args:
        contents: the log, as read.
        floor_us: least possible time of a workload on a target, where its operator is known.
        templates: hashes of today's templates by operator; records from others are told as stale. Operators not in it are skipped.
    """
    checks = _Lint(floor_us, templates)
    findings = [_fault(damage.number, "damage", damage.reason) for damage in contents.damage]
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
                yield _fault(number, "space", str(error))
