"""Ordinary architectures, small: what people train, as one writes it with torch alone.

Each entry makes a module and one record's input, of a few classes. None mixes records.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils import parametrizations

VECTOR, SEQUENCE, IMAGE, SIGNAL, TOKENS = (
    "vector",
    "sequence",
    "image",
    "signal",
    "tokens",
)
SHAPES = {
    VECTOR: (6,),
    SEQUENCE: (4, 6),
    IMAGE: (2, 8, 8),
    SIGNAL: (2, 12),
    TOKENS: (5,),
}
MADE: dict[str, tuple[Callable[[], nn.Module], str]] = {}
VOCABULARY, CLASSES = 11, 3


def record(kind: str, count: int = 1, seed: int = 0) -> Tensor:
    """So many records of a kind."""
    generator = torch.Generator().manual_seed(seed)
    if kind == TOKENS:
        return torch.randint(VOCABULARY, (count, *SHAPES[kind]), generator=generator)
    return torch.randn(count, *SHAPES[kind], generator=generator)


class By(nn.Module):
    """A module whose forward pass is a function of itself and the input."""

    def __init__(self, function, **parts) -> None:
        super().__init__()
        self._function = function
        for name, part in parts.items():
            setattr(self, name, part)

    def forward(self, x):
        return self._function(self, x)


def add(name: str, kind: str, make: Callable[[], nn.Module]) -> None:
    assert name not in MADE
    MADE[name] = make, kind


def head(width: int) -> nn.Linear:
    return nn.Linear(width, CLASSES)


# --- vectors ---
for activation in (
    *(nn.ReLU, nn.LeakyReLU, nn.ELU, nn.SELU, nn.CELU, nn.GELU, nn.SiLU, nn.Mish),
    *(nn.Tanh, nn.Sigmoid, nn.Softplus, nn.Softsign, nn.Hardtanh, nn.Hardswish),
    *(nn.Hardsigmoid, nn.LogSigmoid, nn.Tanhshrink, nn.ReLU6, nn.PReLU),
):
    add(
        f"MLP, {activation.__name__}",
        VECTOR,
        lambda activation=activation: By(
            lambda m, x: m.c(m.b(m.a(x))), a=nn.Linear(6, 8), b=activation(), c=head(8)
        ),
    )
add(
    "MLP with in-place ReLU and dropout",
    VECTOR,
    lambda: By(
        lambda m, x: m.body(x),
        body=nn.Sequential(
            nn.Linear(6, 8), nn.ReLU(inplace=True), nn.Dropout(0.3, True), head(8)
        ),
    ),
)
add(
    "functional dropout that looks at training",
    VECTOR,
    lambda: By(
        lambda m, x: m.b(F.dropout(F.relu(m.a(x)), 0.2, m.training)),
        a=nn.Linear(6, 8),
        b=head(8),
    ),
)


def _stochastic_depth(m, x):
    """As torchvision's ``ops.stochastic_depth`` has it, by rows."""
    if not m.training:
        return m.b(x + m.a(x))
    kept = torch.empty((x.shape[0], 1)).bernoulli_(0.8)
    kept.div_(0.8)
    return m.b(x + m.a(x) * kept)


def _drop_path(m, x):
    """As timm's ``drop_path`` has it; and chances that are a tensor."""
    if not m.training:
        return m.b(x + m.a(x))
    x = F.dropout((x + 0).view(-1, 2, 3).flatten(1), 0.1, True, True)
    kept = x.new_empty((x.shape[0], 1)).bernoulli_(0.7).div_(0.7)
    both = torch.bernoulli(torch.full((6,), 0.9)) / 0.9
    return m.b(x + m.a(x) * kept * both)


def _through_views(m, x):
    """Writes through a view, of which the whole is used, and through one of a part."""
    y = m.a(x)
    y.view(-1, 2, 3).flatten(1).relu_()
    z = m.a(x).view(-1, 2, 3)
    z[:, 0].mul_(3.0)
    return m.b(y + z.flatten(1))


for name, function in (
    ("written through views", _through_views),
    ("stochastic depth", _stochastic_depth),
    ("drop path", _drop_path),
):
    add(
        name,
        VECTOR,
        lambda function=function: By(function, a=nn.Linear(6, 6), b=head(6)),
    )
add(
    "alpha: selu net with layer norm",
    VECTOR,
    lambda: By(
        lambda m, x: m.b(m.n(F.selu(m.a(x)))),
        a=nn.Linear(6, 8),
        n=nn.LayerNorm(8),
        b=head(8),
    ),
)
add(
    "residual MLP",
    VECTOR,
    lambda: By(
        lambda m, x: m.c(x + F.relu(m.b(F.relu(m.a(x))))),
        a=nn.Linear(6, 8),
        b=nn.Linear(8, 6),
        c=head(6),
    ),
)
add(
    "highway network",
    VECTOR,
    lambda: By(
        lambda m, x: m.c(
            (g := torch.sigmoid(m.g(x))) * torch.relu(m.h(x)) + (1 - g) * x
        ),
        g=nn.Linear(6, 6),
        h=nn.Linear(6, 6),
        c=head(6),
    ),
)
add(
    "gated linear unit",
    VECTOR,
    lambda: By(lambda m, x: m.c(F.glu(m.a(x), -1)), a=nn.Linear(6, 16), c=head(8)),
)
add(
    "SwiGLU",
    VECTOR,
    lambda: By(
        lambda m, x: m.o(F.silu(m.g(x)) * m.u(x)),
        g=nn.Linear(6, 8, bias=False),
        u=nn.Linear(6, 8, bias=False),
        o=head(8),
    ),
)
add(
    "maxout",
    VECTOR,
    lambda: By(
        lambda m, x: m.c(m.a(x).view(-1, 4, 2).amax(2)), a=nn.Linear(6, 8), c=head(4)
    ),
)
add(
    "mixture of experts, dense",
    VECTOR,
    lambda: By(
        lambda m, x: (
            torch.softmax(m.g(x), -1)[:, :, None] * torch.stack([e(x) for e in m.e], 1)
        ).sum(1),
        g=nn.Linear(6, 3),
        e=nn.ModuleList([head(6) for _ in range(3)]),
    ),
)


