"""Oracles that record a run, or stand in for another."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import torch
from torch import Tensor


class Recording:
    """Keeps all releases: pairs of parameters and gradient, and their ``nodes``."""

    def __init__(self) -> None:
        self.releases: list[tuple[Tensor, Tensor]] = []
        self.nodes: list[tuple[int, ...]] = []

    def release(
        self, index: int, at: Tensor, gradient: Tensor, nodes: Sequence[int]
    ) -> None:
        self.releases.append((at.clone(), gradient.clone()))
        self.nodes.append(tuple(nodes))

    def happened(self, nodes: int) -> list[int]:
        """Number of releases of each node, of ``nodes`` in all."""
        return [sum(node in some for some in self.nodes) for node in range(nodes)]


class Tape:
    """Takes an oracle's place and repeats a ``recording``, in order, without data."""

    def __init__(self, recording: Recording, nodes: int) -> None:
        self.nodes = nodes
        self._asked = [0] * nodes
        self._left: Iterator[tuple[Tensor, Tensor]] = iter(recording.releases)

    def gradient(self, at: Tensor, nodes: Sequence[int] | None = None) -> Tensor:
        """The next recorded release, (runs, nodes, dims), whatever ``at`` is."""
        for node in range(self.nodes) if nodes is None else nodes:
            self._asked[node] += 1
        return next(self._left)[1].clone()

    def releases_of(self, node: int) -> int:
        return self._asked[node]


class Messages:
    """Keeps all messages that nodes sent; ``sent`` has a dictionary for each round."""

    def __init__(self) -> None:
        self.sent: list[dict[str, Tensor]] = []

    def messages(self, k: int, sent: Mapping[str, Tensor]) -> None:
        self.sent.append({name: tensor.clone() for name, tensor in sent.items()})

    def differs_from(self, other: Messages) -> list[str]:
        """Names the messages that differ from those of ``other`` in any bit."""
        return [
            f"message {name} of round {k}"
            for k, (one, two) in enumerate(zip(self.sent, other.sent, strict=True))
            for name in one
            if not torch.equal(one[name], two[name])
        ]
