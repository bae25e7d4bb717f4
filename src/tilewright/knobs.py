"""Knobs: what a template leaves open, each with its ordered candidates, and what a template reads of a chosen one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

from tilewright.errors import SpaceError, nearest
from tilewright.workload import NAME

# A knob's value as logs hold it: a plain word or number, or the parts of a split, a permutation, or annotations.
Value = int | float | str | bool | list[int | str]
Config = Mapping[str, Value]
Kind = Literal["split", "knob", "reorder", "annotate"]

SCHEDULE: Final = "schedule"
# Candidates listed in an error message before it says how many more there are.
_SHOWN: Final = 12


@dataclass(frozen=True, slots=True)
class Split:
    """An extent cut into parts.

    Attributes:
        size: the parts, outermost first; their product is the extent, or covers it where tails are allowed.
    """

    size: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Reorder:
    """An order of axes.

    Attributes:
        perm: positions in the declared list of axes, in the chosen order.
        axes: the axes' names, in the chosen order.
    """

    perm: tuple[int, ...]
    axes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Annotation:
    """One word for each axis.

    Attributes:
        anns: `none`, `unroll`, `vec`, or the author's own words, in the order of the axes.
    """

    anns: tuple[str, ...]


Entity = int | float | str | bool | Split | Reorder | Annotation


def value_of(entity: Entity) -> Value:
    """The form of an entity that configs and logs hold."""
    if isinstance(entity, Split):
        return list(entity.size)
    if isinstance(entity, Reorder):
        return list(entity.axes)
    if isinstance(entity, Annotation):
        return list(entity.anns)
    return entity


def typed_key(value: object) -> tuple[object, ...]:
    """A hashable form of a value that keeps `1`, `1.0` and `True` apart, as JSON does."""
    if isinstance(value, (list, tuple)):
        return (list, *(typed_key(part) for part in value))
    return (value.__class__, value)


def extent_of(value: Value) -> int:
    """The extent that a value stands for where it is a tile's: the innermost part of a split, or a whole number; 0 for what is neither."""
    inner = value[-1] if isinstance(value, list) and value else value
    return inner if isinstance(inner, int) and not isinstance(inner, bool) else 0


def copied(config: Config) -> dict[str, Value]:
    """A config that shares no list with another."""
    return {name: list(value) if isinstance(value, list) else value for name, value in config.items()}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Knob:
    """One declared choice.

    Attributes:
        name: as the template declares it, and as configs hold it.
        kind: which declaration made it.
        values: its candidates, in the order stated.
        ordered: whether the candidates are numbers or splits in ascending order, so that neighbours are alike.
        id: unique in its space; the name, or `schedule.name` where two schedules give one name different candidates.
    """

    name: str
    kind: Kind
    values: tuple[Value, ...]
    ordered: bool = False
    id: str = ""
    _indices: dict[tuple[object, ...], int] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not NAME.match(self.name):
            raise SpaceError(f"knob name {self.name!r} must be a plain name: letters, digits and _, not starting with a digit")
        if not self.values:
            raise SpaceError(f"knob {self.name!r} has no candidates; give it at least one")
        object.__setattr__(self, "id", self.id or self.name)
        object.__setattr__(self, "_indices", {typed_key(value): index for index, value in enumerate(self.values)})

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if not isinstance(other, Knob):
            return NotImplemented
        return (self.id, self.name, self.kind, self.ordered) == (other.id, other.name, other.kind, other.ordered) and self.agrees(other)

    def __hash__(self) -> int:
        return hash((self.id, self.name, self.kind, len(self.values)))

    def agrees(self, other: Knob) -> bool:
        """Whether the other knob is of the same kind and has the same candidates in the same order."""
        return self.kind == other.kind and [*self._indices] == [*other._indices]

    def find(self, value: object) -> int | None:
        """The position of a value among the candidates, None where it is none of them."""
        try:
            return self._indices.get(typed_key(value) if isinstance(value, (list, tuple)) else (value.__class__, value))
        except TypeError:  # unhashable, such as a mapping in a damaged log
            return None

    def index(self, value: object) -> int:
        """The position of a value among the candidates.

        Raises:
            SpaceError: it is none of them.
        """
        found = self.find(value)
        if found is None:
            raise SpaceError(f"knob {self.name!r}: {value!r} is no candidate; {listing(self.values, value)}")
        return found

    def carried(self, value: object) -> int:
        """The position of a value of another workload: a split of another extent stands for the one with the same inner parts.

        Raises:
            SpaceError: there is none.
        """
        found = self.find(value)
        if found is None and self.kind == "split" and isinstance(value, list):
            found = next((place for place, parts in enumerate(self.values) if isinstance(parts, list) and parts[1:] == value[1:]), None)
        return self.index(value) if found is None else found


def listing(values: Sequence[Value], near: object = None) -> str:
    """The end of an error message: some candidates, and the nearest to what was given where it is a word."""
    if isinstance(near, str):
        return nearest(near, [str(value) for value in values])
    shown = ", ".join(repr(value) for value in values[:_SHOWN])
    return f"one of: {shown}" + (f" and {len(values) - _SHOWN} more" if len(values) > _SHOWN else "")
