"""Searchers: which config to try next. All of them stand behind one protocol, `Proposer`."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from tilewright.errors import UsageError, nearest
from tilewright.search.base import History, Proposer, WideProposer, grid_search, random_search
from tilewright.search.one_thread import import_numpy

if TYPE_CHECKING:
    from tilewright.search.model import Estimate
    from tilewright.search.past_result import PastResult, Relate
    from tilewright.space import SearchSpace

__all__ = ["DEFAULT_SEARCHER", "LEARNING_SEARCHERS", "SEARCHERS", "History", "Proposer", "WideProposer", "check_searcher", "make_proposer"]

# Names a user may ask for, with what they do, in the order of the help text and of docs/search.md.
SEARCHERS: Final[dict[str, str]] = {
    "auto": "cost where there is an estimate or history to start from, else gp",
    "cost": "expected improvement on an analytic estimate, builds and history, where there are such",
    "gp": "expected improvement of a Gaussian process over knobs alone, by margins that take turns",
    "tpe": "TPE's densities over legal points that are not known yet",
    "optuna-tpe": "Optuna's multivariate TPE, by groups where knobs depend on others",
    "cmaes": "Optuna's CMA-ES, each draw moved to the nearest unknown legal point; needs the package cmaes",
    "evolutionary": "children of the fastest configs",
    "annealing": "a walk over neighbours that cools down",
    "descent": "coordinate descent from the best config, with restarts",
    "random": "uniform, without repeats",
    "grid": "every legal config, in order of enumeration",
}
DEFAULT_SEARCHER: Final = "auto"
# Optional packages that Optuna's samplers import at their first draw.
_PACKAGES: Final[dict[str, str]] = {"cmaes": "cmaes"}


def check_searcher(name: str) -> None:
    """Refuse a name, or a searcher that lacks its package, before anything is opened or built.

    Raises:
        UsageError: there is no searcher of that name, or it needs a package that is not installed.
    """
    if name not in SEARCHERS:
        raise UsageError(f"unknown search {name!r}; {nearest(name, SEARCHERS)}")
    package = _PACKAGES.get(name)
    if package is not None and importlib.util.find_spec(package) is None:
        raise UsageError(
            f"search {name!r} needs the package {package}, which is not installed; install it by pip install 'tilewright[search]', or use --search auto"
        )


# Those that learn from other workloads' results: `cost`, and `auto`, which is `cost` where there are any.
LEARNING_SEARCHERS: Final = frozenset({"auto", "cost"})


def make_proposer(
    name: str,
    space: SearchSpace,
    *,
    seed: int,
    history: History = (),
    estimate: Estimate | None = None,
    past: Sequence[PastResult] = (),
    features: Sequence[float] = (),
    relate: Relate | None = None,
) -> Proposer:
    """A searcher over a space.

    Args:
        name: one of `SEARCHERS`.
        space: where configs come from.
        seed: of all draws; equal seeds and equal results give equal proposals.
        history: configs with their time in µs (None for failed ones) known from before. They are learnt from where the
            searcher learns, and not proposed again.
        estimate: an analytic estimate of a config's time, for searchers that use one. A `GeneralEstimate` is corrected by what is learned of many operators.
        past: results of other workloads, for searchers that learn from them.
        features: what tells this workload from theirs.
        relate: makes such a result of what is heard of another workload of the session.

    Raises:
        UsageError: there is no searcher of that name, or it needs a package that is not installed.
    """
    check_searcher(name)
    if name == "auto":
        name = "cost" if estimate is not None or past else "gp"
    if name == "random":
        return random_search(space, seed=seed, history=history)
    if name == "grid":
        return grid_search(space, seed=seed, history=history)
    if name in ("evolutionary", "annealing", "descent"):
        from tilewright.search.moves import move_search

        return move_search(name, space, seed=seed, history=history)
    import_numpy()
    if name == "tpe":
        from tilewright.search.densities import density_search

        return density_search(space, seed=seed, history=history)
    if name == "gp":
        from tilewright.search.margins import margin_search

        return margin_search(space, seed=seed, history=history)
    # Optuna takes a quarter of a second to import.
    if name == "optuna-tpe":
        from tilewright.search.study import StudyProposer, tpe_sampler

        return StudyProposer(space, tpe_sampler(space, seed=seed), seed=seed, history=history)
    if name == "cmaes":
        from tilewright.search.cmaes import SnappedProposer

        return SnappedProposer(space, seed=seed, history=history)
    if name == "cost":
        from tilewright.search.wide import CostProposer

        return CostProposer(space, seed=seed, history=history, estimate=estimate, past=past, features=features, relate=relate)
    raise AssertionError(name)
