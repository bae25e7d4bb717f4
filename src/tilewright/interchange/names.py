"""How knobs are called elsewhere: `tile_m=BLOCK_M`, given by the person who knows both sides."""

from __future__ import annotations

import keyword
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from tilewright.errors import UsageError, nearest
from tilewright.record import Config, Value
from tilewright.workload import NAME

# What another tool's config holds: a number or a word, the words of an order or an annotation, or all parts of a split.
Plain = int | float | str | bool | tuple[str, ...] | tuple[int, ...]

_RULE: Final = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)?(?:\.(\d{1,2}))?=([A-Za-z_][A-Za-z0-9_]*)?")


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One name: `tile_k.1=BLOCK_K` is knob `tile_k`, part 1, called `BLOCK_K`.

    Attributes:
        knob: ours; empty where their name stands for no knob and is passed over.
        part: of a split, 0 the outermost; None for the innermost, and for knobs that are no split.
        name: theirs; empty where the knob is left out.
    """

    knob: str
    part: int | None
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Names:
    """Rules for going from knobs to other names, and back. A knob without a rule keeps its name; the parts of a split are then
    called `<knob>_0`, `<knob>_1`, ..., outermost first.
    """

    rules: tuple[Rule, ...] = ()

    @classmethod
    def parse(cls, texts: Iterable[str]) -> Names:
        """Read rules as `--map` takes them.

        Raises:
            UsageError: one is not of the form KNOB=NAME, or a name stands twice.
        """
        rules: list[Rule] = []
        for text in texts:
            match = _RULE.fullmatch(text.strip())
            if match is None or not (match[1] or (match[3] and not match[2])):
                raise UsageError(
                    f"--map {text!r} is not KNOB=NAME; as in tile_m=BLOCK_M (the innermost part of a split), tile_k.1=BLOCK_K (a part by its place), "
                    "split_k= (a knob left out) or =GROUP_M (a name that stands for no knob)"
                )
            if keyword.iskeyword(match[3] or ""):
                raise UsageError(f"--map {text!r}: {match[3]!r} is a word of Python's own; it cannot name an argument")
            rule = Rule(knob=match[1] or "", part=int(match[2]) if match[2] else None, name=match[3] or "")
            if rule.name and rule.name in {known.name for known in rules}:
                raise UsageError(f"--map {text!r}: {rule.name} stands for something already; one name is one knob")
            rules.append(rule)
        return cls(rules=tuple(rules))

    def of(self, knob: str) -> tuple[Rule, ...]:
        """The rules of a knob."""
        return tuple(rule for rule in self.rules if rule.knob == knob)

    def apply(self, values: Mapping[str, Value]) -> dict[str, Plain]:
        """A config, or a workload's parameters, in the other names.

        Raises:
            UsageError: a rule asks for a part that a knob does not have, or two knobs get one name.
        """
        named: dict[str, Plain] = {}
        for knob, value in values.items():
            for name, plain in self._named(knob, value):
                if name in named:
                    raise UsageError(f"{name} would stand for two things in {dict(values)!r}; call one of them otherwise: --map {knob}=...")
                named[name] = plain
        return named

    def _named(self, knob: str, value: Value) -> list[tuple[str, Plain]]:
        rules = self.of(knob)
        parts = split_parts(value)
        if not rules:
            return [(f"{knob}_{place}", part) for place, part in enumerate(parts)] if parts else [(knob, _plain(value))]
        found: list[tuple[str, Plain]] = []
        for rule in rules:
            if not rule.name:
                continue
            if rule.part is None:
                found.append((rule.name, parts[-1] if parts else _plain(value)))
            elif rule.part < len(parts):
                found.append((rule.name, parts[rule.part]))
            else:
                raise UsageError(f"--map {knob}.{rule.part}={rule.name}: {knob}={value!r} has no part {rule.part}; its parts are 0 to {len(parts) - 1}")
        return found

    def check(self, known: Iterable[str]) -> None:
        """Refuse rules for knobs that nothing has.

        Raises:
            UsageError: there is such a rule.
        """
        names = sorted(set(known))
        for rule in self.rules:
            if rule.knob and rule.knob not in names:
                raise UsageError(f"--map {rule.knob}={rule.name}: there is no {rule.knob!r} here; {nearest(rule.knob, names)}")


def split_parts(value: Value) -> Sequence[int]:
    """The parts of a split's value, outermost first; none for another knob's."""
    parts = [part for part in value if isinstance(part, int)] if isinstance(value, list) else []
    return parts if isinstance(value, list) and len(parts) == len(value) else ()


def one_line(text: str) -> str:
    """Text for a comment: printable ASCII on one line, whatever a log says."""
    return " ".join("".join(letter if letter.isprintable() and letter.isascii() else " " for letter in text).split())


def identifier(text: str) -> str:
    """A name for a variable or a file made of letters, digits and `_`."""
    made = re.sub(r"[^A-Za-z0-9_]+", "_", text).strip("_")
    return made if NAME.match(made) else f"_{made}"


def _plain(value: Value) -> Plain:
    return tuple(str(word) for word in value) if isinstance(value, list) else value


def config_names(configs: Iterable[Config]) -> set[str]:
    """All knobs of some configs."""
    return {name for config in configs for name in config}
