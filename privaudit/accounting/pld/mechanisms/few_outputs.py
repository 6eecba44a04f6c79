"""Pairs of few outputs, each an atom: randomised response, guarantees, any two laws."""

from __future__ import annotations

import math

import numpy as np

from privaudit.accounting.pld.mechanisms.atoms import Atoms
from privaudit.accounting.pld.mechanisms.loss import Loss, PairLoss
from privaudit.accounting.pld.mechanisms.profile import EitherWay
from privaudit.mechanisms import DiscretePair, EpsilonDelta, RandomizedResponse
from privaudit.results import Relation


def randomized_response(mechanism: RandomizedResponse) -> Loss:
    """Loss of randomised response over k buckets, one record's report replaced.

    Two records x and x' report o with chances 1 - p + p/k (their own bucket) or p/k.
    The outputs x, x' and all others together are a sufficient statistic; every pair of
    different records gives the same three chances, so that this pair is the dominating
    one and is attained. Losses are e, -e and 0 with e = log((1 - p) k / p + 1).
    """
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


def epsilon_delta(mechanism: EpsilonDelta, rate: float) -> Loss:
    """Loss of one release by any (epsilon, delta)-DP mechanism.

    Every such mechanism is a function of this one with four outputs (Kairouz, Oh and
    Viswanath 2015, theorem 3.1): with chance delta one can be sure, in either
    direction, and else the loss is epsilon or -epsilon. So its pair dominates.

    From below: nothing. The mechanism that was run may give less than its guarantee,
    and what only the worst one gives must not disprove a claim.
    """
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


def discrete_pair(mechanism: DiscretePair, relation: Relation, rate: float) -> Loss:
    """Loss of one release by any two discrete laws, given as arrays.

    Under add-or-remove-one the pair is what it says. Under replace-one either record
    may be the one that is replaced, in each release anew: what bounds both orders is
    the larger of H and of its mirror image, a largest of convex functions and so the H
    of some pair. On a grid of losses its dots are the larger ones (``profile.py``).
    """
    pair = Atoms.of(np.array(mechanism.p), np.array(mechanism.q))
    if relation == "add-or-remove-one" or (pair.symmetric and rate == 1):
        return PairLoss(pair, rate)
    return EitherWay(pair, rate, attained=(pair,))
