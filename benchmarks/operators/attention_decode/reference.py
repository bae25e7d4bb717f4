"""Inputs, trusted result and vendor candidates of attention_decode. Loaded in child processes only: it imports torch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from tilewright.operator import ScalarSpec, TensorSpec
from tilewright.workload import Workload


def make_inputs(workload: Workload, specs: Mapping[str, TensorSpec | ScalarSpec], generator: torch.Generator, device: str) -> dict[str, Any]:
    """Normal data: scores are normal too, and weights spread by a factor of some hundred."""
    values: dict[str, Any] = {}
    for name, spec in specs.items():
        if isinstance(spec, ScalarSpec):
            values[name] = spec.value
            continue
        strides = spec.strides or torch.empty(spec.shape, device="meta").stride()
        values[name] = torch.empty_strided(spec.shape, strides, dtype=getattr(torch, spec.dtype), device=device).normal_(generator=generator)
    return values


def reference(workload: Workload, inputs: Mapping[str, Any]) -> dict[str, torch.Tensor]:
    """The definition in fp64, one batch at a time: the cache in fp64 takes four times its memory."""
    q, k, v = inputs["q"], inputs["k"], inputs["v"]
    kv_heads, head_dim = k.shape[1], k.shape[3]
    out = torch.empty(q.shape, dtype=torch.float64, device=q.device)
    for b in range(q.shape[0]):
        rows = q[b].double().reshape(kv_heads, -1, head_dim)
        weights = torch.softmax(rows @ k[b].double().mT * head_dim**-0.5, dim=-1)
        out[b] = (weights @ v[b].double()).reshape(-1, head_dim)
    return {"out": out}


def _sdpa_gqa(workload: Workload, inputs: Mapping[str, Any]) -> torch.Tensor:
    """As a model's code calls it: heads that share keys."""
    q = inputs["q"].unsqueeze(2)
    return torch.nn.functional.scaled_dot_product_attention(q, inputs["k"], inputs["v"], enable_gqa=True).squeeze(2)


def _sdpa_rows(workload: Workload, inputs: Mapping[str, Any]) -> torch.Tensor:
    """The heads of a group as rows of one query tile: the cache is read once for all of them."""
    q, k, v = inputs["q"], inputs["k"], inputs["v"]
    rows = q.view(q.shape[0], k.shape[1], -1, q.shape[2])
    return torch.nn.functional.scaled_dot_product_attention(rows, k, v).reshape(q.shape)


VENDORS: dict[str, Callable[[Workload, Mapping[str, Any]], torch.Tensor]] = {
    "torch sdpa, enable_gqa": _sdpa_gqa,
    "torch sdpa, group as rows": _sdpa_rows,
}
