"""One workload's candidates on their way from being asked for to being measured.

A narrow searcher's candidates are measured in the order asked, so that a seed reproduces. A wide one has more built than is measured,
and is asked only when a built candidate is to be chosen.
"""

from __future__ import annotations

import functools
from collections import deque
from collections.abc import Collection, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Final

from tilewright.allocation import LEAST_TRIALS
from tilewright.builder import BuildOutcome, BuildRequest
from tilewright.device import Device
from tilewright.estimate import estimate_for
from tilewright.hearsay import Hearsay
from tilewright.history import Kinship
from tilewright.record import Config, Resources, Status, Value, config_key
from tilewright.search import LEARNING_SEARCHERS, History, Proposer, WideProposer, make_proposer
from tilewright.space import SearchSpace
from tilewright.template import Source
from tilewright.transfer import translate
from tilewright.workload import Workload

# Of a wide searcher's builds that fail, one in so many counts as a trial, and no trial has more builds: the search benchmark's bound.
MOST_BUILDS: Final = 8
MOST_KNOWN: Final = 64  # guess: known configs that a wide searcher may want in a row: the default, hints


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A config, rendered and handed to the builder.

    Attributes:
        build: the build; None for a candidate that is only to be recorded.
    """

    config: dict[str, Value]
    source: Source
    build: Future[BuildOutcome] | None

    def built(self) -> BuildOutcome:
        """Wait for the build."""
        if self.build is None:
            raise ValueError(f"candidate {config_key(self.config)} was not handed to the builder")
        return self.build.result()

    @property
    def is_built(self) -> bool:
        """Whether the build is done."""
        return self.build is not None and self.build.done()

    def cancel(self) -> bool:
        """Take it back from the builder; False where the build has begun."""
        return self.build is not None and self.build.cancel()


class Pipeline:
    """What is asked, built and waiting for one workload.

    Args:
        device: renders and builds.
        workload, space: what is searched.
        searcher, seed, history: of the proposer, which is made when first needed.
        default_only: hand out the default schedule and no more.
        known: keys of configs that have a record.

    Attributes:
        asked: trials, given or done: candidates to be measured, or whose build failed (see `is_trial`), and those with a record from the start.
        exhausted: whether there is no candidate left to hand to the builder.
        ahead: builds that a wide searcher may have besides `Device.width` for each measurement, so that builders do not wait for those.
        hearsay: where results of other workloads go.
    """

    def __init__(
        self,
        *,
        device: Device,
        workload: Workload,
        space: SearchSpace,
        searcher: str,
        seed: int,
        history: History,
        default_only: bool,
        known: Collection[str],
    ) -> None:
        self.asked = len(known)
        self.exhausted = False
        self.ahead = 0
        self.hearsay = Hearsay()
        self._device = device
        self._workload = workload
        self._space = space
        estimate = estimate_for(device.spec, workload, device.target) if device.spec is not None else None
        kinship = Kinship(workload=workload, target=device.target, spec=device.spec)

        def make() -> Proposer:
            past = device.history.past(kinship) if device.history is not None and searcher in LEARNING_SEARCHERS else ()
            return make_proposer(searcher, space, seed=seed, history=history, estimate=estimate, past=past, features=kinship.features, relate=kinship.heard)

        self._make = make
        self._default = space.default()
        self._default_only = default_only
        self._retries: deque[dict[str, Value]] = deque()
        self._hints: deque[dict[str, Value]] = deque()
        self._known = set(known)  # asked for or told
        self._queue: deque[Candidate] = deque()  # to be measured in this order
        self._building: dict[str, Candidate] = {}  # of a wide searcher, as are those that are
        self._built: dict[str, Candidate] = {}
        self._builds = self._failures = 0
        self._aside: set[str] = set()  # a wide searcher's whose build failed, and that are no trials

    @functools.cached_property
    def _proposer(self) -> Proposer:
        # Made at the first ask: a workload that the log answers pays for no searcher.
        return self.hearsay.deliver(self._make())

    @property
    def _wide(self) -> WideProposer | None:
        return self._proposer if isinstance(self._proposer, WideProposer) else None

    @property
    def rejected(self) -> Mapping[str, int]:
        """Points refused by each `require`, by its reason."""
        return self._proposer.rejected if "_proposer" in vars(self) else {}

    @property
    def default(self) -> dict[str, Value]:
        """The author's default."""
        return self._default

    def retry(self, config: Config) -> None:
        """Try a config before the searcher's own; the searcher hears of it when it is told."""
        self._retries.append(dict(config))

    def hint(self, config: Config) -> None:
        """Try another workload's config soon, where this one's space has it."""
        if (known := translate(config, self._space)) is not None and config_key(known) not in self._known:
            self._hints.append(known)

    def give(self, config: Config) -> bool:
        """Have another workload's config built and measured, where this one's space has it and it is new."""
        if (known := translate(config, self._space)) is None or config_key(known) in self._known:
            return False
        for waiting in (self._building, self._built):
            waiting.pop(config_key(known), None)
        self._enqueue(known)
        return True

    def is_trial(self, config: Config) -> bool:
        """Whether a candidate counts: a wide searcher's failed build is a record, but a trial only once in eight times."""
        return config_key(config) not in self._aside

    def tell(self, config: Config, time_us: float | None) -> None:
        """Let the searcher learn what came of a candidate."""
        key = config_key(config)
        if key not in self._known:  # recorded without having been asked for
            self._known.add(key)
            self.asked += 1
        self._proposer.tell(dict(config), time_us)

    def feed(self) -> bool:
        """Hand one more candidate to the builder; False where there is none, now or (`exhausted` is set) at all."""
        if (config := self._given()) is not None:
            self._enqueue(config)
            return True
        if self._default_only:
            self.exhausted = True
            return False
        if (wide := self._wide) is not None:
            return self._widen(wide)
        while (config := self._proposer.ask()) is not None and config_key(config) in self._known:
            pass  # a hint was quicker, and its result is not told yet
        if config is None:
            self.exhausted = True
            return False
        self._enqueue(config)
        return True

    def _given(self) -> dict[str, Value] | None:
        """A config that does not come from the searcher: one that a session died at, the default, another workload's best."""
        while self._retries:
            if config_key(retry := self._retries.popleft()) not in self._known:  # as one that the session died at too often
                return retry
        if config_key(self._default) not in self._known:
            return self._default
        while self._hints and self.asked >= LEAST_TRIALS:  # not before the author's own suggestions
            hint = self._hints.popleft()
            if config_key(hint) not in self._known:
                return hint
        return None

    def _enqueue(self, config: dict[str, Value]) -> None:
        self._known.add(config_key(config))
        self.asked += 1
        self._queue.append(self.candidate(config))

    def _widen(self, wide: WideProposer) -> bool:
        self._harvest(wide)
        width, turns = self._device.width, self.asked + 1  # builds that fail leave room for others
        if self._builds - len(self._aside) >= width * turns + self.ahead or self._builds >= max(width, MOST_BUILDS) * turns + self.ahead:
            return False
        # It may want what was given past it, the default above all, until it is told of it: no sign of its wanting nothing.
        for config in (wanted for _ in range(MOST_KNOWN) for wanted in wide.widen(1)):
            key = config_key(config)
            if key not in self._known and key not in self._building and key not in self._built:
                self._builds += 1
                self._building[key] = self.candidate(config)
                return True
        self.exhausted = not (self._building or self._built or self._queue)
        return False

    def _harvest(self, wide: WideProposer) -> None:
        """Let the searcher know of builds that are done."""
        for key in [key for key, candidate in self._building.items() if candidate.is_built]:
            candidate = self._building.pop(key)
            outcome = candidate.built()
            if key in self._known:  # a hint was quicker
                continue
            if outcome.status is Status.OK:
                self._built[key] = candidate
                wide.built(candidate.config, outcome.resources or Resources(shared_memory_bytes=0))
            else:
                # It has failed already: there is nothing to choose, only a record to write.
                self._known.add(key)
                self._failures += 1
                if self._failures % MOST_BUILDS:
                    self._aside.add(key)
                else:
                    self.asked += 1
                self._queue.appendleft(candidate)
                wide.built(candidate.config, None)

    @property
    def in_flight(self) -> int:
        """Candidates that are being built, or wait in order for their turn."""
        return len(self._queue) + sum(not candidate.is_built for candidate in self._building.values())

    @property
    def upcoming(self) -> Source | None:
        """What is measured next of those that wait in order, where one is built."""
        return self._queue[0].source if self._queue and self._queue[0].is_built else None

    @property
    def stock(self) -> int:
        """Builds, done or not, of which a wide searcher has not chosen yet."""
        return len(self._building) + len(self._built)

    def pending(self, *, more: bool) -> list[Future[BuildOutcome]]:
        """Builds that are not done; when one is, there may be something to measure. `more` as for `ready`."""
        waiting = (*self._queue, *(self._building.values() if more else ()))
        return [build for candidate in waiting if (build := candidate.build) is not None and not build.done()]

    def ready(self, *, more: bool) -> bool:
        """Whether `take` has a candidate whose build is done.

        Args:
            more: whether the budget allows to choose one of those that were built ahead.
        """
        if self._building and self._wide is not None:
            self._harvest(self._wide)
        return bool(self._queue and self._queue[0].is_built) or (more and bool(self._built))

    def take(self) -> Candidate | None:
        """The next candidate to measure, or whose build has failed; None where the searcher wants none of the built ones."""
        if self._queue and self._queue[0].is_built:
            return self._queue.popleft()
        config = self._proposer.ask()
        if config is None:
            # Nothing is left to choose: without saying so, the session would wait for builds that never come.
            self._built.clear()
            self.exhausted = True
            return None
        if (candidate := self._built.pop(config_key(config), None)) is None:
            self._enqueue(config)
            return None
        self._known.add(config_key(config))
        self.asked += 1
        return candidate

    def leave(self) -> list[Candidate]:
        """Stop: take back what has not begun to build, and give what was built, or is being built, and not measured."""
        rest = [*self._queue, *self._building.values(), *self._built.values()]
        self.asked -= sum(self.is_trial(candidate.config) for candidate in self._queue)
        for waiting in (self._queue, self._building, self._built):
            waiting.clear()
        return [candidate for candidate in rest if not candidate.cancel()]

    def candidate(self, config: dict[str, Value], *, build: bool = True) -> Candidate:
        """Render a config, and hand it to the builder."""
        source = self._device.make_source(self._workload, config)
        return Candidate(config=config, source=source, build=self._device.builder.submit(self._request(source)) if build else None)

    def _request(self, source: Source) -> BuildRequest:
        inputs, outputs = (spec.inputs(self._workload), spec.outputs(self._workload)) if (spec := self._device.spec) is not None else ({}, {})
        return BuildRequest(source=source, arguments=(*inputs.values(), *outputs.values()), target=self._device.compile_target, outputs=len(outputs))
