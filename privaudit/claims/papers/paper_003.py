"""DPPS and PartPSP: an epsilon of hundreds a round, on an estimate that can fall short.

Zhou, Xue and Chen, "Differentially private perturbed push-sum protocol and its
application in non-convex optimization".
"""

from __future__ import annotations

import functools

import numpy as np
from scipy import special

from privaudit.accounting.account import account
from privaudit.accounting.papers import dpps
from privaudit.accounting.papers.push_sum_sensitivity import (
    data_independent_sensitivity,
    least_constant,
)
from privaudit.claims.accounts import UNBOUNDED
from privaudit.claims.claim import Certified, PaperClaim, claims_beside

_NODES, _BUDGET, _NOISE_RATE, _SYNC = 10, 5.0, 0.01, 5
_ROUNDS, _DELTA = 100, 1e-5
_claim = claims_beside(__file__)
_MOVED, _DIMENSION = 0.1, 7850  # gamma_s C, and the shared layer of the MLP

_TWO_OUT = np.zeros((_NODES, _NODES))
for _node in range(_NODES):
    _TWO_OUT[_node, [_node, (_node - 1) % _NODES]] = 0.5


def _of_round(noise_rate: float) -> Certified:
    value = dpps.round_epsilon(_BUDGET, noise_rate)
    return Certified(value, value, "the Laplace mechanism, exactly")


def _total_of_nodes() -> Certified:
    released = dpps.ledger(
        [1.0] * _ROUNDS, budget=_BUDGET, noise_rate=_NOISE_RATE, unit="node"
    )
    bound = account(released, _DELTA, "replace-one", "rdp")
    # A round's loss is at least e - 2E for an exponential E, e = b/gamma_n: it is e on
    # the far side of the centre, and falls by 2 a unit of scale between the centres.
    # So the total exceeds T e - 2 median Gamma(T) with probability 1/2 or more, and
    # delta at one less than that is at least (1 - 1/exp(1))/2.
    alone = dpps.round_epsilon(_BUDGET, _NOISE_RATE)
    lower = _ROUNDS * alone - 2 * float(special.gammaincinv(_ROUNDS, 0.5)) - 1
    return Certified(
        min(bound.epsilon, alone * _ROUNDS),
        lower,
        "Renyi DP of the Laplace mechanism over all rounds",
    )


@functools.cache
def _record(budget: float, rounds: int) -> Certified:
    """Epsilon of one record, by the certified data-independent sensitivity."""
    failure = _DELTA / 2
    scales = data_independent_sensitivity(
        [_TWO_OUT] * rounds,
        perturbation=_MOVED,
        dimension=_DIMENSION,
        budget=budget,
        noise_rate=_NOISE_RATE,
        failure=failure,
        sync_interval=_SYNC,
    )
    released = dpps.ledger(
        scales,
        budget=budget,
        noise_rate=_NOISE_RATE,
        unit="record",
        perturbation=_MOVED,
    )
    bound = account(released, _DELTA - failure, "replace-one", "rdp")
    return Certified(
        bound.epsilon, 0.0, "Renyi DP, noise by a proved, data-independent sensitivity"
    )


def _constant() -> Certified:
    value = least_constant([_TWO_OUT] * (_SYNC - 1), 0.55)
    return Certified(value, value * (1 - 1e-9), "attained by aligned perturbations")


CLAIMS: tuple[PaperClaim, ...] = (
    _claim("theorem1-round", printed=lambda: _of_round(_NOISE_RATE)),
    _claim("theorem1-total-node", printed=_total_of_nodes),
    _claim(
        "theorem1-total-record",
        printed=lambda: _record(_BUDGET, _ROUNDS),
        corrected=lambda: _record(0.001, _ROUNDS),
    ),
    _claim("equation22-constants", printed=_constant, corrected=_constant),
    _claim(
        "equations-14-15",
        printed=lambda: Certified(0.5, 0.5, "two nodes, states 1 and 0"),
        corrected=lambda: Certified(0.0, 0.0, "W put back"),
    ),
    _claim(
        "broadcast-of-S",
        printed=lambda: UNBOUNDED,
        corrected=lambda: _of_round(_NOISE_RATE),
    ),
    _claim("code-gamma-n", printed=lambda: _of_round(0.001)),
)
