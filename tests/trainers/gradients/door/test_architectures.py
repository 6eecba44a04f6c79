"""Ordinary architectures come in by construction, with the gradients that torch has."""

from __future__ import annotations

import gc
import weakref

import pytest
import torch
from torch.nn import functional

from tests.trainers.gradients.door.architectures import CLASSES, MADE, By, head, record
from trainers.gradients import trial
from trainers.gradients.bookkeeping import BookKeeping
from trainers.gradients.choose import differentiator
from trainers.gradients.door.enter import enter
from trainers.gradients.door.traced import Bare, door_of, output_of
from trainers.gradients.per_sample import PerSample, parameter_vector, trained
from trainers.gradients.stacked.linear import StackedLinear
from trainers.gradients.stacked.tables import StackedTied
from trainers.models import cross_entropy
from trainers.models.independence import independence


def of(module, inputs, targets):
    """Each record's gradient, (records, dims), by torch alone."""
    found = []
    for row, target in zip(inputs.split(1), targets.split(1), strict=True):
        output = output_of(module(row))
        size = output.shape[1]
        loss = functional.cross_entropy(output, target % size)
        parts = torch.autograd.grad(
            loss, [*trained(module).values()], allow_unused=True, materialize_grads=True
        )
        found.append(torch.cat([part.flatten() for part in parts]))
    return torch.stack(found)


def summed_as_torch(module, inputs, targets):
    """The differentiator, whose sum of all records' gradients is torch's."""
    taken = enter(module, None, inputs[0], targets[0])
    ours = differentiator(taken.module, taken.loss, inputs[0], targets[0])
    at = parameter_vector(taken.module)[None]
    found = ours.weighted_sum(at, inputs[None], targets[None], torch.ones_like)
    torch.testing.assert_close(found[0], of(module, inputs, targets).sum(0))
    return ours


def test_there_are_a_hundred():
    assert len(MADE) >= 100


@pytest.fixture
def doubles():
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


TAKE = {  # tensors of numbers besides parameters, which might be made of records
    "tabular net with embedded bins",
    "spectral normalisation in evaluation",
    "orthogonal weights",
    "batch normalisation in evaluation",
    "batch normalisation 2d in evaluation",
    "graph convolution on a fixed graph",
    "GPT-2, tied",
    "GPT-2, tied, with dropout",
    "Llama",
}


@pytest.mark.sampled(52)
@pytest.mark.usefixtures("doubles")
@pytest.mark.parametrize("name", MADE)
def test_gradients_are_torchs(name):
    make, kind = MADE[name]
    torch.manual_seed(0)
    module = make()
    inputs, targets = record(kind, 4), torch.arange(4) % CLASSES
    taken = enter(module, None, inputs[0], targets[0])
    assert taken.why_not is None
    from_tensors = " from public tensors" if name in TAKE else ""
    assert independence(taken.module, taken.loss) == "by construction" + from_tensors
    gradients = differentiator(taken.module, taken.loss, inputs[0], targets[0])
    made = name in ("merged LoRA", "orthogonal weights")  # by products of parameters
    assert isinstance(gradients, PerSample if made else BookKeeping)
    at = parameter_vector(taken.module)[None]
    torch.testing.assert_close(at[0], parameter_vector(module))
    norms = []

    def weigh(found):
        norms.append(found)
        return torch.tensor([[1.0, 0.5, 0.25, 2.0]])

    given = at, inputs[None], targets[None], weigh, 0.0
    summed, *others = (gradients.weighted_sum(*given) for _ in range(5))
    assert all(torch.equal(each, summed) for each in others)  # unfolded meanwhile
    # With dropout there is nothing of torch's to compare with but the graph itself.
    drops = isinstance(taken.module, Bare) and door_of(taken.module).draws
    each = of(taken.module if drops else module, inputs, targets)
    expected = torch.tensor([1.0, 0.5, 0.25, 2.0]).to(each) @ each
    scale = each.norm(dim=1).max()
    assert scale > 1e-4
    torch.testing.assert_close(
        norms[0][0], each.norm(dim=1), rtol=1e-6, atol=1e-6 * float(scale)
    )
    assert (summed[0] - expected).norm() <= 1e-6 * scale
    if drops:
        module.eval()
    told = gradients.outputs(at, inputs[None])[0]
    with torch.no_grad():
        torch.testing.assert_close(
            told, output_of(module(inputs)), rtol=1e-6, atol=1e-6
        )


def _nested(x):
    whole = x.clone()
    part = whole[:, 1:]
    part[:, 0] = 2 * x[:, 1]  # which the whole has, and a later part
    part[:, 1:3].add_(x[:, :2])
    whole[:, -1] = part[:, 0] + part[:, 1]
    return whole


