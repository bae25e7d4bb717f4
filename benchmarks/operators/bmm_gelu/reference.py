"""Inputs, trusted result and vendor candidate of bmm_gelu. Loaded in child processes only: it imports torch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from tilewright.operator import ScalarSpec, TensorSpec
from tilewright.workload import Workload


def make_inputs(workload: Workload, specs: Mapping[str, TensorSpec | ScalarSpec], generator: torch.Generator, device: str) -> dict[str, Any]:
    """Normal activations; b scaled by 1/sqrt(K) as trained weights are; biases of some tenths: GELU sees values on both sides of its bend."""
    scales = {"a": 1.0, "b": workload.dims["K"] ** -0.5, "bias": 0.3}
    values: dict[str, Any] = {}
    for name, spec in specs.items():
        if isinstance(spec, ScalarSpec):
            values[name] = spec.value
            continue
        strides = spec.strides or torch.empty(spec.shape, device="meta").stride()
        values[name] = torch.empty_strided(spec.shape, strides, dtype=getattr(torch, spec.dtype), device=device).normal_(0.0, scales[name], generator=generator)
    return values


def reference(workload: Workload, inputs: Mapping[str, Any]) -> dict[str, torch.Tensor]:
    """In fp32 without tf32, where products of the operands are exact; GELU by erf."""
    precision = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    try:
        product = torch.bmm(inputs["a"].float(), inputs["b"].float())
    finally:
        torch.set_float32_matmul_precision(precision)
    return {"out": torch.nn.functional.gelu(product + inputs["bias"].float()[:, None, :])}


def _bmm_gelu(workload: Workload, inputs: Mapping[str, Any]) -> torch.Tensor:
    return torch.nn.functional.gelu(torch.bmm(inputs["a"], inputs["b"]) + inputs["bias"][:, None, :])


VENDORS: dict[str, Callable[[Workload, Mapping[str, Any]], torch.Tensor]] = {"torch.bmm, add and gelu": _bmm_gelu}
