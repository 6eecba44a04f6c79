"""Randomised response over k buckets, one record's report replaced.

Two records x and x' report o with chances 1 - p + p/k (their own bucket) or p/k. The
outputs x, x' and all others together are a sufficient statistic; every pair of
different records gives the same three chances, so that this pair is the dominating one
and is attained. Losses are e, -e and 0 with e = log((1 - p) k / p + 1).
"""

from __future__ import annotations

import math

import numpy as np

from privaudit.accounting.pld.mechanisms.atoms import Atoms
from privaudit.accounting.pld.mechanisms.loss import Loss, PairLoss
from privaudit.mechanisms import RandomizedResponse


def loss(mechanism: RandomizedResponse) -> Loss:
    """Loss of one report."""
    p, k = mechanism.noise_parameter, mechanism.buckets
    likely, unlikely = math.log1p(-p * (k - 1) / k), math.log(p / k)
    rest = [math.log(p * (k - 2) / k)] if k > 2 else []
    atoms = Atoms(
        np.array([unlikely, *rest, likely]),
        np.array([likely, *rest, unlikely]),
        lattice=likely - unlikely,
        far=64 * (1 + p / max(1 - p * (k - 1) / k, 1e-300)),
    )
    return PairLoss(atoms)
