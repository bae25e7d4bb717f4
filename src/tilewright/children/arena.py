"""Copies of a call's operands, packed into one allocation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import torch

from tilewright.children.buffers import ALIGNMENT, round_up, span_elements

# The device's page. In every process operands lie at the same places of theirs, rather than in whatever gaps earlier workloads had left: one
# difference less. It showed in no figure; what made small kernels differ by process was another (decision 0020).
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
