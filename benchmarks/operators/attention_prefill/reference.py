"""Inputs, trusted result and vendor candidate of attention_prefill. Loaded in child processes only: it imports torch."""

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
    """The definition in fp32 without tf32 (products of the operands are exact), a head and 2048 rows at a time: scores take seq * seq."""
    q, k, v = (inputs[name].flatten(0, 1) for name in ("q", "k", "v"))
    seq, head_dim = q.shape[1:]
    out = torch.empty(q.shape, dtype=torch.float32, device=q.device)
    columns = torch.arange(seq, device=q.device)
    precision = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    try:
        for head in range(q.shape[0]):
            keys, values = k[head].float(), v[head].float()
            for first in range(0, seq, 2048):
                scores = q[head, first : first + 2048].float() @ keys.mT * head_dim**-0.5
                if workload.layout["causal"] == "yes":
                    scores.masked_fill_(columns[None, :] > columns[first : first + 2048, None], -float("inf"))
                out[head, first : first + 2048] = torch.softmax(scores, dim=-1) @ values
    finally:
        torch.set_float32_matmul_precision(precision)
    return {"out": out.view(inputs["q"].shape)}


def _sdpa(workload: Workload, inputs: Mapping[str, Any]) -> torch.Tensor:
    return torch.nn.functional.scaled_dot_product_attention(inputs["q"], inputs["k"], inputs["v"], is_causal=workload.layout["causal"] == "yes")


VENDORS: dict[str, Callable[[Workload, Mapping[str, Any]], torch.Tensor]] = {"torch sdpa": _sdpa}
