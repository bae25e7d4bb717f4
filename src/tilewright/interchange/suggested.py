"""Configs of other tools as a search's first candidates: matched to knobs by name, refused with a reason where they are not legal."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tilewright.errors import SpaceError, TemplateError, nearest
from tilewright.interchange.config_files import DEFAULTS, GivenConfig, read_configs
from tilewright.interchange.names import Names, Plain
from tilewright.interchange.suggested_space import SuggestedSpace
from tilewright.knobs import SCHEDULE, Knob, Value, listing, typed_key
from tilewright.points import Evaluation, SearchSpace
from tilewright.record import config_key
from tilewright.workload import Workload

# Points that complete one config before it is given up, for each schedule. guess: a tenth of a second at a template's 30,000 passes/s.
_COMPLETIONS: Final = 512
# Reasons shown of the configs that were refused.
_SHOWN: Final = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """What a config asks of one knob.

    Attributes:
        parts: of a split by place, where it is one; -1 is the innermost.
        value: the whole value; None where parts are asked for.
    """

    value: Plain | None = None
    parts: Mapping[int, Plain]

    @property
    def shown(self) -> str:
        """As messages say it."""
        if self.value is not None:
            return repr(list(self.value) if isinstance(self.value, tuple) else self.value)
        return ", ".join(repr(part) if place == -1 else f"{part!r} in part {place}" for place, part in self.parts.items())

    def candidates(self, knob: Knob) -> list[Value]:
        """The candidates that meet it, in the knob's order.

        Of a split whose parts are all given, the outermost follows from the extent: where no candidate is just that, those of the same inner parts are.
        """
        exact = [value for value in knob.values if self._meets(value)]
        if exact or not isinstance(self.value, tuple) or len(self.value) < 2 or not isinstance(self.value[0], int):
            return exact
        wanted = typed_key(self.value)
        return [value for value in knob.values if isinstance(value, list) and len(value) == len(self.value) and typed_key(value)[2:] == wanted[2:]]

    def _meets(self, value: Value) -> bool:
        if not isinstance(value, list):
            wanted = self.value if self.value is not None else self.parts.get(-1)
            return typed_key(value) == typed_key(wanted)
        if isinstance(self.value, tuple):
            return [typed_key(word) for word in value] == [typed_key(word) for word in self.value]
        # The outermost part follows from the extent, so it says nothing where an inner one is given.
        inner = {place: part for place, part in self.parts.items() if place not in (0, -len(value))} or self.parts
        return bool(inner) and all(-len(value) <= place < len(value) and typed_key(value[place]) == typed_key(part) for place, part in inner.items())


@dataclass(frozen=True, slots=True, kw_only=True)
class Suggestions:
    """Configs of a file for one space.

    Attributes:
        configs: the legal ones, in the file's order, none twice.
        given: how many the file has.
        refused: the others: where they stand, and why.
    """

    configs: tuple[dict[str, Value], ...]
    given: int
    refused: tuple[tuple[str, str], ...]

    def summary(self, path: Path, workload: Workload) -> str:
        """What became of the file, in a few lines."""
        text = f"{path}: {len(self.configs)} first candidates of {self.given} configs for {workload.key}"
        if self.refused:
            text += f"; refused {len(self.refused)}:" + "".join(f"\n  {place}: {reason}" for place, reason in self.refused[:_SHOWN])
            text += f"\n  and {len(self.refused) - _SHOWN} more" if len(self.refused) > _SHOWN else ""
        return text


def match_configs(given: Sequence[GivenConfig], space: SearchSpace, names: Names) -> Suggestions:
    """Match configs against a space's candidates; nothing else of them is used.

    A knob that a config does not name takes `triton.Config`'s default where it has one, then that of the author's default schedule, then
    the first candidate with which the whole is legal. A knob that is not reached at that point is passed over.
    """
    found: dict[str, dict[str, Value]] = {}
    refused: list[tuple[str, str]] = []
    for one in given:
        try:
            if one.refused:
                raise SpaceError(one.refused)
            config = _completed(space, _wishes(one.values, space.knobs, names), _preferences(one.values, space, names))
        except (SpaceError, TemplateError) as error:
            refused.append((one.place, str(error)))
            continue
        found.setdefault(config_key(config), config)
    return Suggestions(configs=tuple(found.values()), given=len(given), refused=tuple(refused))


def _wishes(values: Mapping[str, Plain], knobs: Sequence[Knob], names: Names) -> dict[str, Wish]:
    known = {knob.name: knob for knob in knobs}
    wishes: dict[str, Wish] = {}
    for name, value in values.items():
        knob, part = _meant(name, known, names)
        if not knob:
            continue
        before = wishes.get(knob, Wish(parts={}))
        plain = part is None and not isinstance(known[knob].values[0], list)
        if plain or isinstance(value, tuple):
            wishes[knob] = Wish(value=value, parts={})
        else:
            wishes[knob] = Wish(parts={**before.parts, (-1 if part is None else part): value})
    return wishes


def _meant(name: str, known: Mapping[str, Knob], names: Names) -> tuple[str, int | None]:
    """The knob that a name stands for, and the part of it; no knob where the name is to be passed over."""
    rule = next((rule for rule in names.rules if rule.name == name), None)
    if rule is not None:
        if rule.knob and rule.knob not in known:
            raise SpaceError(f"{name} is mapped to {rule.knob!r}, and there is no such knob; {nearest(rule.knob, known)}")
        return rule.knob, rule.part
    if name in known:
        return name, None
    split = re.fullmatch(r"(.+)_(\d{1,2})", name)
    if split and split[1] in known:
        return split[1], int(split[2])
    raise SpaceError(f"{name!r} is no knob here: say which it is with --map KNOB={name}, or that it is none with --map ={name}; {nearest(name, known)}")


def _preferences(values: Mapping[str, Plain], space: SearchSpace, names: Names) -> dict[str, list[Value]]:
    """For knobs that a config does not name: what `triton.Config` takes without a word, then what the author's default has."""
    preferred: dict[str, list[Value]] = {}
    for option, value in DEFAULTS.items():
        knob = next((rule.knob for rule in names.rules if rule.name == option), option)
        if option not in values:
            preferred.setdefault(knob, []).append(value)
    for knob, chosen in space.default().items():
        preferred.setdefault(knob, []).append(chosen)
    return preferred


