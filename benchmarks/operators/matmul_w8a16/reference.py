import torch


def make_inputs(workload, specs, generator, device):
    a, b, scale = specs["a"], specs["b"], specs["scale"]
    return {
        "a": torch.empty(a.shape, dtype=getattr(torch, a.dtype), device=device).normal_(generator=generator),
        "b": torch.randint(-127, 128, b.shape, generator=generator, device=device, dtype=torch.int8),
        # Weights of an rms near 0.015, as a quantised layer's.
        "scale": (torch.rand(scale.shape, generator=generator, device=device) + 0.5) * 2e-4,
    }


def reference(workload, inputs):
    # In blocks of columns: b in fp64 is eight times its size.
    a = inputs["a"].double()
    return {"c": torch.cat([a @ b.double() * s.double() for b, s in zip(inputs["b"].split(4096, dim=1), inputs["scale"].split(4096), strict=True)], dim=1)}


def _dequantised(workload, inputs):
    a = inputs["a"]
    return (torch.mm(a, inputs["b"].to(a.dtype)) * inputs["scale"]).to(a.dtype)


VENDORS = {"torch.mm(b.to(bf16)) * scale": _dequantised}
