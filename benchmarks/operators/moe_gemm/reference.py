"""Inputs, trusted result and vendor of moe_gemm."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from tilewright.operator import ScalarSpec, TensorSpec
from tilewright.workload import Workload


def make_inputs(workload: Workload, specs: Mapping[str, TensorSpec | ScalarSpec], generator: torch.Generator, device: str) -> dict[str, Any]:
    """Normal tokens, and weights scaled by 1/sqrt(K), so that results are near 1."""
    scales = {"x": 1.0, "w": workload.dims["K"] ** -0.5}
    values: dict[str, Any] = {}
    for name, spec in specs.items():
        strides = spec.strides or torch.empty(spec.shape, device="meta").stride()
        values[name] = torch.empty_strided(spec.shape, strides, dtype=getattr(torch, spec.dtype), device=device).normal_(0.0, scales[name], generator=generator)
    return values


def reference(workload: Workload, inputs: Mapping[str, Any]) -> dict[str, torch.Tensor]:
    """Expert by expert in fp32 without tf32: one expert's weights at a time in fp32."""
    precision = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    try:
        return {"out": torch.stack([torch.mm(x.float(), w.float().t()) for x, w in zip(inputs["x"], inputs["w"], strict=True)])}
    finally:
        torch.set_float32_matmul_precision(precision)


def _bmm(workload: Workload, inputs: Mapping[str, Any]) -> torch.Tensor:
    return torch.bmm(inputs["x"], inputs["w"].transpose(1, 2))


VENDORS: dict[str, Callable[[Workload, Mapping[str, Any]], torch.Tensor]] = {"torch.bmm": _bmm}
