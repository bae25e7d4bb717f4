"""The text of a call: one function for each operator, with its arguments spelled out.

Every name that it looks up and every attribute that it reads costs 20 to 150 ns of each call, so it does what `Dispatcher` explains and no more:
the key of the tensors, one look-up, the plan.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import triton

Key = tuple[Any, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Arguments:
    """What a call takes.

    Attributes:
        inputs: names, in order.
        scalars: defaults of those inputs that are plain numbers.
        outputs: names, in order.
    """

    inputs: tuple[str, ...]
    scalars: Mapping[str, int | float]
    outputs: tuple[str, ...]

    @property
    def tensors(self) -> tuple[str, ...]:
        """Inputs that are tensors."""
        return tuple(name for name in self.inputs if name not in self.scalars)


@dataclass(frozen=True, slots=True, kw_only=True)
class Hot:
    """Generated functions.

    Attributes:
        call: runs the operator: inputs, then `out=None`.
        key: of a call that gives its outputs: inputs, then outputs.
        fresh_key: of one that does not: inputs.
        scope: their globals.
    """

    call: Callable[..., Any]
    key: Callable[..., Key]
    fresh_key: Callable[..., Key]
    scope: dict[str, Any]

    def trace_with(self, op: Any, op_out: Any) -> None:
        """Have torch.compile see these custom ops in place of the call: without outputs, and with them."""
        self.scope.update(_op=op, _op_out=op_out)


def _key(arguments: Arguments, outputs: Sequence[str]) -> str:
    # Contiguous strides follow from the shape, and asking for them costs half of making the tuple. Where an extent is 1 its stride may be
    # anything, and the plan passes the recorded one: no element is found by it.
    first, *others = (*arguments.tensors, *outputs)
    tensors = [f"{name}.shape, {name}.dtype, {name}.is_contiguous() or {name}.stride(), {name}.get_device()" for name in others]
    # The device is wanted again for its stream.
    tensors.insert(0, f"{first}.shape, {first}.dtype, {first}.is_contiguous() or {first}.stride(), (_device := {first}.get_device())")
    return ", ".join([*tensors, *arguments.scalars]) + ","


def _pointers(names: Sequence[str], first: int = 0) -> str:
    return "; ".join(f"p{index} = {name}.data_ptr()" for index, name in enumerate(names, first))


def _text(arguments: Arguments, several_devices: bool) -> str:
    inputs, tensors = arguments.inputs, arguments.tensors
    # Named after nothing that an input could be called.
    outputs = [f"_out{index}" for index in range(len(arguments.outputs))]
    parameters = ", ".join(f"{name}={arguments.scalars[name]!r}" if name in arguments.scalars else name for name in inputs)
    given, names = ", ".join(inputs), ", ".join(outputs)
    everything = [*tensors, *outputs]
    pointers = [f"p{index}" for index in range(len(everything))]
    single = len(outputs) == 1
    result = outputs[0] if single else f"({names})"
    unpack = f"{outputs[0]} = out" if single else f"{names}, = out"
    allocate = f"{outputs[0]} = _empty()" if single else f"{names}, = [_make() for _make in _empty]"
    elsewhere = " or _device != _current()" if several_devices else ""
    # A profiler's hooks have to see every launch, so with hooks the launches are Triton's own.
    guard = f"({' | '.join(pointers)}) & 15 or _entering or _leaving or _knobs.launch_enter_hook is not _chain{elsewhere}"
    run = f"_run({', '.join(pointers)}, _stream(_device))"
    return f"""
def call({parameters}, out=None):
    if _compiling():
        if out is None:
            return _op({given})
        {unpack}
        _op_out({given}, {names})
        return out
    if out is None:
        try:
            {_pointers(tensors)}
            _run, _empty = _fresh[{_key(arguments, ())}]
        except _ANYTHING:
            pass
        else:
            if _run is None:
                return _empty({given})
            {allocate}
            {_pointers(outputs, len(tensors))}
            if not ({guard}):
                {run}
                return {result}
    else:
        try:
            {unpack}
            {_pointers(everything)}
            _run = _plans[{_key(arguments, outputs)}]
        except _ANYTHING:
            pass
        else:
            if not ({guard}):
                {run}
                return out
    return _slow(({given},), out)

def key({given}, {names}):
    return ({_key(arguments, outputs)})

def fresh_key({given}):
    return ({_key(arguments, ())})
"""


def generate(
    arguments: Arguments, *, name: str, plans: dict[Key, Any], fresh: dict[Key, Any], slow: Callable[..., Any], stream: Callable[[int], int],
    current: Callable[[], int], several_devices: bool,
) -> Hot:  # fmt: skip
    """Generate an operator's functions.

    Args:
        arguments: what a call takes.
        name: the operator's, for tracebacks and `help`.
        plans: runs of plans by `key`.
        fresh: pairs of a plan's run and what allocates outputs (a tuple where there are several), by `fresh_key`; or of None and a function of the
            inputs that makes the whole call.
        slow: makes any call: inputs as a tuple, and outputs or None.
        stream: current stream of a device.
        current: current device.
        several_devices: whether the current device may be another than the tensors'.
    """
    enter, leave = triton.knobs.runtime.launch_enter_hook, triton.knobs.runtime.launch_exit_hook
    scope: dict[str, Any] = {
        "_plans": plans, "_fresh": fresh, "_slow": slow, "_stream": stream, "_current": current,
        "_compiling": torch.compiler.is_dynamo_compiling, "_knobs": triton.knobs.runtime,
        "_chain": enter, "_entering": getattr(enter, "calls", ()), "_leaving": getattr(leave, "calls", ()),
        # No such key; or what has no shape, no memory, or not as many outputs: the slow way says which.
        "_ANYTHING": (KeyError, AttributeError, TypeError, ValueError, RuntimeError),
    }  # fmt: skip
    exec(_compiled(_text(arguments, several_devices), name), scope)
    call = scope["call"]
    call.__name__ = call.__qualname__ = name
    call.__doc__ = f"{name}({', '.join(arguments.inputs)}, out=None) -> {', '.join(arguments.outputs)}"
    return Hot(call=call, key=scope["key"], fresh_key=scope["fresh_key"], scope=scope)


@functools.lru_cache
def _compiled(text: str, name: str) -> Any:
    return compile(text, f"<tilewright call of {name}>", "exec")


def hooked() -> bool:
    """Whether someone has Triton tell of launches."""
    knobs = triton.knobs.runtime
    return any(bool(getattr(hook, "calls", hook is not None)) for hook in (knobs.launch_enter_hook, knobs.launch_exit_hook))
