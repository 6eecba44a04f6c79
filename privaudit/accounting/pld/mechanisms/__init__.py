"""Mechanisms by kind, each with its proof; `noise` has Gaussian and Laplace sums.

How to add one: a struct in `privaudit.mechanisms`, a function here with an `Atoms`, a
`Pair` or a `Loss`, and a line in `loss_of`; CONTRIBUTING.md has the tests.
"""

from __future__ import annotations

import functools

from privaudit import mechanisms
from privaudit.accounting.pld.mechanisms import (
    few_outputs,
    gaussian_mixture,
    integers,
    selection,
    truncated_poisson,
)
from privaudit.accounting.pld.mechanisms.loss import Loss as Loss
from privaudit.accounting.pld.mechanisms.loss import unattained as unattained
from privaudit.accounting.pld.mechanisms.renyi_curve import Curve as Curve
from privaudit.accounting.pld.mechanisms.renyi_curve import added as added
from privaudit.results import Relation


@functools.lru_cache(maxsize=256)
def loss_of(mechanism: mechanisms.Any, relation: Relation, rate: float = 1.0) -> Loss:
    """The loss of one release by ``mechanism``, Poisson sampled with ``rate``.

    Under replace-one ``rate`` is 1: a pair of two replaced records is not one that
    sampling makes of theirs alone.
    """
    # A record replaced moves a sum by up to twice one record's norm.
    twice = 2 if relation == "replace-one" else 1
    match mechanism:
        case mechanisms.RandomizedResponse():
            return few_outputs.randomized_response(mechanism)
        case mechanisms.DiscreteGaussian():
            shift = twice * mechanism.sensitivity
            return integers.gaussian(mechanism, shift, rate)
        case mechanisms.DiscreteLaplace():
            shift = twice * mechanism.sensitivity
            return integers.laplace(mechanism, shift, rate)
        case mechanisms.MixtureOfGaussians():
            return gaussian_mixture.loss(mechanism, rate)
        case mechanisms.TruncatedPoisson():
            return truncated_poisson.loss(mechanism, relation)
        case mechanisms.ExponentialMechanism():
            return selection.exponential(mechanism, rate)
        case mechanisms.PermuteAndFlip():
            return selection.permute_and_flip(mechanism, rate)
        case mechanisms.EpsilonDelta():
            return few_outputs.epsilon_delta(mechanism, rate)
        case mechanisms.DiscretePair():
            return few_outputs.discrete_pair(mechanism, relation, rate)
        case mechanisms.RDP() | mechanisms.ZCDP():
            return Curve(mechanism, rate)
        case _:
            raise TypeError(f"no loss is known of {mechanism!r}: give it one here")
