"""The field's usual bound: two Clopper-Pearson limits at one threshold."""

from __future__ import annotations

import abc
import dataclasses
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from privaudit.auditing.bounds.binomial import limit_down, limit_up
from privaudit.auditing.bounds.contract import Estimator, Evidence, Found, Rate
from privaudit.auditing.bounds.threshold import called, choose, split
from privaudit.auditing.scores import Scores
from privaudit.task_settings import Inside


@dataclasses.dataclass(frozen=True, slots=True)
class AtThreshold(Estimator):
    """Counts at a threshold and a tail that other runs chose."""

    # share of the runs of each world that choose threshold and tail
    choosing_share: Inside = 0.2

    @abc.abstractmethod
    def level(self, alpha: float) -> float:
        """Level of the limits by whose epsilon the threshold is chosen."""

    @abc.abstractmethod
    def tested(
        self, hits: int, runs: int, alarms: int, others: int, delta: float, alpha: float
    ) -> tuple[float, Rate, Rate]:
        """Epsilon, TPR and FPR: ``hits`` of ``runs`` members, ``alarms`` of others."""

    def find(self, scores: Scores, delta: float, alpha: float, seed: int) -> Found:
        parts = split(scores, self.choosing_share, seed, self.name)
        runs, others = len(parts.members_left), len(parts.non_members_left)
        if not (runs and others):
            return 0.0, Evidence(choosing_runs=len(scores), note="no run left to test")
        level = self.level(alpha)
        threshold, tail = choose(
            parts,
            lambda hits, alarms: epsilon_from_limits(
                limit_down(hits, runs, level), limit_up(alarms, others, level), delta
            ),
        )
        hits = called(parts.members_left, threshold, tail)
        alarms = called(parts.non_members_left, threshold, tail)
        epsilon, tpr, fpr = self.tested(hits, runs, alarms, others, delta, alpha)
        return epsilon, Evidence(
            threshold=threshold,
            tail=tail,
            tpr=tpr,
            fpr=fpr,
            choosing_runs=len(scores) - runs - others,
            testing_runs=runs + others,
        )


@dataclasses.dataclass(frozen=True, slots=True)
class ClopperPearson(AtThreshold):
    """TPR and FPR bounded at a threshold that other runs chose.

    TPR <= e^epsilon FPR + delta and 1 - FPR <= e^epsilon (1 - TPR) + delta (Kairouz, Oh
    and Viswanath 2015, section 2), by limits at half of alpha each.
    """

    name: ClassVar[str] = "clopper-pearson"
    source: ClassVar[str] = (
        "Jagielski, Ullman and Oprea, arXiv:2006.07709; Nasr et al., arXiv:2101.04535"
    )

    def level(self, alpha: float) -> float:
        return alpha / 2

    def tested(
        self, hits: int, runs: int, alarms: int, others: int, delta: float, alpha: float
    ) -> tuple[float, Rate, Rate]:
        low = float(limit_down(hits, runs, alpha / 2))
        high = float(limit_up(alarms, others, alpha / 2))
        epsilon = float(epsilon_from_limits(low, high, delta))
        return epsilon, Rate(hits, runs, low, 1.0), Rate(alarms, others, 0.0, high)


def epsilon_from_limits(
    tpr: ArrayLike, fpr: ArrayLike, delta: float
) -> NDArray[np.float64]:
    """Least epsilon >= 0 whose (epsilon, delta)-DP allows a point of the ROC.

    Both inequalities are used. Shapes broadcast.

    >>> print(f"{epsilon_from_limits(0.5, 0.1, 0.0):.6f}, the logarithm of 5")
    1.609438, the logarithm of 5
    """
    tpr, fpr = np.asarray(tpr, float), np.asarray(fpr, float)
    with np.errstate(divide="ignore"):
        here = np.log(np.maximum(tpr - delta, 0)) - np.log(fpr)
        there = np.log(np.maximum(1 - fpr - delta, 0)) - np.log1p(-tpr)
    return np.maximum(np.maximum(here, there), 0.0)
