"""What every searcher shares: the protocol the tuner talks to, and the book of what was asked and told."""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final, Protocol, runtime_checkable

from tilewright.errors import SpaceError
from tilewright.record import Config, Resources, Value, config_key

if TYPE_CHECKING:
    from tilewright.space import SearchSpace

# What is known before a session: configs with their time in µs, None where the candidate failed.
History = Sequence[tuple[Config, float | None]]

# Spaces of at most this many points are enumerated where a searcher gains by it. guess: a define-by-run pass costs some
# 0.1 ms, so that this is a matter of seconds; above it, sampling must do.
ENUMERABLE: Final = 20_000

# Uniform draws that may all be known before the enumeration is asked for an unknown point instead. guess: with 1 unknown
# in 10 legal points, 64 draws miss it once in 850.
_DRAWS: Final = 64


class Proposer(Protocol):
    """A searcher: proposes configs, and learns from what became of them.

    Several asks may be outstanding; they may be told in any order, and configs that were never asked may be told too.
    """

    @property
    def rejected(self) -> Mapping[str, int]:
        """Distinct points that the searcher drew and a `require` refused, by reason (the first where several refuse)."""
        ...

    def ask(self) -> dict[str, Value] | None:
        """The next candidate: legal, and never asked or told before; None when there is none left."""
        ...

    def tell(self, config: Config, time_us: float | None) -> None:
        """Report a candidate's time in µs, or None for one that failed."""
        ...


@runtime_checkable
class WideProposer(Proposer, Protocol):
    """A searcher that lets more be built than is measured."""

    def widen(self, count: int) -> list[dict[str, Value]]:
        """Configs worth building next, the most promising first: not built, asked or told before."""
        ...

    def built(self, config: Config, resources: Resources | None) -> None:
        """Report what a build needs, or None where it failed; from then on `ask` chooses among what was built while any is left."""
        ...


class Book:
    """What a searcher has asked and been told, its first candidates, and a way to unknown points.

    Args:
        space: where configs come from.
        seed: of the uniform draws.
        history: results known from before; entries that are no longer in the space are left out.

    Attributes:
        results: times in µs by config key in the order told, None where the candidate failed.
        configs: the told configs by key.
        rejected: distinct refused points by reason.
    """

    def __init__(self, space: SearchSpace, *, seed: int, history: History = ()) -> None:
        self.space = space
        self.rng = random.Random(seed)
        self.results: dict[str, float | None] = {}
        self.configs: dict[str, dict[str, Value]] = {}
        self.rejected: Counter[str] = Counter()
        self._known: set[str] = set()
        self._refused: set[str] = set()
        self._rest: Iterator[dict[str, Value]] | None = None
        for config, time_us in history:
            try:
                self.told(space.validate(config), time_us)
            except SpaceError:  # written for another version of the template, or another target
                continue
        # Each once: the default is among the suggestions as a rule.
        self._first = iter({config_key(config): config for config in (space.default(), *space.suggestions())}.values())

    def knows(self, config: Config) -> bool:
        """Whether a config was asked or told before."""
        return config_key(config) in self._known

    def asked(self, config: Config) -> None:
        """Note a config as asked."""
        self._known.add(config_key(config))

    def told(self, config: Config, time_us: float | None) -> None:
        """Note what became of a config."""
        key = config_key(config)
        self._known.add(key)
        self.results[key] = time_us
        self.configs[key] = dict(config)

    def refused(self, config: Config, reason: str) -> None:
        """Note a point that a `require` refused; counted once."""
        key = config_key(config)
        if key not in self._refused:
            self._refused.add(key)
            self.rejected[reason] += 1

    def first(self) -> dict[str, Value] | None:
        """The next of the author's candidates that is not known; None when they are used up."""
        return next((config for config in self._first if not self.knows(config)), None)

    def unknown(self) -> dict[str, Value] | None:
        """A legal config not known yet, uniform while draws find one; None when the space is used up."""
        try:
            for config in itertools.chain.from_iterable(self.space.sample(8, self.rng) for _ in range(_DRAWS // 8)):
                if not self.knows(config):
                    return config
        except SpaceError:  # legal points too rare to draw
            pass
        # Points stay known once they are, so one walk over the space serves all calls.
        if self._rest is None:
            self._rest = self.space.enumerate()
        return next((config for config in self._rest if not self.knows(config)), None)


class ListProposer:
    """The author's candidates, then a fixed sequence of legal configs: what random and grid search are.

    Args:
        book: what is known.
        rest: gives the sequence, or None for uniform draws that end when the space is used up.
    """

    def __init__(self, book: Book, rest: Callable[[], Iterator[dict[str, Value]]] | None) -> None:
        self._book = book
        self._rest = rest
        self._iterator: Iterator[dict[str, Value]] | None = None

    @property
    def rejected(self) -> Mapping[str, int]:
        """Always empty: refused points are cut before they are drawn."""
        return self._book.rejected

    def ask(self) -> dict[str, Value] | None:
        """The next candidate of the sequence that is not known."""
        config = self._book.first()
        if config is None:
            config = self._next()
        if config is None:
            return None
        self._book.asked(config)
        return dict(config)

    def tell(self, config: Config, time_us: float | None) -> None:
        """Note the result, which changes nothing but what is known."""
        self._book.told(config, time_us)

    def _next(self) -> dict[str, Value] | None:
        if self._rest is None:
            return self._book.unknown()
        if self._iterator is None:
            self._iterator = self._rest()
        return next((config for config in self._iterator if not self._book.knows(config)), None)


def random_search(space: SearchSpace, *, seed: int, history: History = ()) -> ListProposer:
    """Uniform search without repeats."""
    book = Book(space, seed=seed, history=history)

    def shuffled() -> Iterator[dict[str, Value]]:
        configs = list(space.enumerate())
        book.rng.shuffle(configs)
        return iter(configs)

    return ListProposer(book, shuffled if space.size_bound() <= ENUMERABLE else None)


def grid_search(space: SearchSpace, *, seed: int, history: History = ()) -> ListProposer:
    """Every legal config in order of enumeration."""
    return ListProposer(Book(space, seed=seed, history=history), space.enumerate)
