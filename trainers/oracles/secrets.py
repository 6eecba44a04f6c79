"""Noise that pairs of nodes share, and that cancels in the sum of both.

Of a common secret one adds it, the other subtracts it (Allouah et al. 2024, DECOR).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import torch
from torch import Tensor

from trainers.numerics.randomness import grid_step
from trainers.oracles.mechanism import Mechanism
from trainers.oracles.oracle import Oracle


@dataclasses.dataclass(frozen=True, slots=True)
class PairedMechanism(Mechanism):
    """A mechanism whose nodes also share noise in pairs, which no release counts."""

    # pairs of nodes, the lower number first: it adds the shared noise, the other
    # subtracts it. Other arguments are those of `Mechanism`
    pairs: tuple[tuple[int, int], ...] = ()
    # standard deviation of a pair's noise, divided by that of a node's own noise
    shared: float = 0.0


class PairedOracle(Oracle):
    """Noisy gradients with a node's own noise and that of its pairs; all nodes here."""

    def _noisy(
        self, total: Tensor, nodes: Sequence[int], deviation: float, step: float
    ) -> Tensor:
        index = self._releases[nodes[0]]
        total = super()._noisy(total, nodes, deviation, step)
        rows = {node: row for row, node in enumerate(nodes)}
        mechanism = self.mechanism
        if not isinstance(mechanism, PairedMechanism) or not mechanism.shared:
            return total
        size = mechanism.shared * deviation
        step = max(step, grid_step(size))  # whole steps of the finer one as well
        for number, (one, other) in enumerate(mechanism.pairs):
            if not {one, other} & rows.keys():
                continue
            still = torch.zeros_like(total[:, :1])
            # Secrets know nothing of sums: both nodes draw the same.
            drawn = self._streams.noisy(
                still, [number], index, size, step, purpose="secret"
            )
            if one in rows:
                total[:, rows[one]] += drawn[:, 0]
            if other in rows:
                total[:, rows[other]] -= drawn[:, 0]
        return total
