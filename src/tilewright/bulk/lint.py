"""Lint of large logs: lines in which nothing is wrong are told in runs, the others one at a time, to the same `Lint`."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tilewright.bulk.lint_fold import LintFold, Templates
from tilewright.bulk.parts import Part, blocks_of, fold_parts, parts_of, processes
from tilewright.codec import decode_line
from tilewright.errors import LogDamaged, SchemaTooNew
from tilewright.finding import Finding, damaged
from tilewright.lint import FloorUs, Inspect, Lint
from tilewright.lint_state import Reached, Shifted
from tilewright.log import collector_paused
from tilewright.record import Record, RecordedSpace


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

    def fold(part: Part) -> dict[str, Any]:
        folded = LintFold(floor_us, templates)
        number = 1
        with collector_paused():
            for _, block in blocks_of(part):
                number += folded.block(number, block)
        return folded.result(number - 1)

    count = processes()
    checks = Lint(floor_us, templates)
    findings: list[Finding] = []
    readable = before = 0
    for answer in fold_parts(parts_of([path], count), fold, count):
        readable += answer["lines"] - answer["blank"]
        with collector_paused():
            _tell(path, answer, before, checks, findings)
        before += answer["lines"]
    readable -= sum(finding.rule == "damage" for finding in findings)
    findings.extend(checks.rest())
    if inspect is not None:
        findings.extend(_inspected(list(checks.looked_up()), inspect, count))
    return readable, tuple(sorted(findings, key=lambda finding: (finding.number, finding.rule, finding.message)))


def _inspected(records: Sequence[tuple[int, Record]], inspect: Inspect, count: int) -> Iterator[Finding]:
    """What is wrong with some records, which are shared out: matching one with its template takes milliseconds."""

    def fold(item: tuple[int, Record]) -> list[dict[str, Any]]:
        return [asdict(finding) for finding in inspect(*item)]

    # One of each operator is inspected before that, so that its templates are loaded once for all processes.
    firsts = {item[1].workload.operator: item for item in records}
    for item in firsts.values():
        yield from inspect(*item)
    for found in fold_parts([item for item in records if item is not firsts[item[1].workload.operator]], fold, count):
        yield from (Finding(**finding) for finding in found)


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
            yield from checks.run(session, array("q", trials), Shifted(array("q", numbers), before), Shifted(array("q", starts), before))
        case ["begin", number, session]:
            yield from checks.begin(before + number, session)
        case ["end", number, session, trials]:
            yield from checks.end(before + number, session, trials)
        case ["vendor", number, session, name, workload]:
            yield from checks.vendor(before + number, (session, name, workload))
        case ["race", number, session, workload]:
            yield from checks.race(before + number, session, workload)
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