def _top(m, x):
    weights, which = torch.softmax(m.g(x), -1).topk(2, -1)
    every = torch.stack([e(x) for e in m.e], 1)
    chosen = every.gather(1, which[:, :, None].expand(-1, -1, CLASSES))
    return (weights[:, :, None] * chosen).sum(1)


add(
    "mixture of experts, top 2",
    VECTOR,
    lambda: By(_top, g=nn.Linear(6, 3), e=nn.ModuleList([head(6) for _ in range(3)])),
)
add(
    "wide and deep",
    VECTOR,
    lambda: By(
        lambda m, x: m.w(x) + m.d(x),
        w=head(6),
        d=nn.Sequential(nn.Linear(6, 8), nn.ReLU(), head(8)),
    ),
)
add(
    "deep and cross network",
    VECTOR,
    lambda: By(
        lambda m, x: m.o(x * m.b(x * m.a(x) + x) + x),
        a=nn.Linear(6, 1),
        b=nn.Linear(6, 1),
        o=head(6),
    ),
)


def _machine(m, x):
    squares = (x @ m.v).square() - x.square() @ m.v.square()
    return m.w(x) + 0.5 * squares.sum(1, keepdim=True)


add(
    "factorisation machine",
    VECTOR,
    lambda: By(_machine, w=head(6), v=nn.Parameter(torch.randn(6, 4) * 0.1)),
)


