import torch
import torch.nn.functional as F


def make_inputs(workload, specs, generator, device):
    rows, vocab = specs["logits"].shape
    dtype = getattr(torch, specs["logits"].dtype)
    logits = torch.empty((rows, vocab), dtype=dtype, device=device).normal_(0.0, 2.0, generator=generator)
    labels = torch.randint(0, vocab, (rows,), generator=generator, device=device, dtype=torch.int64)
    return {"logits": logits, "labels": labels}


def reference(workload, inputs):
    # In blocks of rows: fp64 logits of a whole batch take many gigabytes.
    parts = [F.cross_entropy(x.double(), y, reduction="none") for x, y in zip(inputs["logits"].split(256), inputs["labels"].split(256), strict=True)]
    return {"loss": torch.cat(parts)}


def _cross_entropy(workload, inputs):
    return F.cross_entropy(inputs["logits"].float(), inputs["labels"], reduction="none")


VENDORS = {"F.cross_entropy(float)": _cross_entropy}
