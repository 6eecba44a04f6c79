"""Forms of account of what a node learns, and what breaks or proves them.

*A view is a Gaussian mechanism.*

What a node hears in gossip is a linear function of all noisy gradients. Taken as a
Gaussian mechanism with the gradients fixed, it is diluted by the weights and drowned in
the noise of the nodes between. That is right for averages of fixed vectors; where
gradients are taken at models that hold earlier messages, as in training, it is not:
others' gradients relay what the wires dilute.

*Messages are added up.* Noise is drawn once and gossiped, as in Muffliato averaging,
and each message is accounted by itself, as a Gaussian mechanism with the noise that is
in it; what they cost is added up. But messages hold the same noise: together they are
solved for single vectors. It fails for fixed vectors already.

*Secrets by connectivity.* Noise that cancels pairwise, as in DECOR, bounded by the
algebraic connectivity of the graph of secrets. Every release counts as seen, so that
nothing can relay: it holds for training, and is not far from exact.

No paper is named: a theorem's conditions have to be read in it.
"""

from __future__ import annotations

import functools

import numpy as np

from privaudit.accounting import Certificate
from privaudit.accounting.views import (
    LinearProtocol,
    Observer,
    Pair,
    figures,
    of_observer,
)
from privaudit.claims.claim import Certified, PaperClaim, RelayAttack
from privaudit.ledger import Entry, Ledger
from privaudit.release import NoSampling, Release
from privaudit.results import Bracket

_DELTA = 1e-2


@functools.cache
def _accounts(nodes: int, rounds: int, noise: float) -> Pair:
    """Accounts of a path's one end for the other: DP-DSGD, Metropolis weights."""
    release = Release.of_sum(
        norm_bound=1.0, noise_multiplier=noise, sampling=NoSampling()
    )
    found = figures(
        LinearProtocol.gossip(_line(nodes), rounds, noise),
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


def _line(nodes: int) -> np.ndarray:
    """Metropolis weights of a path."""
    matrix = (np.eye(nodes) + np.eye(nodes, k=1) + np.eye(nodes, k=-1)) / 3
    matrix[0, 0] = matrix[-1, -1] = 2 / 3
    return matrix


@functools.cache
def _gaussian(noise: float) -> Bracket:
    """Epsilon of one Gaussian mechanism."""
    release = Release.of_sum(
        norm_bound=1.0, noise_multiplier=noise, sampling=NoSampling()
    )
    return Certificate.of(Ledger.of(release)).epsilon(_DELTA, 1e-3)


def _by_messages(matrix: np.ndarray, rounds: int) -> float:
    """mu^2 of node 0 by the last node, noise 1: each message it hears by itself."""
    told, held = 0.0, np.eye(len(matrix))
    for _ in range(rounds):
        for sender in np.flatnonzero(matrix[-1, :-1]):
            told += float(held[sender, 0] ** 2 / (held[sender] ** 2).sum())
        held = matrix @ held
    return told


def _jointly(matrix: np.ndarray, rounds: int) -> float:
    """The same of all that it hears and knows together: as it is."""
    protocol = LinearProtocol.averaging(matrix, rounds=rounds)
    view = of_observer(protocol, Observer.of(len(matrix) - 1), 0)
    return float((view.nobody_reacts**-2.0).sum())


def _added_up(nodes: int, rounds: int, noise: float) -> PaperClaim:
    by_messages = _by_messages(_line(nodes), rounds)
    jointly = _jointly(_line(nodes), rounds)
    claimed = _gaussian(noise / by_messages**0.5).upper
    enough = noise * (jointly / by_messages) ** 0.5
    return PaperClaim(
        paper="network",
        name="messages-added-up",
        says=(
            f"where {nodes} nodes of a path add noise {noise:g} to a vector each, "
            f"once, and average by {rounds} rounds of gossip, what one end hears of "
            f"the other is ({claimed:.3g}, {_DELTA:g})-DP"
        ),
        where="each message as a Gaussian mechanism of its own, added up",
        formula="mu^2 = sum_t sum_w (W^t)_wu^2 / |(W^t)_w|^2, w heard",
        conditions=("vectors are fixed, as in averaging",),
        plain=(
            "Each message is a mean of noisy vectors, and hides any one of them. But "
            "each round tells of one node more under the same noise, which is drawn "
            "once. Whoever takes the messages together solves for the vectors one by "
            f"one: in {rounds} rounds the first node's is told as it is, with nothing "
            "but its own noise. What is added up counts the others' noise again in "
            "every message, as if it were fresh."
        ),
        claimed=claimed,
        delta=_DELTA,
        threat_model=f"node {nodes - 1}, which hears its one neighbour",
        printed=lambda: Certified.of(_gaussian(noise / jointly**0.5)),
        corrected=lambda: Certified.of(_gaussian(enough / jointly**0.5 * (1 + 1e-9))),
        correction=f"noise multiplier {enough:.4g}, all messages taken together",
        methods=("gdp",),
    )


def _secrets(nodes: int, rounds: int, noise: float, shared: float) -> PaperClaim:
    """Claim on a ring, for whoever hears all and knows no secret."""
    turn = np.roll(np.eye(nodes), 1, 0)
    laplacian = 2 * np.eye(nodes) - turn - turn.T
    connectivity = float(np.sort(np.linalg.eigvalsh(laplacian))[1])
    by_form = rounds * (1 / nodes + (1 - 1 / nodes) / (1 + shared**2 * connectivity))
    exactly = rounds * float(np.linalg.inv(np.eye(nodes) + shared**2 * laplacian)[0, 0])
    claimed = _gaussian(noise / by_form**0.5).upper
    return PaperClaim(
        paper="network",
        name="secrets-by-connectivity",
        says=(
            f"in {rounds} rounds of DP-DECOR on a ring of {nodes} nodes, noise "
            f"{noise:g} of a node's own and, for each secret, {shared:g} times that, "
            "what whoever hears all learns of a node without its secrets is "
            f"({claimed:.3g}, {_DELTA:g})-DP"
        ),
        where="all releases seen, secrets hidden, by algebraic connectivity",
        formula="mu^2 = T (1 / n + (1 - 1 / n) / (1 + r^2 lambda_2)) / z^2",
        conditions=("no node tells a secret",),
        plain=(
            "Noises that two nodes share cancel in the sum of all, which is hidden by "
            "the nodes' own noise alone; all other directions are hidden by the "
            "secrets, the better the closer the graph is knit. Every release counts as "
            "seen, so that a gradient that reacts tells nothing new: it holds for "
            "training."
        ),
        claimed=claimed,
        delta=_DELTA,
        threat_model="whoever hears all messages, and knows no secret",
        printed=lambda: Certified.of(_gaussian(noise / exactly**0.5 * (1 - 1e-9))),
        methods=("gdp",),
    )


CLAIMS = (
    _path(3, 4, 0.5),
    _path(5, 6, 0.5),
    _added_up(5, 4, 1.0),
    _secrets(5, 20, 4.0, 10.0),
)
