"""What lint knows of texts that repeat from line to line: workloads on targets, and configs. It is kept from one part of a log to the next."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final

import msgspec

from tilewright.bulk.known import TARGET, WORKLOAD, Known
from tilewright.bulk.other_lines import Vendor
from tilewright.lint import FloorUs
from tilewright.record import Value
from tilewright.target import Target, Toolchain
from tilewright.workload import Workload

Templates = Mapping[str, frozenset[str]]

ZEROS: Final = bytes.maketrans(b"123456789", b"000000000")
_TOOLCHAIN: Final = msgspec.json.Decoder(Toolchain)
_CONFIG: Final = msgspec.json.Decoder(dict[str, Value])
_CONFIG_BYTES: Final = 300  # a float ends at 309 digits
_CONFIGS: Final = 1 << 16  # texts of configs remembered, some 20 MB. guess: far more than there are, but for logs made to have more


class Group:
    """Records of one workload and target by one protocol: how many, the first's line, the best's time, line and text. A line is a part's place and a number."""

    __slots__ = ("at", "best_us", "count", "first", "raw")

    def __init__(self, first: tuple[int, int]) -> None:
        self.count, self.first, self.best_us, self.at, self.raw = 0, first, math.inf, first, b""


class Place:
    """Of a workload on a target: its keys ("" where a text is damaged), the least time, today's templates of the operator (None where not known) and its name.

    Attributes:
        protocol, group: the protocol of its last record that is ok, and what is known of those by it.
        current: the templates seen that are of today's, or that nothing is known of.
    """

    __slots__ = ("current", "floor", "group", "operator", "protocol", "target", "templates", "workload")

    def __init__(self, workload: str = "", target: str = "", floor: float = 0.0, templates: frozenset[str] | None = None, operator: str = "") -> None:
        self.workload, self.target, self.floor, self.templates, self.operator = workload, target, floor, templates, operator
        self.protocol: str | None = None
        self.group = Group((0, 0))
        self.current: set[str] = set()


class Texts:
    """What is known of texts.

    Attributes:
        known: keys of workloads and targets.
        configs: texts of configs with every digit a 0: of what type a value is does not depend on which digits it has.
        places: by the texts of target and toolchain, then of workload.
    """

    def __init__(self, floor_us: FloorUs, templates: Templates) -> None:
        self.known = Known()
        self.configs: set[bytes] = set()
        self.places: dict[tuple[bytes, bytes], dict[bytes, Place]] = {}
        self._floor_us = floor_us
        self._templates = templates
        self._least: dict[tuple[str, str], float] = {}

    def config(self, raw: msgspec.Raw) -> bool:
        """Whether a text, of which decoding the line showed that it is JSON, is a config's; if so, it is remembered as in `configs`."""
        text = b"" + raw
        try:
            _CONFIG.decode(text)
        except (msgspec.MsgspecError, ValueError, RecursionError):
            return False
        alike = text.translate(ZEROS)
        # Not where a digit decides: in an escape (half a surrogate pair), an exponent, or a number of hundreds of digits (beyond a float's range).
        if len(text) <= _CONFIG_BYTES and not any(sign in alike for sign in (b"\\", b"0e", b"0E")) and len(self.configs) < _CONFIGS:
            self.configs.add(alike)
        return True

    def place(self, workload: bytes, target: bytes, toolchain: bytes) -> Place:
        """What is known of the texts of a workload and a target; one without keys where a text is damaged."""
        keys = (self.known.workload(workload), self.known.target(target))
        try:
            _TOOLCHAIN.decode(toolchain)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return Place()
        if not all(keys):
            return Place()
        decoded = WORKLOAD.decode(workload)
        return Place(*keys, self._least_us(decoded, TARGET.decode(target)), self._templates.get(decoded.operator), decoded.operator)

    def least_us(self, keys: tuple[str, str], line: Vendor) -> float:
        """The least time that a vendor's kernel can take, by the keys of workload and target."""
        if keys not in self._least:
            self._least[keys] = self._least_us(WORKLOAD.decode(line.workload), TARGET.decode(line.target))
        return self._least[keys]

    def _least_us(self, workload: Workload, target: Target) -> float:
        return 0.0 if target.backend == "interpreter" else self._floor_us(workload, target) or 0.0
