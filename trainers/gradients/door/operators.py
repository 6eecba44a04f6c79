"""Operations of ours in a traced graph, where torch's cannot be mapped as they are."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

# Steele, Lea and Flood 2014, SplitMix: increments and multipliers, as signed words.
_STEP, _FIRST, _SECOND = (
    0x9E3779B97F4A7C15 - 2**64,
    0xBF58476D1CE4E5B9 - 2**64,
    0x94D049BB133111EB - 2**64,
)

OFF = -(2**63)  # a seed with which nothing is dropped


def keyed_dropout(values: Tensor, seed: Tensor, rate: float, number: int) -> Tensor:
    """Dropout by words of ``seed``, () int64, and ``number``: no secret."""
    keeps = (uniform(seed, number, values) >= rate).to(values.dtype)
    scaled = keeps / (1 - rate) if rate < 1 else keeps
    return values * torch.where(seed == OFF, 1.0, scaled)


def keyed_bernoulli(
    seed: Tensor, chance: Any, number: int, shape: Sequence[int], dtype: torch.dtype
) -> Tensor:
    """`torch.bernoulli` by words; its mean where nothing drops (Huang et al. 2016)."""
    drawn = uniform(seed, number, seed.new_empty(tuple(shape))) < chance
    return torch.where(seed == OFF, chance, drawn.to(dtype)).to(dtype)


def uniform(seed: Tensor, number: int, like: Tensor) -> Tensor:
    """Numbers in [0, 1), of the shape of ``like``: multiples of 2^-24."""
    places = torch.arange(1, like.numel() + 1, device=like.device)
    state = (places + number * (1 << 40)) * _STEP + mixed(seed)
    bits = (mixed(state) >> 40) & 0xFFFFFF
    return (bits.to(torch.float32) * 2.0**-24).view(like.shape)


def mixed(state: Tensor) -> Tensor:
    """SplitMix's words of ``state``, int64: a bijection."""
    state = (state ^ ((state >> 30) & (2**34 - 1))) * _FIRST
    state = (state ^ ((state >> 27) & (2**37 - 1))) * _SECOND
    return state ^ ((state >> 31) & (2**33 - 1))


class _Bits(torch.autograd.Function):
    """Bits of doubles as int64; `torch.Tensor.view` cannot be mapped in torch 2.11."""

    @staticmethod
    def forward(values: Tensor) -> Tensor:
        return values.view(torch.int64)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Tensor) -> None:
        ctx.mark_non_differentiable(output)

    @staticmethod
    def vmap(info: Any, in_dims: Any, *args: Any) -> tuple[Tensor, int]:
        return _Bits.apply(args[0].movedim(in_dims[0], 0).contiguous()), 0


def seeds_of(inputs: Tensor, word: int | Tensor) -> Tensor:
    """A seed a record, (samples,) int64: sums of its content, and a word."""
    flat = inputs.detach().reshape(len(inputs), -1)
    if flat.is_floating_point():
        flat = _Bits.apply(flat.to(torch.float64).contiguous())
    places = torch.arange(1, flat.shape[1] + 1, device=flat.device)
    return mixed(mixed(flat.to(torch.int64) + places * _STEP).sum(1) + word)


def attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    seed: Tensor,
    number: int,
    **options: Any,
) -> Tensor:
    """`scaled_dot_product_attention`, written out: fused kernels cannot be mapped."""
    attn_mask, scale = options.get("attn_mask"), options.get("scale")
    dropout_p = options.get("dropout_p", 0.0)
    if options.get("enable_gqa"):
        key = key.repeat_interleave(query.shape[-3] // key.shape[-3], -3)
        value = value.repeat_interleave(query.shape[-3] // value.shape[-3], -3)
    size = 1 / math.sqrt(query.shape[-1]) if scale is None else scale
    scores = query @ key.mT * size
    if options.get("is_causal"):
        ahead = torch.ones(
            scores.shape[-2:], dtype=torch.bool, device=scores.device
        ).triu(1)
        scores = scores.masked_fill(ahead, -math.inf)
    if attn_mask is not None:
        if attn_mask.dtype == torch.bool:
            scores = scores.masked_fill(~attn_mask, -math.inf)
        else:
            scores = scores + attn_mask
    weights = scores.softmax(-1)
    if dropout_p:
        weights = keyed_dropout(weights, seed, dropout_p, number)
    return weights @ value


def _lstm_cell(
    input: Tensor, state: list[Tensor], *weights: Any
) -> tuple[Tensor, Tensor]:
    """Step of an LSTM, as `torch.nn.LSTMCell`'s documentation has it."""
    hidden, cell = state
    inside, outside = weights[:2]
    biases = [*weights[2:], None, None]
    gates = functional.linear(input, inside, biases[0])
    gates = gates + functional.linear(hidden, outside, biases[1])
    first, forget, new, out = gates.chunk(4, -1)
    cell = forget.sigmoid() * cell + first.sigmoid() * new.tanh()
    return out.sigmoid() * cell.tanh(), cell


def _gru_cell(input: Tensor, hidden: Tensor, *weights: Any) -> Tensor:
    """Step of a GRU, as `torch.nn.GRUCell`'s documentation has it."""
    inside, outside = weights[:2]
    biases = [*weights[2:], None, None]
    ours = functional.linear(input, inside, biases[0]).chunk(3, -1)
    before = functional.linear(hidden, outside, biases[1]).chunk(3, -1)
    reset = (ours[0] + before[0]).sigmoid()
    update = (ours[1] + before[1]).sigmoid()
    new = (ours[2] + reset * before[2]).tanh()
    return new + update * (hidden - new)


def _one_hot(labels: Tensor, classes: int = -1) -> Tensor:
    """As `torch.nn.functional.one_hot`; -1, which counts classes, is refused by it."""
    if classes < 0:
        return functional.one_hot(labels, classes)
    zeros = torch.zeros(*labels.shape, classes, dtype=torch.long, device=labels.device)
    return zeros.scatter(-1, labels[..., None], 1)


def _ctc(
    scores: Tensor,
    targets: Tensor,
    input_lengths: Any,
    target_lengths: Any,
    blank: int = 0,
    reduction: int = 1,
    zero_infinity: bool = False,
) -> Tensor:
    """`ctc_loss` by logarithms (Graves et al. 2006, 6 to 8); nan for wild labels."""
    if scores.dim() == 2:
        scores = scores[:, None]
    steps, count, _ = scores.shape
    if targets.dim() == 1 and count > 1:
        raise NotImplementedError("ctc_loss of targets one after another")
    labels = targets.reshape(count, -1).long()
    given, wanted = (
        torch.as_tensor(each, device=scores.device).reshape(count).long()
        for each in (input_lengths, target_lengths)
    )
    here = torch.arange(labels.shape[1], device=scores.device) < wanted[:, None]
    labels = labels.where(here, blank)
    # Blanks between labels; of these one may be left out between two unlike ones.
    path = torch.stack([torch.full_like(labels, blank), labels], 2).flatten(1)
    path = functional.pad(path, (0, 1), value=blank)
    leaps = (path[:, 2:] != blank) & (path[:, 2:] != path[:, :-2])
    leaps = functional.pad(leaps, (path.shape[1] - leaps.shape[1], 0))
    never = torch.finfo(scores.dtype).min / 4  # for log 0, with gradients that exist
    emitted = scores.gather(2, path.expand(steps, -1, -1)).clamp_min(never)
    first = torch.arange(path.shape[1], device=scores.device) < 2
    sums = emitted[0].where(first, never)
    for step in range(1, steps):
        before = functional.pad(sums, (2, 0), value=never)
        ways = [sums, before[:, 1:-1], before[:, :-2].where(leaps, never)]
        found = (torch.stack(ways).logsumexp(0) + emitted[step]).clamp_min(never)
        sums = found.where((step < given)[:, None], sums)
    ends = functional.pad(sums, (1, 0), value=never)
    last = 2 * wanted[:, None]
    loss = -ends.gather(1, torch.cat([last, last + 1], 1)).logsumexp(1)
    loss = loss.where(loss < -never / 2, 0.0 if zero_infinity else math.inf)
    fits = (given > 0) & (given <= steps) & (wanted >= 0) & (wanted <= here.shape[1])
    loss = loss.where(fits, math.nan)
    if reduction == 1:
        return (loss / wanted.clamp_min(1)).mean()
    return loss.sum() if reduction else loss


WRITTEN_OUT = {
    torch.ops.aten.lstm_cell.default: _lstm_cell,
    torch.ops.aten.gru_cell.default: _gru_cell,
    torch.ops.aten.one_hot.default: _one_hot,
    torch.ops.aten.ctc_loss.IntList: _ctc,
    torch.ops.aten.ctc_loss.Tensor: _ctc,
}


def copied(into: Tensor, values: Tensor) -> Tensor:
    """``values`` of the type and shape of ``into``, as `torch.Tensor.copy_` has."""
    return values.to(into.dtype).expand(into.shape)


def placed(into: Tensor, part: Tensor, dim: int, index: int) -> Tensor:
    """`torch.select_scatter`, of which torch's rule has another gradient."""
    index %= into.shape[dim]
    return into.slice_scatter(part.unsqueeze(dim), dim, index, index + 1)


def masked(into: Tensor, indices: Sequence[Any], value: Tensor) -> Tensor:
    """`torch.index_put` of one number by a mask, the last of ``indices``."""
    mask, value = indices[-1], value.reshape(()).to(into.dtype)
    rest = into.dim() - mask.dim() - len(indices) + 1
    return torch.where(mask.reshape(*mask.shape, *[1] * rest), value, into)


def unlearned(into: Tensor, values: Tensor) -> Tensor:
    """``values``, with the gradient of ``into``: what is written without one."""
    if not into.is_floating_point():
        return values.detach()
    return values.detach() + torch.where(into.isfinite(), into - into.detach(), 0)


def product(
    values: Tensor, dim: int | None = None, keepdim: bool = False, *, dtype: Any = None
) -> Tensor:
    """`torch.prod` by halves: torch's gradient is another one beside a zero."""
    values = values if dtype is None else values.to(dtype)
    if not values.is_floating_point() and not values.is_complex():
        values = values.to(torch.int64)
    whole = dim is None
    values = values.reshape(-1) if whole else values.movedim(dim, -1)  # type: ignore[arg-type]
    if not values.shape[-1]:
        values = torch.ones_like(values[..., :1].sum(-1, keepdim=True))
    while values.shape[-1] > 1:
        half = values.shape[-1] // 2
        rest = values[..., 2 * half :]
        values = values[..., :half] * values[..., half : 2 * half]
        values = torch.cat([values, rest], -1)
    values = values[..., 0]
    return values.unsqueeze(dim) if keepdim and not whole else values  # type: ignore[arg-type]


def padded(weight: Tensor, tokens: Tensor, padding: int) -> Tensor:
    """An embedding without gradient in row ``padding``, as torch's rule forgets."""
    rows = functional.embedding(tokens, weight)
    return torch.where((tokens == padding)[..., None], rows.detach(), rows)


def fitted(values: Tensor, least: float, most: float, also: int | None) -> Tensor:
    """``values``, any others in place of those not in [least, most], or ``also``."""
    if also is None and values.dtype == torch.int64:
        return values.clamp(int(least), int(most))
    inside = (values >= least) & (values <= most)
    if also is not None:
        inside = inside | (values == also)
    return torch.where(inside, values, least)


def fits(values: Tensor, fitted: Tensor) -> Tensor:
    """Return whether all of ``values`` are what they were put in range to: () bool."""
    return (values == fitted).all()


def voided(result: Tensor, *flags: Tensor) -> Tensor:
    """``result`` where all ``flags`` are true, and else nan, without a gradient."""
    return torch.where(functools.reduce(torch.logical_and, flags), result, torch.nan)


OURS = (
    *(attention, copied, fits, fitted, keyed_bernoulli, keyed_dropout, masked),
    *(padded, placed, product, unlearned, voided),
)
