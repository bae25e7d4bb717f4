"""`tilewright log stats`: what some logs hold."""

from __future__ import annotations

import argparse
from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Any, Final

from tilewright.best import best_of
from tilewright.bulk.parts import is_large
from tilewright.bulk.stats import failure_kind, ranked, stats_of_files, told_apart
from tilewright.commands.failure_examples import add_examples, example_text, failed_records
from tilewright.commands.logs import read_logs
from tilewright.commands.output import emit, emit_json, note, table
from tilewright.errors import ExitCode
from tilewright.formats import format_config, format_us
from tilewright.record import Line, RaceRecord, Record, RecordedSpace, Status, VendorRecord
from tilewright.state import LogState

_CUT: Final = "cut: not wrong, but too slow to be timed to the end, or left when the search ended"


def run(args: argparse.Namespace) -> ExitCode:
    """Count sessions, records, statuses and messages, and name each workload's best."""
    if is_large(args.logs):
        answer = stats_of_files(args.logs, note)
        add_examples(answer["failures"], failed_records(args.logs))
    else:
        lines = read_logs(args.logs)
        answer = sum_up(lines)
        add_examples(answer["failures"], (line for line in lines if isinstance(line, Record)))
    if args.json:
        emit_json(answer)
        return ExitCode.OK
    sessions = answer["sessions"]
    emit(f"{sessions['count']} sessions ({sessions['interrupted']} without an end), {answer['records']:,} records, {answer['vendors']:,} vendor records")
    if answer["spaces"]:
        emit(f"recorded spaces: {', '.join(answer['spaces'])}")
    if answer["statuses"]:
        emit("\n" + table(("status", "records"), answer["statuses"].items()))
    if answer["failures"]:
        emit("\n" + _failures(answer["failures"]))
    if answer["cut"]:
        emit("\n" + table(("records", _CUT), [(cut["records"], cut["message"]) for cut in answer["cut"]]))
    if answer["workloads"]:
        rows = [
            (row["workload"], row["target"], row["protocol"], row["records"], row["ok"], format_us(row["best_us"]), row["best"] and format_config(row["best"]))
            for row in answer["workloads"]
        ]
        emit("\n" + table(("workload", "target", "protocol", "records", "ok", "best µs", "best config"), rows))
    return ExitCode.OK


def _failures(failures: Sequence[dict[str, Any]]) -> str:
    """The kinds of failures, numbers in them left out, each with one that leaves nothing out."""
    head, *rows = table(("records", "failed with"), [(failure["records"], f"{failure['status']}: {failure['message']}") for failure in failures]).splitlines()
    indent = " " * (head.index("failed") + 2)
    return "\n".join([head, *(f"{row}\n{example_text(failure, indent)}".rstrip() for row, failure in zip(rows, failures, strict=True))])


def sum_up(lines: tuple[Line, ...]) -> dict[str, Any]:
    """The answer, from all lines at once."""
    state = LogState.of(lines)
    records = [line for line in lines if isinstance(line, Record)]
    others = Counter((str(record.status), failure_kind(record.message)) for record in records if record.status is not Status.OK)
    return {
        "sessions": {
            "count": sum(session.start is not None for session in state.sessions.values()),
            "interrupted": sum(session.interrupted for session in state.sessions.values()),
        },
        "records": len(records),
        "vendors": sum(isinstance(line, VendorRecord) for line in lines),
        "spaces": [line.operator for line in lines if isinstance(line, RecordedSpace)],
        "statuses": {str(status): count for status, count in ranked(Counter(record.status for record in records))},
        **told_apart(others),
        "races": sum(isinstance(line, RaceRecord) for line in lines),
        "workloads": _workloads(records, [line for line in lines if isinstance(line, RaceRecord)]),
    }


def _workloads(records: list[Record], races: list[RaceRecord]) -> list[dict[str, Any]]:
    groups: dict[tuple[str, str], list[Record]] = defaultdict(list)
    for record in records:
        groups[record.workload.key, record.target.key].append(record)
    rows: list[dict[str, Any]] = []
    for (workload, _), group in sorted(groups.items()):
        counts = {"records": len(group), "ok": sum(record.status is Status.OK for record in group)}
        where = {"workload": workload, "target": group[0].target.name, **counts}
        rows += [
            {**where, "protocol": protocol, "best_us": record.measurement and record.measurement.ranked_us, "best": dict(record.config)}
            for (_, _, protocol), record in best_of([*group, *races]).items()
        ] or [{**where, "protocol": None, "best_us": None, "best": None}]
    return rows
