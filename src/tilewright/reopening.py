"""Whether a finished search still counts: one that knew other templates than the operator has now is gone on with. docs/decisions/0017."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Final

from tilewright.canonical import canonical_json, sha256_text
from tilewright.device import Device
from tilewright.knobs import SCHEDULE
from tilewright.recall import counts
from tilewright.record import Record
from tilewright.state import LogState
from tilewright.template import SUFFIX
from tilewright.workload import Workload

TEMPLATES_OPTION: Final = "templates"  # of a session's line: what the operator's templates were, see `templates_id`
# Trials for templates that changed without a record being of them: new ones, mostly. guess: the author's suggestions and a first look around.
NEW_TRIALS: Final = 8
_ID_CHARACTERS: Final = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Reopened:
    """Why a finished search is gone on with.

    Attributes:
        why: for the person at the terminal, as a sentence's beginning.
        records: how many of the log's no longer count, as they are of templates that are no more.
    """

    why: str
    records: int = 0


def templates_id(device: Device) -> str:
    """What tells one state of an operator's templates from another; empty where a recording stands in for them."""
    return "" if device.recording else sha256_text(canonical_json(sorted(device.template_hashes)))[:_ID_CHARACTERS]


def reopened(state: LogState, device: Device, workload: Workload, reasons: Collection[str]) -> Reopened | None:
    """Why a workload's search must go on although it was finished; None where it was finished with today's templates, or never.

    Args:
        state: the log.
        device: has the operator's templates.
        workload: whose search.
        reasons: ends of a session that finish all its searches.
    """
    finishing = state.finishing(workload, device.target, reasons)
    once = [record for record in state.records(workload, device.target) if counts(record, device.runner.protocol)]
    stale = [record for record in once if record.template not in device.template_hashes]
    by_session = Counter(record.session for record in stale)
    now = templates_id(device)
    then = {name: _templates(state, name) for name in finishing}
    if not finishing or any(not by_session[name] and then[name] in ("", now) for name in finishing):
        return None
    if stale:
        return Reopened(why=f"{_named(stale, device)} changed since this search finished, and {_counted(len(stale))} no longer", records=len(stale))
    return Reopened(why="the operator's templates are others than when this search finished")


def _templates(state: LogState, session: str) -> str:
    start = state.sessions[session].start
    return str(start.options.get(TEMPLATES_OPTION) or "") if start is not None else ""


def _named(stale: Iterable[Record], device: Device) -> str:
    names = sorted({str(record.config[SCHEDULE]) for record in stale if SCHEDULE in record.config})
    if not names:
        names = sorted(path.name.removesuffix(SUFFIX) for path in device.folder.glob(f"*{SUFFIX}")) if len(device.template_hashes) == 1 else []
    if not names:
        return "a template"
    return f"template{'s' * (len(names) > 1)} {', '.join(names)}"


def _counted(count: int) -> str:
    return f"{count:,} of its records count" if count > 1 else "1 of its records counts"
