"""The default estimator, and the largest bound that so many runs can give."""

from __future__ import annotations

import dataclasses
import math
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from privaudit.auditing.bounds.contract import ANY, Estimator, Found, generator
from privaudit.auditing.bounds.rank_walk import RankWalk
from privaudit.auditing.bounds.two_binomial import TwoBinomial
from privaudit.auditing.scores import Design, Scores

SHARES = 0.7, 0.3  # of alpha, of coin-flip runs: the rank walk, the two binomials


@dataclasses.dataclass(frozen=True, slots=True)
class Best(Estimator):
    """The strongest estimator for any mechanism that the design allows.

    For coin-flip runs the larger of the rank walk's at 0.7 of alpha, strong where
    scores are continuous, and the test of two binomials' at the rest, strong where they
    are tied or an event is rare; of 1 000 runs of N(0, 1) against N(1, 1) that costs
    about 3 %. For other runs the latter at all of alpha.
    """

    name: ClassVar[str] = "best"
    source: ClassVar[str] = (
        "rank-walk and two-binomial with alpha shared for coin-flip runs, else "
        "two-binomial"
    )

    def find(self, scores: Scores, delta: float, alpha: float, seed: int) -> Found:
        chosen = (
            BestOf((RankWalk(), TwoBinomial()), SHARES)
            if scores.design == "coin-flip"
            else BestOf((TwoBinomial(),))
        )
        return chosen.find(scores, delta, alpha, seed)


@dataclasses.dataclass(frozen=True, slots=True)
class BestOf(Estimator):
    """The largest bound of several estimators, each at its share of alpha.

    For when it is not known beforehand which does best; the union bound pays.

    >>> BestOf((RankWalk(), TwoBinomial())).valid_for
    'any mechanism'
    """

    name: ClassVar[str] = "best-of"
    source: ClassVar[str] = "the estimators named, with alpha shared between them"

    estimators: tuple[Estimator, ...]  # at least one
    # of alpha, one for each estimator: positive, at most 1 together. Equal ones if none
    # are given
    shares: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        if not self.estimators:
            raise ValueError("best-of needs at least one estimator")
        if self.shares and (
            len(self.shares) != len(self.estimators)
            or min(self.shares) <= 0
            or math.fsum(self.shares) > 1
        ):
            raise ValueError(
                "best-of needs one share of alpha for each estimator, positive and at "
                f"most 1 together, got {self.shares}"
            )

    @property
    def valid_for(self) -> str:
        """Assumption under which all of them are valid."""
        named = {one.valid_for for one in self.estimators} - {ANY}
        return " and ".join(sorted(named)) or ANY

    def reads(self, scores: Scores) -> Scores:
        """See ``Estimator.reads``; here each of them says it for itself."""
        return scores

    @property
    def limited_by_runs(self) -> bool:
        """Return whether all of them are."""
        return all(one.limited_by_runs for one in self.estimators)

    def find(self, scores: Scores, delta: float, alpha: float, seed: int) -> Found:
        """See ``Estimator.find``. Raises ``ValueError`` where one of them refuses."""
        equal = (1 / len(self.estimators),) * len(self.estimators)
        found = []
        for estimator, share in zip(self.estimators, self.shares or equal, strict=True):
            read = estimator.reads(scores)
            estimator.check_design(read)
            epsilon, evidence = estimator.find(read, delta, share * alpha, seed)
            note = f"by {estimator.name}; {evidence.note}".removesuffix("; ")
            found.append((epsilon, dataclasses.replace(evidence, note=note)))
        return max(found, key=lambda one: one[0])


def most_shown(
    estimator: Estimator,
    members: int,
    non_members: int,
    delta: float,
    confidence: float = 0.95,
    *,
    design: Design | None = None,
    seed: int = 0,
    worlds: NDArray[np.bool_] | None = None,
) -> float:
    """The bound that a perfect attack would give with so many runs.

    Infinity where the runs are no limit to the method: within a family of noise scales
    the least of them is.

    ``design`` is that of the runs, by default the first that the estimator accepts;
    ``worlds``, (runs,), are theirs in order, by default in one that ``seed`` deals.

    A bound near it is limited by the number of runs, one far below it by the attack or
    by the mechanism; a low number is not safety if this is low too.

    >>> round(most_shown(TwoBinomial(), 1000, 1000, 1e-5), 1)
    6.1
    """
    if not estimator.limited_by_runs:
        return math.inf
    if worlds is None:
        member = np.zeros(members + non_members, dtype=np.bool_)
        member[:members] = True
        # The order matters to those that bet run by run.
        worlds = generator(seed, "worlds").permutation(member)
    member = worlds
    scores = Scores(member, member.astype(float), design or estimator.designs[0])
    return estimator(scores, delta, confidence, threat_model="all", seed=seed).epsilon
