"""Oracles that record a run, or stand in for another."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import torch
from torch import Tensor


class Recording:
    """Keeps all that an oracle gave out: (where it was asked, what it said)."""

    def __init__(self) -> None:
        self.releases: list[tuple[Tensor, Tensor]] = []
        self.nodes: list[tuple[int, ...]] = []

    def release(
        self, index: int, at: Tensor, gradient: Tensor, nodes: Sequence[int]
    ) -> None:
        """See a release."""
        self.releases.append((at.clone(), gradient.clone()))
        self.nodes.append(tuple(nodes))

    def happened(self, nodes: int) -> list[int]:
        """How many releases each of ``nodes`` made."""
        return [sum(node in some for some in self.nodes) for node in range(nodes)]


class Tape:
    """In an oracle's place: says again what was released, and knows nothing else."""

    def __init__(self, recording: Recording, nodes: int) -> None:
        self.nodes = nodes
        self._asked = [0] * nodes
        self._left: Iterator[tuple[Tensor, Tensor]] = iter(recording.releases)

    def gradient(self, at: Tensor, nodes: Sequence[int] | None = None) -> Tensor:
        """The next release, whatever is asked."""
        for node in range(self.nodes) if nodes is None else nodes:
            self._asked[node] += 1
        return next(self._left)[1].clone()

    def releases_of(self, node: int) -> int:
        """How many releases ``node`` has made so far."""
        return self._asked[node]


class Messages:
    """Keeps all that nodes sent."""

    def __init__(self) -> None:
        self.sent: list[dict[str, Tensor]] = []

    def messages(self, k: int, sent: Mapping[str, Tensor]) -> None:
        """See what is sent."""
        self.sent.append({name: tensor.clone() for name, tensor in sent.items()})

    def differs_from(self, other: Messages) -> list[str]:
        """Which messages are not, bit for bit, those of ``other``."""
        return [
            f"message {name} of round {k}"
            for k, (one, two) in enumerate(zip(self.sent, other.sent, strict=True))
            for name in one
            if not torch.equal(one[name], two[name])
        ]
