"""`triton.Config` lists: a Python snippet for kernels that are tuned by `triton.autotune`."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from tilewright.errors import UsageError
from tilewright.interchange.chosen import Chosen
from tilewright.interchange.names import Names, Plain, config_names, identifier, one_line
from tilewright.knobs import SCHEDULE

# Arguments of `triton.Config` itself, in the order of Triton 3.6 to 3.9; everything else goes to the kernel.
OPTIONS: Final = ("num_warps", "num_stages", "num_ctas", "maxnreg")

_HEADER: Final = '''\
"""Configs for triton.autotune, of tuned schedules.

{origin}
Use: @triton.autotune(configs=NAME, key=[...]) with one of the lists below.
"""

import triton
'''


@dataclass(slots=True)
class _Entry:
    kwargs: dict[str, Plain]
    options: dict[str, int]
    comments: list[str] = field(default_factory=list)


def triton_snippet(chosen: Sequence[Chosen], names: Names, origin: str) -> str:
    """A Python module with one list for each operator and schedule: they are different kernels.

    The same config of several workloads stands once, with a comment for each of them.

    Args:
        chosen: what goes in, in this order.
        names: what the kernel calls the knobs.
        origin: where they come from, for people.

    Raises:
        UsageError: there is nothing to write, a name does not fit, or a value is none that `triton.Config` takes.
    """
    if not chosen:
        raise UsageError("nothing to export: no schedule here is both correct and timed; `tilewright log stats` sums up the failures")
    names.check(config_names(one.config for one in chosen))
    lists: dict[tuple[str, str], dict[str, _Entry]] = defaultdict(dict)
    for one in chosen:
        kwargs, options = _arguments(one, names)
        entry = lists[one.workload.operator, one.schedule].setdefault(repr((kwargs, options)), _Entry(kwargs, options))
        entry.comments.append(_comment(one))
    parts = [_HEADER.format(origin=one_line(origin).replace("\\", "/").replace('"', "'"))]
    for (operator, schedule), entries in lists.items():
        name = identifier("_".join(filter(None, (operator, schedule, "configs")))).upper()
        parts.append("\n".join([f"{name} = [", *(line for entry in entries.values() for line in _lines(entry)), "]\n"]))
    return "\n".join(parts)


def _arguments(one: Chosen, names: Names) -> tuple[dict[str, Plain], dict[str, int]]:
    named = names.apply({name: value for name, value in one.config.items() if name != SCHEDULE or names.of(SCHEDULE)})
    options: dict[str, int] = {}
    for name in OPTIONS:
        if name in named:
            value = named.pop(name)
            if type(value) is not int or value < 1:
                raise UsageError(f"{one.workload.key}: {name}={value!r} is no value that triton.Config takes there; it must be an integer of 1 or more")
            options[name] = value
    return named, options


def _comment(one: Chosen) -> str:
    parameters = one.workload.key.partition(":")[2]
    triton = f", Triton {one.triton}" if one.triton else ""
    return one_line(f"{parameters}: {one.median_us:g} us on {one.target.name} ({one.protocol}{triton})")


def _lines(entry: _Entry) -> list[str]:
    options = "".join(f", {name}={value}" for name, value in entry.options.items())
    return [*(f"    # {comment}" for comment in entry.comments), f"    triton.Config({_literal(entry.kwargs)}{options}),"]


def _literal(kwargs: Mapping[str, Plain]) -> str:
    # A log is data: names and values reach the text as literals, never as code.
    return "{" + ", ".join(f"{ascii(name)}: {ascii(value)}" for name, value in kwargs.items()) + "}"
