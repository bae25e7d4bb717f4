"""What other workloads' results let expect of this one's points: a regression of what the estimate missed there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from tilewright.errors import SpaceError
from tilewright.record import Config
from tilewright.search.encoding import Encoding, Group, Matrix
from tilewright.search.gaussian import Gaussian, Prior
from tilewright.search.past_result import PastResult

# Results that are learnt from, at most: of each source its best, and others at even steps. guess: a solve costs their cube.
_MOST: Final = 600
_BEST_SHARE: Final = 0.5
# Doublings of a dim that count as much as the whole range of a knob. guess.
_DOUBLINGS: Final = 8.0
# Sources that are held out to see what the others are worth for them.
_HELD_OUT: Final = 4
# Trust in sources that could not be tried on one another: a share of what they say, and the doublings that leave a third of it. guess.
_UNTRIED: Final = 0.6
_FAR: Final = 6.0
# Correlation of times with what the other sources let expect, up to which they are not believed, and from which they are. guess.
_NO_SKILL: Final = 0.3
_SKILL: Final = 0.6
# Least standard deviation left of log time, once others' results are known. guess.
_LEAST_SPREAD: Final = 0.05


class Past:
    """A Gaussian process over knobs and workload features, of log(time / estimate) less each source's mean.

    Args:
        encoding: of this search's space.
        results: other workloads' results.
        features: this workload's own.
        estimated: whether this search has an estimate.

    Attributes:
        trust: the share of what it says that held for sources when the others were asked; 0 where nothing did.
        tried: whether there were sources enough to ask.
        spread: standard deviation of what it left unexplained there; None where it was not tried.
    """

    def __init__(self, encoding: Encoding, results: Sequence[PastResult], features: Sequence[float], *, estimated: bool) -> None:
        self._encoding = encoding
        self._features = np.array(features, dtype=float) / _DOUBLINGS
        usable = [result for result in results if result.time_us and (result.estimate_us or not estimated)]
        rows = encoding.rows([carried(encoding, result.config) for result in usable])
        values = np.array([np.log(result.time_us) - (np.log(result.estimate_us) if estimated else 0.0) for result in usable])  # type: ignore[arg-type]
        places = np.array([result.features for result in usable], dtype=float).reshape(len(usable), len(self._features)) / _DOUBLINGS
        sources = np.array([result.source for result in usable])
        times = np.array([result.time_us for result in usable], dtype=float)
        kept = _spread(sources, times, places, self._features)
        sources, values, times = sources[kept], values[kept], times[kept]
        self._base: Matrix = np.log(times) - values  # log of the estimates
        self._points = np.hstack([encoding.vectors(rows[kept]), places[kept]])
        self._values = values.copy()
        for source in set(sources.tolist()):
            mine = sources == source
            # The fastest matter: their mean is what a search of this workload will see as its own.
            fast = mine & (times <= np.median(times[mine]))
            self._values[mine] -= values[fast].mean()
        nearest = float(np.abs(self._points[:, encoding.width :] - self._features).sum(axis=1).min()) if len(values) else 0.0
        self.trust = _UNTRIED * float(np.exp(-nearest * _DOUBLINGS / _FAR))
        self.tried = False
        self.spread: float | None = None
        self._scale = float(self._values.std()) + 1e-3 if len(values) else 1.0
        width = encoding.width
        groups = [*encoding.groups, *(Group(width + k, width + k + 1, exact=False) for k in range(len(self._features)))]
        self._gaussian = Gaussian(groups, Prior())
        if len(values) > 2:
            self._gaussian.fit(self._points, self._values / self._scale)
            self._try(sources)
        self._gaussian.condition(self._points, range(len(values)))

    def __len__(self) -> int:
        return len(self._values)

    def _try(self, sources: NDArray[np.str_]) -> None:
        """Ask the others for each of the nearest sources, and see what share of their answer holds."""
        names, first = np.unique(sources, return_index=True)
        if len(names) < 2:
            return
        far = np.abs(self._points[first, self._encoding.width :] - self._features).sum(axis=1)
        asked, told, bases = [], [], []
        for name in names[np.argsort(far, kind="stable")[:_HELD_OUT]]:
            mine = np.flatnonzero(sources == name)
            others = np.flatnonzero(sources != name)
            if len(mine) < 3 or len(others) < 3:
                continue
            self._gaussian.condition(self._points[others], range(len(others)))
            mean, _ = self._gaussian.elsewhere(self._values[others] / self._scale, self._points[mine])
            found = mean * self._scale
            asked.append(found - found.mean())
            told.append(self._values[mine] - self._values[mine].mean())
            bases.append(self._base[mine] - self._base[mine].mean())
        if not asked:
            return
        said, held, base = np.concatenate(asked), np.concatenate(told), np.concatenate(bases)
        self.tried = True
        self.trust = float(np.clip(said @ held / (said @ said + 1e-3 * len(said)), 0.0, 1.0))
        # Sources that do not even tell one another fast from slow say nothing here: their times may be another kernel's, or noise.
        guessed, times = base + self.trust * said, base + held
        skill = float(np.corrcoef(guessed, times)[0, 1]) if guessed.std() > 0 and times.std() > 0 else 0.0
        self.trust *= float(np.clip((skill - _NO_SKILL) / (_SKILL - _NO_SKILL), 0.0, 1.0))
        if self.trust:
            self.spread = max(float((held - self.trust * said).std()), _LEAST_SPREAD)

    def expect(self, vectors: Matrix) -> tuple[Matrix, Matrix]:
        """Mean and standard deviation of log(time / estimate) at points of this workload, up to a constant.

        Args:
            vectors: encoded points, `[points, width]`.
        """
        here = np.hstack([vectors, np.tile(self._features, (len(vectors), 1))])
        mean, deviation = self._gaussian.elsewhere(self._values / self._scale, here)
        return mean * self._scale, deviation * self._scale


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
