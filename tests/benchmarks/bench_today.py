"""Clipped sums of a batch, of models as people write them, beside other ways.

Run as ``python tests/benchmarks/bench_today.py``, with names of works for a part of it.
Ours is what `trainers.gradients.door` makes of the model; beside it are gradients of
each record by `torch.func.vmap`, Opacus' ghost clipping and its hooks where it is
installed, and one gradient of the batch without privacy. Opacus is given the same
function with positions that have a batch dimension, without which it fails. One thread;
a row is a process of its own, and all of a work are of one clipped sum, or it is an
error.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

import torch
from measuring import Row, answer, measured, show, timed
from torch import Tensor, nn
from torch.nn import functional

from trainers.gradients.bfloat16 import exact_products
from trainers.gradients.choose import differentiator
from trainers.gradients.clip_weights import ClipTo
from trainers.gradients.clipping import keep_freed
from trainers.gradients.door.enter import enter
from trainers.gradients.graphs import weighted_sum
from trainers.gradients.per_sample import parameter_vector, trained
from trainers.gradients.rounding import SLACK
from trainers.models import make_model
from trainers.numerics.deferred_checks import Watch

CLIP = 1.0


class Block(nn.Module):
    """Transformer block: causal attention and two layers, each after a norm."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.inside, self.outside = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.wide, self.narrow = (
            nn.Linear(width, 4 * width),
            nn.Linear(4 * width, width),
        )

    def forward(self, x: Tensor) -> Tensor:  # (samples, length, width)
        parts = self.inside(self.first(x)).chunk(3, -1)
        query, key, value = (
            part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in parts
        )
        found = functional.scaled_dot_product_attention(
            query, key, value, is_causal=True
        )
        x = x + self.outside(found.transpose(1, 2).flatten(2))
        return x + self.narrow(functional.gelu(self.wide(self.second(x))))


class Transformer(nn.Module):
    """Decoder of words, as GPT-2 is, with the embedding tied or a head of its own."""

    def __init__(
        self, words: int, width: int, heads: int, blocks: int, length: int, tied: bool
    ) -> None:
        super().__init__()
        self.expands = False
        self.words, self.places = (
            nn.Embedding(words, width),
            nn.Embedding(length, width),
        )
        self.blocks = nn.Sequential(*(Block(width, heads) for _ in range(blocks)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, words, bias=False)
        if tied:
            self.head.weight = self.words.weight

    def forward(
        self, x: Tensor
    ) -> Tensor:  # (samples, length) to (samples, words, ...)
        at = torch.arange(x.shape[1], device=x.device)
        places = self.places(at.repeat(len(x), 1) if self.expands else at)
        return self.head(self.norm(self.blocks(self.words(x) + places))).transpose(1, 2)


class LowRank(nn.Module):
    """A frozen layer, and a trained product of two thin ones (LoRA, Hu et al. 2021)."""

    def __init__(self, layer: nn.Linear, rank: int = 8) -> None:
        super().__init__()
        self.layer = layer.requires_grad_(False)
        self.down = nn.Linear(layer.in_features, rank, bias=False)
        self.up = nn.Linear(rank, layer.out_features, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x) + self.up(self.down(x))


def lora() -> nn.Module:
    model = Transformer(5_000, 256, 8, 3, 64, tied=False).requires_grad_(False)
    for block in model.blocks:
        for name in ("inside", "outside"):
            setattr(block, name, LowRank(getattr(block, name)))
    return model


class Gated(nn.Module):
    """Gated linear units of images (Dauphin et al. 2017)."""

    def __init__(self) -> None:
        super().__init__()
        self.wide, self.gate = nn.Linear(784, 512), nn.Linear(784, 512)
        self.head = nn.Linear(512, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = x.flatten(1)
        return self.head(self.wide(x) * self.gate(x).sigmoid())


class Merged(LowRank):
    """As `LowRank`, with the two thin ones multiplied first."""

    def forward(self, x: Tensor) -> Tensor:
        weight = self.layer.weight + self.up.weight @ self.down.weight
        return functional.linear(x, weight, self.layer.bias)


def layers(one: Callable[[nn.Linear], nn.Module]) -> nn.Module:
    """Two layers of images, each by ``one``, and a last."""
    wide, deep = nn.Linear(784, 512), nn.Linear(512, 512)
    parts = one(wide), nn.ReLU(), one(deep), nn.ReLU(), nn.Linear(512, 10)
    return nn.Sequential(nn.Flatten(), *parts)


def dilated() -> nn.Module:
    widths = [(1, 1), (32, 2), (32, 4)]
    parts = [
        part
        for width, apart in widths
        for part in (
            nn.Conv2d(width, 32, 3, dilation=apart, padding=apart),
            nn.ReLU(),
        )
    ]
    pooled = nn.AvgPool2d(4), nn.Flatten(), nn.Linear(1568, 10)
    return nn.Sequential(*parts, *pooled)


# Of each work: the model, the shape of a record's input, samples, words (0: numbers).
WORKS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...], int, int]] = {
    **{
        f"transformer-{samples}": (
            lambda: Transformer(5_000, 256, 8, 3, 64, tied=False),
            *((64,), samples, 5_000),
        )
        for samples in (8, 32)
    },
    "lora-8": (lora, (64,), 8, 5_000),
    **{
        name: (
            lambda tied=tied: Transformer(50_257, 768, 12, 12, 1_024, tied=tied),
            *((128,), 2, 50_257),
        )
        for name, tied in {"gpt2-2": True, "gpt2-untied-2": False}.items()
    },
    "resnet18-4": (lambda: make_model("resnet18", (3, 32, 32), 10), (3, 32, 32), 4, 0),
    "cnn-256": (lambda: make_model("small-cnn", (1, 28, 28), 10), (1, 28, 28), 256, 0),
    **{
        name: (make, (1, 28, 28), 32, 0)
        for name, make in {
            "mlp-32": lambda: layers(lambda layer: layer),
            "gated-32": Gated,
            "merged-32": lambda: layers(Merged),
            "dilated-32": dilated,
            "lstm-32": lambda: make_model("lstm", (1, 28, 28), 10),
        }.items()
    },
    "lstm-64": (lambda: make_model("lstm", (1, 28, 28), 10), (1, 28, 28), 64, 0),
}


