"""trainers.bookkeeping against trainers.per_sample, and that against a plain loop."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from trainers.bookkeeping import BookKeeping, UnknownLayerError, differentiator
from trainers.models import cross_entropy, small_cnn
from trainers.per_sample import PerSample, check_module


class Residual(nn.Module):
    """Functional code between the layers, and a branch."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(6, 6), nn.Linear(6, 3, bias=False)

    def forward(self, x):
        return self.second(torch.tanh(self.first(x)) + x)


class Sequence(nn.Module):
    """A linear layer applied at each of several positions."""

    def __init__(self):
        super().__init__()
        self.each, self.last = nn.Linear(4, 5), nn.Linear(5, 3)

    def forward(self, x):
        return self.last(torch.relu(self.each(x)).mean(1))


class Twice(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(3, 3)

    def forward(self, x):
        return self.layer(torch.tanh(self.layer(x)))


class Bare(nn.Module):
    """A parameter outside any layer."""

    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(3))

    def forward(self, x):
        return x * self.scale


class Centred(nn.Module):
    """Mixes the samples of a batch: a sample's gradient is not its own."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(3, 3)

    def forward(self, x):
        return self.layer(x - x.mean(0))


KNOWN = {
    "linear": (nn.Linear(5, 3), (5,)),
    "cnn": (small_cnn(size=8, classes=3, hidden=5), (1, 8, 8)),
    "residual": (Residual(), (6,)),
    "sequence": (Sequence(), (7, 4)),
    "padded": (
        nn.Sequential(
            nn.Conv2d(2, 4, 3, padding=1, stride=2),
            nn.ReLU(),
            nn.Conv2d(4, 3, (2, 1), bias=False),
            nn.Flatten(),
            nn.Linear(3 * 2 * 3, 3),
        ),
        (2, 6, 6),
    ),
    "dilated": (
        nn.Sequential(nn.Conv2d(1, 2, 2, dilation=2), nn.Flatten(), nn.Linear(32, 3)),
        (1, 6, 6),
    ),
    # Many channels on few places: the norm by Gram matrices.
    "wide": (
        nn.Sequential(nn.Conv2d(8, 16, 2), nn.Flatten(), nn.Linear(16 * 4, 3)),
        (8, 3, 3),
    ),
}
UNKNOWN = {
    "twice": (Twice(), (3,)),
    "bare": (Bare(), (3,)),
    "centred": (Centred(), (3,)),
    "norm": (nn.Sequential(nn.Linear(4, 4), nn.GroupNorm(2, 4), nn.Linear(4, 3)), (4,)),
    "grouped": (
        nn.Sequential(nn.Conv2d(2, 2, 2, groups=2), nn.Flatten(), nn.Linear(8, 3)),
        (2, 3, 3),
    ),
}


def draw(module, shape, replicas, samples, seed, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    dims = sum(p.numel() for p in module.parameters())

    def normal(*size):
        return torch.randn(size, generator=generator, dtype=dtype)

    return (
        0.5 * normal(replicas, dims),
        normal(replicas, samples, *shape),
        torch.randint(0, 3, (replicas, samples), generator=generator),
    )


def clipped(norms):
    return 1 / norms.clamp_min(0.7)


class TestSound:
    @settings(max_examples=20)
    @given(st.integers(1, 3), st.integers(1, 5), st.integers(0, 10**6))
    @pytest.mark.parametrize("name", KNOWN)
    def test_equals_the_reference(self, name, replicas, samples, seed):
        module, shape = KNOWN[name]
        module = module.to(torch.float64)
        at, inputs, targets = draw(module, shape, replicas, samples, seed)
        fast = BookKeeping(module, cross_entropy, inputs[0, 0])
        slow = PerSample(module, cross_entropy)
        norms = {}
        sums = {
            way: way.weighted_sum(
                at,
                inputs,
                targets,
                lambda n, way=way: norms.setdefault(way, clipped(n)),
            )
            for way in (fast, slow)
        }
        torch.testing.assert_close(norms[fast], norms[slow], rtol=1e-9, atol=1e-12)
        torch.testing.assert_close(sums[fast], sums[slow], rtol=1e-9, atol=1e-12)
        torch.testing.assert_close(fast.outputs(at, inputs), slow.outputs(at, inputs))

    @pytest.mark.parametrize("name", KNOWN)
    def test_single_precision(self, name):
        module, shape = KNOWN[name]
        at, inputs, targets = draw(module, shape, 3, 6, 1)
        exact = PerSample(module.double(), cross_entropy)
        wanted = exact.weighted_sum(at, inputs, targets, clipped)
        module = module.float()
        at, inputs = at.float(), inputs.float()
        fast = BookKeeping(module, cross_entropy, inputs[0, 0])
        got = fast.weighted_sum(at, inputs, targets, clipped)
        error = (got.double() - wanted).norm() / wanted.norm()
        assert error < 1e-5

    @pytest.mark.parametrize("name", ["cnn", "residual"])
    def test_the_reference_equals_a_plain_loop(self, name):
        module, shape = KNOWN[name]
        module = module.to(torch.float64)
        at, inputs, targets = draw(module, shape, 2, 3, 0)
        got = PerSample(module, cross_entropy).gradients(at, inputs, targets)
        for replica in range(2):
            nn.utils.vector_to_parameters(at[replica], module.parameters())
            for sample in range(3):
                here = (replica, slice(sample, sample + 1))
                loss = cross_entropy(module(inputs[here]), targets[here]).sum()
                parts = torch.autograd.grad(loss, list(module.parameters()))
                wanted = torch.cat([part.flatten() for part in parts])
                torch.testing.assert_close(got[replica, sample], wanted)

    @pytest.mark.parametrize("name", UNKNOWN)
    def test_other_modules_fall_back_to_the_reference(self, name):
        module, shape = UNKNOWN[name]
        with pytest.raises(UnknownLayerError):
            BookKeeping(module.float(), cross_entropy, torch.zeros(shape))
        assert isinstance(
            differentiator(module, cross_entropy, torch.zeros(shape)), PerSample
        )

    @pytest.mark.parametrize(
        ("layer", "message"),
        [
            (nn.BatchNorm1d(3), "GroupNorm"),
            (nn.BatchNorm2d(3), "GroupNorm"),
            (nn.InstanceNorm2d(3, track_running_stats=True), "track_running_stats"),
            (nn.Dropout(0.5), "p=0"),
        ],
    )
    def test_layers_that_mix_records_are_refused(self, layer, message):
        module = nn.Sequential(nn.Linear(3, 3), layer)
        for use in (
            lambda: check_module(module),
            lambda: differentiator(module, cross_entropy, torch.zeros(3)),
        ):
            with pytest.raises(ValueError, match=message):
                use()
        check_module(nn.Sequential(nn.GroupNorm(1, 3), nn.InstanceNorm2d(3)))

    def test_the_module_given_is_left_alone(self):
        module = small_cnn(size=8, classes=3, hidden=5)
        before = [p.clone() for p in module.parameters()]
        kinds = [type(layer) for layer in module.modules()]
        at, inputs, targets = draw(module, (1, 8, 8), 2, 3, 0, torch.float32)
        for way in (
            BookKeeping(module, cross_entropy, inputs[0, 0]),
            PerSample(module, cross_entropy),
        ):
            way.weighted_sum(at, inputs, targets, clipped)
        assert kinds == [type(layer) for layer in module.modules()]
        for one, other in zip(before, module.parameters(), strict=True):
            assert torch.equal(one, other)
            assert other.grad is None


def test_parameter_counts():
    def count(module):
        return sum(p.numel() for p in module.parameters())

    assert count(small_cnn(size=32, classes=10)) == 38_424
    assert count(small_cnn(size=8, classes=3, hidden=16)) == 337
    with pytest.raises(ValueError, match="too small"):
        small_cnn(size=5, classes=3)
