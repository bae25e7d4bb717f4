"""Candidate lists: what each policy of a declaration offers, in a stated order."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

from jinja2 import Undefined

from tilewright.errors import SpaceError, nearest
from tilewright.knobs import Annotation, Entity, Reorder, Split

SPLIT_POLICIES: Final = ("factors", "power2", "verbose", "candidate")
REORDER_POLICIES: Final = ("identity", "all", "interval_all", "candidate", "interleave")
_ANNOTATIONS: Final = {
    "none": ("none",),
    "unroll": ("unroll",),
    "vec": ("vec",),
    "try_unroll": ("none", "unroll"),
    "try_vec": ("none", "vec"),
    "try_unroll_vec": ("none", "unroll", "vec"),
}
ANNOTATE_POLICIES: Final = (*_ANNOTATIONS, "candidate")

# guess: more candidates than this in one knob is a slip (all divisors of a large extent in four parts), not an intention.
MAX_CANDIDATES: Final = 1 << 16


def _policy(name: str, policy: str, allowed: Sequence[str]) -> None:
    if policy not in allowed:
        raise SpaceError(f"knob {name!r}: unknown policy {policy!r}; {nearest(str(policy), allowed)}")


def _distinct(name: str, entities: Iterable[Entity]) -> tuple[Entity, ...]:
    """All entities, without repeats, refusing an unreasonably long list."""
    kept: dict[tuple[object, ...], Entity] = {}
    for entity in entities:
        kept.setdefault((type(entity).__name__, entity), entity)
        if len(kept) > MAX_CANDIDATES:
            raise SpaceError(f"knob {name!r} has more than {MAX_CANDIDATES} candidates; bound it with min_factor, max_factor, filter or candidates")
    return tuple(kept.values())


def _some(name: str, entities: Iterable[Entity]) -> tuple[Entity, ...]:
    """All entities, without repeats, refusing an empty list too."""
    kept = _distinct(name, entities)
    if not kept:
        raise SpaceError(f"knob {name!r} has an empty list of candidates; it needs at least one for every workload it is declared for")
    return kept


def refuse_undefined(argument: object) -> None:
    """Have a name that a template never sets say so, wherever it stands in an argument: Jinja gives a stand-in, which fails once it is used.

    Raises:
        jinja2.UndefinedError: there is one; it says which.
    """
    if isinstance(argument, Undefined):
        str(argument)
    elif isinstance(argument, (list, tuple, set)):
        for part in argument:
            refuse_undefined(part)
    elif isinstance(argument, dict):
        refuse_undefined([*argument, *argument.values()])


def knob_candidates(name: str, candidates: Iterable[object]) -> tuple[Entity, ...]:
    """The candidates of `define_knob`, as stated, without repeats.

    Raises:
        SpaceError: none is left, or one is neither a number, a word nor a boolean.
    """
    if isinstance(candidates, (str, bytes, dict)) or not isinstance(candidates, Iterable):
        raise SpaceError(f"knob {name!r}: candidates must be a list such as [2, 4, 8], not {candidates!r}")
    entities: list[Entity] = []
    for candidate in candidates:
        if not isinstance(candidate, (bool, int, float, str)) or (isinstance(candidate, float) and not math.isfinite(candidate)):
            raise SpaceError(f"knob {name!r}: candidate {candidate!r} must be a finite number, a word or a boolean")
        entities.append(str(candidate) if isinstance(candidate, str) else candidate)
    kinds = {type(entity) for entity in entities}
    if bool in kinds and kinds & {int, float}:
        raise SpaceError(f"knob {name!r}: candidates {entities!r} mix booleans and numbers, which compare equal; use one of the two")
    return _some(name, entities)


def split_candidates(
    name: str,
    extent: int,
    num_outputs: int,
    policy: str,
    *,
    min_factor: int = 1,
    max_factor: int | None = None,
    no_tail: bool = False,
    filter: Callable[[Split], object] | None = None,
    candidates: Iterable[Sequence[int]] | None = None,
) -> tuple[Entity, ...]:
    """The candidates of `define_split`, ascending from the second part to the innermost (as stated under `candidate`).

    The outermost part follows from the others: it is the extent over their product, rounded up. `min_factor` and `max_factor`
    bound the others. Without `no_tail` their product may pass the extent up to the next power of two, and where `min_factor`
    alone asks for more, up to that: so `power2` is never empty.

    Raises:
        SpaceError: an argument is of the wrong kind, the policy is unknown, or no candidate is left.
    """
    _policy(name, policy, SPLIT_POLICIES)
    bounds = {"extent": extent, "num_outputs": num_outputs, "min_factor": min_factor, "max_factor": 1 if max_factor is None else max_factor}
    for label, number in bounds.items():
        if type(number) is not int or number < 1:
            raise SpaceError(f"split {name!r}: {label}={number!r} must be an integer of 1 or more")
    if max_factor is not None and max_factor < min_factor:
        raise SpaceError(f"split {name!r}: max_factor={max_factor} is below min_factor={min_factor}")
    if (candidates is None) == (policy == "candidate"):
        raise SpaceError(f"split {name!r}: candidates go with policy='candidate', and with no other")
    splits: Iterable[Split]
    if candidates is not None:
        splits = [_stated_split(name, extent, num_outputs, parts) for parts in candidates]
    else:
        splits = _generated_splits(extent, num_outputs, policy, min_factor, max_factor, no_tail)
    if filter is not None:
        splits = (split for split in splits if filter(split))
    kept = _distinct(name, splits)
    if not kept:
        stated = f"min_factor={min_factor}, max_factor={max_factor}, no_tail={no_tail}" + (", and a filter" if filter else "")
        raise SpaceError(
            f"split {name!r}: an empty list of candidates: no split of extent {extent} into {num_outputs} parts under policy {policy!r} with {stated}; "
            "widen the bounds, or allow tails with policy 'power2'"
        )
    return kept


def _generated_splits(extent: int, num_outputs: int, policy: str, min_factor: int, max_factor: int | None, no_tail: bool) -> Iterator[Split]:
    top = max(_next_power2(extent), _next_power2(min_factor))
    most = top if max_factor is None else min(top, max_factor)
    factors: set[int] = set()
    if policy != "power2":
        factors |= {d for low in range(1, math.isqrt(extent) + 1) if extent % low == 0 for d in (low, extent // low)}
    if policy != "factors":
        factors |= {1 << bit for bit in range(top.bit_length())}
    ladder = sorted(factor for factor in factors if min_factor <= factor <= most)
    exact = no_tail or policy == "factors"
    least = ladder[0] ** (num_outputs - 1) if ladder else 1
    limit = extent if exact else max(_next_power2(extent), least)

    def extend(parts: tuple[int, ...], product: int) -> Iterator[Split]:
        if len(parts) == num_outputs - 1:
            if not exact or extent % product == 0:
                yield Split((-(-extent // product), *parts))
            return
        for factor in ladder:
            if product * factor > limit:
                break
            yield from extend((*parts, factor), product * factor)

    yield from extend((), 1)


def _stated_split(name: str, extent: int, num_outputs: int, parts: Sequence[int]) -> Split:
    """A split as the author wrote it; -1 as the outermost part stands for what covers the extent."""
    sizes = tuple(parts) if isinstance(parts, (list, tuple)) else ()
    inner = sizes[1:]
    if sizes and sizes[0] == -1 and all(type(part) is int and part >= 1 for part in inner):
        sizes = (-(-extent // math.prod(inner)), *inner)
    if len(sizes) != num_outputs or any(type(part) is not int or part < 1 for part in sizes):
        raise SpaceError(f"split {name!r}: candidate {parts!r} must be a list of {num_outputs} integers of 1 or more (the first may be -1)")
    if math.prod(sizes) < extent:
        raise SpaceError(f"split {name!r}: candidate {list(sizes)!r} covers {math.prod(sizes)} of extent {extent}; make a part larger, or the first -1")
    return Split(sizes)


def _next_power2(number: int) -> int:
    return 1 << (number - 1).bit_length()


def reorder_candidates(
    name: str,
    axes: Sequence[str],
    policy: str,
    *,
    interval: Sequence[int] | None = None,
    chains: Sequence[Sequence[str]] | None = None,
    candidates: Sequence[Sequence[str]] | None = None,
) -> tuple[Entity, ...]:
    """The candidates of `define_reorder`.

    `identity` offers the axes as given; `all` every permutation; `interval_all` every permutation of axes[begin:end] with the
    rest in place; `interleave` every merge of `chains` that keeps each chain's own order; `candidate` the orders stated.

    Raises:
        SpaceError: the policy is unknown, its argument is missing, or an order is no permutation of the axes.
    """
    _policy(name, policy, REORDER_POLICIES)
    names = _axes(name, axes)
    given = {"interval_all": ("interval", interval), "interleave": ("chains", chains), "candidate": ("candidates", candidates)}
    for owner, (label, argument) in given.items():
        if (argument is not None) != (owner == policy):
            raise SpaceError(f"reorder {name!r}: {label} goes with policy={owner!r}, and with no other")
    orders: Iterable[Sequence[str]] = [names]
    if policy == "all":
        orders = itertools.permutations(names)
    elif interval is not None:
        if len(interval) != 2 or not 0 <= interval[0] < interval[1] <= len(names):
            raise SpaceError(f"reorder {name!r}: interval={interval!r} must be [begin, end] within 0..{len(names)}")
        begin, end = interval
        orders = ((*names[:begin], *middle, *names[end:]) for middle in itertools.permutations(names[begin:end]))
    elif chains is not None:
        orders = _merges(tuple(tuple(chain) for chain in chains))
    elif candidates is not None:
        orders = candidates
    return _some(name, (_reorder(name, names, order) for order in orders))


def _reorder(name: str, axes: tuple[str, ...], order: Sequence[str]) -> Reorder:
    if sorted(map(str, order)) != sorted(axes):
        raise SpaceError(f"reorder {name!r}: {list(order)!r} is no permutation of the axes {list(axes)!r}")
    return Reorder(tuple(axes.index(axis) for axis in order), tuple(order))


def _merges(chains: tuple[tuple[str, ...], ...]) -> Iterator[tuple[str, ...]]:
    if not any(chains):
        yield ()
    for position, chain in enumerate(chains):
        if chain:
            rest = (*chains[:position], chain[1:], *chains[position + 1 :])
            yield from ((chain[0], *tail) for tail in _merges(rest))


def annotate_candidates(name: str, axes: Sequence[str], policy: str, *, candidates: Sequence[Sequence[str]] | None = None) -> tuple[Entity, ...]:
    """The candidates of `define_annotate`: one word for each axis.

    `none`, `unroll` and `vec` say the same of every axis; `try_unroll`, `try_vec` and `try_unroll_vec` offer every combination
    with `none`; `candidate` offers the lists stated.

    Raises:
        SpaceError: the policy is unknown, or a stated list does not have one word for each axis.
    """
    _policy(name, policy, ANNOTATE_POLICIES)
    names = _axes(name, axes)
    if (candidates is None) == (policy == "candidate"):
        raise SpaceError(f"annotate {name!r}: candidates go with policy='candidate', and with no other")
    if candidates is None:
        return _some(name, (Annotation(words) for words in itertools.product(_ANNOTATIONS[policy], repeat=len(names))))
    for words in candidates:
        if isinstance(words, str) or len(words) != len(names) or not all(isinstance(word, str) for word in words):
            raise SpaceError(f"annotate {name!r}: candidate {words!r} must be a list of {len(names)} words, one for each of {list(names)!r}")
    return _some(name, (Annotation(tuple(words)) for words in candidates))


def _axes(name: str, axes: Sequence[str]) -> tuple[str, ...]:
    if isinstance(axes, str) or not axes or not all(isinstance(axis, str) for axis in axes) or len(set(axes)) != len(axes):
        raise SpaceError(f"knob {name!r}: axes must be a list of different names, not {axes!r}")
    return tuple(axes)


def is_ordered(entities: Sequence[Entity]) -> bool:
    """Whether the entities are numbers, or splits, in ascending order."""
    if all(isinstance(entity, Split) for entity in entities):
        keys = [(*entity.size[1:], entity.size[0]) for entity in entities if isinstance(entity, Split)]
        return keys == sorted(keys)
    if any(isinstance(entity, bool) or not isinstance(entity, (int, float)) for entity in entities):
        return False
    numbers = [entity for entity in entities if isinstance(entity, (int, float))]
    return numbers == sorted(numbers)


def unchanged(first: Sequence[Entity], later: Sequence[Entity]) -> bool:
    """Whether two lists of candidates are the same, types included."""
    return [(type(entity), entity) for entity in first] == [(type(entity), entity) for entity in later]
