"""What a build will emit: every line of a best file matched against today's operators, and what does not fit said or refused."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from tilewright.best import BestEntry, BestFile, BestRange, Pins, Step
from tilewright.carrying import carries
from tilewright.errors import SpaceError, TemplateError, TilewrightError, UsageError, nearest
from tilewright.library import Operator
from tilewright.nearby import differing, nearest_workloads
from tilewright.ranges import outside, probes
from tilewright.record import Config
from tilewright.target import Target, compiled_for
from tilewright.template import Source
from tilewright.workload import Workload

# Characters of a source's hash in its module's name. 48 bits: among 10,000 schedules, two alike by chance 1 time in 5 million; checked besides.
HASH_CHARACTERS: Final = 12


class Mode(enum.StrEnum):
    """How a build takes what does not fit. docs/decisions/0008 has the table."""

    DEFAULT = "default"
    STRICT = "strict"
    COMPATIBLE = "compatible"


class Misfit(enum.StrEnum):
    """What may be wrong with a line of a best file, or with the file."""

    MISSING = "missing"  # a workload that was asked for has no entry
    STALE = "stale"  # the template renders other code than was tuned
    TRITON = "triton"  # tuned with another minor of Triton
    ILLEGAL = "illegal"  # a value that is no candidate, or a config that a require refuses
    UNREACHABLE = "unreachable"  # no call can ask for it


# Which misfits a mode lets pass, logged. What is left out or rendered anew stands at `_Planner`.
_PASSES: Final[Mapping[Mode, frozenset[Misfit]]] = {
    Mode.STRICT: frozenset(),
    Mode.DEFAULT: frozenset({Misfit.TRITON, Misfit.UNREACHABLE}),
    Mode.COMPATIBLE: frozenset(Misfit),
}


class Refused(TilewrightError):
    """A build that its mode does not let pass; the message has every reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """What serves some calls.

    Attributes:
        schedule: name of the module; empty where a vendor's kernel was chosen.
        vendor: its name, else empty.
    """

    schedule: str = ""
    vendor: str = ""


@dataclass(slots=True, kw_only=True)
class OperatorPlan:
    """What is emitted of one operator.

    Attributes:
        operator: its folder.
        entries: with what serves each.
        ranges: with the schedules of their steps, and of their default ("" where there is none).
        sources: by module name.
    """

    operator: Operator
    entries: list[tuple[BestEntry, Chosen]] = field(default_factory=list)
    ranges: list[tuple[BestRange, list[str], str]] = field(default_factory=list)
    sources: dict[str, Source] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """All that is emitted.

    Attributes:
        operators: by name, sorted.
        targets: distinct ones, in order of their keys.
        relaxed: what the mode let pass, as (misfit, message).
    """

    operators: Mapping[str, OperatorPlan]
    targets: tuple[Target, ...]
    relaxed: tuple[tuple[Misfit, str], ...]


def make_plan(
    best: BestFile, operators: Mapping[str, Operator], *, mode: Mode, triton: str = "", required: Iterable[Workload] = (), vendors: bool = False
) -> Plan:
    """Match a best file with operators.

    Args:
        best: what to emit.
        operators: by name.
        mode: how to take what does not fit.
        triton: minor version that the package is for; not compared where empty.
        required: workloads that must have an entry, or lie in a range.
        vendors: whether a vendor's kernel serves the workloads where it was faster.

    Raises:
        Refused: something does not fit that the mode does not let pass.
        UsageError: the best file names an operator that is not here, or is empty.
    """
    if not best.entries and not best.ranges:
        raise UsageError("nothing to emit: the best file has no lines; make one with `tilewright best LOG... -o FILE`")
    planner = _Planner(operators, triton, vendors)
    for entry in best.entries:
        planner.entry(entry)
    for line in best.ranges:
        planner.range(line)
    for workload in required:
        planner.require(workload, best)
    refused = [(misfit, message) for misfit, message in planner.misfits if misfit not in _PASSES[mode]]
    if refused:
        relaxing = " --compatible lets all of it pass, logged." if all(misfit in _PASSES[Mode.COMPATIBLE] for misfit, _ in refused) else ""
        raise Refused(f"{len(refused)} reason(s) not to emit ({mode} mode).{relaxing}" + "".join(f"\n  {misfit}: {message}" for misfit, message in refused))
    plans = {name: plan for name, plan in sorted(planner.plans.items()) if plan.entries or plan.ranges}
    if not plans:
        raise UsageError("nothing is left to emit:" + "".join(f"\n  {misfit}: {message}" for misfit, message in planner.misfits))
    used = {entry.target.key: entry.target for plan in plans.values() for entry, _ in plan.entries}
    used |= {line.target.key: line.target for plan in plans.values() for line, *_ in plan.ranges}
    return Plan(operators=plans, targets=tuple(used[key] for key in sorted(used)), relaxed=tuple(planner.misfits))


