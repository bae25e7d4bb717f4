"""Tuning logs as a start: what other workloads, targets and template versions say, as searchers take it."""

from __future__ import annotations

import functools
import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from tilewright.errors import HostError, LogError, UsageError
from tilewright.estimate import GeneralEstimate, estimate_for
from tilewright.library import shipped_templates
from tilewright.log import TuningLog
from tilewright.operator import OperatorSpec
from tilewright.record import Config, Record, Resources, Status
from tilewright.result import learned_us
from tilewright.search import LEARNING_SEARCHERS
from tilewright.search.past_result import PastResult
from tilewright.target import Target
from tilewright.workload import Workload

# How far apart another word or another kind of device sets two workloads, in doublings of a dim, as in `transfer.distance`.
_WORD_DOUBLINGS: Final = 8.0
_DEVICE_DOUBLINGS: Final = 2.0
# Sources that a search learns from, the nearest, and results of each: its best, and others at even steps. With 60 results, knobs and history alone were at
# 83.0 / 38.0 after 8 measurements of the recorded GEMM, with 120 at 95.9 / 80.9 (decision 0018, 2026-11). guess: eight sources.
_SOURCES: Final = 8
_RESULTS: Final = 120


@dataclass(frozen=True, slots=True, kw_only=True)
class Kinship:
    """How one workload's search sees others' results.

    Attributes:
        workload, target: what is searched for.
        spec: the operator's, for estimates; None without one.
    """

    workload: Workload
    target: Target
    spec: OperatorSpec | None = None
    _estimates: dict[tuple[str, str], Callable[[Config, Resources | None], float | None] | None] = field(default_factory=dict)

    @property
    def features(self) -> tuple[float, ...]:
        """This workload's place: log2 of its dims, and no difference in anything else."""
        return self.place(self.workload, self.target)

    def place(self, workload: Workload, target: Target) -> tuple[float, ...]:
        """Another workload's place, in doublings: log2 of its dims, and where its words and device differ."""
        mine, other = self.workload, workload
        dims = [math.log2(other.dims.get(name, 1)) for name in sorted(mine.dims)]
        words = {**mine.dtypes, **mine.layout}
        differing = [_WORD_DOUBLINGS * ({**other.dtypes, **other.layout}.get(name) != words[name]) for name in sorted(words)]
        device = 0.0 if target.key == self.target.key else _DEVICE_DOUBLINGS if target.arch == self.target.arch else _WORD_DOUBLINGS
        return (*dims, *differing, device)

    def heard(self, workload: Workload, config: Config, time_us: float | None, resources: Resources | None) -> PastResult:
        """One result of another workload of the same session."""
        return self.result(workload, self.target, config, time_us, resources)

    def result(self, workload: Workload, target: Target, config: Config, time_us: float | None, resources: Resources | None) -> PastResult:
        """One result of another workload."""
        key = (workload.key, target.key)
        if key not in self._estimates:
            try:
                self._estimates[key] = estimate_for(self.spec, workload, target) if self.spec is not None else None
            except Exception:  # the author's functions, which may know another version's workload no more
                self._estimates[key] = None
        estimate = self._estimates[key]
        try:
            estimated = estimate(config, resources) if estimate is not None and time_us is not None else None
            if estimated is not None and not math.isfinite(estimated):
                estimated = None
            described = None
            if isinstance(estimate, GeneralEstimate) and estimated is not None and resources is not None:
                described = estimate.describe(config, resources, estimated)
        except (LookupError, TypeError, ValueError, ArithmeticError, UsageError):  # written for another version of the template
            estimated = described = None
        return PastResult(
            source=f"{workload.key} {target.key}",
            features=self.place(workload, target),
            config=config,
            time_us=time_us,
            estimate_us=estimated,
            described=described,
            # The grid is that workload's, and says nothing of this one's.
            resources=replace(resources, programs=None) if resources is not None and target.arch == self.target.arch else None,
        )


def default_history(operator: str, log: Path | None) -> list[Path]:
    """The logs of an operator that come with Tilewright, by their names, and the session's own where it is given and there."""
    shipped = shipped_templates()
    logs = sorted((shipped.parent / "tuning_logs").rglob(f"{operator}*.jsonl*")) if shipped is not None else []
    return [*logs, *([log] if log is not None and TuningLog(log).exists() else [])]


