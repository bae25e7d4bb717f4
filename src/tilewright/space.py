"""A space: all legal configs of an operator's schedules for one workload and target."""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from math import prod
from typing import Final

from tilewright.census import PATIENCE, Census
from tilewright.declare import Cfg, Declared, Program, Schedule, run_pass, suggested, unconditional
from tilewright.errors import SpaceError, nearest
from tilewright.knobs import SCHEDULE, Config, Knob, Value, copied, listing
from tilewright.odometer import walk
from tilewright.points import Evaluation, SearchSpace, SpaceCount
from tilewright.probe import probe
from tilewright.suggestion import PassedOver, completed
from tilewright.tally import tally, tally_points, total

__all__ = ["Cfg", "Evaluation", "Knob", "Program", "SearchSpace", "Space", "SpaceCount", "unconditional"]

# Passes in a row that may end at a failed `require` before sampling gives up: some ten seconds at the 30,000 passes/s of benchmarks/knob_section.py.
MAX_TRIES: Final = 300_000


class Space:
    """All legal configs of one or several schedules, raced as one.

    Args:
        programs: declarations by schedule name; with several, the first knob is `schedule`.
        origin, where: what messages name: the template or folder; of an empty space also workload and target.
        named: whether configs name their schedule although there is one alone, as where it is one of several of an operator.

    Raises:
        SpaceError: a declaration breaks the rules at one of the points tried: the first candidates, each candidate by itself
            with the first of the other knobs, and some random points where knobs are conditional.
    """

    def __init__(self, programs: Mapping[str, Program], origin: str = "", where: str = "", *, named: bool = False) -> None:
        self.origin: Final = origin
        self._where: Final = f" at {where}" if where else ""
        if not programs:
            raise self._error("a space needs at least one schedule; add a <schedule>.py.jinja beside spec.py")
        self._schedules = {name: Schedule(name, program) for name, program in programs.items()}
        self._choice = Declared(Knob(name=SCHEDULE, kind="knob", values=tuple(self._schedules)), (), None) if named or len(programs) > 1 else None
        self._heaviest: dict[str, int] = {}  # by schedule: the largest product of candidate counts on a path, as far as known
        self._count: SpaceCount | None = None
        self._suggestions: list[dict[str, Value]] | None = None
        self._listed: list[dict[str, Value]] = []
        self._rest: Iterator[dict[str, Value]] | None = None
        self._census = Census(self._passes())
        for schedule in self._schedules.values():
            self._heaviest[schedule.name] = probe(schedule)
            for stated in schedule.suggestions:
                for knob in stated:
                    if schedule.find(knob) is None:
                        known = [declared.name for declared in schedule.order]
                        unknown = f"{suggested(stated)} of schedule {schedule.name!r} names an unknown knob {knob!r}; {nearest(knob, known)}"
                        raise self._error(f"{unknown}. Of a knob that is not declared for every workload, give none where it is not")
        for schedule in self._schedules.values():
            schedule.identify = lambda knob, name=schedule.name: self._identified(knob, name)
            for declared in schedule.order:
                declared.knob = schedule.identify(declared.knob)

    @property
    def knobs(self) -> tuple[Knob, ...]:
        """All knobs met so far, in order of declaration; `schedule` first where there are several."""
        known: dict[str, Knob] = {SCHEDULE: self._choice.knob} if self._choice else {}
        for schedule in self._schedules.values():
            for declared in schedule.order:
                known.setdefault(declared.knob.id, declared.knob)
        return tuple(known.values())

    @property
    def schedules(self) -> dict[str, tuple[Knob, ...]]:
        """The knobs met so far of each schedule, in order of declaration."""
        return {schedule.name: tuple(declared.knob for declared in schedule.order) for schedule in self._schedules.values()}

    def evaluate(self, choose: Callable[[Knob], Value]) -> Evaluation:
        """One pass to its end: `choose` is called once for each knob reached, in order; failed requires are noted.

        Raises:
            SpaceError: `choose` gave a value that is no candidate.
        """

        def pick(declared: Declared) -> int:
            return declared.knob.index(choose(declared.knob))

        cfg = run_pass(self._chosen(lambda: choose(self._choice.knob) if self._choice else ""), pick)
        return Evaluation(config=self._config(cfg), violations=tuple(cfg._violations))

    def validate(self, config: Config) -> dict[str, Value]:
        """The config as the space holds it: every knob reached, in order of declaration.

        Raises:
            SpaceError: a knob is unknown, missing or not reached, a value is no candidate, or a require refuses the config.
        """
        given = dict(config)
        if self._choice is None and given.get(SCHEDULE) in self._schedules:
            del given[SCHEDULE]  # logged when the operator had several schedules
        missing: list[Declared] = []

        def pick(declared: Declared) -> int:
            if declared.name in given:
                return declared.knob.index(given[declared.name])
            missing.append(declared)
            return 0

        try:
            if self._choice is not None and SCHEDULE not in given:
                raise SpaceError(f"config {given!r} does not say which schedule; {listing(self._choice.values)}")
            schedule = self._chosen(lambda: given[SCHEDULE])
            cfg = run_pass(schedule, pick)
            known = {SCHEDULE, *(declared.name for declared in schedule.order)} if self._choice else {declared.name for declared in schedule.order}
            for name in given:
                if name not in known:
                    raise SpaceError(f"config {given!r} has an unknown knob {name!r}; {nearest(str(name), sorted(known))}")
            if missing:
                raise SpaceError(f"config {given!r} has no value for knob {missing[0].name!r}; {listing(missing[0].values)}")
            unused = [name for name in given if name != SCHEDULE and name not in cfg._config]
            if unused:
                raise SpaceError(f"config {given!r} has a knob {unused[0]!r} that is not declared at this point; leave it out")
            if cfg._violations:
                raise SpaceError(f"config {given!r} is refused by its template: {'; '.join(cfg._violations)}")
        except SpaceError as error:
            raise self._error(str(error)) from None
        return self._config(cfg)

    def enumerate(self) -> Iterator[dict[str, Value]]:
        """All legal configs, the last knob varying fastest. A failed require cuts its whole subtree."""
        for schedule in self._schedules.values():
            for cfg in walk(schedule, {}):
                if not cfg._violations:
                    yield self._config(cfg)

    __iter__ = enumerate

    def count(self) -> SpaceCount:
        """Exact sizes, by enumeration; rejections are points where every pass meets the same knobs, else cuts."""
        if self._count is None:
            self._count = total({schedule.name: tally(schedule) for schedule in self._schedules.values()})
        return self._count

    def counts(self) -> dict[str, SpaceCount]:
        """Exact sizes by schedule. Where one has few points all are visited, so that refusals are counted in points: what failed there is asked on."""
        return {schedule.name: tally_points(schedule) for schedule in self._schedules.values()}

    def size_bound(self) -> int:
        """At most so many points, if every knob met so far stood in every config of its schedule."""
        return sum(prod(declared.size for declared in schedule.order) for schedule in self._schedules.values())

    def sample(self, n: int, rng: random.Random) -> list[dict[str, Value]]:
        """Legal configs drawn uniformly, with replacement, without enumerating.

        A random walk ends at a point with a probability of one over the product of the candidate counts on its path; drawing schedules by their
        largest such product, and taking a point with its own over its schedule's, evens that out. Where a larger product turns up, the batch starts
        again; and where so many walks are in vain that the space has been listed meanwhile, it is drawn from the list.

        Raises:
            SpaceError: too many walks in a row ended at a failed require, or nothing is legal.
        """
        start = rng.getstate()
        if self._census.complete:
            return self._drawn(n, rng)
        taken: list[dict[str, Value]] = []
        refusals: Counter[str] = Counter()
        weight = 1
        wasted = 0

        def pick(declared: Declared) -> int:
            nonlocal weight
            weight *= declared.size
            return rng.randrange(declared.size)

        while len(taken) < n:
            if wasted > PATIENCE and self._census.go_on():
                rng.setstate(start)
                return self._drawn(n, rng)
            wasted += 1
            weight = 1
            schedule = self._drawn_schedule(rng)
            cfg = run_pass(schedule, pick, cutting=True)
            if cfg._violations:
                refusals[cfg._violations[0]] += 1
                if refusals.total() >= MAX_TRIES:
                    raise self._empty(refusals, f"none of {MAX_TRIES} random points in a row is legal")
                continue
            if weight > self._heaviest[schedule.name]:
                self._heaviest[schedule.name] = weight
                rng.setstate(start)
                taken.clear()
            elif rng.randrange(self._heaviest[schedule.name]) < weight:
                taken.append(self._config(cfg))
                wasted -= 1
            refusals.clear()
        return taken

    def _drawn_schedule(self, rng: random.Random) -> Schedule:
        place = rng.randrange(sum(self._heaviest.values()))
        reaches = itertools.accumulate(self._heaviest.values())
        return next(schedule for schedule, reach in zip(self._schedules.values(), reaches, strict=True) if place < reach)

    def _passes(self) -> Iterator[dict[str, Value] | None]:
        """All legal configs, and None for each cut."""
        for schedule in self._schedules.values():
            for cfg in walk(schedule, {}):
                yield None if cfg._violations else self._config(cfg)

    def _drawn(self, n: int, rng: random.Random) -> list[dict[str, Value]]:
        if not len(self._census):
            count = self.count()
            raise self._empty(Counter(count.rejected) + Counter(count.cuts), "no point is legal")
        return self._census.draw(n, rng)

    def default(self) -> dict[str, Value]:
        """The first legal suggestion, else the first legal config.

        Raises:
            SpaceError: nothing is legal; the message names the requires that refused everything.
        """
        suggestions = self.suggestions()
        return suggestions[0] if suggestions else copied(self[0])

    def suggestions(self) -> list[dict[str, Value]]:
        """The author's legal first candidates: the first of each schedule, then the second of each, and so on.

        One that names a value that is no candidate for this workload, or that no completion makes legal, is left out.

        Raises:
            SpaceError: a suggestion names a knob that the schedule never declares.
        """
        if self._suggestions is None:
            found = [[completed(schedule, stated) for stated in schedule.suggestions] for schedule in self._schedules.values()]
            rounds = max(map(len, found))
            turns = [completions[turn] for turn in range(rounds) for completions in found if turn < len(completions)]
            self._suggestions = []
            for cfg in turns:
                if isinstance(cfg, Cfg) and (config := self._config(cfg)) not in self._suggestions:
                    self._suggestions.append(config)
        return [copied(config) for config in self._suggestions]

    def passed_over(self) -> list[PassedOver]:
        """The author's suggestions that are left out, by schedule, with the reasons."""
        found = [completed(self._schedules[name], suggestion) for name, suggestions in self.stated().items() for suggestion in suggestions]
        return [passed for passed in found if isinstance(passed, PassedOver)]

    def complete(self, schedule: str, stated: Config, first: Config) -> dict[str, Value] | PassedOver:
        """A schedule's first legal config with the stated values, in which the other knobs try those of `first` before others; or why there is none."""
        found = completed(self._schedules[schedule], stated, first)
        return found if isinstance(found, PassedOver) else self._config(found)

    def stated(self) -> dict[str, list[dict[str, Value]]]:
        """The author's suggestions by schedule, legal or not, as stated."""
        return {schedule.name: [copied(stated) for stated in schedule.suggestions] for schedule in self._schedules.values()}

    def __getitem__(self, index: int) -> dict[str, Value]:
        """The legal config at a position of the enumeration, which is kept as far as it has been asked for.

        Raises:
            IndexError: there are not that many.
            SpaceError: there are none.
        """
        if self._rest is None:
            self._rest = self.enumerate()
        while index < 0 or index >= len(self._listed):
            config = next(self._rest, None)
            if config is None:
                break
            self._listed.append(config)
        if not self._listed:
            count = self.count()
            raise self._empty(Counter(count.rejected) + Counter(count.cuts), "no point is legal")
        return copied(self._listed[index])

    def _config(self, cfg: Cfg) -> dict[str, Value]:
        config = copied(cfg._config)
        return {SCHEDULE: cfg._schedule.name, **config} if self._choice else config

    def _chosen(self, choose: Callable[[], Value]) -> Schedule:
        if self._choice is None:
            return next(iter(self._schedules.values()))
        return list(self._schedules.values())[self._choice.knob.index(choose())]

    def _identified(self, knob: Knob, name: str) -> Knob:
        """The knob with an id of its own where another schedule gives its name other candidates."""
        others = (schedule.find(knob.name) for other, schedule in self._schedules.items() if other != name)
        alike = all(other is None or other.knob.agrees(knob) for other in others)
        return knob if alike else replace(knob, id=f"{name}.{knob.name}")

    def _error(self, message: str) -> SpaceError:
        return SpaceError(f"{self.origin}: {message}" if self.origin and self.origin not in message else message)

    def _empty(self, refusals: Mapping[str, int], found: str) -> SpaceError:
        reasons = "; ".join(f"{reason} ({number})" for reason, number in sorted(refusals.items(), key=lambda item: (-item[1], item[0])))
        return self._error(f"the space is empty{self._where}: {found}; refused by require: {reasons}. Loosen the requires, or add candidates that meet them")
