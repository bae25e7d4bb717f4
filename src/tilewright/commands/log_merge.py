"""`tilewright log merge`: logs put together."""

from __future__ import annotations

import argparse
from dataclasses import asdict

from tilewright.bulk.merge import merge_files
from tilewright.commands.output import emit, emit_json, note
from tilewright.errors import ExitCode


def run(args: argparse.Namespace) -> ExitCode:
    """Merge them."""
    merged = merge_files(args.logs, args.output, note)
    if args.json:
        emit_json({"output": str(args.output), **asdict(merged)})
    else:
        repeated = f", {merged.repeated:,} that stood twice left out" if merged.repeated else ""
        damaged = f", {merged.damaged:,} damaged left out" if merged.damaged else ""
        emit(f"{args.output}: {merged.sessions:,} sessions, {merged.lines:,} lines{repeated}{damaged}")
    return ExitCode.OK
