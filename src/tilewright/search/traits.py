"""What a point is, as a regression over several workloads is told it: knobs, workload, how the two compare, build and estimate."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from tilewright.search.encoding import Encoding, Group, Matrix

# Doublings of a dim, or of what a build needs, and powers of e of an estimate, that count as much as the whole range of a knob. guess.
DOUBLINGS: Final = 8.0
_NEEDS_DOUBLINGS: Final = (8.0, 4.0, 4.0)  # shared memory, register pressure, warps
_ESTIMATE_POWERS: Final = 3.0


class Traits:
    """Columns for points of one or several workloads.

    Where a tile's extent is compared with the workload's, waves and padding that other workloads showed are seen again in this one; a build's
    resources and its estimate tell points alike that differ in many knobs.

    Args:
        encoding: of the knobs.
        own: the features of the workload that is searched for: log2 of its dims, and zeros.

    Attributes:
        groups: columns that share a length scale.
        place: where the columns of the workload begin.
    """

    def __init__(self, encoding: Encoding, own: Sequence[float]) -> None:
        self._encoding = encoding
        self._dims = [number for number, feature in enumerate(own) if feature > 0]
        self._names = encoding.sizes(np.zeros((0, len(encoding.knobs)), dtype=np.intp)).shape[1]
        self.place = encoding.width
        more = len(own) + self._names * len(self._dims) + len(_NEEDS_DOUBLINGS) + 1
        self.groups = (*encoding.groups, *(Group(self.place + k, self.place + k + 1, exact=False) for k in range(more)))

    def columns(self, rows: NDArray[np.intp], places: Matrix, needs: Matrix, estimates: Matrix) -> Matrix:
        """Columns of points; zero where something is not known.

        Args:
            rows: index rows, `[points, knobs]`.
            places: features of their workloads, `[points, features]`.
            needs: log2 of shared memory, register pressure and warps, `[points, 3]`.
            estimates: log of the estimates over the least one of their workload, `[points]`.
        """
        sizes = self._encoding.sizes(rows)
        ratios = (places[:, None, self._dims] - sizes[:, :, None]).reshape(len(rows), self._names * len(self._dims))
        more = [places / DOUBLINGS, ratios / DOUBLINGS, needs / _NEEDS_DOUBLINGS, estimates[:, None] / _ESTIMATE_POWERS]
        return np.hstack([self._encoding.vectors(rows), *(np.nan_to_num(columns, nan=0.0, posinf=0.0, neginf=0.0) for columns in more)])
