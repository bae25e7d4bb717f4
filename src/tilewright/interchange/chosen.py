"""What is given to others: schedules chosen from a best file or from logs, the fastest of each workload first."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from tilewright.best import BestEntry, best_entries, entry_of, merge, rank
from tilewright.current import Templates, is_stale
from tilewright.errors import UsageError
from tilewright.identity import Keys
from tilewright.knobs import SCHEDULE
from tilewright.races import WRONG
from tilewright.record import Config, Line, Record, Status, config_key
from tilewright.target import Target
from tilewright.workload import Workload


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """One schedule for one workload on one device.

    Attributes:
        median_us: expected time of a call, by the protocol.
        triton: minor version that it was measured with; empty where not known.
    """

    workload: Workload
    target: Target
    config: Config
    median_us: float
    protocol: str
    triton: str = ""

    @property
    def schedule(self) -> str:
        """The schedule's name; empty where the operator has one."""
        return str(self.config.get(SCHEDULE, ""))


def chosen_entries(entries: Iterable[BestEntry], templates: Templates = MappingProxyType({})) -> tuple[Chosen, ...]:
    """The schedules of best entries, in the order of a best file; those of templates that operators have now before others."""
    return tuple(_chosen(entry) for entry in merge(entries, templates=templates).entries)


def chosen_records(lines: Sequence[Line], top: int = 1, templates: Templates = MappingProxyType({})) -> tuple[Chosen, ...]:
    """The schedules of a log: for each workload and device the one that a best file would have, then the next fastest, `top` in all.

    Only times by the protocol of the first are compared with it. What was found wrong anywhere is left out, and so is what is of an older
    template than the operator has now, where the first is not.
    """
    entries = best_entries(lines, templates)
    if top == 1:
        return chosen_entries(entries, templates)
    keys = Keys()
    current = {
        (keys.workload(entry.workload), keys.target(entry.target)) for entry in entries if not is_stale(templates, entry.workload.operator, entry.pins.template)
    }
    records: dict[tuple[str, str, str], dict[str, Record]] = defaultdict(dict)
    wrong: set[tuple[str, str, str]] = set()
    for line in lines:
        if not isinstance(line, Record):
            continue
        place, text = (keys.workload(line.workload), keys.target(line.target)), config_key(line.config)
        if line.status in WRONG:
            wrong.add((*place, text))
        if place in current and is_stale(templates, line.workload.operator, line.template):
            continue
        if line.status is Status.OK and line.measurement is not None:
            kept = records[*place, line.measurement.protocol]
            if text not in kept or rank(line) < rank(kept[text]):
                kept[text] = line
    found: list[Chosen] = []
    for entry in entries:
        place = (keys.workload(entry.workload), keys.target(entry.target))
        ranked = sorted(records[*place, entry.pins.protocol].items(), key=lambda item: rank(item[1]))
        first = config_key(entry.config)
        others = [record for text, record in ranked if text != first and (*place, text) not in wrong]
        found += [_chosen(entry), *(_chosen(entry_of(record)) for record in others[: top - 1])]
    return tuple(found)


def _chosen(entry: BestEntry) -> Chosen:
    return Chosen(
        workload=entry.workload,
        target=entry.target,
        config=entry.config,
        median_us=entry.median_us,
        protocol=entry.pins.protocol,
        triton=entry.pins.triton,
    )


def selected(chosen: Iterable[Chosen], wanted: Sequence[Mapping[str, int | str]], target: str | None) -> tuple[Chosen, ...]:
    """Those of the workloads and the device asked for.

    Args:
        chosen: what there is.
        wanted: parameters, any of which a workload must have all of; no limit where empty.
        target: arch or name of the device.

    Raises:
        UsageError: nothing is left.
    """
    everything = tuple(chosen)
    left = tuple(one for one in everything if is_wanted(one.workload, one.target, wanted, target))
    if everything and not left:
        raise nothing_left(((one.workload, one.target) for one in everything), wanted, target)
    return left


def is_wanted(workload: Workload, target: Target, wanted: Sequence[Mapping[str, int | str]], name: str | None) -> bool:
    """Whether a workload has the parameters of one of those wanted, and a target the name."""
    fits = not wanted or any(parameters.items() <= workload.parameters.items() for parameters in wanted)
    return fits and name in (None, target.arch, target.name)


def nothing_left(there: Iterable[tuple[Workload, Target]], wanted: Sequence[Mapping[str, int | str]], target: str | None) -> UsageError:
    """The error for a choice that leaves nothing: it names what there is."""
    named = sorted({f"{workload.key} on {device.name} ({device.arch})" for workload, device in there})
    asked = [",".join(f"{name}={value}" for name, value in parameters.items()) for parameters in wanted] + ([target] if target else [])
    return UsageError(f"nothing of {' or '.join(asked)} is here; there are: {'; '.join(named[:8])}{f' and {len(named) - 8} more' if len(named) > 8 else ''}")
