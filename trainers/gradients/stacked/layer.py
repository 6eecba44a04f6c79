"""The base of layers that run many models (replicas) in one batch."""

from __future__ import annotations

import abc
import contextlib
import dataclasses
from collections.abc import Callable, Iterable, Iterator

import torch
from torch import Tensor, nn

# Values that a norm may keep beside what it is given: samples are taken in blocks, so
# that Gram matrices and single gradients never exist for all of them at once.
SCRATCH = 1 << 24
CACHED = 1 << 17  # of doubles, on a CPU: in its nearer cache
SHORT = 512  # positions over which norms may be added up in single precision
_LONG = 256  # from which on products are taken twice
TINY = 2.0**-60
PIECE = 128  # numbers whose squares are added up in single precision
OVER = 1 + 2.0**-16  # by how much such a square is taken too large, and
_UNDERFLOW = 2.0**-126  # what a square is too small at most, beside its rounding


class UnknownLayerError(Exception):
    """The module has parameters outside the layers that book-keeping knows."""


class StackedLayer(nn.Module, abc.ABC):
    """A layer whose parameters differ from replica to replica, over one flat batch.

    `parameters_now` holds views into the stacked vector, by name. While it ``keeps``,
    each use adds to ``taken`` what went in and to ``given`` what came out. ``aligned``:
    rows begin at whole lines of memory, for kernels that treat others differently.
    """

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.names = [name for name, _ in layer.named_parameters()]
        self.parameters_now: dict[str, Tensor] = {}
        # puts them there for as long as the layer computes, where they lie in shards
        self.lent: Callable[[], contextlib.AbstractContextManager[None]] | None = None
        self.keeps = False
        self.aligned = False
        self.taken: list[Tensor] = []
        self.given: list[Tensor] = []

    def forward(self, flat: Tensor) -> Tensor:  # (replicas * samples, ...)
        with contextlib.nullcontext() if self.lent is None else self.lent():
            taken, given = self.compute(flat, self.parameters_now["weight"].shape[0])
        if self.keeps:
            if not given.requires_grad:
                given.requires_grad_()
            self.taken.append(taken.detach())
            self.given.append(given)
        return given

    @abc.abstractmethod
    def compute(self, flat: Tensor, replicas: int) -> tuple[Tensor, Tensor]:
        """Values kept for later, and the layer's output."""

    @abc.abstractmethod
    def digest(self, taken: list[Tensor], returned: list[Tensor]) -> Digest:
        """Digest of the samples' gradients, from what was kept and what came back."""

    @abc.abstractmethod
    def sums(
        self, made_from: tuple[Tensor, ...], weights: Tensor, into: list[Tensor]
    ) -> None:
        """Write weighted sums of the gradients ``into`` doubles, a parameter each.

        ``made_from`` is that of `Digest`, ``weights`` (replicas, samples) doubles;
        ``into`` is (replicas, numbers) each, in the order of ``names``.
        """


@dataclasses.dataclass(frozen=True, slots=True)
class Digest:
    """The samples' gradients in one layer, as far as they are needed."""

    # (flat,) doubles: squared norms, as they come out in double precision
    square: Tensor
    # what the sums are made from, samples along the first dimension
    made_from: tuple[Tensor, ...]
    # (flat,) doubles: squares of what the sizes of a gradient's terms add up to, 0
    # where there is nothing that cancels; None if there never is
    terms: Tensor | None = None
    # positions, length: how many terms a gradient has that may cancel, and how many
    # additions in a row make ``square``; 0 without ``terms``. See
    # `trainers.gradients.rounding`
    positions: int = 0
    length: int = 0
    coarse: int = 0  # as ``length``, of additions that are made in single precision
    twice: bool = False  # whether products are taken again for the sums

    def without(self, lost: Tensor) -> tuple[Tensor, ...]:
        """Terms of the sums; samples that are ``lost``, (flat,), are zeros."""
        return tuple(
            part.masked_fill(lost.view(-1, *[1] * (part.dim() - 1)), 0)
            if part.is_floating_point() and len(part)
            else part
            for part in self.made_from
        )


