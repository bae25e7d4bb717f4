"""Work done ahead of calls: plans for all shapes of a range, and kernels compiled without a device."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import torch

from . import coverage
from .serving import Served
from .shapes import Shadow, output_specs, shadows
from .standin import Cast, described
from .table import key_text

if TYPE_CHECKING:
    from .dispatcher import Dispatcher


def warm(dispatcher: Dispatcher, ranges: Mapping[str, Any] | Iterable[Mapping[str, Any]] | None, device: int) -> int:
    """Plan every shape of the ranges on a device; see `Dispatcher.warm`."""
    identity, table = dispatcher.identity(device), dispatcher.table
    if ranges is None:
        ranges = coverage.of_table(table, table.matching(identity))
    seen = 0
    with dispatcher.runtime.using(device) if device >= 0 else contextlib.nullcontext():
        for parameters in coverage.shapes([ranges] if isinstance(ranges, Mapping) else ranges, table):
            _plan(dispatcher, dispatcher.server.serve(parameters, device, identity), device)
            seen += 1
    return seen


def _plan(dispatcher: Dispatcher, served: Served, device: int) -> None:
    if not served.planned:
        return
    where = torch.device("cpu") if device < 0 else torch.device("cuda", device)
    values = shadows(dispatcher.spec, dispatcher.arguments, served.workload, device)
    outputs = tuple(Shadow(shape, strides, dtype, device, where) for shape, strides, dtype in output_specs(dispatcher.spec, served.workload))
    dispatcher.plan(served, values, outputs, device)


def compile_all(dispatcher: Dispatcher, target: int) -> list[str]:
    """Compile what the table holds for a target; see `Dispatcher.compile_into`."""
    spec, table = dispatcher.spec, dispatcher.table
    identity = {"backend": "cuda", **table.targets[target]}
    problems: list[str] = []
    for parameters in coverage.shapes(coverage.of_table(table, [target]), table):
        served = dispatcher.server.serve(parameters, 0, identity)
        if not served.planned:
            continue
        values = shadows(spec, dispatcher.arguments, served.workload, 0)
        outputs = [(shape, strides, dtype, 0) for shape, strides, dtype in output_specs(spec, served.workload)]
        with Cast([*(described(tensor) for tensor in dispatcher.tensors(values)), *outputs]) as cast:
            try:
                dispatcher.launches(served, values, cast)
            except Exception as error:  # whatever the compiler raises: the others are compiled all the same
                problems.append(f"{spec.name}:{key_text(parameters)}: {type(error).__name__}: {error}")
    return problems
