"""The idea of TPE over the points of a pool: where good points are dense and bad ones are not, among legal, unknown ones only."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

from tilewright.search.base import History
from tilewright.search.pool import Pool
from tilewright.search.pooled import PooledProposer, Told

if TYPE_CHECKING:
    from tilewright.space import SearchSpace

# Uniform draws at the start; Optuna's own number.
_STARTUP: Final = 10
# Share of the told points that count as good, and how many at most: TPE's own.
_GOOD: Final = 0.1
_MOST_GOOD: Final = 25
# Weight of the uniform density next to that of one point. benchmarks/search_efficiency.py, 12 seeds, 2026-11: with TPE's own 1 a
# search stays where its first good points are (scores 0.62 on convolution_A100 of the benchmark hub and 0.52 on pnpoly_RTX_3090,
# against 0.67 and 0.61 with 3).
_PRIOR: Final = 3.0
# Points drawn by the good density, of which the best ratio is taken; TPE's own number.
_DRAWN: Final = 24
# Centres compared at a time, which bounds the memory.
_BLOCK: Final = 32


class Densities:
    """Kernel densities over the points of a pool, by counts of differing knobs, and the choice they make.

    A point's kernel is TPE's for categories: a share of its mass is spread evenly over a knob's candidates, the less of it the more
    points there are. Numbers count as categories, too, since schedule spaces are jagged.

    Args:
        pool: the points.
        seed: of the draws.
    """

    def __init__(self, pool: Pool, *, seed: int) -> None:
        self._pool = pool
        self._rng = np.random.default_rng(seed)
        self._counts = np.array([len(knob.values) for knob in pool.encoding.knobs], dtype=float)

    def choose(self, times: dict[int, float], failed: Sequence[int], among: NDArray[np.intp]) -> int:
        """One of some unknown points.

        Args:
            times: log of µs by point; one at least.
            failed: points that failed: the worst of all.
            among: the points to choose from.
        """
        order = sorted(times, key=times.__getitem__)
        good = min(max(math.ceil(_GOOD * (len(order) + len(failed))), 1), _MOST_GOOD, len(order))
        near_good = self._density(order[:good], among)
        drawn = self._rng.choice(len(among), min(_DRAWN, len(among)), replace=False, p=near_good / near_good.sum())
        near_bad = self._density([*order[good:], *failed], among[drawn])
        return int(among[drawn[int(np.argmax(near_good[drawn] / near_bad))]])

    def _density(self, centres: Sequence[int], among: NDArray[np.intp]) -> NDArray[np.float64]:
        spread = _PRIOR / (len(centres) + 1)
        scale = math.exp(float((np.log1p(spread) - np.log1p(self._counts * spread)).sum()))
        shares = scale * (spread / (1 + spread)) ** np.arange(len(self._counts) + 1)
        rows = self._pool.rows
        candidates = rows[among]
        total = np.full(len(among), _PRIOR * math.exp(-float(np.log(self._counts).sum())))
        for start in range(0, len(centres), _BLOCK):
            block = rows[np.asarray(centres[start : start + _BLOCK], dtype=np.intp)]
            total += shares[np.count_nonzero(candidates[:, None] != block[None], axis=2)].sum(axis=1)
        density: NDArray[np.float64] = total / (len(centres) + _PRIOR)
        return density


class DensityChooser:
    """Chooses by densities.

    Args:
        told: what is known of the points.
        seed: of the draws.
    """

    startup = _STARTUP

    def __init__(self, told: Told, *, seed: int) -> None:
        self._told = told
        self._densities = Densities(told.pool, seed=seed)

    def choose(self, unknown: NDArray[np.intp]) -> int:
        """The best ratio of the two densities, of some points drawn by the good one."""
        return self._densities.choose(self._told.times, self._told.failed, unknown)

    def tell(self, number: int) -> None:
        """Nothing is kept."""

    def grow(self) -> None:
        """Nothing is kept."""

    def keep(self, numbers: NDArray[np.intp]) -> None:
        """Nothing is kept."""


def density_search(space: SearchSpace, *, seed: int, history: History = ()) -> PooledProposer:
    """TPE over unvisited points: legal ones that are not known, so that no draw is spent on a repeat or a refused point."""
    return PooledProposer(space, seed=seed, make=lambda told: DensityChooser(told, seed=seed), history=history)
