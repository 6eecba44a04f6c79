"""Book-keeping under `torch.compile`: what the eager code does, traced once a shape."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.fx.experimental.proxy_tensor import make_fx

from trainers.gradients.bookkeeping import BookKeeping
from trainers.gradients.clip_weights import ClipTo
from trainers.gradients.door.trace import tracing
from trainers.gradients.per_sample import Weigh
from trainers.gradients.rounding import SLACK
from trainers.gradients.stacked.functions import QuickMaxPool

_Function = Callable[..., tuple[Tensor, Tensor]]


class Compiled:
    """A `trainers.gradients.bookkeeping.BookKeeping`, compiled: a program a shape.

    Compiling takes tens of seconds on a CPU, a few where torch's cache on disk has it.
    Numbers are those of the eager code to a few roundings, not covered by ``sums.md``:
    a compiler may compute a number twice, in other ways, for the norm and for the sum.
    What a run says of its protection says so. Weights other than `ClipTo` go to
    ``eager``.
    """

    word: int | Tensor = 0  # nothing drops here

    def __init__(self, eager: BookKeeping) -> None:
        self.eager = eager
        self.ways = eager.ways
        self.module = eager.module
        self.loss, self.dims, self.tried = eager.loss, eager.dims, eager.tried
        self.positions, self.length = eager.positions, eager.length
        self.coarse = eager.coarse
        self._functions: dict[tuple[Any, ...], _Function] = {}

    @property
    def values_per_sample(self) -> int:
        """As that of the eager code, which keeps no less."""
        return self.eager.values_per_sample

    @property
    def values_alone(self) -> int:
        """As `values_per_sample`, where each replica has but one sample."""
        return self.eager.values_alone

    @property
    def aligned(self) -> bool:
        """As of the eager code."""
        return self.eager.aligned

    @aligned.setter
    def aligned(self, yes: bool) -> None:
        self.eager.aligned = yes

    def rows(self, at: Tensor, inputs: Tensor, targets: Tensor) -> list[Tensor]:
        """Those of the eager code."""
        return self.eager.rows(at, inputs, targets)

    def outputs(self, at: Tensor, inputs: Tensor) -> Tensor:
        """Outputs of each replica's model for its inputs; not compiled."""
        return self.eager.outputs(at, inputs)

    def weighted_sum(
        self,
        at: Tensor,
        inputs: Tensor,
        targets: Tensor,
        weigh: Weigh,
        slack: float = SLACK,
    ) -> Tensor:
        """As that of the eager code, with its errors."""
        if not isinstance(weigh, ClipTo):
            return self.eager.weighted_sum(at, inputs, targets, weigh, slack)
        given = [at, inputs, targets, weigh.mask, weigh.bound_as_tensor]
        key = (weigh.binds, slack, self.aligned, *_kinds(given))
        with torch.no_grad():
            if key not in self._functions:
                with tracing:
                    self._functions[key] = self._compile(weigh.binds, slack, given)
            total, norms = self._functions[key](*given)
        weigh.check(norms)
        return total

    def _compile(self, binds: bool, slack: float, given: Sequence[Tensor]) -> _Function:
        seen: list[Tensor] = []

        def function(
            at: Tensor, inputs: Tensor, targets: Tensor, mask: Tensor, bound: Tensor
        ) -> tuple[Tensor, Tensor]:
            def weigh(norms: Tensor) -> Tensor:
                seen.append(norms)
                return ClipTo.weights(norms, bound if binds else None) * mask

            total = self.eager.weighted_sum(at, inputs, targets, weigh, slack)
            return total, seen.pop()

        pools = [
            layer
            for layer in self.eager.template.modules()
            if isinstance(layer, QuickMaxPool)
        ]
        for pool in pools:
            pool.traced = True
        try:
            traced = make_fx(function)(*given)
        finally:
            for pool in pools:
                pool.traced = False
        if given[0].device.type != "cuda":
            return torch.compile(traced, dynamic=False, fullgraph=True)
        # The host starts all kernels at once, and what they wrote is overwritten then.
        graph = torch.compile(
            traced, dynamic=False, fullgraph=True, mode="reduce-overhead"
        )
        return lambda *given: tuple(each.clone() for each in graph(*given))


def _kinds(tensors: Sequence[Tensor]) -> list[tuple[Any, ...]]:
    return [(each.shape, each.dtype, each.device) for each in tensors]
