"""Rates that the attack literature reports of scores: AUROC, and TPR at fixed FPR.

They say how well the attack told the worlds apart, and bound no epsilon by themselves.

- *AUROC*: the chance that a member scores above another run, ties counted half. Its
  interval is DeLong's on the scale of log odds, right in the limit of many runs
  (DeLong, DeLong and Clarke-Pearson, Biometrics 44, 1988). Where that variance is 0, if
  all runs of one world lie above all others for one, it is Hoeffding's, which holds for
  any number of runs.
- *TPR at FPR x*: the largest share of members above a threshold that a share x of the
  other runs at most exceeds, as one reads it off the ROC. Its interval holds for any
  law of scores and any number of runs, by four limits at a quarter of 1 - confidence:
  two thresholds whose FPR is below x, or above, by how many others exceed them, and a
  Clopper-Pearson limit of the TPR at each.
"""

from __future__ import annotations

import math

import msgspec
import numpy as np
from scipy import special

from privaudit.auditing.bounds.binomial import limit_down, limit_up
from privaudit.auditing.scores import Scores
from privaudit.files.json import Summary

FPRS = (0.001, 0.01, 0.1)


class Interval(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A share as it was seen, and the limits that hold it."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.value:.3f} [{self.low:.3f}, {self.high:.3f}]"


class TprAt(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """True positive rate at a false positive rate ``fpr``."""

    fpr: float
    tpr: Interval
    summary = Summary("fpr tpr=tpr.value low=tpr.low high=tpr.high")


class AttackRates(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True
):
    """AUROC and TPR at fixed FPR; ``confidence`` is that of each interval alone."""

    auroc: Interval
    tpr_at_fpr: tuple[TprAt, ...]
    confidence: float

    summary = Summary("auroc tpr_at_fpr")

    def __str__(self) -> str:
        rates = ", ".join(
            f"{one.tpr} at {100 * one.fpr:g} %" for one in self.tpr_at_fpr
        )
        return (
            f"AUROC {self.auroc}; TPR {rates} FPR "
            f"({100 * self.confidence:g} % intervals, each for itself)"
        )


def attack_rates(scores: Scores, confidence: float = 0.95) -> AttackRates:
    """AUROC and TPR at .1 %, 1 % and 10 % FPR of ``scores``, high ones for members.

    Raises ``ValueError`` if ``confidence`` is not in (0, 1).

    >>> found = attack_rates(Scores([1, 1, 0, 0], [3.0, 1.0, 2.0, 0.0], "fixed"))
    >>> found.auroc.value
    0.75
    """
    if not 0 < confidence < 1:
        raise ValueError(f"confidence must be in (0, 1), got {confidence}")
    alpha = 1 - confidence
    return AttackRates(
        auroc=_auroc(scores, alpha),
        tpr_at_fpr=tuple(TprAt(fpr=x, tpr=_tpr_at(scores, x, alpha)) for x in FPRS),
        confidence=confidence,
    )


def _auroc(scores: Scores, alpha: float) -> Interval:
    members, others = np.sort(scores.members), np.sort(scores.non_members)

    def placed(of: np.ndarray, among: np.ndarray) -> np.ndarray:
        """Share of ``among`` below each of ``of``, ties counted half."""
        below = np.searchsorted(among, of, "left") + np.searchsorted(among, of, "right")
        return below / (2 * len(among))

    wins, losses = placed(members, others), placed(others, members)
    value = float(wins.mean())
    spread = sum(
        float(one.var(ddof=1)) / len(one) if len(one) > 1 else math.inf
        for one in (wins, losses)
    )
    if 0 < spread < math.inf and 0 < value < 1:
        reach = -float(special.ndtri(alpha / 2)) * math.sqrt(spread)
        reach /= value * (1 - value)  # on the scale of log odds
        middle = float(special.logit(value))
        low, high = special.expit(middle - reach), special.expit(middle + reach)
    else:
        # Hoeffding for two samples: as many pairs of their own as the lesser has.
        reach = math.sqrt(math.log(2 / alpha) / (2 * min(len(members), len(others))))
        low, high = max(0.0, value - reach), min(1.0, value + reach)
    return Interval(value=value, low=float(low), high=float(high))


def _tpr_at(scores: Scores, fpr: float, alpha: float) -> Interval:
    members, others = scores.members, np.sort(scores.non_members)[::-1]
    runs, count = len(members), len(others)

    def called(threshold: float, *, strictly: bool) -> int:
        above = members > threshold if strictly else members >= threshold
        return int(np.count_nonzero(above))

    # Scores above the (k + 1)-th other: at most k others are.
    allowed = math.floor(fpr * count * (1 + 1e-12))
    value = called(others[allowed], strictly=True) if allowed < count else runs
    level = alpha / 4
    # That the FPR of the j-th highest other is above x, has P(Binomial(count, x) < j).
    ranks = np.arange(1, count + 1)
    too_high = special.bdtr(ranks - 1.0, count, fpr)
    safe = int(np.count_nonzero(too_high <= level))  # the last rank that is surely low
    low = 0.0
    if safe:
        hits = called(others[safe - 1], strictly=True)
        low = float(limit_down(hits, runs, level))
    surely = np.flatnonzero(special.bdtrc(ranks - 1.0, count, fpr) <= level)
    high = 1.0
    if len(surely):
        hits = called(others[surely[0]], strictly=False)
        high = float(limit_up(hits, runs, level))
    return Interval(value=value / runs, low=low, high=high)
