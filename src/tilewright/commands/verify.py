"""`tilewright verify`: chosen schedules measured again, and whether they hold."""

from __future__ import annotations

import argparse
import uuid
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from tilewright import __version__
from tilewright.best import BestEntry
from tilewright.commands.logs import templates_at_hand
from tilewright.commands.output import emit, emit_json, note
from tilewright.device import Device
from tilewright.devices import open_device
from tilewright.dispatch import read_best
from tilewright.errors import ExitCode, UsageError
from tilewright.log import TuningLog
from tilewright.logfile import refuse_unfit
from tilewright.protocols import settings_of
from tilewright.recall import refuse_other_recordings
from tilewright.record import Line, SessionEnd, SessionStart, Status
from tilewright.report import format_config, format_us, format_workload
from tilewright.state import LogState
from tilewright.timeouts import Timeouts
from tilewright.verify import BAD, Verified, verify


def run(args: argparse.Namespace) -> ExitCode:
    """Verify each entry that is of this device; FAILED where one is slower, wrong, stale, or does not run, or there is none."""
    log = _log_to_update(args)
    timeouts = Timeouts(compile=args.compile_timeout, run=args.run_timeout)
    entries = read_best(args.file, templates_at_hand(args.templates)).entries
    found: list[Verified] = []
    skipped = 0
    for operator in sorted({entry.workload.operator for entry in entries}):
        with open_device(args.device, operator, target=args.target, templates=args.templates, jobs=args.jobs, timeouts=timeouts) as device:
            mine = [entry for entry in entries if entry.workload.operator == operator and entry.target.key == device.target.key]
            skipped += sum(entry.workload.operator == operator for entry in entries) - len(mine)
            found += _verified(args, device, mine, log)
    if args.json:
        emit_json({"ok": _good(found), "entries": [one.to_json() for one in found], "skipped": skipped})
    if skipped:
        note(f"{skipped} of {len(entries)} entries are of other devices, and were left out")
    if not found:
        note(f"{args.file} has nothing of this device to verify")
    return ExitCode.OK if _good(found) else ExitCode.FAILED


def _good(found: Sequence[Verified]) -> bool:
    return bool(found) and not any(one.verdict in BAD for one in found)


def _log_to_update(args: argparse.Namespace) -> TuningLog | None:
    if not args.update:
        if args.log is not None:
            raise UsageError(f"--log {args.log} says where new records go, and without --update none are kept: add --update")
        return None
    if args.log is not None:
        refuse_unfit(args.log)
        return TuningLog(args.log)
    path = Path(args.file)
    is_log = path.suffix == ".jsonl" and path.is_file() and bool(TuningLog(path).read().lines)
    if not is_log:
        raise UsageError(f"--update appends records to a log, and {path} is none that can be written: name one with --log FILE")
    return TuningLog(path)


def _verified(args: argparse.Namespace, device: Device, entries: Sequence[BestEntry], log: TuningLog | None) -> list[Verified]:
    session = uuid.uuid4().hex[:16]
    if log is not None and entries:
        if device.recording and log.exists():
            refuse_other_recordings(LogState.of(log.read().lines), device, [entry.workload for entry in entries], log.path)
        log.append(
            SessionStart(
                session=session,
                started_at=_now(),
                tilewright=__version__,
                operator=device.operator,
                workloads=[entry.workload for entry in entries],
                target=device.target,
                toolchain=device.toolchain,
                options={"verify": str(args.file), "seed": args.seed, "device": device.name, "protocol": device.runner.protocol}
                | ({"recording": device.recording} if device.recording else {}),
                settings=settings_of(device.runner.protocol),
            )
        )
    found: list[Verified] = []
    trials = 0
    try:
        for one in verify(device, entries, seed=args.seed, tolerance=args.tolerance):
            found.append(one)
            if not args.json:
                emit(_text(one))
            if log is not None:
                for line in _lines(one, session, trials):
                    log.append(line)
                trials += _records(one)
    finally:
        if log is not None and entries:
            log.append(SessionEnd(session=session, ended_at=_now(), reason="verify", trials=trials))
    return found


def _records(one: Verified) -> int:
    return (one.record is not None) + (one.default is not None and one.default is not one.record)


def _lines(one: Verified, session: str, trial: int) -> list[Line]:
    """The new records of an entry, as a log takes them."""
    records = [record for record in (one.record, None if one.default is one.record else one.default) if record is not None]
    lines: list[Line] = [msgspec.structs.replace(record, session=session, trial=trial + number) for number, record in enumerate(records)]
    lines += [msgspec.structs.replace(vendor, session=session) for vendor in one.vendors]
    return lines if one.race is None else [*lines, msgspec.structs.replace(one.race, session=session)]


def _text(one: Verified) -> str:
    entry = one.entry
    now = one.record.measurement if one.record is not None else None
    parts = [f"{one.verdict:<6}  {entry.workload.operator} {format_workload(entry.workload)}"]
    if one.ratio is not None and now is not None:
        parts.append(f"{format_us(now.ranked_us)} µs, then {format_us(entry.median_us)}: {one.ratio:.3f}x ({one.low:.3f}-{one.high:.3f})")
    raced = one.race.racers if one.race is not None and one.record is not None and one.record.status is Status.OK else []
    for racer in raced[1:]:
        if racer.ratio and raced[0].ratio:
            parts.append(f"{racer.vendor or 'the default'} takes {racer.ratio / raced[0].ratio:.3f}x as long")
    parts += [f"stale: {reason}" for reason in one.stale]
    if one.message:
        parts.append(one.message.splitlines()[0])
    parts.append(format_config(entry.config))
    return "; ".join(parts)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
