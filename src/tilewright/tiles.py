"""Into how many tiles a config cuts a result, by the names of its knobs: for builds whose launch was not recorded. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from math import ceil, prod
from typing import Final

from tilewright.knobs import extent_of
from tilewright.operator import OperatorSpec
from tilewright.record import Config
from tilewright.workload import Workload

# A tile's extent along a dim `m`, as people name it: m, BM, BLOCK_M, BLOCK_SIZE_M, tile_m, bs_m.
_NAMED: Final = r"(?:b|bs|blk|block|tile|t)?_?(?:size)?_?{dim}"


def tile_counter(spec: OperatorSpec, workload: Workload) -> Callable[[Config], int | None]:
    """What counts the tiles of a workload's largest result.

    Returns:
        A function of a config. It gives None where some dim of the result has no knob that is named as its tile.
    """
    extents = _extents(spec, workload)
    patterns = {dim: re.compile(_NAMED.format(dim=re.escape(dim)), re.IGNORECASE) for dim in extents}
    found: dict[tuple[str, ...], tuple[tuple[str, int], ...] | None] = {}  # by the config's knobs

    def knobs(names: tuple[str, ...]) -> tuple[tuple[str, int], ...] | None:
        pairs = []
        for dim, pattern in patterns.items():
            fitting = [name for name in names if pattern.fullmatch(name)]
            if len(fitting) != 1:
                return None
            pairs.append((fitting[0], extents[dim]))
        return tuple(pairs) or None

    def count(config: Config) -> int | None:
        names = tuple(config)
        if names not in found:
            found[names] = knobs(names)
        pairs = found[names]
        sides = [(extent, extent_of(config[name])) for name, extent in pairs or ()]
        return prod(ceil(extent / side) for extent, side in sides) if sides and all(side > 0 for _, side in sides) else None

    return count


def _extents(spec: OperatorSpec, workload: Workload) -> dict[str, int]:
    """The dims that the largest result is as large as the product of; none where it is not one of dims."""

    def elements(at: Workload) -> int:
        return max(prod(output.shape) for output in spec.outputs(at).values())

    here = elements(workload)
    try:
        found = {name: extent for name, extent in workload.dims.items() if elements(replace(workload, dims={**workload.dims, name: 2 * extent})) == 2 * here}
    except Exception:  # the author's function: it may refuse such a workload
        return {}
    return found if prod(found.values()) == here else {}
