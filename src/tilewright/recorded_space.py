"""The space of a recording: its legal points are the configs that were recorded, and nothing else is needed to search it."""

from __future__ import annotations

import functools
import random
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from math import prod
from operator import itemgetter
from typing import Final

from tilewright.candidates import is_ordered
from tilewright.errors import LogDamaged, SpaceError, nearest
from tilewright.knobs import Knob, Split, copied
from tilewright.record import Config, KnobInfo, Value, config_key
from tilewright.space import Evaluation, SpaceCount

NOT_RECORDED: Final = "not in the recording"

_ABSENT: Final = -1  # in a row, where a config does not have the knob; sorts before every candidate


def recorded_knobs(knobs: Sequence[KnobInfo]) -> tuple[Knob, ...]:
    """Knobs of a recorded space, with their candidates in the recorded order."""
    return tuple(_knob(knob.name, tuple(knob.candidates)) for knob in knobs)


def _knob(name: str, values: tuple[Value, ...]) -> Knob:
    entities = [Split(tuple(int(part) for part in value)) if _is_split(value) and isinstance(value, list) else value for value in values]
    split = all(isinstance(entity, Split) for entity in entities)
    # Lists of words (orders of axes, annotations) have no order among them.
    ordered = is_ordered([entity for entity in entities if not isinstance(entity, list)]) and not any(isinstance(entity, list) for entity in entities)
    return Knob(name=name, kind="split" if split else "knob", values=values, ordered=ordered)


def _is_split(value: Value) -> bool:
    return isinstance(value, list) and all(isinstance(part, int) for part in value)


