"""`tilewright space`: what a template declares for a workload, counted and listed."""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from tilewright.commands.output import emit, emit_json, table
from tilewright.errors import ExitCode
from tilewright.knobs import SCHEDULE
from tilewright.library import Operator, find_operator
from tilewright.points import SpaceCount
from tilewright.report import format_config
from tilewright.space import Space
from tilewright.suggestion import PassedOver
from tilewright.tally import total
from tilewright.target import Target, named_target
from tilewright.tiles import TileKnobs, knob_namer
from tilewright.workload import Workload
from tilewright.workload_file import each_workload

_SUBTREES: Final = "a subtree is all points with the same values of the knobs up to a require: passed over at once, its size unknown, as knobs are conditional"


@dataclass(frozen=True, slots=True, kw_only=True)
class _View:
    """A space, counted.

    Attributes:
        alone: the schedule that was asked for; empty for all of them.
        counts: by schedule.
        suggested: how many suggestions each schedule states.
        passed: those of them that are left out.
        configs: the first legal ones, as many as were asked for.
        read: by schedule, what the general estimate reads from the names of knobs; empty where the author's `predict` stands in for it.
    """

    workload: Workload
    space: Space
    alone: str
    counts: Mapping[str, SpaceCount]
    whole: SpaceCount
    suggested: Mapping[str, int]
    passed: Sequence[PassedOver]
    configs: Sequence[dict[str, Any]]
    read: Mapping[str, TileKnobs]

    @property
    def default(self) -> dict[str, Any] | None:
        """The default schedule; None of an empty space."""
        return self.space.default() if self.whole.legal else None

    @property
    def title(self) -> str:
        """What the default is called: an operator's default is of its first schedule."""
        return f"first candidate of {self.alone}" if self.alone else "default"

    def left(self, schedule: str) -> int:
        """How many of a schedule's suggestions are left out."""
        return sum(passed.schedule == schedule for passed in self.passed)

    def to_json(self, operator: Operator, target: Target) -> dict[str, Any]:
        """Plain JSON values."""
        return {
            "operator": operator.name,
            "workload": self.workload.key,
            "target": target.arch,
            **_sizes(self.whole),
            "schedules": [
                {"name": name, **_sizes(count), "suggestions": self.suggested[name], "passed_over": self.left(name)} for name, count in self.counts.items()
            ],
            "knobs": [{"name": knob.name, "id": knob.id, "kind": knob.kind, "candidates": list(knob.values)} for knob in self.space.knobs],
            "read": {name: {"tile": dict(read.sides), "depth": dict(read.along), "stages": list(read.stages)} for name, read in self.read.items()},
            "passed_over": [{"schedule": passed.schedule, "suggestion": dict(passed.stated), "reasons": dict(passed.reasons)} for passed in self.passed],
            "default": self.default,
            "configs": list(self.configs),
        }


def _sizes(count: SpaceCount) -> dict[str, Any]:
    return {"legal": count.legal, "points": count.points, "rejected": dict(count.rejected), "cuts": dict(count.cuts)}


def run(args: argparse.Namespace) -> ExitCode:
    """Count the legal configs, say why the others are not, list some."""
    operator = find_operator(args.operator, args.templates)
    workloads = list(dict.fromkeys(each_workload(args.workloads, operator.spec.workload)))
    target = named_target(args.target)
    views = [_look(operator, workload, target, args.schedule, args.list) for workload in workloads]
    if args.json:
        answers = [view.to_json(operator, target) for view in views]
        emit_json(answers[0] if len(answers) == 1 else {"operator": operator.name, "target": target.arch, "spaces": answers})
    elif len(views) == 1:
        alone = f", schedule {args.schedule} alone" if args.schedule else ""
        emit(f"{views[0].workload.shown} on {target.arch}{alone}: {_legal(views[0].whole)}")
        _print(views[0])
    else:
        _print_summary(views, target)
    return ExitCode.OK if all(view.whole.legal for view in views) else ExitCode.FAILED


def _look(operator: Operator, workload: Workload, target: Target, schedule: str, listed: int) -> _View:
    space = operator.space(workload, target, schedule)
    counts = space.counts()
    stated = space.stated()
    return _View(
        workload=workload,
        space=space,
        alone=schedule,
        counts=counts,
        whole=total(counts),
        suggested={name: len(suggestions) for name, suggestions in stated.items()},
        passed=space.passed_over(),
        configs=list(itertools.islice(space.enumerate(), listed)),
        read={} if operator.spec.predict is not None else _names(operator, workload, space),
    )


def _names(operator: Operator, workload: Workload, space: Space) -> dict[str, TileKnobs]:
    try:
        read = knob_namer(operator.spec, workload)
    except Exception:  # of the author's `outputs`: `check` and `tune` tell of it, and a space needs no outputs
        return {}
    return {name: read(knob.name for knob in knobs) for name, knobs in space.schedules.items()}


