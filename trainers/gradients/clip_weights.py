"""Weights that clip each sample's gradient."""

from __future__ import annotations

import dataclasses
import math

import torch
from torch import Tensor

from trainers.numerics.deferred_checks import Watch, finite

# Norms of less than 2^28 numbers, added up in doubles, are not as wrong as this.
_MARGIN = 2.0**-24


@dataclasses.dataclass(frozen=True, slots=True)
class ClipTo:
    """Weights that scale each gradient to norm <= ``bound``, where ``mask`` is set."""

    bound: float  # the clip norm; infinity for none
    mask: Tensor  # (replicas, samples): bool, or factors in [0, 1]
    watch: Watch | None = None  # told of norms that are not finite

    def __call__(self, norms: Tensor) -> Tensor:
        """(replicas, samples). As `check`."""
        self.check(norms)
        bound = self.bound_as_tensor.to(norms.device) if self.binds else None
        return self.weights(norms, bound) * self.mask

    @property
    def binds(self) -> bool:
        """Return whether there is a bound."""
        return self.bound != math.inf

    @property
    def bound_as_tensor(self) -> Tensor:
        """The bound, without dimensions; 1 if there is none."""
        bound = self.bound if self.binds else 1.0
        return torch.full((), bound, dtype=torch.float64, device=self.mask.device)

    def check(self, norms: Tensor) -> None:
        """Count norms that are not finite; without a bound they are an error.

        Only where ``mask`` is set: nobody learns of a record that was not drawn. With
        a bound they are no error: whether a run ends would tell of its data.
        """
        if self.binds:
            if self.watch is not None:
                self.watch.count(~norms.isfinite() & (self.mask != 0))
        else:
            finite(norms.masked_fill(self.mask == 0, 0.0), self.watch)

    @staticmethod
    def weights(norms: Tensor, bound: Tensor | None) -> Tensor:
        """min(1, bound / norm), 0 for a norm that is not finite; 1 without a bound.

        The norm is taken a little too large, by more than it may be rounded, so that
        what is scaled with the weight has a norm of at most ``bound``.
        """
        if bound is None:
            return torch.ones_like(norms)
        margin = max(_MARGIN, 64 * torch.finfo(norms.dtype).eps)
        weights = bound / torch.maximum(norms * (1 + margin), bound)
        return weights.masked_fill(~norms.isfinite(), 0.0)


def clip_weights(norms: Tensor, clip: float) -> Tensor:
    """min(1, clip / norm) or slightly less; 1 without a bound, 0 for one not finite."""
    if clip == math.inf:
        finite(norms)
        return ClipTo.weights(norms, None)
    return ClipTo.weights(norms, norms.new_full((), clip))
