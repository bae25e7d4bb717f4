"""Lint of large logs: lines in which nothing is wrong are told in runs, the others one at a time, to the same `Lint`."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from operator import itemgetter
from pathlib import Path
from typing import Any

from tilewright.bulk.lint_fold import LintFold
from tilewright.bulk.lint_runs import run_of
from tilewright.bulk.lint_texts import Templates
from tilewright.bulk.parts import Part, fold_parts, parts_of, processes, share_out
from tilewright.codec import decode_line
from tilewright.errors import LogDamaged, SchemaTooNew, TilewrightError
from tilewright.finding import Finding, damaged
from tilewright.lint import FloorUs, Inspect, Lint
from tilewright.lint_state import Reached
from tilewright.log import collector_paused
from tilewright.record import Record, RecordedSpace


class _Overlooked(Exception):
    """A line that was taken for a record is damaged."""


class Whole(Exception):
    """A log that holds a recorded space, which only all of its records together can be matched with."""


def lint_file(path: Path, *, floor_us: FloorUs, templates: Templates, inspect: Inspect | None = None) -> tuple[int, tuple[Finding, ...]]:
    """How many lines of a log can be read, and the findings that `lint` gives for it.

    Args:
        path: a log, not compressed.
        floor_us: as for `lint`.
        templates: as for `lint`.
        inspect: as for `lint`.

    Raises:
        Whole: it holds a recorded space.
        SchemaTooNew: a line has a newer schema.
        LogError, HostError: the log cannot be read.
    """
    checks, count = Lint(floor_us, templates), processes()
    with collector_paused():
        try:
            readable, findings = _folded(path, checks, lambda: LintFold(floor_us, templates), inspect, count)
        except _Overlooked:
            checks = Lint(floor_us, templates)
            readable, findings = _folded(path, checks, lambda: LintFold(floor_us, templates, thorough=True), inspect, count)
    if inspect is not None:
        findings.extend(_inspected(list(checks.looked_up()), inspect, count))
    return readable, tuple(sorted(findings, key=lambda finding: (finding.number, finding.rule, finding.message)))


def _folded(path: Path, checks: Lint, make: Callable[[], LintFold], inspect: Inspect | None, count: int) -> tuple[int, list[Finding]]:
    """What the lines come to, but for what is found in the records that a look-up reaches."""
    findings: list[Finding] = []
    readable = before = 0
    here = os.getpid()

    def fold(parts: Iterator[tuple[int, Part]]) -> dict[str, Any]:
        folded = make()
        answers = []
        for place, part in parts:
            answers.append(folded.part(place, part))
            if len(answers) == 1 and inspect is not None and os.getpid() == here:
                _load(folded.groups(), inspect)
        return {"parts": answers, "groups": folded.groups()}

    shares = share_out(parts_of([path], count), fold, count)
    befores: dict[int, int] = {}  # lines before each part
    for answer in sorted((answer for share in shares for answer in share["parts"]), key=itemgetter("place")):
        befores[answer["place"]] = before
        readable += answer["lines"] - answer["blank"]
        _tell(path, answer, before, checks, findings)
        before += answer["lines"]
    for share in shares:
        for *key, number, (first, first_at), us, (best, best_at), raw in share["groups"]:
            record = _record(raw)
            if record is None:
                raise _Overlooked
            reached = Reached(count=number, first=befores[first] + first_at, best_us=us, number=befores[best] + best_at, record=record)
            checks.reached((key[0], key[1], key[2]), reached)
    readable -= sum(finding.rule == "damage" for finding in findings)
    findings.extend(checks.rest())
    return readable, findings


def _inspected(records: Sequence[tuple[int, Record]], inspect: Inspect, count: int) -> Iterator[Finding]:
    """What is wrong with some records, which are shared out: matching one with its template takes milliseconds."""

    def fold(item: tuple[int, Record]) -> list[dict[str, Any]]:
        return [asdict(finding) for finding in inspect(*item)]

    # One of each template is inspected before that, so that it is loaded once for all processes.
    firsts = {_template_of(item[1]): item for item in records}
    for item in firsts.values():
        yield from inspect(*item)
    for found in fold_parts([item for item in records if item is not firsts[_template_of(item[1])]], fold, count):
        yield from (Finding(**finding) for finding in found)


def _tell(path: Path, answer: Mapping[str, Any], before: int, checks: Lint, findings: list[Finding]) -> None:
    for item in answer["items"]:
        findings.extend(_findings(path, item, before, checks))
    for operator, template, count, first in answer["stale"]:
        checks.template(before + first, operator, template, count)


def _load(groups: Sequence[Sequence[Any]], inspect: Inspect) -> None:
    """Inspect a record of each template, so that this process, from which others are forked to inspect, has loaded it.

    It is done while others fold their parts. What is found is found again where it is told.
    """
    templates: set[tuple[str, str]] = set()
    for *_, (_, number), raw in groups:
        record = _record(raw)
        if record is not None and _template_of(record) not in templates:
            templates.add(_template_of(record))
            with suppress(TilewrightError):
                list(inspect(number, record))


def _record(raw: bytes) -> Record | None:
    with suppress(LogDamaged):
        line = decode_line(raw)
        return line if isinstance(line, Record) else None
    return None


def _template_of(record: Record) -> tuple[str, str]:
    return record.workload.operator, record.template


def _findings(path: Path, item: list[Any], before: int, checks: Lint) -> Iterable[Finding]:
    kind, *values = item
    if kind == "run":
        session, *columns = values
        return checks.run(session, *run_of(columns, before))
    number = before + values[0]
    if kind == "vendor":
        return checks.vendor(number, tuple(values[1:]))
    if kind == "race":
        return checks.race(number, *values[1:])
    if kind == "begin":
        return checks.begin(number, *values[1:])
    if kind == "end":
        return checks.end(number, *values[1:])
    return _line_findings(path, number, values[1], checks)


def _line_findings(path: Path, number: int, raw: bytes, checks: Lint) -> Iterator[Finding]:
    """Of a line that wants a closer look."""
    try:
        line = decode_line(raw)
    except SchemaTooNew as error:
        raise SchemaTooNew(f"{path}, line {number}: {error}") from error
    except LogDamaged as error:
        yield damaged(number, str(error))
        return
    if isinstance(line, RecordedSpace):
        raise Whole
    yield from checks.line(number, line)
