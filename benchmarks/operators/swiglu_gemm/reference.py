"""Inputs, trusted result and vendor of swiglu_gemm."""

import torch


def make_inputs(workload, specs, generator, device):
    # Weights scaled by 1/sqrt(K), as trained ones are: both products are near 1 in size, and silu is used where it bends.
    scales = {"x": 1.0, "wg": workload.dims["K"] ** -0.5, "wu": workload.dims["K"] ** -0.5}
    values = {}
    for name, spec in specs.items():
        t = torch.empty(spec.shape, dtype=getattr(torch, spec.dtype), device=device)
        values[name] = t.normal_(0.0, scales[name], generator=generator)
    return values


def reference(workload, inputs):
    precision = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    try:
        x = inputs["x"].float()
        g, u = x @ inputs["wg"].float(), x @ inputs["wu"].float()
    finally:
        torch.set_float32_matmul_precision(precision)
    return {"out": torch.nn.functional.silu(g) * u}


def _two_mm(workload, inputs):
    return torch.nn.functional.silu(inputs["x"] @ inputs["wg"]) * (inputs["x"] @ inputs["wu"])


# Rounds g, silu(g) and u to the dtype before the product: three or four roundings where the kernel has one.
VENDORS = {"torch.mm+silu": _two_mm}
