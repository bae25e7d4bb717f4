"""The check at a ragged neighbour: the same code at extents that are no multiple of its tiles, where a missing mask shows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

from triton import knobs

from tilewright.children.candidate import Candidate
from tilewright.children.check import check_once
from tilewright.children.failure import CandidateFailed, OperatorFault
from tilewright.children.operands import Operands
from tilewright.record import Status
from tilewright.workload import Workload

_LONGEST_EXTRA_S: Final = 2.0  # guess: what a further run in the interpreter may cost beside two that are checked and two that are timed
_SHARE_OF_TIMEOUT: Final = 0.25  # of one that is only checked: two runs before it, and some room for a neighbour that is larger


class _OtherBinary(Exception):
    """Triton would compile the kernel anew for these arguments."""


@contextmanager
def _no_compiling() -> Iterator[None]:
    """Within, a launch that needs another binary raises `_OtherBinary`. The interpreter, which has none, never does."""

    def refuse(**_: Any) -> bool:
        raise _OtherBinary

    before = knobs.runtime.jit_cache_hook
    knobs.runtime.jit_cache_hook = refuse
    try:
        yield
    finally:
        knobs.runtime.jit_cache_hook = before


def affordable(payload: Mapping[str, Any], run_s: float) -> list[Workload]:
    """The neighbours that a request names, where a further run is worth its time: else a candidate's own shape must do.

    Args:
        payload: of the request.
        run_s: wall time of a run, 0 where it is of no account.
    """
    longest_s = _LONGEST_EXTRA_S if payload["timed"] else _SHARE_OF_TIMEOUT * payload["timeout_s"]
    return [Workload(**named) for named in payload["neighbours"]] if run_s < longest_s else []


def check_neighbour(candidate: Candidate, neighbours: Sequence[Workload], operands_of: Callable[[Workload], Operands]) -> str:
    """Check a candidate at the first of the neighbours that its own binary serves.

    Triton specialises on divisibility and on constants that `launch` works out of the extents, so that another extent may mean
    another binary: what that one does says nothing of the one measured.

    Args:
        candidate: checked at its own shape already, so that its binary is loaded.
        neighbours: workloads for which the same text is rendered, the most telling first.
        operands_of: inputs, outputs and expected values of one.

    Returns:
        The key of the neighbour; empty where none is served by the same binary.

    Raises:
        CandidateFailed: it is wrong there.
    """
    for workload in neighbours:
        try:
            operands = operands_of(workload)
            operands.advance()
        except OperatorFault:
            continue  # no room for it, or an extent that the operator does not take: nobody's candidate is to blame
        try:
            _check(candidate, operands)
        except CandidateFailed as failed:
            if isinstance(failed.__cause__, _OtherBinary):
                continue
            operands.spoil()
            named = ",".join(f"{name}={extent}" for name, extent in workload.dims.items())
            message = f"right at its own extents, and at {named}: {failed.message}"
            raise CandidateFailed(failed.status, message, spoiled=True, poisoned=failed.poisoned) from failed
        return workload.key
    return ""


def _check(candidate: Candidate, operands: Operands) -> None:
    scratch = candidate.scratch(operands)
    call = candidate.checked_call(operands, scratch)
    try:
        with _no_compiling():
            check_once(operands, call, scratch)
    except CandidateFailed as failed:
        if operands.fresh or failed.status is not Status.WRONG_RESULT:
            raise
        # The inputs and their reference have served other candidates, one of which may have written over them unseen.
        operands.draw()
        with _no_compiling():
            check_once(operands, call, scratch)
