"""A part of a log as lint takes it: what nothing is wrong with in runs, the rest line by line."""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal, TypeAlias

import msgspec

from tilewright.bulk.known import TARGET, WORKLOAD, Known
from tilewright.bulk.parts import line_count, nth_line
from tilewright.errors import UsageError
from tilewright.identity import Keys
from tilewright.lint import NEVER_RAN, FloorUs
from tilewright.record import (
    SCHEMA,
    Check,
    Measurement,
    RaceRecord,
    Resources,
    SessionEnd,
    SessionStart,
    Status,
    Value,
    VendorRecord,
)
from tilewright.target import Target, Toolchain
from tilewright.workload import Workload

Templates = Mapping[str, frozenset[str]]
# Keys of a workload and a target, the least time, today's templates of the operator (None where not known), and its name.
_Place: TypeAlias = tuple[str, str, float, frozenset[str] | None, str]


class _Trial(msgspec.Struct, frozen=True, gc=False, tag_field="kind", tag="trial"):
    """A record, checked field by field, but for what repeats from line to line: that is checked once for each text."""

    schema: Literal[1]
    session: str
    trial: int
    workload: msgspec.Raw
    target: msgspec.Raw
    config: dict[str, Value]
    status: Status
    message: str = ""
    toolchain: msgspec.Raw = msgspec.Raw(b"{}")
    template: str = ""
    source: str = ""
    binary: str = ""
    measurement: Measurement | None = None
    check: Check | None = None
    resources: Resources | None = None
    build_s: float = 0.0
    default: bool = False


class _Start(msgspec.Struct, frozen=True, gc=False, tag_field="kind", tag="start"):
    schema: Literal[1]
    workload: msgspec.Raw
    config: dict[str, Value]
    session: str = ""


_DECODER: Final = msgspec.json.Decoder(_Trial | _Start | VendorRecord | RaceRecord | SessionStart | SessionEnd)
_OK: Final = Status.OK  # looked up a million times
_LARGE: Final = 1 << 62  # an array holds no trial number from here on
_TOOLCHAIN: Final = msgspec.json.Decoder(Toolchain)


