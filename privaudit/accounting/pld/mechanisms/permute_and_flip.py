"""Permute and flip, and noisy maxima: as Laplace noise of scale 1 / e.

The choice is that of the largest of scores plus independent noises (permute and flip:
exponential noise, Ding et al. 2021), of rate e / (2 s), where a record moves a score by
s at most. Let D be the lead of a set S over the rest, and G(x) = P(D > x). Given all
noise but that of the first of S to lead, G falls by the factor exp(-e y / (2 s)) at
most over any y > 0, as the tail of exponential and of Laplace noise does; so does
P(D < x) the other way, S and the rest exchanged. The worst neighbour lowers D by 2 s:
from a = G(0) to at least b = G(2 s) >= exp(-e) a, and 1 - a >= exp(-e) (1 - b). If the
median lies between, b (1 - a) >= exp(-e) / 4, each being at least half of its factor.
These three are the trade-off of Laplace noise of scale 1 / e and sensitivity 1, so that
this pair dominates; it is convex, and tests that draw coins gain nothing.

From below: two candidates, whose scores' difference is moved from t to t - 2 s; every
point of the trade-off is attained by some t, and no t attains them all.
"""

from __future__ import annotations

import math

import numpy as np

from privaudit.accounting.pld.line import UNIT, Floats
from privaudit.accounting.pld.mechanisms import laplace
from privaudit.accounting.pld.mechanisms.atoms import Atoms
from privaudit.accounting.pld.mechanisms.loss import Loss, Pair, PairLoss
from privaudit.mechanisms import PermuteAndFlip

_SHARES = (0.5, 0.2, 0.0)  # of 2 s, for t


class _Laplace(Pair):
    symmetric = True

    def __init__(self, epsilon: float) -> None:
        self.epsilon = epsilon

    def masses(self, edges: Floats) -> tuple[Floats, Floats, float]:
        """See `Pair`."""
        one, far = np.ones((1, 1)), self.epsilon + 1
        edges = np.clip(edges, -far, far)
        log_q, log_p, error = laplace.masses(edges, self.epsilon * one, one, math.inf)
        return log_p[0], log_q[0], error

    def span(self, reach: float) -> tuple[float, float]:
        """See `Pair`."""
        return self.extremes()

    def extremes(self) -> tuple[float, float]:
        """See `Pair`."""
        return -self.epsilon, self.epsilon

    def sketch(self) -> tuple[Floats, Floats]:
        """See `Pair`."""
        edges = np.linspace(-self.epsilon, self.epsilon, 402)
        return (edges[1:] + edges[:-1]) / 2, self.masses(edges[1:-1])[1]

    def distance(self) -> float:
        """See `Pair`."""
        return laplace.total_variation(self.epsilon) * (1 + 1e-14)

    def divergence(self, order: float) -> float:
        """Closed form of Laplace noise (Mironov 2017), of which rounding is paid."""
        e = self.epsilon
        if order == math.inf:
            return e
        logs = (
            (order - 1) * e - math.log((2 * order - 1) / order),
            -order * e - math.log((2 * order - 1) / (order - 1)),
        )
        found = float(np.logaddexp(*logs)) + UNIT * (64 + 8 * order * e)
        return min(e, found / (order - 1) * (1 + 1e-14))


def loss(mechanism: PermuteAndFlip, rate: float) -> Loss:
    """Loss of one choice."""
    e = mechanism.epsilon
    two = tuple(_outputs(e, share) for share in _SHARES)
    return PairLoss(_Laplace(e), rate, two)


def _outputs(e: float, share: float) -> Atoms:
    """Two candidates: the first one wins with 1 - exp(-t) / 2, then exp(t - e) / 2."""
    half, ends = math.log(0.5), (-share * e, (share - 1) * e + 0.0)
    rest, wins = half + ends[0], half + ends[1]
    log_p = [math.log1p(-math.exp(rest)), rest]
    log_q = [wins, math.log1p(-math.exp(wins))]
    return Atoms(np.array(log_p), np.array(log_q), far=256)
