"""Expected improvement."""

from __future__ import annotations

import math

import numpy as np

from tilewright.search.encoding import Matrix


def improvement(mean: Matrix, deviation: Matrix, best: float) -> Matrix:
    """Expected improvement below `best` of normal variables.

    The normal distribution function by Abramowitz and Stegun, 7.1.26 (error under 2e-7).
    """
    z = (best - mean) / deviation
    t = 1 / (1 + 0.3275911 * np.abs(z) / math.sqrt(2))
    falling = np.exp(-z * z / 2)
    tail = 0.5 * t * (0.254829592 + t * (-0.284496736 + t * (1.421413741 + t * (-1.453152027 + t * 1.061405429)))) * falling
    below = np.where(z > 0, 1 - tail, tail)
    gain = deviation * (z * below + falling / math.sqrt(2 * math.pi))
    # Far tails cancel; order them by z instead, under everything that does not cancel.
    result: Matrix = np.where(z > -4, gain, 1e-9 * deviation / (1 + z * z))
    return result