class LintFold:
    """What a part comes to: items in the order of its lines, which `lint_file` tells to a `Lint`.

    Items are `["run", session, trials, numbers, starts]`, `["begin", number, session]`, `["end", number, session, trials]`,
    `["vendor", number, session, name, workload]`, and `["line", number, raw]` for a line that wants a closer look. Numbers count
    from the part's first line.
    """

    def __init__(self, floor_us: FloorUs, templates: Templates) -> None:
        self._known = Known()
        self._keys = Keys()
        self._least: dict[tuple[str, str], float] = {}
        self._floor_us = floor_us
        self._templates = templates
        self._texts = (b"", b"", b"")
        self._place: _Place = ("", "", 0.0, None, "")
        self._places: dict[tuple[bytes, bytes, bytes], _Place] = {}
        self._workload = b""
        self._items: list[list[Any]] = []
        self._session = ""
        self._trials = array("q")
        self._numbers = array("q")
        self._starts = array("q")
        self._blank = 0
        self._stale: dict[tuple[str, str], list[int]] = {}
        # By keys: count, first line, best time, its line, its text.
        self._groups: dict[tuple[str, str, str], list[Any]] = {}

    def result(self, lines: int) -> dict[str, Any]:
        """Plain values for `fold_parts`."""
        self._flush()
        return {
            "lines": lines,
            "blank": self._blank,
            "items": self._items,
            "stale": [(*key, *counts) for key, counts in self._stale.items()],
            "groups": [(*key, *group) for key, group in self._groups.items()],
        }

    def _flush(self) -> None:
        if self._trials or self._starts:
            self._items.append(["run", self._session, self._trials.tobytes(), self._numbers.tobytes(), self._starts.tobytes()])
            self._trials, self._numbers, self._starts = array("q"), array("q"), array("q")

    def _enter(self, session: str) -> tuple[str, array[int], array[int], array[int]]:
        """Go on with a session's run, or begin one: its name, trials, their lines, and lines of starts."""
        if session != self._session:
            self._flush()
            self._session = session
        return session, self._trials, self._numbers, self._starts

    def block(self, number: int, block: bytes) -> int:
        """Take a block whose first line has a number; how many lines it has, blank ones too."""
        count = line_count(block)
        try:
            lines = _DECODER.decode_lines(block)
        except (msgspec.MsgspecError, UsageError, ValueError, RecursionError):
            lines = []
        if len(lines) != count:  # something else is in it: blank lines, damage, another kind or schema
            for at, raw in enumerate(block.split(b"\n"), number):
                if raw and not raw.isspace():
                    self._single(at, raw)
                else:
                    self._blank += 1
            return count
        suspects, best = self._take(number, lines)
        for item in suspects:
            item[2] = nth_line(block, item[1] - number)
        for key, at in best.items():
            self._groups[key][4] = nth_line(block, at - number)
        return count

    def _single(self, at: int, raw: bytes) -> None:
        """A line by itself, in a block that holds something else."""
        try:
            line = _DECODER.decode(raw)
        except (msgspec.MsgspecError, UsageError, ValueError, RecursionError):
            self._suspect(at, raw)
            return
        suspects, best = self._take(at, [line])
        for item in suspects:
            item[2] = raw
        for key in best:
            self._groups[key][4] = raw

    def _take(self, number: int, lines: Sequence[Any]) -> tuple[list[list[Any]], dict[tuple[str, str, str], int]]:
        """Take lines that decode, the first with a number.

        Returns:
            Items of lines that want a closer look, their texts to be filled in; and the lines that are the best of their group so far.
        """
        suspects: list[list[Any]] = []
        best: dict[tuple[str, str, str], int] = {}
        known, groups = self._known.workload, self._groups
        texts, session, workload_text = self._texts, self._session, self._workload
        workload, target, floor, templates, operator = self._place
        trials, numbers, starts = self._trials, self._numbers, self._starts
        for at, line in enumerate(lines, number):
            if line.__class__ is _Trial:
                # Next to each other, lines mostly agree: comparing with the last spares hashing some 900 bytes a record.
                found = (bytes(line.workload), bytes(line.target), bytes(line.toolchain))
                if found != texts:
                    texts = self._texts = found
                    place = self._places.get(texts)
                    if place is None:
                        place = self._places[texts] = self._place_of(*texts)
                    self._place = workload, target, floor, templates, operator = place
                time, status, trial = line.measurement, line.status, line.trial
                if time is not None and status is _OK:
                    right = (
                        floor <= time.median_us
                        and 0 < time.min_us <= time.median_us <= time.max_us
                        and time.samples >= 1
                        and (not time.times_us or len(time.times_us) == time.samples)
                    )
                else:
                    right = _right_failure(line)
                if not right or not workload or not 0 <= trial < _LARGE or line.build_s < 0:
                    suspects.append(self._suspect(at))
                    continue
                if line.session != session or trials is not self._trials:
                    session, trials, numbers, starts = self._enter(line.session)
                trials.append(trial)
                numbers.append(at)
                if templates is not None and line.template not in templates and line.template:
                    self._stale.setdefault((operator, line.template), [0, at])[0] += 1
                if time is not None and status is _OK:
                    key = (workload, target, time.protocol)
                    us = time.median_us if time.anchor is None else time.ranked_us
                    group = groups.get(key)
                    if group is None:
                        groups[key] = [1, at, us, at, b""]
                        best[key] = at
                    else:
                        group[0] += 1
                        if us < group[2]:
                            group[2], group[3] = us, at
                            best[key] = at
            elif line.__class__ is _Start:
                text = bytes(line.workload)
                if text != workload_text:
                    if not known(text):
                        suspects.append(self._suspect(at))
                        continue
                    workload_text = self._workload = text
                if line.session != session or trials is not self._trials:
                    session, trials, numbers, starts = self._enter(line.session)
                starts.append(at)
            else:
                self._other(at, line)
        return suspects, best

    def _suspect(self, at: int, raw: bytes = b"") -> list[Any]:
        self._flush()
        item = ["line", at, raw]
        self._items.append(item)
        return item

    def _other(self, at: int, line: Any) -> None:
        self._flush()
        if line.schema == SCHEMA and isinstance(line, SessionStart):
            self._items.append(["begin", at, line.session])
        elif line.schema == SCHEMA and isinstance(line, SessionEnd):
            self._items.append(["end", at, line.session, line.trials])
        elif line.schema == SCHEMA and isinstance(line, VendorRecord) and self._right_vendor(line):
            self._items.append(["vendor", at, line.session, line.name, self._keys.workload(line.workload)])
        else:
            self._items.append(["line", at, msgspec.json.encode(line, enc_hook=dict)])

    def _right_vendor(self, line: VendorRecord) -> bool:
        time = line.measurement
        if line.status is not Status.OK or time is None or not 0 < time.min_us <= time.median_us <= time.max_us:
            return False
        if time.samples < 1 or (time.times_us and len(time.times_us) != time.samples):
            return False
        place = (self._keys.workload(line.workload), self._keys.target(line.target))
        if place not in self._least:
            self._least[place] = self._least_us(line.workload, line.target)
        return time.median_us >= self._least[place]

    def _least_us(self, workload: Workload, target: Target) -> float:
        return 0.0 if target.backend == "interpreter" else self._floor_us(workload, target) or 0.0

    def _place_of(self, workload: bytes, target: bytes, toolchain: bytes) -> _Place:
        """Keys, least time and today's templates for the texts of a workload and a target; no keys where one of the texts is damaged."""
        keys = (self._known.workload(workload), self._known.target(target))
        try:
            _TOOLCHAIN.decode(toolchain)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return ("", "", 0.0, None, "")
        if not all(keys):
            return ("", "", 0.0, None, "")
        decoded = WORKLOAD.decode(workload)
        return (*keys, self._least_us(decoded, TARGET.decode(target)), self._templates.get(decoded.operator), decoded.operator)


def _right_failure(line: _Trial) -> bool:
    """Whether a record that is not both ok and timed says what it must, and nothing that cannot be."""
    time, status = line.measurement, line.status
    if status is _OK or not line.message:
        return False
    if time is None:
        return line.check is None or status not in NEVER_RAN
    in_order = 0 < time.min_us <= time.median_us <= time.max_us
    return status not in NEVER_RAN and in_order and time.samples >= 1 and (not time.times_us or len(time.times_us) == time.samples)
