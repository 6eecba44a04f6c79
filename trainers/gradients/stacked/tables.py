"""Embeddings and learned offsets of many replicas at once."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from trainers.gradients.stacked.layer import (
    Digest,
    StackedExplicit,
    StackedLayer,
    blocks,
    explicit_sums,
    fits,
    joined,
    outer_sum,
    squared_products,
    with_rows,
    written_out,
)
from trainers.gradients.stacked.linear import StackedLinear, positions_of


class StackedEmbedding(StackedLayer):
    """`torch.nn.Embedding` of (samples, ...) tokens.

    Positions with one token share a row, so that a squared norm is the sum of the
    products of all pairs of positions with equal tokens.
    """

    def __init__(self, layer: nn.Embedding) -> None:
        super().__init__(layer)
        self.padding = layer.padding_idx

    def compute(self, flat: Tensor, replicas: int) -> tuple[Tensor, Tensor]:
        weight = self.parameters_now["weight"]  # (replicas, tokens, features)
        # Negative ones count from the end; as they are, they would be rows of the
        # replica before when gradients are summed.
        flat = torch.where(flat < 0, flat + weight.shape[1], flat)
        replica = torch.arange(replicas, device=flat.device)[:, None]
        return flat, weight[replica, flat.reshape(replicas, -1)].view(*flat.shape, -1)

    def _uses(
        self, taken: list[Tensor], returned: list[Tensor]
    ) -> tuple[Tensor, Tensor]:
        """Tokens (flat, positions) and gradients (flat, positions, features)."""
        tokens = joined([use.reshape(len(use), -1) for use in taken], 1)
        back = positions_of(returned)
        if self.padding is not None:
            back = back * (tokens != self.padding)[:, :, None]
        return tokens, back

    def digest(self, taken: list[Tensor], returned: list[Tensor]) -> Digest:
        return self._squares(*self._uses(taken, returned))

    def _squares(self, tokens: Tensor, back: Tensor) -> Digest:
        positions = tokens.shape[1]
        squares, terms = [], []
        for here in blocks(len(tokens), 2 * positions**2, back):
            same = (tokens[here][:, :, None] == tokens[here][:, None]).double()
            rows = back[here].double()
            gram = torch.bmm(rows, rows.mT)
            lengths = gram.diagonal(dim1=1, dim2=2).sqrt()[:, :, None]
            terms.append((lengths * torch.bmm(same, lengths)).sum(2).sum(1))
            squares.append((gram * same).sum(2).sum(1).clamp_min(0))
        length = back.shape[2] + 2 * positions
        return Digest(joined(squares), (tokens, back), joined(terms), positions, length)

    def sums(
        self, made_from: tuple[Tensor, ...], weights: Tensor, into: list[Tensor]
    ) -> None:
        tokens, back = made_from
        self._add_rows(tokens, back, weights, into[0].zero_())

    def _add_rows(
        self, tokens: Tensor, back: Tensor, weights: Tensor, total: Tensor
    ) -> None:
        """Add each position's gradient to its token's row of ``total``."""
        tokens, back = (part.unflatten(0, weights.shape) for part in (tokens, back))
        share = weights[:, :, None, None] * back
        features = share.shape[-1]
        rows = total.unflatten(1, (-1, features)).unbind()
        for row, token, part in zip(rows, tokens, share, strict=True):
            row.index_add_(0, token.flatten(), part.view(-1, features))


class Tied(nn.Linear):
    """A linear layer whose weight is the table of an embedding as well."""

    def __init__(
        self, features: int, rows: int, bias: bool, padding_idx: int | None
    ) -> None:
        super().__init__(features, rows, bias, device="meta")
        self.padding_idx = padding_idx


class StackedTied(StackedEmbedding, StackedLinear):
    """`Tied`: tokens are looked up, all else is multiplied; their gradients add up."""

    def compute(self, flat: Tensor, replicas: int) -> tuple[Tensor, Tensor]:
        way = StackedLinear if flat.is_floating_point() else StackedEmbedding
        return way.compute(self, flat, replicas)

    def digest(self, taken: list[Tensor], returned: list[Tensor]) -> Digest:
        uses = list(zip(taken, returned, strict=True))
        products = [use for use in uses if use[0].is_floating_point()]
        lookups = [use for use in uses if not use[0].is_floating_point()]
        inside, back = (
            positions_of(list(each)) for each in zip(*products, strict=True)
        )
        tokens, rows = self._uses(*map(list, zip(*lookups, strict=True)))
        offset = (back.sum(1),) if "bias" in self.names else ()
        outputs, inputs = back.shape[2], inside.shape[2]
        positions = back.shape[1] + rows.shape[1]
        if fits(outputs * inputs, positions * (outputs + inputs)):
            product = torch.bmm(back.mT, inside)
            for one, token, row in zip(product, tokens, rows, strict=True):
                one.index_add_(0, token, row)
            return written_out(product, *offset)
        first = squared_products(back, inside)
        second = self._squares(tokens, rows)
        assert first.terms is not None
        assert second.terms is not None
        square, terms = first.square + second.square, first.terms.sqrt()
        crossed = []
        for here in blocks(len(tokens), back[0].numel(), back):
            index = tokens[here, None].expand(-1, back.shape[1], -1)
            weights = back[here].gather(2, index).double()
            pairs = torch.bmm(inside[here].double(), rows[here].double().mT)
            crossed.append((weights * pairs).sum(2).sum(1))
        return Digest(
            with_rows(square.add(joined(crossed), alpha=2).clamp_min(0), offset),
            (inside, back, tokens, rows, *offset),
            (terms + second.terms.sqrt()).square(),
            positions,
            first.length + second.length,
            first.coarse,
        )

    def sums(
        self, made_from: tuple[Tensor, ...], weights: Tensor, into: list[Tensor]
    ) -> None:
        if len(made_from) > len(into):  # not written out
            inside, back, tokens, rows, *offset = made_from
            outer_sum(back, inside, weights, into[0])
            self._add_rows(tokens, rows, weights, into[0])
            made_from, into = tuple(offset), into[1:]
        explicit_sums(made_from, weights, into)


class StackedOffset(StackedExplicit):
    """`trainers.models.layers.Offset`."""

    def compute(self, flat: Tensor, replicas: int) -> tuple[Tensor, Tensor]:
        out = flat.unflatten(0, (replicas, -1)) + self.parameters_now["weight"][:, None]
        return flat[:0], out.flatten(0, 1)