class RecordedSearchSpace:
    """A search space made of recorded configs.

    A knob is reached where the recorded configs that agree with the choices so far have it, so recordings of conditional spaces
    walk as the space did. Where no recorded config agrees, the point is refused, and the walk goes on as if the nearest recorded
    candidate had been chosen: the knobs still run to their end.

    Args:
        knobs: in the order they are chosen.
        configs: the recorded ones, in any order.
        default: the author's default schedule, where the recording knows it; else the middle of the space stands for it.

    Raises:
        LogDamaged: a config has a value that is no candidate, or two configs agree on all knobs before one that only one has.
    """

    def __init__(self, knobs: Sequence[KnobInfo], configs: Iterable[Config], default: Config | None = None) -> None:
        self.knobs = recorded_knobs(knobs)
        rows = {self._row(config): dict(config) for config in configs}
        self._rows = sorted(rows)
        self._configs = [self._in_order(rows[row]) for row in self._rows]
        if not self._rows:
            raise SpaceError("an empty recorded space: no config was recorded for this workload")
        self._refuse_ambiguous()
        self._default = self.validate(default) if default is not None else None

    def _row(self, config: Config) -> tuple[int, ...]:
        row = tuple(self._index(knob, config) for knob in self.knobs)
        if sum(index != _ABSENT for index in row) != len(config):
            unknown = sorted(set(config) - {knob.name for knob in self.knobs})
            raise LogDamaged(f"recorded config {config_key(config)} has knobs that its space does not declare: {', '.join(unknown)}")
        return row

    def _index(self, knob: Knob, config: Config) -> int:
        if knob.name not in config:
            return _ABSENT
        index = knob.find(config[knob.name])
        if index is None:
            raise LogDamaged(f"recorded config {config_key(config)}: {knob.name}={config[knob.name]!r} is no candidate of the recorded space")
        return index

    def _in_order(self, config: Config) -> dict[str, Value]:
        return {knob.name: config[knob.name] for knob in self.knobs if knob.name in config}

    def _refuse_ambiguous(self) -> None:
        for before, after, first, second in zip(self._rows, self._rows[1:], self._configs, self._configs[1:], strict=False):
            column = next(k for k in range(len(before)) if before[k] != after[k])
            if before[column] == _ABSENT:
                raise LogDamaged(
                    f"recorded configs {config_key(first)} and {config_key(second)} agree on all knobs before {self.knobs[column].name}, "
                    "and only one has it; what decides must be a knob declared earlier"
                )

    def evaluate(self, choose: Callable[[Knob], Value]) -> Evaluation:
        """Walk the knobs once, asking `choose` for each that is reached.

        Raises:
            SpaceError: `choose` gave a value that is no candidate.
        """
        low, high, recorded = 0, len(self._rows), True
        config: dict[str, Value] = {}
        for column, knob in enumerate(self.knobs):
            # Rows low..high agree on all columns before this one, so they are sorted by it and all have the knob, or none has.
            if self._rows[low][column] == _ABSENT:
                continue
            value = choose(knob)
            index = knob.index(value)
            config[knob.name] = list(value) if isinstance(value, list) else value
            low, high, found = self._narrow(low, high, column, index)
            recorded = recorded and found
        return Evaluation(config=config, violations=() if recorded else (NOT_RECORDED,))

    def _narrow(self, low: int, high: int, column: int, index: int) -> tuple[int, int, bool]:
        key = itemgetter(column)
        left = bisect_left(self._rows, index, low, high, key=key)
        found = left < high and self._rows[left][column] == index
        if not found:
            around = [self._rows[row][column] for row in (left - 1, left) if low <= row < high]
            index = min(around, key=lambda candidate: abs(candidate - index))
            left = bisect_left(self._rows, index, low, high, key=key)
        return left, bisect_right(self._rows, index, left, high, key=key), found

    def validate(self, config: Mapping[str, Value]) -> dict[str, Value]:
        """The config, in knob order, if it was recorded.

        Raises:
            SpaceError: it has an unknown knob or value, lacks a knob, or was not recorded.
        """
        names = [knob.name for knob in self.knobs]
        for name in config:
            if name not in names:
                raise SpaceError(f"unknown knob {name!r}; {nearest(str(name), names)}")

        def follow(knob: Knob) -> Value:
            if knob.name not in config:
                raise SpaceError(f"config {config_key(config)} lacks knob {knob.name!r}; it has {len(knob.values)} candidates, such as {knob.values[0]!r}")
            return config[knob.name]

        evaluation = self.evaluate(follow)
        unreached = sorted(set(config) - set(evaluation.config))
        if unreached:
            raise SpaceError(f"config {config_key(config)}: knob {unreached[0]!r} is not reached with these values of the others; leave it out")
        if evaluation.violations:
            raise SpaceError(f"config {config_key(config)}: {NOT_RECORDED}, which has {len(self._rows)} configs; see them with tilewright space --list")
        return evaluation.config

    def enumerate(self) -> Iterator[dict[str, Value]]:
        """The recorded configs, in the order of the knobs' candidates."""
        return map(copied, self._configs)

    def count(self) -> SpaceCount:
        """Recorded points, and how many combinations of candidates were not; those are known where no knob is conditional."""
        legal = len(self._rows)
        if any(_ABSENT in row for row in self._rows):
            return SpaceCount(legal=legal, points=None, rejected={}, cuts={})
        points = prod(len(knob.values) for knob in self.knobs)
        return SpaceCount(legal=legal, points=points, rejected={NOT_RECORDED: points - legal} if points > legal else {}, cuts={})

    def size_bound(self) -> int:
        """How many configs an enumeration yields: exact here."""
        return len(self._rows)

    def sample(self, n: int, rng: random.Random) -> list[dict[str, Value]]:
        """Configs drawn uniformly, with replacement."""
        return [copied(rng.choice(self._configs)) for _ in range(n)]

    def default(self) -> dict[str, Value]:
        """The recorded default schedule, else the config nearest the middle of its ordered knobs' candidates.

        The first config has the least of everything, which is rarely any good: 0.14 to 0.2 of the best speed on two spaces of the benchmark hub.
        """
        return copied(self._default or self._configs[self._middle])

    @functools.cached_property
    def _middle(self) -> int:
        inner = [column for column, knob in enumerate(self.knobs) if knob.ordered and len(knob.values) > 2]

        def off_centre(row: tuple[int, ...]) -> float:
            return sum(abs(row[column] / (len(self.knobs[column].values) - 1) - 0.5) for column in inner if row[column] != _ABSENT)

        return min(range(len(self._rows)), key=lambda number: off_centre(self._rows[number]))

    def suggestions(self) -> list[dict[str, Value]]:
        """What to measure first: the default."""
        return [self.default()]

    def __getitem__(self, index: int) -> dict[str, Value]:
        return copied(self._configs[index])

    def __len__(self) -> int:
        return len(self._configs)
