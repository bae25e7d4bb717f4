"""Inputs, trusted result and vendor of layer_norm_backward."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from tilewright.operator import ScalarSpec, TensorSpec
from tilewright.workload import Workload

EPS = 1e-5
CHUNK = 1024


def make_inputs(workload: Workload, specs: Mapping[str, TensorSpec | ScalarSpec], generator: torch.Generator, device: str) -> dict[str, Any]:
    """Normal activations and gradients, weights near 1; mean and rstd are x's."""
    values: dict[str, Any] = {}
    for name in ("dy", "x", "w"):
        spec = specs[name]
        mean, deviation = (1.0, 0.1) if name == "w" else (0.0, 1.0)
        strides = spec.strides or torch.empty(spec.shape, device="meta").stride()
        values[name] = torch.empty_strided(spec.shape, strides, dtype=getattr(torch, spec.dtype), device=device).normal_(mean, deviation, generator=generator)
    rows = values["x"].shape[0]
    values["mean"] = torch.empty(rows, dtype=torch.float32, device=device)
    values["rstd"] = torch.empty(rows, dtype=torch.float32, device=device)
    for start in range(0, rows, CHUNK):
        part = slice(start, start + CHUNK)
        variance, mean = torch.var_mean(values["x"][part].float(), dim=1, correction=0)
        values["mean"][part] = mean
        values["rstd"][part] = torch.rsqrt(variance + EPS)
    return values


def reference(workload: Workload, inputs: Mapping[str, Any]) -> dict[str, torch.Tensor]:
    """The definition in fp64, some rows at a time for the memory's sake."""
    w = inputs["w"].double()
    rows, cols = inputs["x"].shape
    dx, dw, db = [], torch.zeros_like(w), torch.zeros_like(w)
    for start in range(0, rows, CHUNK):
        part = slice(start, start + CHUNK)
        dy, x = inputs["dy"][part].double(), inputs["x"][part].double()
        mean, rstd = inputs["mean"][part].double()[:, None], inputs["rstd"][part].double()[:, None]
        xhat = (x - mean) * rstd
        wdy = w * dy
        dx.append(((wdy - xhat * (xhat * wdy).mean(1, keepdim=True) - wdy.mean(1, keepdim=True)) * rstd).float())
        dw += (dy * xhat).sum(0)
        db += dy.sum(0)
    return {"dx": torch.cat(dx), "dw": dw, "db": db}


def _aten(workload: Workload, inputs: Mapping[str, Any]) -> tuple[torch.Tensor, ...]:
    mean, rstd, w = inputs["mean"][:, None], inputs["rstd"][:, None], inputs["w"]
    return tuple(torch.ops.aten.native_layer_norm_backward(inputs["dy"], inputs["x"], [workload.dims["cols"]], mean, rstd, w, w, [True, True, True]))


VENDORS: dict[str, Callable[[Workload, Mapping[str, Any]], tuple[torch.Tensor, ...]]] = {"aten::native_layer_norm_backward": _aten}
