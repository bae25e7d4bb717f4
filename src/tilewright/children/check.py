"""Whether a call computes what the reference does, writes what it should, and nothing else."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite, prod, sqrt
from typing import Any

import torch

from tilewright.children.buffers import Guarded, bits_of, copy_exact, differs
from tilewright.children.failure import CandidateFailed, classify
from tilewright.children.operands import REFERENCE, Operands
from tilewright.operator import Tolerance
from tilewright.record import Check, Status


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """A passed check.

    Attributes:
        check: the largest errors over outputs and runs, and what was allowed.
        bitwise_equal: whether both runs gave the same bits.
        run_s: wall time of the second run, launch to end: the first one also loads the kernel. On a device, that of what was
            queued before as well: it is what the interpreter's protocol goes by.
    """

    check: Check
    bitwise_equal: bool
    run_s: float


def check_call(operands: Operands, call: Callable[[], Any], scratch: Sequence[Guarded] = (), *, repeatable: bool = True) -> Verdict:
    """Run a call twice on poisoned outputs, and compare.

    Args:
        operands: inputs, outputs and expected values.
        call: launches once on the operands' arguments and `scratch`. Where it returns tensors, those are the outputs (a
            vendor's call); else the guarded ones.
        scratch: its scratch tensors.
        repeatable: whether two runs must give the same bits: they do, unless the order of sums is left to chance, or threads race.

    Raises:
        CandidateFailed: it raised, strayed, changed an input, is wrong, or gives other bits the second time.
    """
    found = []
    kept: list[Any] = []
    run_s = 0.0
    for run in (0, 1):
        outputs, run_s = _run(operands, call, scratch, run)
        try:
            found.append(compare_all(operands, outputs, run))
        except CandidateFailed as failed:
            raise (_blamed_on_scratch(operands, call, scratch, run, outputs, failed) if scratch else failed) from None
        if run == 0:
            kept = [copy_exact(tensor) for tensor in outputs]
    bitwise = not any(bool(differs(first, second)) for first, second in zip(kept, outputs, strict=True))
    if repeatable and not bitwise:
        raise CandidateFailed(Status.WRONG_RESULT, _unlike(operands, kept, outputs))
    worst = Check(
        rel_norm=max(check.rel_norm for check in found),
        max_error=max(check.max_error for check in found),
        rel_norm_allowed=operands.tolerance.rel_norm,
        max_error_allowed=operands.tolerance.max_error,
    )
    return Verdict(check=worst, bitwise_equal=bitwise, run_s=run_s)


def check_once(operands: Operands, call: Callable[[], Any], scratch: Sequence[Guarded] = ()) -> Check:
    """Run a call once on poisoned outputs, and compare.

    Raises:
        CandidateFailed: it raised, strayed, changed an input, or is wrong.
    """
    outputs, _ = _run(operands, call, scratch, 0)
    return compare_all(operands, outputs)


def _run(operands: Operands, call: Callable[[], Any], scratch: Sequence[Guarded], run: int) -> tuple[list[Any], float]:
    """The outputs of one call on poisoned ones, and its wall time."""
    operands.restore(operands.spec.mutates)
    for buffer in (*operands.outputs, *scratch):
        buffer.poison(run)
    started = time.perf_counter()
    try:
        returned = call()
        operands.synchronize()
    except BaseException as error:
        raise classify(error, "first launch" if run == 0 else "second launch", operands.synchronize) from error
    run_s = time.perf_counter() - started
    if returned is None:
        _check_writes(operands, [*operands.outputs, *scratch])
        return [output.tensor for output in operands.outputs], run_s
    _check_writes(operands, [])
    return _returned(operands, returned), run_s


def _blamed_on_scratch(
    operands: Operands, call: Callable[[], Any], scratch: Sequence[Guarded], run: int, outputs: Sequence[Any], failed: CandidateFailed
) -> CandidateFailed:
    """The failure, saying so where it comes of scratch that nobody wrote.

    A NaN of scratch's poison does not say where it comes from: a device's sums give one NaN for all. So the call is run again, first as
    it was, then with zeros in its scratch: where only the second run's outputs are others, it reads what it did not write.
    """
    kept = [copy_exact(tensor) for tensor in outputs]
    changed = []
    for value in (None, 0):
        for buffer in (*operands.outputs, *scratch):
            buffer.poison(run)
        for buffer in scratch:
            if value is not None:
                buffer.bits.fill_(value)
        operands.restore(operands.spec.mutates)
        try:
            returned = call()
            again = _returned(operands, returned) if returned is not None else [output.tensor for output in operands.outputs]
            changed.append(any(bool(differs(first, second)) for first, second in zip(kept, again, strict=True)))
        except BaseException as error:
            broken = error if isinstance(error, CandidateFailed) else classify(error, "a further launch", operands.synchronize)
            return broken if broken.poisoned else failed
    if changed != [False, True]:
        return failed
    message = f"{failed.message}; with zeros in its scratch the outputs are others: it reads scratch that nobody wrote"
    return CandidateFailed(failed.status, message, check=failed.check, spoiled=failed.spoiled)


def _unlike(operands: Operands, first: Sequence[Any], second: Sequence[Any]) -> str:
    told = []
    for name, one, other in zip(operands.output_names, first, second, strict=True):
        unlike = (one != other) & ~(one.isnan() & other.isnan())
        count = int(unlike.sum())
        if count:
            place = _place(int(unlike.flatten().nonzero()[0]), tuple(one.shape))
            values = f"{float(one[tuple(place)])!r} and {float(other[tuple(place)])!r}"
            told.append(f"output {name!r} in {count:,} of {one.numel():,} elements, first at {place}: {values}")
    where = "; ".join(told) or "in bits alone, such as the sign of a zero"
    return f"two runs on the same inputs differ: {where}; threads race, or sums by atomics come in any order (a module that means it says ATOMICS = True)"


def _check_writes(operands: Operands, buffers: Sequence[Guarded]) -> None:
    mutations = operands.mutations()
    flags = [*(buffer.damage() for buffer in buffers), *mutations.values()]
    if not flags:
        return
    answers = torch.stack(flags).tolist()  # one wait for all
    damaged = [buffer.describe_damage() for buffer, bad in zip(buffers, answers, strict=False) if bad]
    if damaged:
        raise CandidateFailed(Status.OUT_OF_BOUNDS, "; ".join(damaged))
    changed = [name for name, bad in zip(mutations, answers[len(buffers) :], strict=True) if bad]
    if changed:
        raise CandidateFailed(Status.WRONG_RESULT, f"changed input {', '.join(map(repr, changed))}, which SPEC.mutates does not name")


def _returned(operands: Operands, returned: Any) -> list[Any]:
    outputs = list(returned) if isinstance(returned, (tuple, list)) else [returned]
    if len(outputs) != len(operands.outputs):
        raise CandidateFailed(Status.WRONG_RESULT, f"returned {len(outputs)} outputs, not {len(operands.outputs)}", spoiled=False)
    for tensor, guarded in zip(outputs, operands.outputs, strict=True):
        if tuple(tensor.shape) != tuple(guarded.tensor.shape):
            raise CandidateFailed(Status.WRONG_RESULT, f"{guarded.name}: shape {list(tensor.shape)}, not {list(guarded.tensor.shape)}", spoiled=False)
    return outputs


def compare_all(operands: Operands, outputs: Sequence[Any], run: int = 0) -> Check:
    """Compare outputs with the expected ones; where several candidates are trusted for want of a reference, with the nearest.

    Raises:
        CandidateFailed: an output is further off than the operator's tolerance allows.
    """
    failures: list[CandidateFailed] = []
    for name, expected in operands.expectations.items():
        try:
            return _compare_with(operands, expected, outputs, run)
        except CandidateFailed as failed:
            if len(operands.expectations) > 1 or name != REFERENCE:
                failed = CandidateFailed(failed.status, f"unlike {name}: {failed.message}", check=failed.check)
            failures.append(failed)
    if len(failures) == 1:
        raise failures[0]
    raise CandidateFailed(failures[0].status, "like no trusted candidate: " + "; ".join(failed.message for failed in failures), check=failures[0].check)


def _compare_with(operands: Operands, trusted: Mapping[str, Any], outputs: Sequence[Any], run: int) -> Check:
    rel_norm, max_error = 0.0, 0.0
    allowed = operands.tolerance
    wrong = []
    for name, tensor, guarded in zip(operands.output_names, outputs, operands.outputs, strict=True):
        expected = trusted[name]
        relative, largest = compare(name, tensor, expected, guarded.pattern(run))
        rel_norm, max_error = max(rel_norm, relative), max(max_error, largest)
        if relative > allowed.rel_norm or largest > allowed.max_error:
            wrong.append(_wrong(name, tensor, expected, relative, largest, allowed))
    check = Check(rel_norm=rel_norm, max_error=max_error, rel_norm_allowed=allowed.rel_norm, max_error_allowed=allowed.max_error)
    if wrong:
        raise CandidateFailed(Status.WRONG_RESULT, "; ".join(wrong), check=check)
    return check


def _wrong(name: str, tensor: Any, expected: Any, relative: float, largest: float, allowed: Tolerance) -> str:
    worst = int((tensor.double() - expected.double()).abs().nan_to_num(0.0).argmax())
    place = _place(worst, tuple(tensor.shape))
    got, wanted = float(tensor[tuple(place)]), float(expected[tuple(place)])
    return (
        f"output {name!r}: ‖error‖/‖reference‖ {relative:.3g} (allowed {allowed.rel_norm:.3g}), max|error|/rms(reference) {largest:.3g} "
        f"(allowed {allowed.max_error:.3g}); worst at {place}: {got:.6g}, not {wanted:.6g}"
    )


def compare(name: str, tensor: Any, expected: Any, poison: int | None = None) -> tuple[float, float]:
    """Errors of an output: ‖out - ref‖₂/‖ref‖₂ and max|out - ref|/rms(ref); absolute where the reference is all zero.

    NaN and infinity count as right only where the reference has the same.

    Args:
        name: the output's name, for messages.
        tensor: the output.
        expected: the reference's, of the same shape.
        poison: bits that an element nobody wrote would have, read as an integer.

    Raises:
        CandidateFailed: NaN or infinity where the reference has none, or the other way round.
    """
    if not tensor.numel():
        return 0.0, 0.0
    wide = torch.float32 if expected.dtype == torch.float32 and tensor.dtype != torch.float64 else torch.float64
    wanted = expected.to(wide)
    difference = tensor.to(wide) - wanted
    relative, largest = _errors(difference, wanted)
    if isfinite(relative) and isfinite(largest):
        return relative, largest
    got, wanted = tensor.double(), expected.double()
    odd = ~(got.isfinite() & wanted.isfinite())
    bad = odd & ~((got == wanted) | (got.isnan() & wanted.isnan()))
    if poison is not None and tensor.dtype.is_floating_point:
        bad |= odd & _is_poison(tensor, poison)  # a NaN that nobody wrote is no right NaN
    count = int(bad.sum())
    if count:
        raise CandidateFailed(Status.WRONG_RESULT, _odd(name, tensor, bad, count, poison))
    return _errors(torch.where(odd, 0.0, got - wanted), torch.where(odd, 0.0, wanted))


def _errors(difference: Any, wanted: Any) -> tuple[float, float]:
    norms = [torch.linalg.vector_norm(difference), torch.linalg.vector_norm(wanted), torch.linalg.vector_norm(difference, ord=float("inf"))]
    error, size, largest = torch.stack(norms).tolist()
    if size == 0:
        return error, largest
    return error / size, largest / (size / sqrt(wanted.numel()))


def _odd(name: str, tensor: Any, bad: Any, count: int, poison: int | None) -> str:
    total = prod(tensor.shape)
    first = _place(int(bad.flatten().nonzero()[0]), tuple(tensor.shape))
    value = float(tensor[tuple(first)])
    if poison is not None and tensor.dtype.is_floating_point:
        unwritten = int((_is_poison(tensor, poison) & bad).sum())
        if unwritten:
            return f"output {name!r}: {unwritten:,} of {total:,} elements were never written, or from scratch that nobody wrote; the first wrong one at {first}"
    return f"output {name!r}: {count:,} of {total:,} elements are NaN or infinite where the reference is not, or the reverse; first at {first}: {value}"


def _is_poison(tensor: Any, poison: int) -> Any:
    return bits_of(tensor) == poison


def _place(flat: int, shape: tuple[int, ...]) -> list[int]:
    place = []
    for extent in reversed(shape):
        flat, index = divmod(flat, extent)
        place.append(index)
    return place[::-1]
