"""By how much other operators' kernels were slower than the general estimate: a small network, trained before it is shipped (`benchmarks/pretrain.py`)."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from importlib.resources import files
from typing import Final

import msgspec
import numpy as np
from numpy.typing import ArrayLike, NDArray

from tilewright.descriptors import NAMES
from tilewright.estimate import GeneralEstimate
from tilewright.record import Config, Resources
from tilewright.search.encoding import Matrix

_WEIGHTS: Final = "pretrained.json"
# Standard deviations from the mean beyond which a descriptor says no more: nothing that it was trained on lies there.
_FARTHEST: Final = 12.0
# Where SiLU is 0 for all that numbers can tell; exp(-x) overflows from 710.
_LEAST: Final = -60.0


class Weights(msgspec.Struct, frozen=True, kw_only=True):
    """Networks whose answers are averaged, as they are kept in a file.

    Attributes:
        names: of the descriptors, in order.
        mean, deviation: of each, by which descriptors are scaled.
        layers: of each network weights, `[outputs][inputs]`, and biases, `[outputs]`; SiLU between them, one number in the end.
        trained_on, device: recordings, and on what they were made, for who reads the file.
    """

    names: list[str]
    mean: list[float]
    deviation: list[float]
    layers: list[list[tuple[list[list[float]], list[float]]]]
    trained_on: list[str]
    device: str


class Network:
    """Log of time over the general estimate, up to a constant, of any kernel.

    Args:
        weights: as of a file.
    """

    def __init__(self, weights: Weights) -> None:
        self._mean, self._deviation = np.array(weights.mean), np.array(weights.deviation)
        # One array for all networks, `[networks, outputs, inputs]`.
        self._layers = [tuple(np.array(part) for part in zip(*layer, strict=True)) for layer in zip(*weights.layers, strict=True)]

    def __call__(self, described: Matrix) -> Matrix:
        """Of points by their descriptors, `[points, descriptors]`."""
        found: Matrix = np.clip((described - self._mean) / self._deviation, -_FARTHEST, _FARTHEST).T[None]
        for place, (weight, bias) in enumerate(self._layers):
            found = weight @ (found / (1 + np.exp(-np.maximum(found, _LEAST))) if place else found) + bias[:, :, None]
        answers: Matrix = found[:, 0].mean(axis=0)
        return answers


def network_of(text: bytes) -> Network:
    """The network that a file holds.

    Args:
        text: JSON of `Weights`.

    Raises:
        ValueError: it holds none, or one of other descriptors.
    """
    try:
        weights = msgspec.json.decode(text, type=Weights)
    except msgspec.MsgspecError as error:
        raise ValueError(f"no weights: {error}") from error
    if tuple(weights.names) != NAMES:
        raise ValueError(f"weights are of the descriptors {', '.join(weights.names)}; these are {', '.join(NAMES)}")
    return Network(weights)


@functools.cache
def shipped() -> Network:
    """The network that comes with Tilewright."""
    return network_of((files("tilewright.search") / _WEIGHTS).read_bytes())


def corrections_of(described: Sequence[tuple[float, ...] | None]) -> Matrix:
    """What the network says of results by their descriptors; 0 of those that have none."""
    found: Matrix = np.zeros(len(described))
    places = [place for place, one in enumerate(described) if one is not None]
    if places:
        found[places] = shipped()(np.array([described[place] for place in places], dtype=float))
    return found


class Correction:
    """What the network says of each point of a pool, by what its build needs, or is foreseen to need.

    Args:
        estimate: a search's own; only the general one is corrected.

    Attributes:
        mean: of log(time / estimate), up to a constant; zero where nothing is known of a build.
    """

    def __init__(self, estimate: object) -> None:
        self._describe = estimate.describe if isinstance(estimate, GeneralEstimate) else None
        self.mean: Matrix = np.zeros(0)

    def __bool__(self) -> bool:
        return self._describe is not None

    def grow(self, count: int) -> None:
        """Take in points that the pool has gained."""
        self.mean = np.concatenate([self.mean, np.zeros(count)])

    def keep(self, numbers: NDArray[np.intp]) -> None:
        """Drop all points but some, which then have the numbers 0, 1, ..."""
        self.mean = self.mean[numbers]

    def take(self, numbers: ArrayLike, configs: Sequence[Config], needs: Sequence[Resources], estimates: ArrayLike) -> None:
        """Take in what builds of points need, and the log of their estimates; those that cannot run are left at 0."""
        if self._describe is None:
            return
        self.mean[np.asarray(numbers)] = 0.0
        logs = np.asarray(estimates, dtype=float)
        able = np.flatnonzero(np.isfinite(logs))
        if len(able):
            described = [self._describe(configs[place], needs[place], math.exp(logs[place])) for place in able.tolist()]
            self.mean[np.asarray(numbers)[able]] = shipped()(np.array(described))
