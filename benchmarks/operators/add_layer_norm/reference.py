"""Inputs, trusted result and vendor of add_layer_norm."""

import torch


def make_inputs(workload, specs, generator, device):
    # A residual stream with an offset, so that a variance without its mean taken off would show; weights near 1, small biases.
    spread = {"x": (0.1, 1.0), "residual": (0.4, 2.0), "weight": (1.0, 0.1), "bias": (0.0, 0.1)}
    values = {}
    for name, spec in specs.items():
        if hasattr(spec, "value"):
            values[name] = spec.value
            continue
        mean, deviation = spread[name]
        values[name] = torch.empty(spec.shape, dtype=getattr(torch, spec.dtype), device=device).normal_(mean, deviation, generator=generator)
    return values


def reference(workload, inputs):
    # The new residual is rounded to its dtype, and it is this that is normalised, as by two separate operators.
    h = (inputs["x"] + inputs["residual"]).double()
    centred = h - h.mean(dim=-1, keepdim=True)
    rstd = torch.rsqrt((centred * centred).mean(dim=-1, keepdim=True) + inputs["eps"])
    return {"y": centred * rstd * inputs["weight"].double() + inputs["bias"].double(), "new_residual": h}


def _add_and_layer_norm(workload, inputs):
    h = inputs["x"] + inputs["residual"]
    return torch.nn.functional.layer_norm(h, (workload.dims["cols"],), inputs["weight"], inputs["bias"], inputs["eps"]), h


VENDORS = {"torch add + layer_norm": _add_and_layer_norm}