def _legal(count: SpaceCount) -> str:
    return f"{count.legal:,} legal configs" + ("" if count.points is None else f" of {count.points:,} points")


def _print_summary(views: Sequence[_View], target: Target) -> None:
    """A line for each of several workloads."""
    rows = [
        (
            view.workload.shown,
            view.whole.legal,
            view.whole.points,
            ", ".join(f"{name} {count.legal:,}" for name, count in view.counts.items()),
            f"{sum(view.suggested.values()) - len(view.passed)} of {sum(view.suggested.values())}",
            format_config(view.default) if view.default else "-",
        )
        for view in views
    ]
    emit(table(("workload", "legal", "points", "legal by schedule", "suggestions that fit", views[0].title), rows))
    for view in views:
        if view.configs:
            emit(f"\n{view.workload.shown} on {target.arch}")
            _print_configs(view)
    emit("\none -w alone shows its knobs, what refuses the other points, and the suggestions that are passed over")


def _print(view: _View) -> None:
    space, several = view.space, len(view.counts) > 1
    emit("\n" + table(("knob", "kind", "candidates"), [(knob.id, knob.kind, " ".join(map(str, knob.values))) for knob in space.knobs]))
    if several:
        fitting = {name: f"{number - view.left(name)} of {number}" for name, number in view.suggested.items()}
        rows = [(name, count.legal, count.points, fitting[name]) for name, count in view.counts.items()]
        emit("\n" + table(("schedule", "legal", "points", "suggestions that fit"), rows))
    refused = list(_refused(view.counts))
    if refused:
        headers = ("schedule", "refused because", "how many")
        emit("\n" + (table(headers, refused) if several else table(headers[1:], [row[1:] for row in refused])))
        if view.whole.cuts:
            emit(_SUBTREES)
    if view.read:
        emit("\nread from the names of knobs, as there is no predict: docs/authoring.md, under names that are understood")
        for name, read in view.read.items():
            emit(f"  {f'{name}: ' if several else ''}{_read(read)}")
    if view.passed:
        emit("\nsuggestions passed over")
        for passed in view.passed:
            emit(f"  {f'{passed.schedule}: ' if several else ''}{passed.text}\n    {_why(passed)}")
    if view.default is not None:
        emit(f"\n{view.title}: {format_config(view.default)}")
        if whose := _whose(view, view.default):
            emit(f"  {whose}")
    _print_configs(view)


def _whose(view: _View, default: Mapping[str, Any]) -> str:
    """Why the default is no suggestion of the first schedule; empty where it is one."""
    if sum(view.suggested.values()) == len(view.passed):
        return "no suggestion fits: this is the first legal config"
    names = list(view.counts)
    earlier = names[: names.index(default[SCHEDULE])] if SCHEDULE in default else []
    none = [name for name in earlier if view.suggested[name] == view.left(name)]
    later = [name for name in earlier if name not in none]
    return "; ".join(
        [f"not of {name}: no suggestion of it fits" for name in none]
        + [f"not of {name}: its first suggestion does not fit, and its others come later, as schedules take turns" for name in later]
    )


def _print_configs(view: _View) -> None:
    for index, config in enumerate(view.configs):
        emit(f"{index:>6}  {format_config(config)}")


def _read(read: TileKnobs) -> str:
    """What names tell, in words."""
    if not read.complete:
        missing = [dim for dim, knobs in read.sides.items() if not knobs]
        return f"nothing, as no knob is named after {' or '.join(missing)}" if missing else "nothing, as the largest output is no product of dims"
    named = (("tile", read.sides), ("depth", read.along))
    told = [f"{what} {', '.join(f'{_one(knobs)} of {dim}' for dim, knobs in dims.items())}" for what, dims in named if dims]
    return "; ".join((*told, f"stages {_one(read.stages)}"))


def _one(knobs: Sequence[str]) -> str:
    """A knob; of several that fit, none is taken where two stand in one config."""
    return knobs[0] if len(knobs) == 1 else f"({' or '.join(knobs)}: where one stands alone)" if knobs else "none"


def _refused(counts: Mapping[str, SpaceCount]) -> Iterator[tuple[str, str, str]]:
    for name, count in counts.items():
        for reason, number in count.rejected.items():
            yield name, reason, f"{number:,} points"
        for reason, number in count.cuts.items():
            yield name, reason, f"{number:,} subtree{'' if number == 1 else 's'}"


def _why(passed: PassedOver) -> str:
    """The reasons; where knobs are left open, how many of the ways to fill them each refuses."""
    reasons = list(passed.reasons.items())
    return reasons[0][0] if len(reasons) == 1 else "; ".join(f"{reason} ({number:,} completions)" for reason, number in reasons)