class Written(nn.Module):
    """A model, of which nothing is known but what it does: traced at the door."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: Tensor) -> Tensor:
        return self.model(x)


Step = Callable[[], Tensor]
Where = tuple[str, int]  # a device, and how many times a work's samples
HERE: Where = ("cpu", 1)


def made(work: str, where: Where = HERE) -> tuple[nn.Module, Tensor, Tensor]:
    """The model, and a batch."""
    make, shape, samples, words = WORKS[work]
    device, times = where
    samples *= times
    torch.manual_seed(0)
    model = make()
    if words:
        inputs = torch.randint(words, (samples, *shape))
        targets = torch.randint(words, (samples, *shape))
    else:
        inputs = torch.randn(samples, *shape)
        targets = torch.randint(10, (samples,))
    return model.to(device), inputs.to(device), targets.to(device)


def loss(outputs: Tensor, targets: Tensor) -> Tensor:
    return functional.cross_entropy(outputs, targets)


def told(step: Step) -> Row:
    found = step().double()
    direction = torch.arange(len(found), dtype=torch.float64).cos()
    direction /= direction.norm()
    row = timed(step, 4)
    return row | {"norm": found.norm().item(), "along": (found @ direction).item()}


def ours(work: str, where: Where = HERE, compiled: bool = False) -> Step:
    """A release's clipped sum, without noise; ``compiled``: as a graph, on a GPU."""
    model, *example = made(work)
    input, target = (each[0] for each in example)
    taken = enter(Written(model), loss, input, target)
    assert taken.why_not is None, taken.why_not
    keep_freed()  # as every run does
    exact_products()
    gradients = differentiator(
        taken.module, taken.loss, input, target, compiled=compiled
    )
    at = parameter_vector(taken.module)[None].to(where[0])
    _, inputs, targets = made(work, where)
    there = torch.ones(1, len(inputs), dtype=torch.bool, device=where[0])
    weigh = ClipTo(CLIP, there, Watch())  # which nothing waits for on a GPU
    given = at, inputs[None], targets[None], weigh, SLACK
    return lambda: weighted_sum(gradients, *given)[0]