class Feature(nn.Module):
    """Tokens of features, as a tabular transformer has them."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(6, 8) * 0.3)
        self.bias = nn.Parameter(torch.zeros(6, 8))
        self.cls = nn.Parameter(torch.zeros(1, 1, 8))
        self.layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
        self.head = head(8)

    def forward(self, x):
        tokens = x[:, :, None] * self.weight + self.bias
        tokens = torch.cat([self.cls.expand(len(x), -1, -1), tokens], 1)
        return self.head(self.layer(tokens)[:, 0])


add("FT-transformer for tables, with dropout", VECTOR, Feature)
add(
    "tabular net with embedded bins",
    VECTOR,
    lambda: By(
        lambda m, x: m.o(m.e(torch.bucketize(x, m.edges)).flatten(1)),
        e=nn.Embedding(4, 3),
        edges=torch.tensor([-1.0, 0.0, 1.0]),
        o=head(18),
    ),
)
add(
    "periodic features",
    VECTOR,
    lambda: By(
        lambda m, x: m.o(
            torch.cat([(v := x[:, :, None] * m.f).sin(), v.cos()], -1).flatten(1)
        ),
        f=nn.Parameter(torch.randn(3)),
        o=head(36),
    ),
)
add(
    "radial basis functions",
    VECTOR,
    lambda: By(
        lambda m, x: m.o(torch.exp(-((x[:, None] - m.c) ** 2).sum(-1))),
        c=nn.Parameter(torch.randn(5, 6)),
        o=head(5),
    ),
)
add(
    "random features, frozen",
    VECTOR,
    lambda: By(
        lambda m, x: m.o(torch.cos(m.f(x))),
        f=nn.Linear(6, 8).requires_grad_(False),
        o=head(8),
    ),
)
add(
    "logistic regression in its own class",
    VECTOR,
    lambda: By(lambda m, x: m.o(x), o=head(6)),
)
add(
    "cosine classifier",
    VECTOR,
    lambda: By(
        lambda m, x: 5 * F.linear(F.normalize(x), F.normalize(m.w)),
        w=nn.Parameter(torch.randn(CLASSES, 6)),
    ),
)
add(
    "bilinear", VECTOR, lambda: By(lambda m, x: m.b(x, x), b=nn.Bilinear(6, 6, CLASSES))
)
add(
    "weight normalisation",
    VECTOR,
    lambda: By(
        lambda m, x: m.o(torch.tanh(m.a(x))),
        a=parametrizations.weight_norm(nn.Linear(6, 8)),
        o=head(8),
    ),
)
add(
    "spectral normalisation in evaluation",
    VECTOR,
    lambda: By(
        lambda m, x: m.o(torch.tanh(m.a(x))),
        a=parametrizations.spectral_norm(nn.Linear(6, 8)).eval(),
        o=head(8),
    ),
)
add(
    "orthogonal weights",
    VECTOR,
    lambda: By(
        lambda m, x: m.o(torch.tanh(m.a(x))),
        a=parametrizations.orthogonal(nn.Linear(6, 6), orthogonal_map="householder"),
        o=head(6),
    ),
)
add(
    "batch normalisation in evaluation",
    VECTOR,
    lambda: By(
        lambda m, x: m.o(torch.relu(m.n(m.a(x)))),
        a=nn.Linear(6, 8),
        n=nn.BatchNorm1d(8).eval(),
        o=head(8),
    ),
)
add(
    "RMSNorm of torch's",
    VECTOR,
    lambda: By(
        lambda m, x: m.o(m.n(m.a(x))), a=nn.Linear(6, 8), n=nn.RMSNorm(8), o=head(8)
    ),
)
add(
    "RMSNorm of one's own",
    VECTOR,
    lambda: By(
        lambda m, x: m.o(x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * m.w),
        w=nn.Parameter(torch.ones(6)),
        o=head(6),
    ),
)
add(
    "squeeze and excite of features",
    VECTOR,
    lambda: By(
        lambda m, x: m.o(x * torch.sigmoid(m.b(F.relu(m.a(x))))),
        a=nn.Linear(6, 2),
        b=nn.Linear(2, 6),
        o=head(6),
    ),
)
add(
    "output as a dictionary",
    VECTOR,
    lambda: By(lambda m, x: {"logits": m.o(x), "hidden": x}, o=head(6)),
)


class Output:
    def __init__(self, logits) -> None:
        self.logits = logits


add(
    "output as an object with logits",
    VECTOR,
    lambda: By(lambda m, x: Output(m.o(x)), o=head(6)),
)


class Lora(nn.Module):
    """A frozen linear layer, with a trained part of low rank."""

    def __init__(self, inputs: int, outputs: int, rank: int = 2) -> None:
        super().__init__()
        self.base = nn.Linear(inputs, outputs).requires_grad_(False)
        self.down = nn.Parameter(torch.randn(rank, inputs) * 0.3)
        self.up = nn.Parameter(torch.randn(outputs, rank) * 0.3)

    def forward(self, x):
        return self.base(x) + x @ self.down.T @ self.up.T * 0.5


add(
    "LoRA",
    VECTOR,
    lambda: By(lambda m, x: m.o(F.gelu(m.a(x))), a=Lora(6, 8), o=Lora(8, CLASSES)),
)
add(
    "LoRA by linear layers",
    VECTOR,
    lambda: By(
        lambda m, x: m.o(m.base(x) + m.b(m.a(x))),
        base=nn.Linear(6, 8).requires_grad_(False),
        a=nn.Linear(6, 2, bias=False),
        b=nn.Linear(2, 8, bias=False),
        o=head(8),
    ),
)
add(
    "merged LoRA",
    VECTOR,
    lambda: By(
        lambda m, x: F.linear(x, m.w + m.up @ m.down),
        w=nn.Parameter(torch.randn(CLASSES, 6), requires_grad=False),
        up=nn.Parameter(torch.randn(CLASSES, 2)),
        down=nn.Parameter(torch.randn(2, 6)),
    ),
)
add(
    "adapter",
    VECTOR,
    lambda: By(
        lambda m, x: m.o((h := m.base(x)) + m.b(F.gelu(m.a(h)))),
        base=nn.Linear(6, 8).requires_grad_(False),
        a=nn.Linear(8, 2),
        b=nn.Linear(2, 8),
        o=head(8),
    ),
)
add(
    "IA3 scaling",
    VECTOR,
    lambda: By(
        lambda m, x: m.o(m.base(x) * m.l),
        base=nn.Linear(6, 8).requires_grad_(False),
        l=nn.Parameter(torch.ones(8)),
        o=head(8).requires_grad_(False),
    ),
)
add(
    "autoencoder with a classifier",
    VECTOR,
    lambda: By(
        lambda m, x: m.o(torch.cat([x - m.d(h := torch.tanh(m.e(x))), h], 1)),
        e=nn.Linear(6, 3),
        d=nn.Linear(3, 6),
        o=head(9),
    ),
)
add(
    "siamese halves with shared weights",
    VECTOR,
    lambda: By(
        lambda m, x: m.o((m.a(x[:, :3]) - m.a(x[:, 3:])).abs()),
        a=nn.Linear(3, 4),
        o=head(4),
    ),
)


def _no_grad(m, x):
    with torch.no_grad():
        start = torch.tanh(m.a(x))
    return m.o(start + m.a(x).detach() * torch.tanh(m.a(x)))


add(
    "a part without gradient",
    VECTOR,
    lambda: By(_no_grad, a=nn.Linear(6, 6), o=head(6)),
)
add(
    "a layer used three times",
    VECTOR,
    lambda: By(
        lambda m, x: m.o(m.a(torch.tanh(m.a(torch.tanh(m.a(x)))))),
        a=nn.Linear(6, 6),
        o=head(6),
    ),
)
add(
    "Kolmogorov-Arnold layer",
    VECTOR,
    lambda: By(
        lambda m, x: torch.einsum(
            "bik,oik->bo", torch.stack([x.sin(), x.cos(), x], -1), m.c
        ),
        c=nn.Parameter(torch.randn(CLASSES, 6, 3) * 0.2),
    ),
)
add(
    "soft decision tree",
    VECTOR,
    lambda: By(
        lambda m, x: (
            torch.stack(
                [
                    (p := torch.sigmoid(m.g(x)))[:, 0] * p[:, 1],
                    p[:, 0] * (1 - p[:, 1]),
                    (1 - p[:, 0]) * p[:, 2],
                    (1 - p[:, 0]) * (1 - p[:, 2]),
                ],
                1,
            )
            @ m.leaves
        ),
        g=nn.Linear(6, 3),
        leaves=nn.Parameter(torch.randn(4, CLASSES)),
    ),
)
add(
    "neural ODE by Euler's steps",
    VECTOR,
    lambda: By(_euler, f=nn.Linear(6, 6), o=head(6)),
)


def _euler(m, x):
    for _ in range(4):
        x = x + 0.25 * torch.tanh(m.f(x))
    return m.o(x)


add(
    "buffers of zeros written into",
    VECTOR,
    lambda: By(_written, a=nn.Linear(6, 4), o=head(8)),
)


def _written(m, x):
    wide = torch.zeros(x.shape[0], 8)
    wide[:, :4] = m.a(x)
    wide[:, 4:] = x[:, :4]
    return m.o(wide)


# --- images ---
add(
    "CNN as one writes it",
    IMAGE,
    lambda: By(
        lambda m, x: m.o(F.max_pool2d(F.relu(m.b(F.relu(m.a(x)))), 2).flatten(1)),
        a=nn.Conv2d(2, 4, 3),
        b=nn.Conv2d(4, 4, 3),
        o=head(16),
    ),
)
add(
    "LeNet",
    IMAGE,
    lambda: By(
        lambda m, x: m.o(
            torch.tanh(m.l(F.avg_pool2d(torch.tanh(m.a(x)), 2).flatten(1)))
        ),
        a=nn.Conv2d(2, 4, 3, padding=1),
        l=nn.Linear(64, 8),
        o=head(8),
    ),
)


class Basic(nn.Module):
    """A residual block with group normalisation."""

    def __init__(self, inputs: int, outputs: int, stride: int = 1) -> None:
        super().__init__()
        self.a = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.n = nn.GroupNorm(2, outputs)
        self.b = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.m = nn.GroupNorm(2, outputs)
        self.relu = nn.ReLU(inplace=True)
        self.down = None
        if stride > 1 or inputs != outputs:
            self.down = nn.Conv2d(inputs, outputs, 1, stride, bias=False)

    def forward(self, x):
        out = self.m(self.b(self.relu(self.n(self.a(x)))))
        out += x if self.down is None else self.down(x)
        return self.relu(out)


add(
    "ResNet with group normalisation",
    IMAGE,
    lambda: By(
        lambda m, x: m.o(F.adaptive_avg_pool2d(m.b(m.a(x)), 1).flatten(1)),
        a=Basic(2, 4),
        b=Basic(4, 8, 2),
        o=head(8),
    ),
)
add(
    "pre-activation ResNet",
    IMAGE,
    lambda: By(
        lambda m, x: m.o((y := m.s(x), y + m.a(F.relu(m.n(y))))[1].mean((2, 3))),
        s=nn.Conv2d(2, 4, 3, padding=1),
        n=nn.GroupNorm(1, 4),
        a=nn.Conv2d(4, 4, 3, padding=1),
        o=head(4),
    ),
)
add(
    "DenseNet block",
    IMAGE,
    lambda: By(
        lambda m, x: m.o(
            (y := torch.cat([x, F.relu(m.a(x))], 1), torch.cat([y, F.relu(m.b(y))], 1))[
                1
            ].mean((2, 3))
        ),
        a=nn.Conv2d(2, 2, 3, padding=1),
        b=nn.Conv2d(4, 2, 3, padding=1),
        o=head(6),
    ),
)
add(
    "VGG",
    IMAGE,
    lambda: By(
        lambda m, x: m.o(m.f(x).flatten(1)),
        f=nn.Sequential(
            nn.Conv2d(2, 4, 3, padding=1),
            nn.ReLU(True),
            nn.MaxPool2d(2),
            nn.Conv2d(4, 4, 3, padding=1),
            nn.ReLU(True),
            nn.MaxPool2d(2),
        ),
        o=nn.Sequential(
            nn.Linear(16, 8), nn.ReLU(True), nn.Dropout(0.5, True), head(8)
        ),
    ),
)
add(
    "SqueezeNet fire",
    IMAGE,
    lambda: By(
        lambda m, x: m.o(
            torch.cat([F.relu(m.e(s := F.relu(m.s(x)))), F.relu(m.f(s))], 1).mean(
                (2, 3)
            )
        ),
        s=nn.Conv2d(2, 2, 1),
        e=nn.Conv2d(2, 3, 1),
        f=nn.Conv2d(2, 3, 3, padding=1),
        o=head(6),
    ),
)
add(
    "inception block",
    IMAGE,
    lambda: By(
        lambda m, x: m.o(
            torch.cat([m.a(x), m.b(x), m.c(F.max_pool2d(x, 3, 1, 1))], 1).amax((2, 3))
        ),
        a=nn.Conv2d(2, 2, 1),
        b=nn.Conv2d(2, 2, 5, padding=2),
        c=nn.Conv2d(2, 2, 1),
        o=head(6),
    ),
)
add(
    "MobileNet, depthwise",
    IMAGE,
    lambda: By(
        lambda m, x: m.o(F.hardswish(m.p(F.relu6(m.d(m.e(x))))).mean((2, 3))),
        e=nn.Conv2d(2, 4, 1),
        d=nn.Conv2d(4, 4, 3, padding=1, groups=4),
        p=nn.Conv2d(4, 6, 1),
        o=head(6),
    ),
)
add(
    "ShuffleNet",
    IMAGE,
    lambda: By(
        lambda m, x: m.o(m.b(F.channel_shuffle(m.a(x), 2)).mean((2, 3))),
        a=nn.Conv2d(2, 4, 1, groups=2),
        b=nn.Conv2d(4, 4, 3, groups=2),
        o=head(4),
    ),
)
add(
    "shuffled channels by reshape",
    IMAGE,
    lambda: By(
        lambda m, x: m.o(
            (y := m.a(x))
            .view(len(y), 2, 2, *y.shape[2:])
            .transpose(1, 2)
            .reshape(y.shape)
            .mean((2, 3))
        ),
        a=nn.Conv2d(2, 4, 1),
        o=head(4),
    ),
)
add(
    "squeeze and excite",
    IMAGE,
    lambda: By(
        lambda m, x: m.o(
            ((y := m.a(x)) * torch.sigmoid(m.e(y.mean((2, 3))))[:, :, None, None]).mean(
                (2, 3)
            )
        ),
        a=nn.Conv2d(2, 4, 3),
        e=nn.Linear(4, 4),
        o=head(4),
    ),
)
add(
    "ConvNeXt block",
    IMAGE,
    lambda: By(
        _convnext,
        d=nn.Conv2d(2, 4, 3, padding=1),
        n=nn.LayerNorm(4),
        a=nn.Linear(4, 8),
        b=nn.Linear(8, 4),
        g=nn.Parameter(torch.ones(4) * 0.1),
        o=head(4),
    ),
)


def _convnext(m, x):
    x = m.d(x)
    y = m.b(F.gelu(m.a(m.n(x.permute(0, 2, 3, 1))))) * m.g
    return m.o((x + y.permute(0, 3, 1, 2)).mean((2, 3)))


class UNet(nn.Module):
    """Down, up by a transposed convolution, and a skip."""

    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Conv2d(2, 4, 3, padding=1)
        self.b = nn.Conv2d(4, 4, 3, padding=1)
        self.up = nn.ConvTranspose2d(4, 4, 2, 2)
        self.c = nn.Conv2d(8, CLASSES, 1)

    def forward(self, x):
        first = F.relu(self.a(x))
        low = F.relu(self.b(F.max_pool2d(first, 2)))
        return self.c(torch.cat([first, self.up(low)], 1)).mean((2, 3))


add("U-Net", IMAGE, UNet)
add(
    "U-Net by interpolation",
    IMAGE,
    lambda: By(
        lambda m, x: m.o(
            F.interpolate(m.b(F.avg_pool2d(m.a(x), 2)), scale_factor=2) + m.a(x)
        ).mean((2, 3)),
        a=nn.Conv2d(2, 4, 3, padding=1),
        b=nn.Conv2d(4, 4, 3, padding=1),
        o=nn.Conv2d(4, CLASSES, 1),
    ),
)
add(
    "bilinear interpolation",
    IMAGE,
    lambda: By(
        lambda m, x: m.o(
            F.interpolate(
                m.a(x), size=(4, 4), mode="bilinear", align_corners=False
            ).flatten(1)
        ),
        a=nn.Conv2d(2, 2, 3),
        o=head(32),
    ),
)
add(
    "dilated and strided",
    IMAGE,
    lambda: By(
        lambda m, x: m.o(m.b(F.elu(m.a(x))).flatten(1)),
        a=nn.Conv2d(2, 3, 3, dilation=2, padding=2),
        b=nn.Conv2d(3, 2, 3, stride=2),
        o=head(18),
    ),
)
add(
    "padding same, reflected",
    IMAGE,
    lambda: By(
        lambda m, x: m.o(m.b(torch.tanh(m.a(x))).mean((2, 3))),
        a=nn.Conv2d(2, 3, 3, padding="same"),
        b=nn.Conv2d(3, 3, 3, padding=1, padding_mode="reflect"),
        o=head(3),
    ),
)
add(
    "pixel shuffle",
    IMAGE,
    lambda: By(
        lambda m, x: m.o(F.pixel_shuffle(m.a(x), 2)).amax((2, 3)),
        a=nn.Conv2d(2, 8, 3),
        o=nn.Conv2d(2, CLASSES, 2),
    ),
)
add(
    "instance normalisation",
    IMAGE,
    lambda: By(
        lambda m, x: m.o(F.relu(m.n(m.a(x))).mean((2, 3))),
        a=nn.Conv2d(2, 4, 3),
        n=nn.InstanceNorm2d(4, affine=True),
        o=head(4),
    ),
)
add(
    "batch normalisation 2d in evaluation",
    IMAGE,
    lambda: By(
        lambda m, x: m.o(F.relu(m.n(m.a(x))).mean((2, 3))),
        a=nn.Conv2d(2, 4, 3),
        n=nn.BatchNorm2d(4).eval(),
        o=head(4),
    ),
)
add(
    "local response normalisation",
    IMAGE,
    lambda: By(
        lambda m, x: m.o(m.n(F.relu(m.a(x))).flatten(1)),
        a=nn.Conv2d(2, 4, 5),
        n=nn.LocalResponseNorm(2),
        o=head(64),
    ),
)
add(
    "spatial dropout",
    IMAGE,
    lambda: By(
        lambda m, x: m.o(m.a(x).flatten(1)),
        a=nn.Sequential(nn.Conv2d(2, 4, 5), nn.Dropout(0.2)),
        o=head(64),
    ),
)


class Vision(nn.Module):
    """A small vision transformer."""

    def __init__(self, dropout: float = 0.0) -> None:
        super().__init__()
        self.patches = nn.Conv2d(2, 8, 4, 4)
        self.cls = nn.Parameter(torch.zeros(1, 1, 8))
        self.place = nn.Parameter(torch.randn(1, 5, 8) * 0.1)
        layer = nn.TransformerEncoderLayer(
            8, 2, 16, dropout, "gelu", batch_first=True, norm_first=True
        )
        self.body = nn.TransformerEncoder(layer, 1, enable_nested_tensor=False)
        self.head = head(8)

    def forward(self, x):
        tokens = self.patches(x).flatten(2).transpose(1, 2)
        tokens = (
            torch.cat([self.cls.expand(x.shape[0], -1, -1), tokens], 1) + self.place
        )
        return self.head(self.body(tokens)[:, 0])


add("vision transformer", IMAGE, Vision)
add("vision transformer with dropout", IMAGE, lambda: Vision(0.1))


class Mixer(nn.Module):
    """One block of an MLP-Mixer."""

    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Conv2d(2, 6, 2, 2)
        self.n, self.m = nn.LayerNorm(6), nn.LayerNorm(6)
        self.tokens = nn.Sequential(nn.Linear(16, 8), nn.GELU(), nn.Linear(8, 16))
        self.channels = nn.Sequential(nn.Linear(6, 8), nn.GELU(), nn.Linear(8, 6))
        self.head = head(6)

    def forward(self, x):
        x = self.patches(x).flatten(2).transpose(1, 2)
        x = x + self.tokens(self.n(x).transpose(1, 2)).transpose(1, 2)
        x = x + self.channels(self.m(x))
        return self.head(x.mean(1))


add("MLP-Mixer", IMAGE, Mixer)
add(
    "spatial transformer",
    IMAGE,
    lambda: By(
        lambda m, x: m.o(
            F.grid_sample(
                x,
                F.affine_grid(
                    m.l(x.flatten(1)).view(-1, 2, 3), x.shape, align_corners=False
                ),
                align_corners=False,
            ).flatten(1)
        ),
        l=nn.Linear(128, 6),
        o=head(128),
    ),
)
add(
    "patches by unfold",
    IMAGE,
    lambda: By(
        lambda m, x: m.o(m.a(F.unfold(x, 4, stride=4).transpose(1, 2)).mean(1)),
        a=nn.Linear(32, 8),
        o=head(8),
    ),
)
add(
    "Fourier layer",
    IMAGE,
    lambda: By(
        lambda m, x: m.o(
            torch.fft.irfft2(
                torch.fft.rfft2(m.a(x)) * torch.complex(m.r, m.i), s=(8, 8)
            ).mean((2, 3))
        ),
        a=nn.Conv2d(2, 3, 1),
        r=nn.Parameter(torch.randn(3, 8, 5) * 0.3),
        i=nn.Parameter(torch.randn(3, 8, 5) * 0.3),
        o=head(3),
    ),
)
add(
    "capsules",
    IMAGE,
    lambda: By(
        _capsules,
        a=nn.Conv2d(2, 8, 4, 4),
        w=nn.Parameter(torch.randn(8, CLASSES, 4, 4) * 0.3),
    ),
)


def _capsules(m, x):
    found = (
        m.a(x).view(x.shape[0], 2, 4, 4).permute(0, 1, 3, 2).reshape(x.shape[0], 8, 4)
    )
    votes = torch.einsum("bni,ncij->bncj", found, m.w)
    agrees = torch.zeros(x.shape[0], 8, CLASSES)
    for _ in range(2):
        share = agrees.softmax(2)
        out = (share[..., None] * votes).sum(1)
        agrees = agrees + (votes * out[:, None]).sum(-1)
    return out.norm(dim=-1)


# --- signals ---
add(
    "1-D CNN",
    SIGNAL,
    lambda: By(
        lambda m, x: m.o(F.max_pool1d(F.relu(m.a(x)), 2).flatten(1)),
        a=nn.Conv1d(2, 4, 3),
        o=head(20),
    ),
)
add(
    "temporal convolutions, causal",
    SIGNAL,
    lambda: By(
        lambda m, x: m.o(m.b(F.pad(F.relu(m.a(F.pad(x, (2, 0)))), (4, 0)))[:, :, -1]),
        a=nn.Conv1d(2, 4, 3),
        b=nn.Conv1d(4, 4, 3, dilation=2),
        o=head(4),
    ),
)
add(
    "WaveNet gate",
    SIGNAL,
    lambda: By(
        lambda m, x: m.o((torch.tanh(m.a(x)) * torch.sigmoid(m.b(x))).mean(2)),
        a=nn.Conv1d(2, 4, 2, dilation=2),
        b=nn.Conv1d(2, 4, 2, dilation=2),
        o=head(4),
    ),
)
add(
    "transposed 1-D convolution",
    SIGNAL,
    lambda: By(
        lambda m, x: m.o(m.a(x).amax(2)), a=nn.ConvTranspose1d(2, 4, 3, 2), o=head(4)
    ),
)
add(
    "spectrogram",
    SIGNAL,
    lambda: By(lambda m, x: m.o(torch.fft.rfft(x).abs().flatten(1)), o=head(14)),
)
add(
    "attention pooling",
    SIGNAL,
    lambda: By(
        lambda m, x: m.o((m.a(x.mT).softmax(1) * x.mT).sum(1)),
        a=nn.Linear(2, 1),
        o=head(2),
    ),
)

# --- sequences ---
for kind in (nn.RNN, nn.GRU, nn.LSTM):
    add(
        f"{kind.__name__}",
        SEQUENCE,
        lambda kind=kind: By(
            lambda m, x: m.o(m.r(x)[0][:, -1]),
            r=kind(6, 5, batch_first=True),
            o=head(5),
        ),
    )
    add(
        f"{kind.__name__}, two layers, both ways",
        SEQUENCE,
        lambda kind=kind: By(
            lambda m, x: m.o(m.r(x)[0].mean(1)),
            r=kind(6, 4, 2, batch_first=True, bidirectional=True),
            o=head(8),
        ),
    )
add(
    "LSTM by its last state",
    SEQUENCE,
    lambda: By(
        lambda m, x: m.o(m.r(x)[1][0][-1]), r=nn.LSTM(6, 5, batch_first=True), o=head(5)
    ),
)
add(
    "GRU, time first",
    SEQUENCE,
    lambda: By(
        lambda m, x: m.o(m.r(x.transpose(0, 1))[0][-1]), r=nn.GRU(6, 5), o=head(5)
    ),
)


def _cells(m, x):
    state = torch.zeros(x.shape[0], 5)
    for step in x.unbind(1):
        state = m.c(step, state)
    return m.o(state)


add("GRU cells", SEQUENCE, lambda: By(_cells, c=nn.GRUCell(6, 5), o=head(5)))


def _lstm_cells(m, x):
    state = torch.zeros(x.shape[0], 5), torch.zeros(x.shape[0], 5)
    for step in x.unbind(1):
        state = m.c(step, state)
    return m.o(state[0])


add("LSTM cells", SEQUENCE, lambda: By(_lstm_cells, c=nn.LSTMCell(6, 5), o=head(5)))
add(
    "LSTM with attention",
    SEQUENCE,
    lambda: By(
        lambda m, x: m.o(((h := m.r(x)[0]) * m.a(h).softmax(1)).sum(1)),
        r=nn.LSTM(6, 5, batch_first=True),
        a=nn.Linear(5, 1),
        o=head(5),
    ),
)
add(
    "CNN and LSTM",
    SEQUENCE,
    lambda: By(
        lambda m, x: m.o(m.r(F.relu(m.c(x.mT)).mT)[0][:, -1]),
        c=nn.Conv1d(6, 4, 2),
        r=nn.LSTM(4, 5, batch_first=True),
        o=head(5),
    ),
)
for dropout in (0.0, 0.1):
    add(
        f"TransformerEncoder, dropout {dropout}",
        SEQUENCE,
        lambda dropout=dropout: By(
            lambda m, x: m.o(m.t(x).mean(1)),
            t=nn.TransformerEncoder(
                nn.TransformerEncoderLayer(6, 2, 12, dropout, batch_first=True),
                2,
                enable_nested_tensor=False,
            ),
            o=head(6),
        ),
    )
add(
    "TransformerEncoder, norm first",
    SEQUENCE,
    lambda: By(
        lambda m, x: m.o(m.t(x).mean(1)),
        t=nn.TransformerEncoderLayer(6, 2, 12, 0.0, batch_first=True, norm_first=True),
        o=head(6),
    ),
)
add(
    "MultiheadAttention",
    SEQUENCE,
    lambda: By(
        lambda m, x: m.o(m.a(x, x, x, need_weights=False)[0].mean(1)),
        a=nn.MultiheadAttention(6, 2, batch_first=True),
        o=head(6),
    ),
)
add(
    "MultiheadAttention with its weights",
    SEQUENCE,
    lambda: By(
        lambda m, x: m.o(m.a(x, x, x)[0].mean(1)),
        a=nn.MultiheadAttention(6, 2, batch_first=True),
        o=head(6),
    ),
)
add(
    "attention over learned queries",
    SEQUENCE,
    lambda: By(
        lambda m, x: m.o(m.a(m.q.expand(len(x), -1, -1), x, x)[0].flatten(1)),
        q=nn.Parameter(torch.randn(1, 2, 6)),
        a=nn.MultiheadAttention(6, 2, batch_first=True),
        o=head(12),
    ),
)
add(
    "Transformer, both halves",
    SEQUENCE,
    lambda: By(
        lambda m, x: m.o(m.t(x, x[:, :2]).mean(1)),
        t=nn.Transformer(6, 2, 1, 1, 12, 0.0, batch_first=True),
        o=head(6),
    ),
)
add(
    "linear attention",
    SEQUENCE,
    lambda: By(
        lambda m, x: m.o((F.elu(m.q(x)) + 1) @ ((F.elu(m.k(x)) + 1).mT @ m.v(x))).mean(
            1
        ),
        q=nn.Linear(6, 4),
        k=nn.Linear(6, 4),
        v=nn.Linear(6, 4),
        o=head(4),
    ),
)
add(
    "Fourier mixing (FNet)",
    SEQUENCE,
    lambda: By(
        lambda m, x: m.o(m.n(x + torch.fft.fft2(x, dim=(1, 2)).real).mean(1)),
        n=nn.LayerNorm(6),
        o=head(6),
    ),
)
add(
    "deep sets",
    SEQUENCE,
    lambda: By(lambda m, x: m.o(F.relu(m.a(x)).sum(1)), a=nn.Linear(6, 8), o=head(8)),
)
add(
    "graph convolution on a fixed graph",
    SEQUENCE,
    lambda: By(
        lambda m, x: m.o(F.relu(m.g @ m.a(x)).mean(1)),
        g=torch.eye(4) * 0.5 + 0.125,
        a=nn.Linear(6, 8),
        o=head(8),
    ),
)
add(
    "state space by cumulated sums",
    SEQUENCE,
    lambda: By(
        lambda m, x: m.o(
            torch.cumsum(m.a(x) * m.d ** torch.arange(4.0)[:, None], 1)[:, -1]
        ),
        a=nn.Linear(6, 5),
        d=nn.Parameter(torch.full((5,), 0.8)),
        o=head(5),
    ),
)

# --- tokens ---
add(
    "bag of words",
    TOKENS,
    lambda: By(
        lambda m, x: m.o(m.e(x).mean(1)), e=nn.Embedding(VOCABULARY, 6), o=head(6)
    ),
)
add(
    "padded bag of words",
    TOKENS,
    lambda: By(
        lambda m, x: m.o(
            (m.e(x) * (x != 0)[:, :, None]).sum(1)
            / (x != 0).sum(1, keepdim=True).clamp(min=1)
        ),
        e=nn.Embedding(VOCABULARY, 6, padding_idx=0),
        o=head(6),
    ),
)
add(
    "one-hot words",
    TOKENS,
    lambda: By(
        lambda m, x: m.o(
            (x[:, :, None] == torch.arange(VOCABULARY)).to(m.o.weight).sum(1)
        ),
        o=head(VOCABULARY),
    ),
)
add(
    "text CNN",
    TOKENS,
    lambda: By(
        lambda m, x: m.o(F.relu(m.c(m.e(x).mT)).amax(2)),
        e=nn.Embedding(VOCABULARY, 6),
        c=nn.Conv1d(6, 5, 3),
        o=head(5),
    ),
)
add(
    "LSTM over words",
    TOKENS,
    lambda: By(
        lambda m, x: m.o(m.r(m.e(x))[0][:, -1]),
        e=nn.Embedding(VOCABULARY, 6),
        r=nn.LSTM(6, 5, batch_first=True),
        o=head(5),
    ),
)


class Gpt(nn.Module):
    """GPT-2 as one writes it, with tied embeddings."""

    def __init__(self, dropout: float = 0.0) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(VOCABULARY, 8), nn.Embedding(5, 8)
        self.n, self.m, self.f = nn.LayerNorm(8), nn.LayerNorm(8), nn.LayerNorm(8)
        self.qkv, self.out = nn.Linear(8, 24), nn.Linear(8, 8)
        self.up, self.down = nn.Linear(8, 16), nn.Linear(16, 8)
        self.drop = nn.Dropout(dropout)
        self.lm_head = nn.Linear(8, VOCABULARY, bias=False)
        self.lm_head.weight = self.words.weight
        self.register_buffer("mask", torch.tril(torch.ones(5, 5)).view(1, 1, 5, 5))

    def forward(self, x):
        batch, length = x.size()
        h = self.drop(self.words(x) + self.places(torch.arange(length)))
        q, k, v = self.qkv(self.n(h)).split(8, dim=2)
        q, k, v = (p.view(batch, length, 2, 4).transpose(1, 2) for p in (q, k, v))
        scores = q @ k.transpose(-2, -1) / math.sqrt(4)
        scores = scores.masked_fill(self.mask[:, :, :length, :length] == 0, -math.inf)
        y = F.softmax(scores, dim=-1) @ v
        h = h + self.out(y.transpose(1, 2).contiguous().view(batch, length, 8))
        h = h + self.down(F.gelu(self.up(self.m(h)), approximate="tanh"))
        return self.lm_head(self.f(h)).mean(1)


add("GPT-2, tied", TOKENS, Gpt)
add("GPT-2, tied, with dropout", TOKENS, lambda: Gpt(0.1))


class Llama(nn.Module):
    """Rotary positions, RMSNorm, SwiGLU and grouped queries."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(VOCABULARY, 8)
        self.n, self.m = nn.RMSNorm(8), nn.RMSNorm(8)
        self.q, self.k = nn.Linear(8, 8, bias=False), nn.Linear(8, 4, bias=False)
        self.v, self.o = nn.Linear(8, 4, bias=False), nn.Linear(8, 8, bias=False)
        self.gate, self.up = nn.Linear(8, 12, bias=False), nn.Linear(8, 12, bias=False)
        self.down, self.head = nn.Linear(12, 8, bias=False), head(8)

    def turn(self, x):
        angle = torch.arange(x.shape[2])[:, None] * torch.tensor([1.0, 0.1])
        first, second = x.chunk(2, -1)
        return torch.cat(
            [
                first * angle.cos() - second * angle.sin(),
                first * angle.sin() + second * angle.cos(),
            ],
            -1,
        )

    def forward(self, x):
        h = self.words(x)
        y = self.n(h)
        q = self.turn(self.q(y).unflatten(2, (2, 4)).transpose(1, 2))
        k = self.turn(self.k(y).unflatten(2, (1, 4)).transpose(1, 2))
        v = self.v(y).unflatten(2, (1, 4)).transpose(1, 2)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        h = h + self.o(y.transpose(1, 2).flatten(2))
        y = self.m(h)
        return self.head((h + self.down(F.silu(self.gate(y)) * self.up(y)))[:, -1])


