"""The operator that a recording is of, as far as it is at hand and fits what was recorded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from tilewright.errors import UsageError
from tilewright.library import known_operator
from tilewright.operator import OperatorSpec
from tilewright.prediction import try_predict
from tilewright.recorded import Recording


def operator_of(recording: Recording, folders: Sequence[Path] = ()) -> tuple[OperatorSpec | None, str]:
    """The spec of a recording's operator, and what is to be said of it.

    A recording needs no operator: without one there are only times, no rates and no estimate. Nor need the operator's `predict` be of the
    recorded knobs, if it has changed since or another tool's configs were recorded: where it looks for a knob that is not there, the spec
    comes without it, and the general estimate is left.

    Args:
        recording: of one operator.
        folders: of operators, beside those that come with Tilewright.

    Raises:
        UsageError: the operator's folder is not right, or its `predict` fails in another way.
    """
    known = known_operator(recording.operator, folders)
    if known is None:
        name = recording.operator
        return None, f"no operator {name!r} here: the search goes by knobs alone, and there are no rates; name its folder with --templates"
    workload = next(iter(recording.workloads.values()))
    try:
        try_predict(known.spec, workload, recording.target, recording.space(workload))
    except UsageError as error:
        if not isinstance(error.__cause__, KeyError):
            raise
        return replace(known.spec, predict=None), f"{error}; or its knobs are not those recorded: the search goes by the general estimate"
    return known.spec, ""
