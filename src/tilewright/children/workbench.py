"""Checks and times candidates on one device, or in Triton's interpreter, and keeps what they share."""

from __future__ import annotations

import contextlib
import functools
import os
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Final

import msgspec
import torch

from tilewright.anchoring import anchor_kind
from tilewright.children import timing
from tilewright.children.anchors import Anchors
from tilewright.children.buffers import Guarded
from tilewright.children.candidate import Candidate, loaded
from tilewright.children.check import Verdict, check_call
from tilewright.children.device import INTERPRETER, describe
from tilewright.children.failure import CandidateFailed, OperatorFault, classify
from tilewright.children.operands import Operands
from tilewright.children.racing import Race
from tilewright.children.ragged import check_neighbour
from tilewright.children.sensors import Sensors
from tilewright.children.stock import Stock
from tilewright.record import DeviceState, Status
from tilewright.roofline import roofline
from tilewright.sampling import measurement
from tilewright.target import Target
from tilewright.workload import Workload

Payload = Mapping[str, Any]

_LONGEST_EXTRA_S: Final = 2.0  # guess: what a further run in the interpreter may cost
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

    @property
    def info(self) -> dict[str, Any]:
        """What the ready frame says."""
        return self._info

    def ping(self, _: Payload) -> dict[str, Any]:
        """Show that this process lives."""
        return {}

    def open(self, payload: Payload) -> dict[str, Any]:
        """Create the context, bring the clock to where it stays, and make the anchors."""
        if not self._interpreted:
            torch.cuda.set_device(self._device)
            timing.warm_up(self._device, payload["warm_s"])
            with contextlib.suppress(torch.OutOfMemoryError):  # then times go without, which the record shows
                self._anchors = Anchors(self._known_target, self._device)
        timing.settle_memory()
        return {"rss_bytes": _rss_bytes()}

    def prepare(self, payload: Payload) -> dict[str, Any]:
        """Make a workload's inputs and reference; names its vendors."""
        try:
            operands = self._stock.of(payload)
        except OperatorFault as fault:
            return {"fault": str(fault)}
        return {"vendors": list(getattr(operands.reference, "VENDORS", {}))}

    def retire(self, _: Payload) -> dict[str, Any]:
        """End this process at once, without tearing down a context that may be broken."""
        os._exit(0)

    def measure(self, payload: Payload) -> dict[str, Any]:
        """Check a candidate, then time it."""

        def measure(operands: Operands, result: dict[str, Any]) -> None:
            with self._loaded(payload, operands) as candidate:
                scratch = candidate.scratch(operands)
                call = candidate.checked_call(operands, scratch)
                verdict = self._checked(operands, result, call, scratch, repeatable=not candidate.atomics)
                began = time.perf_counter()
                # A run in the interpreter may take seconds; then its own shape must do.
                affordable = not self._interpreted or verdict.run_s < _LONGEST_EXTRA_S
                neighbours = [Workload(**named) for named in payload["neighbours"]] if affordable else []
                ragged = check_neighbour(candidate, neighbours, lambda workload: self._stock.neighbour(payload, workload))
                result["check"]["ragged"] = ragged
                result["phases_ms"]["ragged"] = _ms_since(began)
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

    def race_begin(self, payload: Payload) -> dict[str, Any]:
        """Make ready for a race on one workload: fresh inputs, for its entrants and for the sets that they rotate through."""
        self._end_race()
        try:
            operands = self._stock.of(payload)
            if payload["afresh"]:
                self._stock.spoil(operands, Status.OUT_OF_BOUNDS)  # a racer may have written anywhere
            kind = anchor_kind(operands.spec, operands.workload, self._known_target)
            self._race = Race(operands, self._device, anchors=self._anchors, kind=kind, sensors=self._sensors_now())
        except OperatorFault as fault:
            return {"fault": str(fault)}
        return {"rss_bytes": _rss_bytes()}

    def race_enter(self, payload: Payload) -> dict[str, Any]:
        """Check a candidate or a vendor's kernel on the race's inputs, and capture it."""
        race = self._race
        assert race is not None

        def enter(operands: Operands, result: dict[str, Any]) -> None:
            if "vendor" in payload:
                call, calls = self._vendor_calls(payload["vendor"], operands)
                self._checked(operands, result, call, [], repeatable=False, redraw=False)
                race.enter(calls, checks=False)
                return
            candidate = race.stack.enter_context(self._loaded(payload, operands))
            scratch = candidate.scratch(operands)
            self._checked(operands, result, candidate.checked_call(operands, scratch), scratch, repeatable=not candidate.atomics, redraw=False)
            race.enter([candidate.call(arguments, scratch) for arguments in operands.sets()], checks=True)

        return self._run(payload, enter, racing=True)

    def race_run(self, payload: Payload) -> dict[str, Any]:
        """Race those that were entered, and end the race."""
        assert self._race is not None
        try:
            found = self._race.run()
            entrants = [{"status": one.status, "message": one.message, "times_us": [round(us, 4) for us in one.times_us]} for one in found.pop("entrants")]
            return {"entrants": entrants, **{name: msgspec.to_builtins(value) for name, value in found.items()}}
        finally:
            self._end_race()

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
            result["phases_ms"]["prepare"] = _ms_since(began)
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
        began = time.perf_counter()
        if not result["retire"] and not racing:
            timing.collect()
            grown = self._allocated() - before - max(0, self._stock.nbytes - held)
            result["retire"] = grown > _LEAK_BYTES or result.pop("capture_failed", False)
        result["phases_ms"]["release"] = _ms_since(began)
        return {**result, "rss_bytes": _rss_bytes()}

    def _loaded(self, payload: Payload, operands: Operands) -> AbstractContextManager[Candidate]:
        return loaded(payload, Path(payload["sources"]), self._device, operands.synchronize)

    @staticmethod
    def _vendor_calls(name: str, operands: Operands) -> tuple[Callable[[], Any], list[Callable[[], Any]]]:
        function = operands.reference.VENDORS[name]
        workload = operands.workload
        return lambda: function(workload, operands.inputs), [functools.partial(function, workload, inputs) for inputs in operands.input_sets()]

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
        result["phases_ms"]["check"] = _ms_since(began)
        return verdict

    def _time(
        self, operands: Operands, result: dict[str, Any], call: Callable[[], Any], calls: list[Callable[[], Any]], run_s: float, cut_above_us: float | None
    ) -> None:
        kind = anchor_kind(operands.spec, operands.workload, self._known_target) if self._anchors is not None else "memory"
        states: list[DeviceState | None] = []
        try:
            if self._interpreted:
                timed = timing.time_interpreted(call, wall_us=run_s * 1e6, cut_above_us=cut_above_us)
            else:
                timed = timing.time_on_device(
                    calls,
                    self._device,
                    cut_above_us=cut_above_us,
                    anchor=self._anchors.taker(kind) if self._anchors is not None else None,
                    while_busy=lambda: states.append(self._sensors_now().read()),
                )
        except OperatorFault:
            raise
        except (Exception, SystemExit) as error:
            raise classify(error, "timing", operands.synchronize) from error
        result["phases_ms"].update(timed.phases_ms)
        anchor = self._anchors.told(kind, timed.anchor_us) if self._anchors is not None else None
        found = measurement(timed.protocol, timed.samples_us, anchor=anchor, state=states[0] if states else None)
        result.update(measurement=msgspec.to_builtins(found), capture_failed=timed.capture_failed)
        if timed.cut:
            message = f"cut after {found.samples} samples: {found.median_us:.1f} µs is over {timing.CUT_FACTOR:g} times {cut_above_us:.1f} µs"
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
        return 0 if self._interpreted else int(torch.cuda.memory_allocated(self._device))


def _rss_bytes() -> int:
    pages = Path("/proc/self/statm").read_text().split()[1] if os.path.exists("/proc/self/statm") else "0"
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


def _ms_since(began: float) -> float:
    return round((time.perf_counter() - began) * 1000, 3)
