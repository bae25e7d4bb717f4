"""Copies of a call's operands, packed into one allocation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import torch

from tilewright.children.buffers import ALIGNMENT, round_up, span_elements

# The device's page. A kernel's time depends on how its operands lie to pages: allocated one by one, into whatever gaps earlier workloads
# had left, a normalisation took 3.23 or 3.61 µs by process and a decode GEMM 17.2 or 17.9 (H200, 2026-11-29, measurement_h200.py).
PAGE_BYTES: Final = 2 * 2**20


def packed_copies(values: Sequence[Any], count: int, device: Any) -> list[list[Any]]:
    """Copies of the tensors among call arguments, all in one allocation from the start of a page: in every process at the same places of it.

    Args:
        values: the arguments; those that are no tensors are passed on.
        count: how many copies of all of them.
        device: torch's, where the copies lie.

    Returns:
        `count` lists of arguments, with the strides of the originals, and their gaps between rows too.
    """
    spans = [span_elements(tuple(value.shape), tuple(value.stride())) if isinstance(value, torch.Tensor) else 0 for value in values]
    sizes = [round_up(span * value.element_size(), ALIGNMENT) if span else 0 for span, value in zip(spans, values, strict=True)]
    raw = torch.empty((PAGE_BYTES + count * sum(sizes),), dtype=torch.uint8, device=device)
    place = -raw.data_ptr() % PAGE_BYTES
    copies = []
    for _ in range(count):
        one: list[Any] = []
        for value, span, size in zip(values, spans, sizes, strict=True):
            if not isinstance(value, torch.Tensor):
                one.append(value)
                continue
            flat = raw[place : place + span * value.element_size()].view(value.dtype)
            flat.copy_(value.as_strided((span,), (1,)))
            one.append(flat.as_strided(value.shape, value.stride()))
            place += size
        copies.append(one)
    return copies
