"""Parts of a log as lint takes them: what nothing is wrong with in runs, the rest line by line."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from typing import Any, Final

import msgspec

from tilewright.bulk.candidates import ROUNDING_US
from tilewright.bulk.lint_lines import LINE, LINES, Start, Trial
from tilewright.bulk.lint_runs import run_columns
from tilewright.bulk.lint_texts import ZEROS, Group, Place, Templates, Texts
from tilewright.bulk.other_lines import Race, Vendor
from tilewright.bulk.parts import Part, nth_line, views_of
from tilewright.codec import decode_line
from tilewright.errors import LogError, UsageError
from tilewright.finding import race_faults
from tilewright.lint import NEVER_RAN, FloorUs
from tilewright.log import collector_paused
from tilewright.record import SCHEMA, SessionEnd, SessionStart, Status

_OK: Final = Status.OK  # looked up a million times
_NONE: Final = msgspec.Raw(b"")


class LintFold:
    """What parts come to: items in the order of its lines, which `lint_file` tells to a `Lint`.

    Workloads, targets, toolchains and configs are taken as they stand: where a line has one twice, the first is overlooked. Who finds that such a line is
    damaged goes through all again, thoroughly: then each line is read by itself, and whole too.

    Items are `["run", session, *columns]`, as of `run_columns`, `["begin", number, session]`, `["end", number, session, trials]`,
    `["vendor", number, session, name, workload]`, `["race", number, session, workload]`, and `["line", number, raw]` for a line that wants a
    closer look. Numbers count from the part's first line.
    """

    def __init__(self, floor_us: FloorUs, templates: Templates, *, thorough: bool = False) -> None:
        self._thorough = thorough
        self._texts = Texts(floor_us, templates)
        self._known = self._texts.known
        self._groups: dict[tuple[str, str, str], Group] = {}  # over all parts: in a part alone, each of its many groups has a new best time and again
        self._begin(0)

    def _begin(self, place: int) -> None:
        self._place = place
        self._items: list[list[Any]] = []
        self._session = ""
        self._trials: list[int] = []
        self._numbers: list[int] = []
        self._starts: list[int] = []
        self._blank = 0
        self._stale: dict[tuple[str, str], list[int]] = {}

    def part(self, place: int, part: Part) -> dict[str, Any]:
        """What a part comes to, by its place among all: plain values for `share_out`."""
        self._begin(place)
        number = 1
        with collector_paused():
            for _, block, listed, count in views_of(part):
                self.block(number, block, listed, count)
                number += count
        self._flush()
        return {
            "place": place,
            "lines": number - 1,
            "blank": self._blank,
            "items": self._items,
            "stale": [(*key, *counts) for key, counts in self._stale.items()],
        }

    def groups(self) -> list[tuple[Any, ...]]:
        """Of all parts taken, records by workload, target and protocol: plain values for `share_out`."""
        return [(*key, group.count, group.first, group.best_us, group.at, group.raw) for key, group in self._groups.items()]

    def _flush(self) -> None:
        if self._trials or self._starts:
            self._items.append(["run", self._session, *run_columns(self._trials, self._numbers, self._starts)])
            self._trials, self._numbers, self._starts = [], [], []

    def _enter(self, session: str) -> tuple[str, list[int], list[int], list[int]]:
        """Go on with a session's run, or begin one: its name, trials, their lines, and lines of starts."""
        if session != self._session:
            self._flush()
            self._session = session
        return session, self._trials, self._numbers, self._starts

    def block(self, number: int, block: memoryview, listed: memoryview, count: int) -> None:
        """Take a block, as of `views_of`, whose first line has a number. Nothing of it may be kept but copies."""
        try:
            lines = [] if self._thorough else LINES.decode(listed)
        except (msgspec.MsgspecError, UsageError, ValueError, RecursionError):
            lines = []
        if len(lines) == count:
            self._take(number, lines, block)
            return
        for at, raw in enumerate(bytes(block).split(b"\n"), number):  # something else is in it: blank lines, damage, another kind or schema
            if raw and not raw.isspace():
                self._single(at, raw)
            else:
                self._blank += 1

    def _single(self, at: int, raw: bytes) -> None:
        """A line by itself, in a block that holds something else."""
        try:
            if self._thorough:
                decode_line(raw)
            line = LINE.decode(raw)
        except (msgspec.MsgspecError, UsageError, LogError, ValueError, RecursionError):
            self._suspect(at, raw)
        else:
            self._take(at, [line], raw)

    def _take(self, number: int, lines: Sequence[Any], block: bytes | memoryview) -> None:
        """Take lines that decode, the first with a number, and their text."""
        suspects: list[list[Any]] = []  # items of lines that want a closer look
        best: set[Group] = set()  # groups with a new best
        texts, configs = self._texts, self._texts.configs
        session: str | None = None
        trials, numbers, starts = self._trials, self._numbers, self._starts
        # Next to each other, lines mostly agree in target and toolchain, and a trial in all with its start: comparing with the last, in place, spares copying
        # and hashing some 1,100 bytes a record. `b"" + raw` copies a text in 40 ns, `bytes(raw)` in 200 (CPython 3.11, 2026-11).
        target = toolchain = workload = config = _NONE
        places: dict[bytes, Place] = {}  # by workload, for that target and toolchain
        place: Place | None = None  # of that workload, where it is known
        legible = False  # that workload's text, where there is no place
        for at, line in enumerate(lines, number):
            kind = type(line)
            if kind is Trial:
                if line.config != config:
                    config = line.config if (b"" + line.config).translate(ZEROS) in configs or texts.config(line.config) else _NONE
                if line.workload != workload:
                    workload, legible = line.workload, False
                    place = places.get(b"" + workload)
                if line.target != target or line.toolchain != toolchain:
                    target, toolchain = line.target, line.toolchain
                    places = texts.places.setdefault((bytes(target), bytes(toolchain)), {})
                    place = places.get(b"" + workload)
                if place is None:
                    text = b"" + workload
                    place = places[text] = texts.place(text, bytes(target), bytes(toolchain))
                time = line.measurement
                if time is not None and line.status is _OK:
                    us, times = time.median_us, time.times_us
                    right = place.floor <= us and time.min_us <= us <= time.max_us and (not times or len(times) == time.samples)
                else:
                    time = None
                    right = _right_failure(line)
                if not right or config is _NONE or not place.workload:
                    suspects.append(self._suspect(at))
                    session = None
                    continue
                if line.session != session:
                    session, trials, numbers, starts = self._enter(line.session)
                trials.append(line.trial)
                numbers.append(at)
                if line.template not in place.current:
                    self._template(at, line.template, place)
                if time is not None:
                    if time.protocol != place.protocol:
                        place.protocol = time.protocol
                        place.group = self._groups.setdefault((place.workload, place.target, time.protocol), Group((self._place, at)))
                        if not place.group.count:
                            best.add(place.group)  # the first is the best so far, whatever its time
                    group = place.group
                    group.count += 1
                    anchor = time.anchor
                    if time.anchored_us is not None:
                        us = time.anchored_us
                    elif anchor is not None:
                        anchored = us * anchor.nominal_us / anchor.median_us
                        us = anchored if anchored < inf else us
                        if us < group.best_us + ROUNDING_US:  # rounding takes longer than all else here
                            us = round(us, 3)  # as Measurement.ranked_us
                    if us < group.best_us:
                        group.best_us, group.at = us, (self._place, at)
                        best.add(group)
            elif kind is Start:
                if line.config != config:
                    config = line.config if (b"" + line.config).translate(ZEROS) in configs or texts.config(line.config) else _NONE
                if line.workload != workload:
                    workload, legible = line.workload, False
                    place = places.get(b"" + workload)
                if place is None:
                    legible = legible or bool(self._known.workload(b"" + workload))
                if config is _NONE or not (legible if place is None else place.workload):
                    suspects.append(self._suspect(at))
                    session = None
                    continue
                if line.session != session:
                    session, trials, numbers, starts = self._enter(line.session)
                starts.append(at)
            else:
                session = None
                if (item := self._other(at, line)) is not None:
                    suspects.append(item)
        if suspects:
            raws = bytes(block).split(b"\n")
            for item in suspects:
                item[2] = raws[item[1] - number]
        for group in best:  # mostly none or one
            group.raw = nth_line(bytes(block), group.at[1] - number)

    def _template(self, at: int, template: str, place: Place) -> None:
        """Take a template that was not yet found to be of today."""
        if place.templates is None or template in place.templates or not template:
            place.current.add(template)
        else:
            self._stale.setdefault((place.operator, template), [0, at])[0] += 1

    def _suspect(self, at: int, raw: bytes = b"") -> list[Any]:
        self._flush()
        item = ["line", at, raw]
        self._items.append(item)
        return item

    def _other(self, at: int, line: Any) -> list[Any] | None:
        """A line of another kind; its item where it wants a closer look."""
        self._flush()
        if isinstance(line, (Vendor, Race)):
            keys = (self._known.workload(b"" + line.workload), self._known.target(b"" + line.target))
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
        elif line.schema == SCHEMA and isinstance(line, SessionEnd) and abs(line.trials) < 1 << 63:  # msgpack holds no more
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
        return time.median_us >= self._texts.least_us(keys, line)


def _right_failure(line: Trial) -> bool:
    """Whether a record that is not both ok and timed says what it must, and nothing that cannot be."""
    time, status = line.measurement, line.status
    if status is _OK or not line.message:
        return False
    if time is None:
        return line.check is None or status not in NEVER_RAN
    in_order = time.min_us <= time.median_us <= time.max_us
    return status not in NEVER_RAN and in_order and (not time.times_us or len(time.times_us) == time.samples)