class StackedExplicit(StackedLayer):
    """A layer whose samples' gradients are few numbers, and are written out once."""

    def gradients(
        self, taken: list[Tensor], returned: list[Tensor]
    ) -> dict[str, Tensor]:
        """Each sample's gradient by parameter, (replicas * samples, ...).

        Here of one parameter that each sample has as it is: what came back.
        """
        return {"weight": torch.stack(returned).sum(0)}

    def digest(self, taken: list[Tensor], returned: list[Tensor]) -> Digest:
        parts = self.gradients(taken, returned)
        return written_out(*(parts[name] for name in self.names))

    def sums(
        self, made_from: tuple[Tensor, ...], weights: Tensor, into: list[Tensor]
    ) -> None:
        explicit_sums(made_from, weights, into)


def written_out(*parts: Tensor) -> Digest:
    """Digest of gradients that are written out, (flat, ...): they *are* a sample's."""
    return Digest(with_rows(squared_rows(parts[0]), parts[1:]), parts)


def with_rows(square: Tensor, parts: tuple[Tensor, ...]) -> Tensor:
    """``square`` and the squared norms of what is written out."""
    for part in parts:
        square = square + squared_rows(part)
    return square


def squared_rows(rows: Tensor) -> Tensor:
    """Squared norm of each row, (flat,) doubles.

    Squares of single precision are added up in it by pieces, and are no less than is
    true: see ``sums.md``. Of what no trial of a shape sees doubles are given, whose
    last bits its norm has.
    """
    flat = rows.reshape(len(rows), -1)
    whole = flat.shape[1] // PIECE * PIECE if flat.dtype == torch.float32 else 0
    norms = [
        torch.linalg.vector_norm(flat[here, whole:].double(), dim=1)
        for here in blocks(len(flat), flat.shape[1] - whole, flat)
    ]
    square = joined(norms).square()
    if not whole:
        return square
    pieces = flat[:, :whole].unflatten(1, (-1, PIECE))
    found = torch.linalg.vector_norm(pieces, dim=2).double().square()
    return square + found.sum(1).mul(OVER).add(whole * _UNDERFLOW)


def explicit_sums(
    parts: Iterable[Tensor], weights: Tensor, into: Iterable[Tensor]
) -> None:
    """Weighted sums of rows (flat, ...), as `StackedLayer.sums`; of one, a product."""
    replicas, samples = weights.shape
    for rows, total in zip(parts, into, strict=True):
        if samples == 1:
            torch.mul(rows.flatten(1), weights, out=total)
            continue
        flat = rows.reshape(replicas, samples, -1)
        for part in blocks(flat.shape[2], samples, flat):
            some, sums = flat[:, :, part], total[:, part]
            for here in blocks(replicas, some[0].numel(), flat):
                row, terms = (
                    sums[here, None],
                    (weights[here, None], some[here].double()),
                )
                if len(row) == 1:  # which lies in one piece
                    row.baddbmm_(*terms, beta=0)
                else:
                    row.copy_(torch.bmm(*terms))


def outer_sum(left: Tensor, right: Tensor, weights: Tensor, total: Tensor) -> None:
    """Write sums of weight * left right' to ``total``; (flat, positions, numbers)."""
    replicas, samples = weights.shape
    factors = weights.view(replicas, samples, 1, 1)
    left, right = (part.unflatten(0, (replicas, samples)) for part in (left, right))
    total = total.unflatten(1, (left.shape[-1], right.shape[-1]))
    for here in blocks(replicas, left[0].numel() + right[0].numel(), left):
        one, other = left[here].double(), right[here].double()
        if one.numel() < other.numel():
            one = one * factors[here]
        else:
            other = other * factors[here]
        one, other = one.flatten(1, 2).mT, other.flatten(1, 2)
        if one.shape[2] == 1:
            torch.mul(one, other, out=total[here])
        else:
            total[here].baddbmm_(one, other, beta=0)


def products(left: Tensor, right: Tensor) -> Iterator[tuple[slice, Tensor]]:
    """Product left' right of one sample, (positions, ...) both, in strips of rows.

    Each is a call of its own, of a shape that no other sample changes.
    """
    for rows in blocks(left.shape[1], right.shape[1], left):
        yield rows, torch.mm(left[:, rows].T, right)


