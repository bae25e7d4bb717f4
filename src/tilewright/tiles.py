"""The tile that a config cuts a result into, by the names of its knobs: nothing that a build says tells it exactly. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil, prod
from typing import Final

from tilewright.knobs import extent_of
from tilewright.operator import OperatorSpec
from tilewright.record import Config
from tilewright.workload import Workload

# A tile's extent along a dim `m`, as people name it: m, BM, BLOCK_M, BLOCK_SIZE_M, tile_m, bs_m.
_NAMED: Final = r"(?:b|bs|blk|block|tile|t)?_?(?:size)?_?{dim}"
# Stages of a pipeline: num_stages, stages, s.
_STAGES: Final = re.compile(r"(?:num|n)?_?s(?:tages?)?", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedTile:
    """A tile of a result.

    Attributes:
        count: of the tiles that cover the result.
        rows: its extent along all axes of the result but the last.
        columns: along the last axis.
        depth: what is loaded of the sums at a time; None where no knob is named as that.
        stages: of its pipeline; None where no knob is named as that.
    """

    count: int
    rows: int
    columns: int
    depth: int | None = None
    stages: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TileKnobs:
    """Which knobs are named as what. Of several that fit, none is taken where they stand in one config.

    Attributes:
        sides: those named as the tile's extent, by dim of the largest result; empty where that is no product of dims.
        along: those named as what is loaded at a time, by dim of the sums.
        stages: those named as stages.
    """

    sides: Mapping[str, Sequence[str]]
    along: Mapping[str, Sequence[str]]
    stages: Sequence[str]

    @property
    def complete(self) -> bool:
        """Whether a tile is known: each dim of the result has its knob."""
        return bool(self.sides) and all(self.sides.values())


def knob_namer(spec: OperatorSpec, workload: Workload) -> Callable[[Iterable[str]], TileKnobs]:
    """What tells the meaning of knobs by their names, for a workload's largest result."""
    extents, _ = _extents(spec, workload)
    ours = {dim: _pattern(dim) for dim in extents}
    theirs = {dim: _pattern(dim) for dim in workload.dims if dim not in extents}

    def told(names: Iterable[str]) -> TileKnobs:
        known = list(names)

        def fitting(pattern: re.Pattern[str]) -> tuple[str, ...]:
            return tuple(name for name in known if pattern.fullmatch(name))

        sides, along = ({dim: fitting(pattern) for dim, pattern in patterns.items()} for patterns in (ours, theirs))
        return TileKnobs(sides=sides, along=along, stages=fitting(_STAGES))

    return told


def stage_namer(workload: Workload) -> Callable[[Config], int]:
    """What tells a config's stages by the one knob that is named so, and not as a tile along a dim; 0 without one."""
    dims = [_pattern(dim) for dim in workload.dims]
    found: dict[tuple[str, ...], str | None] = {}  # by the config's knobs

    def stages(config: Config) -> int:
        names = tuple(config)
        if names not in found:
            found[names] = _only([name for name in names if _STAGES.fullmatch(name) and not any(dim.fullmatch(name) for dim in dims)])
        name = found[names]
        return max(extent_of(config[name]), 0) if name else 0

    return stages


def tile_namer(spec: OperatorSpec, workload: Workload) -> Callable[[Config], NamedTile | None]:
    """What tells the tile of a workload's largest result.

    Returns:
        A function of a config. It gives None where some dim of the result has no knob that is named as its tile.
    """
    extents, last = _extents(spec, workload)
    told = knob_namer(spec, workload)
    found: dict[tuple[str, ...], _Names | None] = {}  # by the config's knobs

    def tile(config: Config) -> NamedTile | None:
        names = tuple(config)
        if names not in found:
            knobs = told(names)
            own = [_only(fitting) for fitting in knobs.sides.values()]
            along = [name for fitting in knobs.along.values() if (name := _only(fitting))]
            found[names] = _Names(sides=tuple(filter(None, own)), along=tuple(along), stages=_only(knobs.stages)) if own and all(own) else None
        named = found[names]
        if named is None:
            return None
        sides = [extent_of(config[name]) for name in named.sides]
        if min(sides) <= 0:
            return None
        columns = prod(side for dim, side in zip(extents, sides, strict=True) if dim in last)
        depth = prod(extent_of(config[name]) for name in named.along) if named.along else 0
        stages = extent_of(config[named.stages]) if named.stages else 0
        return NamedTile(
            count=prod(ceil(extent / side) for extent, side in zip(extents.values(), sides, strict=True)),
            rows=prod(sides) // columns,
            columns=columns,
            depth=depth if depth > 0 else None,
            stages=stages if stages > 0 else None,
        )

    return tile


@dataclass(frozen=True, slots=True, kw_only=True)
class _Names:
    """Of knobs: for each dim of the result, for dims of the sums, and for stages."""

    sides: tuple[str, ...]
    along: tuple[str, ...]
    stages: str | None


def _pattern(dim: str) -> re.Pattern[str]:
    return re.compile(_NAMED.format(dim=re.escape(dim)), re.IGNORECASE)


def _only(fitting: Sequence[str]) -> str | None:
    """The name that fits, where one alone does."""
    return fitting[0] if len(fitting) == 1 else None


def _extents(spec: OperatorSpec, workload: Workload) -> tuple[dict[str, int], frozenset[str]]:
    """The dims that the largest result is as large as the product of, and those of its last axis; none where it is not one of dims."""

    def shape(at: Workload) -> tuple[int, ...]:
        return max((output.shape for output in spec.outputs(at).values()), key=prod)

    here = shape(workload)
    try:
        doubled = {name: shape(replace(workload, dims={**workload.dims, name: 2 * extent})) for name, extent in workload.dims.items()}
    except Exception:  # the author's function: it may refuse such a workload
        return {}, frozenset()
    found = {name: workload.dims[name] for name, other in doubled.items() if prod(other) == 2 * prod(here)}
    return (found if prod(found.values()) == prod(here) else {}), frozenset(name for name in found if doubled[name][-1:] != here[-1:])
