"""Any two discrete laws, given as arrays.

Under add-or-remove-one the pair is what it says. Under replace-one either record may be
the one that is replaced, in each release anew: what bounds both orders is the larger
of H and of its mirror image, a largest of convex functions and so the H of some pair.
On a grid of losses its dots are the larger ones (``profile.py``).
"""

from __future__ import annotations

import numpy as np

from privaudit.accounting.pld.mechanisms.atoms import Atoms
from privaudit.accounting.pld.mechanisms.loss import Loss, PairLoss
from privaudit.accounting.pld.mechanisms.profile import EitherWay
from privaudit.mechanisms import DiscretePair
from privaudit.results import Relation


def loss(mechanism: DiscretePair, relation: Relation, rate: float) -> Loss:
    """Loss of one release."""
    pair = PairLoss(Atoms.of(np.array(mechanism.p), np.array(mechanism.q)), rate)
    if relation == "add-or-remove-one" or pair.symmetric:
        return pair
    return EitherWay(pair)
