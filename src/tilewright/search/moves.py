"""Searchers that move from config to config: evolution, annealing, coordinate descent. They keep no model."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Final, Protocol

from tilewright.knobs import Knob, Value
from tilewright.record import Config, config_key
from tilewright.search.base import Book, History

if TYPE_CHECKING:
    from tilewright.space import SearchSpace

# Moves that may end at refused or known points before a uniform unknown one is taken. guess.
_TRIES: Final = 48
# Uniform points first, and parents of the next generation. guess: Kernel Tuner's genetic algorithm keeps 20.
_POPULATION: Final = 16
# Temperature of annealing, in log of time, at the first move and after which share of it is left at each further one. guess: from
# accepting a point 1.6 times slower one time in three to one 1.05 times slower after 60.
_TEMPERATURE: Final = 0.5
_COOLING: Final = 0.965


def neighbour_of(space: SearchSpace, config: Config, rng: random.Random, changes: int | None = None) -> dict[str, Value] | None:
    """A legal config that differs in one knob or a few; None where the one drawn is not legal.

    An ordered knob moves by a step or two more often than it jumps. Knobs that come up only after a change are drawn.
    """
    names = [name for name in config if name != "schedule"] or list(config)
    turned = set(rng.sample(names, min(len(names), changes or (1 if rng.random() < 0.6 else 2))))

    def choose(knob: Knob) -> Value:
        index = knob.find(config[knob.name]) if knob.name in config else None
        if index is None:
            return rng.choice(knob.values)
        if knob.name not in turned or len(knob.values) == 1:
            return knob.values[index]
        if knob.ordered and rng.random() < 0.7:
            moved = index + rng.choice((-2, -1, 1, 2))
            if 0 <= moved < len(knob.values):
                return knob.values[moved]
        return rng.choice([value for position, value in enumerate(knob.values) if position != index])

    evaluation = space.evaluate(choose)
    return None if evaluation.violations else evaluation.config


def child_of(space: SearchSpace, first: Config, second: Config, rng: random.Random) -> dict[str, Value] | None:
    """A legal config that has each knob's value of one of two parents; None where the one drawn is not legal."""

    def choose(knob: Knob) -> Value:
        inherited = [parent[knob.name] for parent in (first, second) if knob.find(parent.get(knob.name)) is not None]
        return rng.choice(inherited) if inherited else rng.choice(knob.values)

    evaluation = space.evaluate(choose)
    return None if evaluation.violations else evaluation.config


class Strategy(Protocol):
    """Where to move next."""

    def moves(self) -> Iterator[dict[str, Value] | None]:
        """Configs to try, known ones among them; None for a refused one. Where it ends, a uniform unknown one is taken."""
        ...

    def told(self, config: Config, time_us: float | None) -> None:
        """Take in a result."""
        ...


class MoveProposer:
    """The author's candidates, then a strategy's moves; unknown points drawn uniformly where it has none.

    Args:
        book: what is known.
        strategy: where to move.
    """

    def __init__(self, book: Book, strategy: Strategy) -> None:
        self._book = book
        self._strategy = strategy
        for key, config in book.configs.items():
            strategy.told(config, book.results[key])

    @property
    def rejected(self) -> Mapping[str, int]:
        """Always empty: moves that a `require` refuses are not kept."""
        return self._book.rejected

    def ask(self) -> dict[str, Value] | None:
        """The next unknown legal config."""
        config = self._book.first()
        if config is None:
            config = next((move for move in self._strategy.moves() if move is not None and not self._book.knows(move)), None)
        if config is None:
            config = self._book.unknown()
        if config is None:
            return None
        self._book.asked(config)
        return dict(config)

    def tell(self, config: Config, time_us: float | None) -> None:
        """Report a result."""
        self._book.told(config, time_us)
        self._strategy.told(config, time_us)


class Evolution:
    """Children of two of the fastest configs, changed in a knob half of the time.

    Args:
        space: where configs come from.
        rng: of all draws.
    """

    def __init__(self, space: SearchSpace, rng: random.Random) -> None:
        self._space = space
        self._rng = rng
        self._population: list[tuple[float, str, dict[str, Value]]] = []
        self._count = 0

    def told(self, config: Config, time_us: float | None) -> None:
        """Keep the fastest."""
        self._count += 1
        if time_us is not None:
            self._population = sorted([*self._population, (time_us, config_key(config), dict(config))])[:_POPULATION]

    def moves(self) -> Iterator[dict[str, Value] | None]:
        """Children, once there is a first generation."""
        if self._count < _POPULATION or len(self._population) < 2:
            return
        for _ in range(_TRIES):
            first, second = (entry[2] for entry in self._rng.sample(self._population, 2))
            child = child_of(self._space, first, second, self._rng)
            yield neighbour_of(self._space, child, self._rng) if child and self._rng.random() < 0.5 else child


