"""Numbers and versions on the command line, refused in words where they are none."""

from __future__ import annotations

import argparse
import re
from typing import Final

_VERSION: Final = re.compile(r"(\d+\.\d+)(?:[.+].*)?", re.ASCII)


def whole(text: str) -> int:
    """A whole number."""
    try:
        return int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"must be a whole number, not {text!r}") from None


def count(text: str) -> int:
    """A whole number above 0."""
    try:
        number = int(text)
    except ValueError:
        number = 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"must be a whole number above 0, not {text!r}")
    return number


def _number(text: str, *, most: float, what: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0 < number < most:
        raise argparse.ArgumentTypeError(f"must be a number {what}, not {text!r}")
    return number


def seconds(text: str) -> float:
    """A time above 0, in seconds."""
    return _number(text, most=float("inf"), what="of seconds above 0")


def positive(text: str) -> float:
    """A number above 0."""
    return _number(text, most=float("inf"), what="above 0")


def share(text: str) -> float:
    """A number between 0 and 1."""
    return _number(text, most=1.0, what="between 0 and 1")


def minor_version(text: str) -> str:
    """A version's first two numbers; what follows them is left out."""
    found = _VERSION.fullmatch(text)
    if found is None:
        raise argparse.ArgumentTypeError(f"must be MAJOR.MINOR, as 3.9, not {text!r}")
    return found[1]
