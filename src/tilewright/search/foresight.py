"""What a build will need, foreseen from the builds of other points, for estimates that have nothing to say before the build."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from tilewright.record import Resources
from tilewright.search.encoding import Matrix
from tilewright.search.pool import Pool

# Standard deviations of what is looked for, in doublings: over a coordinate's whole range, between two values of a knob besides,
# of what only all knobs together explain, and of noise. guess: buffers and accumulators grow with tiles, and so with their logarithms.
_TREND: Final = 4.0
_VALUE: Final = 1.0
_TOGETHER: Final = 0.7
_NOISE: Final = 0.1
_SCALE: Final = 0.7
# Builds that are learnt from, the last ones: a solve costs their cube. guess.
_MOST: Final = 500
# Shared memory in bytes under which differences mean nothing.
_LEAST_SHARED: Final = 1024
# Registers of a thread at most, and of a multiprocessor: CUDA C++ Programming Guide, compute capabilities 7.0 to 12.0.
_REGISTERS: Final = 255
_REGISTER_FILE: Final = 65536
# Bytes spilled for each register too many, in stores and loads.
_SPILL: Final = 8


class Foresight:
    """Regression of shared memory, register pressure and warps, as logarithms, on the encoded points of a pool.

    Args:
        pool: the points.
    """

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        groups = pool.encoding.groups
        widths = [group.stop - group.start for group in groups]
        self._weights: Matrix = np.repeat([_VALUE if group.exact else _TREND for group in groups], widths)
        self._scales: Matrix = np.repeat([1.0 if group.exact else 1 / _SCALE for group in groups], widths)
        self._seen: list[tuple[Matrix, tuple[float, float, float]]] = []
        self._points: Matrix = np.zeros((0, len(self._weights)))
        self._solved: Matrix = np.zeros((0, 3))
        self._centre: Matrix = np.zeros(3)

    def __len__(self) -> int:
        return len(self._seen)

    def add(self, number: int, resources: Resources) -> None:
        """Take in the build of a point."""
        self.see(self._pool.vectors[number], resources)

    def see(self, vector: Matrix, resources: Resources) -> None:
        """Take in a build of encoded choices, `[width]`."""
        pressure = (resources.registers or 1) + (resources.spill_bytes or 0) / _SPILL
        needs = (np.log2(resources.shared_memory_bytes + _LEAST_SHARED), np.log2(pressure), np.log2(resources.num_warps or 1))
        self._seen.append((vector, needs))

    def learn(self) -> None:
        """Fit the builds taken in so far."""
        seen = self._seen[-_MOST:]
        self._points = np.array([vector for vector, _ in seen])
        needs = np.array([values for _, values in seen])
        self._centre = needs.mean(axis=0)
        square = self._kernel(self._points)
        square[np.diag_indices_from(square)] += _NOISE**2
        self._solved = np.asarray(np.linalg.solve(square, needs - self._centre), dtype=np.float64)

    def foresee(self, numbers: NDArray[np.intp]) -> Sequence[Resources]:
        """What some points will need."""
        shared, pressure, warps = (self._centre + self._kernel(self._pool.vectors[numbers]) @ self._solved).T
        found = []
        for one_shared, one_pressure, one_warps in zip(2.0**shared, 2.0**pressure, warps, strict=True):
            warps_ = max(2 ** round(one_warps), 1)
            limit = min(_REGISTERS, _REGISTER_FILE // (32 * warps_))
            found.append(
                Resources(
                    shared_memory_bytes=max(round(one_shared) - _LEAST_SHARED, 0),
                    registers=max(round(min(one_pressure, limit)), 1),
                    spill_bytes=round(max(one_pressure - limit, 0) * _SPILL),
                    num_warps=warps_,
                )
            )
        return found

    def _kernel(self, points: Matrix) -> Matrix:
        """Likeness of some points to those learnt from: a trend, and what departs from it nearby."""
        linear = (points * self._weights**2) @ self._points.T
        near, learnt = points * self._scales, self._points * self._scales
        squared = np.maximum((near**2).sum(axis=1)[:, None] + (learnt**2).sum(axis=1)[None, :] - 2 * near @ learnt.T, 0.0)
        kernel: Matrix = linear + _TOGETHER**2 * np.exp(-squared / 2)
        return kernel
