"""A part of a log as lint takes it: what nothing is wrong with in runs, the rest line by line."""

from __future__ import annotations

import math
from array import array
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from tilewright.bulk.candidates import ROUNDING_US
from tilewright.bulk.known import TARGET, WORKLOAD, Known
from tilewright.bulk.lint_lines import LINES, Start, Trial
from tilewright.bulk.other_lines import Race, Vendor
from tilewright.bulk.parts import line_count
from tilewright.errors import UsageError
from tilewright.finding import race_faults
from tilewright.lint import NEVER_RAN, FloorUs
from tilewright.record import SCHEMA, SessionEnd, SessionStart, Status, Value
from tilewright.target import Target, Toolchain
from tilewright.workload import Workload

Templates = Mapping[str, frozenset[str]]


class _Group:
    """Records of one workload and target by one protocol: how many, the first's line, the best's time, line and text."""

    __slots__ = ("at", "best_us", "count", "first", "raw")

    def __init__(self, first: int) -> None:
        self.count, self.first, self.best_us, self.at, self.raw = 0, first, math.inf, first, b""


class _Place:
    """Of a workload on a target: its keys ("" where a text is damaged), the least time, today's templates of the operator (None where not known) and its name.

    Attributes:
        protocol, group: the protocol of its last record that is ok, and what is known of those by it.
        current: the last template seen that is one of today's, or that nothing is known of.
    """

    __slots__ = ("current", "floor", "group", "operator", "protocol", "target", "templates", "workload")

    def __init__(self, workload: str = "", target: str = "", floor: float = 0.0, templates: frozenset[str] | None = None, operator: str = "") -> None:
        self.workload, self.target, self.floor, self.templates, self.operator = workload, target, floor, templates, operator
        self.protocol: str | None = None
        self.group = _Group(0)
        self.current = ""


_OK: Final = Status.OK  # looked up a million times
_CONFIG: Final = msgspec.json.Decoder(dict[str, Value])
_CONFIG_BYTES: Final = 300  # a float ends at 309 digits
_CONFIGS: Final = 1 << 16  # texts of configs remembered, some 20 MB. guess: far more than there are, but for logs made to have more
_ZEROS: Final = bytes.maketrans(b"123456789", b"000000000")
_NONE: Final = msgspec.Raw(b"")
_TOOLCHAIN: Final = msgspec.json.Decoder(Toolchain)


