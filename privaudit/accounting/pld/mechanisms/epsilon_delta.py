"""Any (epsilon, delta)-DP mechanism.

Every such mechanism is a function of this one with four outputs (Kairouz, Oh and
Viswanath 2015, theorem 3.1): with chance delta one can be sure, in either direction,
and else the loss is epsilon or -epsilon. So its pair dominates.

From below: nothing. The mechanism that was run may give less than its guarantee, and
what only the worst one gives must not disprove a claim.
"""

from __future__ import annotations

import math

import numpy as np

from privaudit.accounting.pld.mechanisms.atoms import Atoms
from privaudit.accounting.pld.mechanisms.loss import Loss, PairLoss
from privaudit.mechanisms import EpsilonDelta


def loss(mechanism: EpsilonDelta, rate: float) -> Loss:
    """Loss of one release."""
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
    return PairLoss(atoms, rate, attained=())
