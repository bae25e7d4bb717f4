"""`tilewright new`: the first files of an operator."""

from __future__ import annotations

import argparse
import shlex

from tilewright.commands.output import emit, emit_json
from tilewright.errors import ExitCode, UsageError
from tilewright.library import survey
from tilewright.scaffold import write_operator


def run(args: argparse.Namespace) -> ExitCode:
    """Write them, and say how to go on."""
    found = survey(args.templates).operators
    if args.name in found:
        raise UsageError(f"operator {args.name} is there already, in {found[args.name].folder}; a name is found once: choose another")
    written = write_operator(args.name, args.into)
    if args.json:
        emit_json({"operator": args.name, "files": [str(file) for file in written]})
        return ExitCode.OK
    options = f"--templates {shlex.quote(str(args.into))}"
    emit("\n".join(map(str, written)))
    emit(f"""
an operator that works: y = 2 x. Make of it what you want; docs/authoring.md is the reference. Then

  tilewright space {args.name} {options} -w rows=64,cols=4096
  tilewright check {args.name} {options} -w rows=5,cols=1000 --each --run
  tilewright tune  {args.name} {options} --workloads smoke

the second after each change: every candidate once, compiled, run in Triton's interpreter and compared with the reference; no GPU""")
    return ExitCode.OK
