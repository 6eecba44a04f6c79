"""Which estimator to take, and what so many runs could have shown at most."""

from __future__ import annotations

import dataclasses
from typing import ClassVar

import numpy as np

from privaudit.auditing.bounds.contract import Estimator, Evidence
from privaudit.auditing.bounds.rank_walk import RankWalk
from privaudit.auditing.bounds.two_binomial import TwoBinomial
from privaudit.auditing.scores import Scores


@dataclasses.dataclass(frozen=True, slots=True)
class Best(Estimator):
    """The strongest estimator for any mechanism that the design allows.

    The rank walk for coin-flip runs, which wins at every number of runs measured (the
    benchmark prints the table); else the exact test of two binomials. The choice looks
    at the design only, so that there is nothing to pay for it.
    """

    name: ClassVar[str] = "best"
    source: ClassVar[str] = "rank-walk for coin-flip runs, else two-binomial"

    def find(
        self, scores: Scores, delta: float, alpha: float, seed: int
    ) -> tuple[float, Evidence]:
        """See ``Estimator.find``."""
        chosen = RankWalk() if scores.design == "coin-flip" else TwoBinomial()
        epsilon, evidence = chosen.find(scores, delta, alpha, seed)
        note = f"by {chosen.name}; {evidence.note}".removesuffix("; ")
        return epsilon, dataclasses.replace(evidence, note=note)


@dataclasses.dataclass(frozen=True, slots=True)
class BestOf(Estimator):
    """The largest bound of several estimators, each at an equal share of alpha.

    For when it is not known beforehand which does best; the union bound pays.

    >>> BestOf((RankWalk(), TwoBinomial())).valid_for
    'any mechanism'
    """

    name: ClassVar[str] = "best-of"
    source: ClassVar[str] = "the estimators named, with alpha shared between them"

    estimators: tuple[Estimator, ...]

    def __post_init__(self) -> None:
        if not self.estimators:
            raise ValueError("best-of needs at least one estimator")

    @property
    def valid_for(self) -> str:
        """What all of them are valid for."""
        named = {one.valid_for for one in self.estimators} - {"any mechanism"}
        return " and ".join(sorted(named)) or "any mechanism"

    def find(
        self, scores: Scores, delta: float, alpha: float, seed: int
    ) -> tuple[float, Evidence]:
        """See ``Estimator.find``. Raises ``ValueError`` where one of them refuses."""
        share = alpha / len(self.estimators)
        found = []
        for estimator in self.estimators:
            estimator.check_design(scores)
            epsilon, evidence = estimator.find(scores, delta, share, seed)
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
    seed: int = 0,
) -> float:
    """The bound that a perfect attack would give with so many runs.

    A bound near it is limited by the number of runs, one far below it by the attack or
    by the mechanism; a low number is not safety if this is low too.

    >>> round(most_shown(TwoBinomial(), 1000, 1000, 1e-5), 1)
    6.1
    """
    member = np.zeros(members + non_members, dtype=np.bool_)
    # Spread over the order, which matters to those that bet run by run.
    member[np.linspace(0, len(member), members, endpoint=False).astype(int)] = True
    scores = Scores(member, member.astype(float), estimator.designs[0])
    bound = estimator(scores, delta, confidence, threat_model="all", seed=seed)
    return bound.epsilon
