"""Memory that candidates write to: poisoned before a run, with guard zones around the whole of it."""

from __future__ import annotations

from typing import Any, Final

import torch

from tilewright.workload import DTYPE_BYTES

# guess: a tile of 128 rows by 4,096 16-bit elements past the end; what lands beyond it may fall on a neighbour, and a
# candidate found to stray has everything rebuilt after it.
GUARD_BYTES: Final = 2**20
ALIGNMENT: Final = 256  # what torch's allocator and Triton's descriptors count on

_GUARD: Final = 0xA5
_BITS: Final = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
# All bits set is a NaN in every floating-point format that has one. Integers have no NaN: two runs with two patterns tell an
# element that happens to equal one. A bool holds 0 or 1 and nothing else.
_POISON_FLOAT: Final = (0xFF, 0xFF)
_POISON_INT: Final = (0xFF, 0xA5)
_POISON_BOOL: Final = (0x01, 0x00)


class Guarded:
    """One output or scratch tensor inside its own allocation, between two guard zones.

    Args:
        name: what messages call it.
        shape: extents.
        dtype: torch's.
        strides: in elements; contiguous where None.
        device: torch's.

    Attributes:
        tensor: the view that a candidate is given, aligned to 256 bytes.
    """

    def __init__(self, name: str, shape: tuple[int, ...], dtype: Any, strides: tuple[int, ...] | None, device: Any) -> None:
        self.name = name
        steps = contiguous_strides(shape) if strides is None else strides
        span = span_elements(shape, steps) * dtype.itemsize
        # At least the longest stride, so that one row past the end falls into the zone.
        guard = round_up(max(GUARD_BYTES, max(steps, default=0) * dtype.itemsize), ALIGNMENT)
        self._raw = torch.full((guard + span + guard + 2 * ALIGNMENT,), _GUARD, dtype=torch.uint8, device=device)
        self._start = guard + -(self._raw.data_ptr() + guard) % ALIGNMENT
        self._end = self._start + span
        self.tensor = self._raw[self._start : self._end].view(dtype).as_strided(shape, steps)
        self.bits = self.tensor.view(_BITS[dtype.itemsize])
        self._patterns = _POISON_BOOL if dtype is torch.bool else _POISON_FLOAT if dtype.is_floating_point else _POISON_INT
        self._gaps = self._gap_mask(span)

    def _gap_mask(self, span: int) -> Any:
        """True at the bytes between rows that belong to no element; None where there are none."""
        if self.tensor.numel() * self.tensor.element_size() >= span:
            return None
        mask = torch.ones(span, dtype=torch.uint8, device=self._raw.device)
        elements = mask.view(self.tensor.dtype).as_strided(self.tensor.shape, self.tensor.stride())
        elements.view(self.bits.dtype).fill_(0)
        return mask.bool()

    @property
    def nbytes(self) -> int:
        """Bytes of the whole allocation."""
        return int(self._raw.numel())

    def poison(self, run: int) -> None:
        """Overwrite every element: NaN where the dtype has one, else a pattern that differs between run 0 and run 1."""
        self.bits.fill_(self.pattern(run))

    def pattern(self, run: int) -> int:
        """The poison of a run, as an element's bits read as an integer."""
        byte = self._patterns[run % 2]
        return int.from_bytes(bytes([byte]) * self.bits.element_size(), "little", signed=self.bits.element_size() > 1)

    def damage(self) -> Any:
        """A bool tensor on the device, without waiting for it: whether a byte outside the elements was changed."""
        found = (self._raw[: self._start] != _GUARD).any() | (self._raw[self._end :] != _GUARD).any()
        if self._gaps is not None:
            found = found | ((self._raw[self._start : self._end] != _GUARD) & self._gaps).any()
        return found

    def describe_damage(self) -> str:
        """Where bytes outside the elements were changed; waits for the device."""
        before, after = (zone.nonzero().flatten() for zone in (self._raw[: self._start] != _GUARD, self._raw[self._end :] != _GUARD))
        places = []
        if after.numel():
            places.append(f"{after.numel()} bytes past its end, the first {int(after[0])} bytes after it")
        if before.numel():
            places.append(f"{before.numel()} bytes before its start, the first {self._start - int(before[0])} bytes ahead of it")
        if not places:
            places.append("bytes between its rows, which its strides leave out")
        return f"{self.name} {list(self.tensor.shape)}: wrote {' and '.join(places)}"


def torch_dtype(name: Any) -> Any:
    """Torch's dtype of that name; a dtype is returned as it is.

    Raises:
        ValueError: no such dtype.
    """
    if isinstance(name, torch.dtype):
        return name
    if str(name) not in DTYPE_BYTES:
        raise ValueError(f"{name!r} is no dtype; one of: {', '.join(DTYPE_BYTES)}")
    return getattr(torch, str(name))


def contiguous_strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Strides in elements of a row-major tensor."""
    strides, step = [], 1
    for extent in reversed(shape):
        strides.append(step)
        step *= max(extent, 1)
    return tuple(reversed(strides))


def span_elements(shape: tuple[int, ...], strides: tuple[int, ...]) -> int:
    """Elements from the first to the last one of a strided tensor, gaps included."""
    return 0 if 0 in shape else 1 + sum((extent - 1) * step for extent, step in zip(shape, strides, strict=True))


def round_up(value: int, multiple: int) -> int:
    """The next multiple at or above."""
    return -(-value // multiple) * multiple


def copy_exact(tensor: Any) -> Any:
    """A copy in memory of its own, with the same strides and the gaps between rows too."""
    span = span_elements(tuple(tensor.shape), tuple(tensor.stride()))
    return tensor.as_strided((span,), (1,)).clone().as_strided(tensor.shape, tensor.stride())


def bits_of(tensor: Any) -> Any:
    """The same memory as integers of the elements' size."""
    return tensor.view(_BITS[tensor.element_size()])


def finite(tensor: Any) -> Any:
    """A bool tensor on the device: which elements are neither NaN nor infinite. torch cannot say so of every 8-bit float (2.13: not of `float8_e4m3fn`)."""
    return (tensor.float() if tensor.element_size() == 1 else tensor).isfinite()


def differs(tensor: Any, other: Any) -> Any:
    """A bool tensor on the device: whether any bit of the elements differs (NaN equals the same NaN)."""
    return (bits_of(tensor) != bits_of(other)).any()
