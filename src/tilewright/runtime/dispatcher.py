"""The call of an operator: the schedule that its records name for the shape, launched at the least cost.

A call of a shape seen before is one look-up and direct launches (hot.py). The first one of a shape comes here: what serves it is found, its
`launch` is run on stand-ins, and what it would have launched is kept as a plan.
"""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import torch

from . import ahead, telling
from .device import Runtime, interpreted, refuse_bfloat16, relaxed_capture, torch_runtime
from .hot import generate, hooked
from .kernels import Launch, Recorder
from .plan import Plan, build
from .precompiled import Store
from .scratch import Scratch
from .serving import OnMiss, Served, Server
from .shapes import arguments_of, as_tuple, check_outputs, laid_out, makers, output_specs, parameters, refuse_unaligned, traced_outputs, workspace
from .standin import Cast, Described, Unplannable, described, dtype_of
from .table import Miss, Stale, Table, key_text
from .traced import TracedOperator

# Shapes remembered. A plan holds some 2 KB; without a bound a scalar that differs from call to call would fill memory.
_PLANS: Final = 65_536  # guess: more than the shapes that any server sees


class Dispatcher:
    """Runs one operator.

    Args:
        spec: the operator's spec.
        table: its records: `entries`, `ranges` and `default`.
        targets: identities of devices, which the table refers to by index.
        schedules: gives a schedule's module (`launch`, and `workspace` where it needs scratch) by name.
        vendors: gives the vendors' functions of a workload and named inputs by name.
        on_miss: what serves a workload without a record: `error`, `default`, `nearest`, `vendor`, or a function of a `Missed`.
        strict: whether a Triton minor or a driver branch other than the record's is an error.
        package: namespace of the custom op.
        precompiled: folder of kernels compiled ahead.
        runtime: torch's device API, or what stands in for it.
        errors: types of a miss and of a stale record.

    Attributes:
        call: the operator as a function: inputs in order, then `out`.
    """

    def __init__(
        self, spec: Any, table: Mapping[str, Any], *, targets: Sequence[Mapping[str, Any]], schedules: Callable[[str], Any],
        vendors: Callable[[], Mapping[str, Callable[..., Any]]] | None = None, on_miss: OnMiss = "error", strict: bool = True,
        package: str = "tilewright", precompiled: Path | None = None, runtime: Runtime | None = None,
        errors: tuple[type[Exception], type[Exception]] = (Miss, Stale),
    ) -> None:  # fmt: skip
        self.spec = spec
        self.table = Table(spec.name, table, targets)
        self.runtime = runtime or torch_runtime()
        self.server = Server(
            spec, self.table, schedules=schedules, vendors=vendors and functools.cache(vendors), on_miss=on_miss, strict=strict,
            capturing=self.runtime.capturing, errors=errors,
        )  # fmt: skip
        self.recorder = Recorder()
        self._precompiled = precompiled
        self._plans: dict[Any, Any] = {}
        self._fresh: dict[Any, Any] = {}
        self._known: dict[Any, Served] = {}
        self._recorded: dict[Any, tuple[Served, Plan | None]] = {}
        self._scratch: dict[int, Scratch] = {}
        self._identities: dict[int, Mapping[str, Any]] = {}
        self._recording = threading.RLock()
        self.unplanned: dict[str, str] = {}
        self.arguments = arguments_of(spec, self.table)
        # Where kernels are interpreted there are no devices, and each call goes the slow way.
        self._hot = generate(
            self.arguments, name=spec.name, plans=self._plans, fresh=self._fresh, slow=self._slow, stream=self.runtime.stream,
            current=self.runtime.current, several_devices=self.runtime.count() > 1,
        )  # fmt: skip
        self.call = self._hot.call
        self._traced = TracedOperator(
            package, spec.name, self.arguments, spec.mutates, self.call, functools.partial(traced_outputs, spec, self.table, self.arguments)
        )
        self._hot.trace_with(*self._traced.functions())

    def __call__(self, *args: Any, out: Any = None, **named: Any) -> Any:
        """Run the operator; `call` is quicker.

        Args:
            *args: inputs in order; numbers may be left out.
            out: the output, or a tuple of outputs; allocated where None.
            **named: inputs by name.

        Raises:
            Miss: no record serves the call.
            Stale: what serves it was tuned with other versions.
        """
        return self.call(*args, out=out, **named)

    # --- The slow way ---

    def _slow(self, inputs: tuple[Any, ...], out: Any) -> Any:
        """Any call: checked, planned where that was not done, and made."""
        values = self._checked(inputs)
        tensors = self.tensors(values)
        device = tensors[0].get_device()
        outputs = None if out is None else as_tuple(out)
        if any(type(tensor).__name__ in ("FakeTensor", "FunctionalTensor") for tensor in tensors):
            op, op_out = self._traced.functions()
            return op(*values.values()) if outputs is None else (op_out(*values.values(), *outputs), out)[1]
        if any(tensor.device != tensors[0].device for tensor in (*tensors, *(outputs or ()))):
            raise ValueError(f"{self.spec.name}: tensors on several devices ({', '.join(str(tensor.device) for tensor in tensors)}); they must be on one")
        with self.runtime.using(device) if device >= 0 and device != self.runtime.current() else contextlib.nullcontext():
            try:
                made = self._run(values, device, outputs)
            except AssertionError as error:
                refuse_unaligned(self.spec.name, self.arguments, (*tensors, *(outputs or ())), error)
                raise
        return (made[0] if len(made) == 1 else made) if out is None else out

    def _checked(self, inputs: Sequence[Any]) -> dict[str, Any]:
        values = dict(zip(self.arguments.inputs, inputs, strict=True))
        for name, value in values.items():
            if name in self.arguments.scalars:
                kind = type(self.arguments.scalars[name])
                values[name] = kind(value)
                if values[name] != value and value == value:  # a NaN is none of our business
                    raise TypeError(f"{self.spec.name}: {name} is {value!r}, and must be {kind.__name__}")
            elif not isinstance(value, torch.Tensor):
                raise TypeError(f"{self.spec.name}: {name} is {type(value).__name__}, and must be a tensor")
        return values

    def tensors(self, values: Mapping[str, Any]) -> list[Any]:
        """The inputs that are tensors, in order."""
        return [values[name] for name in self.arguments.tensors]

    def _run(self, values: Mapping[str, Any], device: int, given: tuple[Any, ...] | None) -> tuple[Any, ...]:
        served = self._served(values, device)
        if served.vendor is not None:
            return self._run_vendor(served, values, given)
        specs = output_specs(self.spec, served.workload)
        if given is not None:
            check_outputs(self.spec.name, self.arguments.outputs, given, specs)
            if not all(map(laid_out, given, specs)):
                # A `launch` was only ever checked on outputs laid out as the spec says, and may not ask for their strides.
                for output, result in zip(given, self._run(values, device, None), strict=True):
                    output.copy_(result)
                return given
        where = self.tensors(values)[0].device
        outputs = given or tuple(make() for make in makers(specs, where))
        everything = (*values.values(), *outputs)
        plan = None if hooked() or not served.planned else self.plan(served, values, outputs, device)
        if plan is None:
            refuse_bfloat16(self.spec, (*self.tensors(values), *outputs))
            scratch = [torch.empty(shape, dtype=dtype_of(dtype), device=where) for shape, dtype in workspace(served.module, everything)]
            served.module.launch(*everything, *scratch)
            self.server.note_launch(served)
        else:
            plan.run(*(tensor.data_ptr() for tensor in (*self.tensors(values), *outputs)), self.runtime.stream(device))
        return outputs

    def _served(self, values: Mapping[str, Any], device: int) -> Served:
        key = self._hot.fresh_key(*values.values())
        served = self._known.get(key)
        if served is None:
            self._open_store()
            served = self.server.serve(parameters(self.spec, values), device, self.identity(device))
            self._remember(self._known, key, served)
        return served

    def _run_vendor(self, served: Served, values: Mapping[str, Any], given: tuple[Any, ...] | None) -> tuple[Any, ...]:
        assert served.vendor is not None
        vendor, workload, names = served.vendor, served.workload, self.arguments.inputs
        results = as_tuple(vendor(workload, dict(values)))
        if given is None:
            # torch.mm and its like look at devices and streams themselves.
            key = self._hot.fresh_key(*values.values())
            self._remember(self._fresh, key, (None, lambda *inputs: vendor(workload, dict(zip(names, inputs, strict=True)))))
            return results
        for output, result in zip(given, results, strict=True):
            output.copy_(result)
        return given

    def plan(self, served: Served, values: Mapping[str, Any], outputs: tuple[Any, ...], device: int) -> Plan | None:
        """The plan of a call; None where its `launch` has to be called itself."""
        tensors = [*self.tensors(values), *outputs]
        aligned = tuple(tensor.data_ptr() % 16 for tensor in tensors)
        key = self._hot.key(*values.values(), *outputs)
        with self._recording:
            known = self._recorded.get((key, aligned))
            if known is None:
                with relaxed_capture() if self.runtime.capturing() else contextlib.nullcontext():
                    known = (served, self._record(served, values, [described(tensor) for tensor in tensors], outputs[0].device, device))
                self._remember(self._recorded, (key, aligned), known)
            plan = known[1]
            if plan is not None and not any(aligned):
                self._remember(self._plans, key, plan.run)
                made = makers(output_specs(self.spec, served.workload), outputs[0].device)
                self._remember(self._fresh, self._hot.fresh_key(*values.values()), (plan.run, made[0] if len(made) == 1 else made))
        return plan

    def _record(self, served: Served, values: Mapping[str, Any], tensors: Sequence[Described], where: Any, device: int) -> Plan | None:
        with Cast(tensors) as cast:
            try:
                launches = self.launches(served, values, cast)
                scratch = self._scratch.setdefault(device, Scratch(self.runtime, where))
                return build(launches, cast, len(tensors), scratch)
            except Unplannable as reason:
                self.unplanned[served.choice.schedule] = str(reason)
                return None

    def launches(self, served: Served, values: Mapping[str, Any], cast: Cast) -> list[Launch]:
        """Run a schedule's `launch` on stand-ins; its kernels are compiled, and nothing runs."""
        standins = iter(list(cast.tensors))
        inputs = [value if name in self.arguments.scalars else next(standins) for name, value in values.items()]
        arguments = [*inputs, *standins]
        scratch = [cast.add(shape, None, dtype_of(dtype)) for shape, dtype in workspace(served.module, arguments)]
        return self.recorder.record(served.module.launch, [*arguments, *scratch])

    def _open_store(self) -> None:
        """Open the precompiled kernels: before Triton's driver starts, which wants C modules that may be among them."""
        if self.recorder.compiler is None and self._precompiled is not None and self._precompiled.is_dir():
            self.recorder.compiler = Store(self._precompiled)

    def _remember(self, memory: dict[Any, Any], key: Any, value: Any) -> None:
        if len(memory) >= _PLANS:
            memory.clear()
        memory[key] = value

    def identity(self, device: int) -> Mapping[str, Any]:
        """What tells a device from others; -1 is the CPU, where kernels run in Triton's interpreter if at all.

        Raises:
            ValueError: kernels cannot run there.
        """
        if device not in self._identities:
            if device < 0 and not interpreted() and not self.runtime.standin:
                advice = "move them to the GPU, or set TRITON_INTERPRET=1 before triton is imported to interpret kernels"
                raise ValueError(f"{self.spec.name}: the arguments are on the CPU: {advice}")
            self._identities[device] = self.runtime.identity(device)
        return self._identities[device]

    # --- Ahead of calls ---

    def warm(self, ranges: Mapping[str, Any] | Iterable[Mapping[str, Any]] | None = None, *, device: int | None = None) -> int:
        """Compile, load and plan ahead what calls can ask for: after it, nothing in the ranges compiles again.

        Tensors are taken to be contiguous, or strided as their layout says, and to start at multiples of 16 bytes.

        Args:
            ranges: workload parameters, in which a dim may be a pair of its least and largest extent; one mapping or several. By default all
                that the table holds for the device.
            device: its number; the current one by default.

        Returns:
            The number of shapes looked at. A range of up to 16,384 shapes is gone through whole; of a longer one, all classes of extents that
            Triton tells apart (coverage.py).

        Raises:
            Miss: no record serves a shape of the ranges, and `on_miss` is `error`.
        """
        self._open_store()
        return ahead.warm(self, ranges, self.runtime.current() if device is None else device)

    def compile_into(self, store: Store, target: int) -> list[str]:
        """Compile all that the table holds for a target, without loading or launching anything.

        Returns:
            What could not be compiled, and why.
        """
        before, self.recorder.compiler = self.recorder.compiler, store
        try:
            return ahead.compile_all(self, target)
        finally:
            self.recorder.compiler = before

    def counters(self) -> dict[str, Any]:
        """Calls, misses, and time spent in the compiler.

        `calls` counts calls by workload, those that a vendor's kernel serves left out; `never` lists records without one; `unplanned` tells why a
        schedule's `launch` is called itself, which is slower. Threads that race may lose a count.
        """
        return telling.count(self)

    def explain(self, *args: Any, **named: Any) -> str:
        """Which record serves a call with these arguments, and why the nearest others do not."""
        return telling.explain(self, args, named)

    def recorded(self) -> list[tuple[Served, Plan | None]]:
        """What served each shape and alignment so far, and its plan, None where there is none."""
        return list(self._recorded.values())

    def otherwise_called(self) -> set[str]:
        """Workloads served without a plan: by vendors, or by calling `launch`."""
        return {key_text(served.workload.parameters) for served in self._known.copy().values() if served.vendor is not None or not served.planned}
