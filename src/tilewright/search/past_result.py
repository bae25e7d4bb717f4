"""What a search is told of results that are not its own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tilewright.record import Config, Resources
from tilewright.workload import Workload


@dataclass(frozen=True, slots=True, kw_only=True)
class PastResult:
    """One result of another workload, target or template version.

    Attributes:
        source: what the result belongs to; results of one source compare.
        features: log2 of the source's dims, and other numbers that tell it from other sources; of one length in all results.
        config: knob values, matched by name.
        time_us: None where it failed.
        estimate_us: what the same kind of estimate as this search's says of it; None without one.
        described: what tells its build from other operators', where the estimate is the general one.
        resources: what its build needed, where known; without programs, which are its own workload's.
    """

    source: str
    features: tuple[float, ...]
    config: Config
    time_us: float | None
    estimate_us: float | None = None
    described: tuple[float, ...] | None = None
    resources: Resources | None = None


# Makes a result of what was heard of a workload's candidate: its config, its time in µs (None where it failed), and what its build
# needed there, where known.
Relate = Callable[[Workload, Config, float | None, Resources | None], PastResult]
