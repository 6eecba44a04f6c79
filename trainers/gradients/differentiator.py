"""The protocol of what takes gradients of a module."""

from __future__ import annotations

from typing import Any, Protocol

from torch import Tensor, nn

from trainers.gradients.per_sample import Loss, Weigh


class Differentiator(Protocol):
    """Weighted sums of per-sample gradients: `PerSample` and `BookKeeping`."""

    module: nn.Module  # as it was given
    loss: Loss
    dims: int
    positions: int  # see `trainers.gradients.rounding.Rounding.of`
    length: int
    coarse: int
    ways: str  # how each layer's gradients are taken, in words
    # Of the release, or of each replica: dropout is a function of it and of a record.
    word: int | Tensor
    graphs: dict[Any, Any] | None  # of calls by their shape; None: none are made
    values_per_sample: int  # about how many numbers one sample of a batch keeps alive
    values_alone: int  # the same where each replica has but one sample

    @property
    def aligned(self) -> bool:
        """Return whether rows are aligned; it stays False where they cannot be."""

    @aligned.setter
    def aligned(self, yes: bool) -> None: ...

    def rows(self, at: Tensor, inputs: Tensor, targets: Tensor) -> list[Tensor]:
        """All that a weighted sum is made from, (replicas * samples, ...) each."""

    def weighted_sum(
        self,
        at: Tensor,
        inputs: Tensor,
        targets: Tensor,
        weigh: Weigh,
        slack: float = ...,
    ) -> Tensor:
        """Sum over the samples of weight times gradient, (replicas, dims) doubles.

        ``at`` is (replicas, dims), ``inputs`` and ``targets`` (replicas, samples, ...);
        ``weigh`` makes weights from L2 norms, both (replicas, samples) doubles. Norms
        are ``slack`` times the sizes of what may cancel in them too large. A sample
        whose norm is not finite counts nothing.
        """

    def outputs(self, at: Tensor, inputs: Tensor) -> Tensor:
        """Outputs of each replica's model for its inputs, (replicas, samples, ...)."""
