"""What came of asking a child, and what replacing one took."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

ReplyKind = Literal["ok", "error", "timeout", "died", "garbage"]

_TAIL_CHARS: Final = 2000  # guess: what fits in a record's message


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """What came of a request.

    Attributes:
        kind: `ok`; `error`, an exception in the handler, after which the child lives on; `timeout`, `died` or `garbage` (an
            unreadable frame), after which it does not.
        result: the handler's answer for `ok`; class, message and traceback of its exception for `error`; else empty.
        message: why it is not `ok`, with the end of what the child printed meanwhile.
        output: what the child printed meanwhile, on stdout and stderr, the last 64 KB of it.
    """

    kind: ReplyKind
    result: Mapping[str, Any] = field(default_factory=dict)
    message: str = ""
    output: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """A part of replacing a child: `end` of the old one, `start` of the new one, and what its owner asks of it.

    Attributes:
        began_s: by the monotonic clock.
        seconds: what it took.
        parts_ms: wall time within the child, by part.
    """

    name: str
    began_s: float
    seconds: float
    parts_ms: Mapping[str, float] = field(default_factory=dict)


def exception_text(error: Mapping[str, Any]) -> str:
    """What an error frame says."""
    return f"{error.get('class', 'an exception')}: {error.get('message', '')}"


def with_tail(message: str, output: str) -> str:
    """A message with the end of what the child printed."""
    tail = output.strip()
    if not tail:
        return message
    cut = f"...{tail[-_TAIL_CHARS:]}" if len(tail) > _TAIL_CHARS else tail
    return f"{message}\nit printed: {cut}"
