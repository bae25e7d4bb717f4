"""Checks and times candidates on one device, or in Triton's interpreter, and keeps what they share."""

from __future__ import annotations

import contextlib
import functools
import os
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import msgspec
import torch
import triton

from tilewright.anchoring import anchor_kind
from tilewright.children import timing
from tilewright.children.ahead import Ahead, binding
from tilewright.children.anchors import Anchors
from tilewright.children.buffers import Guarded
from tilewright.children.candidate import Candidate, loaded
from tilewright.children.check import Verdict, check_call
from tilewright.children.device import INTERPRETER, describe
from tilewright.children.failure import CandidateFailed, OperatorFault, classify
from tilewright.children.launchers import remember_launchers
from tilewright.children.operands import Operands
from tilewright.children.racing import Race
from tilewright.children.ragged import affordable, check_neighbour
from tilewright.children.rest import Rest, Stages, ms_since, rss_bytes
from tilewright.children.sensors import Sensors
from tilewright.children.stock import Stock
from tilewright.children.warming import first_warm_up, rehearse
from tilewright.protocols import CUT_FACTOR
from tilewright.record import DeviceState, Status
from tilewright.roofline import roofline
from tilewright.sampling import measurement
from tilewright.target import Target
from tilewright.workload import Workload

Payload = Mapping[str, Any]

_LEAK_BYTES: Final = 64 * 2**20  # guess: more than a library's workspace for a stream (cuBLAS on Hopper: 32 MiB)


