"""What every layer over stacked parameters does."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

# Values that a norm may keep beside what it is given: samples are taken in blocks, so
# that Gram matrices and single gradients never exist for all of them at once.
SCRATCH = 1 << 22


class UnknownLayerError(Exception):
    """The module has parameters outside the layers that book-keeping knows."""


class StackedLayer(nn.Module):
    """A layer whose parameters differ from replica to replica.

    It stands where the original stood and sees all samples of all replicas as one flat
    batch. `parameters_now` holds views into the stacked vector, by name. While it
    ``keeps``, every use adds to ``taken`` what went in and to ``given`` what came out;
    a gradient is then a sum over the uses.
    """

    main: ClassVar[str] = (
        "weight"  # the parameter that says how many replicas there are
    )

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.names = [name for name, _ in layer.named_parameters()]
        self.parameters_now: dict[str, Tensor] = {}
        self.keeps = False
        self.taken: list[Tensor] = []
        self.given: list[Tensor] = []

    def forward(self, flat: Tensor) -> Tensor:  # (replicas * samples, ...)
        replicas = self.parameters_now[self.main].shape[0]
        taken, given = self.compute(flat, replicas)
        if self.keeps:
            if not given.requires_grad:
                given.requires_grad_()
            self.taken.append(taken.detach())
            self.given.append(given)
        return given

    def compute(self, flat: Tensor, replicas: int) -> tuple[Tensor, Tensor]:
        """What is kept for later, and the layer's output."""
        raise NotImplementedError  # each layer has its own

    def digest(self, taken: list[Tensor], returned: list[Tensor]) -> tuple[Tensor, Any]:
        """Squared norms of the samples' gradients, and what their sums are made from.

        From what was kept and the outputs' gradients; norms are (replicas * samples,).
        """
        raise NotImplementedError  # each layer has its own

    def sums(self, digest: Any, weights: Tensor) -> dict[str, Tensor]:
        """Weighted sums of the gradients of each parameter, (replicas, ...).

        ``digest`` is the second of what `digest` gave, ``weights`` (replicas, samples).
        """
        raise NotImplementedError  # each layer has its own


class StackedExplicit(StackedLayer):
    """A layer with so few parameters that each sample's gradient is written out.

    Once: its norm and the weighted sum are made from it.
    """

    def gradients(
        self, taken: list[Tensor], returned: list[Tensor]
    ) -> dict[str, Tensor]:
        """Each sample's gradient by parameter, (replicas * samples, ...)."""
        raise NotImplementedError  # each layer has its own

    def digest(
        self, taken: list[Tensor], returned: list[Tensor]
    ) -> tuple[Tensor, dict[str, Tensor]]:
        parts = self.gradients(taken, returned)
        squares = [part.flatten(1).square().sum(1) for part in parts.values()]
        return torch.stack(squares).sum(0), parts

    def sums(self, digest: dict[str, Tensor], weights: Tensor) -> dict[str, Tensor]:
        return explicit_sums(digest, weights)


def explicit_sums(gradients: dict[str, Tensor], weights: Tensor) -> dict[str, Tensor]:
    """Weighted sums, (replicas, ...), of gradients written out, (flat, ...)."""
    replicas, samples = weights.shape
    result = {}
    for name, part in gradients.items():
        rows = part.reshape(replicas, samples, -1)
        total = torch.bmm(weights[:, None], rows)[:, 0]  # (replicas, values)
        result[name] = total.view(replicas, *part.shape[1:])
    return result


def blocks(samples: int, values: int) -> Iterator[slice]:
    """Slices of ``samples`` whose scratch of ``values`` a sample stays in bounds."""
    step = max(1, SCRATCH // max(1, values))
    for start in range(0, samples, step):
        yield slice(start, min(start + step, samples))


def joined(uses: list[Tensor], dim: int) -> Tensor:
    """All uses of a layer side by side; the tensor itself if there is one."""
    return uses[0] if len(uses) == 1 else torch.cat(uses, dim)


def squared_products(left: Tensor, right: Tensor) -> Tensor:
    """Squared Frobenius norm of left' right for each sample, (samples,).

    ``left`` is (samples, positions, outputs), ``right`` (samples, positions, inputs).
    Either the product is written out, outputs * inputs values a sample, or two Gram
    matrices over the positions are, whose product adds up to the same (ghost norm):
    whichever is smaller. Neither gives less than is true, see `with_slack` and
    `not_less`.
    """
    samples, positions, outputs = left.shape
    values = outputs * right.shape[2]
    explicit = values <= 2 * positions * positions
    parts = []
    for here in blocks(samples, values if explicit else 2 * positions * positions):
        if explicit:
            product = torch.bmm(left[here].mT, right[here])
            lengths = left[here].square().sum((1, 2)) * right[here].square().sum((1, 2))
            square = product.square_().sum((1, 2))
            parts.append(with_slack(square, lengths.sqrt(), positions))
        else:
            gram = torch.bmm(left[here], left[here].mT)
            other = torch.bmm(right[here], right[here].mT)
            lengths = (_diagonal(gram) * _diagonal(other)).sqrt().sum(1)
            square = gram.mul_(other).sum((1, 2))
            length = outputs + right.shape[2] + positions
            parts.append(not_less(square, lengths.square(), length))
    return torch.cat(parts)


def not_less(square: Tensor, terms: Tensor, length: int) -> Tensor:
    """``square``, a sum whose terms may cancel, made no less than what is true.

    A squared norm that is added up from inner products of a sample's positions,
    sum_ts <b_t, b_s> <a_t, a_s>, may be all but nothing while its terms are large, and
    what is left of it is rounding: a gradient above the bound would pass for a small
    one, or for none. The sizes of the terms add up to at most (sum_t |b_t| |a_t|)^2 =
    ``terms`` (Cauchy and Schwarz). The error is at most that times a rounding for each
    addition in a row, of which a product makes one in eight of its ``length`` or fewer:
    kernels keep eight partial sums and more.
    """
    slack = (8 + length / 8) * torch.finfo(square.dtype).eps
    return square.clamp_min(0).addcmul(terms, terms.new_full((), slack))


def squared_sums(back: Tensor) -> Tensor:
    """Squared norm of each sample's sum over positions, (samples,); see `with_slack`.

    ``back`` is (samples, positions, features).
    """
    lengths = torch.linalg.vector_norm(back, dim=2).sum(1)
    return with_slack(back.sum(1).square().sum(1), lengths, back.shape[1])


def with_slack(square: Tensor, terms: Tensor, positions: int) -> Tensor:
    """``square``, of a sum over positions, as large as it may come out elsewhere.

    The norm is taken of a sum made for this sample alone, but what is released is a sum
    over all samples in one go. There a sample's positions may cancel one another, and
    still take away, while they are in the sum, the last digits of all the others':
    rounding is relative to what is added, whose sizes add up to ``terms`` at most, not
    to what is left. So the norm is that of what is left and a rounding of ``terms`` for
    each addition in a row, of which a product makes one in eight of the ``positions``
    or fewer, as in `not_less`, and some in which blocks are joined.
    """
    slack = (16 + positions / 8) * torch.finfo(square.dtype).eps
    return square.sqrt().add(terms, alpha=slack).square()


def _diagonal(gram: Tensor) -> Tensor:
    return gram.diagonal(dim1=1, dim2=2)
