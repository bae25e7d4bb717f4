"""Who leads a choice: other workloads' results, the estimate as other operators' results correct it, or the estimate alone; and how far each is believed."""

from __future__ import annotations

from enum import Enum
from typing import Final

import numpy as np

from tilewright.search.encoding import Matrix
from tilewright.search.expectation import Expectation
from tilewright.search.pretrained import Correction

# How far from one the slope of log(measured) by log(estimated) is thought to be. guess: an estimate may be half blind, or mislead.
_SLOPE_DEVIATION: Final = 0.3
# The same for the share of what the past expects. guess.
_TRUST_DEVIATION: Final = 0.5
# What is thought of the share of the correction that holds, and how far from it it may be; where other workloads tell the share, so far. Decision 0031 has
# figures for the first two, the last is a guess.
SHARE: Final = 0.8
_SHARE_DEVIATION: Final = 1.0
_TOLD_DEVIATION: Final = 0.2
# Choices of which every second one is the estimate's alone. What leads all of them chooses only points that it likes, and nobody learns whether it is
# right. guess: as far as was tried.
_ALTERNATED: Final = 64


class Lead(Enum):
    """Who leads a choice."""

    PAST = "other workloads' results"
    CORRECTED = "the estimate, corrected by what other operators' results say"
    ESTIMATE = "the estimate alone, or nothing but the search's own results"


class Leads:
    """Who may lead, and what points are told apart by, beside the search's own results.

    Args:
        expected: what other workloads' results say.
        correction: what other operators' say.
        estimated: whether there is an estimate.
    """

    def __init__(self, expected: Expectation, correction: Correction, *, estimated: bool) -> None:
        self._expected, self._correction, self._estimated = expected, correction, estimated

    @property
    def first(self) -> Lead:
        """Who knows most."""
        if self._expected.trust > 0:
            return Lead.PAST
        return Lead.CORRECTED if self._correction else Lead.ESTIMATE

    def lead(self, turn: int, count: int) -> Lead:
        """Who leads a turn, when so many points are told or asked."""
        if self.first is Lead.PAST:
            # Results that were tried on one another are left aside only where there is an estimate instead.
            if not (self._expected.aside(turn, count) and (self._expected.hedged or self._estimated)):
                return Lead.PAST
            return Lead.CORRECTED if self._correction and turn % 4 == 3 else Lead.ESTIMATE
        return Lead.ESTIMATE if turn % 2 == 1 and count < _ALTERNATED else self.first

    def told_of(self, base: Matrix, *, learnt: bool) -> Matrix:
        """What points are told apart by, `[points, 3]`.

        Args:
            base: log of their estimates.
            learnt: whether the builds of those that are not built are foreseen, and may be corrected like the others.
        """
        return np.column_stack([base, self._expected.mean, self._correction.mean if learnt else np.zeros(len(base))])

    def beliefs(self, lead: Lead) -> tuple[Matrix, Matrix]:
        """By how much of these differences times are thought to differ, and by how much more or less they may, `[3]`."""
        expected = self._expected
        trust = expected.trust if lead is Lead.PAST else 0.0
        share, may = (expected.corrected, _TOLD_DEVIATION) if expected.trust > 0 else (SHARE, _SHARE_DEVIATION)
        # Other workloads of whose results little held do not take the correction's place.
        corrected = bool(self._correction) and (lead is Lead.CORRECTED or (lead is Lead.PAST and not expected.led and not expected.hedged))
        believed = np.array([expected.slope if lead is Lead.ESTIMATE else 1.0, trust, share * corrected])
        return believed, np.array([_SLOPE_DEVIATION * self._estimated, _TRUST_DEVIATION * (trust > 0), may * corrected])

    def shares(self, lead: Lead, told_of: Matrix, told: Matrix, spread: float) -> Matrix:
        """By how much of these differences times do differ: as believed, as long as results say nothing else.

        Args:
            lead: who leads.
            told_of: of the points that have results, as of `told_of`.
            told: log of their times.
            spread: standard deviation of what is left unexplained.
        """
        believed, allowed = self.beliefs(lead)
        centred = told_of - told_of.mean(axis=0)
        missed = told - told.mean() - centred @ believed
        some = allowed > 0
        apart = centred[:, some]
        shares = believed.copy()
        shares[some] += np.linalg.solve(apart.T @ apart + np.diag((spread / allowed[some]) ** 2), apart.T @ missed)
        shares[1:] = np.maximum(shares[1:], 0.0)
        return shares
