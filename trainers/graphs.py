"""Who talks to whom, and with which weights."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Literal

import numpy as np
import torch
from torch import Tensor

if TYPE_CHECKING:
    import networkx

GraphName = Literal["complete", "ring"]
WeightName = Literal["uniform", "metropolis"]


def undirected(name: GraphName, nodes: int) -> networkx.Graph:
    """A connected undirected graph on nodes 0, 1, ..., without loops.

    ``complete`` joins every pair, ``ring`` each node with the next.
    """
    import networkx

    if nodes < 1:
        raise ValueError(f"a network needs at least one node, got {nodes}")
    makers = {
        "complete": networkx.complete_graph,
        "ring": lambda n: (
            networkx.cycle_graph(n) if n > 2 else networkx.complete_graph(n)
        ),
    }
    if name not in makers:
        raise ValueError(f"there is no graph {name!r}; choose one of {sorted(makers)}")
    return makers[name](nodes)


def mixing_weights(graph: networkx.Graph, rule: WeightName) -> np.ndarray:
    """A symmetric, doubly stochastic matrix on the edges of ``graph`` and the diagonal.

    ``uniform`` gives each of a node's neighbours, itself among them, the same weight;
    this is doubly stochastic on regular graphs only and is refused on others.
    ``metropolis`` gives edge ij 1 / (1 + max(degree_i, degree_j)) and a node the rest
    (Xiao and Boyd 2004), for any graph.
    """
    nodes = graph.number_of_nodes()
    degree = np.array([graph.degree(node) for node in range(nodes)])
    if rule == "uniform" and len(set(degree)) > 1:
        raise ValueError(
            "uniform weights are not doubly stochastic on a graph whose degrees differ "
            f"({degree.min()} to {degree.max()}); use metropolis weights"
        )
    if rule not in ("uniform", "metropolis"):
        raise ValueError(
            f"there are no weights {rule!r}; choose one of ['metropolis', 'uniform']"
        )
    matrix = np.zeros((nodes, nodes))
    for one, other in graph.edges:
        matrix[one, other] = matrix[other, one] = 1 / (
            1 + max(degree[one], degree[other])
        )
    matrix[np.diag_indices(nodes)] = 1 - matrix.sum(axis=1)
    return matrix


@dataclasses.dataclass(frozen=True, slots=True)
class Mixing:
    """Simultaneous weighted averages over neighbours, the same every round.

    Parameters
    ----------
    matrix
        (nodes, nodes): entry ij is the weight that i gives to what j sends.
    """

    matrix: np.ndarray
    _neighbours: tuple[tuple[int, ...], ...] = dataclasses.field(init=False)

    def __post_init__(self) -> None:
        matrix = self.matrix
        if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1]:
            raise ValueError(f"a mixing matrix is square, got shape {matrix.shape}")
        if not (np.isfinite(matrix).all() and (matrix >= 0).all()):
            raise ValueError("mixing weights must be finite and >= 0")
        rows = tuple(tuple(np.flatnonzero(row)) for row in matrix)
        object.__setattr__(self, "_neighbours", rows)

    @classmethod
    def named(cls, graph: GraphName, weights: WeightName, nodes: int) -> Mixing:
        """Weights by name on a graph by name."""
        return cls(mixing_weights(undirected(graph, nodes), weights))

    @property
    def nodes(self) -> int:
        """How many nodes there are."""
        return len(self.matrix)

    @property
    def doubly_stochastic(self) -> bool:
        """Whether rows and columns add up to one, to 1e-12."""
        ones = np.ones(self.nodes)
        return bool(
            np.allclose(self.matrix.sum(0), ones, rtol=0, atol=1e-12)
            and np.allclose(self.matrix.sum(1), ones, rtol=0, atol=1e-12)
        )

    def __call__(self, sent: Tensor) -> Tensor:
        """What each node makes of its neighbours' messages.

        Additions in the order of the neighbours' numbers, so that the bits are those of
        a node that adds up its inbox alone (a matrix product's depend on its shape).

        Parameters
        ----------
        sent
            (runs, nodes, dims), row j what node j sent

        Returns
        -------
        (runs, nodes, dims), a new tensor: nothing is mixed in place
        """
        mixed = torch.empty_like(sent)
        for node, neighbours in enumerate(self._neighbours):
            total = sent[:, neighbours[0]] * float(self.matrix[node, neighbours[0]])
            for other in neighbours[1:]:
                total.add_(sent[:, other], alpha=float(self.matrix[node, other]))
            mixed[:, node] = total
        return mixed
