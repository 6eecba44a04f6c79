"""The discrete Gaussian on the integers: s + X against X, s the sensitivity.

The loss at x is (s / sigma^2) (x - s / 2), which grows with x. So by Neyman and Pearson
the best tests are half-lines, and P(X + s >= t) grows with s: the largest shift
dominates all smaller ones, of either sign by symmetry, and two data sets attain it
(Canonne, Kamath and Steinke, arXiv:2004.00010). Integers beyond 38 deviations, which
have chances below 1e-310, are left out: every upper side has 1e-300 added to delta.
"""

from __future__ import annotations

import math

import numpy as np

from privaudit.accounting.pld.mechanisms.atoms import Atoms
from privaudit.accounting.pld.mechanisms.loss import Loss, PairLoss
from privaudit.mechanisms import DiscreteGaussian

_FAR = 38.0


class _Normal(Atoms):
    """With what is left out beyond the atoms, where the loss has no bound."""

    sigma: float
    shift: int

    def extremes(self) -> tuple[float, float]:
        return -math.inf, math.inf

    def divergence(self, order: float) -> float:
        """See `Pair`: that of a Gaussian, or less (there, Proposition 5).

        The sum of exp(-(x - t)^2 / (2 sigma^2)) is largest at whole t, and here t is
        order times shift. Atoms tell less where all of it is among them.
        """
        whole = order / 2 * (self.shift / self.sigma) ** 2 * (1 + 1e-14)
        if not order * self.shift <= (_FAR - 10) * self.sigma:
            return whole
        return min(whole, super().divergence(order))


def loss(mechanism: DiscreteGaussian, shift: int, rate: float) -> Loss:
    """Loss of one sum that a record moves by ``shift``."""
    sigma = mechanism.sigma
    far = math.ceil(_FAR * sigma)
    x = np.arange(-far, far + shift + 1, dtype=float)
    scale = 0.5 / (sigma * sigma)
    inside = np.arange(-far, far + 1, dtype=float)
    log_total = math.log(math.fsum(np.exp(-inside * inside * scale)))
    log_q = -x * x * scale - log_total
    log_p = -(x - shift) * (x - shift) * scale - log_total
    # The loss itself, without the cancellation of the two logs.
    lattice = shift * scale
    atoms = _Normal(log_p, log_q, lattice=lattice)
    atoms.sigma, atoms.shift = sigma, shift
    atoms.loss = (2 * x - shift) * lattice
    return PairLoss(atoms, rate)
