"""Inputs, trusted result and vendor candidates of swiglu. Loaded in child processes only: it imports torch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from tilewright.operator import ScalarSpec, TensorSpec
from tilewright.workload import Workload


def make_inputs(workload: Workload, specs: Mapping[str, TensorSpec | ScalarSpec], generator: torch.Generator, device: str) -> dict[str, Any]:
    """Normal activations."""
    values: dict[str, Any] = {}
    for name, spec in specs.items():
        if isinstance(spec, ScalarSpec):
            values[name] = spec.value
            continue
        strides = spec.strides or torch.empty(spec.shape, device="meta").stride()
        values[name] = torch.empty_strided(spec.shape, strides, dtype=getattr(torch, spec.dtype), device=device).normal_(generator=generator)
    return values


def reference(workload: Workload, inputs: Mapping[str, Any]) -> dict[str, torch.Tensor]:
    """The definition, in fp64."""
    gate, up = inputs["gate"].double(), inputs["up"].double()
    return {"y": gate * torch.sigmoid(gate) * up}


def _silu_mul(workload: Workload, inputs: Mapping[str, Any]) -> torch.Tensor:
    return torch.nn.functional.silu(inputs["gate"]) * inputs["up"]


VENDORS: dict[str, Callable[[Workload, Mapping[str, Any]], torch.Tensor]] = {"torch silu * up": _silu_mul}
