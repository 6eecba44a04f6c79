"""What takes gradients of a module: the protocol."""

from __future__ import annotations

from typing import Protocol

from torch import Tensor, nn

from trainers.gradients.per_sample import Loss, Weigh


class Differentiator(Protocol):
    """Weighted sums of per-sample gradients under stacked parameters.

    `trainers.gradients.per_sample.PerSample` is the reference,
    `trainers.gradients.bookkeeping.BookKeeping` the fast one,
    `trainers.gradients.compiled.Compiled` the same compiled.
    """

    module: nn.Module  # as it was given
    loss: Loss
    dims: int
    static: bool  # whether each shape of inputs costs a compilation

    @property
    def values_per_sample(self) -> int:
        """About how many numbers one sample of a batch keeps alive."""
        ...

    def weighted_sum(
        self, at: Tensor, inputs: Tensor, targets: Tensor, weigh: Weigh
    ) -> Tensor:
        """Sum over the samples of weight times gradient, (replicas, dims).

        ``at`` is (replicas, dims), ``inputs`` and ``targets`` (replicas, samples, ...);
        ``weigh`` makes weights from L2 norms, both (replicas, samples).
        """
        ...

    def outputs(self, at: Tensor, inputs: Tensor) -> Tensor:
        """What each replica's model says of its inputs, (replicas, samples, ...)."""
        ...
