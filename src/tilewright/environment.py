"""The Jinja environment of templates: strict, sandboxed, and rendering nothing but plain literals."""

from __future__ import annotations

import keyword
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from types import FunctionType, MethodType
from typing import Any, Final

import jinja2
from jinja2 import nodes
from jinja2.runtime import Context, LoopContext, Macro
from jinja2.sandbox import SandboxedEnvironment

from tilewright.declare import Cfg
from tilewright.errors import TemplateError
from tilewright.knobs import Annotation, Reorder, Split
from tilewright.steps import COUNTED, MACRO_STEPS, bound_loops, bounded_power, bounded_range, counted, step
from tilewright.target import Target
from tilewright.workload import NAME


class Verbatim(str):
    """Text that renders as it is: an identifier that was checked, or what a macro of the template itself rendered."""

    __slots__ = ()


def ident(value: object) -> Verbatim:
    """Filter `ident`: a word as a bare Python identifier, such as a dtype's name after `tl.`.

    Raises:
        TemplateError: it is none.
    """
    if not isinstance(value, str) or not value.isascii() or not NAME.match(value) or keyword.iskeyword(value):
        raise TemplateError(f"{value!r} | ident: not a Python identifier, so it cannot be rendered as bare code")
    return Verbatim(value)


def literal(value: object) -> str:
    """The text that an expression renders to: a Python literal that reads back as the value.

    Raises:
        TemplateError: the value is none of numbers, words, booleans, and lists or tuples of them.
    """
    kind = type(value)
    if kind is Verbatim:
        return str(value)
    if isinstance(value, jinja2.Undefined):
        return str(value)  # raises, with the name that is undefined
    if kind in (bool, int) or (isinstance(value, float) and math.isfinite(value)):
        return repr(value)
    if isinstance(value, str):
        return repr(str(value))
    if kind in (list, tuple) and all(type(part) in (bool, int, str) or (type(part) is float and math.isfinite(part)) for part in value):  # type: ignore[attr-defined]
        return repr(value)
    hints = {Split: "render a part of it, such as .size[-1]", Reorder: "render its .perm or .axes", Annotation: "render its .anns"}
    hint = hints.get(kind, "render a number, a word, a boolean, or a list of them")
    raise TemplateError(f"an expression gives {value!r}, which has no literal text; {hint}")


class Environment(SandboxedEnvironment):
    """Jinja as templates use it. The template's text is its author's; the values in it may come from anyone's log."""

    intercepted_binops = frozenset({"**"})

    def call(__self, __context: Context, __obj: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: N805 - as in Jinja, so that templates may use any keyword
        """Call from a template. Declarations skip the sandbox's checks, which would cost half of a pass."""
        kind = type(__obj)
        if (kind is MethodType and type(__obj.__self__) is Cfg) or (kind is FunctionType and __obj in _PURE):
            if kwargs:
                kwargs.pop("_loop_vars", None)  # Jinja adds them to calls in loops and blocks, for functions that take a context
                kwargs.pop("_block_vars", None)
            return __obj(*args, **kwargs)
        if kind is Macro:
            step(__context, MACRO_STEPS)
        elif kind is LoopContext and args:  # a loop that calls itself, over other things than its own
            args = (counted(__context, args[0]), *args[1:])
        result = super().call(__context, __obj, *args, **kwargs)
        return Verbatim(result) if kind is Macro else result

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        """The one operator that is intercepted: a power, whose size is bounded."""
        return bounded_power(left, right)

    def _generate(self, source: nodes.Template, *arguments: Any, **more: Any) -> str:
        bound_loops(source, self)
        return super()._generate(source, *arguments, **more)

    def getattr(self, obj: Any, attribute: str) -> Any:
        """Read an attribute from a template. A knob's value is itself, so that `.val` reads as in AutoTVM."""
        kind = type(obj)
        if kind is Cfg:
            return getattr(obj, attribute)  # one of its public methods, as `knob_section` has checked
        if attribute in _PLAIN.get(kind, ()):
            return getattr(obj, attribute)
        if attribute == "val" and kind in (int, float, str, bool):
            return obj
        return super().getattr(obj, attribute)


def _cdiv(number: int, divisor: int) -> int:
    return -(-number // divisor)


def _next_power_of_2(number: int) -> int:
    return 1 << (number - 1).bit_length()


# What the sandbox would allow anyway: its checks are half of the time of a pass (shipped matmul, 2026-11: 148 µs a pass, 53 without).
_PURE: Final = frozenset({_cdiv, _next_power_of_2, bounded_range})
_PLAIN: Final[Mapping[type, frozenset[str]]] = {
    Split: frozenset({"size"}),
    Reorder: frozenset({"perm", "axes"}),
    Annotation: frozenset({"anns"}),
    Target: frozenset(field.name for field in fields(Target)),
}


def make_environment() -> Environment:
    """A fresh environment: no loader, no random filter, and only pure helpers as globals."""
    environment = Environment(
        undefined=jinja2.StrictUndefined,
        extensions=["jinja2.ext.do"],
        finalize=literal,
        keep_trailing_newline=True,
        autoescape=False,
    )
    environment.globals.clear()
    environment.globals.update(range=bounded_range, namespace=jinja2.utils.Namespace, min=min, max=max, cdiv=_cdiv, next_power_of_2=_next_power_of_2)
    del environment.filters["random"]
    environment.filters["ident"] = ident
    environment.filters[COUNTED] = counted
    return environment


def split_filter(environment: Environment, text: str, names: Mapping[str, object]) -> Callable[[Split], object]:
    """A split's filter from the text of a Jinja expression over `size` and the names a template sees."""
    expression = environment.compile_expression(text, undefined_to_none=False)

    def keep(split: Split) -> bool:
        return bool(expression({**names, "size": split.size}))

    return keep


GLOBAL_NAMES: Final[Sequence[str]] = ("range", "namespace", "min", "max", "cdiv", "next_power_of_2")
