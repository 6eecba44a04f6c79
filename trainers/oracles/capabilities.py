"""Capabilities that an oracle may have; callers ask for these, not for classes.

An oracle writes down whatever it gives out of the nodes' records.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

from torch import Tensor


@runtime_checkable
class GivesGradients(Protocol):
    """Gives out noisy gradients: `trainers.oracles.oracle.Oracle`."""

    def gradient(self, at: Tensor, nodes: Sequence[int] | None = None) -> Tensor:
        """Noisy mean gradients of ``nodes`` at ``at``, (runs, len(nodes), dims)."""

    def releases_of(self, node: int) -> int:
        """Number of releases ``node`` has made so far."""


@runtime_checkable
class GivesMessages(Protocol):
    """Keeps gradients inside nodes; what leaves them goes by its noisy ``channel``."""

    def batch(self) -> Tensor:
        """A fresh batch of each node's records, (runs, nodes, records) bool."""

    def exact(self, at: Tensor, batch: Tensor) -> Tensor:
        """Mean gradients of a batch, (runs, nodes, dims): must not leave nodes."""

    def clipped(self, at: Tensor, batch: Tensor, shared: Tensor) -> Tensor:
        """The entries ``shared`` of `exact`, clipped: (runs, nodes, shared)."""


@runtime_checkable
class HearsAll(Protocol):
    """Needs messages of all nodes, also of those that other processes hold."""

    def over(self, broadcast: Any) -> None:
        """Send what a node says to all others by ``broadcast``, between processes."""


def gives(oracle: object, capability: type) -> bool:
    """Return whether ``oracle``, instance or class, has ``capability``, a protocol."""
    return issubclass(oracle if isinstance(oracle, type) else type(oracle), capability)
