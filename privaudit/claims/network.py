"""The claim that a node's view is a Gaussian mechanism, and what breaks it.

What a node hears in gossip is a linear function of all noisy gradients. Taken as a
Gaussian mechanism with the gradients fixed, it is diluted by the weights and drowned in
the noise of the nodes between. That is right for averages of fixed vectors; where
gradients are taken at models that hold earlier messages, as in training, it is not:
others' gradients relay what the wires dilute. No paper is named: whether its theorem
excludes reacting gradients has to be read in it.
"""

from __future__ import annotations

import functools

import numpy as np

from privaudit.accounting.views import LinearProtocol, Observer, Pair, figures
from privaudit.claims.claim import Certified, PaperClaim, RelayAttack
from privaudit.ledger import Entry, Ledger
from privaudit.release import NoSampling, Release

_DELTA = 1e-2


@functools.cache
def _accounts(nodes: int, rounds: int, noise: float) -> Pair:
    """Of one end of a path by the other: DP-DSGD, Metropolis weights, no sampling."""
    matrix = (np.eye(nodes) + np.eye(nodes, k=1) + np.eye(nodes, k=-1)) / 3
    matrix[0, 0] = matrix[-1, -1] = 2 / 3
    release = Release.of_sum(
        norm_bound=1.0, noise_multiplier=noise, sampling=NoSampling()
    )
    found = figures(
        LinearProtocol.gossip(matrix, rounds, noise),
        Ledger(nodes=((Entry(release, rounds),),) * nodes),
        _DELTA,
        [Observer.of(nodes - 1)],
    )
    return found[0]


@functools.cache
def _enough(nodes: int, rounds: int, claimed: float) -> float:
    """The least noise, to a thousandth, that is certified at ``claimed``."""
    low, high = 0.1, 1.0
    while _accounts(nodes, rounds, high).certified > claimed:
        low, high = high, 2 * high
    while high > 1.001 * low:
        middle = (low * high) ** 0.5
        fine = _accounts(nodes, rounds, middle).certified <= claimed
        low, high = (low, middle) if fine else (middle, high)
    return high


def _path(nodes: int, rounds: int, noise: float) -> PaperClaim:
    claimed = _accounts(nodes, rounds, noise).nobody_reacts
    enough = _enough(nodes, rounds, claimed)
    return PaperClaim(
        paper="network",
        name=f"path-of-{nodes}",
        says=(
            f"in {rounds} rounds of DP-DSGD on a path of {nodes} nodes, noise "
            f"multiplier {noise:g}, what one end hears of the other is ({claimed:.3g}, "
            f"{_DELTA:g})-DP"
        ),
        where="the view of a node as a Gaussian mechanism, gradients fixed",
        formula="mu^2 = sum_st |M_st|, M = A' S^+ A",
        conditions=("no gradient depends on what the observer does not hear",),
        plain=(
            "The far end hears the first node's gradients diluted and under the noise "
            "of the nodes between, which is what the figure counts. But the first "
            "node's other records take their gradients at its model, which holds its "
            "first noisy gradient undiluted, and these gradients are sent on too. "
            "Records of absolute loss with thresholds side by side raise it to many "
            "times its size: the noise between hides it no longer. The condition fails "
            "in training."
        ),
        claimed=claimed,
        delta=_DELTA,
        threat_model=f"node {nodes - 1}, which hears its one neighbour",
        printed=lambda: Certified(
            _accounts(nodes, rounds, noise).certified,
            0.0,
            "certified by observer, gradients reacting",
        ),
        corrected=lambda: Certified(
            _accounts(nodes, rounds, enough).certified,
            0.0,
            "certified by observer, gradients reacting",
        ),
        correction=f"noise multiplier {enough:.4g}, certified as training is",
        attack=RelayAttack(
            algorithm="dp-dsgd",
            settings=(
                f"nodes={nodes}",
                "graph=path",
                "weights=metropolis",
                f"rounds={rounds}",
            ),
            noise_multiplier=noise,
            corrected_noise=enough,
            runs=2000,
            block=500,
            observer=nodes - 1,
        ),
        methods=("gdp",),
    )


CLAIMS = (_path(3, 4, 0.5), _path(5, 6, 0.5))
