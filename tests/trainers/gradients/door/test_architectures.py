"""Ordinary architectures come in by construction, with the gradients that torch has."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional

from tests.trainers.gradients.door.architectures import CLASSES, MADE, record
from trainers.gradients.bookkeeping import BookKeeping
from trainers.gradients.choose import differentiator
from trainers.gradients.door.enter import enter
from trainers.gradients.door.traced import Bare, door_of, output_of
from trainers.gradients.per_sample import parameter_vector, trained
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
    return torch.stack(found).double()


def test_there_are_a_hundred():
    assert len(MADE) >= 100


@pytest.mark.sampled(26)
@pytest.mark.parametrize("name", MADE)
def test_gradients_are_torchs(name):
    make, kind = MADE[name]
    torch.manual_seed(0)
    module = make()
    inputs, targets = record(kind, 4), torch.arange(4) % CLASSES
    taken = enter(module, None, inputs[0], targets[0])
    assert taken.why_not is None
    assert independence(taken.module, taken.loss) == "by construction"
    gradients = differentiator(taken.module, taken.loss, inputs[0], targets[0])
    assert isinstance(gradients, BookKeeping)
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
    expected = torch.tensor([1.0, 0.5, 0.25, 2.0]).double() @ each
    scale = each.norm(dim=1).max()
    assert scale > 1e-4
    torch.testing.assert_close(
        norms[0][0], each.norm(dim=1), rtol=1e-3, atol=1e-4 * float(scale)
    )
    assert (summed[0] - expected).norm() <= 1e-3 * scale
    if drops:
        module.eval()
    told = gradients.outputs(at, inputs[None])[0]
    with torch.no_grad():
        torch.testing.assert_close(
            told, output_of(module(inputs)), rtol=1e-3, atol=1e-4
        )


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
