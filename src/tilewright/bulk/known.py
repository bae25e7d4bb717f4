"""Workloads and targets as texts that repeat from line to line: each is decoded once."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from tilewright.errors import UsageError
from tilewright.target import Target
from tilewright.workload import Workload

WORKLOAD: Final = msgspec.json.Decoder(Workload)
TARGET: Final = msgspec.json.Decoder(Target)


class Known:
    """Keys of workloads and targets by their raw text, "" for a text that is neither."""

    def __init__(self) -> None:
        self.workloads: dict[bytes, str] = {}
        self.targets: dict[bytes, str] = {}

    def workload(self, raw: bytes) -> str:
        """The workload's key."""
        key = self.workloads.get(raw)
        if key is None:
            key = self.workloads[raw] = _key(WORKLOAD, raw)
        return key

    def target(self, raw: bytes) -> str:
        """The target's key."""
        key = self.targets.get(raw)
        if key is None:
            key = self.targets[raw] = _key(TARGET, raw)
        return key


def _key(decoder: msgspec.json.Decoder[Any], raw: bytes) -> str:
    try:
        return str(decoder.decode(raw).key)
    except (msgspec.MsgspecError, UsageError, ValueError, RecursionError):
        return ""
