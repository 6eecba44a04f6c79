"""A mixture of Gaussians with shifts >= 0 against the one at 0.

The mechanism is this pair, which is so its own dominating one, and attained; sums of
vectors with norms up to the shifts are dominated by it (Choquette-Choo et al.,
arXiv:2310.15526).

The likelihood ratio sum_i w_i exp(s_i x - s_i^2 / 2) grows with x, so that the mass of
a cell of losses is that of an interval. Shifts of 0 are Poisson sampling with a rate of
the rest's weight. The ends of the intervals are found by Newton's method on the log of
the ratio, which is convex and grows, from the right, where it converges without a turn;
what is left of the loss's error there is in ``accuracy``.
"""

from __future__ import annotations

import math

import numpy as np
from scipy import special

from privaudit.accounting.pld.line import UNIT, Floats, log_normal_mass
from privaudit.accounting.pld.mechanisms.loss import Loss, Pair, PairLoss
from privaudit.mechanisms import MixtureOfGaussians

_ROUNDS = 80


class _Mixture(Pair):
    def __init__(self, shifts: Floats, weights: Floats) -> None:
        self.shifts, self.log_weights = shifts, np.log(weights)

    def _ratio(self, x: Floats) -> tuple[Floats, Floats]:
        """log of the likelihood ratio at x, and its slope."""
        value = np.full(x.shape, -np.inf)
        slope = np.zeros(x.shape)
        for s, w in zip(self.shifts, self.log_weights, strict=True):
            part = w + s * x - s * s / 2
            more = np.logaddexp(value, part)
            with np.errstate(invalid="ignore"):
                slope = slope * np.exp(value - more) + s * np.exp(part - more)
            value = more
        return value, slope

    def _outputs(self, losses: Floats) -> tuple[Floats, float]:
        """Outputs at which the log ratio is each of ``losses``, and their error."""
        x = np.full(losses.shape, np.inf)
        for s, w in zip(self.shifts, self.log_weights, strict=True):
            x = np.minimum(x, (losses - w) / s + s / 2)
        live = np.isfinite(x)
        some, wanted = x[live], losses[live]
        off = 0.0
        near = 1e-13 * (1 + float(np.abs(wanted).max(initial=0.0)))
        for _ in range(_ROUNDS):
            value, slope = self._ratio(some)
            step = (value - wanted) / slope
            some = some - step
            if not some.size or float(np.abs(step * slope).max()) < near:
                break
        if some.size:
            value, _ = self._ratio(some)
            off = float(np.abs(value - wanted).max())
        x[live] = some
        return x, off

    def masses(self, edges: Floats) -> tuple[Floats, Floats, float]:
        x, off = self._outputs(edges)
        x = np.maximum.accumulate(x)
        ends = np.concatenate([[-np.inf], x, [np.inf]])
        log_q = log_normal_mass(ends)
        log_p = np.full(log_q.shape, -np.inf)
        for s, w in zip(self.shifts, self.log_weights, strict=True):
            log_p = np.logaddexp(log_p, w + log_normal_mass(ends, float(s)))
        far = float(self.shifts.max())
        finite = x[np.isfinite(x)]
        far += float(np.abs(finite).max()) if finite.size else 0.0
        return log_p, log_q, UNIT * (1024 + 64 * far * far) + 2 * off

    def span(self, reach: float) -> tuple[float, float]:
        low, high = self._ratio(np.array([-reach, reach + float(self.shifts.max())]))[0]
        return float(low), float(high)

    def extremes(self) -> tuple[float, float]:
        return -math.inf, math.inf

    def sketch(self) -> tuple[Floats, Floats]:
        far = 36 + 4 * float(self.shifts.max())
        x = np.linspace(-far, far, int(min(max(10 * far, 400), 3000)))
        log_q = -0.5 * x * x - 0.5 * math.log(2 * math.pi) + math.log(x[1] - x[0])
        return self._ratio(x)[0], log_q

    def distance(self) -> float:
        """See `Pair`: a mean of the distances of its parts."""
        parts = special.erf(self.shifts / math.sqrt(8))
        return min(1.0, float(np.exp(self.log_weights) @ parts) * (1 + 1e-12))

    def divergence(self, order: float) -> float:
        """See `Pair`: the mean of the parts' moments, by convexity."""
        if order == math.inf:
            return math.inf
        exponents = self.log_weights + order * (order - 1) * self.shifts**2 / 2
        return float(special.logsumexp(exponents)) / (order - 1) * (1 + 1e-12) + 1e-15


def loss(mechanism: MixtureOfGaussians, rate: float) -> Loss:
    """Loss of one release."""
    weight = np.array(mechanism.probabilities)
    weight = weight / math.fsum(weight)
    shift = np.array(mechanism.sensitivities) / mechanism.standard_deviation
    some = (weight > 0) & (shift > 0)
    moved = min(1.0, math.fsum(weight[some]))
    pair = _Mixture(shift[some], weight[some] / math.fsum(weight[some]))
    return PairLoss(pair, rate * moved)
