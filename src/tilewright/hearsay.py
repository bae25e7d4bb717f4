"""What a workload's searcher hears of the session's other workloads."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from tilewright.record import Config, Resources
from tilewright.search import Proposer
from tilewright.workload import Workload


@runtime_checkable
class Listener(Protocol):
    """A searcher that learns from other workloads of its session."""

    def heard(self, workload: Workload, config: Config, time_us: float | None, resources: Resources | None) -> None:
        """Report another workload's candidate: that workload's config, its time in µs (None where it failed), and what its build needed there."""
        ...


class Hearsay:
    """Passes on what is heard, from the moment that there is a searcher that listens; kept for it until then."""

    def __init__(self) -> None:
        self._listener: Listener | None = None
        self._deaf = False
        self._kept: list[tuple[Workload, Config, float | None, Resources | None]] = []

    def heard(self, workload: Workload, config: Config, time_us: float | None, resources: Resources | None) -> None:
        """Another workload's candidate has ended."""
        if self._listener is not None:
            self._listener.heard(workload, config, time_us, resources)
        elif not self._deaf:
            self._kept.append((workload, config, time_us, resources))

    def deliver(self, proposer: Proposer) -> Proposer:
        """The searcher is made; returns it."""
        if isinstance(proposer, Listener):
            self._listener = proposer
            for kept in self._kept:
                proposer.heard(*kept)
        self._deaf = self._listener is None
        self._kept.clear()
        return proposer
