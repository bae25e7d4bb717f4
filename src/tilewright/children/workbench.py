"""Checks and times candidates on one device, or in Triton's interpreter, and keeps what they share."""

from __future__ import annotations

import functools
import os
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec
import torch

from tilewright.children import timing
from tilewright.children.buffers import Guarded, torch_dtype
from tilewright.children.check import Verdict, check_call
from tilewright.children.device import INTERPRETER, describe
from tilewright.children.failure import CandidateFailed, OperatorFault, classify
from tilewright.children.modules import load_file, source_file, unload
from tilewright.children.operands import Operands
from tilewright.record import Status
from tilewright.roofline import roofline
from tilewright.sampling import measurement
from tilewright.target import Target
from tilewright.workload import Workload

Payload = Mapping[str, Any]

_KEPT_WORKLOADS: Final = 8  # guess: as many workloads as one session alternates between
_KEPT_SHARE: Final = 0.4  # guess: of device memory; another set is made before the oldest is dropped
_KEPT_CPU_BYTES: Final = 2 * 2**30  # guess: a machine without a GPU has 8 GB or more
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
        self._kept: OrderedDict[tuple[str, str, int], Operands] = OrderedDict()

    @property
    def info(self) -> dict[str, Any]:
        """What the ready frame says."""
        return self._info

    def ping(self, _: Payload) -> dict[str, Any]:
        """Show that this process lives."""
        return {}

    def open(self, _: Payload) -> dict[str, Any]:
        """Create the context and bring the clock to where it stays."""
        if not self._interpreted:
            torch.cuda.set_device(self._device)
            timing.warm_up(self._device)
        timing.settle_memory()
        return {"rss_bytes": _rss_bytes()}

    def prepare(self, payload: Payload) -> dict[str, Any]:
        """Make a workload's inputs and reference; names its vendors."""
        try:
            operands = self._operands(payload)
        except OperatorFault as fault:
            return {"fault": str(fault)}
        return {"vendors": list(getattr(operands.reference, "VENDORS", {}))}

    def retire(self, _: Payload) -> dict[str, Any]:
        """End this process at once, without tearing down a context that may be broken."""
        os._exit(0)

    def measure(self, payload: Payload) -> dict[str, Any]:
        """Check a candidate, then time it."""
        path = source_file(Path(payload["sources"]), payload["text"], payload["hash"])

        def measure(operands: Operands, result: dict[str, Any]) -> None:
            try:
                module = load_file(path, path.stem)
                launch = module.launch
            except (Exception, SystemExit) as error:
                raise classify(error, "importing the rendered module", operands.synchronize) from error
            try:
                scratch = self._scratch(module, operands)

                def call(arguments: list[Any] | None = None) -> None:
                    launch(*(operands.arguments if arguments is None else arguments), *(buffer.tensor for buffer in scratch))

                self._check_and_time(
                    operands, result, call, scratch, lambda: [functools.partial(call, arguments) for arguments in operands.sets()], payload["cut_above_us"]
                )
            finally:
                unload(module)

        return self._run(payload, measure)

    def vendor(self, payload: Payload) -> dict[str, Any]:
        """Check a vendor's kernel, then time it."""

        def measure(operands: Operands, result: dict[str, Any]) -> None:
            function = operands.reference.VENDORS[payload["name"]]
            workload = operands.workload

            def calls() -> list[Callable[[], Any]]:
                return [functools.partial(function, workload, inputs) for inputs in operands.input_sets()]

            self._check_and_time(operands, result, lambda: function(workload, operands.inputs), [], calls)

        return self._run(payload, measure)

    def _run(self, payload: Payload, measure: Callable[[Operands, dict[str, Any]], None]) -> dict[str, Any]:
        result: dict[str, Any] = {"status": Status.OK, "message": "", "phases_ms": {}, "retire": False}
        try:
            began = time.perf_counter()
            operands = self._operands(payload)
            operands.advance()
            held, before = operands.nbytes, self._allocated()
            result["phases_ms"]["prepare"] = _ms_since(began)
        except OperatorFault as fault:
            return {"fault": str(fault)}
        try:
            measure(operands, result)
        except CandidateFailed as failed:
            result.update(status=failed.status, message=failed.message, retire=failed.poisoned)
            if failed.check is not None:
                result["check"] = msgspec.to_builtins(failed.check)
            if failed.spoiled and not failed.poisoned:
                operands.spoil()
        except OperatorFault as fault:
            return {"fault": str(fault)}
        except torch.OutOfMemoryError as error:
            # Not in `launch` itself, but comparing after it: the candidate may hold what is missing.
            result.update(status=Status.OUT_OF_RESOURCES, message=f"no memory left to check the outputs with: {error}", retire=True)
        began = time.perf_counter()
        if not result["retire"]:
            timing.collect()
            grown = self._allocated() - before - max(0, operands.nbytes - held)
            result["retire"] = grown > _LEAK_BYTES or result.pop("capture_failed", False)
        result["phases_ms"]["release"] = _ms_since(began)
        return {**result, "rss_bytes": _rss_bytes()}

    def _check_and_time(
        self,
        operands: Operands,
        result: dict[str, Any],
        call: Callable[[], Any],
        scratch: list[Guarded],
        calls: Callable[[], list[Callable[[], Any]]],
        cut_above_us: float | None = None,
    ) -> None:
        began = time.perf_counter()
        verdict = self._check(operands, call, scratch)
        result.update(check=msgspec.to_builtins(verdict.check), bitwise_equal=verdict.bitwise_equal)
        result["phases_ms"]["check"] = _ms_since(began)
        try:
            if self._interpreted:
                timed = timing.time_interpreted(call, wall_us=verdict.run_s * 1e6, cut_above_us=cut_above_us)
            else:
                timed = timing.time_on_device(calls(), self._device, cut_above_us=cut_above_us)
        except OperatorFault:
            raise
        except (Exception, SystemExit) as error:
            raise classify(error, "timing", operands.synchronize) from error
        result["phases_ms"].update(timed.phases_ms)
        found = measurement(timed.protocol, timed.samples_us)
        result.update(measurement=msgspec.to_builtins(found), capture_failed=timed.capture_failed)
        if timed.cut:
            message = f"cut after {found.samples} samples: {found.median_us:.1f} µs is over {timing.CUT_FACTOR:g} times {cut_above_us:.1f} µs"
            result.update(status=Status.CUT, message=message)
        elif self._target is not None:
            self._judge(operands, result, found.median_us)

    def _check(self, operands: Operands, call: Callable[[], Any], scratch: list[Guarded]) -> Verdict:
        try:
            return check_call(operands, call, scratch)
        except CandidateFailed as failed:
            if operands.fresh or failed.status is not Status.WRONG_RESULT:
                raise
        # The inputs and their reference have served other candidates, one of which may have written over them unseen.
        operands.draw()
        return check_call(operands, call, scratch)

    def _judge(self, operands: Operands, result: dict[str, Any], median_us: float) -> None:
        assert self._target is not None
        floor = roofline(operands.spec, operands.workload, self._target, operand_bytes=operands.set_bytes * len(operands.sets()))
        if floor.impossible(median_us):
            bound = f"{floor.flops / 1e9:.3g} GFLOP" if floor.bound == "compute" else f"{floor.bytes_moved / 1e6:.3g} MB"
            message = f"{median_us:.2f} µs is under the {floor.floor_us:.2f} µs that {bound} take at the peak rate of {self._target.name}"
            result.update(status=Status.IMPOSSIBLE, message=message)

    def _scratch(self, module: Any, operands: Operands) -> list[Guarded]:
        workspace = getattr(module, "workspace", None)
        if workspace is None:
            return []
        try:
            wanted = list(workspace(*operands.arguments) or [])
            return [
                Guarded(f"scratch {index}", tuple(int(extent) for extent in shape), torch_dtype(dtype), None, self._device)
                for index, (shape, dtype) in enumerate(wanted)
            ]
        except (Exception, SystemExit) as error:
            raise classify(error, "workspace", operands.synchronize) from error

    def _operands(self, payload: Payload) -> Operands:
        workload = Workload(**payload["workload"])
        key = (payload["folder"], workload.key, int(payload["seed"]))
        if key in self._kept:
            self._kept.move_to_end(key)
            return self._kept[key]
        while self._kept and (len(self._kept) >= _KEPT_WORKLOADS or sum(kept.nbytes for kept in self._kept.values()) > self._most_bytes()):
            self._kept.popitem(last=False)
        operands = Operands(
            operator=payload["operator"],
            folder=Path(payload["folder"]),
            workload=workload,
            seed=int(payload["seed"]),
            device=self._device,
            l2_bytes=self._target.l2_bytes if self._target else 0,
        )
        self._kept[key] = operands
        return operands

    def _most_bytes(self) -> int:
        return _KEPT_CPU_BYTES if self._target is None else int(self._target.memory_bytes * _KEPT_SHARE)

    def _allocated(self) -> int:
        return 0 if self._interpreted else int(torch.cuda.memory_allocated(self._device))


def _rss_bytes() -> int:
    pages = Path("/proc/self/statm").read_text().split()[1] if os.path.exists("/proc/self/statm") else "0"
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


def _ms_since(began: float) -> float:
    return round((time.perf_counter() - began) * 1000, 3)