def _turned(x):
    whole = torch.stack([x, x], 1)
    turned = whole.transpose(1, 2)
    turned[:, 1, :] = 0
    whole.unsqueeze(1)[:, 0, 0].mul_(x)
    whole.flatten(1)[:, 3:].mul_(2)
    return whole.sum(1) + turned[:, :, 0]


def _constant(x):
    """As the mask of Swin's shifted windows."""
    mask = x.new_zeros(5)
    mask[1:3] = 1
    before = mask * 1
    mask[:-2] += 2
    rest = torch.empty_like(x)
    rest[:, :2], rest[:, 2:] = x[:, 3:], 1.0
    return x * before + mask * rest


def _possibly_a_part(x):
    whole = torch.stack([x, x], 1).transpose(1, 2)
    copies = whole.reshape(len(x), -1), whole.contiguous(), whole.float()  # not one is
    same = whole.to(whole.dtype)
    whole.mul_(3)
    copies[0].mul_(2)
    rows = torch.stack([x, 2 * x], 1)
    first = rows[:, 0]
    rows.transpose_(1, 2).narrow(1, 1, 2).zero_()
    rows[:, 3:].add_(x[:, :2, None])
    most, places = x.sort(1)
    most[:, 0].mul_(5)
    found = copies[0][:, :5] + (copies[1] + copies[2] + same)[..., 0]
    return found + first + rows[..., 1] + most + places


def _of_another_kind(x):
    given = x.float()
    given.add_(torch.arange(5.0, dtype=torch.float64)).pow_(2)
    above = x.clone()
    above.gt_(0.1)
    small = x < 0.5
    small &= x > -0.5
    return given * x + above * x + small * x


def _masked(x):
    whole = torch.stack([x, 2 * x], 1)
    whole[whole > 0.5] = 0.5
    whole[whole.sum(2) < 0] = 3
    whole[:, :, torch.arange(5) > 3] = 2
    return whole[:, 0] * whole[:, 1]


def _without_gradient(x):
    whole = x * 1
    part = whole[:, 2:]
    with torch.no_grad():
        part.mul_(3)
        after = whole.sub_(x)
        whole[:, 0] = 2
        signs = (x > 0).long()
        signs[:, 1:].add_(1)
    whole.detach()[:, 1] = 4
    whole.data[:, 2:].mul_(3)
    return whole * 1 + part.sum(1, True) + after * signs


def _diagonal(x):
    whole = x[:, None] * x[..., None]
    whole.diagonal(dim1=1, dim2=2).zero_()
    return whole.sum(1)


@pytest.mark.sampled(3)
@pytest.mark.usefixtures("doubles")
@pytest.mark.parametrize(
    "write",
    [
        *(_nested, _turned, _constant, _possibly_a_part, _of_another_kind),
        *(_masked, _without_gradient, _diagonal),
    ],
)
def test_what_is_written_in_part_is_torchs(write):
    module = By(lambda m, x: m.a(write(m.a(x)) + write(x)), a=torch.nn.Linear(5, 5))
    inputs, targets = torch.randn(4, 5), torch.arange(4)
    taken = enter(module, None, inputs[0], targets[0])
    if write is _diagonal:
        assert "aten.zero_ writes in place (" in taken.why_not
        assert "architectures.py, line" in taken.why_not
        return
    assert taken.why_not is None
    torch.testing.assert_close(taken.module(inputs), module(inputs))
    ours = PerSample(taken.module, taken.loss).gradients(
        parameter_vector(taken.module)[None], inputs[None], targets[None]
    )
    torch.testing.assert_close(ours[0], of(module, inputs, targets))


@pytest.mark.usefixtures("doubles")
def test_a_linear_function_that_no_layer_has():
    def forward(m, x):
        return m.a(x) + functional.linear(x, m.row)[:, None]

    row = torch.nn.Parameter(torch.rand(5))
    module = By(forward, a=torch.nn.Linear(5, 2), row=row)
    inputs, targets = torch.randn(4, 5), torch.arange(4) % 2
    summed_as_torch(module, inputs, targets)


@pytest.mark.usefixtures("doubles")
@pytest.mark.parametrize(("rank", "once"), [(2, True), (0, False)])
def test_weights_of_parameters_alone_are_made_once(rank, once):
    """Copies of two thin ones would have their product made for each record."""

    def forward(m, x):
        weight = m.frozen + m.up @ m.down if rank else m.a.weight * m.gain
        return m.head(functional.linear(x, weight))

    thin = {name: torch.rand(9, rank or 1) for name in ("up", "down")}
    module = By(
        forward,
        a=torch.nn.Linear(9, 9, bias=False).requires_grad_(not rank),
        up=torch.nn.Parameter(thin["up"], requires_grad=bool(rank)),
        down=torch.nn.Parameter(thin["down"].T, requires_grad=bool(rank)),
        gain=torch.nn.Parameter(torch.ones(1), requires_grad=not rank),
        head=torch.nn.Linear(9, 2),
    )
    module.register_buffer("frozen", torch.rand(9, 9))
    inputs, targets = torch.randn(4, 9), torch.arange(4) % 2
    ours = summed_as_torch(module, inputs, targets)
    assert isinstance(ours, PerSample if once else BookKeeping)


