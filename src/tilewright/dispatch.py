"""Running tuned schedules: `load` gives a function that launches the best known schedule for its arguments, rendered from the templates at hand."""

from __future__ import annotations

import functools
import math
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType, ModuleType
from typing import Any, Final, Literal, Protocol, cast

import msgspec

from tilewright import runtime
from tilewright.best import best_entries
from tilewright.bestfile import BestEntry, BestFile, BestRange, Pins, merge, parse_best_file
from tilewright.cache import cache_root
from tilewright.carrying import carries
from tilewright.children.modules import load_file, operator_module, source_file
from tilewright.current import Templates, current_templates
from tilewright.errors import NoDevice, SpaceError, TemplateError, UsageError, nearest
from tilewright.library import Operator, find_operator
from tilewright.log import TuningLog
from tilewright.record import Config
from tilewright.runtime import Dispatcher, Missed
from tilewright.runtime.serving import Answer
from tilewright.target import DEFAULT_TARGET, Target, compiled_for, named_target
from tilewright.template import Source
from tilewright.workload import Workload

MissMode = Literal["error", "default", "nearest", "vendor"]
_MODES: Final = ("error", "default", "nearest", "vendor")


class Miss(UsageError, runtime.Miss):
    """No record serves a call."""


class Stale(UsageError, runtime.Stale):
    """A record would serve a call, but what it was true of has changed since."""


class Tuned(Protocol):
    """What `load` returns: a plain function, so that a call costs as little as it can, with these attributes.

    Attributes:
        operator: spec, templates and reference.
        dispatcher: finds, plans and launches.
        best: the records that may serve a call.
    """

    operator: Operator
    dispatcher: Dispatcher
    best: BestFile
    warm: Callable[..., int]
    counters: Callable[[], dict[str, Any]]
    explain: Callable[..., str]

    def __call__(self, *args: Any, out: Any = None, **named: Any) -> Any:
        """Run the operator.

        Args:
            *args: inputs in the order of the spec's `arguments`; numbers may be left out, and take the value used for tuning.
            out: output tensor, or a tuple of them; allocated where None.
            **named: inputs by name.

        Returns:
            The output, or a tuple of them.

        Raises:
            Miss: no record serves this workload on this device.
            Stale: the record was measured with another template, another minor version of Triton or another driver branch.
        """
        ...


def load(
    operator: str,
    *,
    logs: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    templates: Sequence[Path] = (),
    on_miss: MissMode | Callable[[Missed], Any] = "error",
    strict: bool = True,
) -> Tuned:
    """A function that runs an operator's best known schedules.

    Args:
        operator: the operator's name.
        logs: a tuning log or a best file made from some, or several of these, in any order. Records of templates that the operator has now
            go before others.
        templates: folders of operators, before those that come with Tilewright.
        on_miss: what a call does that no record serves. `error` raises `Miss`; `default` runs the author's default schedule;
            `nearest` that of the nearest workload whose module can serve this one as it is; `vendor` the first of the operator's vendors. A function is told of
            the miss and returns a module with `launch`, or None: `tilewright.TuneOnMiss` tunes at the first encounter.
        strict: whether a Triton minor or a driver branch other than the record's is an error; else it is a warning. A source that renders
            differently is always an error.

    Raises:
        UsageError: there is no such operator or mode.
        LogError: a log cannot be read.
    """
    if not callable(on_miss) and on_miss not in _MODES:
        raise UsageError(f"on_miss={on_miss!r}; {nearest(str(on_miss), _MODES)}, or a function of a tilewright.runtime.Missed")
    found = find_operator(operator, templates)
    current = current_templates({operator: found})
    paths = [logs] if isinstance(logs, (str, os.PathLike)) else logs
    files = [read_best(Path(path), current) for path in paths]
    merged = merge(
        (entry for file in files for entry in file.entries if entry.workload.operator == operator),
        (line for file in files for line in file.ranges if line.workload.operator == operator),
        current,
    )
    return _Loader(found, BestFile(entries=merged.entries, ranges=merged.ranges)).tuned(on_miss, strict)


