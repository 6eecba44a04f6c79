"""The oracle of nodes that perturb messages instead of gradients.

Batches and exact gradients stay at their node. In a round its message gains a step
along a gradient of L1 norm at most ``clip_norm``: the account is of that bound.
"""

from __future__ import annotations

import dataclasses
import fnmatch
import math
import sys
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import torch
from torch import Tensor

from privaudit.ledger import Ledger
from trainers.data import PrivateData
from trainers.data.transforms import plain
from trainers.gradients.clipping import summation
from trainers.gradients.differentiator import Differentiator
from trainers.gradients.per_sample import PerSample, check_hooks, parameter_places
from trainers.network.mixing import Mixing
from trainers.numerics.randomness import Streams
from trainers.oracles.messages.channel import Broadcast, Channel
from trainers.oracles.messages.noise import MessageNoise
from trainers.oracles.oracle import (
    MEMORY_LIMIT,
    Mechanism,
    ReleaseObserver,
    check_memory,
)
from trainers.oracles.sampler import Sampler

ClipBy = Literal["batch", "sample"]


@dataclasses.dataclass(frozen=True, slots=True)
class MessageMechanism(Mechanism):
    """Batches and clipping of gradients in L1 norm, and the noise of messages.

    ``clip_norm`` bounds the mean gradient of a batch, or each sample's (``clip_by``),
    for batches of fixed size. ``mixing`` has all rounds' weights, synchronisation
    included.
    """

    clip_by: ClipBy = "batch"
    messages: MessageNoise = dataclasses.field(
        default_factory=lambda: MessageNoise(0.0)
    )
    mixing: Mixing | None = None

    def __post_init__(self) -> None:
        if self.clip_by == "sample" and self.rate is not None:
            raise ValueError(
                "clipping by sample bounds the mean of batches that all nodes have of "
                "one size: set batch_size in the place of sampling_rate"
            )
        if self.clip_by == "sample" and self.sampling != "without-replacement":
            raise ValueError(
                "clipping by sample bounds the mean of a batch of fixed size only; set "
                "sampling=without-replacement"
            )


def shared_places(places: Mapping[str, range], shared: str) -> list[int]:
    """Entries of the parameter vector that are shared, in order.

    ``shared``: patterns of names with ``*`` and ``?``, with commas between; or
    ``layers:N``, the first N with parameters. ``ValueError`` if one fits no parameter.
    """
    kind, _, number = shared.partition(":")
    layers = list(dict.fromkeys(name.rpartition(".")[0] for name in places))
    if kind == "layers":
        if not number.isdigit() or not 1 <= int(number) <= len(layers):
            raise ValueError(
                f"shared={shared}: the model has {len(layers)} layers with parameters, "
                f"say layers:1 to layers:{len(layers)}, or patterns of names"
            )
        first = layers[: int(number)]
        chosen = {name for name in places if name.rpartition(".")[0] in first}
    else:
        chosen = set()
        for pattern in shared.split(","):
            found = fnmatch.filter(places, pattern.strip())
            if not found:
                raise ValueError(
                    f"shared={shared}: no parameter is called {pattern.strip()!r}; "
                    f"there are {', '.join(places)}"
                )
            chosen.update(found)
    return sorted(index for name in chosen for index in places[name])