def _completed(space: SearchSpace, wishes: Mapping[str, Wish], preferred: Mapping[str, Sequence[Value]]) -> dict[str, Value]:
    reasons: list[str] = []
    reached: dict[str, Value] | None = None  # legal, and without a knob that was named
    for schedule in _schedules(space, wishes, preferred):
        wanted = {**wishes, SCHEDULE: Wish(value=schedule, parts={})} if schedule else dict(wishes)
        try:
            for evaluation in _walk(space, wanted, preferred):
                if evaluation.violations:
                    reasons += evaluation.violations
                elif wishes.keys() <= evaluation.config.keys():
                    return evaluation.config
                else:
                    reached = reached or evaluation.config
        except (SpaceError, TemplateError) as error:
            reasons.append(str(error))
    if reached is not None:
        return reached
    # One says enough: other schedules refuse it for much the same.
    raise SpaceError(reasons[0] if reasons else "no point of the space has these values")


def _schedules(space: SearchSpace, wishes: Mapping[str, Wish], preferred: Mapping[str, Sequence[Value]]) -> list[str]:
    """Schedules to try, the default's first; an empty word where the space has one."""
    knob = next((knob for knob in space.knobs if knob.name == SCHEDULE), None)
    if knob is None:
        return [""]
    if SCHEDULE in wishes:
        asked = [str(value) for value in wishes[SCHEDULE].candidates(knob)]
        if not asked:
            raise SpaceError(f"no schedule {wishes[SCHEDULE].value!r}; {listing(knob.values, str(wishes[SCHEDULE].value))}")
        return asked
    return sorted(map(str, knob.values), key=lambda name: name not in preferred.get(SCHEDULE, ()))


def _walk(space: SearchSpace, wishes: Mapping[str, Wish], preferred: Mapping[str, Sequence[Value]]) -> Iterator[Evaluation]:
    """Points that meet the wishes, the knobs that are free varied from the last one on."""
    places: list[int] = []
    for _ in range(_COMPLETIONS):
        sizes: list[int] = []

        def choose(knob: Knob, sizes: list[int] = sizes, places: list[int] = places) -> Value:
            choices = _choices(knob, wishes, preferred)
            place = places[len(sizes)] if len(sizes) < len(places) else 0
            sizes.append(len(choices))
            return choices[min(place, len(choices) - 1)]

        yield space.evaluate(choose)
        places = [*places, *[0] * len(sizes)][: len(sizes)]
        while places and places[-1] + 1 >= sizes[len(places) - 1]:
            places.pop()
        if not places:
            return
        places[-1] += 1


def _choices(knob: Knob, wishes: Mapping[str, Wish], preferred: Mapping[str, Sequence[Value]]) -> list[Value]:
    if knob.name in wishes:
        choices = wishes[knob.name].candidates(knob)
        if not choices:
            raise SpaceError(f"knob {knob.name!r}: no candidate is {wishes[knob.name].shown}; {listing(knob.values)}")
        return choices
    first = [value for value in preferred.get(knob.name, ()) if knob.find(value) is not None]
    return list({typed_key(value): value for value in (*first, *knob.values)}.values())


def suggesting(
    make_space: Callable[[Workload], SearchSpace], path: Path, names: Sequence[str], note: Callable[[str], None]
) -> Callable[[Workload], SearchSpace]:
    """A maker of spaces whose first candidates come from a file, for `Device.make_space`.

    Args:
        make_space: makes the spaces themselves.
        path: the file, as `read_configs` takes it.
        names: rules for its names, as `Names.parse` takes them.
        note: told what became of the file, once for each workload.

    Raises:
        UsageError, HostError: the file or a rule cannot be read.
    """
    given, rules = read_configs(path), Names.parse(names)
    known: dict[Workload, SuggestedSpace] = {}

    def make(workload: Workload) -> SearchSpace:
        if workload not in known:
            space = make_space(workload)
            found = match_configs(given, space, rules)
            note(found.summary(path, workload))
            known[workload] = SuggestedSpace(space, found.configs)
        return known[workload]

    return make
