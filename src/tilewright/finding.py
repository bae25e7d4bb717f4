"""What lint finds in a line."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from tilewright.record import Racer, Status

Severity = Literal["fault", "note"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """Something lint found.

    Attributes:
        number: of the line, from 1.
        rule: short name, stable for scripts.
        severity: a `fault` fails the lint; a `note` is worth knowing.
        message: what is wrong.
    """

    number: int
    rule: str
    severity: Severity
    message: str


def damaged(number: int, reason: str) -> Finding:
    """A line that cannot be read."""
    return fault(number, "damage", reason)


def fault(number: int, rule: str, message: str) -> Finding:
    """A finding that fails the lint."""
    return Finding(number=number, rule=rule, severity="fault", message=message)


def race_faults(number: int, racers: Sequence[Racer], winner: int | None) -> Iterator[Finding]:
    """What is wrong with a race by itself."""
    if winner is not None and not 0 <= winner < len(racers):
        yield fault(number, "race", f"winner {winner} is none of the {len(racers)} racers")
    elif winner is not None and (racers[winner].vendor or racers[winner].status is not Status.OK):
        yield fault(number, "race", f"winner {winner} is no schedule that ran")
    for place, racer in enumerate(racers):
        if (racer.median_us is not None) != (racer.status is Status.OK) or (racer.median_us is not None and racer.median_us <= 0):
            yield fault(number, "race", f"racer {place} of status {racer.status} with a time of {racer.median_us} µs")
        if racer.status is not Status.OK and not racer.message:
            yield fault(number, "message", f"racer {place} of status {racer.status} without a message")
