"""Whether chosen schedules still are what their records say, on this machine."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal

import msgspec

from tilewright.best import BestEntry, entry_of, needs_of
from tilewright.device import Device
from tilewright.errors import SpaceError
from tilewright.observer import Budget
from tilewright.record import RaceRecord, Record, Status, VendorRecord
from tilewright.sampling import median_interval
from tilewright.template import Source
from tilewright.trials import Search

Verdict = Literal["holds", "faster", "slower", "right", "wrong", "failed", "stale"]

# Verdicts that a build should stop at.
BAD: Final = frozenset({"slower", "wrong", "failed", "stale"})

# One schedule's anchored time varies by 1.5% between sessions at most (the bar of benchmarks/measurement_h200.py): twice that.
TOLERANCE: Final = 0.03


@dataclass(frozen=True, slots=True, kw_only=True)
class Verified:
    """What became of one entry.

    Attributes:
        entry: what was claimed.
        verdict: `holds`, `faster` or `slower` by its time; `right` where its outputs are, and no time here compares with that of then;
            `wrong` where its outputs are; `failed` where it does not run; `stale` where it is not what was measured then, whatever its time.
        stale: what changed since: the rendered code, Triton, the driver, the timing protocol.
        message: why it is wrong or failed, or why times do not compare.
        ratio, low, high: its time now over that of then, and the 95% interval; None without a time.
        record: its new record; None where it could not even be rendered.
        default: the author's default schedule beside it.
        vendors: the vendors' kernels beside it.
        race: them all in turns, where the device races.
    """

    entry: BestEntry
    verdict: Verdict
    stale: tuple[str, ...] = ()
    message: str = ""
    ratio: float | None = None
    low: float | None = None
    high: float | None = None
    record: Record | None = None
    default: Record | None = None
    vendors: tuple[VendorRecord, ...] = ()
    race: RaceRecord | None = field(default=None)

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values."""
        measured = self.record.measurement if self.record is not None else None
        return {
            "workload": self.entry.workload.key,
            "target": self.entry.target.name,
            "config": dict(self.entry.config),
            "verdict": self.verdict,
            "stale": list(self.stale),
            "message": self.message,
            "then_us": self.entry.median_us,
            "now_us": measured.ranked_us if measured is not None else None,
            "ratio": self.ratio,
            "low": self.low,
            "high": self.high,
            "race": msgspec.to_builtins(self.race),
        }


def verify(device: Device, entries: Sequence[BestEntry], *, seed: int = 0, tolerance: float = TOLERANCE) -> Iterator[Verified]:
    """Measure entries again, each beside its default and the vendors; one result for each, as it is done.

    Args:
        device: of the entries' target.
        entries: of the device's operator.
        seed: of the inputs.
        tolerance: share by which a time may differ and still hold.

    Raises:
        HostError: the device is gone.
    """
    for entry in entries:
        yield _verify(device, entry, seed, tolerance)


def _verify(device: Device, entry: BestEntry, seed: int, tolerance: float) -> Verified:
    search = Search(
        device=device,
        workload=entry.workload,
        weight=1.0,
        budget=Budget(),
        default_only=False,
        searcher="random",
        seed=seed,
        records=(),
        vendors=(),
    )
    try:
        record, source = _measured(search, search.space.validate(entry.config))
    except SpaceError as error:
        return Verified(entry=entry, verdict="stale", stale=(f"its config is no longer legal: {error}",))
    default_config = search.space.default()
    default = record if dict(record.config) == dict(default_config) else _measured(search, default_config)[0]
    vendors = tuple(_vendors(search)) if device.target.backend != "interpreter" else ()
    race = _race(search, [one for one in ([record] if default is record else [record, default]) if one.status is Status.OK])
    told = {"entry": entry, "record": record, "default": default, "vendors": vendors, "race": race, "stale": _changed(entry, record, source)}
    raced = race.racers[0] if race is not None and record.status is Status.OK else None
    status, message = (raced.status, raced.message) if raced is not None and raced.status is not Status.OK else (record.status, record.message)
    if status is not Status.OK:
        wrong = status in (Status.WRONG_RESULT, Status.OUT_OF_BOUNDS)
        return Verified(verdict="wrong" if wrong else "failed", message=f"{status}: {message}", **told)  # type: ignore[arg-type]  # each name has its type
    # The interpreter's times say nothing of a device, nor do times by another protocol.
    if device.target.backend != "interpreter" and entry_of(record).pins.protocol == entry.pins.protocol:
        ratio, low, high = _ratio(record, entry.median_us)
        verdict: Verdict = "slower" if low > 1 + tolerance else "faster" if high < 1 - tolerance else "holds"
        told |= {"ratio": round(ratio, 4), "low": round(low, 4), "high": round(high, 4)}
    else:
        verdict = "right"
        interpreted = device.target.backend == "interpreter"
        why = (
            "the interpreter's time says nothing of a device"
            if interpreted
            else f"a time by {entry_of(record).pins.protocol} is not one by {entry.pins.protocol}"
        )
        told["message"] = f"its outputs are right; {why}"
    return Verified(verdict="stale" if told["stale"] else verdict, **told)  # type: ignore[arg-type]  # each name has its type


def _measured(search: Search, config: dict[str, Any]) -> tuple[Record, Source]:
    candidate = search.pipeline.candidate(config)
    built = candidate.built()
    if built.status is not Status.OK:
        return search.record(candidate, built.status, built.message), candidate.source
    outcome = search.device.runner.measure(search.measure_job(candidate))
    search.measured(candidate, outcome)
    return search.record(candidate, outcome.status, outcome.message, outcome.measurement, outcome.check), candidate.source


def _vendors(search: Search) -> Iterator[VendorRecord]:
    device = search.device
    for name, outcome in device.runner.vendors(search.job):
        yield VendorRecord(
            name=name,
            workload=search.workload,
            target=device.target,
            status=outcome.status,
            message=outcome.message,
            toolchain=device.toolchain,
            measurement=outcome.measurement,
        )


def _race(search: Search, chosen: Sequence[Record]) -> RaceRecord | None:
    if not chosen:
        return None
    began = time.monotonic()
    outcome = search.race(chosen)
    return None if outcome is None else search.raced(chosen, outcome, time.monotonic() - began)


def _changed(entry: BestEntry, record: Record, source: Source) -> tuple[str, ...]:
    """What is not as it was when the entry was measured."""
    now = entry_of(record).pins if record.measurement is not None else None
    found = []
    if entry.pins.source and source.hash != entry.pins.source:
        found.append("the template renders other code")
    if now is not None and entry.pins.triton and now.triton != entry.pins.triton:
        found.append(f"Triton {now.triton}, not {entry.pins.triton}")
    if now is not None and entry.pins.driver and now.driver != entry.pins.driver:
        found.append(f"driver {now.driver}, not {entry.pins.driver}")
    if now is not None and entry.pins.protocol and now.protocol != entry.pins.protocol:
        found.append(f"it was timed by {entry.pins.protocol}, and is by {now.protocol} now: the two do not compare")
    if (entry.scratch_bytes or entry.shared_memory_bytes) and record.resources is not None:
        needs = needs_of(record)
        if needs[0] != entry.scratch_bytes:
            found.append(f"it needs {needs[0]} bytes of scratch, not {entry.scratch_bytes}")
    return tuple(found)


def _ratio(record: Record, then_us: float) -> tuple[float, float, float]:
    found = record.measurement
    assert found is not None
    scale = found.ranked_us / found.median_us / then_us
    low, high = median_interval(found.times_us) if found.times_us else (found.min_us, found.max_us)
    return found.median_us * scale, low * scale, high * scale
