"""Inputs, reference and vendor candidate of the recorded GEMM."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from tilewright.operator import ScalarSpec, TensorSpec
from tilewright.workload import Workload


def make_inputs(
    workload: Workload, specs: Mapping[str, TensorSpec | ScalarSpec], generator: torch.Generator, device: torch.device | str
) -> dict[str, torch.Tensor | float]:
    """Normal operands: A of unit variance, B scaled by 1/sqrt(K) as a weight is, so that outputs are near 1."""
    inputs: dict[str, torch.Tensor | float] = {}
    for name, spec in specs.items():
        if isinstance(spec, ScalarSpec):
            inputs[name] = spec.value
            continue
        values = torch.randn(spec.shape, generator=generator, device=generator.device, dtype=torch.float32)
        if name == "b":
            values *= workload.dims["K"] ** -0.5
        tensor = torch.empty_strided(spec.shape, spec.strides, dtype=getattr(torch, spec.dtype), device=device) if spec.strides else None
        plain = values.to(device=device, dtype=getattr(torch, spec.dtype))
        inputs[name] = plain if tensor is None else tensor.copy_(plain)
    return inputs


def reference(workload: Workload, inputs: Mapping[str, Any]) -> dict[str, torch.Tensor]:
    """The product in fp32, of operands as they were rounded to fp16.

    On a GPU it is taken in float64, because fp32 products there may be allowed to use TF32.
    """
    dtype = torch.float64 if inputs["a"].is_cuda else torch.float32
    return {"c": inputs["a"].to(dtype) @ inputs["b"].to(dtype)}


VENDORS: dict[str, Callable[[Workload, Mapping[str, Any]], torch.Tensor]] = {"torch.mm": lambda workload, inputs: torch.mm(inputs["a"], inputs["b"])}
