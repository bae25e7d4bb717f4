"""`tilewright tune`: a session from the command line, or with `--dry-run` what it would do."""

from __future__ import annotations

import argparse
import itertools
import sys
from typing import Any, Final

from tilewright.commands.output import emit, emit_json, note, writing
from tilewright.device import Device
from tilewright.devices import open_device
from tilewright.errors import ExitCode, UsageError
from tilewright.estimate import estimate_for
from tilewright.inference import inference_note
from tilewright.interchange.suggested import suggesting
from tilewright.logfile import refuse_unfit
from tilewright.prediction import try_predict
from tilewright.record import Value, config_key
from tilewright.report import LiveReport, PlainReport, format_config, print_end
from tilewright.search import Proposer, check_searcher, make_proposer
from tilewright.space import SearchSpace
from tilewright.timeline import Timeline, format_marks, process_began
from tilewright.tuner import DEFAULT_TRIALS, default_log, parse_workloads, refuse_contradictions, tune
from tilewright.workload import Workload

# Candidates that a dry run shows for each workload. guess: enough to see what the searcher is about.
SHOWN_CANDIDATES: Final = 5
# Above so many points a dry run states the bound instead of counting. guess: some seconds at 20,000 evaluations/s.
MOST_COUNTED: Final = 100_000


def run(args: argparse.Namespace) -> ExitCode:
    """Tune, show progress on stderr and the answer on stdout."""
    if not args.workloads and args.workload_set is None:
        raise UsageError("nothing to tune: give a workload as -w M=4096,N=4096,K=4096,dtype=float16, or a named set with --workloads")
    check_searcher(args.search)
    if args.dry_run:
        return _dry_run(args)
    timeline = Timeline(process_began())
    timeline.mark("imports done")
    result = tune(
        args.operator,
        args.workloads,
        workload_set=args.workload_set,
        trials=args.trials,
        time_s=args.time,
        early_stop=args.early_stop,
        search=args.search,
        seed=args.seed,
        device=args.device,
        target=args.target,
        log=args.log,
        resume=args.resume,
        force=args.force,
        default_only=args.default_only,
        jobs=args.jobs,
        compile_timeout_s=args.compile_timeout,
        run_timeout_s=args.run_timeout,
        templates=args.templates,
        suggest=args.suggest,
        names=args.names,
        history=args.history,
        observer=LiveReport(sys.stderr) if sys.stderr.isatty() else PlainReport(sys.stderr),
        timeline=timeline,
    )
    if args.json:
        emit_json(result.to_json())
    else:
        with writing():
            print_end(result, sys.stdout)
            sys.stdout.flush()
    if args.debug:
        timeline.mark("answer printed")
        print(format_marks(timeline.marks), file=sys.stderr)
    return result.exit_code


def _dry_run(args: argparse.Namespace) -> ExitCode:
    refuse_contradictions(resume=args.resume, force=args.force, names=args.names, suggest=args.suggest)
    with open_device(args.device, args.operator, target=args.target, templates=args.templates, jobs=args.jobs, ahead=True) as device:
        if args.suggest is not None:
            device.make_space = suggesting(device.make_space, args.suggest, args.names, note)
        if device.note:
            note(device.note)
        workloads = parse_workloads(device, args.workloads, args.workload_set)
        if device.spec is not None and (unseen := inference_note(device.spec, workloads)):
            note(unseen)
        refuse_unfit(args.log or default_log(device))
        unlimited = args.trials is None and args.time is None and args.early_stop is None
        plan: dict[str, Any] = {
            "operator": device.operator,
            "device": device.name,
            "target": device.compile_target.to_json(),
            "search": args.search,
            "seed": args.seed,
            "trials": DEFAULT_TRIALS * len(workloads) if unlimited else args.trials,
            "time_s": args.time,
            "early_stop": args.early_stop,
            "log": str(args.log or default_log(device)),
            "workloads": [_preview(device, workload, args.search, args.seed) for workload in workloads],
        }
    if args.json:
        emit_json(plan)
        return ExitCode.OK
    limits = [f"{plan['trials']} trials over all workloads" if plan["trials"] else "", f"{args.time:g} s" if args.time else ""]
    limits.append(f"an early stop after {args.early_stop} trials without gain" if args.early_stop else "")
    emit(f"would tune {device.operator} on {device.name}, target {device.compile_target.arch}")
    emit(f"search {args.search}, seed {args.seed}, up to {', '.join(filter(None, limits))}; log {plan['log']}")
    for workload in plan["workloads"]:
        size = f"{workload['legal']:,} legal configs" if workload["legal"] is not None else f"at most {workload['size_bound']:,} points"
        emit(f"\n{workload['workload']}: {size}; first candidates:")
        for config in workload["candidates"]:
            emit(f"  {format_config(config)}")
    return ExitCode.OK


def _preview(device: Device, workload: Workload, search: str, seed: int) -> dict[str, Any]:
    space = device.make_space(workload)
    try_predict(device.spec, workload, device.compile_target, space)
    bound = space.size_bound()
    estimate = estimate_for(device.spec, workload, device.target) if device.spec is not None else None
    return {
        "workload": workload.key,
        "size_bound": bound,
        "legal": space.count().legal if bound <= MOST_COUNTED else None,
        "candidates": _first(space, make_proposer(search, space, seed=seed, estimate=estimate)),
    }


def _first(space: SearchSpace, proposer: Proposer) -> list[dict[str, Value]]:
    """The default, then what the searcher asks for before it is told anything."""
    asked = itertools.takewhile(lambda config: config is not None, (proposer.ask() for _ in range(SHOWN_CANDIDATES)))
    distinct = {config_key(config): config for config in (space.default(), *asked) if config is not None}
    return list(distinct.values())[:SHOWN_CANDIDATES]
