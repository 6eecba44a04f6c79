"""A record for which an operation would fail has no gradient, and stops nothing."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from trainers.gradients.choose import differentiator
from trainers.gradients.door.isolated import IsolatedLoss
from trainers.gradients.per_sample import parameter_vector
from trainers.runs.material import Material

ROWS, WIDTH = 6, 4


class Looks(nn.Module):
    """Rows of a table, or what a function makes of it and of tokens, and a layer."""

    def __init__(self, function) -> None:
        super().__init__()
        self.function = function
        self.table = nn.Parameter(torch.randn(ROWS, WIDTH))
        self.layer = nn.Linear(WIDTH, 2)

    def forward(self, x):
        rows = [self.function(self.table, row) for row in x]
        return self.layer(torch.stack(rows))


def _wide(x):
    return x[:, None].expand(-1, WIDTH)


def _written(t, x):
    t = t.clone()
    t[x] = 0.0
    return t.sum(0)


# Of a table (rows, width) and tokens (3,), to (width,).
MODELS = {
    "embedding": lambda t, x: F.embedding(x, t).sum(0),
    "embedding with padding": lambda t, x: F.embedding(x, t, padding_idx=0).sum(0),
    "embedding bag": lambda t, x: F.embedding_bag(x[None], t)[0],
    "index": lambda t, x: t[x].sum(0),
    "two indices": lambda t, x: t[x, x.clamp(0, 3)].sum() + t[0],
    "index in place": _written,
    "index_put": lambda t, x: t.index_put((x,), t[0]).sum(0),
    "index_select": lambda t, x: t.index_select(0, x).sum(0),
    "index_add": lambda t, x: t.index_add(0, x, t[:3]).mul(t).sum(0),
    "index_copy": lambda t, x: t.index_copy(0, x, 2 * t[:3]).sum(0),
    "index_fill": lambda t, x: t.index_fill(0, x, 0.0).sum(0),
    "gather": lambda t, x: t.gather(0, _wide(x)).sum(0),
    "take_along_dim": lambda t, x: t.take_along_dim(_wide(x), 0).sum(0),
    "scatter": lambda t, x: t.scatter(0, _wide(x), 2 * t[:3]).sum(0),
    "scatter_add": lambda t, x: t.scatter_add(0, _wide(x), t[:3]).mul(t).sum(0),
    "scatter_reduce": lambda t, x: (
        t.scatter_reduce(0, _wide(x), t[:3], "sum").mul(t).sum(0)
    ),
    "one-hot": lambda t, x: (F.one_hot(x, ROWS).float() @ t).sum(0),
}


def _aligned(o, t):
    steps = torch.stack([o, -o]).log_softmax(2)
    return F.ctc_loss(steps, t[:, None], [2] * len(t), [1] * len(t))


# Of outputs (samples, 2) and labels (samples,).
LOSSES = {
    "cross entropy": F.cross_entropy,
    "smoothed": lambda o, t: F.cross_entropy(o, t, label_smoothing=0.1),
    "one that passes over labels": lambda o, t: F.cross_entropy(o, t, ignore_index=-1),
    "nll": lambda o, t: F.nll_loss(o.log_softmax(1), t),
    "margins": lambda o, t: F.multi_margin_loss(o, t),
    "gathered": lambda o, t: -o.log_softmax(1).gather(1, t[:, None]).mean(),
    "indexed": lambda o, t: -o.log_softmax(1)[torch.arange(len(t)), t].mean(),
    "binary": lambda o, t: F.binary_cross_entropy(o.sigmoid(), t[:, None] * o**0),
    "Brier": lambda o, t: F.mse_loss(o.softmax(1), F.one_hot(t, 2).float()),
    "alignments": _aligned,  # of which torch's end the process
    "alignments, isolated": lambda o, t: _aligned(o, t) * (1 if t.max() > -9 else 2),
    "looks at values": lambda o, t: (
        F.cross_entropy(o, t) if int(t.max()) < 2 else exit(1)
    ),
}
VOID = [6, -7, 10**9, 2**62, -(2**62)]


def norms(model, loss, inputs, targets):
    torch.manual_seed(0)
    own = Material.own(model, [(inputs, targets)], loss=loss)
    gradients = differentiator(own.module, own.loss, *own.example)
    found = []

    def weigh(norms):
        found.append(norms[0])
        return torch.ones_like(norms)

    rows = torch.arange(len(inputs))
    batch = [part[None] for part in own.shares[0].read(rows)]
    total = gradients.weighted_sum(parameter_vector(own.module)[None], *batch, weigh)
    assert total.isfinite().all()
    return own.why_not, found[0]


@pytest.mark.sampled(24)
@pytest.mark.parametrize("name", MODELS)
def test_a_token_without_a_row(name):
    inputs = torch.tensor([[1, 2, 3], [5, 0, 4], [3, 1, 2]])
    targets = torch.tensor([0, 1, 1])
    why, alone = norms(lambda: Looks(MODELS[name]), None, inputs, targets)
    assert why is None
    assert alone.min() > 0
    for value in VOID:
        inputs[1] = torch.tensor([value, 1, 2])
        _, found = norms(lambda: Looks(MODELS[name]), None, inputs, targets)
        assert found[1] == 0
        assert found[::2].equal(alone[::2])


@pytest.mark.parametrize("value", [-5, 4])
def test_an_index_of_two_sides_fits_the_shorter(value):
    def diagonal(t, x):
        return t[x, x].sum() * t[0]

    inputs, targets = torch.tensor([[1, 2, 3], [0, -4, 3]]), torch.tensor([0, 1])
    why, alone = norms(lambda: Looks(diagonal), None, inputs, targets)
    assert why is None
    assert alone.min() > 0
    inputs[1, 2] = value
    _, found = norms(lambda: Looks(diagonal), None, inputs, targets)
    assert found[1] == 0
    assert found[0] == alone[0]


@pytest.mark.sampled(6)
@pytest.mark.parametrize("name", LOSSES)
def test_a_label_that_is_no_class(name):
    inputs = torch.randn(3, WIDTH, generator=torch.Generator().manual_seed(1))
    targets = torch.tensor([0, 1, 1])
    _, alone = norms(lambda: nn.Linear(WIDTH, 2), LOSSES[name], inputs, targets)
    assert alone.min() > 0
    slow = "alignments" in name  # to trace
    for value in VOID[2:3] if slow else (2, *VOID):
        targets[1] = value
        _, found = norms(lambda: nn.Linear(WIDTH, 2), LOSSES[name], inputs, targets)
        assert found[1] == 0
        assert found[::2].equal(alone[::2])


def test_what_may_fail_otherwise_is_not_traced():
    def divides(t, x):
        return t[(x // (x - 1)).clamp(0, 1)].sum(0)

    inputs, targets = torch.tensor([[2, 3, 4], [1, 0, 4]]), torch.tensor([0, 1])
    why, found = norms(lambda: Looks(divides), None, inputs, targets)
    assert "floor_divide fails for some records" in why
    assert "test_guards.py, line" in why
    assert found[0] > 0
    assert found[1] == 0


@pytest.mark.sampled(2)
@pytest.mark.parametrize("kind", [torch.int32, torch.int64])
def test_the_least_number_by_minus_one(kind):
    """Torch's quotient of these ends the process."""

    def divides(t, x):
        by = torch.full((3,), -1, dtype=kind)
        return t[-torch.div(x.to(kind), by, rounding_mode="trunc").long()].sum(0)

    inputs, targets = torch.tensor([[2, 3, 4], [1, 0, 4]]), torch.tensor([0, 1])
    why, alone = norms(lambda: Looks(divides), None, inputs, targets)
    assert why is None
    inputs[1, 2] = torch.iinfo(kind).min
    _, found = norms(lambda: Looks(divides), None, inputs, targets)
    assert found.tolist() == [alone[0], 0]


def test_what_would_end_the_process_fails():
    """Sparse rows of wild columns, isolated since torch has no rule for them."""

    def sparse(t, x):
        rows = torch.tensor([0, 1, 2, 3])
        table = torch.sparse_csr_tensor(rows, x, torch.ones(3), (3, 3))
        return (table @ t[:3]).sum(0)

    inputs, targets = torch.tensor([[0, 1, 2], [2, 1, 0]]), torch.tensor([0, 1])
    _, alone = norms(lambda: Looks(sparse), None, inputs, targets)
    inputs[1, 2] = 10**9
    _, found = norms(lambda: Looks(sparse), None, inputs, targets)
    assert found.tolist() == [alone[0], 0]


def test_generators_of_an_isolated_loss_are_each_records_own():
    """However many numbers the record before has drawn."""
    draws = np.random.default_rng(0)

    def loss(outputs, targets):
        return outputs.sum() * float(draws.random(int(targets) + 1).sum())

    own = IsolatedLoss(loss)
    outputs, targets = torch.randn(2, 3), torch.tensor([2, 0])
    one = own(outputs[1:], targets[1:])
    assert own(outputs, targets)[1:].equal(one)
