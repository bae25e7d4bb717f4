"""Searchers: which config to try next. All of them stand behind one protocol, `Proposer`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tilewright.errors import UsageError, nearest
from tilewright.search.base import ENUMERABLE, History, Proposer, WideProposer, grid_search, random_search

if TYPE_CHECKING:
    from tilewright.search.model import Estimate
    from tilewright.space import SearchSpace

__all__ = ["DEFAULT_SEARCHER", "SEARCHERS", "History", "Proposer", "WideProposer", "make_proposer"]

# Names a user may ask for, with a line for the help text.
SEARCHERS: Final[dict[str, str]] = {
    "auto": "cost where there is an estimate or all legal points can be listed, else tpe",
    "tpe": "Optuna's multivariate TPE",
    "cost": "gp on an analytic estimate, where there is one; else gp and TPE's densities over legal points in turn",
    "gp": "expected improvement of a Gaussian process over all legal points",
    "evolutionary": "children of the fastest configs",
    "annealing": "a walk over neighbours that cools down",
    "descent": "coordinate descent from the best config, with restarts",
    "random": "uniform, without repeats",
    "grid": "every legal config, in order of enumeration",
}
DEFAULT_SEARCHER: Final = "tpe"


def make_proposer(name: str, space: SearchSpace, *, seed: int, history: History = (), estimate: Estimate | None = None) -> Proposer:
    """A searcher over a space.

    Args:
        name: one of `SEARCHERS`.
        space: where configs come from.
        seed: of all draws; equal seeds and equal results give equal proposals.
        history: configs with their time in µs (None for failed ones) known from before. They are learnt from where the
            searcher learns, and not proposed again.
        estimate: an analytic estimate of a config's time, for searchers that use one.

    Raises:
        UsageError: there is no searcher of that name.
    """
    if name == "auto":
        name = "cost" if estimate is not None or space.size_bound() <= ENUMERABLE else "tpe"
    if name == "random":
        return random_search(space, seed=seed, history=history)
    if name == "grid":
        return grid_search(space, seed=seed, history=history)
    if name in ("evolutionary", "annealing", "descent"):
        from tilewright.search.moves import move_search

        return move_search(name, space, seed=seed, history=history)
    # Optuna takes a quarter of a second to import.
    if name == "tpe":
        from tilewright.search.study import StudyProposer, tpe_sampler

        return StudyProposer(space, tpe_sampler(space, seed=seed), seed=seed, history=history)
    if name in ("cost", "gp"):
        from tilewright.search.wide import CostProposer

        if name == "gp":
            return CostProposer(space, seed=seed, history=history, turns=False)
        return CostProposer(space, seed=seed, history=history, estimate=estimate)
    raise UsageError(f"unknown search {name!r}; {nearest(name, SEARCHERS)}")
