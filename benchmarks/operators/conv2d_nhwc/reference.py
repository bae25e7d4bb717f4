import torch
import torch.nn.functional as F


def make_inputs(workload, specs, generator, device):
    d = workload.dims
    scale = {"x": 1.0, "w": (d["R"] * d["S"] * d["C"]) ** -0.5}
    values = {}
    for name, spec in specs.items():
        values[name] = torch.empty(spec.shape, dtype=getattr(torch, spec.dtype), device=device).normal_(0.0, scale[name], generator=generator)
    return values


def reference(workload, inputs):
    """A matrix product for each tap of the filter, in fp32 without tf32: products of fp16 are exact in it."""
    x, w = inputs["x"].float(), inputs["w"].float()
    oc, r_taps, s_taps, c = w.shape
    batch, h, width, _ = x.shape
    padded = F.pad(x, (0, 0, s_taps // 2, s_taps // 2, r_taps // 2, r_taps // 2))
    precision = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    try:
        out = torch.zeros((batch * h * width, oc), dtype=torch.float32, device=x.device)
        for r in range(r_taps):
            for s in range(s_taps):
                out += padded[:, r : r + h, s : s + width].reshape(-1, c) @ w[:, r, s, :].T
    finally:
        torch.set_float32_matmul_precision(precision)
    return {"out": out.view(batch, h, width, oc)}


def _conv2d(workload, inputs):
    x, w = inputs["x"], inputs["w"]
    # Views, in torch's memory format channels_last: nothing is copied.
    return F.conv2d(x.permute(0, 3, 1, 2), w.permute(0, 3, 1, 2), padding=(w.shape[1] // 2, w.shape[2] // 2)).permute(0, 2, 3, 1)


VENDORS = {"torch.nn.functional.conv2d": _conv2d}
