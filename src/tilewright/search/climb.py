"""Points of a space too large to list that an estimate likes best."""

from __future__ import annotations

import math
from typing import Final

import numpy as np

from tilewright.search.model import TimeModel
from tilewright.search.pool import Pool

# Rounds, points around which is looked, looks in a round, and points that are enough. guess: 2,000 looks, half of them legal, are 0.1 s; they
# found the best by estimate among the 13,218 of the shipped matmul at 4096³.
_ROUNDS: Final = 6
_CENTRES: Final = 32
_LOOKS: Final = 350
_ENOUGH: Final = 800


def climb(pool: Pool, model: TimeModel) -> None:
    """Take the points around those that a model's estimate likes best into its pool, until it likes none better."""
    best = math.inf
    for _ in range(_ROUNDS):
        physics = model.physics
        centres = np.argsort(physics)[:_CENTRES]  # NaN comes last
        if not np.isfinite(physics[centres[0]]):
            return
        pool.spread(centres.tolist(), near=_LOOKS)
        model.grow()
        found = float(np.nanmin(model.physics))
        if found >= best and len(pool) > _ENOUGH:
            return
        best = min(best, found)
