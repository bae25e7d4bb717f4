"""What other workloads' results let expect of this one's points: a regression of what the estimate missed there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from tilewright.errors import SpaceError
from tilewright.record import Config
from tilewright.search.encoding import Encoding, Matrix
from tilewright.search.foresight import amounts
from tilewright.search.gaussian import Gaussian, Prior
from tilewright.search.past_result import PastResult
from tilewright.search.pretrained import corrections_of
from tilewright.search.traits import DOUBLINGS, Traits

# Results that are learnt from, at most: of each source its best, and others at even steps. guess: a solve costs their cube.
_MOST: Final = 600
_BEST_SHARE: Final = 0.5
# Sources that are held out to see what the others are worth for them.
_HELD_OUT: Final = 4
# Trust in sources that could not be tried on one another: a share of what they say, and the doublings that leave a third of it. guess.
_UNTRIED: Final = 0.6
_FAR: Final = 6.0
# Correlation of times with what the other sources let expect, up to which they are not believed, and from which they are. guess.
_NO_SKILL: Final = 0.3
_SKILL: Final = 0.6
# Power of a result's closeness to its source's best by which it counts when trust is tried: what is said of slow points hardly matters. guess,
# the same as in the fits of `tilewright.product`.
_CLOSENESS: Final = 3.0
# Share of the best speed under which it does not matter how slow a point is expected to be: decision 0029 has figures.
_LEAST_SHARE: Final = 0.4
# Least standard deviation left of log time, once others' results are known. guess.
_LEAST_SPREAD: Final = 0.05


class Past:
    """A Gaussian process over traits of points and workloads, of what the estimate misses of each point's share of its source's best speed.

    A share tells fast points apart, and hardly slow ones; log(time / estimate), which is taken where there is none, is mostly a matter of these: decision 0029.

    Args:
        encoding: of this search's space.
        results: other workloads' results.
        features: this workload's own.
        estimated: whether this search has an estimate.

    Attributes:
        trust: the share of what it says that held for sources when the others were asked; 0 where nothing did.
        tried: whether there were sources enough to ask.
        spread: standard deviation of what it left unexplained there; None where it was not tried.
        slope: by how much of the estimate's differences shares of the best speed differ.
        corrected: what share of the general estimate's correction held, from none to all of it.
    """

    def __init__(self, encoding: Encoding, results: Sequence[PastResult], features: Sequence[float], *, estimated: bool) -> None:
        self._encoding = encoding
        self._features = np.array(features, dtype=float)
        usable = [result for result in results if result.time_us and (result.estimate_us or not estimated)]
        estimates = np.array([np.log(result.estimate_us) if estimated else 0.0 for result in usable])  # type: ignore[arg-type]
        places = np.array([result.features for result in usable], dtype=float).reshape(len(usable), len(self._features))
        sources = np.array([result.source for result in usable])
        times = np.array([result.time_us for result in usable], dtype=float)
        kept = _spread(sources, times, places / DOUBLINGS, self._features / DOUBLINGS)
        rows = encoding.rows([carried(encoding, usable[number].config) for number in kept])
        sources, times = sources[kept], times[kept]
        self._closeness: Matrix = _closeness(sources, times)
        corrections = corrections_of([usable[number].described if estimated else None for number in kept])
        self.corrected = _held(sources, corrections, np.log(times) - estimates[kept], self._closeness)
        self._base: Matrix = estimates[kept]
        self._values: Matrix = np.log(times) - self._base
        relative, slower = self._base.copy(), np.log(times)
        for source in set(sources.tolist()):
            mine = sources == source
            # The fastest matter: their mean is what a search of this workload will see as its own.
            fast = mine & (times <= np.median(times[mine]))
            self._values[mine] -= self._values[fast].mean()
            relative[mine] -= relative[mine].min()
            slower[mine] -= slower[mine].min()
        self._estimated, self._relative = estimated, relative
        shares, guessed = np.exp(-slower), np.exp(-relative)
        self.slope = _held(sources, guessed, shares, np.ones(len(kept)))
        missed = shares - self.slope * guessed if estimated else self._values
        self._usually = float(missed.mean()) if estimated and len(kept) else 0.0
        self._missed: Matrix = missed - self._usually
        needs = np.array([amounts(usable[number].resources) if usable[number].resources else [np.nan] * 3 for number in kept]).reshape(len(kept), 3)
        # Where nothing is known of a build, it is like the others.
        self._usual = np.array([np.nanmean(column) if np.isfinite(column).any() else np.nan for column in needs.T])
        self._traits = Traits(encoding, features)
        self._points = self._traits.columns(rows, places[kept], self._filled(needs), relative)
        nearest = float(np.abs(places[kept] - self._features).sum(axis=1).min()) if len(kept) else 0.0
        self.trust = _UNTRIED * float(np.exp(-nearest / _FAR))
        self.tried = False
        self.spread: float | None = None
        self._gaussian = Gaussian(self._traits.groups, Prior())
        if len(kept) > 2:
            self._gaussian.fit(self._points, self._missed / (self._missed.std() + 1e-3))
            self._try(sources)
        self._gaussian.condition(self._points, range(len(kept)))
        self._weights = self._gaussian.weights(self._missed)

    def __len__(self) -> int:
        return len(self._values)

    @property
    def lengths(self) -> Matrix:
        """Logarithms of the length scales of the encoding's groups: over how much of each knob times change elsewhere."""
        return self._gaussian.lengths[: len(self._encoding.groups)]

    def _try(self, sources: NDArray[np.str_]) -> None:
        """Ask the others for each of the nearest sources, and see what share of their answer holds."""
        names, first = np.unique(sources, return_index=True)
        if len(names) < 2:
            return
        place = slice(self._traits.place, self._traits.place + len(self._features))
        far = np.abs(self._points[first, place] - self._features / DOUBLINGS).sum(axis=1)
        asked, told, bases, weights = [], [], [], []
        for name in names[np.argsort(far, kind="stable")[:_HELD_OUT]]:
            mine = np.flatnonzero(sources == name)
            others = np.flatnonzero(sources != name)
            if len(mine) < 3 or len(others) < 3:
                continue
            self._gaussian.condition(self._points[others], range(len(others)))
            found = self._slower(self._gaussian.elsewhere(self._gaussian.weights(self._missed[others]), self._points[mine]), self._relative[mine])
            weight = self._closeness[mine]
            asked.append(found - np.average(found, weights=weight))
            told.append(self._values[mine] - np.average(self._values[mine], weights=weight))
            bases.append(self._base[mine] - self._base[mine].mean())
            weights.append(weight)
        if not asked:
            return
        said, held, base, weight = (np.concatenate(parts) for parts in (asked, told, bases, weights))
        self.tried = True
        self.trust = float(np.clip((weight * said) @ held / ((weight * said) @ said + 1e-3 * weight.sum()), 0.0, 1.0))
        # Sources that do not even tell one another fast from slow say nothing here: their times may be another kernel's, or noise.
        guessed, times = base + self.trust * said, base + held
        skill = float(np.corrcoef(guessed, times)[0, 1]) if guessed.std() > 0 and times.std() > 0 else 0.0
        self.trust *= float(np.clip((skill - _NO_SKILL) / (_SKILL - _NO_SKILL), 0.0, 1.0))
        if self.trust:
            self.spread = max(float((held - self.trust * said).std()), _LEAST_SPREAD)

    def expect(self, rows: NDArray[np.intp], needs: Matrix, estimates: Matrix) -> Matrix:
        """Mean of log(time / estimate) at points of this workload, up to a constant.

        Args:
            rows: their index rows, `[points, knobs]`.
            needs: log2 of what their builds need, `[points, 3]`, as `amounts` has it; NaN where it is not known.
            estimates: log of the estimates over the least one, `[points]`.
        """
        here = self._traits.columns(rows, np.tile(self._features, (len(rows), 1)), self._filled(needs), estimates)
        return self._slower(self._gaussian.elsewhere(self._weights, here), estimates)

    def _slower(self, missed: Matrix, relative: Matrix) -> Matrix:
        """Log of time over estimate, up to a constant, from what the estimate misses."""
        if not self._estimated:
            return missed
        guessed = np.exp(-relative)
        slower: Matrix = -np.log(np.maximum(self.slope * guessed + self._usually + missed, np.minimum(guessed, _LEAST_SHARE))) - relative
        return slower

    def _filled(self, needs: Matrix) -> Matrix:
        filled: Matrix = np.where(np.isnan(needs), self._usual, needs)
        return filled


