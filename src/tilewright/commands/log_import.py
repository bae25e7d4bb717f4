"""`tilewright log import`: another tool's recording, as a log that can stand in for a device."""

from __future__ import annotations

import argparse

from tilewright.commands.output import emit_json, note
from tilewright.errors import ExitCode
from tilewright.importers import import_log
from tilewright.log import write_log
from tilewright.record import Record, RecordedSpace


def run(args: argparse.Namespace) -> ExitCode:
    """Read the recording, write the log."""
    lines = import_log(args.file, args.format)
    write_log(args.output, lines)
    records = sum(isinstance(line, Record) for line in lines)
    operators = [line.operator for line in lines if isinstance(line, RecordedSpace)]
    note(f"{args.output}: {len(lines):,} lines, {records:,} records; tune on it with: tilewright tune {' '.join(operators)} --device recorded:{args.output}")
    if args.json:
        emit_json({"output": str(args.output), "lines": len(lines), "records": records, "operators": operators})
    return ExitCode.OK
