"""`tilewright show`: the rendered kernel of the best schedule that a log has for a workload."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Mapping

import msgspec

from tilewright.best import best_of, protocol_rank
from tilewright.commands.logs import read_logs, templates_at_hand
from tilewright.commands.output import emit, emit_json, note
from tilewright.errors import ExitCode, UsageError, nearest
from tilewright.library import find_operator
from tilewright.record import Record
from tilewright.report import format_config, format_us
from tilewright.target import compiled_for
from tilewright.workload import parse_key, parse_parameters

_Chosen = Mapping[tuple[str, str, str], Record]


def run(args: argparse.Namespace) -> ExitCode:
    """Find the record, render its config, and say where the kernel is no longer the one that was measured."""
    record = _choose(args)
    measurement = record.measurement
    assert measurement is not None  # best_of gives none without
    answer = {
        "workload": record.workload.key,
        "target": msgspec.to_builtins(record.target),
        "config": dict(record.config),
        "protocol": measurement.protocol,
        "median_us": measurement.median_us,
    }
    headline = f"{record.workload.key} on {record.target.name}: {format_us(measurement.median_us)} µs by {measurement.protocol}"
    if args.config_only:
        if args.json:
            emit_json(answer)
        else:
            note(headline)
            emit(format_config(record.config))
        return ExitCode.OK
    if not record.template:
        raise UsageError(f"{args.log}: {record.workload.key} was tuned on a recording, which has no kernels; --config-only prints the config")
    operator = find_operator(record.workload.operator, args.templates)
    # Parsed again by the spec: what a log says is matched against what is declared before anything is rendered.
    workload = operator.spec.workload(record.workload.parameters)
    source = operator.render(workload, compiled_for(record.target), record.config)
    stale = bool(record.source) and source.hash != record.source
    if stale:
        note("the template renders other code than was measured: the time below is not of this kernel; tune again to be sure")
    if args.json:
        emit_json({**answer, "source": source.text, "source_hash": source.hash, "stale": stale})
    else:
        note(f"{headline}; {format_config(record.config)}")
        emit(source.text.rstrip("\n"))
    return ExitCode.OK


def _choose(args: argparse.Namespace) -> Record:
    chosen = best_of(read_logs([args.log]), templates_at_hand(args.templates))
    if not chosen:
        raise UsageError(f"{args.log} has no record that is both correct and timed; `tilewright log stats {args.log}` sums up why")
    workload = _workload_key(args, chosen)
    here = {key: record for key, record in chosen.items() if key[0] == workload}
    if args.target is not None:
        names = _distinct(record.target.name for record in here.values())
        here = {key: record for key, record in here.items() if args.target in (record.target.arch, record.target.name)}
        if not here:
            raise UsageError(f"{args.log} has no target {args.target!r} for {workload}; {nearest(args.target, names)}")
    if args.protocol is not None:
        protocols = _distinct(key[2] for key in here)
        here = {key: record for key, record in here.items() if key[2] == args.protocol}
        if not here:
            raise UsageError(f"{args.log} has no protocol {args.protocol!r} for {workload}; {nearest(args.protocol, protocols)}")
    targets = _distinct(record.target.name for record in here.values())
    if len({key[1] for key in here}) > 1:
        raise UsageError(f"{args.log} has {workload} on several targets: name one with --target. One of: {', '.join(targets)}")
    # Times of two protocols never compare: the most trusted one speaks.
    return min(here.items(), key=lambda item: protocol_rank(item[0][2]))[1]


def _workload_key(args: argparse.Namespace, chosen: _Chosen) -> str:
    """The key of the workload asked for: a whole key or its parameters, in any order; defaults may be left out."""
    keys = _distinct(key[0] for key in chosen)
    if args.workload is None:
        if len(keys) > 1:
            raise UsageError(f"{args.log} has {len(keys)} workloads: name one. One of: {', '.join(keys)}")
        return keys[0]
    operator, colon, parameters = args.workload.rpartition(":")
    given = parse_parameters(parameters)
    names = _distinct(name for key in keys for name in parse_key(key).parameters)
    for name in given:
        if name not in names:
            raise UsageError(f"{args.log}: no workload in it has a parameter {name!r}; {nearest(name, names)}")
    wanted = set(given.items())
    found = [key for key in keys if wanted <= set(parse_key(key).parameters.items()) and (not colon or parse_key(key).operator == operator)]
    if len(found) != 1:
        problem = f"fits {len(found)} workloads" if found else "has no correct and timed record"
        raise UsageError(f"{args.log}: {args.workload} {problem}; {nearest(args.workload, found or keys)}")
    return found[0]


def _distinct(names: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(names))
