"""What a dispatcher tells of itself: counts of calls, and which record serves a call and why the others do not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch

from .shapes import parameters as parameters_of
from .table import key_text

if TYPE_CHECKING:
    from .dispatcher import Dispatcher

_NEAREST = 3  # guess: what fits a screen


def count(dispatcher: Dispatcher) -> dict[str, Any]:
    """Calls by what served them, records that served none, misses, and time spent in the compiler."""
    calls: Counter[str] = Counter()
    by_schedule: Counter[str] = Counter()
    for served, plan in dispatcher.recorded():
        hits = plan.hits if plan is not None else 0
        calls[key_text(served.workload.parameters)] += hits
        by_schedule[served.choice.schedule] += hits
    for (workload, schedule), number in list(dispatcher.server.launched.items()):
        calls[workload] += number
        by_schedule[schedule] += number
    recorded = {key_text(dispatcher.spec.workload(entry["workload"]).parameters) for entry in dispatcher.table.entries}
    compiles = dispatcher.recorder.compiles
    return {
        "calls": {key: number for key, number in sorted(calls.items()) if number},
        "schedules": {key: number for key, number in sorted(by_schedule.items()) if number},
        "never": sorted(recorded - {key for key, number in calls.items() if number} - dispatcher.otherwise_called()),
        "misses": dict(sorted(dispatcher.server.misses.items())),
        "unplanned": dict(dispatcher.unplanned),
        "plans": sum(plan is not None for _, plan in dispatcher.recorded()),
        "compiles": compiles.count,
        "compile_s": compiles.seconds,
        "precompiled": getattr(dispatcher.recorder.compiler, "loaded", 0),
        "not_precompiled": not_precompiled(dispatcher),
    }


def not_precompiled(dispatcher: Dispatcher) -> dict[str, str]:
    """Kernels that the folder of compiled ones did not have, and why; under "" why none of it is used."""
    store = dispatcher.recorder.compiler
    refused = getattr(store, "refused", "")
    return {**({"": refused} if refused else {}), **getattr(store, "missing", {})}


def explain(dispatcher: Dispatcher, args: Sequence[Any], named: Mapping[str, Any]) -> str:
    """The story of one call, without making it."""
    values = bound(dispatcher, args, named)
    device = next(value for value in values.values() if isinstance(value, torch.Tensor)).get_device()
    spec, table, identity = dispatcher.spec, dispatcher.table, dispatcher.identity(device)
    parameters = dict(spec.workload(parameters_of(spec, values)).parameters)
    targets = table.matching(identity)
    choice = table.look_up(parameters, targets)
    where = identity.get("name") or ("Triton's interpreter" if device < 0 else identity.get("arch", f"device {device}"))
    lines = [f"{spec.name}:{key_text(parameters)} on {where}"]
    if choice is not None:
        refusal = dispatcher.server.refusal(choice, parameters, identity)
        lines.append(f"  {'not ' if refusal else ''}served by {choice.vendor or choice.schedule or 'nothing'}: {choice.how}")
        lines += [f"  the call raises {refusal}"] if refusal else []
        if identity["backend"] == "interpreter" and table.targets and table.targets[targets[0]].get("backend") != "interpreter":
            lines.append(f"  the interpreter stands in for {table.targets[targets[0]].get('name', 'the recorded device')}")
    else:
        mode = dispatcher.server.on_miss
        lines.append(f"  no record: {table.explain_miss(parameters, targets, identity)}")
        lines.append(f"  on_miss is {mode if isinstance(mode, str) else getattr(mode, 'name', None) or getattr(mode, '__qualname__', repr(mode))}")
        answered = dispatcher.server.answered.get((key_text(parameters), device))
        lines += [f"  served all the same, by {answered}"] if answered else []
    others = [entry for entry in table.nearest(parameters, targets) if entry["workload"] != parameters]
    for entry in others[:_NEAREST] if choice is not None else ():
        differing = [f"{name} is {entry['workload'].get(name)}" for name, value in parameters.items() if entry["workload"].get(name) != value]
        if differing:
            lines.append(f"  not by {entry['schedule'] or entry.get('vendor')}: its {', '.join(differing)}")
    lines += [f"  {name or 'no kernel'} was {'compiled here' if name else 'precompiled'}: {why}" for name, why in not_precompiled(dispatcher).items()]
    for index, target in enumerate(table.targets):
        if index not in targets:
            lines.append(f"  records of {target.get('name', 'another device')} do not count: {', '.join(table.differences(index, identity))}")
    return "\n".join(lines)


def bound(dispatcher: Dispatcher, args: Sequence[Any], named: Mapping[str, Any]) -> dict[str, Any]:
    """A call's inputs by name."""
    names = dispatcher.arguments.inputs
    values = {**dict(dispatcher.arguments.scalars), **dict(zip(names, args, strict=False)), **{name: named[name] for name in named if name in names}}
    missing = [name for name in names if name not in values]
    if missing or len(args) > len(names):
        raise TypeError(f"{dispatcher.spec.name} takes {', '.join(names)}; {'missing: ' + ', '.join(missing) if missing else f'{len(args)} were given'}")
    return {name: values[name] for name in names}
