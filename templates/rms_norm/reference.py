"""Inputs, trusted result and vendor candidates of rms_norm. Loaded in child processes only: it imports torch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from tilewright.operator import ScalarSpec, TensorSpec
from tilewright.workload import Workload


def make_inputs(workload: Workload, specs: Mapping[str, TensorSpec | ScalarSpec], generator: torch.Generator, device: str) -> dict[str, Any]:
    """Normal activations, and weights near 1, as trained ones are."""
    values: dict[str, Any] = {}
    for name, spec in specs.items():
        if isinstance(spec, ScalarSpec):
            values[name] = spec.value
            continue
        mean, deviation = (1.0, 0.1) if name == "w" else (0.0, 1.0)
        strides = spec.strides or torch.empty(spec.shape, device="meta").stride()
        values[name] = torch.empty_strided(spec.shape, strides, dtype=getattr(torch, spec.dtype), device=device).normal_(mean, deviation, generator=generator)
    return values


def reference(workload: Workload, inputs: Mapping[str, Any]) -> dict[str, torch.Tensor]:
    """The definition, in fp64."""
    x, w = inputs["x"].double(), inputs["w"].double()
    return {"y": x * torch.rsqrt((x * x).mean(dim=-1, keepdim=True) + inputs["eps"]) * w}


def _rms_norm(workload: Workload, inputs: Mapping[str, Any]) -> torch.Tensor:
    return torch.nn.functional.rms_norm(inputs["x"], (workload.dims["cols"],), inputs["w"], inputs["eps"])


VENDORS: dict[str, Callable[[Workload, Mapping[str, Any]], torch.Tensor]] = {"torch.nn.functional.rms_norm": _rms_norm}