class Workbench:
    """The device, and what is kept on it between requests.

    Args:
        device: torch's name, or `interpreter`.
    """

    def __init__(self, device: str) -> None:
        self._interpreted = device == INTERPRETER
        self._device: Any = torch.device("cpu" if self._interpreted else "cuda:0" if device == "cuda" else device)
        self._info = describe(device)
        self._target = msgspec.convert(self._info["target"], Target) if "target" in self._info else None
        self._stock = Stock(self._device, self._target)
        self._anchors: Anchors | None = None
        self._sensors: Sensors | None = None
        self._race: Race | None = None
        self._ahead = Ahead()
        self._rest: Rest | None = None
        self._leaks = False
        remember_launchers()

    @property
    def info(self) -> dict[str, Any]:
        """What the ready frame says."""
        return self._info

    def ping(self, _: Payload) -> dict[str, Any]:
        """Show that this process lives, and tell whether the last candidate kept device memory."""
        return {"retire": self._leaks}

    def open_ahead(self, _: Payload) -> dict[str, Any]:
        """What of `open` disturbs no measurement of another process: the context, and what libraries load."""
        stages = Stages()
        if not self._interpreted:
            rehearse(self._device)
            stages.mark("context")
            self._sensors_now()
            triton.runtime.driver.active.get_current_target()
            stages.mark("libraries")
        return {"stages_ms": stages.ms}

    def open(self, payload: Payload) -> dict[str, Any]:
        """Create the context, bring the clock to where it stays, and make the anchors."""
        stages = Stages()
        if not self._interpreted:
            torch.cuda.set_device(self._device)
            torch.cuda.synchronize(self._device)
            stages.mark("context")
            first_warm_up(self._device, payload["warm_s"])
            stages.mark("warm")
            with contextlib.suppress(torch.OutOfMemoryError):  # then times go without, which the record shows
                self._anchors = Anchors(self._known_target, self._device)
            stages.mark("anchors")
        timing.settle_memory()
        stages.mark("settle")
        return {"rss_bytes": rss_bytes(), "stages_ms": stages.ms}

    def idle(self) -> None:
        """Between requests, while the parent writes its records: draw the next inputs, free what the last candidate left, load the next one."""
        rest, self._rest = self._rest, None
        if rest is None:
            return
        if rest.failed:
            timing.collect()  # it may hold what the draw needs
        if not self._interpreted:
            try:
                rest.operands.draw_ahead()
            except OperatorFault:
                rest.operands.spoil()  # drawn again, and said, at the next request
        timing.collect()
        self._leaks = self._allocated() - rest.allocated_bytes - max(0, self._stock.nbytes - rest.held_bytes) > _LEAK_BYTES
        if rest.ahead is not None and not self._leaks:
            operands = self._stock.kept(rest.payload, Workload(**rest.ahead["workload"]))
            self._ahead.load(rest.ahead, Path(rest.payload["sources"]), functools.partial(self._bind, operands))

    def _bind(self, operands: Operands | None, module: ModuleType) -> None:
        if self._interpreted or operands is None:
            return
        candidate = Candidate(module, self._device)
        with binding():
            candidate.call(operands.arguments, candidate.scratch(operands))()

    def prepare(self, payload: Payload) -> dict[str, Any]:
        """Make a workload's inputs and reference; names its vendors."""
        try:
            operands = self._stock.of(payload)
            stages = Stages()
            operands.synchronize()
            operands.sets()
            stages.mark("sets")
        except OperatorFault as fault:
            return {"fault": str(fault)}
        return {"vendors": list(getattr(operands.reference, "VENDORS", {})), "stages_ms": stages.ms}

    def retire(self, _: Payload) -> dict[str, Any]:
        """End this process at once, without tearing down a context that may be broken."""
        os._exit(0)

    def measure(self, payload: Payload) -> dict[str, Any]:
        """Check a candidate, then time it, unless it is only to be checked."""

        def measure(operands: Operands, result: dict[str, Any]) -> None:
            began = time.perf_counter()
            with self._loaded(payload, operands) as candidate:
                result["phases_ms"]["load"] = ms_since(began)
                scratch = candidate.scratch(operands)
                call = candidate.checked_call(operands, scratch)
                verdict = self._checked(operands, result, call, scratch, repeatable=not candidate.atomics)
                began = time.perf_counter()
                neighbours = affordable(payload, verdict.run_s if self._interpreted else 0.0)  # interpreted, a run may take seconds
                result["check"]["ragged"] = check_neighbour(candidate, neighbours, lambda workload: self._stock.neighbour(payload, workload))
                result["phases_ms"]["ragged"] = ms_since(began)
                if payload["timed"]:
                    calls = [candidate.call(arguments, scratch) for arguments in operands.sets()]
                    self._time(operands, result, call, calls, verdict.run_s, payload["cut_above_us"])

        return self._run(payload, measure)

    def vendor(self, payload: Payload) -> dict[str, Any]:
        """Check a vendor's kernel, then time it."""

        def measure(operands: Operands, result: dict[str, Any]) -> None:
            call, calls = self._vendor_calls(payload["name"], operands)
            verdict = self._checked(operands, result, call, [], repeatable=False)
            self._time(operands, result, call, calls, verdict.run_s, None)

        return self._run(payload, measure)

    def _end_race(self) -> None:
        if self._race is not None:
            race, self._race = self._race, None
            race.close()
            timing.collect()

    def _run(self, payload: Payload, measure: Callable[[Operands, dict[str, Any]], None], *, racing: bool = False) -> dict[str, Any]:
        result: dict[str, Any] = {"status": Status.OK, "message": "", "phases_ms": {}, "retire": False}
        try:
            began = time.perf_counter()
            if racing:
                assert self._race is not None
                operands = self._race.operands
            else:
                self._end_race()
                operands = self._stock.of(payload)
                operands.advance()
            held, before = self._stock.nbytes, self._allocated()
            result["phases_ms"]["prepare"] = ms_since(began)
        except OperatorFault as fault:
            return {"fault": str(fault)}
        try:
            measure(operands, result)
        except CandidateFailed as failed:
            result.update(status=failed.status, message=failed.message, retire=failed.poisoned)
            if failed.check is not None:
                result["check"] = msgspec.to_builtins(failed.check)
            if racing:
                result["spoiled"] = failed.spoiled
            elif failed.spoiled and not failed.poisoned:
                self._stock.spoil(operands, failed.status)
        except OperatorFault as fault:
            return {"fault": str(fault)}
        except torch.OutOfMemoryError as error:
            # Not in `launch` itself, but comparing after it: the candidate may hold what is missing.
            result.update(status=Status.OUT_OF_RESOURCES, message=f"no memory left to check the outputs with: {error}", retire=True)
        if not racing:
            result["retire"] |= result.pop("capture_failed", False) or self._leaks
            self._rest = Rest(
                operands=operands,
                held_bytes=held,
                allocated_bytes=before,
                failed=result["status"] is not Status.OK,
                ahead=None if result["retire"] else payload.get("ahead"),
                payload=payload,
            )
        return {**result, "rss_bytes": rss_bytes()}

    def _loaded(self, payload: Payload, operands: Operands) -> AbstractContextManager[Candidate]:
        return loaded(payload, Path(payload["sources"]), self._device, operands.synchronize, self._ahead.take)

    @staticmethod
    def _vendor_calls(name: str, operands: Operands) -> tuple[Callable[[], Any], list[Callable[[], Any]]]:
        function = functools.partial(operands.reference.VENDORS[name], operands.workload)
        return lambda: function(operands.inputs), [functools.partial(function, inputs) for inputs in operands.input_sets()]

    def _checked(
        self, operands: Operands, result: dict[str, Any], call: Callable[[], Any], scratch: list[Guarded], *, repeatable: bool, redraw: bool = True
    ) -> Verdict:
        began = time.perf_counter()
        try:
            verdict = check_call(operands, call, scratch, repeatable=repeatable)
        except CandidateFailed as failed:
            if operands.fresh or failed.status is not Status.WRONG_RESULT or not redraw:
                raise
            # The inputs and their reference have served other candidates, one of which may have written over them unseen.
            operands.draw()
            verdict = check_call(operands, call, scratch, repeatable=repeatable)
        result.update(check=msgspec.to_builtins(verdict.check), bitwise_equal=verdict.bitwise_equal)
        result["phases_ms"]["check"] = ms_since(began)
        return verdict

    def _time(
        self, operands: Operands, result: dict[str, Any], call: Callable[[], Any], calls: list[Callable[[], Any]], run_s: float, cut_above_us: float | None
    ) -> None:
        anchors = self._anchors
        kind = anchor_kind(operands.spec, operands.workload, self._known_target) if anchors is not None else "memory"
        states: list[DeviceState | None] = []
        try:
            if self._interpreted:
                timed = timing.time_interpreted(call, wall_us=run_s * 1e6, cut_above_us=cut_above_us)
            else:
                timed = timing.time_on_device(
                    calls,
                    self._device,
                    cut_above_us=cut_above_us,
                    anchor=anchors.taker(kind) if anchors is not None else None,
                    latency=anchors.taker("latency") if anchors is not None else None,
                    while_busy=lambda: states.append(self._sensors_now().read()),
                )
        except OperatorFault:
            raise
        except BaseException as error:
            raise classify(error, "timing", operands.synchronize) from error
        result["phases_ms"].update(timed.phases_ms)
        anchor, latency = (None, None) if anchors is None else (anchors.told(kind, timed.anchor_us), anchors.told("latency", timed.latency_us))
        found = measurement(timed.protocol, timed.samples_us, anchor=anchor, latency=latency, kernels=timed.kernels, state=next(iter(states), None))
        result.update(measurement=msgspec.to_builtins(found), capture_failed=timed.capture_failed)
        if timed.cut:
            message = f"cut after {found.samples} samples: {found.median_us:.1f} µs is over {CUT_FACTOR:g} times {cut_above_us:.1f} µs"
            result.update(status=Status.CUT, message=message)
        elif self._target is not None:
            self._judge(operands, result, found.median_us)

    def _judge(self, operands: Operands, result: dict[str, Any], median_us: float) -> None:
        floor = roofline(operands.spec, operands.workload, self._known_target, operand_bytes=operands.set_bytes * len(operands.sets()))
        if floor.impossible(median_us):
            bound = f"{floor.flops / 1e9:.3g} GFLOP" if floor.bound == "compute" else f"{floor.bytes_moved / 1e6:.3g} MB"
            message = f"{median_us:.2f} µs is under the {floor.floor_us:.2f} µs that {bound} take at the peak rate of {self._known_target.name}"
            result.update(status=Status.IMPOSSIBLE, message=message)

    @property
    def _known_target(self) -> Target:
        assert self._target is not None
        return self._target

    def _sensors_now(self) -> Sensors:
        if self._sensors is None:
            self._sensors = Sensors(self._device)
        return self._sensors

    def _allocated(self) -> int:
        return 0 if self._interpreted else int(torch.cuda.memory_stats_as_nested_dict(self._device)["allocated_bytes"]["all"]["current"])
