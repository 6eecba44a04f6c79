"""Mixing matrices, round by round, and their properties."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterable, Sequence
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from privaudit.task_settings import WeightName
from trainers.network.topology import Topology, strongly_connected

Property = Literal[
    "row stochastic",
    "column stochastic",
    "doubly stochastic",
    "symmetric",
    "undirected",
    "connected",
    "positive diagonal",
]

Terms = list[tuple[int, float]]  # messages' numbers with their weights

_SHORT = 4096  # numbers of a message up to which calls take longer than arithmetic
_TOLERANCE = 1e-12  # of sums that should be one, for entries that are doubles
_ADVICE: dict[Property, str] = {
    "doubly stochastic": "metropolis or max-degree weights are, on undirected graphs; "
    "uniform ones where all degrees are equal",
    "row stochastic": "uniform weights are, on any graph",
    "column stochastic": "column-stochastic weights are, on any graph",
    "symmetric": "metropolis and max-degree weights are",
    "undirected": "every node must hear those that hear it, in the same round",
    "connected": "add edges until messages reach every node from every other",
    "positive diagonal": "every node must give weight to itself, in every round",
}


@dataclasses.dataclass(frozen=True, eq=False)
class Mixing:
    """Simultaneous weighted averages over neighbours, by a cycle of matrices."""

    # (period, nodes, nodes), or (nodes, nodes) for the same in every round: round k
    # uses number k modulo the period. Entry ij is the weight that i gives to what j
    # sends; i hears j where it is positive, and always itself
    matrices: np.ndarray

    def __post_init__(self) -> None:
        matrices = np.array(self.matrices, dtype=np.float64)  # ours alone
        if matrices.ndim == 2:
            matrices = matrices[None]
        if matrices.ndim != 3 or matrices.shape[1] != matrices.shape[2]:
            raise ValueError(
                f"a mixing matrix is square, got shape {np.shape(self.matrices)}"
            )
        if 0 in matrices.shape:
            raise ValueError(
                f"mixing needs a matrix and a node, got shape {matrices.shape}"
            )
        if not (np.isfinite(matrices).all() and (matrices >= 0).all()):
            raise ValueError("mixing weights must be finite and >= 0")
        if not (matrices.sum(2) > 0).all():
            k, node = np.argwhere(matrices.sum(2) == 0)[0]
            raise ValueError(
                f"node {node} gives weight to nobody in round {k}; give it to itself"
            )
        matrices.flags.writeable = False
        object.__setattr__(self, "matrices", matrices)

    @classmethod
    def of(cls, topology: Topology, rule: WeightName) -> Mixing:
        return cls(np.stack([mixing_weights(hears, rule) for hears in topology.hears]))

    @property
    def period(self) -> int:
        """After how many rounds the matrices repeat."""
        return len(self.matrices)

    @property
    def nodes(self) -> int:
        return self.matrices.shape[1]

    def at(self, k: int) -> np.ndarray:
        """The matrix of round ``k``, (nodes, nodes)."""
        return self.matrices[k % self.period]

    def __call__(self, sent: Tensor, k: int) -> Tensor:
        """Average of each node's neighbours' messages in round ``k``.

        Additions in the order of the neighbours' numbers, so that the bits are those of
        a node that adds up its inbox alone (a matrix product's depend on its shape).

        ``sent``: (runs, nodes, dims), row j what node j sent. Returns (runs, nodes,
        dims), a new tensor: nothing is mixed in place.
        """
        return add_up(sent, self.terms(k))

    def neighbour_sum(self, sent: Tensor, k: int) -> Tensor:
        """Unweighted sum of what each node hears, itself included; else as a call."""
        return add_up(sent, self.heard(k))

    def terms(self, k: int) -> Sequence[Terms]:
        """By node: whom it hears in round ``k``, in order, with which weights."""
        return self._weighed[k % self.period]

    def heard(self, k: int) -> Sequence[Terms]:
        """As `terms`, itself included, with weights of one."""
        return self._heard[k % self.period]

    def degree(self, k: int) -> tuple[int, ...]:
        """Number of nodes heard by each in round ``k``, itself included, (nodes,)."""
        return tuple(len(terms) for terms in self._heard[k % self.period])

    @functools.cached_property
    def _weighed(self) -> list[list[Terms]]:
        return [
            [[(int(j), float(row[j])) for j in np.flatnonzero(row)] for row in matrix]
            for matrix in self.matrices
        ]

    @functools.cached_property
    def _hears(self) -> np.ndarray:
        """(period, nodes, nodes) bool: entry kij says whether i hears j, or is j."""
        return (self.matrices > 0) | np.eye(self.nodes, dtype=bool)

    @functools.cached_property
    def _heard(self) -> list[list[Terms]]:
        return [
            [[(int(j), 1.0) for j in np.flatnonzero(row)] for row in hears]
            for hears in self._hears
        ]

    @functools.cached_property
    def properties(self) -> frozenset[Property]:
        """All that is true of the matrices, in every round.

        Sums are one to 1e-12. ``undirected`` is said of who hears whom, ``symmetric``
        of the weights; ``connected`` is B-strongly connected for some B.
        """
        swapped = self.matrices.transpose(0, 2, 1)
        rows = bool((abs(self.matrices.sum(2) - 1) <= _TOLERANCE).all())
        columns = bool((abs(self.matrices.sum(1) - 1) <= _TOLERANCE).all())
        diagonal = self.matrices.diagonal(axis1=1, axis2=2)
        true: dict[Property, bool] = {
            "row stochastic": rows,
            "column stochastic": columns,
            "doubly stochastic": rows and columns,
            "symmetric": bool((abs(self.matrices - swapped) <= _TOLERANCE).all()),
            "undirected": bool((self._hears == self._hears.transpose(0, 2, 1)).all()),
            "connected": self.connected_within is not None,
            "positive diagonal": bool((diagonal > 0).all()),
        }
        return frozenset(name for name, holds in true.items() if holds)

    @functools.cached_property
    def connected_within(self) -> int | None:
        """The least B such that the graph is B-strongly connected; None if none is.

        That is: over any B rounds in a row, the edges used together reach every node
        from every other (Nedic and Olshevsky 2015, assumption 1).
        """
        starts = range(self.period)
        reach = self._hears.copy()  # of start k: the union of rounds k, ..., k + B - 1
        for rounds in range(1, self.period + 1):
            if all(strongly_connected(graph) for graph in reach):
                return rounds
            reach |= self._hears[[(k + rounds) % self.period for k in starts]]
        return None

    @functools.cached_property
    def spectral_gap(self) -> float:
        """1 - |lambda_2|, the share of disagreement that goes in a round, in [0, 1].

        lambda_2 is the second largest eigenvalue by modulus of W; of a cycle of P
        matrices, that of their product to the power 1/P: what holds in the long run.
        """
        if not self.properties & {"row stochastic", "column stochastic"}:
            raise ValueError(
                "a spectral gap is defined for row or column stochastic matrices; "
                "these are neither"
            )
        product = functools.reduce(lambda done, each: each @ done, self.matrices)
        moduli = np.sort(abs(np.linalg.eigvals(product)))[::-1]
        if self.nodes == 1 or moduli[1] < 1e-14:  # a rounding's root is not small
            return 1.0
        return max(0.0, 1 - float(moduli[1]) ** (1 / self.period))

    def require(self, needs: Iterable[Property], algorithm: str) -> None:
        """Raise ``ValueError`` that names the first of ``needs`` that is not true."""
        for name in needs:
            if name not in self.properties:
                known = ", ".join(sorted(self.properties)) or "none of what has a name"
                raise ValueError(
                    f"{algorithm} is not valid on this graph: its mixing must be "
                    f"{name}, and is only {known}; {_ADVICE[name]}"
                )


def mixing_weights(hears: np.ndarray, rule: WeightName) -> np.ndarray:
    """Weights on the edges of one graph and on the diagonal, (nodes, nodes).

    d is a degree without the node itself; entry ij for an edge from j to i is

    - ``uniform``: 1 / (1 + d_i), d counting those that i hears: row stochastic, and
      doubly where all degrees are equal;
    - ``metropolis``: 1 / (1 + max(d_i, d_j)), and the rest to the node itself:
      symmetric and doubly stochastic (Xiao and Boyd 2004);
    - ``max-degree``: 1 / (1 + max d), and the rest to the node itself: as metropolis;
    - ``column-stochastic``: 1 / (1 + d_j), d counting those that hear j.

    ``hears``: (nodes, nodes) bool: entry ij says whether i hears j. The diagonal is not
    read. Raises ``ValueError`` if metropolis or max-degree weights are asked for on a
    directed graph.
    """
    nodes = len(hears)
    edge = hears & ~np.eye(nodes, dtype=bool)
    degree = edge.sum(1)
    if rule in ("uniform", "column-stochastic"):
        closed = (edge | np.eye(nodes, dtype=bool)).astype(np.float64)
        return closed / closed.sum(1 if rule == "uniform" else 0, keepdims=True).clip(1)
    if rule not in ("metropolis", "max-degree"):
        raise ValueError(
            f"there are no weights {rule!r}; choose one of ['column-stochastic', "
            "'max-degree', 'metropolis', 'uniform']"
        )
    if not (edge == edge.T).all():
        raise ValueError(
            f"{rule} weights are for undirected graphs, and this one is directed; use "
            "uniform or column-stochastic weights"
        )
    largest = np.maximum.outer(degree, degree) if rule == "metropolis" else degree.max()
    matrix = edge / (1.0 + largest)
    matrix[np.diag_indices(nodes)] = 1 - matrix.sum(axis=1)
    return matrix


def add_up(sent: Tensor, terms: Sequence[Terms], *, is_part: bool = False) -> Tensor:
    """Sums of messages times weights, in the order of ``terms``, (runs, terms, dims).

    ``sent`` is (runs, messages, dims); there is a sum for each of ``terms``, whose bits
    do not depend on the others'. Where all hear the same, as on the complete graph, one
    sum is made. ``is_part``: whether others have more of the vectors.
    """
    if len(terms) > 1 and terms.count(terms[0]) == len(terms):
        return add_up(sent, terms[:1], is_part=is_part).repeat_interleave(len(terms), 1)
    total = sent.new_empty(sent.shape[0], len(terms), *sent.shape[2:])
    if is_part or (sent.device.type == "cpu" and sent.shape[2] <= _SHORT):
        return _add_up_short(sent, terms, total)
    each = sent.unbind(1)
    for own, ((first, weight), *rest) in zip(total.unbind(1), terms, strict=True):
        torch.mul(each[first], weight, out=own)
        for other, weight in rest:
            own.add_(each[other], alpha=weight)
    return total


def _add_up_short(sent: Tensor, terms: Sequence[Terms], total: Tensor) -> Tensor:
    """Add up as `add_up`, but all sums at once, term by term.

    Products are rounded before they are added, so that it does not matter where in a
    vector a number comes to be.
    """
    alike: dict[int, list[int]] = {}
    for place, each in enumerate(terms):
        alike.setdefault(len(each), []).append(place)
    for places in alike.values():
        table = np.array([terms[place] for place in places]).T  # (2, length, places)
        others = torch.from_numpy(table[0].astype(np.int64))
        weights = torch.from_numpy(table[1]).to(sent.dtype)[:, :, None]
        own = sent[:, others[0]].mul_(weights[0])
        for other, weight in zip(others[1:], weights[1:], strict=True):
            own.add_(sent[:, other].mul_(weight))
        if len(alike) == 1:
            return own
        total[:, places] = own
    return total
