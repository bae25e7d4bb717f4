"""What a call is taken for: the workload that `infer` reads off tensors, compared with the one that they were made for."""

from __future__ import annotations

from collections.abc import Iterable
from math import prod

from tilewright.operator import OperatorSpec, TensorArg, TensorSpec
from tilewright.workload import Workload


def call_tensors(spec: OperatorSpec, workload: Workload) -> dict[str, TensorArg]:
    """The tensor arguments of a workload's call, as `infer` is given them."""
    tensors = {name: item for name, item in spec.inputs(workload).items() if isinstance(item, TensorSpec)}
    return {
        name: TensorArg(shape=item.shape, strides=item.strides or tuple(prod(item.shape[place + 1 :]) for place in range(len(item.shape))), dtype=item.dtype)
        for name, item in tensors.items()
    }


def inference_note(spec: OperatorSpec, workloads: Iterable[Workload]) -> str:
    """What to tell of workloads that no call is taken for: one note for all of them, empty where there is none.

    Args:
        spec: of their operator. What fails in it is told elsewhere.
        workloads: that are tuned or checked.
    """
    mistaken = [(workload, other) for workload in workloads if (other := _taken_for(spec, workload)) not in (None, workload)]
    if not mistaken:
        return ""
    first, other = mistaken[0]
    assert other is not None
    hidden = [name for name in first.parameters if first.parameters[name] != other.parameters[name]]
    more = f", and {len(mistaken) - 1} more workload(s) for others" if len(mistaken) > 1 else ""
    return (
        f"tilewright.load takes a call of {first.shown} for {other.shown}{more}: `infer` does not see {', '.join(hidden)} in the tensors; "
        "docs/authoring.md, under infer, says what to do"
    )


def _taken_for(spec: OperatorSpec, workload: Workload) -> Workload | None:
    try:
        return spec.workload(spec.infer(call_tensors(spec, workload)))
    except (Exception, SystemExit):
        return None
