"""`tilewright best`: the best file of some logs."""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path

from tilewright.best import best_entries, best_text, entry_text, vendor_times, with_vendors
from tilewright.commands.logs import read_logs
from tilewright.commands.output import emit, emit_json, note
from tilewright.errors import ExitCode, HostError
from tilewright.record import Record, VendorRecord


def run(args: argparse.Namespace) -> ExitCode:
    """Derive it, and print or write it."""
    lines = read_logs(args.logs)
    vendors = vendor_times(line for line in lines if isinstance(line, VendorRecord))
    entries = with_vendors(best_entries(line for line in lines if isinstance(line, Record)), vendors)
    if args.output is not None:
        _replace(args.output, best_text(entries))
        note(f"{args.output}: {len(entries)} entries")
    if args.json:
        emit_json({"entries": [json.loads(entry_text(entry)) for entry in entries], "output": args.output and str(args.output)})
    elif args.output is None and entries:
        emit(best_text(entries).rstrip("\n"))
    if not entries:
        note("no record here is both correct and timed, so there is no best; `tilewright log stats` sums up the failures")
        return ExitCode.FAILED
    return ExitCode.OK


def _replace(path: Path, text: str) -> None:
    """Write a file whole or not at all: a best file is derived, so an older one may be replaced."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        draft.write_text(text, encoding="utf-8")
        draft.replace(path)
    except OSError as error:
        draft.unlink(missing_ok=True)
        raise HostError(f"{path}: cannot write ({error.strerror}); choose another file with -o") from error