def read_best(path: Path, templates: Templates = MappingProxyType({})) -> BestFile:
    """What a best file says, or what a tuning log amounts to.

    Args:
        path: of the file.
        templates: of operators at hand: a log's records of older ones are taken where there are no others.

    Raises:
        LogError: the file cannot be read.
        UsageError: it is a best file, and no plain one.
    """
    if path.suffix != ".gz" and path.is_file():
        with path.open(encoding="utf-8") as file:
            first = file.readline()
        if '"kind":"best"' in first or '"kind":"range"' in first:
            return parse_best_file(path.read_text(encoding="utf-8"), str(path))
    contents = TuningLog(path).read()
    if contents.of_best_file:
        raise UsageError(f"{path} is a best file, compressed or in a pipe; write it to a plain file first")
    return BestFile(entries=best_entries(contents.lines, templates), ranges=())


def explain(function: Any, *args: Any, **named: Any) -> str:
    """Which record serves a call, and why the nearest others do not.

    Args:
        function: what `load` returned, a function of an emitted package, or a Dispatcher.
        *args: inputs of the call.
        **named: inputs by name.

    Raises:
        UsageError: the function is none of these.
    """
    told = getattr(function, "explain", None)
    if told is None:
        dispatchers = getattr(sys.modules.get(getattr(function, "__module__", "")), "DISPATCHERS", {})
        found = dispatchers.get(getattr(function, "__name__", ""))
        if found is None:
            raise UsageError(f"{function!r} is no tuned operator: give what tilewright.load returned, or a function of an emitted package")
        told = found.explain
    return cast(str, told(*args, **named))


