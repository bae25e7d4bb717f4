"""Configs as vectors: where neighbours are near, and equal values are equal."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from tilewright.knobs import Knob, Value, extent_of
from tilewright.record import Config

Matrix = NDArray[np.float64]

# Numeric candidates that span at least this ratio, all positive, are compared by their logarithm. guess: tile sizes and warps
# double from one to the next, while stages and unroll counts step by one.
_LOG_SPAN: Final = 8.0

# Numbers from which a knob's may be a tile's extent, to be compared with the workload's. guess.
_LARGE: Final = 16


@dataclass(frozen=True, slots=True)
class Group:
    """Columns of the encoding that share one length scale.

    Attributes:
        start, stop: the columns.
        exact: whether they only tell equal values from different ones.
        regular: whether the values they tell apart are all powers of two.
    """

    start: int
    stop: int
    exact: bool
    regular: bool = False


class Encoding:
    """Encodes configs of a space, conditional ones too.

    An ordered knob gives a coordinate (a split one for each part), scaled to 0..1; every knob of more than two candidates
    also gives one column for each, so that a model can tell how much of a knob is a trend and how much is this very value:
    schedule spaces are jagged, and on the recorded convolution of the benchmark hub the score rises from 0.55 to 0.75 with it.

    Args:
        knobs: all knobs of the space.
    """

    def __init__(self, knobs: Sequence[Knob]) -> None:
        self.knobs = tuple(knob for knob in knobs if len(knob.values) > 1)
        self._tables: list[Matrix] = []
        self._names: dict[str, list[int]] = {}
        groups: list[Group] = []
        column = 0
        for number, knob in enumerate(self.knobs):
            self._names.setdefault(knob.name, []).append(number)
            parts = []
            for coordinate in _coordinates(knob):
                parts.append(coordinate[:, None])
                groups.append(Group(column, column + 1, exact=False))
                column += 1
            if len(knob.values) > 2 or not parts:
                # Scaled so that two different values are at a squared distance of one.
                parts.append(np.eye(len(knob.values)) * np.sqrt(0.5))
                groups.append(Group(column, column + len(knob.values), exact=True, regular=_regular(knob)))
                column += len(knob.values)
            table = np.hstack(parts)
            # An absent knob: the middle of each coordinate, and none of the values.
            absent = np.where([not group.exact for group in groups[-len(parts) :] for _ in range(group.stop - group.start)], 0.5, 0.0)
            self._tables.append(np.vstack([table, absent]))
        self.groups = tuple(groups)
        self.width = column
        self._inner = [number for number, knob in enumerate(self.knobs) if knob.ordered and len(knob.values) > 2]

    def indices(self, config: Config) -> list[int]:
        """Position of each knob's value among its candidates; the number of candidates where the knob is absent."""
        found = []
        for knob in self.knobs:
            index = knob.find(config[knob.name]) if knob.name in config else None
            if index is not None and len(self._names[knob.name]) > 1 and knob.id != knob.name and not knob.id.startswith(f"{config.get('schedule')}."):
                index = None  # another schedule's knob of this name
            found.append(len(knob.values) if index is None else index)
        return found

    def off_centre(self, config: Config) -> float:
        """How far a config's ordered knobs are from the middle of their candidates: 0 to a half, as a mean."""
        indices = self.indices(config)
        away = [abs(indices[number] / (len(self.knobs[number].values) - 1) - 0.5) for number in self._inner if indices[number] < len(self.knobs[number].values)]
        return sum(away) / len(away) if away else 0.0

    def vectors(self, indices: NDArray[np.intp]) -> Matrix:
        """Encoded points, `[points, width]`, from their index rows `[points, knobs]`."""
        if not self.knobs:
            return np.zeros((len(indices), 0))
        return np.hstack([table[indices[:, number]] for number, table in enumerate(self._tables)])

    def sizes(self, indices: NDArray[np.intp]) -> Matrix:
        """Log2 of the numbers chosen for the knobs that reach _LARGE, a column for each name, `[points, names]`; NaN where there is none.

        Of a split it is the innermost part.
        """
        columns = []
        for numbers in self._names.values():
            column = np.full(len(indices), np.nan)
            for number in numbers:
                sizes = np.array([*map(_size, self.knobs[number].values), np.nan])[indices[:, number]]
                column = np.where(np.isnan(sizes), column, sizes)
            tables = [_size(value) for number in numbers for value in self.knobs[number].values]
            if np.nanmax([*tables, 0.0]) >= np.log2(_LARGE):
                columns.append(column)
        return np.column_stack(columns) if columns else np.zeros((len(indices), 0))

    def rows(self, configs: Iterable[Config]) -> NDArray[np.intp]:
        """Index rows of configs, `[configs, knobs]`."""
        indices = [self.indices(config) for config in configs]
        return np.array(indices, dtype=np.intp).reshape(len(indices), len(self.knobs))


def _regular(knob: Knob) -> bool:
    """Whether all candidates are powers of two, or splits into such."""
    numbers = [part for value in knob.values for part in (value if isinstance(value, list) else [value])]
    return knob.ordered and all(isinstance(number, int) and number > 0 and number & (number - 1) == 0 for number in numbers)


def _coordinates(knob: Knob) -> list[Matrix]:
    """Numeric coordinates of a knob's candidates, each scaled to 0..1; none for words."""
    if not knob.ordered:
        return []
    splits = [value for value in knob.values if isinstance(value, list)]
    # The outermost part of a split follows from the others.
    columns: list[list[Any]] = [list(part) for part in zip(*splits, strict=True)][1:] if splits else [list(knob.values)]
    return [scaled for column in columns if (scaled := _scaled(column)) is not None]


def _scaled(column: list[Any]) -> Matrix | None:
    values = np.array(column, dtype=float)
    if values.min() > 0 and values.max() >= _LOG_SPAN * values.min():
        values = np.log2(values)
    span = values.max() - values.min()
    return None if span == 0 else (values - values.min()) / span


def _size(value: Value) -> float:
    extent = extent_of(value)
    return float(np.log2(extent)) if extent > 0 else float(np.nan)
