"""The command line: what may be asked, and the exit code it ends with.

Only parsing happens here. A command's module is imported once it was chosen, so `--help` pays for argparse alone; data goes to
stdout, progress and errors to stderr.
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final, TypeAlias

from tilewright import __version__
from tilewright.commands.amounts import count, minor_version, positive, seconds, share, whole
from tilewright.commands.options import map_option, operator_argument, timeout_options, workload_option
from tilewright.commands.output import writing
from tilewright.commands.parser import Parser
from tilewright.errors import ExitCode, TilewrightError

_Commands: TypeAlias = "argparse._SubParsersAction[Parser]"

_NVIDIA: Final = Path("/dev/nvidiactl")  # where a driver is at work; under WSL it is not there, and children begin a little later

_SEARCHES: Final = "auto, cost, gp, tpe, optuna-tpe, cmaes, evolutionary, annealing, descent, random or grid (default: auto)"

_EPILOG: Final = """\
a first session, on a machine with or without a GPU:
  tilewright tune matmul -w M=256,N=256,K=256,dtype=float16 --trials 16
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command.

    Args:
        argv: arguments without the program's name; `sys.argv[1:]` where none are given.

    Returns:
        The exit code, one of `tilewright.errors.ExitCode`.
    """
    debug = False
    try:
        try:
            args = make_parser().parse_args(argv)
        except SystemExit as stop:  # argparse's way of ending --help, --version and a usage error
            with writing():  # what argparse printed is only on its way
                sys.stdout.flush()
            return stop.code if isinstance(stop.code, int) else ExitCode.USAGE
        debug = args.debug
        _begin_children(args)
        command = importlib.import_module(f"tilewright.commands.{args.module}")
        return int(command.run(args))
    except TilewrightError as error:
        if debug:
            import traceback

            traceback.print_exception(error)
        print(f"tilewright: error: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print("tilewright: interrupted", file=sys.stderr)
        return ExitCode.INTERRUPTED


def _begin_children(args: argparse.Namespace) -> None:
    """Where a command is likely to use a GPU, have torch imported for its children while it does its own imports."""
    device = getattr(args, "device", "")
    hidden = os.environ.get("CUDA_VISIBLE_DEVICES", "0").strip() in ("", "-1")
    likely = device.startswith("cuda") or (device == "auto" and not hidden and _NVIDIA.exists())
    if likely and not getattr(args, "dry_run", False):
        from tilewright.nursery import begin_early

        begin_early()


def make_parser() -> argparse.ArgumentParser:
    """The parser of the whole command line; `args.module` names the chosen command's module."""
    parser = Parser(
        prog="tilewright",
        description="Tune the schedules of Triton kernels that are written as templates, and replay what was found.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"tilewright {__version__}")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    parser.common = common = _common()
    for add in (_operators, _new, _space, _render, _check, _tune, _best, _emit, _show, _verify, _log, _doctor):
        add(commands, common)
    return parser


def _common() -> Parser:
    """Options that every command takes."""
    common = Parser(add_help=False)
    group = common.add_argument_group("common options")
    group.add_argument("--templates", metavar="DIR", type=Path, action="append", default=[], help="folder of operators, beside those shipped; may be repeated")
    group.add_argument("--seed", metavar="N", type=whole, default=0, help="of everything random here (default: 0)")
    group.add_argument("--json", action="store_true", help="print the answer as JSON")
    group.add_argument("--debug", action="store_true", help="show the traceback of an error")
    return common


def _add(commands: _Commands, common: Parser, name: str, text: str, module: str = "") -> argparse.ArgumentParser:
    """A command whose module is `tilewright.commands.<module>`, by default of its own name."""
    parser = commands.add_parser(name, parents=[common], help=text, description=f"{text[0].upper()}{text[1:]}.", allow_abbrev=False)
    parser.set_defaults(module=module or name)
    return parser


def _operators(commands: _Commands, common: Parser) -> None:
    _add(commands, common, "operators", "list the operators found, with their schedules and workload sets")


def _new(commands: _Commands, common: Parser) -> None:
    parser = _add(commands, common, "new", "write the first files of an operator of your own, which works as it stands")
    parser.add_argument("name", metavar="NAME", help="of the operator and its folder")
    parser.add_argument("--into", metavar="DIR", type=Path, default=Path(), help="folder of operators to put it in (default: the working folder)")


def _space(commands: _Commands, common: Parser) -> None:
    parser = _add(commands, common, "space", "count and list the configs that an operator's templates declare for a workload")
    operator_argument(parser, schedule=True)
    workload_option(parser, required=True)
    parser.add_argument("--target", metavar="NAME", default="sm_90", help="named target (default: sm_90)")
    parser.add_argument("--list", metavar="N", type=count, default=0, help="also list the first N legal configs")


def _render(commands: _Commands, common: Parser) -> None:
    parser = _add(commands, common, "render", "print the kernel that one config renders: the default, or the one given; no log and no GPU")
    operator_argument(parser, schedule=True)
    workload_option(parser, required=True)
    parser.add_argument("--target", metavar="NAME", default="sm_90", help="named target (default: sm_90)")
    parser.add_argument("--config", metavar="CONFIG", help='knobs with values, as tables show them: "tile_m=4x128 num_warps=8"; the others as in the default')
    parser.add_argument("-o", "--output", metavar="FILE", type=Path, help="write there instead of to standard output")


def _check(commands: _Commands, common: Parser) -> None:
    parser = _add(commands, common, "check", "compile configs for targets without a GPU, and say which exceed what limit; with --run, also which are wrong")
    operator_argument(parser, schedule=True)
    workload_option(parser)
    parser.add_argument("--target", metavar="NAME", dest="targets", action="append", default=[], help="named target; may be repeated (default: sm_90)")
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--sample", metavar="N", type=count, help="compile N configs drawn uniformly, none twice, instead of those the author suggests")
    which.add_argument("--each", action="store_true", help="compile a few configs in which every candidate occurs: faults of one branch show")
    which.add_argument("--config", metavar="CONFIG", dest="configs", action="append", default=[], help="check this config, as render takes it; may be repeated")
    parser.add_argument("--run", action="store_true", help="also run each in Triton's interpreter, and compare with the reference; exit 1 where one is wrong")
    parser.add_argument("--jobs", metavar="N", type=count, help="compiler processes (default: all cores but one)")
    timeout_options(parser)


def _tune(commands: _Commands, common: Parser) -> None:
    parser = _add(commands, common, "tune", "find the best schedule for each workload, logging every candidate")
    operator_argument(parser)
    workload_option(parser)
    parser.add_argument("--workloads", metavar="NAME", dest="workload_set", help="a named workload set of the operator")
    budget = parser.add_argument_group("budget")
    budget.add_argument("--trials", metavar="N", type=count, help="candidates measured, over all workloads (default: 64 for each, where nothing else limits)")
    budget.add_argument("--time", metavar="S", type=seconds, help="seconds for the whole session")
    budget.add_argument("--early-stop", metavar="N", type=count, help="end a workload after N trials that found nothing better")
    where = parser.add_argument_group("where and how")
    where.add_argument("--device", metavar="NAME", default="auto", help="auto, cuda:N, interpreter or recorded:FILE (default: auto)")
    where.add_argument("--target", metavar="NAME", help="named target to compile for where no GPU is used (default: sm_90)")
    where.add_argument("--search", metavar="NAME", default="auto", help=_SEARCHES)
    where.add_argument("--jobs", metavar="N", type=count, help="compiler processes (default: all cores but one)")
    timeout_options(where)
    first = parser.add_argument_group("first candidates")
    first.add_argument("--suggest", metavar="FILE", type=Path, help="configs to try first: Python text with triton.Config(...), which is not run, or .json")
    map_option(first)
    log = parser.add_argument_group("log")
    log.add_argument("--log", metavar="FILE", type=Path, help="log to append to (default: tuning_logs/<device>/<operator>.jsonl)")
    log.add_argument(
        "--history",
        metavar="FILE",
        type=Path,
        nargs="*",
        help="logs of other workloads or targets to start from (default: the operator's that come with Tilewright, and the log; none: no FILE)",
    )
    log.add_argument("--resume", action="store_true", help="go on with finished searches too, up to --trials; one that was interrupted is gone on with anyway")
    log.add_argument("--force", action="store_true", help="search again, and use nothing of the log")
    log.add_argument("--default-only", action="store_true", help="measure only the author's default schedule of a workload without an answer")
    log.add_argument("--dry-run", action="store_true", help="print the plan, the size of the space and the first candidates; build and log nothing")


def _best(commands: _Commands, common: Parser) -> None:
    parser = _add(commands, common, "best", "derive the best file from logs")
    parser.add_argument("logs", metavar="LOG", type=Path, nargs="+", help="tuning log (.jsonl or .jsonl.gz), or a best file to merge")
    parser.add_argument("-o", "--output", metavar="FILE", type=Path, help="write there instead of to standard output")
    few = parser.add_argument_group("few schedules for many workloads")
    few.add_argument("--cover", metavar="DIM", help="choose the fewest schedules that serve all tuned workloads, with ranges of this dim")
    few.add_argument("--max-loss", metavar="X", type=positive, default=1.03, help="time over the workload's best that is allowed (default: 1.03)")
    few.add_argument("--max-schedules", metavar="N", type=count, default=8, help="schedules that are allowed (default: 8)")
    parser.add_argument("--calls-per-day", metavar="N", type=positive, help="of each workload: also say when tuning has paid for itself")


def _emit(commands: _Commands, common: Parser) -> None:
    parser = _add(commands, common, "emit", "write the schedules of a best file as a plain Python package that needs only torch and triton")
    parser.add_argument("best", metavar="BEST", type=Path, help="best file, or a log")
    parser.add_argument("-o", "--output", metavar="DIR", type=Path, required=True, help="folder to put the package's folder in")
    parser.add_argument("--name", metavar="NAME", default="tuned_kernels", help="of the package (default: tuned_kernels)")
    modes = parser.add_mutually_exclusive_group()
    modes.add_argument("--strict", dest="mode", action="store_const", const="strict", default="default", help="refuse whatever does not fit")
    modes.add_argument("--compatible", dest="mode", action="store_const", const="compatible", help="let pass what does not fit, and say so")
    parser.add_argument("--require", metavar="OP:WHAT", action="append", default=[], help="a workload or a named set that must be served; may be repeated")
    parser.add_argument("--target", metavar="NAME", help="only records of this device (an alias such as h200-sxm) or arch")
    parser.add_argument("--triton", metavar="VERSION", type=minor_version, help="Triton that the package is for (default: the one installed here)")
    parser.add_argument("--vendors", action="store_true", help="call a vendor's kernel where it was faster")
    parser.add_argument("--on-miss", choices=("error", "default", "nearest", "vendor"), default="error", help="what a call does that nothing serves")
    parser.add_argument("--precompile", metavar="ARCH", help="also compile the kernels for an arch, such as sm_90; needs no GPU")


def _show(commands: _Commands, common: Parser) -> None:
    parser = _add(commands, common, "show", "print the rendered kernel of a workload's best schedule")
    parser.add_argument("log", metavar="LOG", type=Path, help="tuning log (.jsonl or .jsonl.gz)")
    parser.add_argument("workload", metavar="WORKLOAD", nargs="?", help="as in the log, or its parameters; may be left out where the log has one")
    parser.add_argument("--config-only", action="store_true", help="print the config, not the kernel")
    parser.add_argument("--target", metavar="NAME", help="arch or name of the target, where the log has several")
    parser.add_argument("--protocol", metavar="NAME", help="timing protocol, where the log has several")


def _verify(commands: _Commands, common: Parser) -> None:
    parser = _add(commands, common, "verify", "measure chosen schedules again beside their default and vendors; exit 1 where one does not hold")
    parser.add_argument("file", metavar="LOG|BEST", type=Path, help="tuning log (.jsonl or .jsonl.gz) or best file")
    parser.add_argument("--device", metavar="NAME", default="auto", help="auto, cuda:N, interpreter or recorded:FILE (default: auto)")
    parser.add_argument("--target", metavar="NAME", help="named target to compile for where no GPU is used (default: sm_90)")
    parser.add_argument("--tolerance", metavar="SHARE", type=share, default=0.03, help="share by which a time may differ and still hold (default: 0.03)")
    parser.add_argument("--jobs", metavar="N", type=count, help="compiler processes (default: all cores but one)")
    timeout_options(parser)
    parser.add_argument("--update", action="store_true", help="append the new records to the log; nothing is rewritten")
    parser.add_argument("--log", metavar="FILE", type=Path, help="log to append to with --update (default: LOG itself)")


def _log(commands: _Commands, common: Parser) -> None:
    text = "check, sum up, merge, import or export logs"
    log = commands.add_parser("log", help=text, description=f"{text[0].upper()}{text[1:]}.", allow_abbrev=False)
    log.common = common
    actions = log.add_subparsers(metavar="ACTION", required=True)
    for name, text in (("lint", "find damage, and lines that cannot be true; exit 1 on a fault"), ("stats", "sum up sessions, records and statuses")):
        parser = _add(actions, common, name, text, module=f"log_{name}")
        parser.add_argument("logs", metavar="LOG", type=Path, nargs="+", help="tuning log (.jsonl or .jsonl.gz)")
    parser = _add(actions, common, "merge", "put logs together, sessions in order of time", module="log_merge")
    parser.add_argument("logs", metavar="LOG", type=Path, nargs="+", help="tuning log (.jsonl or .jsonl.gz), in a file")
    parser.add_argument("-o", "--output", metavar="LOG", type=Path, required=True, help="log to write; must not exist")
    parser = _add(actions, common, "import", "turn another tool's recording into a log", module="log_import")
    parser.add_argument("files", metavar="FILE", type=Path, nargs="+", help="the recording; of t4 several, one for each workload")
    parser.add_argument("--format", choices=("recorded", "kernel-tuner", "t4"), required=True, help="what wrote it")
    parser.add_argument("-o", "--output", metavar="LOG", type=Path, required=True, help="log to write")
    silent = parser.add_argument_group("what a t4 file of another tool does not say")
    silent.add_argument("--operator", metavar="NAME", default="", help="the operator's name (default: after the file)")
    silent.add_argument("-w", "--workload", metavar="NAME=VALUE,...", default="", help="its parameters, such as N0=4096")
    silent.add_argument("--target", metavar="NAME", default="", help="named target with the device's limits")
    _log_export(actions, common)


def _log_export(actions: _Commands, common: Parser) -> None:
    parser = _add(actions, common, "export", "write schedules or records in another tool's format", module="log_export")
    parser.add_argument("files", metavar="FILE", type=Path, nargs="+", help="tuning log (.jsonl or .jsonl.gz); for triton and vllm also a best file")
    formats = "triton.Config lists (Python), vLLM's fused-MoE files, a table (CSV), or T4 of the auto-tuning community (JSON)"
    parser.add_argument("--format", choices=("triton", "vllm", "csv", "t4"), required=True, help=formats)
    parser.add_argument("-o", "--output", metavar="OUT", type=Path, help="file, or for vllm and several t4 files a folder (default: standard output)")
    parser.add_argument("--overwrite", action="store_true", help="replace files that are there")
    which = parser.add_argument_group("which")
    workload = "only workloads that have these parameters; may be repeated"
    workload_option(which, text=workload)
    which.add_argument("--target", metavar="NAME", help="only this device: its arch or name")
    which.add_argument("--top", metavar="N", type=count, default=1, help="triton: the N fastest schedules of each workload (default: 1)")
    names = parser.add_argument_group("names")
    map_option(names)
    names.add_argument("--set", metavar="NAME=VALUE", dest="given", action="append", default=[], help="vllm: what the operator does not say, as E=8")
    names.add_argument("--wide", action="store_true", help="csv: also a column for each parameter and knob")


def _doctor(commands: _Commands, common: Parser) -> None:
    parser = _add(commands, common, "doctor", "say what this machine has and whether it can tune")
    parser.add_argument("--log", metavar="FILE", type=Path, help="where a log would be written (default: tuning_logs/ below the working folder)")
