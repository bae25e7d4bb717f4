"""A config as people write it and tables show it, `tile_m=4x128 num_warps=8`: matched against declared candidates, never evaluated, and completed."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from tilewright.errors import SpaceError, UsageError, nearest
from tilewright.formats import format_value
from tilewright.knobs import SCHEDULE, Knob, Value, extent_of
from tilewright.library import Operator
from tilewright.suggestion import PassedOver
from tilewright.target import Target
from tilewright.workload import Workload

# A knob's name; and its value where that is a string as of JSON, in which blanks, commas and what looks like a name are its own.
_NAME: Final = re.compile(r'(?:\A|[\s,])\s*([A-Za-z_][A-Za-z0-9_]*)=(?:\s*"(?:[^"\\]|\\.)*"(?=[\s,]|\Z))?')
# Candidates, and reasons of a refusal, that a message lists. guess: what is read at a glance.
_SHOWN: Final = 12
_REASONS: Final = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenConfig:
    """A config that was given in part, and completed.

    Attributes:
        config: all its values, legal.
        named: the knobs that were given.
        default: what the others were taken from: the first candidate of the schedule.
    """

    config: Mapping[str, Value]
    named: tuple[str, ...]
    default: Mapping[str, Value]

    @property
    def note(self) -> str:
        """Which knobs were neither given nor have the default's value, as no legal config has both; empty where there are none."""
        other = [name for name, value in self.config.items() if name not in self.named and value != self.default.get(name, value)]
        if not other:
            return ""
        changed = ", ".join(f"{name}={format_value(self.config[name])} (default {format_value(self.default[name])})" for name in other)
        return f"the default's other values are not legal with {', '.join(self.named)}; taken: {changed}"


def parse_config(text: str) -> dict[str, str]:
    """Read `tile_m=4x128 num_warps=8` into texts by knob; blanks or commas stand between knobs.

    Raises:
        UsageError: a part is not `name=value`, or a name stands twice.
    """
    found = list(_NAME.finditer(text))
    ends = [match.start() for match in found[1:]] + [len(text)]
    if not found or text[: found[0].start()].strip(" ,"):
        raise UsageError(f"config {text!r} is not NAME=VALUE ..., as in tile_m=4x128 num_warps=8")
    values: dict[str, str] = {}
    for match, end in zip(found, ends, strict=True):
        name, value = match[1], text[match.end(1) + 1 : end].strip(" \t\n,")
        if not value:
            raise UsageError(f"config {text!r}: {name} has no value, as in {name}=8")
        if name in values:
            raise UsageError(f"config {text!r}: {name} is given twice")
        values[name] = value
    return values


def written_config(operator: Operator, workload: Workload, target: Target, text: str, schedule: str = "") -> WrittenConfig:
    """The legal config that a text stands for.

    Knobs that it does not name have the values of the default: of the first candidate of the schedule that it names, else of the operator's
    default. Where that is not legal, the last of them give way first, each to its first candidate with which the whole is legal.

    Args:
        operator: spec and templates.
        workload: what it is for.
        target: what it is for.
        text: as `parse_config` takes it; `schedule` may be among the names.
        schedule: the schedule, where the text does not say.

    Raises:
        UsageError: a name is no knob of the schedule, or a value none of its candidates.
        SpaceError: a require refuses it, with the reasons; or nothing is legal.
        TemplateError: the template fails.
    """
    given = parse_config(text)
    chosen = given.pop(SCHEDULE, schedule)
    if chosen.startswith('"'):
        chosen = _word(chosen)
    if schedule and chosen != schedule:
        raise UsageError(f"config {text!r} is of schedule {chosen!r}, and {schedule!r} is asked for; leave one of them out")
    if not chosen:
        names = list(operator.templates)
        chosen = names[0] if len(names) == 1 else str(operator.space(workload, target).default()[SCHEDULE])
    space = operator.space(workload, target, chosen)
    default = space.default()
    knobs = {knob.name: knob for knob in space.schedules[chosen]}
    where = f"{workload.shown} for {target.arch}"
    stated = {name: _value(_knob(operator, workload, target, name, chosen, knobs), value, where) for name, value in given.items()}
    found = space.complete(chosen, stated, default)
    if isinstance(found, PassedOver):
        reasons = "; ".join([*found.reasons][:_REASONS]) + ("; ..." if len(found.reasons) > _REASONS else "")
        if found.given_up:
            first = f"the first {sum(found.reasons.values()):,} ways to complete it"
            raise SpaceError(f"{space.origin}: no legal config with {text!r} at {where} among {first}; name more knobs. They are refused: {reasons}")
        raise SpaceError(f"{space.origin}: config {text!r} is refused by its template at {where}: {reasons}")
    return WrittenConfig(config=found, named=tuple(given), default=default)


def _knob(operator: Operator, workload: Workload, target: Target, name: str, schedule: str, knobs: Mapping[str, Knob]) -> Knob:
    if name in knobs:
        return knobs[name]
    where = f"{workload.shown} for {target.arch}"
    others = [other for other, theirs in operator.space(workload, target).schedules.items() if any(knob.name == name for knob in theirs)]
    if others:
        raise UsageError(f"{where}: {name!r} is no knob of schedule {schedule!r}, but of {', '.join(others)}: add {SCHEDULE}={others[0]}")
    raise UsageError(f"{where}: {name!r} is no knob of schedule {schedule!r}; {nearest(name, knobs)}")


def _value(knob: Knob, text: str, where: str) -> Value:
    """The candidate that a text stands for: as JSON, as tables show it, or of a split all parts but the outermost, which follows from the extent."""
    exact = _as_json(knob, text)
    if exact is not None:
        return exact
    meant = [value for value in knob.values if format_value(value) == text]
    if not meant and knob.kind == "split":
        meant = [value for value in knob.values if isinstance(value, list) and len(value) > 1 and format_value(value[1:]) == text]
    if len(meant) > 1:
        raise UsageError(f"{where}: {knob.name}={text} may be {' or '.join(map(json.dumps, meant[:_SHOWN]))}; write it so")
    if not meant:
        raise UsageError(f"{where}: knob {knob.name!r}: {text!r} is no candidate; {_allowed(knob, text)}")
    return meant[0]


def _word(text: str) -> str:
    """What a JSON string stands for; the text itself where it is none."""
    try:
        return str(json.loads(text))
    except ValueError:
        return text


def _as_json(knob: Knob, text: str) -> Value | None:
    try:
        place = knob.find(json.loads(text))
    except (ValueError, RecursionError):
        return None
    return None if place is None else knob.values[place]


def _allowed(knob: Knob, text: str) -> str:
    """The candidates; of many, those nearest in size, or else in spelling."""
    texts = [format_value(value) for value in knob.values]
    if len(texts) <= _SHOWN:
        return nearest(text, texts)
    number = re.search(r"(\d{1,18})\W*\Z", text)
    if number is None or not all(extent_of(value) > 0 for value in knob.values):
        return nearest(text, texts)
    wanted = math.log(max(int(number[1]), 1))
    close = sorted(range(len(texts)), key=lambda place: abs(math.log(extent_of(knob.values[place])) - wanted))[:_SHOWN]
    return f"the nearest of {len(texts):,}: {', '.join(texts[place] for place in sorted(close))}"
