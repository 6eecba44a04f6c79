"""Capabilities that an oracle may have; callers ask for these, not for classes.

An oracle stands between an algorithm and the nodes' records: it writes down whatever it
gives out. `AnyOracle` is what all have; beside it, an oracle gives noisy gradients
(`GivesGradients`), noisy messages (`GivesMessages`) or noisy models (`GivesModels`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

from torch import Tensor

from privaudit.ledger import Ledger


class AnyOracle(Protocol):
    """What every oracle has."""

    @property
    def nodes(self) -> int:
        """How many nodes hold data."""
        ...

    @property
    def ledger(self) -> Ledger:
        """All that was released so far, node by node, in each of the runs."""
        ...

    def state_dict(self) -> dict[str, Any]:
        """What `load_state_dict` takes, for a checkpoint."""
        ...

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from where an oracle stood, made like this one."""
        ...


@runtime_checkable
class GivesGradients(Protocol):
    """Gives out noisy gradients: `trainers.oracles.oracle.Oracle`."""

    def gradient(self, at: Tensor, nodes: Sequence[int] | None = None) -> Tensor:
        """Noisy mean gradients of ``nodes`` at ``at``, (runs, len(nodes), dims)."""
        ...

    def releases_of(self, node: int) -> int:
        """How many releases ``node`` has made so far."""
        ...


@runtime_checkable
class GivesMessages(Protocol):
    """Keeps gradients inside nodes: `trainers.oracles.messages.oracle.MessageOracle`.

    What leaves a node goes by its ``channel``, which adds the noise.
    """

    def batch(self) -> Tensor:
        """A fresh batch of each node's records, (runs, nodes, records) bool."""
        ...

    def exact(self, at: Tensor, batch: Tensor) -> Tensor:
        """Mean gradient of a batch, (runs, nodes, dims): not to leave a node."""
        ...

    def clipped(self, at: Tensor, batch: Tensor, shared: Tensor) -> Tensor:
        """As `exact`, its ``shared`` entries alone, clipped, (runs, nodes, shared)."""
        ...


@runtime_checkable
class GivesModels(Protocol):
    """Gives out a global model: `trainers.algorithms.collaborative.oracle`."""

    def choose(self, turn: int) -> Tensor:
        """Which updates are global, bool, (runs, nodes, classes); seen by all."""
        ...

    def publish(self, turn: int, node: int, action: Tensor, shared: Tensor) -> Tensor:
        """The global model after a node's noisy update, (runs, classes, features)."""
        ...


@runtime_checkable
class HearsAll(Protocol):
    """Asks something of all nodes, wherever they are."""

    def over(self, broadcast: Any) -> None:
        """Other nodes are elsewhere: what each says to all goes by ``broadcast``."""
        ...


def gives(oracle: object, capability: type) -> bool:
    """Whether ``oracle``, an instance or what makes one, has ``capability``."""
    if isinstance(oracle, type):
        return issubclass(oracle, capability)
    return isinstance(oracle, capability)
