"""What a call's tensors are by the operator's spec: arguments, outputs, and tensors that are not there yet."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
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
        return self.strides if self.strides is not None else _contiguous(self.shape)

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


# An output's extent: a number, or that of an input's axis.
Extent = int | tuple[str, int]


def extents_of_outputs(spec: Any, table: Table) -> list[list[Extent]] | None:
    """Which input's axis each extent of the outputs is, so that a symbolic one stays symbolic.

    Found by asking the spec for two workloads whose dims are numbers of their own. None where an extent is of no input.
    """
    base = next(_workloads(spec, table)).parameters
    try:
        probes = [spec.workload({**base, **{name: start + 16 * index for index, name in enumerate(spec.dims)}}) for start in (4096 + 16, 16384 + 16)]
        inputs = [spec.inputs(probe) for probe in probes]
        outputs = [list(spec.outputs(probe).values()) for probe in probes]
        axes = [(name, axis) for name, item in inputs[0].items() if hasattr(item, "shape") for axis in range(len(item.shape))]
        places: dict[tuple[int, ...], Extent] = {}
        for name, axis in axes:
            places.setdefault(tuple(item[name].shape[axis] for item in inputs), (name, axis))
        found: list[list[Extent]] = []
        for first, second in zip(*outputs, strict=True):
            if first.strides is not None:
                return None
            pairs = list(zip(first.shape, second.shape, strict=True))
            found.append([places[pair] if pair in places else _constant(*pair) for pair in pairs])
    except (ValueError, LookupError):  # a spec may refuse such dims
        return None
    return found


def _constant(first: int, second: int) -> int:
    if first != second:
        raise ValueError("neither a constant nor an input's extent")
    return first


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
    """What allocates each output.

    Through a tensor that knows dtype and device: `torch.empty` with all said takes 2.0 µs, this 1.1 (2-core x86 machine, torch 2.13 for the CPU).
    """
    made = []
    for shape, strides, dtype in specs:
        like = torch.empty(0, dtype=dtype, device=device)
        made.append(functools.partial(like.new_empty_strided, shape, _contiguous(shape) if strides is None else strides))
    return tuple(made)


def _contiguous(shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(torch.empty(shape, device="meta").stride())


def check_outputs(operator: str, names: Sequence[str], outputs: Sequence[Any], specs: Sequence[OutputSpec]) -> None:
    """Refuse outputs that are not what the operator writes. Those laid out otherwise are filled by copying.

    Raises:
        ValueError: they are of another number, shape or dtype.
    """
    if len(outputs) != len(specs):
        raise ValueError(f"{operator}: out holds {len(outputs)} tensors, and there are {len(specs)} outputs ({', '.join(names)})")
    for name, output, (shape, _, dtype) in zip(names, outputs, specs, strict=True):
        if tuple(output.shape) != shape or output.dtype != dtype:
            raise ValueError(f"{operator}: out for {name} is {output.dtype} {list(output.shape)}; it must be {dtype} {list(shape)}")


def refuse_unaligned(operator: str, arguments: Arguments, tensors: Sequence[Any], error: AssertionError) -> None:
    """Say which tensor it is that Triton's descriptors refuse for its address.

    A spec cannot see where a tensor starts, so a schedule that loads by TMA may meet what it cannot load.

    Raises:
        ValueError: one of them (inputs, then outputs) does not start at a multiple of 16 bytes.
    """
    odd = [name for name, tensor in zip((*arguments.tensors, *arguments.outputs), tensors, strict=False) if tensor.data_ptr() % 16]
    if odd:
        said = f"{operator}: {', '.join(odd)} must start at a multiple of 16 bytes for the schedule that serves this shape ({error})"
        raise ValueError(f"{said}; pass {odd[0]}.clone()") from error


def parameters(spec: Any, values: Mapping[str, Any]) -> Mapping[str, int | str]:
    """The workload parameters that a call's inputs ask for."""
    found: Mapping[str, int | str] = spec.infer(
        {
            name: Argument(tuple(map(_hint, value.shape)), tuple(map(_hint, value.stride())), str(value.dtype).removeprefix("torch."))
            for name, value in values.items()
            if isinstance(value, torch.Tensor)
        }
    )
    return found


def traced_outputs(spec: Any, table: Table, arguments: Arguments, inputs: Sequence[Any]) -> Sequence[OutputSpec]:
    """The outputs of a call that is traced; where its extents are symbolic, so are theirs."""
    values = dict(zip(arguments.inputs, inputs, strict=True))
    concrete = output_specs(spec, spec.workload(parameters(spec, values)))
    extents = [extent for name in arguments.tensors for extent in values[name].shape]
    if all(type(extent) is int for extent in extents):
        return concrete
    known = extents_of_outputs(spec, table)
    if known is None:
        # int() has torch guard on the extents: each shape is compiled for itself.
        for extent in extents:
            int(extent)
        return concrete
    symbolic = [tuple(extent if isinstance(extent, int) else values[extent[0]].shape[extent[1]] for extent in output) for output in known]
    return [(shape, None, dtype) for shape, (_, _, dtype) in zip(symbolic, concrete, strict=True)]


def laid_out(output: Any, spec: OutputSpec) -> bool:
    """Whether an output has the strides of one that is allocated here."""
    _, strides, _ = spec
    return bool(output.is_contiguous()) if strides is None else tuple(output.stride()) == strides


def _hint(extent: Any) -> int:
    """An extent as a number; of a symbolic one, the extent that it was first met with, without a guard."""
    known = getattr(getattr(extent, "node", None), "hint", None)
    return int(extent) if known is None else int(known)


def as_tuple(value: Any) -> tuple[Any, ...]:
    """Outputs as a tuple, also where there is one."""
    return tuple(value) if isinstance(value, (tuple, list)) else (value,)


def workspace(module: Any, arguments: Sequence[Any]) -> Sequence[tuple[Sequence[int], Any]]:
    """Shapes and dtypes of the scratch tensors that a schedule wants for a call."""
    wanted = getattr(module, "workspace", None)
    return (wanted(*arguments) or ()) if wanted is not None else ()