add("Llama", TOKENS, Llama)


class Bert(nn.Module):
    """An encoder with a padding mask, pooled at its first token."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(VOCABULARY, 8)
        self.places = nn.Parameter(torch.randn(1, 5, 8) * 0.1)
        layer = nn.TransformerEncoderLayer(8, 2, 16, 0.1, "gelu", batch_first=True)
        self.body = nn.TransformerEncoder(layer, 1, enable_nested_tensor=False)
        self.pool, self.head = nn.Linear(8, 8), head(8)

    def forward(self, x):
        hidden = torch.zeros_like(x, dtype=torch.bool)
        hidden[:, 1:] = x[:, 1:] == 0
        h = self.body(self.words(x) + self.places, src_key_padding_mask=hidden)
        return {"logits": self.head(torch.tanh(self.pool(h[:, 0])))}


add("BERT with a padding mask", TOKENS, Bert)
add(
    "EmbeddingBag",
    TOKENS,
    lambda: By(
        lambda m, x: m.o(m.e(x)),
        e=nn.EmbeddingBag(VOCABULARY, 6, mode="mean"),
        o=head(6),
    ),
)
add(
    "matrix factorisation",
    TOKENS,
    lambda: By(
        lambda m, x: m.o(m.u(x[:, 0]) * m.i(x[:, 1])),
        u=nn.Embedding(VOCABULARY, 4),
        i=nn.Embedding(VOCABULARY, 4),
        o=head(4),
    ),
)
