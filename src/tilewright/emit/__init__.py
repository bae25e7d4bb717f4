"""From a best file to a plain Python package that imports only torch and triton."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tilewright.aliases import select
from tilewright.best import BestFile
from tilewright.canonical import sha256_text
from tilewright.emit.package import check_name, package_files
from tilewright.emit.plan import Misfit, Mode, Plan, Refused, make_plan
from tilewright.emit.write import write_package
from tilewright.errors import UsageError
from tilewright.library import Operator
from tilewright.workload import Workload

__all__ = ["Emitted", "Misfit", "Mode", "Plan", "Refused", "emit_package"]

_MINOR: Final = re.compile(r"\d+\.\d+", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class Emitted:
    """A package that was written.

    Attributes:
        folder: its own.
        plan: what is in it.
        files: their paths below the folder.
    """

    folder: Path
    plan: Plan
    files: tuple[str, ...]


def emit_package(
    best: BestFile,
    operators: Mapping[str, Operator],
    output: Path,
    *,
    name: str = "tuned_kernels",
    mode: Mode = Mode.DEFAULT,
    target: str = "",
    triton: str = "",
    required: Iterable[Workload] = (),
    vendors: bool = False,
    on_miss: str = "error",
    complete: Callable[[Path, Plan], None] = lambda draft, plan: None,
) -> Emitted:
    """Write a package of all schedules of a best file: the same file, templates and options give the same bytes.

    Args:
        best: entries and ranges.
        operators: by name, as `find_operators` gives them.
        output: the folder to put the package's folder in.
        name: of the package.
        mode: how to take what does not fit.
        target: only for this one (an alias such as `h200-sxm`, or an arch); all where empty.
        triton: minor version of Triton that it is for; not compared where empty.
        required: workloads that must be served.
        vendors: whether a vendor's kernel serves the workloads where it was faster.
        on_miss: what a call does that nothing serves.
        complete: given the package's folder before it takes its place, as `write_package` gives it, and the plan.

    Raises:
        Refused: something does not fit that the mode does not let pass.
        UsageError: a name is wrong, or an operator's files cannot stand alone.
        HostError: it cannot be written.
    """
    check_name(name)
    if triton and not _MINOR.fullmatch(triton):
        raise UsageError(f"triton {triton!r} must be MAJOR.MINOR, as 3.9")
    if target:
        targets = [*(entry.target for entry in best.entries), *(line.target for line in best.ranges)]
        keys = {found.key for found in select(target, targets)}
        best = BestFile(
            entries=tuple(entry for entry in best.entries if entry.target.key in keys), ranges=tuple(line for line in best.ranges if line.target.key in keys)
        )
    plan = make_plan(best, operators, mode=mode, triton=triton, required=required, vendors=vendors)
    files = package_files(plan, name=name, mode=mode, best_hash=sha256_text(best.text), on_miss=on_miss)
    folder = output / name
    write_package(folder, files, lambda draft: complete(draft, plan))
    return Emitted(folder=folder, plan=plan, files=tuple(files))
