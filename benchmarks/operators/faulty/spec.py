"""c = a + b, by schedules of which most are broken in one way each: what a session has to survive."""

from __future__ import annotations

from tilewright.operator import OperatorSpec, TensorSpec, Tolerance
from tilewright.workload import Workload


def _vector(workload: Workload) -> TensorSpec:
    return TensorSpec(shape=(workload["N"],), dtype="float32")


SPEC = OperatorSpec(
    name="faulty",
    summary="c = a + b, by schedules that are broken in every way; for tests",
    dims=("N",),
    dtypes={"dtype": ("float32",)},
    # Which of the faults are in the space: none, those that show in the interpreter, all, or those that are faster for being wrong.
    layouts={"faults": ("none", "interpreted", "all", "planted")},
    arguments=("a", "b"),
    inputs=lambda workload: {"a": _vector(workload), "b": _vector(workload)},
    outputs=lambda workload: {"c": _vector(workload)},
    flops=lambda workload: workload["N"],
    bytes_moved=lambda workload: 12 * workload["N"],
    tolerance=lambda workload: Tolerance(rel_norm=1e-3, max_error=1e-2, reason="loose, so that only what is meant is wrong"),
    infer=lambda args: {"N": args["a"].shape[0]},
)