class MessageOracle:
    """Exact gradients that stay at nodes, and a channel for noisy messages.

    Arguments are those of `trainers.oracles.oracle.Oracle`, without observers.
    """

    def __init__(
        self,
        data: PrivateData,
        differentiator: Differentiator,
        mechanism: MessageMechanism,
        streams: Streams,
        *,
        runs: int = 1,
        planted: Tensor | None = None,
        memory_limit: int = MEMORY_LIMIT,
        observers: Sequence[ReleaseObserver] = (),
    ) -> None:
        if observers:
            raise ValueError(
                "these nodes release messages, not gradients: choose an adversary that "
                "sees messages or models, such as final-loss"
            )
        check_memory(memory_limit)
        self.data, self.nodes = data, data.nodes
        self.mechanism = mechanism
        self.runs = runs
        self._differentiator = differentiator
        self._memory_limit = memory_limit
        self._sampler = Sampler(data, mechanism, streams, runs=runs, planted=planted)
        self._drawn = 0  # batches, of each node
        assert mechanism.mixing is not None
        self.channel = Channel(
            mechanism.messages,
            mechanism.mixing,
            streams,
            runs=runs,
            populations=data.sizes,
        )
        self._places = parameter_places(differentiator.module)
        self._shared: dict[str, Tensor] = {}
        self._by_sample = (
            PerSample(differentiator.module, differentiator.loss)
            if mechanism.clip_by == "sample"
            else None
        )

    def over(self, broadcast: Broadcast) -> None:
        self.channel.over(broadcast)

    @property
    def ledger(self) -> Ledger:
        return self.channel.ledger

    @property
    def clip_norm(self) -> float:
        """Bound on the L1 norm of a `clipped` gradient."""
        return self.mechanism.at(0)[0]

    def shared(self, pattern: str) -> Tensor:
        """Entries of the parameter vector that `shared_places` says, (shared,)."""
        if pattern not in self._shared:
            chosen = shared_places(self._places, pattern)
            self._shared[pattern] = torch.tensor(
                chosen, dtype=torch.long, device=self.data.device
            )
        return self._shared[pattern]

    def batch(self) -> Tensor:
        check_hooks()
        index, self._drawn = self._drawn, self._drawn + 1
        return self._sampler.batches(range(self.nodes), index)

    def exact(self, at: Tensor, batch: Tensor) -> Tensor:
        at = plain(at)
        flat = at.flatten(0, 1)
        planned = summation(
            self._differentiator,
            self.data,
            flat,
            batch_size=self.mechanism.batch_size,
            memory_limit=self._memory_limit,
            clips=False,
            varies=self.mechanism.varies,
        )
        nodes = torch.arange(self.nodes, device=at.device)
        # A record whose gradient is not finite counts nothing: no run ends by it.
        most = sys.float_info.max if self._is_private else math.inf
        total = planned.clipped_sum(flat, batch.flatten(0, 1), nodes, most)
        return total.view_as(at).div_(self.mechanism.batch_size).to(at.dtype)

    def clipped(self, at: Tensor, batch: Tensor, shared: Tensor) -> Tensor:
        """Shared entries of `exact`, (runs, nodes, shared), L1 norm <= clip_norm."""
        if self._by_sample is not None:
            return self._clipped_by_sample(at, batch, shared)
        return self._scaled(self.exact(at, batch)[:, :, shared].double())

    @property
    def _is_private(self) -> bool:
        return self.mechanism.messages.noise_multiplier > 0

    def _scaled(self, gradients: Tensor) -> Tensor:
        """Gradients clipped to clip_norm in L1, in doubles; 0 where not finite."""
        norms = gradients.abs().sum(-1)
        fine = norms.isfinite()
        if not (self._is_private or fine.all()):
            raise ValueError(
                "a gradient is not finite, so that clipping cannot bound it: lower the "
                "step size or the noise"
            )
        gradients = gradients.masked_fill(~fine[..., None], 0.0)
        if self.clip_norm == math.inf:
            return gradients
        weights = self.clip_norm / norms.clamp_min(self.clip_norm)
        return gradients * weights.masked_fill(~fine, 0.0)[..., None]

    def _clipped_by_sample(self, at: Tensor, batch: Tensor, shared: Tensor) -> Tensor:
        assert self._by_sample is not None
        size = int(self.mechanism.batch_size)
        rows = self.runs * self.nodes
        chosen = batch.nonzero(as_tuple=True)[2].view(rows, size)
        node = torch.arange(self.nodes, device=at.device).repeat(self.runs)
        flat = at.reshape(rows, -1)
        means = at.new_empty((rows, len(shared)), dtype=torch.float64)
        values = 3 * size * flat.shape[1] * 8
        step = max(1, self._memory_limit // values)
        for top in range(0, rows, step):
            here = slice(top, top + step)
            inputs, targets = self.data.records(node[here], chosen[here])
            each = self._by_sample.gradients(flat[here], inputs, targets)
            each = each[:, :, shared].double()
            means[here] = self._scaled(each).sum(1) / size
        return means.view(self.runs, self.nodes, -1)

    def state_dict(self) -> dict[str, Any]:
        """Number of batches of each node and the channel's state, for a checkpoint."""
        drawn = [self._drawn] * self.nodes
        return {"releases": drawn, "channel": self.channel.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._drawn = state["releases"][0]
        self.channel.load_state_dict(state["channel"])
