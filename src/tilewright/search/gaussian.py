"""A Gaussian process over a growing list of points, with what searches ask of it: cheap steps, exact posteriors."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from tilewright.search.encoding import Group, Matrix

# Observations that the hyperparameters are fitted to, at most: the fit costs their cube. guess.
_FITTED: Final = 160
_STEPS: Final = 30
_JITTER: Final = 1e-6
# Of the way from a prior's length scales to longer ones that another process has found, the share that is gone. Decisions 0023 and 0029 have figures.
_LENGTHENED: Final = 0.4
_BLOCK: Final = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Prior:
    """What is thought of a function before it is seen: log-normal priors, as logarithms with their standard deviations.

    Attributes:
        scale: length of the coordinates (of 0..1) over which the function changes.
        exact: the same for the columns that only tell values apart.
        regular: the same for those of them that tell powers of two apart; None where these are as the others.
        signal: variance of the function.
        noise: variance of what looks like noise.
    """

    scale: tuple[float, float] = (float(np.log(0.7)), 1.0)
    exact: tuple[float, float] = (0.0, 1.0)
    regular: tuple[float, float] | None = None
    signal: tuple[float, float] = (0.0, 1.0)
    noise: tuple[float, float] = (-7.0, 1.0)


class Gaussian:
    """Exact regression with a Matérn 5/2 kernel and one length scale for each group of columns.

    The posterior over all points is kept as `V = L⁻¹ K(observed, points)`, one row an observation, so that an observation
    costs one row: `O(observed x points)`; and so does an added point, one column.

    Args:
        groups: columns that share a length scale.
        prior: of the hyperparameters.
    """

    def __init__(self, groups: Sequence[Group], prior: Prior) -> None:
        self._groups = tuple(groups)
        regular = prior.regular or prior.exact
        scales = [(regular if group.regular else prior.exact) if group.exact else prior.scale for group in groups]
        means = [*scales, prior.signal, prior.noise]
        self._prior = np.array([mean for mean, _ in means])
        self._mean = self._prior.copy()
        self._deviation = np.array([deviation for _, deviation in means])
        self._theta = self._mean.copy()
        self._columns = np.repeat(np.arange(len(groups)), [group.stop - group.start for group in groups])
        self.observed: list[int] = []
        self._points = np.zeros((0, 0))
        self._norms = np.zeros(0)
        self._reserve = np.zeros((0, 0))
        self._triangle = np.zeros((0, 0))
        self._reduced = np.zeros(0)
        # What `posterior` was asked before, L⁻¹ of it, and its means.
        self._series: Matrix = np.zeros((0, 1))
        self._solved: Matrix = np.zeros((0, 1))
        self._projected: Matrix = np.zeros((1, 0))

    @property
    def lengths(self) -> Matrix:
        """Logarithms of the length scales, one for each group."""
        return self._theta[:-2].copy()

    def lengthen(self, lengths: Matrix | None) -> None:
        """Think length scales longer than the prior has them, where these are, and as it has them where there are none; `condition` is to follow.

        Args:
            lengths: logarithms, `[groups]`.
        """
        own = self._prior[:-2]
        self._mean[:-2] = self._theta[:-2] = own if lengths is None else own + _LENGTHENED * np.maximum(lengths - own, 0.0)

    def fit(self, points: Matrix, values: Matrix) -> None:
        """Choose the hyperparameters: maximum a posteriori by resilient gradient steps.

        Args:
            points: observed points, `[observed, width]`.
            values: what was observed there, `[observed]`, of mean zero.
        """
        if len(values) > _FITTED:
            # The best half, whose details matter, and the rest at even steps.
            order = np.argsort(values)
            rest = order[_FITTED // 2 :]
            chosen = np.concatenate([order[: _FITTED // 2], rest[np.linspace(0, len(rest) - 1, _FITTED // 2).astype(int)]])
            points, values = points[chosen], values[chosen]
        # A row for each group, so that a step is two products of a matrix and a vector.
        columns = [points[:, group.start : group.stop] for group in self._groups]
        distances = np.array([_squared(column, column) for column in columns]).reshape(len(columns), len(values) ** 2)
        theta = self._theta.copy()
        step = np.full(len(theta), 0.2)
        before = np.zeros(len(theta))
        best, best_loss = theta, np.inf
        for _ in range(_STEPS):
            loss, gradient = self._loss(theta, distances, values)
            if loss < best_loss:
                best, best_loss = theta.copy(), loss
            turned = gradient * before
            step = np.clip(np.where(turned > 0, step * 1.3, np.where(turned < 0, step * 0.5, step)), 1e-3, 0.7)
            theta = np.clip(theta - np.sign(gradient) * step, self._mean - 5 * self._deviation, self._mean + 5 * self._deviation)
            before = gradient
        self._theta = best

    def _loss(self, theta: Matrix, distances: Matrix, values: Matrix) -> tuple[float, Matrix]:
        """Negative log posterior of the hyperparameters, and its gradient."""
        inverse: Matrix = np.exp(-2 * theta[:-2])
        shape, slope = _matern((inverse @ distances).reshape(len(values), len(values)))
        signal, noise = np.exp(theta[-2]), np.exp(theta[-1]) + _JITTER
        kernel = signal * shape
        kernel[np.diag_indices_from(kernel)] += noise
        try:
            lower = np.linalg.cholesky(kernel)
        except np.linalg.LinAlgError:
            return np.inf, theta - self._mean
        inverted = np.linalg.inv(kernel)
        weights = inverted @ values
        outer = 0.5 * (inverted - np.outer(weights, weights))
        gradient = np.empty_like(theta)
        sloped = outer * slope * signal
        gradient[:-2] = -2 * inverse * (distances @ sloped.ravel())
        gradient[-2] = np.vdot(outer, shape) * signal
        gradient[-1] = np.trace(outer) * np.exp(theta[-1])
        offset = (theta - self._mean) / self._deviation
        loss = 0.5 * values @ weights + np.log(np.diag(lower)).sum() + 0.5 * offset @ offset
        return float(loss), gradient + offset / self._deviation

    def condition(self, points: Matrix, observed: Sequence[int]) -> None:
        """Start over: all points, and which of them are observed."""
        self._points = points * np.exp(-self._theta[:-2])[self._columns]
        self._norms = np.einsum("pw,pw->p", self._points, self._points)
        self.observed = list(observed)
        count = len(self.observed)
        kernel = self._kernel(self.observed, slice(None))
        square = kernel[:, self.observed]
        square[np.diag_indices_from(square)] += self._noise
        self._triangle = np.asarray(np.linalg.cholesky(square), dtype=np.float64) if count else np.zeros((0, 0))
        self._reserve = _forward(self._triangle, kernel) if count else np.zeros((0, len(points)))
        self._reduced = np.einsum("op,op->p", self._rows, self._rows)
        self._forget()

    def extend(self, points: Matrix) -> None:
        """Add points, behind those that are there."""
        held = len(self._points)
        self._points = np.vstack([self._points, points * np.exp(-self._theta[:-2])[self._columns]])
        self._norms = np.concatenate([self._norms, np.einsum("pw,pw->p", self._points[held:], self._points[held:])])
        count = len(self.observed)
        rows = _forward(self._triangle[:count, :count], self._kernel(self.observed, slice(held, None)))
        if len(self._points) > self._reserve.shape[1]:
            larger = np.empty((len(self._reserve), len(self._points) + held // 4))
            larger[:count, :held] = self._rows[:, :held]
            self._reserve = larger
        self._reserve[:count, held : len(self._points)] = rows
        self._reduced = np.concatenate([self._reduced, np.einsum("op,op->p", rows, rows)])
        self._projected = np.hstack([self._projected, self._solved.T @ rows[: len(self._solved)]])

    def keep(self, numbers: NDArray[np.intp]) -> None:
        """Drop all points but some, which then have the numbers 0, 1, ...; all observed ones must be among them."""
        places = {int(number): place for place, number in enumerate(numbers)}
        self.observed = [places[number] for number in self.observed]
        self._reserve, self._projected = self._rows[:, numbers], self._projected[:, numbers]
        self._points, self._norms, self._reduced = self._points[numbers], self._norms[numbers], self._reduced[numbers]

    def observe(self, point: int) -> None:
        """Add an observation at a point."""
        count = len(self.observed)
        before = self._rows[:, point].copy()
        pivot = math.sqrt(max(self._signal + self._noise - float(before @ before), _JITTER))
        row = (self._kernel([point], slice(None))[0] - before @ self._rows) / pivot
        if count == len(self._reserve):
            more = max(_BLOCK, count // 2)
            self._reserve = np.vstack([self._reserve, np.empty((more, self._reserve.shape[1]))])
        if count == len(self._triangle):
            larger = np.zeros((len(self._reserve), len(self._reserve)))
            larger[:count, :count] = self._triangle[:count, :count]
            self._triangle = larger
        self._reserve[count, : len(row)] = row
        self._triangle[count, :count] = before
        self._triangle[count, count] = pivot
        self._reduced = self._reduced + row * row
        self.observed.append(point)

    def posterior(self, values: Matrix, weights: Matrix | None = None) -> tuple[Matrix, Matrix]:
        """Mean and standard deviation at all points.

        Args:
            values: what was observed, in order of observation, `[observed]`, or several series of it, `[observed, series]`. Series that
                were asked for before, with fewer observations, cost little.
            weights: of the series: it is their weighted sum that was observed, `[series]`.
        """
        series = values.reshape(len(values), -1)
        weights = np.ones(series.shape[1]) if weights is None else weights
        done = len(self._series)
        if self._series.shape[1] != series.shape[1] or done > len(series) or not np.array_equal(self._series, series[:done]):
            self._forget(series.shape[1])
            done = 0
        for place in range(done, len(series)) if len(series) - done < _BLOCK else ():
            solved = (series[place] - self._triangle[place, :place] @ self._solved) / self._triangle[place, place]
            self._solved = np.vstack([self._solved, solved])
            self._projected += solved[:, None] * self._rows[place]
        if len(self._solved) < len(series):
            count = len(series)
            self._solved = _forward(self._triangle[:count, :count], series)
            self._projected = self._solved.T @ self._rows
        self._series = series
        deviation = np.sqrt(np.maximum(self._signal - self._reduced, 1e-12))
        return weights @ self._projected, deviation

    def weights(self, values: Matrix) -> Matrix:
        """What each observation counts for in means elsewhere, given the observed values in order of observation."""
        count = len(self.observed)
        if not count:
            return np.zeros(0)
        triangle = self._triangle[:count, :count]
        return np.asarray(np.linalg.solve(triangle.T, _forward(triangle, values)), dtype=np.float64)

    def elsewhere(self, weights: Matrix, points: Matrix) -> Matrix:
        """Mean at points that are not held, by the weights of the observed ones."""
        scaled = points * np.exp(-self._theta[:-2])[self._columns]
        own = self._points[self.observed]
        squared = (own * own).sum(axis=1)[:, None] + (scaled * scaled).sum(axis=1)[None, :] - 2 * own @ scaled.T
        mean: Matrix = weights @ (self._signal * _matern(np.maximum(squared, 0.0))[0])
        return mean

    def _forget(self, series: int = 1) -> None:
        self._series, self._solved = np.zeros((0, series)), np.zeros((0, series))
        self._projected = np.zeros((series, len(self._points)))

    @property
    def _rows(self) -> Matrix:
        """`V`, one row an observation."""
        return self._reserve[: len(self.observed), : len(self._points)]

    @property
    def _signal(self) -> float:
        return float(np.exp(self._theta[-2]))

    @property
    def _noise(self) -> float:
        return float(np.exp(self._theta[-1]) + _JITTER)

    def _kernel(self, chosen: list[int], among: slice) -> Matrix:
        squared = self._norms[chosen][:, None] + self._norms[None, among] - 2 * self._points[chosen] @ self._points[among].T
        shape, _ = _matern(np.maximum(squared, 0.0))
        kernel: Matrix = self._signal * shape
        return kernel


def _squared(a: Matrix, b: Matrix) -> Matrix:
    squared: Matrix = np.maximum((a * a).sum(1)[:, None] + (b * b).sum(1)[None, :] - 2 * a @ b.T, 0.0)
    return squared


def _matern(squared: Matrix) -> tuple[Matrix, Matrix]:
    """Matérn 5/2 of squared distances, and its derivative by them."""
    root = np.sqrt(5 * squared)
    falling = np.exp(-root)
    return (1 + root + root * root / 3) * falling, -5 / 6 * (1 + root) * falling


def _forward(lower: Matrix, values: Matrix) -> Matrix:
    """Solve a lower triangular system, by blocks."""
    solved = np.zeros_like(values)
    for start in range(0, len(values), _BLOCK):
        stop = min(start + _BLOCK, len(values))
        solved[start:stop] = np.linalg.solve(lower[start:stop, start:stop], values[start:stop] - lower[start:stop, :start] @ solved[:start])
    return solved
