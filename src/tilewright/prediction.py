"""An author's `predict`: called so that a fault in it is told by its file and line, and tried out before a search goes by it."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from functools import partial
from math import inf, isnan
from numbers import Real
from random import Random
from typing import Any, Final

from tilewright.errors import TilewrightError, UsageError
from tilewright.knobs import SCHEDULE, Config
from tilewright.operator import OperatorSpec
from tilewright.points import SearchSpace
from tilewright.record import Resources
from tilewright.target import Target
from tilewright.workload import Workload

SIGNATURE: Final = "predict(workload, target, config, resources)"
# What a trial gives as a build's needs before anything is built. guess: an ordinary kernel's.
_ORDINARY: Final = Resources(shared_memory_bytes=16_384, registers=64, spill_bytes=0, num_warps=4)
# Legal configs drawn to meet schedules for which no first candidate is stated. guess.
_DRAWN: Final = 64


def predicted_us(spec: OperatorSpec, workload: Workload, target: Target, config: Config, resources: Resources | None) -> float | None:
    """What the author's `predict` says of a config.

    Args:
        spec: an operator with a `predict`.
        workload: what the config is for.
        target: what the config is for.
        config: a legal one.
        resources: what its build needs; None before it is built.

    Returns:
        A time in µs. None where the config cannot run, and NaN where nothing can be said before the build.

    Raises:
        UsageError: `predict` raises something, or gives anything else.
    """
    predict = spec.predict
    if predict is None:
        return None
    try:
        given: Any = predict(workload, target, config, resources)
        number = float(given) if not isinstance(given, bool) and isinstance(given, Real) else -inf
    except TilewrightError as error:
        raise type(error)(f"{_place(spec, error)}: predict: {error}{_case(workload, config)}") from error
    except (Exception, SystemExit) as error:
        raise UsageError(f"{_place(spec, error)}: predict raises {type(error).__name__}: {error}{_case(workload, config)}; correct it") from error
    if given is None or number == inf:
        return None
    if 0 < number < inf or (resources is None and isnan(number)):
        return number
    what = "before the build" if resources is None else "with what a build needs"
    raise UsageError(
        f"{_place(spec)}: predict gives {given!r} {what}{_case(workload, config)}; it must give a time in µs, a number above 0, "
        "or None or infinity where the config cannot run; correct it"
    )


def try_predict(spec: OperatorSpec | None, workload: Workload, target: Target, space: SearchSpace) -> None:
    """Call the author's `predict`, where there is one, for the first candidates and at least one config of each schedule.

    Args:
        spec: the operator's, where it is known.
        workload: the shape and dtypes.
        target: what candidates are compiled for. Nothing is tried where its limits are not known.
        space: the workload's.

    Raises:
        UsageError: `predict` fails, as `predicted_us` says.
        SpaceError: nothing is legal.
    """
    if spec is None or spec.predict is None or target.sm_count == 0:
        return
    configs = [*space.suggestions(), space.default()]
    named = next((set(knob.values) for knob in space.knobs if knob.id == SCHEDULE), set())
    if named - {config.get(SCHEDULE) for config in configs}:  # a template without suggestions
        configs += {config.get(SCHEDULE): config for config in space.sample(_DRAWN, Random(0))}.values()
    for config in configs:
        for resources in (None, _ORDINARY):
            predicted_us(spec, workload, target, config, resources)


def _place(spec: OperatorSpec, error: BaseException | None = None) -> str:
    """File and line of `predict`, or of where in its file it failed."""
    written: Any = spec.predict.func if isinstance(spec.predict, partial) else spec.predict
    code = getattr(inspect.unwrap(written), "__code__", None)
    if code is None:
        return f"operator {spec.name}"
    line = code.co_firstlineno
    trace = error.__traceback__ if error is not None else None
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == code.co_filename:
            line = trace.tb_lineno
        trace = trace.tb_next
    return f"{code.co_filename}:{line}"


def _case(workload: Workload, config: Mapping[str, object]) -> str:
    return f" (for {workload.key} with {dict(config)!r})"
