"""The operator as a custom op of torch, so that torch.compile takes a call whole; eager calls go past it."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Sequence
from typing import Any

import torch

from .hot import Arguments

# The shapes, strides and dtypes of outputs, from those of the input tensors.
Shapes = Callable[[Sequence[Any]], Sequence[tuple[Sequence[int], Sequence[int] | None, Any]]]


class TracedOperator:
    """Two custom ops: one that allocates its outputs, one that is given them.

    Args:
        package: namespace of the ops.
        name: the operator's.
        arguments: what a call takes.
        mutates: inputs that it changes.
        call: runs it.
        outputs: shapes of the outputs, for a call's inputs without memory.
    """

    def __init__(self, package: str, name: str, arguments: Arguments, mutates: Sequence[str], call: Callable[..., Any], outputs: Shapes) -> None:
        self._arguments, self._call, self._outputs = arguments, call, outputs
        space = re.sub(r"\W", "_", package)
        self._library = torch.library.Library(space, "FRAGMENT")  # noqa: TOR901 (it lives as long as the operator)
        inputs = ", ".join(self._parameter(item, item in mutates) for item in arguments.inputs)
        outs = ", ".join(f"Tensor({chr(ord('z') - index)}!) {item}" for index, item in enumerate(arguments.outputs))
        results = ", ".join("Tensor" for _ in arguments.outputs)
        unused = next(f"{name}{suffix}" for suffix in map(_suffix, itertools.count()) if not hasattr(getattr(torch.ops, space), f"{name}{suffix}"))
        self._library.define(f"{unused}({inputs}) -> ({results})")
        self._library.define(f"{unused}_out({inputs}, {outs}) -> ()")
        self._library.impl(unused, self._run, "CompositeExplicitAutograd")
        self._library.impl(f"{unused}_out", self._run_out, "CompositeExplicitAutograd")
        torch.library.register_fake(f"{space}::{unused}", self._fake, lib=self._library)
        torch.library.register_fake(f"{space}::{unused}_out", lambda *_: None, lib=self._library)
        self._fresh = getattr(getattr(torch.ops, space), unused).default
        self._given = getattr(getattr(torch.ops, space), f"{unused}_out").default

    def _parameter(self, name: str, mutated: bool) -> str:
        if name in self._arguments.scalars:
            value = self._arguments.scalars[name]
            kind = "bool" if isinstance(value, bool) else "int" if isinstance(value, int) else "float"
            return f"{kind} {name}"
        alias = f"(a{self._arguments.inputs.index(name)}!)" if mutated else ""
        return f"Tensor{alias} {name}"

    def functions(self) -> tuple[Any, Any]:
        """The two ops: without outputs, and with them."""
        return self._fresh, self._given

    def _run(self, *inputs: Any) -> Any:
        return self._call(*inputs)

    def _run_out(self, *values: Any) -> None:
        count = len(self._arguments.inputs)
        outputs = values[count:]
        self._call(*values[:count], outputs[0] if len(outputs) == 1 else outputs)

    def _fake(self, *inputs: Any) -> Any:
        device = next(value.device for value in inputs if isinstance(value, torch.Tensor))
        made = [
            torch.empty(shape, dtype=dtype, device=device) if strides is None else torch.empty_strided(shape, strides, dtype=dtype, device=device)
            for shape, strides, dtype in self._outputs(inputs)
        ]
        return made[0] if len(made) == 1 else tuple(made)


def _suffix(number: int) -> str:
    return f"_{number}" if number else ""
