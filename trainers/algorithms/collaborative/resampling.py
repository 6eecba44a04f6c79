"""The baseline of paper 002: one global model, batches drawn anew in every update.

DP-SGD with replacement (section V): a node drawn in public updates the global model, w
<- w - eta_t (grad f_D(w) + N), until as many batches were taken as fill five passes.
Within a batch a record is once: a sample of fixed size without replacement.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from privaudit.ledger import Ledger, Recorder
from privaudit.release import Release, SamplingWithoutReplacement
from trainers.algorithms.collaborative.logistic import signs
from trainers.algorithms.collaborative.one_pass import OnePass
from trainers.algorithms.collaborative.oracle import Participants
from trainers.data import PrivateData
from trainers.gradients.per_sample import check_hooks
from trainers.numerics.device import placed


@dataclasses.dataclass(frozen=True, slots=True)
class Resampled(OnePass):
    """Mechanism of updates from fresh batches; no step size is too large.

    ``passes``: how often a record may be visited on average. A round has as many
    updates as nodes, of step ``step_size`` over the square root of its number.
    """

    passes: int = 5

    def steps(self, turns: int) -> np.ndarray:
        """eta / sqrt(t), t = 1, 2, ..."""
        return np.array([self.step_size(k) / math.sqrt(k + 1) for k in range(turns)])

    def schedule(self, sizes: Sequence[int]) -> list[list[int]]:
        """Nodes that update, one after another, in each round; public."""
        left = [self.passes * (size // int(self.batch_size)) for size in sizes]
        rng = np.random.default_rng([self.choices.coin_seed, len(sizes)])
        found: list[list[int]] = []
        for _ in range(self.rounds):
            found.append([])
            for node in rng.integers(len(sizes), size=len(sizes)).tolist():
                if left[node]:
                    left[node] -= 1
                    found[-1].append(node)
        return found

    def one_release(self, records: int, classes: int) -> Release:
        """All classes' gradients of one batch together: they share its sample."""
        _, multiplier = self.at(0)
        bound = math.sqrt(classes) * self.constants.lipschitz
        return Release.of_sum(
            norm_bound=bound,
            noise_multiplier=multiplier * self.constants.lipschitz / bound,
            sampling=SamplingWithoutReplacement(int(self.batch_size), records),
        )

    def ledger_of(self, sizes: Sequence[int], classes: int) -> Ledger:
        recorder = Recorder(len(sizes))
        for nodes in self.schedule(sizes):
            for node in nodes:
                recorder.record(node, self.one_release(sizes[node], classes))
        return recorder.ledger()


class Resampling(Participants):
    """The nodes' records, in batches drawn anew; no local models of their own."""

    @property
    def turns(self) -> int:
        return len(self._schedule)

    def __init__(
        self,
        data: PrivateData,
        differentiator: object,
        mechanism: Resampled,
        *rest: Any,
        **more: Any,
    ) -> None:
        self._resampled = mechanism
        self._schedule = mechanism.schedule(data.sizes)
        self._drawn = [0] * len(data.sizes)  # batches, of each node
        super().__init__(data, differentiator, mechanism, *rest, **more)
        self._steps = mechanism.steps(self.turns)

    def _places(self, node: int, size: int) -> Tensor:
        """In their own order; what is drawn is drawn update by update."""
        return torch.arange(size, device=self._rows.device).repeat(self.runs, 1)

    def _batch(self, turn: int, nodes: Sequence[int]) -> tuple[Tensor, Tensor]:
        """A fresh uniform sample of one node's records in every run."""
        check_hooks()
        (node,) = nodes
        size = int(self.mechanism.batch_size)
        shape, index = (self.runs, self.sizes[node]), self._drawn[node]
        self._drawn[node] += 1
        drawn = self._streams.subsets([node], index, shape, size)[:, 0]
        # A subset of a fixed size: as many places in every run.
        chosen = self._order[node][drawn].view(self.runs, size)
        rows = self._rows[node][chosen][:, None].to(self._local.dtype)
        own = signs(self._targets[node][chosen][:, None], self._local.shape[2])
        return rows, own.to(rows.dtype)

    def choose(self, turn: int) -> Tensor:
        """Mask of nodes that update, (runs, nodes, classes): as drawn beforehand."""
        here = tuple(node in self._schedule[turn] for node in range(self.nodes))
        here = placed(here, self._rows.device, torch.bool)
        return here[None, :, None].expand(self.runs, -1, self._local.shape[2])

    def locally(self, turn: int, action: Tensor) -> None:
        """No model is local."""

    def publish(self, turn: int, node: int, action: Tensor, shared: Tensor) -> Tensor:
        """The ``node``-th update of the round, by whoever's turn it is."""
        if node >= len(self._schedule[turn]):
            return shared
        who = self._schedule[turn][node]
        # With the local model at the global one the update is the plain step.
        self._local[:, who] = shared
        self._peak[:, who] = 0.0
        release = self._resampled.one_release(self.sizes[who], shared.shape[1])
        self._recorder.record(who, release)
        return super().publish(turn, who, action, shared)

    def state_dict(self) -> dict:
        return {**super().state_dict(), "drawn": list(self._drawn)}

    def load_state_dict(self, state: dict) -> None:
        super().load_state_dict(state)
        self._drawn = list(state["drawn"])
