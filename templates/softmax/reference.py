"""Inputs, trusted result and vendor candidates of softmax. Loaded in child processes only: it imports torch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from tilewright.operator import ScalarSpec, TensorSpec
from tilewright.workload import Workload


def make_inputs(workload: Workload, specs: Mapping[str, TensorSpec | ScalarSpec], generator: torch.Generator, device: str) -> dict[str, Any]:
    """Normal logits; the tolerance reckons with their spread."""
    values: dict[str, Any] = {}
    for name, spec in specs.items():
        if isinstance(spec, ScalarSpec):
            values[name] = spec.value
            continue
        strides = spec.strides or torch.empty(spec.shape, device="meta").stride()
        values[name] = torch.empty_strided(spec.shape, strides, dtype=getattr(torch, spec.dtype), device=device).normal_(generator=generator)
    return values


def reference(workload: Workload, inputs: Mapping[str, Any]) -> dict[str, torch.Tensor]:
    """Torch's softmax, in fp64."""
    return {"y": torch.softmax(inputs["x"].double(), dim=-1)}


def _softmax(workload: Workload, inputs: Mapping[str, Any]) -> torch.Tensor:
    return torch.softmax(inputs["x"], dim=-1)


VENDORS: dict[str, Callable[[Workload, Mapping[str, Any]], torch.Tensor]] = {"torch.softmax": _softmax}
