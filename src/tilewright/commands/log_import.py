"""`tilewright log import`: another tool's recording, as a log that can stand in for a device."""

from __future__ import annotations

import argparse
import shlex

from tilewright.commands.output import emit_json, note
from tilewright.errors import ExitCode
from tilewright.importers import import_logs
from tilewright.log import write_log
from tilewright.record import Record, RecordedSpace, SessionStart


def run(args: argparse.Namespace) -> ExitCode:
    """Read the recording, write the log."""
    lines = import_logs(args.files, args.format, operator=args.operator, workload=args.workload, target=args.target)
    write_log(args.output, lines)
    records = sum(isinstance(line, Record) for line in lines)
    operators = [line.operator for line in lines if isinstance(line, RecordedSpace)]
    workloads = [workload.key.partition(":")[2] for line in lines if isinstance(line, SessionStart) for workload in line.workloads]
    hint = f"tilewright tune {' '.join(operators)} -w {shlex.quote(workloads[0])} --device recorded:{args.output}"
    note(f"{args.output}: {len(lines):,} lines, {records:,} records; tune on it with: {hint}")
    if args.json:
        emit_json({"output": str(args.output), "lines": len(lines), "records": records, "operators": operators})
    return ExitCode.OK
