"""A few schedules that serve many workloads: the fewest within a stated loss. Pure; does not depend on the order of records."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from tilewright.best import WRONG, protocol_rank, rank
from tilewright.current import Templates, is_stale
from tilewright.errors import UsageError
from tilewright.identity import Keys
from tilewright.record import Record, Status, config_key

# Steps of the exact search before it settles for the best found. guess: about a second; 20 workloads and 200 schedules take some hundred.
_MOST_NODES: Final = 100_000
# Rounds of exchanging one schedule for another. guess: the second rarely changes anything.
_MOST_SWEEPS: Final = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """How a cover serves one workload.

    Attributes:
        record: of the schedule chosen for it, on this workload: its config is in the workload's own space.
        loss: its time over the best time of any schedule.
    """

    record: Record
    loss: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Cover:
    """The schedules chosen for one operator on one target.

    Attributes:
        operator: the operator's name.
        target: key of the target's identity.
        protocol: by which all times were measured.
        schedules: ids of those chosen (hash of the source, or of a recording's config), sorted.
        served: by workload key.
        exact: whether no smaller number can do; else the search was cut short.
    """

    operator: str
    target: str
    protocol: str
    schedules: tuple[str, ...]
    served: Mapping[str, Served]
    exact: bool

    @property
    def worst(self) -> float:
        """The greatest loss of a workload."""
        return max(served.loss for served in self.served.values())

    @property
    def mean(self) -> float:
        """Geometric mean of the losses."""
        return math.exp(math.fsum(math.log(served.loss) for served in self.served.values()) / len(self.served))


def schedule_id(record: Record) -> str:
    """What makes two records the same schedule: the rendered code, whatever the outer parts of their splits; in a recording, the config."""
    return record.source or config_key(record.config)


def covers(
    records: Iterable[Record],
    *,
    max_loss: float,
    max_schedules: int,
    operators: frozenset[str] | None = None,
    templates: Templates = MappingProxyType({}),
) -> tuple[Cover, ...]:
    """The fewest schedules that serve all workloads of each operator and target, every one within a loss.

    A schedule without a correct time on a workload cannot serve it. Times are compared within the most trusted protocol that an
    operator was measured by on a target.

    Args:
        records: of any number of sessions; a schedule found wrong on a workload in any of them does not serve it.
        max_loss: greatest allowed time over the workload's best, such as 1.03.
        max_schedules: greatest allowed number.
        operators: those to cover; all where None.
        templates: of operators at hand: a workload with a right record of one of these is served by none of an older template.

    Raises:
        UsageError: no cover meets both limits; the message says what would.
    """
    if not max_loss >= 1:
        raise UsageError(f"max loss must be 1 or more (1.03 allows 3% over the best time), not {max_loss}")
    if max_schedules < 1:
        raise UsageError(f"max schedules must be 1 or more, not {max_schedules}")
    keys = Keys()
    wrong: set[tuple[str, str, str]] = set()
    groups: dict[tuple[str, str, str], list[Record]] = defaultdict(list)
    for record in records:
        if operators is not None and record.workload.operator not in operators:
            continue
        if record.status in WRONG:
            wrong.add((keys.workload(record.workload), keys.target(record.target), schedule_id(record)))
        elif record.status is Status.OK and record.measurement is not None:
            groups[record.workload.operator, keys.target(record.target), record.measurement.protocol].append(record)
    trusted: dict[tuple[str, str], str] = {}
    for operator, target, protocol in sorted(groups, key=lambda key: (key[0], key[1], protocol_rank(key[2]))):
        trusted.setdefault((operator, target), protocol)
    found: list[Cover] = []
    for (operator, target), protocol in trusted.items():
        right = [record for record in groups[operator, target, protocol] if (keys.workload(record.workload), target, schedule_id(record)) not in wrong]
        today = {keys.workload(record.workload) for record in right if not is_stale(templates, operator, record.template)}
        times: dict[str, dict[str, Record]] = defaultdict(dict)
        for record in right:
            workload, name = keys.workload(record.workload), schedule_id(record)
            if workload in today and is_stale(templates, operator, record.template):
                continue
            known = times[workload].get(name)
            if known is None or rank(record) < rank(known):
                times[workload][name] = record
        if times:
            found.append(_cover(operator, target, protocol, times, max_loss, max_schedules))
    return tuple(found)


def _cover(operator: str, target: str, protocol: str, times: Mapping[str, Mapping[str, Record]], max_loss: float, max_schedules: int) -> Cover:
    workloads = sorted(times)
    names = sorted({name for by_name in times.values() for name in by_name})
    losses: list[dict[int, float]] = [{} for _ in names]  # by schedule, then workload
    index = {name: number for number, name in enumerate(names)}
    for number, workload in enumerate(workloads):
        best = min(_us(record) for record in times[workload].values())
        for name, record in times[workload].items():
            losses[index[name]][number] = _us(record) / best
    chosen, exact = fewest(losses, len(workloads), max_loss)
    if len(chosen) > max_schedules:
        within = _loss_within(losses, len(workloads), max_schedules)
        most = "no loss allows fewer" if within is None else f"with {max_schedules} the loss is {within:.3f}"
        raise UsageError(
            f"{operator}: {len(workloads)} workloads within {max_loss:g} of their best need {len(chosen)} schedules, and {most}; "
            "allow more with --max-loss or --max-schedules, or measure more schedules on all workloads"
        )
    chosen = _polished(losses, chosen, len(workloads), max_loss)
    served: dict[str, Served] = {}
    for number, workload in enumerate(workloads):
        loss, name = min((losses[schedule][number], names[schedule]) for schedule in chosen if number in losses[schedule])
        served[workload] = Served(record=times[workload][name], loss=loss)
    used = tuple(sorted({schedule_id(one.record) for one in served.values()}))
    return Cover(operator=operator, target=target, protocol=protocol, schedules=used, served=served, exact=exact)


def _us(record: Record) -> float:
    assert record.measurement is not None
    return record.measurement.median_us


def fewest(losses: Sequence[Mapping[int, float]], workloads: int, max_loss: float) -> tuple[list[int], bool]:
    """The smallest set of schedules with which every workload is served within a loss, and whether it is proven smallest.

    Args:
        losses: for each schedule, its loss by workload; a workload that is not in it cannot be served.
        workloads: how many; each is within the loss by its own best schedule.
        max_loss: greatest loss.

    Returns:
        Positions in `losses`, ascending.
    """
    whole = (1 << workloads) - 1
    masks: dict[int, int] = {}
    for schedule, by_workload in enumerate(losses):
        mask = sum(1 << workload for workload, loss in by_workload.items() if loss <= max_loss)
        if mask:
            masks.setdefault(mask, schedule)
    # One that serves a part of what another does is never needed.
    kept = [mask for mask in masks if not any(mask != other and mask & other == mask for other in masks)]
    kept.sort(key=lambda mask: (-mask.bit_count(), masks[mask]))
    best = _greedy(kept, whole)
    nodes = 0

    def search(left: int, room: int, taken: list[int]) -> list[int] | None:
        nonlocal nodes
        if not left:
            return taken
        nodes += 1
        if nodes > _MOST_NODES or -(-left.bit_count() // max((mask & left).bit_count() for mask in kept)) > room:
            return None
        # Some schedule must serve the workload that fewest can serve: try those, the widest first.
        rarest = min((bit for bit in range(workloads) if left >> bit & 1), key=lambda bit: sum(mask >> bit & 1 for mask in kept))
        for mask in sorted((mask for mask in kept if mask >> rarest & 1), key=lambda mask: (-(mask & left).bit_count(), masks[mask])):
            found = search(left & ~mask, room - 1, [*taken, mask])
            if found is not None:
                return found
        return None

    while len(best) > 1:
        smaller = search(whole, len(best) - 1, [])
        if smaller is None:
            break
        best = smaller
    return sorted(masks[mask] for mask in best), nodes <= _MOST_NODES


def _greedy(masks: Sequence[int], whole: int) -> list[int]:
    taken: list[int] = []
    left = whole
    while left:
        widest = max(masks, key=lambda mask: (mask & left).bit_count())  # the first of equals: masks come in a fixed order
        taken.append(widest)
        left &= ~widest
    return taken


def _loss_within(losses: Sequence[Mapping[int, float]], workloads: int, most: int) -> float | None:
    """The least loss at which so many schedules are found to do; None where none is."""
    values = sorted({loss for by_workload in losses for loss in by_workload.values()})
    low, high = 0, len(values)
    while low < high:
        middle = (low + high) // 2
        if len(fewest(losses, workloads, values[middle])[0]) <= most:
            high = middle
        else:
            low = middle + 1
    return values[low] if low < len(values) else None


def _polished(losses: Sequence[Mapping[int, float]], chosen: list[int], workloads: int, max_loss: float) -> list[int]:
    """As many schedules, exchanged one at a time while the mean loss falls."""

    def total(candidates: Sequence[int]) -> float:
        served = [min(losses[schedule].get(workload, math.inf) for schedule in candidates) for workload in range(workloads)]
        return math.fsum(map(math.log, served)) if max(served) <= max_loss else math.inf

    useful = [schedule for schedule, by_workload in enumerate(losses) if any(loss <= max_loss for loss in by_workload.values())]
    best = total(chosen)
    for _ in range(_MOST_SWEEPS):
        before = best
        for position in range(len(chosen)):
            for schedule in useful:
                trial = [*chosen[:position], schedule, *chosen[position + 1 :]]
                if (mean := total(trial)) < best - 1e-12:
                    chosen, best = trial, mean
        if best == before:
            break
    return sorted(chosen)