class _Planner:
    """Goes over lines. What is wrong is noted; the mode decides afterwards.

    An illegal or unreachable line is left out. A stale one is rendered anew, where its config is still legal: its time is then not
    of that code. Another Triton minor changes nothing here.
    """

    def __init__(self, operators: Mapping[str, Operator], triton: str, vendors: bool) -> None:
        self._operators = operators
        self._triton = triton
        self._vendors = vendors
        self._by_source: dict[str, str] = {}
        self.plans: dict[str, OperatorPlan] = {}
        self.misfits: list[tuple[Misfit, str]] = []

    def _plan(self, name: str) -> OperatorPlan:
        if name not in self._operators:
            raise UsageError(f"the best file has operator {name!r}, and there is none here; {nearest(name, self._operators)}. Name its folder with --templates")
        return self.plans.setdefault(name, OperatorPlan(operator=self._operators[name]))

    def entry(self, entry: BestEntry) -> None:
        """Match one entry."""
        plan = self._plan(entry.workload.operator)
        workload = self._reached(plan.operator, entry.workload)
        if workload is None:
            return
        if self._vendors and entry.vendor is not None and entry.vendor.median_us < entry.median_us:
            plan.entries.append((entry, Chosen(vendor=entry.vendor.name)))
            return
        schedule = self._schedule(plan, workload, entry.target, entry.config, entry.pins)
        if schedule:
            plan.entries.append((entry, Chosen(schedule=schedule)))

    def range(self, line: BestRange) -> None:
        """Match one range: each step is rendered for the extent that it was tuned at."""
        plan = self._plan(line.workload.operator)
        if line.dim not in plan.operator.spec.dims:
            hint = nearest(line.dim, plan.operator.spec.dims)
            self.misfits.append((Misfit.UNREACHABLE, f"a range over {line.dim!r}, which is no dim of {plan.operator.name}; {hint}"))
            return

        def schedule_of(step: Step) -> str:
            whole = Workload(
                operator=line.workload.operator,
                dims={**line.workload.dims, line.dim: step.at},
                dtypes=line.workload.dtypes,
                layout=line.workload.layout,
            )
            workload = self._reached(plan.operator, whole)
            return "" if workload is None else self._schedule(plan, workload, line.target, step.config, step.pins)

        names = [schedule_of(step) if self._serves_all(plan, line, step, [(step.low, step.high)]) else "" for step in line.steps]
        default = schedule_of(line.default) if line.default is not None and self._serves_all(plan, line, line.default, outside(line)) else ""
        # What the default was asked for are the extents outside of all steps: not those of a step that is left out.
        plan.ranges.append((line, names, default if all(names) else ""))

    def _serves_all(self, plan: OperatorPlan, line: BestRange, step: Step, spans: Iterable[tuple[int, int]]) -> bool:
        """Whether a step's schedule is legal, and the same module, for all extents that it is to serve: a file can be edited, a template changed."""
        spec, target = plan.operator.spec, compiled_for(line.target)
        try:
            template = plan.operator.template(step.config)
            built = plan.operator.instantiate(spec.workload({**line.workload.parameters, line.dim: step.at}), target, step.config, built=step.pins.source)
        except (SpaceError, UsageError, TemplateError):
            return True  # told where the schedule itself is matched
        for low, high in spans:
            for extent in probes(low, high):
                if not carries(template, spec.workload({**line.workload.parameters, line.dim: extent}), target, step.config, built.hash):
                    where = f"{line.workload.key} on {line.target.name}"
                    why = f"the schedule tuned at {line.dim}={step.at} is not legal at {line.dim}={extent}, or is another module there"
                    self.misfits.append(
                        (Misfit.ILLEGAL, f"{where}: {line.dim} {low}..{high}: {why}; derive the ranges again with `tilewright best --cover {line.dim}`")
                    )
                    return False
        return True

    def require(self, workload: Workload, best: BestFile) -> None:
        """Note a workload that nothing serves, with the nearest that something does."""
        exact = [entry.workload for entry in best.entries if entry.workload.operator == workload.operator]
        if workload in exact or any(_serves(line, workload) for line in best.ranges):
            return
        near = nearest_workloads(workload, exact)
        hints = "; ".join(f"{other.key} differs in {differing(workload, other)}" for other in near) or f"there is no entry of {workload.operator}"
        self.misfits.append((Misfit.MISSING, f"{workload.key} has no entry; nearest: {hints}"))

    def _reached(self, operator: Operator, workload: Workload) -> Workload | None:
        """The workload as the spec makes it, None where no call can ask for it."""
        try:
            made = operator.spec.workload(workload.parameters)
        except UsageError as error:
            self.misfits.append((Misfit.UNREACHABLE, f"{workload.key}: {error}"))
            return None
        if made.key != workload.key:
            self.misfits.append((Misfit.UNREACHABLE, f"{workload.key}: calls ask for {made.key}, which differs in {differing(workload, made)}"))
            return None
        return made

    def _schedule(self, plan: OperatorPlan, workload: Workload, target: Target, config: Config, pins: Pins) -> str:
        where = f"{workload.key} on {target.name}"
        try:
            source = plan.operator.instantiate(workload, compiled_for(target), config, built=pins.source)
        except (SpaceError, UsageError, TemplateError) as error:
            # The manifest has the message, and a package no path of the machine that it was made on.
            self.misfits.append((Misfit.ILLEGAL, f"{where}: {str(error).replace(f'{plan.operator.folder.parent}/', '')}"))
            return ""
        if pins.source != source.hash:
            what = "template" if pins.template != source.template_hash else "target or rendering"
            recorded = pins.source[:HASH_CHARACTERS] or "none, a recording"
            self.misfits.append(
                (Misfit.STALE, f"{where}: {what} changed since it was tuned: source {source.hash[:HASH_CHARACTERS]}, recorded {recorded}; tune it again")
            )
        if self._triton and pins.triton and pins.triton != self._triton:
            self.misfits.append((Misfit.TRITON, f"{where}: tuned with Triton {pins.triton}, and this build is for {self._triton}"))
        name = f"{plan.operator.name}_{source.hash[:HASH_CHARACTERS]}"
        if self._by_source.setdefault(name, source.hash) != source.hash:
            raise UsageError(f"two sources share the name {name}: {self._by_source[name]} and {source.hash}")
        plan.sources[name] = source
        return name


def _serves(line: BestRange, workload: Workload) -> bool:
    fixed = {name: value for name, value in workload.parameters.items() if name != line.dim}
    if workload.operator != line.workload.operator or line.dim not in workload.dims or fixed != line.workload.parameters:
        return False
    # A default serves all extents outside of the steps, the holes between them too.
    return line.default is not None or any(step.low <= workload.dims[line.dim] <= step.high for step in line.steps)


def flat(workload: Workload, operator: Operator) -> dict[str, Any]:
    """A workload's parameters in the order of the operator's spec."""
    order: Sequence[str] = (*operator.spec.dims, *operator.spec.dtypes, *operator.spec.layouts)
    values = workload.parameters
    return {name: values[name] for name in order if name in values}