def mapped(work: str, where: Where = HERE) -> Step:
    """Gradients of each record by `torch.func`, clipped and added."""
    model, inputs, targets = made(work, where)
    values = {name: each.detach() for name, each in trained(model).items()}

    def one(values: Any, input: Tensor, target: Tensor) -> Tensor:
        outputs = torch.func.functional_call(model, values, (input[None],))
        return loss(outputs, target[None])

    each = torch.func.vmap(torch.func.grad(one), (None, 0, 0))

    def step() -> Tensor:
        return added([*each(values, inputs, targets).values()])

    return step


def added(found: list[Tensor]) -> Tensor:
    """Clipped sum of gradients that are written out, (samples, ...) each."""
    # In single precision, norms of millions of numbers lose digits.
    norms = [one.flatten(1).norm(dim=1, dtype=torch.float64) for one in found]
    weights = (CLIP / torch.stack(norms).norm(dim=0)).clamp_max(1.0).float()
    return torch.cat([torch.tensordot(weights, one, 1).flatten() for one in found])


def hooks(work: str, where: Where = HERE) -> Step:
    """Opacus' gradients of each record, by hooks, clipped and added."""
    from opacus.grad_sample import GradSampleModule

    model, inputs, targets = made(work, where)
    model.expands = True
    wrapped: Any = GradSampleModule(model, loss_reduction="sum")

    def step() -> Tensor:
        for each in trained(model).values():
            each.grad_sample = None  # type: ignore[attr-defined]
        found = functional.cross_entropy(wrapped(inputs), targets, reduction="none")
        found.view(len(found), -1).mean(1).sum().backward()
        rows: Any = [each.grad_sample for each in trained(model).values()]
        return added(rows)

    return step


def ghost(work: str, where: Where = HERE) -> Step:
    """Opacus' ghost clipping: two backward passes."""
    from opacus.grad_sample import GradSampleModuleFastGradientClipping
    from opacus.optimizers.optimizer_fast_gradient_clipping import (
        DPOptimizerFastGradientClipping,
    )
    from opacus.utils.fast_gradient_clipping_utils import DPLossFastGradientClipping

    model, inputs, targets = made(work, where)
    model.expands = True
    wrapped: Any = GradSampleModuleFastGradientClipping(
        model, max_grad_norm=CLIP, use_ghost_clipping=True, loss_reduction="sum"
    )
    optimiser = DPOptimizerFastGradientClipping(
        torch.optim.SGD(trained(model).values(), lr=0.0),
        noise_multiplier=0.0,
        max_grad_norm=CLIP,
        expected_batch_size=1,
        loss_reduction="sum",
    )

    class Each(nn.CrossEntropyLoss):
        def forward(self, outputs: Tensor, targets: Tensor) -> Tensor:
            found = super().forward(outputs, targets)
            return found.flatten(1).mean(1) if found.dim() > 1 else found

    private: Any = DPLossFastGradientClipping(
        wrapped, optimiser, Each(reduction="sum"), loss_reduction="sum"
    )

    def step() -> Tensor:
        optimiser.zero_grad()
        private(wrapped(inputs), targets).backward()
        found: Any = [each.grad for each in trained(model).values()]
        return torch.cat([each.flatten() for each in found])

    return step


def plain(work: str, where: Where = HERE) -> Step:
    """One gradient of the batch, not private."""
    model, inputs, targets = made(work, where)
    parameters = [*trained(model).values()]

    def step() -> Tensor:
        found = torch.autograd.grad(loss(model(inputs), targets), parameters)
        return torch.cat([each.flatten() for each in found])

    return step


WAYS = {
    "ours": ours,
    "vmap": mapped,
    "Opacus, ghost": ghost,
    "Opacus, hooks": hooks,
    "not private": plain,
}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("works", nargs="*", choices=[*WORKS, []])
    parser.add_argument("--one", nargs="+")
    given = parser.parse_args()
    if given.one:
        answer(
            {
                way: lambda work, step=step: told(step(work))
                for way, step in WAYS.items()
            },
            given.one,
        )
        return
    for work in given.works or WORKS:
        print(work)
        rows = {way: measured(way, work) for way in WAYS}
        base = rows["ours"]
        for way, row in rows.items():
            show(f"  {way}", row, base["ms"] if base else 0.0)
            if way != "not private" and row and base:
                apart = max(
                    abs(row[each] - base[each]) / base["norm"]
                    for each in ("norm", "along")
                )
                assert apart < 1e-3, (work, way, apart)


if __name__ == "__main__":
    main()
