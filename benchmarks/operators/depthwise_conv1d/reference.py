"""Inputs, trusted result and vendor candidates of depthwise_conv1d. Loaded in child processes only: it imports torch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from tilewright.operator import TensorSpec
from tilewright.workload import Workload


def make_inputs(workload: Workload, specs: Mapping[str, TensorSpec], generator: torch.Generator, device: str) -> dict[str, Any]:
    """Normal activations; taps with which the sums keep about their scale; small biases."""
    deviations = {"x": 1.0, "weight": workload.dims["width"] ** -0.5, "bias": 0.2}
    values: dict[str, Any] = {}
    for name, spec in specs.items():
        strides = spec.strides or torch.empty(spec.shape, device="meta").stride()
        empty = torch.empty_strided(spec.shape, strides, dtype=getattr(torch, spec.dtype), device=device)
        values[name] = empty.normal_(0.0, deviations[name], generator=generator)
    return values


def reference(workload: Workload, inputs: Mapping[str, Any]) -> dict[str, torch.Tensor]:
    """The definition, in fp64: tap k of `width` reads width - 1 - k rows back, and nothing before the first row."""
    x, weight = inputs["x"].double(), inputs["weight"].double()
    seq, width = workload.dims["seq"], workload.dims["width"]
    z = inputs["bias"].double().expand(x.shape).clone()
    for k in range(width):
        back = width - 1 - k
        if back < seq:
            z[:, back:].addcmul_(x[:, : seq - back], weight[:, k])
    return {"y": z.mul_(torch.sigmoid(z))}


def _conv1d(workload: Workload, inputs: Mapping[str, Any]) -> torch.Tensor:
    x, weight = inputs["x"], inputs["weight"]
    z = torch.nn.functional.conv1d(x.transpose(1, 2), weight[:, None, :], inputs["bias"], padding=weight.shape[1] - 1, groups=x.shape[2])
    return torch.nn.functional.silu(z[..., : x.shape[1]]).transpose(1, 2)


VENDORS: dict[str, Callable[[Workload, Mapping[str, Any]], torch.Tensor]] = {"torch.nn.functional.conv1d + silu": _conv1d}
