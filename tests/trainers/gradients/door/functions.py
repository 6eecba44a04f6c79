"""Functions of one record that models and losses use between their layers."""

from __future__ import annotations

import torch
from torch.nn import functional as F


# Of a record of (1, 4, 6) numbers.
@torch.no_grad()
def _doubled(x):
    return x.mul_(2)


def _unlearned(x):
    found = x * 1
    _doubled(found)
    return found


ROWS = {
    "smooth": lambda x: (
        x.sinh().asinh()
        + x.cosh().acosh()
        + x.atan()
        + x.erf()
        + x.erfc().exp2()
        + x.expm1().log1p()
        + x.square().add(1).log().log2()
        + x.tan().tanh()
        + x.abs().log10()
        + x.sigmoid().logit()
        + torch.sinc(x)
        + torch.lgamma(x.abs() + 1)
        + torch.digamma(x.abs() + 1)
        + x.clamp(-0.9, 0.9).atanh()
        + x.clamp(-0.9, 0.9).asin()
        + x.clamp(-0.9, 0.9).acos()
        + x.clamp(-0.9, 0.9).erfinv()
        + torch.logaddexp(x, x * 2)
        + torch.atan2(x, x + 3)
        + torch.hypot(x, x + 1)
        + torch.xlogy(x.abs(), x.abs() + 1)
    ),
    "steps": lambda x: (
        x.round()
        + x.floor()
        + x.ceil()
        + x.trunc()
        + x.frac()
        + x.sign()
        + x.sgn()
        + torch.heaviside(x, x.new_zeros(()))
        + torch.fmod(x, 0.7)
        + torch.remainder(x, 0.7)
        + x // 0.3
        + F.threshold(x, 0.1, 0.0)
        + F.softshrink(x)
        + F.hardshrink(x)
        + torch.nan_to_num(x / x.clamp(min=0))
        + x.deg2rad()
        + x.positive()
        + torch.floor_divide(x, 2)
    ),
    "pairs": lambda x: (
        torch.maximum(x, -x)
        + torch.minimum(x, -x)
        + torch.fmax(x, -x)
        + torch.fmin(x, -x)
        + torch.lerp(x, -x, 0.3)
        + torch.addcmul(x, x, x)
        + torch.addcdiv(x, x, x.abs() + 1)
        + torch.copysign(x, -x)
        + torch.pow(x.abs() + 0.1, x)
        + x.pow(3)
        + 2.0**x
        + torch.true_divide(x, 3)
        + torch.lerp(x, -x, torch.full((6,), 0.2))
    ),
    "other names": lambda x: (
        x.multiply(2).subtract(x).divide(3).absolute().negative().clip(-2, 2)
        + (x.square() + 0.1).sqrt()
        + torch.concat([x, x], 1)[:, :4]
        + torch.concatenate([x, x], 1)[:, 4:]
        + x.swapdims(1, 2).mT
        + x.greater(0).float()
        + x.greater_equal(0).float()
        + x.less(0).float()
        + x.less_equal(0).float()
        + x.not_equal(0).float()
        + x.flatten().reshape_as(x)
        + torch.broadcast_to(x[:, :1], x.shape)
        + torch.special.expit(x)
        + x.arctan()
        + x[...]
    ),
    "logic": lambda x: (
        ((x > 0) & ~(x < -1) | (x >= 2) ^ (x <= -2)).float()
        + torch.logical_or(x > 0, x < 1).float()
        + torch.logical_and(x > 0, x < 1).float()
        + torch.logical_not(x > 0).float()
        + torch.logical_xor(x > 0, x < 1).float()
        + x.isfinite().float()
        + x.isnan().float()
        + x.isinf().float()
        + (x == x.mT.mT).double().float()
        + torch.where(x > 0, x, 0.0)
        + torch.where(x > 0, 1.0, x)
        + (x != 0).any(-1, keepdim=True).float()
        + (x > -9).all(-1, keepdim=True).float()
        + (x > 0).any().float()
        + (x > -9).all().float()
    ),
    "sums": lambda x: torch.stack(
        [
            x.sum(),
            x.mean(),
            x.prod(),
            x.std(),
            x.var(),
            x.amin(),
            x.amax(),
            x.max(),
            x.min(),
            x.norm(),
            x.abs().norm(1),
            x.logsumexp((1, 2)).squeeze(),
            x.median(),
            x.nansum(),
            x.std(-1).sum(),
            x.var(1, unbiased=False).sum(),
            x.prod(-1).sum(),
            x.count_nonzero().float(),
            torch.linalg.norm(x[0]),
            torch.linalg.vector_norm(x, 3),
            x.nanmean(),
            x.aminmax().max,
            torch.var_mean(x, -1)[1].sum(),
            torch.std_mean(x, -1)[0].sum(),
            x.argmax().float(),
            x.argmin().float(),
        ]
    )[None],
    "order": lambda x: (
        x.sort(-1).values
        + x.argsort(-1).float()
        + x.topk(6, -1).values
        + x.cummax(-1).values
        + x.cummin(-1).values
        + x.cumprod(-1)
        + x.logcumsumexp(-1)
        + x.max(-1, keepdim=True).values
        + x.min(-1, keepdim=True).values
        + x.kthvalue(2, -1, keepdim=True).values
        + x.median(-1, keepdim=True).values
        + x.argmax(-1, keepdim=True)
        + x.argmin(-1, keepdim=True)
        + x.sort(-1, descending=True).indices
        + x.diff(prepend=x[..., :1])
        + x.sort(dim=-1, stable=True).values
    ),
    "places": lambda x: (
        x.roll(1, -1)
        + x.flip(1)
        + x.repeat(1, 1, 1)
        + x.tile(1, 1, 1)
        + x.index_select(2, torch.tensor([1, 0, 3, 2, 5, 4]))
        + x[:, :, [5, 4, 3, 2, 1, 0]]
        + torch.cat(x.tensor_split(2, -1), -1)
        + x.narrow(2, 0, 6)
        + x.gather(2, x.argsort(-1))
        + torch.take_along_dim(x, x.argsort(-1), -1)
        + x.movedim(1, 2).mT
        + x.swapaxes(1, 2).mT
        + torch.hstack(x.split(2, 1))
        + torch.rot90(x, 2, (1, 2))
        + x.mT.adjoint()
        + x.repeat_interleave(2, -1)[..., ::2]
        + x.unfold(2, 2, 2).flatten(2)
        + x.expand(1, 4, 6).clone()
        + x.view(1, -1).view(1, 4, 6)
        + x.ravel().reshape(1, 4, 6)
        + x.unsqueeze(0).squeeze(0)
        + torch.vstack(x.chunk(2, 1)).view(1, 4, 6)
        + torch.stack(x.unbind(2), 2)
        + x.select(2, 0)[..., None]
        + x.diagonal(0, 1, 2).sum(-1)[..., None, None]
        + torch.meshgrid(x[0, 0], x[0, 1], indexing="ij")[0].sum()
    ),
    "writes": lambda x: (
        x.scatter(2, x.argsort(-1), x * 2)
        + x.scatter_add(2, x.argsort(-1), x)
        + x.masked_fill(x > 0, 1.0)
        + x.index_fill(2, torch.tensor([1]), 0.0)
        + x.index_add(2, torch.tensor([0, 0]), x[..., :2])
        + x.index_copy(2, torch.tensor([0]), x[..., 1:2])
        + torch.zeros(1, 4, 6).index_put(
            (torch.tensor([0]), torch.tensor([1])), x[:, 0]
        )
        + x.index_put((x.sum(2) > 0,), torch.tensor(2.0))
        + _unlearned(x)
        + x.triu()
        + x.tril()
        + torch.diag_embed(x[:, :, 0])[..., :1]
        + F.pad(x, (1, 1))[..., 1:-1]
        + F.pad(x, (1, 1), "circular")[..., 1:-1]
        + F.pad(x, (1, 1), "replicate")[..., 1:-1]
        + torch.select_scatter(x, x[:, 0], 1, 2)
        + torch.slice_scatter(x, x[:, :1], 1, 0, 1)
        + x[0].t().mT
        + torch.bitwise_and(x > 0, x > 1)
        + torch.bitwise_xor(x > 0, x > 1)
        + x.scatter_reduce(2, x.argsort(-1), x, "sum")
    ),
    "products": lambda x: (
        torch.bmm(x, x.mT) @ x
        + torch.baddbmm(x, x @ x.mT, x)
        + torch.einsum("bij,bkj->bik", x, x) @ x
        + torch.outer(x[0, 0, :4], x[0, 1])
        + torch.kron(x[0, :2, :2], x[0, :2, :3]).view(1, 4, 6)
        + torch.tensordot(x, x[0].T @ x[0], 1)
        + torch.mv(x[0].T @ x[0], x[0, 0])
        + torch.dot(x[0, 0], x[0, 1])
        + torch.inner(x[0, 0], x[0, 1])
        + torch.addmm(x[0], x[0] @ x[0].T, x[0])
        + torch.cross(x[..., :3], x[..., 3:], dim=-1).sum()
        + torch.linalg.multi_dot([x[0], x[0].T, x[0]])
        + torch.cdist(x, x) @ x
        + torch.linalg.matrix_power(x[0] @ x[0].T, 2) @ x
        + torch.trace(x[0, :, :4])
        + torch.addmv(x[0, 0], x[0].T, x[0, :, 0])
        + F.cosine_similarity(x, -x, -1)[..., None]
        + F.pairwise_distance(x, -x)[..., None]
        + torch.addbmm(x[0], x @ x.mT, x)
        + torch.vdot(x[0, 0], x[0, 1])
    ),
    "softmaxes": lambda x: (
        F.softmin(x, -1)
        + F.log_softmax(x, -1)
        + F.normalize(x, dim=-1)
        + F.softmax(x, 1)
        + F.rms_norm(x, (6,))
        + F.layer_norm(x, (6,))
        + F.instance_norm(x)
        + F.prelu(x, torch.full((4,), 0.1))
    ),
    "complex numbers": lambda x: (
        torch.fft.ifft(torch.fft.fft(x)).real
        + torch.fft.irfft(torch.fft.rfft(x))
        + torch.fft.fftshift(x)
        + torch.complex(x, -x).abs()
        + torch.view_as_real(torch.view_as_complex(x.view(1, 4, 3, 2))).view(1, 4, 6)
        + torch.polar(x.abs(), x).imag
        + torch.complex(x, x).conj().angle()
        + torch.fft.ifft2(torch.fft.fft2(x)).imag
    ),
    "numbers of another type": lambda x: (
        x.double().float()
        + x.to(torch.float64).type_as(x)
        + x.long()
        + x.int()
        + x.bool()
        + x.half().float()
        + (x.long() % 3 << 1 >> 1 | 1)
        + ~x.long()
        + x.bfloat16().float()
        + x.type(torch.float32)
    ),
    "pools": lambda x: (
        F.max_pool1d(x, 2).repeat(1, 1, 2)
        + F.avg_pool1d(x, 2).repeat(1, 1, 2)
        + F.adaptive_max_pool1d(x, 6)
        + F.adaptive_avg_pool1d(x, 6)
        + F.lp_pool1d(x.abs() + 0.1, 2, 2).repeat(1, 1, 2)
        + F.max_pool2d(x, 2).sum()
        + F.avg_pool2d(x, 2).sum()
        + F.adaptive_max_pool2d(x, 2).sum()
        + F.interpolate(x, scale_factor=2, mode="linear")[..., ::2]
        + F.interpolate(x, 6)
        + F.adaptive_avg_pool2d(x, 2).sum()
        + F.max_pool3d(x[None], (1, 2, 2)).sum()
        + F.avg_pool3d(x[None], (1, 2, 2)).sum()
        + F.adaptive_avg_pool3d(x[None], 1).sum()
        + F.interpolate(x[:, None], scale_factor=2, mode="bicubic").sum()
        + F.pixel_unshuffle(x[:, None], 2).sum()
        + F.conv3d(x[:, None, None], torch.ones(1, 1, 1, 2, 2)).sum()
        + F.conv_transpose3d(x[:, None, None], torch.ones(1, 1, 1, 2, 2)).sum()
        + F.fold(F.unfold(x[:, None], 2), (4, 6), 2)[:, 0]
        + F.interpolate(x[:, None, None], scale_factor=2).sum()
    ),
}
_CLASS = torch.tensor([1])
# Of outputs (1, 3): all that torch has for one record.
LOSSES = {
    "cross entropy": lambda o: F.cross_entropy(o, _CLASS, label_smoothing=0.1),
    "weighted cross entropy": lambda o: F.cross_entropy(
        o, _CLASS, torch.tensor([1.0, 2, 3]), reduction="sum"
    ),
    "soft targets": lambda o: F.cross_entropy(o, torch.tensor([[0.2, 0.3, 0.5]])),
    "nll": lambda o: F.nll_loss(o.log_softmax(1), _CLASS),
    "squares": lambda o: (
        F.mse_loss(o, torch.ones(1, 3)) + F.l1_loss(o, torch.ones(1, 3))
    ),
    "huber": lambda o: (
        F.huber_loss(o, torch.ones(1, 3)) + F.smooth_l1_loss(o, torch.ones(1, 3))
    ),
    "binary": lambda o: (
        F.binary_cross_entropy(o.sigmoid(), torch.ones(1, 3))
        + F.binary_cross_entropy_with_logits(
            o, torch.ones(1, 3), pos_weight=torch.full((3,), 2.0)
        )
    ),
    "divergence": lambda o: F.kl_div(
        o.log_softmax(1), torch.full((1, 3), 1 / 3), reduction="batchmean"
    ),
    "poisson": lambda o: F.poisson_nll_loss(o, torch.ones(1, 3)),
    "margins": lambda o: (
        F.multi_margin_loss(o, _CLASS)
        + F.soft_margin_loss(o, torch.ones(1, 3))
        + F.hinge_embedding_loss(o, torch.ones(1, 3))
        + F.multilabel_soft_margin_loss(o, torch.ones(1, 3))
    ),
    "embeddings": lambda o: (
        F.cosine_embedding_loss(o, -o + 1, torch.ones(1))
        + F.triplet_margin_loss(o, o + 1, o - 1)
        + F.margin_ranking_loss(o, -o, torch.ones(1, 3))
    ),
    "focal": lambda o: (
        (1 - (p := o.softmax(1).gather(1, _CLASS[:, None]))) ** 2 * -p.log()
    ).sum(),
    "alignments": lambda o: F.ctc_loss(
        torch.stack([o, -o, 2 * o]).log_softmax(2), torch.tensor([[1, 2]]), (3,), (2,)
    ),
    "dice": lambda o: 1 - 2 * (p := o.sigmoid()).sum() / (p.square().sum() + 3),
}