def carried(encoding: Encoding, config: Config) -> Config:
    """A config with this space's candidates for its values, where there are such."""
    found = {}
    for knob in encoding.knobs:
        if knob.name in config and knob.name not in found:
            try:
                found[knob.name] = knob.values[knob.carried(config[knob.name])]
            except SpaceError:  # a value that this space does not have
                continue
    return found


def _spread(sources: NDArray[np.str_], times: Matrix, places: Matrix, here: Matrix) -> NDArray[np.intp]:
    """Positions of the results to learn from: more of the sources that are near, of each its best and some others."""
    names, first = np.unique(sources, return_index=True)
    far = np.abs(places[first] - here).sum(axis=1) if len(first) else np.zeros(0)
    shares = 1 / (0.25 + far)
    chosen: list[int] = []
    for name, share in zip(names, shares / shares.sum(), strict=True):
        mine = np.flatnonzero(sources == name)
        mine = mine[np.argsort(times[mine], kind="stable")]
        count = max(int(share * _MOST), 6)
        if len(mine) > count:
            best = int(count * _BEST_SHARE)
            rest = np.linspace(best, len(mine) - 1, count - best).astype(int)
            mine = np.concatenate([mine[:best], mine[rest]])
        chosen += mine.tolist()
    return np.array(chosen, dtype=np.intp)


def _held(sources: NDArray[np.str_], said: Matrix, found: Matrix, weights: Matrix) -> float:
    """By how much of what was said of each source's results, up to a constant, they differ, by least squares: by none to all of it."""
    left, right = said.copy(), found.copy()
    for source in set(sources.tolist()):
        mine = sources == source
        left[mine] -= np.average(left[mine], weights=weights[mine])
        right[mine] -= np.average(right[mine], weights=weights[mine])
    return float(np.clip((weights * left) @ right / ((weights * left) @ left + 1e-9), 0.0, 1.0))


def _closeness(sources: NDArray[np.str_], times: Matrix) -> Matrix:
    """Weights: a power of how close a result is to its source's best, of one sum for each source."""
    weights: Matrix = np.zeros(len(times))
    for source in set(sources.tolist()):
        mine = sources == source
        weight = (times[mine].min() / times[mine]) ** _CLOSENESS
        weights[mine] = weight / weight.sum()
    return weights
