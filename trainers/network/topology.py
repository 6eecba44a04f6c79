"""Cycles of graphs, and whether they connect all nodes."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

import numpy as np
from scipy.sparse.csgraph import connected_components


@dataclasses.dataclass(frozen=True, eq=False)
class Topology:
    """A cycle of graphs without weights."""

    # (period, nodes, nodes) bool: entry kij says whether i hears j in the rounds that
    # are k modulo the period. The diagonal is left out: every node hears itself
    hears: np.ndarray

    def __post_init__(self) -> None:
        hears = np.array(self.hears, dtype=bool)
        if hears.ndim != 3 or hears.shape[1] != hears.shape[2] or 0 in hears.shape:
            raise ValueError(
                "a topology has the shape (period, nodes, nodes), with at least one "
                f"node and one round; got {hears.shape}"
            )
        hears[:, np.eye(hears.shape[1], dtype=bool)] = False
        hears.flags.writeable = False
        object.__setattr__(self, "hears", hears)

    @classmethod
    def of_edges(
        cls, nodes: int, edges: Iterable[tuple[int, int]], *, directed: bool = False
    ) -> Topology:
        """The same graph in every round; edge (a, b): a sends to b."""
        check_nodes(nodes)
        hears = np.zeros((1, nodes, nodes), dtype=bool)
        for sender, receiver in edges:
            if not (0 <= sender < nodes and 0 <= receiver < nodes):
                raise ValueError(
                    f"edge {sender}-{receiver}: the nodes are 0 to {nodes - 1}"
                )
            hears[0, receiver, sender] = True
            if not directed:
                hears[0, sender, receiver] = True
        return cls(hears)

    @property
    def nodes(self) -> int:
        return self.hears.shape[1]

    @property
    def directed(self) -> bool:
        """Return whether some node hears one that does not hear it in that round."""
        return bool((self.hears != self.hears.transpose(0, 2, 1)).any())


def strongly_connected(hears: np.ndarray) -> bool:
    """Return whether messages reach every node from every other.

    ``hears``, (nodes, nodes) bool: entry ij says whether i hears j.
    """
    return connected_components(hears, connection="strong")[0] == 1


def check_nodes(nodes: int) -> None:
    if nodes < 1:
        raise ValueError(f"a network needs at least one node, got {nodes}")
