"""Tryouts: configs run in Triton's interpreter and compared with the reference, and not timed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Final, Self

import msgspec

from tilewright.carrying import carries
from tilewright.errors import UsageError
from tilewright.job import MeasureJob
from tilewright.library import Operator
from tilewright.neighbours import Neighbours, interpreted_steps
from tilewright.operator import TensorSpec
from tilewright.record import Check, Config, Status
from tilewright.runner import InterpreterRunner, refuse_on_interpreter
from tilewright.target import Target
from tilewright.template import Source
from tilewright.timeouts import Timeouts
from tilewright.workload import Workload

_MOST_TIMEOUTS: Final = 2  # guess: of a workload, after which the next one would be no other; each costs two minutes
_VERDICTS: Final = {Status.OK: "right", Status.WRONG_RESULT: "wrong", Status.OUT_OF_BOUNDS: "wrong", Status.RUN_TIMEOUT: "time-out"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Tryout:
    """What came of trying one config.

    Attributes:
        status: as `tune --device interpreter` would record it; None where it was not run.
        message: why it is not right, or was not run.
        check: the errors found and allowed, where outputs could be compared.
    """

    status: Status | None
    message: str = ""
    check: Check | None = None

    @property
    def verdict(self) -> str:
        """`right`, `wrong` (outputs, or writes out of bounds), `fails` (an exception, a crash), `time-out` or `not run`."""
        return "not run" if self.status is None else _VERDICTS.get(self.status, "fails")

    @property
    def faulty(self) -> bool:
        """Whether it was run and is not known to be right."""
        return self.status not in (None, Status.OK)

    @property
    def rel_norm_share(self) -> float | None:
        """`rel_norm` over what is allowed; None without outputs to compare, or where nothing is allowed."""
        return None if self.check is None else _share(self.check.rel_norm, self.check.rel_norm_allowed)

    @property
    def max_error_share(self) -> float | None:
        """`max_error` over what is allowed."""
        return None if self.check is None else _share(self.check.max_error, self.check.max_error_allowed)

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values."""
        return {
            "verdict": self.verdict,
            "status": None if self.status is None else str(self.status),
            "message": self.message,
            "check": msgspec.to_builtins(self.check),
            "rel_norm_share": self.rel_norm_share,
            "max_error_share": self.max_error_share,
        }


def _share(error: float, allowed: float) -> float | None:
    return error / allowed if allowed > 0 else None


class Tryouts:
    """Tries configs of an operator; equal sources of a workload once.

    Its one child is started by the first config that can be run. Of a workload with two time-outs no more is run.

    Args:
        operator: spec, templates, and the reference that the child loads.
        seed: of the random inputs.
        timeouts: as asked for.
        say: told of a time-out, at the first of each workload.
    """

    def __init__(self, operator: Operator, *, seed: int = 0, timeouts: Timeouts | None = None, say: Callable[[str], None] = lambda _: None) -> None:
        self._operator = operator
        self._seed = seed
        self._timeout_s = (timeouts or Timeouts()).interpret_s
        self._say = say
        self._runner: InterpreterRunner | None = None
        self._neighbours: dict[Target, Neighbours] = {}
        self._known: dict[tuple[str, str], Tryout] = {}
        self._timeouts: Counter[str] = Counter()  # by workload

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """End the child."""
        if self._runner is not None:
            self._runner.close()

    def of(self, workload: Workload, target: Target, config: Config, source: Source) -> Tryout:
        """Run a config, as `tune --device interpreter` checks one: twice, and once at ragged extents.

        Args:
            workload: what it is run on.
            target: what it was rendered for.
            config: its values, from which ragged extents are found that it serves too.
            source: its module.

        Raises:
            UsageError: the operator's own spec or reference fails for this workload.
            HostError: the child cannot be had.
        """
        if reason := self._no_run(workload):
            return Tryout(status=None, message=reason)
        key = (workload.key, source.hash)
        if key not in self._known:
            if self._timeouts[workload.key] >= _MOST_TIMEOUTS:
                return Tryout(status=None, message=f"{_MOST_TIMEOUTS} others of this workload were not done in {self._timeout_s:g} s")
            self._known[key] = self._try(workload, target, config, source)
        return self._known[key]

    def _try(self, workload: Workload, target: Target, config: Config, source: Source) -> Tryout:
        if self._runner is None:
            self._runner = InterpreterRunner(target, timeout_s=self._timeout_s)
        neighbours = self._neighbours.setdefault(target, Neighbours(lambda *asked: self._serves(target, *asked), interpreted_steps))
        job = MeasureJob(
            operator=self._operator.name,
            folder=self._operator.folder,
            workload=workload,
            seed=self._seed,
            default=self._operator.render(workload, target, self._operator.space(workload, target).default()),
            source=source,
            neighbours=neighbours.of(workload, config, source),
            timed=False,
        )
        outcome = self._runner.measure(job)
        if outcome.check is not None:
            neighbours.learn(workload, source, outcome.check.ragged)
        message = outcome.message
        if outcome.status is Status.RUN_TIMEOUT:
            message = f"not done in {self._timeout_s:g} s: take smaller extents, as those of a smoke set, or a larger --run-timeout"
            if not self._timeouts[workload.key]:
                self._say(f"{workload.shown}, in the interpreter: {message}")
            self._timeouts[workload.key] += 1
        return Tryout(status=outcome.status, message=message, check=outcome.check)

    def _serves(self, target: Target, workload: Workload, config: Config, source: Source) -> bool:
        return carries(self._operator.templates[source.schedule], workload, target, config, source.hash)

    def _no_run(self, workload: Workload) -> str:
        """Why the interpreter cannot check anything of a workload; empty where it can."""
        try:
            refuse_on_interpreter(workload, self._operator.spec.dtypes)
        except UsageError as refusal:
            return str(refusal)
        specs = {**self._operator.spec.inputs(workload), **self._operator.spec.outputs(workload)}
        wrong = [name for name, spec in specs.items() if isinstance(spec, TensorSpec) and spec.dtype == "bfloat16"]
        return f"Triton's interpreter computes bfloat16 wrongly, and {', '.join(wrong)} is of it" if wrong else ""
