"""The discrete Laplace law on the integers: s + X against X, s the sensitivity.

With a weight of exp(-a |x|) the loss at x is a (2 x - s) within [0, s], and -a s and
a s beyond.

*Dominates, in any number of coordinates.* Move an output by one unit in one coordinate,
all others given: an event's chance p becomes at most G(p) = min(e^a p, 1 - e^-a (1 -
p)), its loss being a or -a. G is concave, so that this holds for the mean over the
others (Jensen), and grows, so that s unit moves make of p at most G^s(p). Half-lines
{x >= t} in one coordinate attain G at each move: e^a p while t >= 1, the other part
below. G^s is linear between their chances, where a coin between two of them attains it.
"""

from __future__ import annotations

import math

import numpy as np

from privaudit.accounting.pld.mechanisms.atoms import Atoms
from privaudit.accounting.pld.mechanisms.loss import Loss, PairLoss
from privaudit.mechanisms import DiscreteLaplace


def loss(mechanism: DiscreteLaplace, shift: int, rate: float) -> Loss:
    """Loss of one release whose integers a record moves by ``shift`` in all."""
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
