"""`cfg`, as a template sees it: declarations that are collected and read in one and the same pass."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from tilewright.candidates import annotate_candidates, is_ordered, knob_candidates, refuse_undefined, reorder_candidates, split_candidates, unchanged
from tilewright.errors import SpaceError
from tilewright.knobs import SCHEDULE, Annotation, Entity, Kind, Knob, Reorder, Split, Value, value_of

# A schedule's declarations, run once for each point looked at.
Program = Callable[["Cfg"], None]
# Picks the position of a candidate for a knob that the pass has come to.
Pick = Callable[["Declared"], int]


class Cut(Exception):  # noqa: N818 - no error: the way out of a pass at a failed `require`, never seen outside
    """A `require` failed while enumerating: the rest of the pass, and its whole subtree, is not looked at."""


class Declared:
    """A knob as first declared, with the arguments that a later pass has to repeat."""

    __slots__ = ("arguments", "entities", "knob", "name", "size", "values")

    def __init__(self, knob: Knob, entities: tuple[Entity, ...], arguments: object) -> None:
        self.name: Final = knob.name
        self.knob = knob
        self.entities: Final = entities
        self.values: Final = knob.values
        self.size: Final = len(entities)
        self.arguments = arguments


class Schedule:
    """One program of a space, with the knobs and suggestions seen in it so far.

    Attributes:
        name: the schedule's name.
        program: its declarations.
        fixed_path: every pass meets the same knobs, so that sizes of subtrees are known.
        order: its knobs, in the order of declaration.
        suggestions: the author's candidates, as stated.
    """

    __slots__ = ("_by_name", "fixed_path", "identify", "name", "order", "program", "suggestions")

    def __init__(self, name: str, program: Program) -> None:
        self.name: Final = name
        self.program: Final = program
        self.fixed_path: Final = bool(getattr(program, "unconditional", False))
        self.order: list[Declared] = []
        self.suggestions: list[dict[str, Value]] = []
        self.identify: Callable[[Knob], Knob] | None = None
        self._by_name: dict[str, Declared] = {}

    def find(self, name: str) -> Declared | None:
        """The knob of that name, None where no pass has met it."""
        return self._by_name.get(name)

    def add(self, declared: Declared, after: str | None) -> None:
        """Take in a newly met knob, placed behind the one declared before it in its pass."""
        place = next((i for i, other in enumerate(self.order) if other.name == after), -1) + 1
        self.order.insert(place, declared)
        self._by_name[declared.name] = declared


def unconditional(program: Program) -> Program:
    """Mark a program whose every pass declares the same knobs, so that rejections can be counted as points."""
    program.unconditional = True  # type: ignore[attr-defined]
    return program


class Cfg:
    """One pass over a schedule's declarations. Templates see it as `cfg`; only its public methods are theirs."""

    __slots__ = ("_by_name", "_collecting", "_compile", "_config", "_cutting", "_pick", "_schedule", "_steps", "_violations")

    def __init__(self, schedule: Schedule, pick: Pick, *, cutting: bool, collecting: bool = False, violations: list[str] | None = None) -> None:
        self._schedule = schedule
        self._by_name = schedule._by_name
        self._pick = pick
        self._cutting = cutting
        self._collecting = collecting
        self._config: dict[str, Value] = {}
        self._violations = [] if violations is None else violations
        self._steps = 0
        self._compile: Callable[[str], Callable[[Split], object]] | None = None

    def define_knob(self, name: str, candidates: Iterable[object]) -> Entity:
        """Declare a knob by its candidates, and read the chosen one.

        Args:
            name: the knob's name, unique in its schedule.
            candidates: numbers, words or booleans, in the order the search should see. They may depend on the workload and the
                target, never on another knob.

        Raises:
            SpaceError: the name is taken in this pass, the list is empty, or it differs from what an earlier pass declared.
        """
        declared = self._by_name.get(name)
        if declared is None or declared.arguments != candidates:
            candidates = list(candidates) if isinstance(candidates, Iterable) and not isinstance(candidates, (str, list, dict)) else candidates
            kept = candidates.copy() if isinstance(candidates, list) else candidates
            declared = self._declare("knob", name, kept, lambda: knob_candidates(name, candidates))
        return self._take(declared)

    def define_split(
        self,
        name: str,
        extent: int,
        num_outputs: int = 2,
        policy: str = "factors",
        *,
        min_factor: int = 1,
        max_factor: int | None = None,
        no_tail: bool = False,
        filter: str | Callable[[Split], object] | None = None,
        candidates: Iterable[Sequence[int]] | None = None,
    ) -> Split:
        """Declare a split of an extent into parts, and read the chosen one (`.size`, outermost first).

        Args:
            name: the knob's name, unique in its schedule.
            extent: what is split.
            num_outputs: number of parts.
            policy: `factors` (all divisors), `power2` (powers of two, tails allowed), `verbose` (both), `candidate` (as stated).
            min_factor: least size of every part but the outermost.
            max_factor: largest size of every part but the outermost.
            no_tail: keep only splits whose parts multiply to the extent.
            filter: keeps the splits it is true of; in a template the text of a Jinja expression over `size`, such as
                `"size[-1] % 8 == 0"`.
            candidates: lists of parts, outermost first, for `candidate`; -1 as the outermost covers the extent.

        Raises:
            SpaceError: as `define_knob`, or an argument is wrong.
        """
        if candidates is not None:
            candidates = [list(parts) if isinstance(parts, (list, tuple)) else parts for parts in candidates]
        arguments = (extent, num_outputs, policy, min_factor, max_factor, no_tail, filter, candidates)
        declared = self._by_name.get(name)
        if declared is None or declared.arguments != arguments:

            def build() -> tuple[Entity, ...]:
                chosen = self._filter(name, filter) if isinstance(filter, str) else filter
                return split_candidates(
                    name, extent, num_outputs, policy, min_factor=min_factor, max_factor=max_factor, no_tail=no_tail, filter=chosen, candidates=candidates
                )

            declared = self._declare("split", name, arguments, build)
        return self._take(declared)  # type: ignore[return-value]

    def define_reorder(
        self,
        name: str,
        axes: Sequence[str],
        policy: str = "all",
        *,
        interval: Sequence[int] | None = None,
        chains: Sequence[Sequence[str]] | None = None,
        candidates: Sequence[Sequence[str]] | None = None,
    ) -> Reorder:
        """Declare an order of axes, and read the chosen one (`.perm`, and `.axes` by name).

        Args:
            name: the knob's name, unique in its schedule.
            axes: names of the axes, in their written order.
            policy: `identity`, `all`, `interval_all` (permutes axes[begin:end]), `interleave` (merges of `chains`), `candidate`.
            interval: `[begin, end]` for `interval_all`.
            chains: lists of axes, each kept in its own order, for `interleave`.
            candidates: lists of axes, for `candidate`.

        Raises:
            SpaceError: as `define_knob`, or an argument is wrong.
        """
        arguments = (axes, policy, interval, chains, candidates)
        declared = self._by_name.get(name)
        if declared is None or declared.arguments != arguments:
            declared = self._declare(
                "reorder", name, arguments, lambda: reorder_candidates(name, axes, policy, interval=interval, chains=chains, candidates=candidates)
            )
        return self._take(declared)  # type: ignore[return-value]

    def define_annotate(self, name: str, axes: Sequence[str], policy: str = "none", *, candidates: Sequence[Sequence[str]] | None = None) -> Annotation:
        """Declare a word for each axis, and read the chosen ones (`.anns`).

        Args:
            name: the knob's name, unique in its schedule.
            axes: names of the axes.
            policy: `none`, `unroll`, `vec`, `try_unroll`, `try_vec`, `try_unroll_vec`, `candidate`.
            candidates: lists of words, for `candidate`.

        Raises:
            SpaceError: as `define_knob`, or an argument is wrong.
        """
        arguments = (axes, policy, candidates)
        declared = self._by_name.get(name)
        if declared is None or declared.arguments != arguments:
            declared = self._declare("annotate", name, arguments, lambda: annotate_candidates(name, axes, policy, candidates=candidates))
        return self._take(declared)  # type: ignore[return-value]

    def require(self, condition: object, reason: str) -> str:
        """Refuse points for which the condition is false; the reason is what rejections are counted by."""
        if not isinstance(reason, str) or not reason:
            refuse_undefined(reason)
            raise SpaceError(f"require(condition, reason): the reason must be a text, not {reason!r}")
        if not condition:
            self._violations.append(reason)
            if self._cutting:
                raise Cut
        return ""

    def suggest(self, **knobs: object) -> str:
        """Name a first candidate; the first one named is the default schedule. Knobs left out are completed.

        A knob that is not named takes the first candidate with which the whole is legal. One that is `none` is not named: it may not be
        declared where the suggestion holds, such as a conditional one, or for this workload.
        """
        if not self._collecting:
            return ""
        refuse_undefined(knobs)
        suggestions = self._schedule.suggestions
        plain = {name: list(value) if isinstance(value, tuple) else value for name, value in knobs.items() if value is not None}
        if plain not in suggestions:
            suggestions.append(plain)  # type: ignore[arg-type]
        return ""

    def _filter(self, name: str, text: str) -> Callable[[Split], object]:
        if self._compile is None:
            raise SpaceError(f"split {name!r}: filter must be callable, not {text!r}")
        return self._compile(text)

    def _take(self, declared: Declared) -> Entity:
        name = declared.name
        if name in self._config:
            raise SpaceError(f"knob {name!r} is declared twice; give the second another name")
        index = self._pick(declared)
        self._config[name] = declared.values[index]
        return declared.entities[index]

    def _declare(self, kind: Kind, name: str, arguments: object, build: Callable[[], tuple[Entity, ...]]) -> Declared:
        """The knob for these arguments: a new one, or the known one where they come to the same candidates."""
        if name in self._config:
            raise SpaceError(f"knob {name!r} is declared twice; give the second another name")
        if name == SCHEDULE:
            raise SpaceError(f"knob name {name!r} is taken: it says which template a config is for")
        refuse_undefined(arguments)
        entities = build()
        declared = self._by_name.get(name)
        if declared is None:
            knob = Knob(name=name, kind=kind, values=tuple(value_of(entity) for entity in entities), ordered=is_ordered(entities))
            if self._schedule.identify is not None:
                knob = self._schedule.identify(knob)
            declared = Declared(knob, entities, arguments)
            self._schedule.add(declared, next(reversed(self._config), None))
        elif declared.knob.kind != kind or not unchanged(declared.entities, entities):
            found = [value_of(entity) for entity in entities]
            raise SpaceError(
                f"knob {name!r} has other candidates at another point of the same space: {_few(declared.values)}, then {_few(found)}; "
                "candidates may depend on the workload and the target, never on other knobs: declare all of them, and refuse points with cfg.require"
            )
        else:
            declared.arguments = arguments
        return declared


def run_pass(schedule: Schedule, pick: Pick, *, cutting: bool = False, collecting: bool = False, violations: list[str] | None = None) -> Cfg:
    """One pass over a schedule's declarations.

    Args:
        schedule: whose program to run.
        pick: the position of a candidate, for each knob reached.
        cutting: stop at the first failed require, instead of noting it.
        collecting: keep suggestions.
        violations: where reasons of failed requires go, for one who wants them though the pass fails.

    Returns:
        The `cfg` of the pass, with its config and violations.
    """
    cfg = Cfg(schedule, pick, cutting=cutting, collecting=collecting, violations=violations)
    try:
        schedule.program(cfg)
    except Cut:
        if not cfg._violations:
            cfg._violations.append("a value asked for is no candidate")
    return cfg


def _few(values: Sequence[Value]) -> str:
    shown = ", ".join(map(repr, values[:8]))
    return f"[{shown}{', ...' if len(values) > 8 else ''}]"


def suggested(declarations: Mapping[str, Value]) -> str:
    """A suggestion as its author would write it."""
    return "suggest(" + ", ".join(f"{name}={value!r}" for name, value in declarations.items()) + ")"
