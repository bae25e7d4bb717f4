"""Running tuned schedules: `load` gives a callable that infers the workload of a call and launches the best schedule for it."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import msgspec

from tilewright.best import BestEntry, best_entries, parse_best
from tilewright.cache import cache_root
from tilewright.children.modules import load_file, source_file
from tilewright.errors import NoDevice, UsageError, nearest
from tilewright.library import Operator, find_operator
from tilewright.log import TuningLog
from tilewright.operator import ScalarSpec, TensorArg, TensorSpec
from tilewright.record import Record
from tilewright.target import DEFAULT_TARGET, Target, named_target
from tilewright.workload import Workload

OnMiss = Literal["error", "default"]


class Miss(UsageError):
    """No record serves a call."""


class Stale(UsageError):
    """A record would serve a call, but what it was true of has changed since."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Served:
    """A workload's schedule, ready to launch."""

    launch: Callable[..., None]
    workspace: Callable[..., Sequence[tuple[tuple[int, ...], Any]]] | None
    outputs: tuple[TensorSpec, ...]
    scalars: Mapping[str, int | float]
    entry: BestEntry | None


def load(
    operator: str,
    *,
    logs: Sequence[str | Path],
    templates: Sequence[Path] = (),
    on_miss: OnMiss = "error",
) -> TunedOperator:
    """A callable that runs an operator's best known schedules.

    Args:
        operator: the operator's name.
        logs: tuning logs, or best files made from them.
        templates: folders of operators, before those that come with Tilewright.
        on_miss: what a call does that no record serves: raise `Miss`, or run the author's default schedule.

    Raises:
        UsageError: there is no such operator.
        LogError: a log cannot be read.
    """
    if on_miss not in ("error", "default"):
        raise UsageError(f"on_miss={on_miss!r}; {nearest(str(on_miss), ('error', 'default'))}")
    entries: list[BestEntry] = []
    for path in map(Path, logs):
        entries.extend(read_best(path))
    found = find_operator(operator, templates)
    return TunedOperator(found, [entry for entry in entries if entry.workload.operator == operator], on_miss=on_miss)


def read_best(path: Path) -> Sequence[BestEntry]:
    """The entries of a best file, or those that a tuning log amounts to.

    Raises:
        LogError: the file cannot be read.
    """
    if path.suffix != ".gz" and path.is_file():
        with path.open(encoding="utf-8") as file:
            if '"kind":"best"' in file.readline():
                return parse_best(path.read_text(encoding="utf-8"), str(path))
    return best_entries(line for line in TuningLog(path).read().lines if isinstance(line, Record))


