"""Options that several commands take, each declared once."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from tilewright.commands.amounts import seconds
from tilewright.workload_file import read_workloads

_WORKLOAD: Final = "dims, dtypes and layout, as M=4096,N=4096,K=4096,dtype=float16; may be repeated"


class _Workloads(argparse.Action):
    """Takes a workload's text, or `@FILE`, for which the texts of its lines are taken."""

    def __call__(self, parser: argparse.ArgumentParser, namespace: argparse.Namespace, values: str | Sequence[Any] | None, option: str | None = None) -> None:
        """Add to what is there; the list that is the default stays as it is."""
        text = str(values)
        more = read_workloads(Path(text[1:])) if text.startswith("@") else [text]
        setattr(namespace, self.dest, [*getattr(namespace, self.dest), *more])


def operator_argument(parser: argparse.ArgumentParser, *, schedule: bool = False) -> None:
    """The operator's name; with `schedule` also which of its schedules."""
    parser.add_argument("operator", metavar="OPERATOR", help="an operator's name (see: tilewright operators)")
    if schedule:
        parser.add_argument("--schedule", metavar="NAME", default="", help="only this schedule of the operator (default: all)")


def workload_option(parser: argparse._ActionsContainer, *, required: bool = False, text: str = _WORKLOAD) -> None:
    """`-w`, with the texts in `args.workloads`."""
    parser.add_argument(
        "-w",
        "--workload",
        metavar="NAME=VALUE,...",
        dest="workloads",
        action=_Workloads,
        default=[],
        required=required,
        help=f"{text}; @FILE: those of a text file, one a line",
    )


def timeout_options(group: argparse._ActionsContainer) -> None:
    """The time limits of a candidate."""
    group.add_argument("--compile-timeout", metavar="S", type=seconds, help="most seconds for compiling one candidate (default: 60)")
    text = "most seconds for checking and timing one candidate (default: 10 on a GPU, 120 in the interpreter)"
    group.add_argument("--run-timeout", metavar="S", type=seconds, help=text)


def map_option(group: argparse._ActionsContainer) -> None:
    """What others call a knob."""
    text = "what the other side calls a knob: tile_m=BLOCK_M, tile_k.1=BLOCK_K (a part), split_k= (left out), =GROUP_M (no knob); may be repeated"
    group.add_argument("--map", metavar="KNOB=NAME", dest="names", action="append", default=[], help=text)
