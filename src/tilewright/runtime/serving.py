"""What serves a workload: a schedule's module or a vendor's kernel, chosen from the table or by what a miss asks for."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

import triton

from .device import driver_branch
from .kernels import prepare
from .table import Choice, Miss, Stale, Table, key_text


@dataclass(frozen=True, slots=True, kw_only=True)
class Missed:
    """A call that no record serves, as an `on_miss` function is told of it.

    Attributes:
        operator: its name.
        parameters: the workload's, flat.
        device: number of the device, -1 for the CPU.
        identity: of the device.
        why: what the error would say.
    """

    operator: str
    parameters: Mapping[str, int | str]
    device: int
    identity: Mapping[str, Any]
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """An `on_miss` function that takes no time to speak of, so that it may be asked while a graph is captured.

    Attributes:
        name: of the mode.
        function: answers.
    """

    name: str
    function: Callable[[Missed], Any]

    def __call__(self, missed: Missed) -> Any:
        """The function's answer."""
        return self.function(missed)


# A function answers with a module that has `launch`, as a schedule's, or with None: then it is an error.
OnMiss = Literal["error", "default", "nearest", "vendor"] | Callable[[Missed], Any]

MODES: Final = ("error", "default", "nearest", "vendor")


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """What serves one workload on one device.

    Attributes:
        workload: of the operator's spec.
        choice: from where.
        module: the schedule's; None where a vendor serves.
        planned: whether its kernels can be taken down.
        vendor: the vendor's function of a workload and named inputs, or None.
        missed: whether no record serves it.
    """

    workload: Any
    choice: Choice
    module: Any = None
    planned: bool = False
    vendor: Callable[..., Any] | None = None
    missed: bool = False


