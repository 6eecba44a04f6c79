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
from privaudit.claims.accounts import single
from privaudit.claims.claim import Certified, PaperClaim, RelayAttack, claims_beside
from privaudit.ledger import Ledger
from privaudit.results import Bracket

_DELTA = 1e-2
_claim = claims_beside(__file__, delta=_DELTA)


@functools.cache
def _accounts(nodes: int, rounds: int, noise: float) -> Pair:
    """Accounts of a path's one end for the other: DP-DSGD, Metropolis weights."""
    return figures(
        LinearProtocol.gossip(_line(nodes), rounds, noise),
        Ledger(nodes=single(noise, rounds).nodes * nodes),
        _DELTA,
        [Observer.of(nodes - 1)],
    )[0]


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

    def certified(noise: float) -> Certified:
        upper = _accounts(nodes, rounds, noise).certified
        return Certified(upper, 0.0, "certified by observer, gradients reacting")

    return _claim(
        "path",
        nodes=nodes,
        rounds=rounds,
        noise=noise,
        last=nodes - 1,
        enough=enough,
        claimed=claimed,
        printed=lambda: certified(noise),
        corrected=lambda: certified(enough),
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
    )


def _line(nodes: int) -> np.ndarray:
    """Metropolis weights of a path."""
    matrix = (np.eye(nodes) + np.eye(nodes, k=1) + np.eye(nodes, k=-1)) / 3
    matrix[0, 0] = matrix[-1, -1] = 2 / 3
    return matrix


@functools.cache
def _gaussian(noise: float) -> Bracket:
    """Epsilon of one Gaussian mechanism."""
    return Certificate.of(single(noise)).epsilon(_DELTA, 1e-3)


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
    return _claim(
        "messages-added-up",
        nodes=nodes,
        noise=noise,
        rounds=rounds,
        last=nodes - 1,
        enough=enough,
        claimed=claimed,
        printed=lambda: Certified.of(_gaussian(noise / jointly**0.5)),
        corrected=lambda: Certified.of(_gaussian(enough / jointly**0.5 * (1 + 1e-9))),
    )


def _secrets(nodes: int, rounds: int, noise: float, shared: float) -> PaperClaim:
    """Claim on a ring, for whoever hears all and knows no secret."""
    turn = np.roll(np.eye(nodes), 1, 0)
    laplacian = 2 * np.eye(nodes) - turn - turn.T
    connectivity = float(np.sort(np.linalg.eigvalsh(laplacian))[1])
    by_form = rounds * (1 / nodes + (1 - 1 / nodes) / (1 + shared**2 * connectivity))
    exactly = rounds * float(np.linalg.inv(np.eye(nodes) + shared**2 * laplacian)[0, 0])
    return _claim(
        "secrets-by-connectivity",
        rounds=rounds,
        nodes=nodes,
        noise=noise,
        shared=shared,
        claimed=_gaussian(noise / by_form**0.5).upper,
        printed=lambda: Certified.of(_gaussian(noise / exactly**0.5 * (1 - 1e-9))),
    )


CLAIMS = (
    _path(3, 4, 0.5),
    _path(5, 6, 0.5),
    _added_up(5, 4, 1.0),
    _secrets(5, 20, 4.0, 10.0),
)
