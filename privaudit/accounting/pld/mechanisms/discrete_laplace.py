"""The discrete Laplace law on the integers: s + X against X, s the sensitivity.

With a weight of exp(-a |x|) the loss at x is a (2 x - s) within [0, s], and -a s and
a s beyond: it grows with x, so that half-lines are the best tests and the largest shift
dominates, as for the discrete Gaussian. In many coordinates the loss of a move by
(s_1, s_2, ...) is a sum of independent ones, and moving by s_1 + s_2 in one coordinate
dominates: first by s_1 and then by s_2 is a composition only of a weaker pair, since
the sum of two coordinates with noise is a function of what is released (Ghosh,
Roughgarden and Sundararajan 2009; as for Laplace noise, in ``pld.md``, "Shifts").
"""

from __future__ import annotations

import math

import numpy as np

from privaudit.accounting.pld.mechanisms.atoms import Atoms
from privaudit.accounting.pld.mechanisms.loss import Loss, PairLoss
from privaudit.mechanisms import DiscreteLaplace


def loss(mechanism: DiscreteLaplace, shift: int, rate: float) -> Loss:
    """Of one release whose integers a record moves by ``shift`` in all."""
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