class Annealing:
    """A walk over neighbours that takes slower steps the less often the longer it goes on.

    Args:
        space: where configs come from.
        rng: of all draws.
    """

    def __init__(self, space: SearchSpace, rng: random.Random) -> None:
        self._space = space
        self._rng = rng
        self._at: tuple[float, dict[str, Value]] | None = None
        self._temperature = _TEMPERATURE

    def told(self, config: Config, time_us: float | None) -> None:
        """Step there, or stay."""
        if time_us is None:
            return
        slower = 0.0 if self._at is None else math.log(time_us / self._at[0])
        if slower <= 0 or self._rng.random() < math.exp(-slower / self._temperature):
            self._at = (time_us, dict(config))
        self._temperature *= _COOLING

    def moves(self) -> Iterator[dict[str, Value] | None]:
        """Neighbours of where it is."""
        for _ in range(_TRIES if self._at else 0):
            yield neighbour_of(self._space, self._at[1], self._rng) if self._at else None


class Descent:
    """Every change of one knob of the best config, nearest candidates first; from a new start where none is better.

    Knobs take turns in an order drawn once. After a step it is the next knob's turn, as the one just turned, and those that gave nothing
    before it, are the least likely to give more.

    Args:
        space: where configs come from.
        rng: of the order of knobs.
        restarts: whether to go on from the next config that runs, where none is better.
    """

    def __init__(self, space: SearchSpace, rng: random.Random, *, restarts: bool = True) -> None:
        self._space = space
        self._rng = rng
        self._restarts = restarts
        self._knobs: list[Knob] = []  # in order of turns
        self._best: tuple[float, dict[str, Value]] | None = None
        self._restart = False

    def told(self, config: Config, time_us: float | None) -> None:
        """Step to a better config; after a restart, to the first that runs."""
        if time_us is not None and (self._restart or self._best is None or time_us < self._best[0]):
            if self._best is not None:
                self._pass_turn(self._best[1], config)
            self._best = (time_us, dict(config))
            self._restart = False

    def moves(self) -> Iterator[dict[str, Value] | None]:
        """Changes of one knob; once they are used up, a new start."""
        if self._best is None:
            return
        at = self._best[1]
        self._meet()
        knobs = [knob for knob in self._knobs if knob.find(at.get(knob.name)) is not None]
        for distance in range(1, max((len(knob.values) for knob in knobs), default=1)):
            for knob in knobs:
                index = knob.index(at[knob.name])
                for moved in (index - distance, index + distance):
                    if 0 <= moved < len(knob.values):
                        yield self._turned(at, knob, knob.values[moved])
        self._restart = self._restarts

    def _meet(self) -> None:
        """Knobs that the space has met since take their turns at the end."""
        known = {knob.id for knob in self._knobs}
        met = [knob for knob in self._space.knobs if knob.id not in known]
        self._rng.shuffle(met)
        self._knobs += met

    def _pass_turn(self, before: Config, after: Config) -> None:
        """The knob that was turned, others that came up with it aside, is the last in turn."""
        turned = next((knob.id for knob in self._space.knobs if before.get(knob.name) != after.get(knob.name)), None)
        place = next((place for place, knob in enumerate(self._knobs) if knob.id == turned), -1)
        self._knobs = [*self._knobs[place + 1 :], *self._knobs[: place + 1]]

    def _turned(self, at: Config, turned: Knob, value: Value) -> dict[str, Value] | None:
        def choose(knob: Knob) -> Value:
            if knob.id == turned.id:
                return value
            return at[knob.name] if knob.find(at.get(knob.name)) is not None else knob.values[0]

        evaluation = self._space.evaluate(choose)
        return None if evaluation.violations else evaluation.config


_STRATEGIES: Final[Mapping[str, Callable[[SearchSpace, random.Random], Strategy]]] = {"evolutionary": Evolution, "annealing": Annealing, "descent": Descent}


def move_search(name: str, space: SearchSpace, *, seed: int, history: History = ()) -> MoveProposer:
    """A searcher that keeps no model: `evolutionary`, `annealing` or `descent`."""
    book = Book(space, seed=seed, history=history)
    return MoveProposer(book, _STRATEGIES[name](space, random.Random(seed)))
