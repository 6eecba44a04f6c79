"""Protocols whose messages are linear in noisy sums."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

from privaudit.accounting.views.information import Floats
from privaudit.accounting.views.observer import Observer


@dataclasses.dataclass(frozen=True, eq=False)
class LinearProtocol:
    """Messages that are linear in noisy sums, coordinate by coordinate alike.

    Input p is a sum of node ``owner[p]``, taken at a point, with noise: y_p = g_p +
    sum_m noise_pm eta_m, eta standard normal. Public constants, such as where all
    start, are left out.

    ``nodes``: how many there are. ``owner``: (inputs,): whose sum each is, in order of
    time. ``messages``: (messages, inputs): each message as a combination of y.
    ``sender``: (messages,): who sends it. ``heard``: (messages, nodes) bool: who hears
    it. A node that only gets a sum of messages, by secure aggregation, hears that sum,
    as a message of its own. ``noise``: (inputs, noises), or (inputs,) where each input
    has a noise of its own. ``known``: (noises, nodes) bool: who knows each noise; by
    default those whose own it is. ``points``: (inputs, inputs): where each sum is
    taken, as a combination of earlier y, which its owner knows; None for fixed vectors,
    which are taken nowhere.
    """

    nodes: int
    owner: NDArray[np.int_]
    messages: Floats
    sender: NDArray[np.int_]
    heard: NDArray[np.bool_]
    noise: Floats
    known: NDArray[np.bool_]
    points: Floats

    def __init__(
        self,
        nodes: int,
        owner: ArrayLike,
        messages: ArrayLike,
        sender: ArrayLike,
        heard: ArrayLike,
        noise: ArrayLike = 1.0,
        *,
        known: ArrayLike | None = None,
        points: ArrayLike | None = None,
    ) -> None:
        whose = np.array(owner, int).ravel()
        inputs = len(whose)
        if not inputs:
            raise ValueError("a protocol has one input or more, and owner names none")
        each = np.array(noise, float)
        if each.ndim < 2:
            each = np.diag(np.broadcast_to(each, (inputs,)))
        if known is None:
            if each.shape != (inputs, inputs):
                raise ValueError("noise that several inputs share needs known: by whom")
            known = whose[:, None] == np.arange(nodes)
        where = np.zeros((inputs, inputs)) if points is None else np.array(points)
        values = {
            "nodes": int(nodes),
            "owner": whose,
            "messages": np.array(messages, float).reshape(-1, inputs),
            "sender": np.array(sender, int).ravel(),
            "heard": np.array(heard, bool).reshape(-1, nodes),
            "noise": each,
            "known": np.array(known, bool),
            "points": where.astype(float),
        }
        for name, value in values.items():
            object.__setattr__(self, name, value)
        self._check()

    def _check(self) -> None:
        inputs, messages = len(self.owner), len(self.messages)
        shapes = {
            "sender": (self.sender.shape, (messages,)),
            "heard": (self.heard.shape, (messages, self.nodes)),
            "noise": (self.noise.shape, (inputs, self.noise.shape[-1])),
            "known": (self.known.shape, (self.noise.shape[-1], self.nodes)),
            "points": (self.points.shape, (inputs, inputs)),
        }
        for name, (found, right) in shapes.items():
            if found != right:
                raise ValueError(f"{name} must have the shape {right}, got {found}")
        for name in ("messages", "noise", "points"):
            if not np.isfinite(getattr(self, name)).all():
                raise ValueError(f"{name} must be finite")
        for name in ("owner", "sender"):
            found = getattr(self, name)
            if not ((found >= 0) & (found < self.nodes)).all():
                raise ValueError(f"{name} must be nodes, 0 to {self.nodes - 1}")
        if np.triu(self.points).any():
            raise ValueError(
                "points must be combinations of earlier inputs only: put the inputs in "
                "the order in which they are taken"
            )

    @classmethod
    def averaging(
        cls, matrices: ArrayLike, noise: ArrayLike = 1.0, rounds: int | None = None
    ) -> LinearProtocol:
        """Each node adds noise to a vector of its own, once, and all average.

        ``matrices``: (nodes, nodes), or (period, nodes, nodes): entry kij is the weight
        that i gives to what j sends in round k modulo the period; i hears j where it is
        not 0, and always itself. ``noise``: standard deviation, of all or (nodes,).
        ``rounds``: how many rounds of messages; the period by default.

        >>> path = np.array([[2, 1, 0], [1, 1, 1], [0, 1, 2]]) / 3
        >>> protocol = LinearProtocol.averaging(path, rounds=2)
        >>> (3 * protocol.messages[protocol.seen_by(Observer.of(2))]).round(9).tolist()
        [[0.0, 3.0, 0.0], [0.0, 0.0, 3.0], [1.0, 1.0, 1.0], [0.0, 1.0, 2.0]]
        """
        cycle = _cycle(matrices)
        nodes = cycle.shape[1]
        count = len(cycle) if rounds is None else rounds
        sent, heard = _sent(cycle, count, np.eye(nodes))
        owner = np.arange(nodes)
        return cls(nodes, owner, sent, np.tile(owner, count), heard, noise)

    @classmethod
    def gossip(
        cls,
        matrices: ArrayLike,
        rounds: int,
        noise: ArrayLike = 1.0,
        step: float = 1.0,
    ) -> LinearProtocol:
        """DP-DSGD: theta_i <- sum_j w_ij theta_j - step y_i, y_i taken at theta_i.

        Each node sends theta in every round, and hears those that it gives weight to;
        the last round's sums are not sent. Arguments as of `averaging`.

        >>> path = np.array([[2, 1, 0], [1, 1, 1], [0, 1, 2]]) / 3
        >>> LinearProtocol.gossip(path, 4).messages.shape
        (12, 12)
        """
        cycle = _cycle(matrices)
        nodes = cycle.shape[1]
        points, heard = _sent(cycle, rounds, np.zeros((nodes, nodes * rounds)), step)
        owner = np.tile(np.arange(nodes), rounds)
        each = np.tile(np.broadcast_to(np.array(noise, float), (nodes,)), rounds)
        return cls(nodes, owner, points, owner, heard, each, points=points)

    def seen_by(self, observer: Observer) -> NDArray[np.bool_]:
        """(messages,) bool: which messages it hears, its own among them."""
        if observer.everybody:
            return np.ones(len(self.messages), bool)
        if observer.wire is not None:
            one, other = observer.wire
            return (self.sender == one) & self.heard[:, other] | (
                (self.sender == other) & self.heard[:, one]
            )
        nodes = list(observer.nodes)
        return self.heard[:, nodes].any(1) | np.isin(self.sender, nodes)


def _cycle(matrices: ArrayLike) -> Floats:
    """(period, nodes, nodes)"""
    cycle = np.array(matrices, float)
    cycle = cycle[None] if cycle.ndim == 2 else cycle
    if cycle.ndim != 3 or cycle.shape[1] != cycle.shape[2]:
        raise ValueError(f"matrices must be square, got shape {cycle.shape}")
    return cycle


def _sent(
    cycle: Floats, rounds: int, held: Floats, step: float = 0.0
) -> tuple[Floats, NDArray[np.bool_]]:
    """(rounds times nodes, inputs): what each sends of a mix; and who hears it."""
    nodes = len(held)
    each = np.eye(nodes)
    sent = np.zeros((rounds, *held.shape))
    heard = np.zeros((rounds, nodes, nodes), bool)
    for k in range(rounds):
        matrix = cycle[k % len(cycle)]
        sent[k], heard[k] = held, (matrix.T != 0) | (each > 0)
        held = matrix @ held
        if step:
            held[:, k * nodes : (k + 1) * nodes] -= step * each
    return sent.reshape(rounds * nodes, held.shape[1]), heard.reshape(-1, nodes)


def hops(protocol: LinearProtocol) -> Floats:
    """(nodes, nodes): hops from one to another, infinite if there is no way."""
    from scipy.sparse import csgraph

    count = protocol.nodes
    joined = np.zeros((count, count), bool)
    np.logical_or.at(joined, protocol.sender, protocol.heard)
    return csgraph.shortest_path(joined, unweighted=True)


def distance(hops: Floats, of: int, observer: Observer) -> int | None:
    """Hops until ``observer`` hears of node ``of``; ``hops`` are those of `hops`."""
    own = hops[of]
    if observer.everybody:
        far = min(1.0, np.sort(own)[1] if len(own) > 1 else math.inf)
    elif observer.wire is not None:
        one, other = observer.wire
        sends = [a for a, b in ((one, other), (other, one)) if hops[a, b] == 1]
        far = own[sends].min(initial=math.inf) + 1
    else:
        far = own[list(observer.nodes)].min()
    return None if math.isinf(far) else int(far)
