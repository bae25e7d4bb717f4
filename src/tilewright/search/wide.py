"""The cost-model searcher with builds ahead of measurements: a trial is asked only when a built candidate is chosen."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from tilewright.knobs import Value
from tilewright.record import Config, Resources, config_key
from tilewright.search.base import History
from tilewright.search.cost import CostSampler
from tilewright.search.model import Estimate
from tilewright.search.past_result import PastResult, Relate
from tilewright.search.study import StudyProposer
from tilewright.workload import Workload

if TYPE_CHECKING:
    from tilewright.space import SearchSpace


class CostProposer(StudyProposer):
    """Expected improvement on an estimate and its learned residual, with builds as a second source of knowledge.

    Args:
        space: where configs come from.
        seed: of all draws.
        history: results known from before.
        estimate: an analytic estimate of a config's time, where there is one.
        turns: without an estimate, choose every fourth point by densities.
        past, features: results of other workloads, and what tells this one from them.
        relate: makes such a result of what is heard of another workload of the session.
    """

    def __init__(
        self,
        space: SearchSpace,
        *,
        seed: int,
        history: History = (),
        estimate: Estimate | None = None,
        turns: bool = True,
        past: Sequence[PastResult] = (),
        features: Sequence[float] = (),
        relate: Relate | None = None,
    ) -> None:
        self._relate = relate
        self._sampler = CostSampler(space, seed=seed, estimate=estimate, turns=turns, past=past, features=features)
        super().__init__(space, self._sampler, seed=seed, history=history)
        self._ready: dict[str, dict[str, Value]] = {}

    def heard(self, workload: Workload, config: Config, time_us: float | None, resources: Resources | None) -> None:
        """Learn from another workload's candidate."""
        if self._relate is not None:
            self._sampler.heard(partial(self._relate, workload, config, time_us, resources))

    def widen(self, count: int) -> list[dict[str, Value]]:
        """Configs worth building next, the author's candidates before the model's."""
        wanted: list[dict[str, Value]] = []
        while len(wanted) < count and (config := self._book.first()) is not None:
            if config_key(config) not in self._ready:
                wanted.append(config)
        wanted += self._sampler.widen(self.study, count - len(wanted))
        return wanted

    def built(self, config: Config, resources: Resources | None) -> None:
        """Take in a build."""
        self._sampler.built(config, resources)
        if resources is None:
            self._ready.pop(config_key(config), None)
            self._book.told(config, None)
        else:
            self._ready[config_key(config)] = dict(config)

    def ask(self) -> dict[str, Value] | None:
        """What to measure next: of the built candidates while there are any, else of all."""
        ready = [config for config in self._ready.values() if not self._book.knows(config)]
        self._ready = {config_key(config): config for config in ready}
        config = self._sampler.choose(self.study, ready) if ready else None
        return super().ask() if config is None else self._start(config)
