"""How much of each sample's gradient is summed."""

from __future__ import annotations

import dataclasses
import math

import torch
from torch import Tensor

from trainers.numerics.deferred_checks import Watch, finite


@dataclasses.dataclass(frozen=True, slots=True)
class ClipTo:
    """Weights that scale each gradient to norm <= ``bound``, where ``mask`` is set.

    Parameters
    ----------
    bound
        The clip norm; infinity for none.
    mask
        (replicas, samples): bool, or factors in [0, 1].
    watch
        Told of norms that are not finite; they are an error at once by default.
    """

    bound: float
    mask: Tensor
    watch: Watch | None = None

    def __call__(self, norms: Tensor) -> Tensor:
        """(replicas, samples). Raises ``ValueError`` as `check`."""
        self.check(norms)
        bound = self.bound_like(norms) if self.binds else None
        return self.weights(norms, bound) * self.mask

    @property
    def binds(self) -> bool:
        """Whether there is a bound."""
        return self.bound != math.inf

    def bound_like(self, tensor: Tensor) -> Tensor:
        """The bound as a tensor without dimensions; 1 if there is none."""
        return tensor.new_full((), self.bound if self.binds else 1.0)

    def check(self, norms: Tensor) -> None:
        """Raise ``ValueError`` for a norm that is not finite, or tell ``watch``.

        Only where ``mask`` is set: nobody learns of a record that was not drawn.
        """
        finite(norms.masked_fill(self.mask == 0, 0.0), self.watch)

    @staticmethod
    def weights(norms: Tensor, bound: Tensor | None) -> Tensor:
        """min(1, bound / norm) for every norm that is finite; 1 without a bound.

        The norm is taken a little too large, by 64 roundings, so that what is scaled
        with the weight has a norm of at most ``bound`` after rounding too.
        """
        if bound is None:
            return torch.ones_like(norms)
        large = norms * (1 + 64 * torch.finfo(norms.dtype).eps)
        return bound / torch.maximum(large, bound)


def clip_weights(norms: Tensor, clip: float) -> Tensor:
    """min(1, clip / norm) for every norm; 1 without a bound, and for a zero gradient.

    Slightly less, see `ClipTo.weights`. Raises ``ValueError`` for a norm that is not
    finite.
    """
    finite(norms)
    return ClipTo.weights(norms, norms.new_full((), clip) if clip < math.inf else None)
