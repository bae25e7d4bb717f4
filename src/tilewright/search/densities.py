"""The idea of TPE over the points of a pool: where good points are dense and bad ones are not, among legal, unknown ones only."""

from __future__ import annotations

import math
from typing import Final

import numpy as np
from numpy.typing import NDArray

from tilewright.search.pool import Pool

# Share of the told points that count as good, and how many at most; TPE's own gamma is a tenth, and 25 at most.
# benchmarks/search_efficiency.py, recorded GEMM, 2026-11: 0.10 to 0.25 are alike, 97.5 to 98.4% of the optimum at 64.
_GOOD: Final = 0.15
_MOST_GOOD: Final = 25
# What one differing knob leaves of a point's density. Same recording: 0.1 to 0.2 are alike, 0.3 is worse.
_SMOOTHING: Final = 0.2
# Points drawn by the good density, of which the best ratio is taken; TPE's own number.
_DRAWN: Final = 24
_FLOOR: Final = 1e-6


class Densities:
    """Counts of differing knobs between told points and all points, and the choice they make.

    Args:
        pool: the points.
        seed: of the draws.
    """

    def __init__(self, pool: Pool, *, seed: int) -> None:
        self._pool = pool
        self._rng = np.random.default_rng(seed)
        self._table = _SMOOTHING ** np.arange(len(pool.encoding.knobs) + 1)

    def choose(self, times: dict[int, float], failed: list[int], among: NDArray[np.intp]) -> int:
        """One of some unknown points.

        Args:
            times: log of µs by point.
            failed: points that failed: the worst of all.
            among: the points to choose from.
        """
        order = sorted(times, key=times.__getitem__)
        good = min(max(math.ceil(_GOOD * (len(order) + len(failed))), 2), _MOST_GOOD, len(order))
        near_good = self._density(order[:good], among)
        drawn = self._rng.choice(len(among), min(_DRAWN, len(among)), replace=False, p=near_good / near_good.sum())
        near_bad = self._density([*order[good:], *failed], among[drawn])
        return int(among[drawn[int(np.argmax(near_good[drawn] / near_bad))]])

    def _density(self, centres: list[int], among: NDArray[np.intp]) -> NDArray[np.float64]:
        total = np.zeros(len(among))
        rows = self._pool.rows
        candidates = rows[among]
        for centre in centres:
            total += self._table[(candidates != rows[centre]).sum(axis=1)]
        return total / max(len(centres), 1) + _FLOOR