class TunedOperator:
    """Calls go to the best schedule of their workload on the device that holds the arguments.

    Attributes:
        operator: spec, templates and reference.
        entries: the records that may serve a call.
    """

    def __init__(self, operator: Operator, entries: Sequence[BestEntry], *, on_miss: OnMiss) -> None:
        """Made by `load`."""
        self.operator = operator
        self.entries = tuple(entries)
        self._on_miss = on_miss
        self._served: dict[tuple[str, str], _Served] = {}
        self._targets: dict[str, Target] = {}

    def __call__(self, *args: Any, out: Any = None, **named: Any) -> Any:
        """Run the operator.

        Args:
            *args: inputs in the order of the spec's `arguments`; scalars may be left out, and take the value used for tuning.
            out: output tensor, or a tuple of them; allocated where None.
            **named: inputs by name.

        Returns:
            The output, or a tuple of them.

        Raises:
            Miss: no record serves this workload on this device.
            Stale: the record was measured with another template or another minor version of Triton.
        """
        import torch

        given = self._bind(args, named)
        tensors = {name: value for name, value in given.items() if isinstance(value, torch.Tensor)}
        if not tensors:
            raise UsageError(f"operator {self.operator.name}: no argument is a tensor")
        device = next(iter(tensors.values())).device
        workload = self.workload(**given)
        key = (workload.key, str(device))
        served = self._served.get(key)
        if served is None:
            served = self._served[key] = self._serve(workload, self._target(device))
        inputs = [given.get(name, served.scalars.get(name)) for name in self.operator.spec.arguments]
        outputs = _as_tuple(out) if out is not None else tuple(_empty(spec, device) for spec in served.outputs)
        scratch = [torch.empty(shape, dtype=_dtype(dtype), device=device) for shape, dtype in (served.workspace(*inputs, *outputs) if served.workspace else ())]
        served.launch(*inputs, *outputs, *scratch)
        return outputs[0] if len(outputs) == 1 else outputs

    def workload(self, *args: Any, **named: Any) -> Workload:
        """The workload that a call with these arguments asks for.

        Raises:
            UsageError: the arguments are not the operator's.
        """
        given = self._bind(args, named)
        tensors = {
            name: TensorArg(shape=tuple(value.shape), strides=tuple(value.stride()), dtype=str(value.dtype).removeprefix("torch."))
            for name, value in given.items()
            if hasattr(value, "stride")
        }
        return self.operator.spec.workload(self.operator.spec.infer(tensors))

    def entry(self, workload: Workload, target: Target) -> BestEntry | None:
        """The record that serves a workload on a target, None on a miss."""
        return next((entry for entry in self.entries if entry.workload == workload and serves(entry.target, target)), None)

    def _bind(self, args: Sequence[Any], named: Mapping[str, Any]) -> dict[str, Any]:
        names = self.operator.spec.arguments
        if len(args) > len(names):
            raise UsageError(f"operator {self.operator.name} takes {len(names)} inputs ({', '.join(names)}), not {len(args)}")
        given = dict(zip(names, args, strict=False))
        for name, value in named.items():
            if name not in names or name in given:
                problem = "is given twice" if name in given else f"is no input; {nearest(name, names)}"
                raise UsageError(f"operator {self.operator.name}: {name} {problem}")
            given[name] = value
        return given

    def _target(self, device: Any) -> Target:
        key = str(device)
        if key not in self._targets:
            self._targets[key] = _read_target(key)
        return self._targets[key]

    def _serve(self, workload: Workload, target: Target) -> _Served:
        entry = self.entry(workload, target)
        if entry is None and self._on_miss == "error":
            known = sorted({entry.workload.key for entry in self.entries if serves(entry.target, target)})
            targets = sorted({entry.target.name for entry in self.entries})
            where = f"{nearest(workload.key, known)}" if known else f"the logs have records for: {', '.join(targets) or 'nothing'}"
            raise Miss(f"no record of {workload.key} on {target.name}; {where}. Tune it, or load with on_miss='default'")
        # Rendered for the target that was tuned: the interpreter's records name the arch they were compiled for.
        compiled_for = entry.target if entry is not None else target
        space = self.operator.space(workload, compiled_for)
        source = self.operator.render(workload, compiled_for, entry.config if entry is not None else space.default())
        if entry is not None:
            _check_pins(entry, source.hash)
        module = load_file(source_file(cache_root() / "sources", source.text, source.hash), f"tilewright_source_{source.hash[:32]}")
        spec = self.operator.spec
        return _Served(
            launch=module.launch,
            workspace=getattr(module, "workspace", None),
            outputs=tuple(spec.outputs(workload).values()),
            scalars={name: item.value for name, item in spec.inputs(workload).items() if isinstance(item, ScalarSpec)},
            entry=entry,
        )


def serves(recorded: Target, here: Target) -> bool:
    """Whether a record of one target speaks for another: the same identity; the interpreter serves whatever it stood in for."""
    if here.backend == "interpreter":
        return recorded.backend == "interpreter"
    return recorded.identity == here.identity


def _check_pins(entry: BestEntry, source_hash: str) -> None:
    if entry.pins.source != source_hash:
        raise Stale(
            f"{entry.workload.key}: the template renders other code than was tuned (source {source_hash[:12]}, recorded {entry.pins.source[:12]}); tune it again"
        )
    import triton

    here = ".".join(triton.__version__.split(".")[:2])
    if entry.pins.triton and entry.pins.triton != here:
        raise Stale(f"{entry.workload.key}: tuned with Triton {entry.pins.triton}, and this is {here}; tune it again, or use that Triton")


def _read_target(device: str) -> Target:
    """The target that torch's device of that name is.

    Raises:
        NoDevice: kernels cannot run on it here.
    """
    if device == "cpu":
        if os.environ.get("TRITON_INTERPRET") != "1":
            raise NoDevice("the arguments are on the CPU: move them to the GPU, or set TRITON_INTERPRET=1 before triton is imported to interpret kernels")
        return named_target(DEFAULT_TARGET).interpreted()
    from tilewright.children.device import describe

    described = describe(device)
    if "target" not in described:
        raise NoDevice(f"no device {device}: {described['absent']}")
    return msgspec.convert(described["target"], Target)


def _as_tuple(value: Any) -> tuple[Any, ...]:
    return tuple(value) if isinstance(value, (tuple, list)) else (value,)


def _empty(spec: TensorSpec, device: Any) -> Any:
    import torch

    if spec.strides is not None:
        return torch.empty_strided(spec.shape, spec.strides, dtype=_dtype(spec.dtype), device=device)
    return torch.empty(spec.shape, dtype=_dtype(spec.dtype), device=device)


def _dtype(dtype: Any) -> Any:
    import torch

    return getattr(torch, dtype) if isinstance(dtype, str) else dtype
