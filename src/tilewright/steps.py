"""How far a template's loops may go: so many steps a pass, the same on every machine. Without a bound, one that never ends would hold the session."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any, Final

import jinja2
from jinja2 import nodes
from jinja2.runtime import Context

from tilewright.declare import Cfg
from tilewright.errors import TemplateError

# Of loops and macro calls together: guess, seconds at most where a turn does a little, and thousands of times what a template has use for.
MOST_STEPS: Final = 1_000_000
MACRO_STEPS: Final = 20  # a macro call takes some 18 µs, a turn of a loop under 1 (2026-11)
MOST_BITS: Final = 4096  # guess: of a power; far over any extent or mask, and under what takes a noticeable time
COUNTED: Final = "counted"


def bound_loops(tree: nodes.Template, environment: jinja2.Environment) -> None:
    """Have each loop of a parsed template count its steps."""
    for loop in tree.find_all(nodes.For):
        if not (isinstance(loop.iter, nodes.Filter) and loop.iter.name == COUNTED):
            loop.iter = nodes.Filter(loop.iter, COUNTED, [], [], None, None, lineno=loop.iter.lineno).set_environment(environment)


@jinja2.pass_context
def counted(context: Context, values: Iterable[Any]) -> Collection[Any]:
    """Filter around what a loop goes through: a copy, which the loop cannot make longer.

    Raises:
        TemplateError: the pass has taken too many steps.
    """
    held = values if isinstance(values, range | tuple | str) else list(values)
    step(context, len(held))
    return held


def step(context: Context, count: int = 1) -> None:
    """Note steps of a pass.

    Raises:
        TemplateError: it has taken too many.
    """
    cfg = context.parent.get("cfg")
    if type(cfg) is Cfg:
        cfg._steps += count
        if cfg._steps > MOST_STEPS:
            raise TemplateError(f"the template's loops and macros take more than {MOST_STEPS:,} steps; a loop that does not end, or one over too much")


def bounded_range(*arguments: int) -> range:
    """Python's `range`, of no more than a pass's steps.

    Raises:
        TemplateError: it is longer.
    """
    made = range(*arguments)
    if made[MOST_STEPS:]:  # `len` refuses one of more than 2**63
        raise TemplateError(f"range{arguments!r} has more than {MOST_STEPS:,} numbers")
    return made


def bounded_power(base: Any, exponent: Any) -> Any:
    """`base ** exponent`, of no more bits than a number in a template needs.

    Raises:
        TemplateError: it has more.
    """
    if isinstance(base, int) and isinstance(exponent, int) and exponent > 0 and abs(base).bit_length() * exponent > MOST_BITS and abs(base) > 1:
        raise TemplateError(f"{base} ** {exponent} has more than {MOST_BITS:,} bits")
    return base**exponent
