"""Bayesian credible intervals: an estimate, never a bound.

Zanella-Beguelin et al., "Bayesian Estimation of Differential Privacy",
arXiv:2206.05199.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from privaudit.auditing.bounds.clopper_pearson import epsilon_from_limits
from privaudit.auditing.bounds.contract import generator
from privaudit.auditing.bounds.threshold import called, choose, split
from privaudit.auditing.scores import Scores
from privaudit.results import Estimate, Relation


@dataclasses.dataclass(frozen=True, slots=True)
class Credible:
    """Posterior median of epsilon at one threshold, and an interval around it.

    It holds epsilon with posterior ``probability``, given the prior: no confidence.
    """

    estimate: Estimate
    low: float
    high: float
    probability: float
    threshold: float


def credible(
    scores: Scores,
    delta: float,
    probability: float = 0.95,
    *,
    relation: Relation = "add-or-remove-one",
    draws: int = 20_000,
    seed: int = 0,
) -> Credible:
    """The posterior of epsilon, by Jeffreys priors on TPR and FPR at a threshold."""
    if not 0 <= delta < 1 or not 0 < probability < 1:
        raise ValueError(
            "delta must be in [0, 1) and probability in (0, 1), got "
            f"{delta} and {probability}"
        )
    parts = split(scores, 0.2, seed, "bayes")
    runs, others = len(parts.members_left), len(parts.non_members_left)
    if not (runs and others):
        raise ValueError("a threshold and a posterior need two runs of each world")
    threshold, tail = choose(
        parts,
        lambda hits, alarms: epsilon_from_limits(
            (hits + 0.5) / (runs + 1), (alarms + 0.5) / (others + 1), delta
        ),
    )
    hits = called(parts.members_left, threshold, tail)
    alarms = called(parts.non_members_left, threshold, tail)
    random = generator(seed, "posterior")
    epsilon = epsilon_from_limits(
        random.beta(hits + 0.5, runs - hits + 0.5, draws),
        random.beta(alarms + 0.5, others - alarms + 0.5, draws),
        delta,
    )
    low, middle, high = np.quantile(
        epsilon, [(1 - probability) / 2, 0.5, (1 + probability) / 2]
    )
    return Credible(
        estimate=Estimate(
            epsilon=float(middle),
            delta=delta,
            relation=relation,
            method="posterior median, Jeffreys priors",
            source="Zanella-Beguelin et al., arXiv:2206.05199",
        ),
        low=float(low),
        high=float(high),
        probability=probability,
        threshold=threshold,
    )