def product_sum(left: Tensor, right: Tensor, weights: Tensor, total: Tensor) -> None:
    """As `outer_sum`, of products as they are rounded, see `products`."""
    flat = (part.unflatten(0, weights.shape) for part in (left, right))
    for one, other, factors, sums in zip(*flat, weights, total, strict=True):
        for sample, pair in enumerate(zip(one, other, strict=True)):
            factor = factors[sample : sample + 1]
            for rows, found in products(*pair):
                into = sums.unflatten(0, (-1, found.shape[1]))[rows].view(1, -1)
                row = found.double().view(1, -1)
                into.addmm_(factor[None], row, beta=int(sample > 0))


def blocks(count: int, values: int, like: Tensor) -> Iterator[slice]:
    """Slices of ``count`` of bounded scratch."""
    step = max(1, scratch(like) // max(1, values))
    for start in range(0, count, step):
        yield slice(start, min(start + step, count))


def scratch(like: Tensor) -> int:
    """Number of doubles in scratch, on the device of ``like``."""
    return CACHED if like.device.type == "cpu" else SCRATCH


def joined(parts: list[Tensor], dim: int = 0) -> Tensor:
    """The parts side by side along ``dim``; the part itself if there is one."""
    return parts[0] if len(parts) == 1 else torch.cat(parts, dim)


def fits(values: int, kept: int) -> bool:
    """Return whether samples' gradients, ``values`` each, are written out and kept."""
    return values <= 3 * kept


def by_gram(positions: int, outputs: int, inputs: int) -> bool:
    """Return whether Gram matrices make a squared norm with less work.

    Small ones of doubles take as long as four times as many multiplications of a large
    product; and to go through its numbers takes as long as 30 of each.
    """
    gram = 4 * positions**2 * (outputs + inputs)
    return outputs * inputs * (positions + 30) > gram


def twice(left: Tensor) -> bool:
    """Return whether products in single precision, twice, take less than of doubles.

    Of few positions they do not: to go through a product's numbers takes as long.
    """
    return left.device.type == "cpu" and left.shape[1] >= _LONG


def squared_sizes(left: Tensor, right: Tensor) -> Tensor:
    """(sum_t |left_t| |right_t|)^2 of samples, (samples, positions, ...) both."""
    lengths = torch.linalg.vector_norm(left, dim=2, dtype=torch.float64)
    lengths = lengths * torch.linalg.vector_norm(right, dim=2, dtype=torch.float64)
    # What underflows in single precision is far below this times the slack.
    return lengths.sum(1).add(TINY).square()


def squared_products(left: Tensor, right: Tensor) -> Digest:
    """Squared Frobenius norm of left' right for each sample.

    ``left`` is (samples, positions, outputs), ``right`` (samples, positions, inputs).
    Either the product is written out, in single precision if there are few positions,
    or two Gram matrices over the positions are, whose product adds up to the same
    (ghost norm): whichever takes less. Terms are (sum_t |left_t| |right_t|)^2.
    """
    samples, positions, outputs = left.shape
    inputs = right.shape[2]
    few = positions <= SHORT
    explicit = not by_gram(positions, outputs, inputs)
    values = outputs * inputs if explicit else 2 * positions * positions
    squares, terms = [], []
    for here in blocks(samples, values, left):
        one, other = left[here].double(), right[here].double()
        if explicit:
            factors = (left[here], right[here]) if few else (one, other)
            squares.append(squared_rows(torch.bmm(factors[0].mT, factors[1]).double()))
            terms.append(squared_sizes(one, other))
        else:
            gram = torch.bmm(one, one.mT) * torch.bmm(other, other.mT)
            squares.append(gram.sum(2).sum(1).clamp_min(0))
            terms.append(gram.diagonal(dim1=1, dim2=2).sqrt().sum(1).add(TINY).square())
    return Digest(
        joined(squares),
        (),
        joined(terms),
        positions,
        outputs + inputs + 2 * positions,
        positions if explicit and few else 0,
    )
