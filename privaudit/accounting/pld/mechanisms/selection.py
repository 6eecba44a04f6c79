"""Choices of a candidate by its score, which a record moves by so much at most."""

from __future__ import annotations

import math

import numpy as np

from privaudit.accounting.pld.line import UNIT, Floats
from privaudit.accounting.pld.mechanisms import laplace
from privaudit.accounting.pld.mechanisms.atoms import Atoms
from privaudit.accounting.pld.mechanisms.loss import Loss, Pair, PairLoss
from privaudit.mechanisms import ExponentialMechanism, PermuteAndFlip

_SHARES = (0.5, 0.7, 0.9)  # of e, for t
_SHARES_OF_TWO = (0.5, 0.2, 0.0)  # of 2 s, for t


class _Symmetric(Pair):
    """Losses within [-e, e], both ways the same."""

    symmetric = True

    def __init__(self, epsilon: float) -> None:
        self.epsilon = epsilon

    def span(self, reach: float) -> tuple[float, float]:
        return self.extremes()

    def extremes(self) -> tuple[float, float]:
        return -self.epsilon, self.epsilon


class _BoundedRange(_Symmetric):
    def masses(self, edges: Floats) -> tuple[Floats, Floats, float]:
        e = self.epsilon
        x = np.concatenate([[-e], np.clip(edges, -e, e), [e]])
        width = np.diff(x)
        with np.errstate(divide="ignore"):
            body = np.log(-np.expm1(-width / 2)) - math.log(-math.expm1(-e))
        return body + (x[1:] - e) / 2, body - (x[:-1] + e) / 2, UNIT * (256 + 64 * e)

    def sketch(self) -> tuple[Floats, Floats]:
        edges = np.linspace(-self.epsilon, self.epsilon, 401)
        return (edges[1:] + edges[:-1]) / 2, self.masses(edges)[1][1:-1]

    def distance(self) -> float:
        return math.tanh(self.epsilon / 4) * (1 + 1e-14)

    def divergence(self, order: float) -> float:
        """The largest KL and (order - 1) e^2 / 8, as no tilt has a variance of e^2 / 4.

        Dong, Durfee and Rogers 2020, section 3; KL is at most e^2 / 8.
        """
        e = self.epsilon
        if order == math.inf or not e:
            return e
        kl = min(e / math.expm1(e) - 1 - math.log(e / math.expm1(e)), e * e / 8)
        kl = min(kl + 64 * UNIT, e * e / 8) if e < 36 else e
        return min(e, (kl + e * e / 8 * (order - 1)) * (1 + 1e-14))


class _Laplace(_Symmetric):
    def masses(self, edges: Floats) -> tuple[Floats, Floats, float]:
        one, far = np.ones((1, 1)), self.epsilon + 1
        edges = np.clip(edges, -far, far)
        log_q, log_p, error = laplace.masses(edges, self.epsilon * one, one, math.inf)
        return log_p[0], log_q[0], error

    def sketch(self) -> tuple[Floats, Floats]:
        edges = np.linspace(-self.epsilon, self.epsilon, 402)
        return (edges[1:] + edges[:-1]) / 2, self.masses(edges[1:-1])[1]

    def distance(self) -> float:
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


def exponential(mechanism: ExponentialMechanism, rate: float) -> Loss:
    """The loss of one choice by the exponential mechanism: in [t - e, t], 0 <= t <= e.

    For given t the pair on both ends has the largest H: with b = exp(x) the loss's
    bound, H_t = (1 - exp(t - e)) (1 - exp(x - t)) / (1 - exp(-e)) for t - e <= x <= t,
    which is largest at t = (x + e) / 2. H = (1 - exp((x - e) / 2))^2 / (1 - exp(-e))
    for |x| <= e is so the least that bounds every such mechanism (Dong, Durfee and
    Rogers 2020, lemma 5.2); as a largest of convex functions it is the H of a pair,
    whose masses are its derivatives: P(L > x) = (1 - exp((x - e) / 2)) / (1 - exp(-e)),
    and Q its mirror image. From below: some t, each attained by two outputs, the same
    in all releases. No one t attains H at all x at once, and this bracket does not
    close.
    """
    e = mechanism.epsilon
    two = tuple(_two_outputs(e, share * e) for share in _SHARES)
    return PairLoss(_BoundedRange(e), rate, two)


def _two_outputs(e: float, t: float) -> Atoms:
    """Two outputs, with losses t and t - e."""
    rest = math.log(-math.expm1(-e))
    high = math.log(-math.expm1(t - e)) - rest  # of P, at t
    low = math.log(-math.expm1(-t)) - rest  # of Q, at t - e
    log_p, log_q = np.array([low + t - e, high]), np.array([low, high - t])
    return Atoms(log_p, log_q, far=256 / (1 - t / e) / (t / e))


def permute_and_flip(mechanism: PermuteAndFlip, rate: float) -> Loss:
    """The loss of one choice by permute and flip, and by noisy maxima.

    It is that of Laplace noise of scale 1 / e. The choice is that of the largest of
    scores plus independent noises (permute and flip: exponential noise, Ding et al.
    2021), of rate e / (2 s), where a record moves a score by s at most. Let D be the
    lead of a set S over the rest, and G(x) = P(D > x). Given all noise but that of the
    first of S to lead, G falls by the factor exp(-e y / (2 s)) at most over any y > 0,
    as the tail of exponential and of Laplace noise does; so does P(D < x) the other
    way, S and the rest exchanged. The worst neighbour lowers D by 2 s: from a = G(0) to
    at least b = G(2 s) >= exp(-e) a, and 1 - a >= exp(-e) (1 - b). If the median lies
    between, b (1 - a) >= exp(-e) / 4, each being at least half of its factor. These
    three are the trade-off of Laplace noise of scale 1 / e and sensitivity 1, so that
    this pair dominates; it is convex, and tests that draw coins gain nothing.

    From below: two candidates, whose scores' difference is moved from t to t - 2 s;
    every point of the trade-off is attained by some t, and no t attains them all.
    """
    e = mechanism.epsilon
    two = tuple(_two_candidates(e, share) for share in _SHARES_OF_TWO)
    return PairLoss(_Laplace(e), rate, two)


def _two_candidates(e: float, share: float) -> Atoms:
    """Two candidates: the first one wins with 1 - exp(-t) / 2, then exp(t - e) / 2."""
    half, ends = math.log(0.5), (-share * e, (share - 1) * e + 0.0)
    rest, wins = half + ends[0], half + ends[1]
    log_p = [math.log1p(-math.exp(rest)), rest]
    log_q = [wins, math.log1p(-math.exp(wins))]
    return Atoms(np.array(log_p), np.array(log_q), far=256)