class _Loader:
    """Renders what the records name."""

    def __init__(self, operator: Operator, best: BestFile) -> None:
        self.operator, self.best = operator, best
        self._schedules: dict[str, tuple[Workload, Target, Config, Pins]] = {}
        self._names: dict[str, int] = {}

    def tuned(self, on_miss: MissMode | Callable[[Missed], Any], strict: bool) -> Tuned:
        targets: dict[str, Target] = {}
        for target in (*(entry.target for entry in self.best.entries), *(line.target for line in self.best.ranges)):
            targets.setdefault(target.key, target)
        indices = {key: index for index, key in enumerate(targets)}
        table = {
            "entries": [
                {
                    "target": indices[entry.target.key],
                    "workload": entry.workload.parameters,
                    "schedule": self._name(entry.workload, entry.target, entry.config, entry.pins),
                    "pins": msgspec.to_builtins(entry.pins),
                }
                for entry in self.best.entries
            ],
            "ranges": [self._range(line, indices[line.target.key]) for line in self.best.ranges],
        }
        answers = {name: Answer(name=name, function=function) for name, function in (("default", self._default), ("nearest", self._nearest))}
        dispatcher = Dispatcher(
            self.operator.spec,
            table,
            targets=[{**target.identity, "name": target.name} for target in targets.values()],
            schedules=self._module,
            vendors=lambda: getattr(operator_module(self.operator.folder, "reference.py"), "VENDORS", {}),
            on_miss=answers.get(on_miss, on_miss) if isinstance(on_miss, str) else on_miss,
            strict=strict,
            errors=(Miss, Stale),
        )
        call = cast(Any, dispatcher.call)
        call.operator, call.dispatcher, call.best = self.operator, dispatcher, self.best
        call.warm, call.counters, call.explain = dispatcher.warm, dispatcher.counters, dispatcher.explain
        return cast(Tuned, call)

    def _name(self, workload: Workload, target: Target, config: Config, pins: Pins) -> str:
        """A name for a schedule as it was tuned: that of its template, and a number."""
        schedule = str(config.get("schedule", next(iter(self.operator.templates), self.operator.name)))
        self._names[schedule] = self._names.get(schedule, 0) + 1
        name = f"{schedule}#{self._names[schedule]}"
        self._schedules[name] = (workload, target, config, pins)
        return name

    def _range(self, line: BestRange, target: int) -> dict[str, Any]:
        rows: list[list[Any]] = []
        pins: dict[str, Any] = {}
        for step in (*line.steps, *([line.default] if line.default is not None else [])):
            workload = self.operator.spec.workload({**line.workload.parameters, line.dim: step.at})
            name = self._name(workload, line.target, step.config, step.pins)
            rows.append([step.low, step.high, name])
            pins[name] = msgspec.to_builtins(step.pins)
        default = rows.pop()[2] if line.default is not None else ""
        return {"target": target, "dim": line.dim, "fixed": line.workload.parameters, "ranges": rows, "default": default, "pins": pins}

    def _module(self, name: str) -> ModuleType:
        workload, target, config, pins = self._schedules[name]
        # Rendered for the target that was tuned: the interpreter's records name the arch they were compiled for.
        source = self.operator.instantiate(workload, compiled_for(target), config)
        if pins.source != source.hash:
            recorded = pins.source[:12] or "none"
            raise Stale(f"{workload.key}: the template renders other code than was tuned (source {source.hash[:12]}, recorded {recorded}); tune it again")
        return source_module(source)

    def _default(self, missed: Missed) -> ModuleType:
        workload, target = self.operator.spec.workload(missed.parameters), _read_target(missed.device)
        return source_module(self.operator.render(workload, target, self.operator.space(workload, target).default()))

    def _nearest(self, missed: Missed) -> ModuleType | None:
        workload = self.operator.spec.workload(missed.parameters)
        identity = dict(missed.identity)
        entries = [entry for entry in self.best.entries if _same(entry, workload) and _is(entry.target, identity)]
        for entry in sorted(entries, key=lambda entry: (_octaves(entry.workload, workload), entry.workload.key)):
            target = compiled_for(entry.target)
            try:
                source = self.operator.instantiate(entry.workload, target, entry.config)
            except (SpaceError, TemplateError, UsageError):
                continue  # no longer in its template's space
            # Another module, or one rendered otherwise now, would be one that nobody tuned; and what the template refuses may compute something else.
            if source.hash == entry.pins.source and carries(self.operator.template(entry.config), workload, target, entry.config, source.hash):
                return source_module(source)
        return None


def source_module(source: Source) -> ModuleType:
    """The module of a rendered source, imported once from a file that is kept: Triton reads kernels back from it."""
    name = f"tilewright_source_{source.hash[:32]}"
    return sys.modules.get(name) or load_file(source_file(cache_root() / "sources", source.text, source.hash), name)


def _same(entry: BestEntry, workload: Workload) -> bool:
    return (dict(entry.workload.dtypes), dict(entry.workload.layout)) == (dict(workload.dtypes), dict(workload.layout))


def _is(target: Target, identity: Mapping[str, Any]) -> bool:
    if identity["backend"] == "interpreter":
        return target.backend == "interpreter"
    return all(identity.get(name) == value for name, value in target.identity.items())


def _octaves(one: Workload, other: Workload) -> float:
    return sum(abs(math.log2(extent / other.dims[name])) for name, extent in one.dims.items())


@functools.cache
def _read_target(device: int) -> Target:
    """The target that torch's device of that number is; -1 is the CPU, where kernels are interpreted.

    Raises:
        NoDevice: there is no such device.
    """
    if device < 0:
        return named_target(DEFAULT_TARGET).interpreted()
    from tilewright.children.device import describe

    described = describe(f"cuda:{device}")
    if "target" not in described:
        raise NoDevice(f"no device cuda:{device}: {described['absent']}")
    return msgspec.convert(described["target"], Target)
