"""The exponential mechanism: all its losses lie in [t - e, t] for some t in [0, e].

For given t the pair on both ends has the largest H: with b = exp(x) the loss's bound,
H_t = (1 - exp(t - e)) (1 - exp(x - t)) / (1 - exp(-e)) for t - e <= x <= t, which is
largest at t = (x + e) / 2. H = (1 - exp((x - e) / 2))^2 / (1 - exp(-e)) for |x| <= e is
so the least that bounds every such mechanism (Dong, Durfee and Rogers 2020, lemma 5.2);
as a largest of convex functions it is the H of a pair, whose masses are its
derivatives: P(L > x) = (1 - exp((x - e) / 2)) / (1 - exp(-e)), and Q its mirror image.
From below: some t, each attained by two outputs, the same in all releases. No one t
attains H at all x at once, and this bracket does not close.
"""

from __future__ import annotations

import math

import numpy as np

from privaudit.accounting.pld.line import UNIT, Floats
from privaudit.accounting.pld.mechanisms.atoms import Atoms
from privaudit.accounting.pld.mechanisms.loss import Loss, Pair, PairLoss
from privaudit.mechanisms import ExponentialMechanism

_SHARES = (0.5, 0.7, 0.9)  # of e, for t


class _BoundedRange(Pair):
    symmetric = True

    def __init__(self, epsilon: float) -> None:
        self.epsilon = epsilon

    def masses(self, edges: Floats) -> tuple[Floats, Floats, float]:
        e = self.epsilon
        inner = np.clip(edges, -e, e)
        x = np.concatenate([[-e], inner, [e]])
        width = np.diff(x)
        with np.errstate(divide="ignore"):
            body = np.log(-np.expm1(-width / 2)) - math.log(-math.expm1(-e))
        return body + (x[1:] - e) / 2, body - (x[:-1] + e) / 2, UNIT * (256 + 64 * e)

    def span(self, reach: float) -> tuple[float, float]:
        return -self.epsilon, self.epsilon

    def extremes(self) -> tuple[float, float]:
        return -self.epsilon, self.epsilon

    def sketch(self) -> tuple[Floats, Floats]:
        edges = np.linspace(-self.epsilon, self.epsilon, 401)
        log_q = self.masses(edges)[1][1:-1]
        return (edges[1:] + edges[:-1]) / 2, log_q

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


def loss(mechanism: ExponentialMechanism, rate: float) -> Loss:
    """Loss of one choice."""
    e = mechanism.epsilon
    two = tuple(_outputs(e, share * e) for share in _SHARES)
    return PairLoss(_BoundedRange(e), rate, two)


def _outputs(e: float, t: float) -> Atoms:
    """Two outputs, with losses t and t - e."""
    rest = math.log(-math.expm1(-e))
    high = math.log(-math.expm1(t - e)) - rest  # of P, at t
    low = math.log(-math.expm1(-t)) - rest  # of Q, at t - e
    log_p, log_q = np.array([low + t - e, high]), np.array([low, high - t])
    return Atoms(log_p, log_q, far=256 / (1 - t / e) / (t / e))
