"""What a call's tensors are by the operator's spec: arguments, outputs, and tensors that are not there yet."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from .hot import Arguments
from .standin import dtype_of
from .table import Table

# Shape, strides in elements (None where contiguous), and torch's dtype.
OutputSpec = tuple[tuple[int, ...], tuple[int, ...] | None, Any]


@dataclass(frozen=True, slots=True)
class Argument:
    """A tensor argument as a spec's `infer` takes it."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: str


@dataclass(frozen=True, slots=True)
class Shadow:
    """A tensor that a call may bring: all that keys and recordings ask of one, without memory."""

    shape: tuple[int, ...]
    strides: tuple[int, ...] | None
    dtype: Any
    number: int
    device: Any

    def stride(self) -> tuple[int, ...]:
        """Strides in elements."""
        return self.strides if self.strides is not None else tuple(torch.empty(self.shape, device="meta").stride())

    def is_contiguous(self) -> bool:
        """Whether the strides are those that the shape alone gives."""
        return self.strides is None or bool(torch.empty_strided(self.shape, self.strides, device="meta").is_contiguous())

    def get_device(self) -> int:
        """The device's number."""
        return self.number

    def data_ptr(self) -> int:
        """An address as aligned as those of torch's allocators."""
        return 0


def arguments_of(spec: Any, table: Table) -> Arguments:
    """What a call takes. Which inputs are numbers, a spec tells for a workload alone: that of the first record, or a small one."""
    workload = next(_workloads(spec, table))
    inputs = spec.inputs(workload)
    return Arguments(
        inputs=tuple(spec.arguments),
        scalars={name: inputs[name].value for name in spec.arguments if not hasattr(inputs[name], "shape")},
        outputs=tuple(spec.outputs(workload)),
    )


def _workloads(spec: Any, table: Table) -> Iterator[Any]:
    for entry in table.entries:
        yield spec.workload(entry["workload"])
    for spread in table.ranges:
        yield spec.workload({**spread["fixed"], spread["dim"]: spread["ranges"][0][0] if spread["ranges"] else 16})
    yield spec.workload(dict.fromkeys(spec.dims, 16))


def output_specs(spec: Any, workload: Any) -> list[OutputSpec]:
    """The outputs of a workload, in order."""
    return [(tuple(out.shape), None if out.strides is None else tuple(out.strides), dtype_of(out.dtype)) for out in spec.outputs(workload).values()]


def shadows(spec: Any, arguments: Arguments, workload: Any, device: int) -> dict[str, Any]:
    """The inputs that a workload stands for: shadows of tensors, and numbers."""
    where = torch.device("cpu") if device < 0 else torch.device("cuda", device)
    made: dict[str, Any] = {}
    for name, item in spec.inputs(workload).items():
        if name in arguments.scalars:
            made[name] = arguments.scalars[name]
        else:
            made[name] = Shadow(tuple(item.shape), None if item.strides is None else tuple(item.strides), dtype_of(item.dtype), device, where)
    return {name: made[name] for name in arguments.inputs}


def makers(specs: Sequence[OutputSpec], device: Any) -> tuple[Callable[[], Any], ...]:
    """What allocates each output."""
    return tuple(
        functools.partial(torch.empty, shape, dtype=dtype, device=device)
        if strides is None
        else functools.partial(torch.empty_strided, shape, strides, dtype=dtype, device=device)
        for shape, strides, dtype in specs
    )


def check_outputs(operator: str, names: Sequence[str], outputs: Sequence[Any], specs: Sequence[OutputSpec]) -> None:
    """Refuse outputs that are not what the operator writes; their strides are the schedule's business.

    Raises:
        ValueError: they are of another number, shape or dtype.
    """
    if len(outputs) != len(specs):
        raise ValueError(f"{operator}: out holds {len(outputs)} tensors, and there are {len(specs)} outputs ({', '.join(names)})")
    for name, output, (shape, _, dtype) in zip(names, outputs, specs, strict=True):
        if tuple(output.shape) != shape or output.dtype != dtype:
            raise ValueError(f"{operator}: out for {name} is {output.dtype} {list(output.shape)}; it must be {dtype} {list(shape)}")


def as_tuple(value: Any) -> tuple[Any, ...]:
    """Outputs as a tuple, also where there is one."""
    return tuple(value) if isinstance(value, (tuple, list)) else (value,)


def workspace(module: Any, arguments: Sequence[Any]) -> Sequence[tuple[Sequence[int], Any]]:
    """Shapes and dtypes of the scratch tensors that a schedule wants for a call."""
    wanted = getattr(module, "workspace", None)
    return (wanted(*arguments) or ()) if wanted is not None else ()
