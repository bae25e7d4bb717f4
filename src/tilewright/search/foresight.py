"""What a build will need, and its launch of programs, foreseen from the builds of other points, for estimates that say nothing before the build."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from tilewright.record import Resources
from tilewright.search.encoding import Matrix
from tilewright.search.pool import Pool

# Builds from which others are foreseen, and of this workload those from which programs are; the growth after which all is learnt anew. guess.
FIRST: Final = 4
_GROWTH: Final = 1.5
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
    """Regression of shared memory, register pressure, warps and programs, as logarithms, on the encoded points of a pool.

    Args:
        pool: the points.
    """

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        groups = pool.encoding.groups
        widths = [group.stop - group.start for group in groups]
        self._weights: Matrix = np.repeat([_VALUE if group.exact else _TREND for group in groups], widths)
        self._scales: Matrix = np.repeat([1.0 if group.exact else 1 / _SCALE for group in groups], widths)
        self._seen: list[tuple[Matrix, Matrix]] = []  # NaN where programs are not known
        self._points: Matrix = np.zeros((0, len(self._weights)))
        self._solved: Matrix = np.zeros((0, 4))
        self._centre: Matrix = np.zeros(4)
        self._told = 0  # builds whose programs are known
        self._due = self._due_told = FIRST

    def __len__(self) -> int:
        return len(self._seen)

    def add(self, number: int, resources: Resources) -> None:
        """Take in the build of a point."""
        self.see(self._pool.vectors[number], resources)

    def see(self, vector: Matrix, resources: Resources) -> None:
        """Take in a build of encoded choices, `[width]`; one of another workload must come without its programs."""
        self._seen.append((vector, np.array([*amounts(resources), math.log2(resources.programs) if resources.programs else math.nan])))
        self._told += resources.programs is not None

    @property
    def due(self) -> bool:
        """Whether so many builds more are known than when they were last learnt from that it is worth doing again."""
        return len(self._seen) >= self._due or self._told >= self._due_told

    def learn(self) -> None:
        """Fit the builds taken in so far."""
        self._due, self._due_told = (max(int(count * _GROWTH), count + 1, FIRST) for count in (len(self._seen), self._told))
        seen = self._seen[-_MOST:]
        self._points = np.array([vector for vector, _ in seen])
        needs = np.array([values for _, values in seen])
        square = self._kernel(self._points)
        square[np.diag_indices_from(square)] += _NOISE**2
        self._centre, self._solved = np.zeros(4), np.zeros(needs.shape)
        told = np.flatnonzero(~np.isnan(needs[:, 3]))
        columns = [(np.arange(len(needs)), slice(0, 3)), (told, slice(3, 4))] if len(told) < len(needs) else [(told, slice(0, 4))]
        for rows, needed in columns:
            if len(rows):
                self._centre[needed] = needs[rows, needed].mean(axis=0)
                self._solved[rows, needed] = np.linalg.solve(square[np.ix_(rows, rows)], needs[rows, needed] - self._centre[needed])
        if len(told) < FIRST:
            self._centre[3] = np.nan

    def foresee(self, numbers: NDArray[np.intp]) -> Sequence[Resources]:
        """What some points will need."""
        shared, pressure, warps, programs = (self._centre + self._kernel(self._pool.vectors[numbers]) @ self._solved).T
        found = []
        for one_shared, one_pressure, one_warps, one_programs in zip(2.0**shared, 2.0**pressure, warps, 2.0**programs, strict=True):
            warps_ = max(2 ** round(one_warps), 1)
            limit = min(_REGISTERS, _REGISTER_FILE // (32 * warps_))
            found.append(
                Resources(
                    shared_memory_bytes=max(round(one_shared) - _LEAST_SHARED, 0),
                    registers=max(round(min(one_pressure, limit)), 1),
                    spill_bytes=round(max(one_pressure - limit, 0) * _SPILL),
                    num_warps=warps_,
                    programs=None if np.isnan(one_programs) else max(round(one_programs), 1),
                )
            )
        return found

    def amounts(self, numbers: NDArray[np.intp]) -> Matrix:
        """The same as `amounts` has it, `[points, 3]`."""
        found: Matrix = self._centre[:3] + self._kernel(self._pool.vectors[numbers]) @ self._solved[:, :3]
        return found

    def _kernel(self, points: Matrix) -> Matrix:
        """Likeness of some points to those learnt from: a trend, and what departs from it nearby."""
        linear = (points * self._weights**2) @ self._points.T
        near, learnt = points * self._scales, self._points * self._scales
        squared = np.maximum((near**2).sum(axis=1)[:, None] + (learnt**2).sum(axis=1)[None, :] - 2 * near @ learnt.T, 0.0)
        kernel: Matrix = linear + _TOGETHER**2 * np.exp(-squared / 2)
        return kernel


def amounts(resources: Resources) -> tuple[float, float, float]:
    """Shared memory, registers with what is spilled, and warps of a build, as log2."""
    pressure = (resources.registers or 1) + (resources.spill_bytes or 0) / _SPILL
    return math.log2(resources.shared_memory_bytes + _LEAST_SHARED), math.log2(pressure), math.log2(resources.num_warps or 1)
