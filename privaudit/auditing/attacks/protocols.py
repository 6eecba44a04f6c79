"""An algorithm as a linear protocol: what `privaudit.accounting.views` takes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from privaudit.accounting.views import LinearProtocol
from privaudit.auditing.attacks.linear import MODEL, LinearMap
from privaudit.ledger import Ledger
from trainers.network.engine import Network
from trainers.oracles.oracle import Mechanism
from trainers.oracles.secrets import PairedMechanism
from trainers.runs.problem import Problem

_ROUNDING = 64 * 2.0**-52  # of an entry of a message, over its largest
MOST_INPUTS = 2400  # of which half a minute of linear algebra is made


def protocol_of(
    problem: Problem, ledger: Ledger, *, final_models: bool = False
) -> LinearProtocol:
    """Messages of every node, in the unit of ``ledger``, what a run would release.

    By one run of the algorithm itself, see `LinearMap`; with ``final_models``, all
    nodes hear the last models as well. ``ValueError`` where messages are not linear.
    """
    name, rounds = problem.training.algorithm, problem.training.rounds
    network = problem.network
    if not isinstance(network, Network):
        raise ValueError(
            f"what an observer learns is accounted for algorithms in rounds over a "
            f"graph, such as dp-dsgd, dp-dsgt and const-d2p, and {name} is none"
        )
    mixing = network.mixing
    releases = sum(entry.count for entries in ledger.nodes for entry in entries)
    if releases > MOST_INPUTS:
        raise ValueError(
            f"{releases:,} releases are too many for accounts by observer, which take "
            f"{MOST_INPUTS:,}: set fewer rounds or nodes"
        )
    everyone = [list(range(mixing.nodes))]
    found = LinearMap.of(problem, everyone, models=final_models)
    kept = np.array(
        [
            row
            for row, (k, name, _) in enumerate(found.told)
            if name != MODEL or k == rounds
        ]
    )
    hears = [
        (mixing.at(k) > 0) | np.eye(mixing.nodes, dtype=bool)
        for k in range(mixing.period)
    ]
    heard = [
        np.ones(mixing.nodes, bool)
        if found.told[row][1] == MODEL
        else hears[found.told[row][0] % mixing.period][:, found.told[row][2]]
        for row in kept
    ]
    turns = np.array(found.turns)
    inputs = [found.inputs[place] for place in turns]
    messages = found.seen[np.ix_(kept, 1 + turns)]
    # Differences of what is equal; other sums that a message holds are as large as it.
    messages[abs(messages) < _ROUNDING * abs(messages).max(1, keepdims=True)] = 0
    noise = [
        [entry.release.noise for entry in entries for _ in range(entry.count)]
        for entries in ledger.nodes
    ]
    for node, own in enumerate(noise):
        if len(own) != sum(owner == node for owner, _ in inputs):
            raise ValueError(
                f"{name} does not say beforehand how often each node takes a gradient: "
                "it has no account by observer"
            )
    own = np.diag([noise[node][index] for node, index in inputs])
    known = np.eye(mixing.nodes, dtype=bool)[[node for node, _ in inputs]]
    shared, knows = _secrets(problem.training.mechanism(1.0), inputs, own)
    points = found.asked[np.ix_(turns, 1 + turns)]
    points[abs(points) < _ROUNDING * abs(points).max(1, keepdims=True)] = 0
    return LinearProtocol(
        mixing.nodes,
        [node for node, _ in inputs],
        messages,
        [found.told[row][2] for row in kept],
        heard,
        np.concatenate([own, shared], 1),
        known=np.concatenate([known, knows]).astype(bool),
        points=points,
    )


def _secrets(
    mechanism: Mechanism, inputs: Sequence[tuple[int, int]], own: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Noises that two nodes share, (inputs, noises), and who knows each of them."""
    place = {one: number for number, one in enumerate(inputs)}
    nodes = 1 + max((node for node, _ in inputs), default=0)
    if not isinstance(mechanism, PairedMechanism) or not mechanism.shared:
        return np.zeros((len(inputs), 0)), np.zeros((0, nodes))
    columns, knows = [], []
    for one, other in mechanism.pairs:
        for index in range(sum(node == one for node, _ in inputs)):
            adds, takes = place[one, index], place[other, index]
            column = np.zeros(len(inputs))
            column[adds] = mechanism.shared * own[adds, adds]
            column[takes] = -column[adds]
            columns.append(column)
            knows.append(np.isin(np.arange(nodes), (one, other)))
    return np.array(columns).T, np.array(knows)
