"""Noise on integers: the discrete Gaussian, and the discrete Laplace law.

Each is s + X against X, s the sensitivity.
"""

from __future__ import annotations

import math

import numpy as np

from privaudit.accounting.pld.mechanisms.atoms import Atoms
from privaudit.accounting.pld.mechanisms.loss import Loss, PairLoss
from privaudit.mechanisms import DiscreteGaussian, DiscreteLaplace

_FAR = 38.0


class _Normal(Atoms):
    """With what is left out beyond the atoms, where the loss has no bound."""

    sigma: float
    shift: int

    def extremes(self) -> tuple[float, float]:
        return -math.inf, math.inf

    def divergence(self, order: float) -> float:
        """See `Pair`: that of a Gaussian, or less (Proposition 5 there, see below).

        The sum of exp(-(x - t)^2 / (2 sigma^2)) is largest at whole t, and here t is
        order times shift. Atoms tell less where all of it is among them.
        """
        whole = order / 2 * (self.shift / self.sigma) ** 2 * (1 + 1e-14)
        if not order * self.shift <= (_FAR - 10) * self.sigma:
            return whole
        return min(whole, super().divergence(order))


def gaussian(mechanism: DiscreteGaussian, shift: int, rate: float) -> Loss:
    """Loss of one sum that a record moves by ``shift``.

    The loss at x is (s / sigma^2) (x - s / 2), which grows with x. So by Neyman and
    Pearson the best tests are half-lines, and P(X + s >= t) grows with s: the largest
    shift dominates all smaller ones, of either sign by symmetry, and two data sets
    attain it (Canonne, Kamath and Steinke, arXiv:2004.00010). Integers beyond 38
    deviations, which have chances below 1e-310, are left out: every upper side has
    1e-300 added to delta.
    """
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


def laplace(mechanism: DiscreteLaplace, shift: int, rate: float) -> Loss:
    """Loss of one release whose integers a record moves by ``shift`` in all.

    With a weight of exp(-a |x|) the loss at x is a (2 x - s) within [0, s], and -a s
    and a s beyond.

    *Dominates, in any number of coordinates.* Move an output by one unit in one
    coordinate, all others given: an event's chance p becomes at most G(p) = min(e^a p,
    1 - e^-a (1 - p)), its loss being a or -a. G is concave, so that this holds for the
    mean over the others (Jensen), and grows, so that s unit moves make of p at most
    G^s(p). Half-lines {x >= t} in one coordinate attain G at each move: e^a p while t
    >= 1, the other part below. G^s is linear between their chances, where a coin
    between two of them attains it.
    """
    a = mechanism.parameter
    x = np.arange(0, shift + 1, dtype=float)
    log_unit = math.log(math.tanh(a / 2))
    log_q = log_unit - a * x
    # All x <= 0 have one loss, and all x >= shift.
    log_tail = -math.log1p(math.exp(-a))  # log of tanh(a / 2) / (1 - e^-a)
    log_q[0] = log_tail
    log_q[-1] = log_tail - a * shift
    atoms = Atoms(log_q[::-1].copy(), log_q, lattice=a if shift % 2 else 2 * a)
    atoms.loss = a * (2 * x - shift)
    return PairLoss(atoms, rate)
