"""Stand-ins for the tensors of a call: they have its shapes, strides, dtypes and alignment, but no memory.

`launch` runs on them once for each new shape, and what it would launch is taken down: no kernel runs, nothing is allocated.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any, Final

import torch

# Addresses of stand-ins lie 16 TiB apart from one another: where a pointer falls tells which tensor it was made from.
_SPACING_BITS: Final = 44

# What `launch` may ask of a tensor or make of it without touching a device. Anything else (`zero_`, `copy_`, arithmetic) is work of the
# call that launching kernels alone would leave out.
_READS: Final = frozenset(
    {
        "__get__", "__len__", "__getitem__", "__format__", "__repr__", "as_strided", "data_ptr", "detach", "dim", "element_size", "expand", "flatten",
        "get_device", "is_contiguous", "is_floating_point", "is_complex", "narrow", "ndimension", "nelement", "numel", "permute", "reshape", "select",
        "size", "squeeze", "storage_offset", "stride", "swapaxes", "swapdims", "t", "transpose", "unflatten", "unsqueeze", "untyped_storage", "view",
        "view_as",
    }
)  # fmt: skip

_active = threading.local()

Described = tuple[Sequence[int], Sequence[int] | None, Any, int]


class Unplannable(Exception):
    """A `launch` does what a plan cannot repeat; it has to be called itself."""


class StandIn(torch.Tensor):  # type: ignore[misc]  # torch is Any here
    """A tensor of the meta device with an address of its own; views of it have addresses within it."""

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = getattr(func, "__name__", "")
        if name not in _READS:
            raise Unplannable(f"launch calls {name} on a tensor")
        return super().__torch_function__(func, types, args, kwargs or {})

    def data_ptr(self) -> int:
        """The made-up address."""
        base = _bases().get(self.untyped_storage()._cdata)
        if base is None:
            raise Unplannable("launch makes a tensor that is no view of its arguments")
        return int(base + self.storage_offset() * self.element_size())


def _bases() -> dict[int, int]:
    bases: dict[int, int] | None = getattr(_active, "bases", None)
    return {} if bases is None else bases


class Cast:
    """The stand-ins of one recording, while it lasts, in the thread that records.

    Args:
        tensors: for each tensor its shape, strides in elements (None where contiguous), dtype, and address modulo 16.
    """

    def __init__(self, tensors: Sequence[Described]) -> None:
        self.count = 0
        self._bases: dict[int, int] = {}
        self.tensors: list[Any] = []
        for tensor in tensors:
            self.add(*tensor)

    def add(self, shape: Sequence[int], strides: Sequence[int] | None, dtype: Any, misaligned: int = 0) -> Any:
        """One more stand-in; contiguous where no strides are given."""
        made = torch.empty(shape, dtype=dtype, device="meta") if strides is None else torch.empty_strided(shape, strides, dtype=dtype, device="meta")
        self.count += 1
        self._bases[made.untyped_storage()._cdata] = (self.count << _SPACING_BITS) + misaligned
        self.tensors.append(made.as_subclass(StandIn))
        return self.tensors[-1]

    def place(self, address: Any) -> tuple[int, int] | None:
        """Which stand-in an address lies in, counted from 0, and the offset within it in bytes; None for another number."""
        if type(address) is not int or not 0 < (number := address >> _SPACING_BITS) <= self.count:
            return None
        base = next(base for base in self._bases.values() if base >> _SPACING_BITS == number)
        return number - 1, address - base

    def __enter__(self) -> Cast:
        self._outer = getattr(_active, "bases", None)
        _active.bases = self._bases
        return self

    def __exit__(self, *exception: object) -> None:
        _active.bases = self._outer


def described(tensor: Any) -> Described:
    """A real tensor as `Cast` takes it."""
    # Strides of extents of 1 mean nothing, and the key of a contiguous tensor does not tell them apart.
    strides = None if tensor.is_contiguous() else tuple(tensor.stride())
    return tuple(tensor.shape), strides, tensor.dtype, tensor.data_ptr() % 16


def dtype_of(name: Any) -> Any:
    """The dtype of a name such as `float16`."""
    return getattr(torch, name.removeprefix("torch.")) if isinstance(name, str) else name


def is_standin(value: Any) -> bool:
    """Whether a value is a stand-in."""
    return isinstance(value, StandIn)