class LintFold:
    """What a part comes to: items in the order of its lines, which `lint_file` tells to a `Lint`.

    Items are `["run", session, trials, numbers, starts]`, `["begin", number, session]`, `["end", number, session, trials]`,
    `["vendor", number, session, name, workload]`, `["race", number, session, workload]`, and `["line", number, raw]` for a line that wants a
    closer look. Numbers count from the part's first line.
    """

    def __init__(self, floor_us: FloorUs, templates: Templates) -> None:
        self._known = Known()
        self._least: dict[tuple[str, str], float] = {}
        self._floor_us = floor_us
        self._templates = templates
        self._configs: set[bytes] = set()  # texts of configs with every digit a 0: of what type a value is does not depend on which digits it has
        self._places: dict[tuple[bytes, bytes], dict[bytes, _Place]] = {}
        self._items: list[list[Any]] = []
        self._session = ""
        self._trials: list[int] = []
        self._numbers: list[int] = []
        self._starts: list[int] = []
        self._blank = 0
        self._stale: dict[tuple[str, str], list[int]] = {}
        self._groups: dict[tuple[str, str, str], _Group] = {}

    def result(self, lines: int) -> dict[str, Any]:
        """Plain values for `fold_parts`."""
        self._flush()
        return {
            "lines": lines,
            "blank": self._blank,
            "items": self._items,
            "stale": [(*key, *counts) for key, counts in self._stale.items()],
            "groups": [(*key, group.count, group.first, group.best_us, group.at, group.raw) for key, group in self._groups.items()],
        }

    def _flush(self) -> None:
        if self._trials or self._starts:
            self._items.append(["run", self._session, *(array("q", numbers).tobytes() for numbers in (self._trials, self._numbers, self._starts))])
            self._trials, self._numbers, self._starts = [], [], []

    def _enter(self, session: str) -> tuple[str, list[int], list[int], list[int]]:
        """Go on with a session's run, or begin one: its name, trials, their lines, and lines of starts."""
        if session != self._session:
            self._flush()
            self._session = session
        return session, self._trials, self._numbers, self._starts

    def block(self, number: int, block: bytes) -> int:
        """Take a block whose first line has a number; how many lines it has, blank ones too."""
        count = line_count(block)
        try:
            lines = LINES.decode_lines(block)
        except (msgspec.MsgspecError, UsageError, ValueError, RecursionError):
            lines = []
        if len(lines) != count:  # something else is in it: blank lines, damage, another kind or schema
            for at, raw in enumerate(block.split(b"\n"), number):
                if raw and not raw.isspace():
                    self._single(at, raw)
                else:
                    self._blank += 1
            return count
        self._take(number, lines, block)
        return count

    def _single(self, at: int, raw: bytes) -> None:
        """A line by itself, in a block that holds something else."""
        try:
            line = LINES.decode(raw)
        except (msgspec.MsgspecError, UsageError, ValueError, RecursionError):
            self._suspect(at, raw)
        else:
            self._take(at, [line], raw)

    def _take(self, number: int, lines: Sequence[Any], block: bytes) -> None:
        """Take lines that decode, the first with a number, and their text."""
        suspects: list[list[Any]] = []  # items of lines that want a closer look
        best: set[_Group] = set()  # groups with a new best
        configs = self._configs
        session = self._session
        trials, numbers, starts = self._trials, self._numbers, self._starts
        # Next to each other, lines mostly agree in target and toolchain, and a trial in all with its start: comparing with the last, in place, spares copying
        # and hashing some 1,100 bytes a record. `b"" + raw` copies a text in 40 ns, `bytes(raw)` in 200 (CPython 3.11, 2026-11).
        target = toolchain = workload = config = _NONE
        places: dict[bytes, _Place] = {}  # by workload, for that target and toolchain
        place: _Place | None = None  # of that workload, where it is known
        legible = False  # that workload's text, where there is no place
        for at, line in enumerate(lines, number):
            kind = type(line)
            if kind is Trial or kind is Start:
                if line.config != config:
                    config = line.config if (b"" + line.config).translate(_ZEROS) in configs or self._legible(line.config) else _NONE
                if line.workload != workload:
                    workload, legible = line.workload, False
                    place = places.get(b"" + workload)
            if kind is Trial:
                if line.target != target or line.toolchain != toolchain:
                    target, toolchain = line.target, line.toolchain
                    places = self._places.setdefault((bytes(target), bytes(toolchain)), {})
                    place = places.get(b"" + workload)
                if place is None:
                    text = b"" + workload
                    place = places[text] = self._place_of(text, bytes(target), bytes(toolchain))
                time = line.measurement
                if time is not None and line.status is _OK:
                    us, times = time.median_us, time.times_us
                    right = place.floor <= us and time.min_us <= us <= time.max_us and (not times or len(times) == time.samples)
                else:
                    time = None
                    right = _right_failure(line)
                if not right or config is _NONE or not place.workload:
                    suspects.append(self._suspect(at))
                    continue
                if line.session != session or trials is not self._trials:
                    session, trials, numbers, starts = self._enter(line.session)
                trials.append(line.trial)
                numbers.append(at)
                if line.template != place.current:
                    self._template(at, line.template, place)
                if time is not None:
                    if time.protocol != place.protocol:
                        place.protocol = time.protocol
                        place.group = self._groups.setdefault((place.workload, place.target, time.protocol), _Group(at))
                    group = place.group
                    group.count += 1
                    anchor = time.anchor
                    if time.anchored_us is not None:
                        us = time.anchored_us
                    elif anchor is not None:
                        us = us * anchor.nominal_us / anchor.median_us
                        if us < group.best_us + ROUNDING_US:  # rounding takes longer than all else here
                            us = round(us, 3)  # as Measurement.ranked_us
                    if us < group.best_us:
                        group.best_us, group.at = us, at
                        best.add(group)
            elif kind is Start:
                if place is None:
                    legible = legible or bool(self._known.workload(bytes(workload)))
                if config is _NONE or not (legible if place is None else place.workload):
                    suspects.append(self._suspect(at))
                    continue
                if line.session != session or trials is not self._trials:
                    session, trials, numbers, starts = self._enter(line.session)
                starts.append(at)
            elif (item := self._other(at, line)) is not None:
                suspects.append(item)
        if suspects or best:
            raws = block.split(b"\n")
            for item in suspects:
                item[2] = raws[item[1] - number]
            for group in best:
                group.raw = raws[group.at - number]

    def _template(self, at: int, template: str, place: _Place) -> None:
        """Take a template that is not the one last found to be of today."""
        if place.templates is None or template in place.templates or not template:
            place.current = template
        else:
            self._stale.setdefault((place.operator, template), [0, at])[0] += 1

    def _legible(self, raw: msgspec.Raw) -> bool:
        """Whether a text, of which decoding the line showed that it is JSON, is a config's."""
        text = b"" + raw
        try:
            _CONFIG.decode(text)
        except (msgspec.MsgspecError, ValueError, RecursionError):
            return False
        alike = text.translate(_ZEROS)
        # Not where a digit decides: in an escape (half a surrogate pair), an exponent, or a number of hundreds of digits (beyond a float's range).
        if len(text) <= _CONFIG_BYTES and not any(sign in alike for sign in (b"\\", b"0e", b"0E")) and len(self._configs) < _CONFIGS:
            self._configs.add(alike)
        return True

    def _suspect(self, at: int, raw: bytes = b"") -> list[Any]:
        self._flush()
        item = ["line", at, raw]
        self._items.append(item)
        return item

    def _other(self, at: int, line: Any) -> list[Any] | None:
        """A line of another kind; its item where it wants a closer look."""
        self._flush()
        if isinstance(line, (Vendor, Race)):
            keys = (self._known.workload(bytes(line.workload)), self._known.target(bytes(line.target)))
            if not all(keys):
                return self._suspect(at)
            if isinstance(line, Vendor) and self._right_vendor(line, keys):
                self._items.append(["vendor", at, line.session, line.name, keys[0]])
                return None
            if isinstance(line, Race) and not any(race_faults(at, line.racers, line.winner)):
                self._items.append(["race", at, line.session, keys[0]])
                return None
        elif line.schema == SCHEMA and isinstance(line, SessionStart):
            self._items.append(["begin", at, line.session])
            return None
        elif line.schema == SCHEMA and isinstance(line, SessionEnd):
            self._items.append(["end", at, line.session, line.trials])
            return None
        return self._suspect(at)

    def _right_vendor(self, line: Vendor, keys: tuple[str, str]) -> bool:
        time = line.measurement
        if line.status is not Status.OK or time is None or not 0 < time.min_us <= time.median_us <= time.max_us:
            return False
        if time.samples < 1 or (time.times_us and len(time.times_us) != time.samples):
            return False
        if time.anchor is not None and not (time.anchor.median_us > 0 and time.anchor.nominal_us > 0):
            return False
        if keys not in self._least:
            self._least[keys] = self._least_us(WORKLOAD.decode(line.workload), TARGET.decode(line.target))
        return time.median_us >= self._least[keys]

    def _least_us(self, workload: Workload, target: Target) -> float:
        return 0.0 if target.backend == "interpreter" else self._floor_us(workload, target) or 0.0

    def _place_of(self, workload: bytes, target: bytes, toolchain: bytes) -> _Place:
        """What is known of the texts of a workload and a target; one without keys where a text is damaged."""
        keys = (self._known.workload(workload), self._known.target(target))
        try:
            _TOOLCHAIN.decode(toolchain)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return _Place()
        if not all(keys):
            return _Place()
        decoded = WORKLOAD.decode(workload)
        return _Place(*keys, self._least_us(decoded, TARGET.decode(target)), self._templates.get(decoded.operator), decoded.operator)


def _right_failure(line: Trial) -> bool:
    """Whether a record that is not both ok and timed says what it must, and nothing that cannot be."""
    time, status = line.measurement, line.status
    if status is _OK or not line.message:
        return False
    if time is None:
        return line.check is None or status not in NEVER_RAN
    in_order = time.min_us <= time.median_us <= time.max_us
    return status not in NEVER_RAN and in_order and (not time.times_us or len(time.times_us) == time.samples)
