"""`tilewright render`: the kernel of one config, without a log and without a GPU."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Final

from tilewright.canonical import sha256_text
from tilewright.commands.output import emit, emit_json, note
from tilewright.config_text import written_config
from tilewright.destination import is_stream, replacing
from tilewright.errors import ExitCode, HostError, UsageError
from tilewright.formats import format_config
from tilewright.library import find_operator
from tilewright.target import named_target
from tilewright.workload_file import each_workload

# A file's last line. A kernel written to a file is there to be tried and edited, and an edited one looks like any other.
_MARK: Final = "# Rendered by `tilewright render`, which replaces it only as long as nothing is edited: "


def run(args: argparse.Namespace) -> ExitCode:
    """Match the config against what is declared, render it, and print or write the module."""
    operator = find_operator(args.operator, args.templates)
    workloads = list(dict.fromkeys(each_workload(args.workloads, operator.spec.workload)))
    if len(workloads) > 1:
        raise UsageError(f"render prints one kernel, and {len(workloads)} workloads are given: name one with -w")
    workload, target = workloads[0], named_target(args.target)
    if args.config is None:
        config = operator.space(workload, target, args.schedule).default()
    else:
        written = written_config(operator, workload, target, args.config, args.schedule)
        config = dict(written.config)
        if written.note:
            note(written.note)
    source = operator.render(workload, target, config)
    if args.output is not None:
        _write(args.output, source.text)
    if args.json:
        answer = {"operator": operator.name, "workload": workload.key, "target": target.arch, "config": config}
        emit_json({**answer, "source": source.text, "source_hash": source.hash, "output": args.output and str(args.output)})
        return ExitCode.OK
    note(f"{f'{args.output}: ' if args.output else ''}{workload.shown} for {target.arch}: {format_config(config)}")
    if args.output is None:
        emit(source.text.rstrip("\n"))
    return ExitCode.OK


def _write(path: Path, text: str) -> None:
    """Write the module whole or not at all. What stands there is replaced only where it is as this command wrote it: all else is somebody's work."""
    if not is_stream(path):
        if path.is_file() and not _may_go(path):
            raise UsageError(f"{path} is there and not as render wrote it, so it is not overwritten; name another file with -o, or remove it first")
        text = text.rstrip("\n") + "\n"
        text += f"{_MARK}{sha256_text(text)}\n"
    with replacing(path) as file:
        file.write(text)


def _may_go(path: Path) -> bool:
    """Whether a file is empty, or a rendered kernel that nobody has edited: its last line says what is above it."""
    try:
        there = path.read_bytes()
    except OSError as error:
        raise HostError(f"{path} is there and cannot be read ({error.strerror}), so it is not overwritten; name another file with -o") from error
    text, mark, digest = there.decode("utf-8", "replace").rpartition(_MARK)
    return not there.strip() or (bool(mark) and digest == f"{sha256_text(text)}\n")
