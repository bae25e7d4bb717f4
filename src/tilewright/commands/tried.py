"""What `check --run` adds to its tables: how runs ended, and how much of the tolerance their errors use."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Final

from tilewright.legality import Legality
from tilewright.library import Operator
from tilewright.record import Status
from tilewright.tryout import Tryout

TRIED: Final = ("run", "rel_norm", "max_error")


def tried_cells(tryout: Tryout | None) -> tuple[str, str, str]:
    """A config's cells under `TRIED`: an error with its share of what is allowed."""
    if tryout is None or tryout.check is None:
        return (tryout.verdict if tryout else "-", "-", "-")
    check = tryout.check
    return (tryout.verdict, _used(check.rel_norm, tryout.rel_norm_share), _used(check.max_error, tryout.max_error_share))


def _used(error: float, share: float | None) -> str:
    return f"{error:.2g}" if share is None else f"{error:.2g} ({100 * share:.0f}%)"


def tried_lines(operator: Operator, report: Legality) -> Iterator[str]:
    """What is said once of all runs of a report."""
    tryouts = [verdict.tryout for verdict in report.verdicts if verdict.tryout is not None]
    for reason in dict.fromkeys(tryout.message for tryout in tryouts if tryout.status is None):
        yield f"not run: {reason}"
    # What the template itself keeps from being built is told without a run, too.
    unbuilt = Counter(verdict.status for verdict in report.verdicts if verdict.tryout is None and not verdict.broken)
    late = unbuilt.pop(Status.COMPILE_TIMEOUT, 0)
    if late:
        yield f"{late} not run, as they were not compiled in time (--compile-timeout)"
    if unbuilt:
        yield f"{unbuilt.total()} not run, as the target cannot run them"
    checks = [tryout.check for tryout in tryouts if tryout.check is not None]
    if checks:
        allowed = f"rel_norm {checks[0].rel_norm_allowed:.2g}, max_error {checks[0].max_error_allowed:.2g}"
        yield f"allowed, of which the share that an error uses is in brackets: {allowed}: {operator.spec.tolerance(report.workload).reason}"
    plain = sum(tryout.status is Status.OK and tryout.check is not None and not tryout.check.ragged for tryout in tryouts)
    if plain:
        yield f"{plain} of them at their own extents alone: no ragged ones render the same text, or a run takes over a quarter of the time-out"