def named_history(paths: Sequence[Path], operator: str, searcher: str, note: Callable[[str], None]) -> LogHistory:
    """The logs that a user named, read at once, and one line on what they give.

    Args:
        paths: tuning logs; none to start cold.
        operator: whose records count.
        searcher: what they are for.
        note: told how many results there are, or that the searcher learns from none.

    Raises:
        LogError: a log is not there, has no line that can be read, or was written by a newer Tilewright.
        UsageError: one is a socket, a disk, or a device without an end.
        HostError: a log cannot be read.
    """
    history = LogHistory(paths, strict=True)
    results, workloads = history.count(operator)
    if paths and searcher not in LEARNING_SEARCHERS:
        note(f"--history is not used by --search {searcher}; those that start from it: {', '.join(sorted(LEARNING_SEARCHERS))}")
    elif paths:
        note(f"history: {results:,} results of {workloads:,} workloads" + ("" if results else f"; none of them is of {operator}"))
    return history


class LogHistory:
    """Records of some logs, read when first asked for.

    Args:
        paths: tuning logs.
        strict: whether one that cannot be read is an error. If not, searches do without.
    """

    def __init__(self, paths: Sequence[Path], *, strict: bool = False) -> None:
        self._paths = tuple(paths)
        self._strict = strict

    def count(self, operator: str) -> tuple[int, int]:
        """How many results of an operator there are, and of how many workloads.

        Raises:
            LogError, HostError: as `named_history`, where strict.
        """
        found = [records for records in self._sources.values() if records[0].workload.operator == operator]
        return sum(map(len, found)), len({records[0].workload.key for records in found})

    def has_run(self, operator: str) -> bool:
        """Whether a candidate of an operator ran, by any of the logs."""
        found = (records for records in self._sources.values() if records[0].workload.operator == operator)
        return any(record.measurement is not None for records in found for record in records)

    @functools.cached_property
    def _sources(self) -> dict[tuple[str, str], list[Record]]:
        """Records by workload and target, the fastest first."""
        found: defaultdict[tuple[str, str], list[Record]] = defaultdict(list)
        for path in self._paths:
            try:
                contents = TuningLog(path).read()
                if contents.damage and not contents.lines:
                    raise LogError(f"{path}: no line is one of a tuning log (the first: {contents.damage[0].reason}); --history takes tuning logs")
            except (LogError, HostError, OSError):
                if self._strict:
                    raise
                continue  # a search can do without
            for line in contents.lines:
                if isinstance(line, Record) and line.status is not Status.CUT:
                    found[line.workload.key, line.target.key].append(line)
        return {key: sorted(records, key=lambda record: learned_us(record) or math.inf) for key, records in found.items()}

    def past(self, kinship: Kinship) -> tuple[PastResult, ...]:
        """What the logs say to a workload's search: of other workloads of its operator, or of other targets.

        The workload's own records on its own target are left out: they are no hearsay, and the session reads them from its log.
        """
        mine = (kinship.workload.key, kinship.target.key)
        place = kinship.features
        near = [
            (sum(abs(one - other) for one, other in zip(place, kinship.place(records[0].workload, records[0].target), strict=True)), key)
            for key, records in self._sources.items()
            if key != mine and records[0].workload.operator == kinship.workload.operator and records[0].target.backend == kinship.target.backend
        ]
        results: list[PastResult] = []
        for _, key in sorted(near)[:_SOURCES]:
            for record in _thinned(self._sources[key]):
                results.append(kinship.result(record.workload, record.target, record.config, learned_us(record), record.resources))
        return tuple(results)


def _thinned(records: Sequence[Record]) -> list[Record]:
    """The best half as many, and others at even steps."""
    if len(records) <= _RESULTS:
        return list(records)
    best = _RESULTS // 2
    step = (len(records) - best) / (_RESULTS - best)
    return [*records[:best], *(records[best + int(turn * step)] for turn in range(_RESULTS - best))]
