"""The dispatch table of one operator: which schedule serves which workload on which device, and why none does."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

_NEAREST: Final = 3  # guess: what fits a message

Parameters = Mapping[str, int | str]


class Miss(LookupError):
    """No record serves a call."""


class Stale(RuntimeError):
    """A record would serve a call, but what it was true of has changed since."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """What serves a workload.

    Attributes:
        schedule: name of the schedule; empty where a vendor's kernel serves.
        vendor: the vendor's name, or empty.
        how: `exact`, `range`, `default outside the range`, `nearest`, `default`, `vendor` or `called`, and what of.
        pins: what the record was true of.
    """

    schedule: str
    how: str
    vendor: str = ""
    pins: Mapping[str, str] | None = None


def key_text(parameters: Parameters) -> str:
    """`M=16,N=32,dtype=float16`."""
    return ",".join(f"{name}={value}" for name, value in parameters.items())


class Table:
    """Entries and ranges of one operator.

    Args:
        operator: its name.
        table: `entries`, `ranges` and `default`, as `tilewright emit` writes them.
        targets: identities that entries refer to by index. A field that an identity leaves out may be anything.
    """

    def __init__(self, operator: str, table: Mapping[str, Any], targets: Sequence[Mapping[str, Any]]) -> None:
        self.operator = operator
        self.entries: list[Mapping[str, Any]] = list(table.get("entries", ()))
        self.ranges: list[Mapping[str, Any]] = list(table.get("ranges", ()))
        self.default = str(table.get("default") or "")
        self.targets = targets
        self._exact = {(entry["target"], frozenset(entry["workload"].items())): entry for entry in self.entries}

    def matching(self, identity: Mapping[str, Any]) -> list[int]:
        """Indices of the targets that a device is. The interpreter stands in for any of them, those recorded on it first."""
        if identity["backend"] == "interpreter":
            return sorted(range(len(self.targets)), key=lambda index: self.targets[index].get("backend") != "interpreter")
        return [index for index, target in enumerate(self.targets) if not self.differences(index, identity)]

    def differences(self, index: int, identity: Mapping[str, Any]) -> list[str]:
        """Fields in which a device is not the target."""
        target = self.targets[index]
        return [f"{name} {identity.get(name)!r}, recorded {value!r}" for name, value in target.items() if name != "name" and identity.get(name) != value]

    def look_up(self, parameters: Parameters, targets: Sequence[int]) -> Choice | None:
        """Exact entry, then declared range, then the default declared outside of it; None on a miss."""
        items = frozenset(parameters.items())
        for target in targets:
            if entry := self._exact.get((target, items)):
                return _entry_choice(entry, f"the record of {key_text(entry['workload'])}")
        for spread in self._spreads(parameters, targets):
            extent = parameters[spread["dim"]]
            for low, high, schedule in spread["ranges"]:
                if low <= extent <= high:
                    return _spread_choice(spread, schedule, f"the range {spread['dim']}={low}..{high}")
            if spread["default"]:
                return _spread_choice(spread, spread["default"], f"the default declared outside the ranges of {spread['dim']}")
        return None

    def _spreads(self, parameters: Parameters, targets: Sequence[int]) -> Iterator[Mapping[str, Any]]:
        for target in targets:
            for spread in self.ranges:
                fixed = spread["fixed"]
                others = {name: value for name, value in parameters.items() if name != spread["dim"]}
                if spread["target"] == target and spread["dim"] in parameters and dict(fixed) == others:
                    yield spread

    def nearest(self, parameters: Parameters, targets: Sequence[int]) -> list[Mapping[str, Any]]:
        """Entries on the targets that take the same dtypes and layouts, the nearest dims first."""
        alike = [entry for entry in self.entries if entry["target"] in targets and _words(entry["workload"]) == _words(parameters)]
        return sorted(alike, key=lambda entry: (_distance(entry["workload"], parameters), key_text(entry["workload"])))

    def nearest_choice(self, parameters: Parameters, targets: Sequence[int], varying: Sequence[str]) -> Choice | None:
        """The schedule of the nearest entry that differs in no other dims than those given."""
        for entry in self.nearest(parameters, targets):
            if any(entry["workload"].get(name) != value for name, value in parameters.items() if name not in varying):
                continue
            return _entry_choice(entry, f"the nearest record, {key_text(entry['workload'])}")
        return None

    def explain_miss(self, parameters: Parameters, targets: Sequence[int], identity: Mapping[str, Any]) -> str:
        """Why nothing serves a workload: the device, or the nearest entries and the fields in which they differ."""
        if not self.entries and not self.ranges:
            return f"there are no records of {self.operator}"
        if not targets:
            named = "; ".join(f"{target.get('name') or target}: {', '.join(self.differences(index, identity))}" for index, target in enumerate(self.targets))
            return f"the records are of other devices ({named})"
        near = self.nearest(parameters, targets) or [entry for entry in self.entries if entry["target"] in targets]
        reasons = [f"{key_text(entry['workload'])} differs in {_difference(entry['workload'], parameters)}" for entry in near[:_NEAREST]]
        for spread in self.ranges:
            if spread["target"] in targets and len(reasons) < 2 * _NEAREST:
                covered = ", ".join(f"{low}..{high}" for low, high, _ in spread["ranges"])
                wrong = {**spread["fixed"], spread["dim"]: parameters.get(spread["dim"], "")}
                reasons.append(f"the ranges of {spread['dim']} ({covered}) are for {key_text(spread['fixed'])}: {_difference(wrong, parameters) or 'outside'}")
        return f"nearest: {'; '.join(reasons)}" if reasons else "no record is of these dtypes and layouts"


def _entry_choice(entry: Mapping[str, Any], how: str) -> Choice:
    return Choice(schedule=entry["schedule"], vendor=entry.get("vendor", ""), how=how, pins=entry.get("pins"))


def _spread_choice(spread: Mapping[str, Any], schedule: str, how: str) -> Choice:
    return Choice(schedule=schedule, how=how, pins=spread.get("pins", {}).get(schedule))


def _words(parameters: Parameters) -> dict[str, str]:
    return {name: value for name, value in parameters.items() if isinstance(value, str)}


def _distance(recorded: Parameters, asked: Parameters) -> float:
    """How far two shapes are apart, in octaves."""
    pairs = [(extent, asked.get(name)) for name, extent in recorded.items() if isinstance(extent, int)]
    return sum(abs(math.log2(extent / other)) if isinstance(other, int) and other > 0 else math.inf for extent, other in pairs)


def _difference(recorded: Parameters, asked: Parameters) -> str:
    return ", ".join(f"{name} ({recorded.get(name)}, asked {value})" for name, value in asked.items() if recorded.get(name) != value)