class Server:
    """Finds what serves a workload.

    Args:
        spec: the operator's.
        table: its records.
        schedules: gives a schedule's module by name.
        vendors: gives the vendors' functions by name.
        on_miss: what to do without a record.
        strict: whether a pin that does not hold is an error; otherwise a warning.
        capturing: whether the current stream is being captured.
        errors: types of a miss and of a stale record.

    Attributes:
        misses: calls that no record served, by workload; those that ended in an error too.
        answered: what served them all the same, by workload and device.
        launched: calls of a schedule's own `launch`, by workload and schedule: in Triton's interpreter all, on a device those without a plan.
    """

    def __init__(
        self, spec: Any, table: Table, *, schedules: Callable[[str], Any], vendors: Callable[[], Mapping[str, Callable[..., Any]]] | None,
        on_miss: OnMiss, strict: bool, capturing: Callable[[], bool], errors: tuple[type[Exception], type[Exception]] = (Miss, Stale),
    ) -> None:  # fmt: skip
        if on_miss not in MODES and not callable(on_miss):
            raise ValueError(f"on_miss={on_miss!r}; one of {', '.join(MODES)}, or a function of a Missed")
        self.spec, self.table, self.on_miss = spec, table, on_miss
        self.misses: dict[str, int] = {}
        self.answered: dict[tuple[str, int], str] = {}
        self.launched: dict[tuple[str, str], int] = {}
        self._schedules, self._vendors, self._strict, self._capturing = schedules, vendors, strict, capturing
        self._miss, self._stale = errors
        self._planned: dict[str, tuple[Any, bool]] = {}
        self._locks: dict[str, threading.Lock] = {}
        self._answers: dict[tuple[str, int], Any] = {}

    def note_launch(self, served: Served) -> None:
        """Count a call of a schedule's own `launch`."""
        key = (key_text(served.workload.parameters), served.choice.schedule)
        self.launched[key] = self.launched.get(key, 0) + 1

    def serve(self, parameters: Mapping[str, int | str], device: int, identity: Mapping[str, Any]) -> Served:
        """What serves a workload.

        Raises:
            Miss: nothing does.
            Stale: a record would, but a pin of it does not hold.
        """
        workload = self.spec.workload(parameters)
        flat = dict(workload.parameters)
        targets = self.table.matching(identity)
        choice = self.table.look_up(flat, targets)
        if choice is not None:
            self._check_pins(choice, flat, identity)
            return self._served(workload, choice)
        text = key_text(flat)
        self.misses[text] = self.misses.get(text, 0) + 1
        where = identity.get("name") or identity.get("arch") or "this device"
        missed = Missed(
            operator=self.spec.name, parameters=flat, device=device, identity=identity,
            why=f"no record of {self.spec.name}:{text} on {where}; {self.table.explain_miss(flat, targets, identity)}",
        )  # fmt: skip
        served = self._missed(missed, workload, targets)
        self.answered[text, device] = served.choice.how
        return served

    def refusal(self, choice: Choice, parameters: Mapping[str, int | str], identity: Mapping[str, Any]) -> str:
        """Why a call would not get what the table names for it: what it raises. Empty where it is served."""
        try:
            self._check_pins(choice, parameters, identity)
            self._served(self.spec.workload(parameters), choice)
        except Exception as error:  # a schedule's module may raise anything
            return f"{type(error).__name__}: {error}"
        return ""

    def _missed(self, missed: Missed, workload: Any, targets: Sequence[int]) -> Served:
        mode = self.on_miss
        forbidden = callable(mode) and not isinstance(mode, Answer) and self._capturing()
        if callable(mode) and not forbidden:
            module = self._ask(mode, missed)
            if module is not None:
                return Served(workload=workload, choice=Choice(schedule="", how="what on_miss answered"), module=module, planned=prepare(module), missed=True)
        elif mode == "nearest":
            # The schedules of a package were rendered for their dims; those that vary at run time are never in their text.
            choice = self.table.nearest_choice(missed.parameters, targets, tuple(self.spec.buckets))
            if choice is not None:
                self._check_pins(choice, missed.parameters, missed.identity)
                return self._served(workload, choice, missed=True)
        elif mode == "vendor":
            for name in self._vendors() if self._vendors is not None else ():
                return self._served(workload, Choice(schedule="", vendor=name, how="the vendor's kernel, on a miss"), missed=True)
        # Nothing is tuned under capture: the default serves the capture.
        if (mode == "default" or callable(mode)) and self.table.default:
            return self._served(workload, Choice(schedule=self.table.default, how="the default schedule, on a miss"), missed=True)
        advice = "nothing is tuned under graph capture: call it once before" if forbidden else "tune it, or choose another on_miss"
        if callable(mode) and not isinstance(mode, Answer) and not forbidden:
            advice = "on_miss was asked, and gave no schedule: allow it more time, tune it ahead, or choose another on_miss"
        raise self._miss(f"{missed.why}. {advice[0].upper()}{advice[1:]}")

    def _ask(self, function: Callable[[Missed], Any], missed: Missed) -> Any:
        """The function's answer, asked once for each workload and device, by one thread while others that want it wait."""
        key = (key_text(missed.parameters), missed.device)
        with self._locks.setdefault(f"{key}", threading.Lock()):
            if key not in self._answers:
                self._answers[key] = function(missed)
            return self._answers[key]

    def _served(self, workload: Any, choice: Choice, *, missed: bool = False) -> Served:
        if choice.vendor:
            vendors = self._vendors() if self._vendors is not None else {}
            if choice.vendor not in vendors:
                here = ", ".join(vendors) or "none"
                raise self._miss(f"{self.spec.name}: the record chose the vendor's {choice.vendor}, which is not here; there are: {here}")
            return Served(workload=workload, choice=choice, vendor=vendors[choice.vendor], missed=missed)
        known = self._planned.get(choice.schedule)
        if known is None:
            module = self._schedules(choice.schedule)
            known = self._planned[choice.schedule] = (module, prepare(module))
        return Served(workload=workload, choice=choice, module=known[0], planned=known[1], missed=missed)

    def _check_pins(self, choice: Choice, parameters: Mapping[str, int | str], identity: Mapping[str, Any]) -> None:
        # In the interpreter nothing is compiled, and no time is of interest.
        if choice.vendor or not choice.pins or identity["backend"] == "interpreter":
            return
        here = {"triton": ".".join(triton.__version__.split(".")[:2])}
        if identity["backend"] == "cuda":
            here["driver"] = driver_branch()
        for name, value in here.items():
            pinned = choice.pins.get(name)
            if not pinned or not value or pinned == value:
                continue
            what = {"triton": "Triton", "driver": "driver branch"}[name]
            text = f"{self.spec.name}:{key_text(parameters)} was tuned with {what} {pinned}, and this is {value}"
            if self._strict:
                raise self._stale(f"{text}; tune it again, use that one, or let it pass (strict=False of load, --compatible of emit)")
            warnings.warn(f"{text}: its time may be another", stacklevel=2)