def test_sparse_tensors_are_refused_or_isolated():
    eye = torch.eye(5).to_sparse()
    module = By(lambda m, x: m.a((eye @ x.t()).t()), a=torch.nn.Linear(5, 2))
    given = torch.randn(5), torch.tensor(1)
    assert "a sparse tensor, in aten.matmul" in str(enter(module, None, *given).why_not)
    module.register_buffer("eye", eye)
    with pytest.raises(ValueError, match=r"give it as eye.to_dense\(\)"):
        enter(module, None, *given)


class Uneven(torch.nn.Module):
    """A few large gradients before millions of small ones."""

    def __init__(self):
        super().__init__()
        self.few = torch.nn.Parameter(torch.ones(64))
        self.many = torch.nn.Parameter(torch.ones(2_000_000))

    def forward(self, x):
        return x * (self.few.sum() + 3e-4 * self.many.sum())


def test_millions_of_parameters_keep_book_keeping():
    """A norm of so many in single precision would lose the small ones."""
    like = torch.ones(1)
    taken = enter(Uneven(), functional.mse_loss, like, like)
    found = differentiator(taken.module, taken.loss, like, like)
    assert isinstance(found, BookKeeping)
    assert found.tried


class Words(torch.nn.Module):
    """A table that is the last layer's weight as well, as in GPT-2 and BERT."""

    def __init__(self, rows, features, padding, biased):
        super().__init__()
        self.table = torch.nn.Embedding(rows, features, padding)
        self.inside = torch.nn.Linear(features, features)
        self.bias = torch.nn.Parameter(torch.ones(rows)) if biased else None

    def forward(self, x):
        inside = torch.tanh(self.inside(self.table(x)))
        return functional.linear(inside, self.table.weight, self.bias).transpose(1, 2)


# Written out, and by Gram matrices.
@pytest.mark.sampled(3)
@pytest.mark.usefixtures("doubles")
@pytest.mark.parametrize("rows", [11, 300])
@pytest.mark.parametrize(("padding", "biased"), [(None, False), (2, True)])
def test_a_table_that_is_tied(rows, padding, biased):
    torch.manual_seed(0)
    module = Words(rows, 40, padding, biased)
    inputs, targets = torch.randint(9, (2, 4, 5)), torch.randint(9, (2, 4, 5))
    taken = enter(module, functional.cross_entropy, inputs[0, 0], targets[0, 0])
    ours = differentiator(taken.module, taken.loss, inputs[0, 0], targets[0, 0])
    assert isinstance(ours, BookKeeping)
    assert [type(each) for each in ours.layers] == [StackedTied, StackedLinear]
    at = parameter_vector(taken.module) * torch.tensor([[1.0], [1.1]])
    seen, weights = [], torch.rand(2, 4)
    summed = ours.weighted_sum(
        at, inputs, targets, lambda norms: (seen.append(norms), weights)[1], 0.0
    )
    each = PerSample(taken.module, taken.loss).gradients(at, inputs, targets)
    torch.testing.assert_close(seen[0], each.norm(dim=2))
    torch.testing.assert_close(summed, (weights[:, :, None] * each).sum(1))


def test_nothing_of_a_trial_stays(monkeypatch):
    """Neither its models nor what they kept, as a circle of the graph's would."""
    seen = []

    def samples(*given):
        found = drawn(*given)
        seen.extend(map(weakref.ref, found))
        return found

    drawn = trial._samples
    monkeypatch.setattr(trial, "_samples", samples)
    module = torch.nn.Sequential(torch.nn.Linear(6, 4), torch.nn.Tanh(), head(4))
    made = BookKeeping(module, cross_entropy, torch.ones(6))
    gc.collect()
    assert made.tried
    assert seen
    assert [one() for one in seen] == [None] * len(seen)


def test_frozen_layers_keep_nothing():
    """Layers before the trained one take no room for a record, and no gradients."""

    def kept(*frozen):
        head = torch.nn.Linear(6, 3)
        layers = [layer.requires_grad_(False) for layer in frozen]
        module = By(lambda m, x: m.b(m.a(x)), a=torch.nn.Sequential(*layers), b=head)
        taken = enter(module, None, torch.ones(6), torch.tensor(0))
        found = differentiator(taken.module, taken.loss, torch.ones(6))
        assert found.dims == 21
        return found.values_per_sample

    wide = torch.nn.Linear(6, 500), torch.nn.Tanh(), torch.nn.Linear(500, 6)
    assert kept(*wide) == kept(torch.nn.Tanh())
