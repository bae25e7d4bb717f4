"""How an operator's operands lie in memory, seen from the sums it makes of them. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod
from typing import Final

from tilewright.operator import OperatorSpec, TensorSpec
from tilewright.workload import Workload

_USUAL: Final = 1  # of a row-major product: B


def crosswise_operands(spec: OperatorSpec, workload: Workload) -> int:
    """Of how many operands neighbours in memory belong to different sums, so that a tile of them is many short stretches.

    Told by doubling dims: an axis that grows with a dim of the largest result is no sum's. A product of row-major A and B has one, B.

    Args:
        spec: its `inputs` and `outputs` are asked at other extents.
        workload: with its layouts.

    Returns:
        The number; 1 where no tensor has an axis along the sums, or where the spec refuses the workload or other extents.
    """
    try:
        here = _axes(spec, workload)
        larger = max(prod(output.shape) for output in spec.outputs(workload).values())
        ours: list[list[bool]] = [[False] * len(shape) for shape, _ in here]  # whether an axis is the result's, by tensor
        for name, extent in workload.dims.items():
            at = replace(workload, dims={**workload.dims, name: 2 * extent})
            if max(prod(output.shape) for output in spec.outputs(at).values()) == larger:
                continue  # of the sums
            for flags, (before, _), (after, _) in zip(ours, here, _axes(spec, at), strict=True):
                flags[:] = [flag or one != other for flag, one, other in zip(flags, before, after, strict=True)]
    except Exception:  # the author's functions: they may refuse such a workload, or a history's
        return _USUAL
    summed = [flags[unit] for flags, (_, unit) in zip(ours, here, strict=True) if not all(flags)]
    return sum(summed) if summed else _USUAL


def _axes(spec: OperatorSpec, workload: Workload) -> list[tuple[Sequence[int], int]]:
    """Shape, and the axis along which neighbours lie in memory, of each input of more than one axis."""
    found: list[tuple[Sequence[int], int]] = []
    for tensor in spec.inputs(workload).values():
        if isinstance(tensor, TensorSpec) and len(tensor.shape) > 1:
            strides = tensor.strides
            found.append((tensor.shape, len(tensor.shape) - 1 if strides is None else min(range(len(strides)), key=lambda axis: (strides[axis] != 1, -axis))))
    return found
