"""Plans: what a call of one exact shape comes down to, as a function of its pointers and its stream.

A plan is a closure over constants. Its text depends only on the kinds of the arguments, so schedules share it and making one costs microseconds.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from .kernels import STREAM, Launch, Lowered, Map, lower
from .standin import Cast, Unplannable, is_standin

# A map is 128 bytes and a key; weights stay where they are, activations move among a few blocks of torch's allocator.
_MAPS: Final = 256  # guess: tensors of one shape in a large model

Run = Callable[..., None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A call of one exact shape.

    Attributes:
        run: takes the tensors' addresses (inputs, then outputs) and the stream.
        kernels: names of what it launches, in order.
        direct: whether Triton's own `run` is bypassed.
    """

    run: Run
    kernels: tuple[str, ...]
    direct: bool

    @property
    def hits(self) -> int:
        """Calls so far; without a lock, so that threads that race may lose some."""
        names = self.run.__code__.co_freevars
        return int((self.run.__closure__ or ())[names.index("hits")].cell_contents)


@dataclass(slots=True)
class _Text:
    """A plan's text in the making: names of constants, and lines."""

    cast: Cast
    tensors: int
    scratch: Sequence[int]
    constants: list[Any] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)
    maps: int = 0

    def constant(self, value: Any) -> str:
        self.constants.append(value)
        return f"c{len(self.constants) - 1}"

    def pointer(self, place: tuple[int, int]) -> str:
        index, offset = place
        if index < self.tensors:
            return f"p{index} + {offset}" if offset else f"p{index}"
        offset += self.scratch[index - self.tensors]
        return f"s + {offset}" if offset else "s"

    def argument(self, value: Any) -> str:
        if is_standin(value):
            place = self.cast.place(value.data_ptr())
            assert place is not None
            return self.pointer(place)
        if isinstance(value, Map):
            return self.map(value)
        if type(value) in (tuple, list):
            # 3.9 takes a kernel's arguments as one sequence, which its maker of tensor maps turns into a list.
            return f"({''.join(f'{self.argument(item)}, ' for item in value)})"
        if value is STREAM:
            return "stream"
        place = self.cast.place(value)
        if place is not None:
            return self.pointer(place)
        if hasattr(value, "data_ptr"):
            raise Unplannable("launch uses a tensor that is not an argument of the call")
        return self.constant(value)

    def map(self, wanted: Map) -> str:
        """A tensor map depends on nothing but the address and constants, so it is made once for each address."""
        address, *rest = wanted.arguments
        place = self.cast.place(address)
        if place is None:
            raise Unplannable("a tensor map is made of an address that is no argument's")
        name, pointer = f"m{self.maps}", self.pointer(place)
        self.maps += 1
        cached = self.constant({})
        make = self.constant(functools.partial(_make_map, wanted.make, tuple(rest), self.constants[-1]))
        self.lines += [f"{name} = {cached}.get({pointer})", f"if {name} is None:", f"    {name} = {make}({pointer})"]
        return name


def _make_map(make: Callable[..., Any], rest: tuple[Any, ...], known: dict[int, Any], address: int) -> Any:
    if len(known) >= _MAPS:
        known.clear()
    made = known[address] = make(address, *rest)
    return made


def build(launches: Sequence[Launch], cast: Cast, tensors: int, scratch: Callable[[int], Callable[[int], tuple[int, Any]]]) -> Plan:
    """The plan of a recording.

    Args:
        launches: in order.
        cast: the recording's stand-ins: the call's tensors, then scratch.
        tensors: how many of them are the call's.
        scratch: gives, for a size in bytes, what gives scratch for a stream: its address, and what keeps it.

    Raises:
        Unplannable: a launch depends on something else than the call's tensors.
        OutOfResources: a kernel needs more than the device has.
    """
    offsets, size = _layout(cast.tensors[tensors:])
    text = _Text(cast, tensors, offsets)
    lowered = [lower(launch) for launch in launches]
    if size:
        text.lines.append(f"s, held = {text.constant(scratch(size))}(stream)")
    for launch, low in zip(launches, lowered, strict=True):
        low = low or _by_triton(launch)
        arguments = [text.argument(value) for value in low.arguments]
        text.lines.append(f"{text.constant(low.launch)}({', '.join(arguments)})")
    run = _made(tensors, tuple(text.lines), len(text.constants))(*text.constants)
    return Plan(run=run, kernels=tuple(launch.kernel.name for launch in launches), direct=None not in lowered)


def _layout(scratch: Sequence[Any]) -> tuple[list[int], int]:
    """Offsets of scratch tensors within one block, 256-byte aligned as torch's allocator has them, and its size."""
    offsets, size = [], 0
    for tensor in scratch:
        offsets.append(size)
        size += -(-tensor.numel() * tensor.element_size() // 256) * 256
    return offsets, size


def _by_triton(launch: Launch) -> Lowered:
    """The launch through Triton's `run`, which takes addresses as well as tensors, but not inside of descriptors."""
    if any(not is_standin(value) and hasattr(value, "base") for value in launch.arguments):
        raise Unplannable("a tensor descriptor that Triton has to take apart")
    kernel = launch.kernel
    return Lowered(kernel.run, (*launch.grid, STREAM, kernel.function, kernel.packed_metadata, None, None, None, *launch.arguments))


@functools.lru_cache(maxsize=512)
def _made(tensors: int, lines: tuple[str, ...], constants: int) -> Callable[..., Run]:
    body = "\n        ".join(["nonlocal hits", "hits += 1", *lines])
    pointers = "".join(f"p{index}, " for index in range(tensors))
    names = "".join(f"c{index}, " for index in range(constants))
    text = f"def make({names}):\n    hits = 0\n    def run({pointers}stream):\n        {body}\n    return run\n"
    scope: dict[str, Any] = {}
    exec(compile(text, "<tilewright plan>", "exec"), scope)
    made: Callable[..., Run] = scope["make"]
    return made
