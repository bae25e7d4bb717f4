"""Inputs, trusted result and vendor candidates of matmul. Loaded in child processes only: it imports torch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from tilewright.operator import ScalarSpec, TensorSpec
from tilewright.workload import Workload


def make_inputs(workload: Workload, specs: Mapping[str, TensorSpec | ScalarSpec], generator: torch.Generator, device: str) -> dict[str, Any]:
    """Normal data, b scaled by 1/sqrt(K) as trained weights are: results near 1 in size, none overflows in fp16."""
    scales = {"a": 1.0, "b": workload.dims["K"] ** -0.5}
    values: dict[str, Any] = {}
    for name, spec in specs.items():
        if isinstance(spec, ScalarSpec):
            values[name] = spec.value
            continue
        strides = spec.strides or torch.empty(spec.shape, device="meta").stride()
        values[name] = torch.empty_strided(spec.shape, strides, dtype=getattr(torch, spec.dtype), device=device).normal_(0.0, scales[name], generator=generator)
    return values


def reference(workload: Workload, inputs: Mapping[str, Any]) -> dict[str, torch.Tensor]:
    """The product in fp32 without tf32, where products of the operands are exact; in fp64 for fp32 operands."""
    exact = torch.float64 if workload.dtypes["dtype"] == "float32" else torch.float32
    precision = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    try:
        return {"c": torch.mm(inputs["a"].to(exact), inputs["b"].to(exact))}
    finally:
        torch.set_float32_matmul_precision(precision)


def _mm(workload: Workload, inputs: Mapping[str, Any]) -> torch.Tensor:
    return torch.mm(inputs["a"], inputs["b"])


VENDORS: dict[str, Callable[[Workload, Mapping[str, Any]], torch.Tensor]] = {"torch.mm": _mm}
