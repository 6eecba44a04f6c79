"""Any (epsilon, delta)-DP mechanism.

H(a) is at most the largest of 0, 1 - a, 1 - delta... : the convex function through
delta + (1 - delta) (exp(epsilon) - a) / (exp(epsilon) + 1) between exp(-epsilon) and
exp(epsilon), which is the H of four outputs: with mass delta one can be sure, in either
direction, and else losses are epsilon or -epsilon (Kairouz, Oh and Viswanath 2015,
theorem 3.1: every such mechanism is a function of this one). The pair is attained by
that mechanism itself.
"""

from __future__ import annotations

import math

import numpy as np

from privaudit.accounting.pld.mechanisms.atoms import Atoms
from privaudit.accounting.pld.mechanisms.loss import Loss, PairLoss
from privaudit.mechanisms import EpsilonDelta


def loss(mechanism: EpsilonDelta, rate: float) -> Loss:
    """Of one release."""
    e, delta = mechanism.epsilon, mechanism.delta
    rest = math.log1p(-delta)
    likely, unlikely = rest - math.log1p(math.exp(-e)), rest - math.log1p(math.exp(e))
    atoms = Atoms(
        np.array([unlikely, likely]),
        np.array([likely, unlikely]),
        top=delta,
        null=delta,
        lattice=e or None,
    )
    atoms.loss = np.array([-e, e])
    return PairLoss(atoms, rate)
