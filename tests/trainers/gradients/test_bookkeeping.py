"""bookkeeping against per_sample, and that against a plain loop."""

import warnings

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional

from tests.tiers import examples
from trainers.gradients.bookkeeping import BookKeeping
from trainers.gradients.choose import differentiator
from trainers.gradients.per_sample import PerSample, check_module
from trainers.gradients.stacked import stacked
from trainers.gradients.stacked.layer import UnknownLayerError
from trainers.models import cross_entropy, small_cnn
from trainers.models.layers import Lstm, Offset, SelfAttention


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


class Recurrent(nn.Module):
    """A layer used once a step, and a bias seen in every use."""

    def __init__(self):
        super().__init__()
        self.state, self.last = nn.Linear(5, 3), nn.Linear(3, 3)

    def forward(self, x):
        h = x.new_zeros(len(x), 3)
        for step in x.unbind(1):
            h = torch.tanh(self.state(torch.cat([step, h], 1)))
        return self.last(h)


class Repeated(nn.Module):
    """Convolution and norm used twice, at different sizes."""

    def __init__(self, layer, norm):
        super().__init__()
        self.layer, self.norm, self.last = layer, norm, nn.Linear(4, 3)

    def forward(self, x):
        x = torch.tanh(self.norm(self.layer(x)))
        x = self.norm(self.layer(x))
        return self.last(x.flatten(2).mean(2))


class Partial(nn.Module):
    """One layer is never used, one does not reach the loss."""

    def __init__(self):
        super().__init__()
        self.used, self.idle, self.lost = (nn.Linear(4, 3) for _ in range(3))

    def forward(self, x):
        self.lost(x)
        return self.used(x)


class Words(nn.Module):
    """One embedding in two places, with padding."""

    def __init__(self, padding):
        super().__init__()
        self.table = nn.Embedding(5, 4, padding_idx=padding)
        self.last = nn.Linear(4, 3)

    def forward(self, x):
        return self.last(torch.tanh(self.table(x).sum(1)) + self.table(x[:, 0]))


class Positions(nn.Module):
    def __init__(self):
        super().__init__()
        self.offset, self.attend = Offset(6, 8), SelfAttention(8, 2)
        self.norm, self.last = nn.LayerNorm(8), nn.Linear(8, 3)

    def forward(self, x):
        x = self.offset(x)
        return self.last(self.norm(x + self.attend(x)).mean(1))


class States(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm, self.last = Lstm(3, 4), nn.Linear(4, 3)

    def forward(self, x):
        return self.last(self.lstm(x)[:, -1])


def after(shape, layer):
    """``layer`` on samples of ``shape``, and classes from all that it gives."""
    with warnings.catch_warnings():  # once a process: even kernels padded to "same"
        warnings.simplefilter("ignore")
        values = layer(torch.zeros(2, *shape)).flatten(1).shape[1]
    return nn.Sequential(layer, nn.Tanh(), nn.Flatten(), nn.Linear(values, 3)), shape


class Channels(nn.Module):
    """A linear layer over the channels of every place."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Conv1d(2, 4, 3), nn.Linear(4, 4)
        self.last = nn.Linear(4, 3)

    def forward(self, x):
        return self.last(self.second(self.first(x).mT).mT.mean(2))


class Bare(nn.Module):
    """A parameter outside any layer."""

    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(3))

    def forward(self, x):
        return x * self.scale


class Fused(nn.Module):
    def __init__(self):
        super().__init__()
        self.attend, self.last = nn.MultiheadAttention(4, 2), nn.Linear(4, 3)

    def forward(self, x):
        x = x.transpose(0, 1)
        return self.last(self.attend(x, x, x, need_weights=False)[0].mean(0))


class Tied(nn.Module):
    """Two layers with one weight."""

    def __init__(self):
        super().__init__()
        self.one, self.other = nn.Linear(3, 3), nn.Linear(3, 3)
        self.other.weight = self.one.weight

    def forward(self, x):
        return self.other(torch.tanh(self.one(x)))


class Folded(nn.Module):
    """Positions in the first dimension, beside the samples."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(3, 3)

    def forward(self, x):
        return self.layer(x.flatten(0, 1)).view(x.shape).mean(1)


class Scaled(nn.Linear):
    """A subclass may compute something else."""

    def forward(self, x):
        return 2 * super().forward(x)


class Centred(nn.Module):
    """Mixes the samples of a batch: a sample's gradient is not its own."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(3, 3)

    def forward(self, x):
        return self.layer(x - x.mean(0))


class Large(nn.Module):
    """Too large to be compared with the reference, with any code inside."""

    def __init__(self, inside):
        super().__init__()
        self.first, self.last = nn.Conv2d(1, 64, 5, padding=2), nn.Linear(64, 3)
        self.second = nn.Conv2d(64, 64, 5, padding=2)
        self.inside = inside

    def forward(self, x):
        return self.last(self.second(self.inside(self.first(x))).mean((2, 3)))


def hooked():
    layer = nn.Linear(4, 3)
    layer.register_forward_pre_hook(lambda layer, given: (2 * given[0],))
    return nn.Sequential(layer)


def with_another_parameter():
    layer = nn.Linear(4, 3)
    layer.register_parameter("scale", nn.Parameter(torch.ones(1)))
    return nn.Sequential(layer)


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
    # Large images, whose patches are taken in strips.
    "strips": after(
        (2, 25, 13),
        nn.Conv2d(2, 3, (5, 3), padding=(2, 1), stride=(2, 1), dilation=(1, 2)),
    ),
    "strips of a dilated kernel": after(
        (1, 41, 23), nn.Conv2d(1, 2, (3, 2), stride=(3, 2), dilation=(2, 1), bias=False)
    ),
    "strips and patches": (
        Repeated(nn.Conv2d(4, 4, 3, padding="same"), nn.GroupNorm(2, 4)),
        (4, 12, 11),
    ),
    # Many channels on few places: the norm by Gram matrices.
    "wide": (
        nn.Sequential(nn.Conv2d(8, 16, 2), nn.Flatten(), nn.Linear(16 * 4, 3)),
        (8, 3, 3),
    ),
    "one dimension": after((3, 9), nn.Conv1d(3, 4, 3, padding=1, stride=2)),
    "one dimension, large": after((16, 5), nn.Conv1d(16, 24, 3, dilation=2)),
    "grouped": after((4, 5, 5), nn.Conv2d(4, 6, 3, groups=2)),
    "depthwise": after((6, 4, 4), nn.Conv2d(6, 6, 2, groups=6, bias=False)),
    "same": after((2, 5, 4), nn.Conv2d(2, 3, (2, 3), padding="same")),
    "valid": after((2, 5, 4), nn.Conv2d(2, 3, 2, padding="valid")),
    "valid in one dimension": after((3, 9), nn.Conv1d(3, 4, 3, padding="valid")),
    "circular": after(
        (2, 5, 4), nn.Conv2d(2, 3, 3, padding=1, padding_mode="circular")
    ),
    # Kernels too large to be copied for each sample; norms by both ways.
    "large": after((8, 4, 4), nn.Conv2d(8, 16, 3, padding=1, stride=2)),
    "large on many places": after((8, 30, 30), nn.Conv2d(8, 16, 3, dilation=2)),
    "large and same": after((12, 4, 4), nn.Conv2d(12, 24, 2, padding="same")),
    "group norm": after((4, 3, 3), nn.GroupNorm(2, 4)),
    "group norm of vectors": after((4,), nn.GroupNorm(2, 4)),
    "no scale": after((4, 3), nn.GroupNorm(2, 4, affine=False)),
    "layer norm": after((3, 4), nn.LayerNorm(4)),
    "layer norm of all": after((2, 3, 4), nn.LayerNorm((3, 4), bias=False)),
    "in place": (nn.Sequential(nn.Linear(4, 3), nn.ReLU(inplace=True)), (4,)),
    "twice": (Twice(), (3,)),
    "recurrent": (Recurrent(), (6, 2)),
    "repeated": (Repeated(nn.Conv2d(4, 4, 2), nn.GroupNorm(2, 4)), (4, 4, 4)),
    "repeated, large": (
        Repeated(nn.Conv1d(4, 4, 80, padding=39), nn.GroupNorm(1, 4)),
        (4, 9),
    ),
    "partial": (Partial(), (4,)),
    "words": (Words(None), (7,)),
    "padded words": (Words(2), (7,)),
    "channels": (Channels(), (2, 9)),
    "attention": (Positions(), (6, 8)),
    "lstm": (States(), (5, 3)),
}
UNKNOWN = {
    "bare": (Bare(), (3,)),
    "centred": (Centred(), (3,)),
    "instance norm": after((2, 3, 3), nn.InstanceNorm2d(2, affine=True)),
    "transposed": after((2, 3, 3), nn.ConvTranspose2d(2, 2, 2)),
    "fused attention": (Fused(), (3, 4)),
    "tied": (Tied(), (3,)),
    "folded": (Folded(), (4, 3)),
    "a subclass": (nn.Sequential(Scaled(4, 3)), (4,)),
    "a hook": (hooked(), (4,)),
    "another parameter": (with_another_parameter(), (4,)),
}


def draw(module, shape, replicas, samples, seed, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    dims = sum(p.numel() for p in module.parameters())

    def normal(*size):
        return torch.randn(size, generator=generator, dtype=dtype)

    if any(isinstance(layer, nn.Embedding) for layer in module.modules()):
        inputs = torch.randint(0, 5, (replicas, samples, *shape), generator=generator)
    else:
        inputs = normal(replicas, samples, *shape)
    return (
        0.5 * normal(replicas, dims),
        inputs,
        torch.randint(0, 3, (replicas, samples), generator=generator),
    )


def clipped(norms):
    return 1 / norms.clamp_min(0.7)


class TestSound:
    @pytest.mark.sampled(5)
    @examples(20)
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
                0.0,
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
        at = at.float()
        inputs = inputs.float() if inputs.is_floating_point() else inputs
        fast = BookKeeping(module, cross_entropy, inputs[0, 0])
        got = fast.weighted_sum(at, inputs, targets, clipped)
        error = (got.double() - wanted).norm() / wanted.norm()
        assert error < 5e-4  # norms of sums over places are taken a little too large

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

    @pytest.mark.parametrize("padding", [None, 2])
    def test_tokens_that_count_from_the_end(self, padding):
        module = Words(padding).double()
        at, inputs, targets = draw(module, (7,), 3, 4, 0)
        way = BookKeeping(module, cross_entropy, inputs[0, 0])
        wanted = way.weighted_sum(at, inputs, targets, clipped)
        inputs = torch.where(inputs % 2 > 0, inputs - 5, inputs)
        got = way.weighted_sum(at, inputs, targets, clipped)
        torch.testing.assert_close(got, wanted)

    @pytest.mark.sampled(4)
    @pytest.mark.parametrize(
        "inside",
        [
            lambda x: x - x.mean(0),
            lambda x: functional.batch_norm(x, None, None, training=True),
            lambda x: functional.dropout(x, 0.5),
        ],
    )
    def test_large_modules_that_mix_records_are_not_known(self, inside):
        example = torch.rand(1, 96, 96, generator=torch.Generator().manual_seed(0))
        assert not BookKeeping(Large(torch.relu), cross_entropy, example).tried
        with pytest.raises(UnknownLayerError, match="independent"):
            BookKeeping(Large(inside), cross_entropy, example)

    @pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
    def test_parameters_of_few_digits_are_refused(self, dtype):
        module = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3).to(dtype))
        with pytest.raises(ValueError, match="few digits show what noise"):
            differentiator(module, cross_entropy, torch.zeros(3))
        with pytest.raises(ValueError, match="few digits show what noise"):
            PerSample(module, cross_entropy)

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


@pytest.mark.parametrize("kind", ["forward_hook", "forward_pre_hook"])
def test_a_layer_with_hooks_of_either_kind_is_not_known(kind):
    layer = nn.Linear(2, 3)
    assert stacked(layer) is not None
    getattr(layer, f"register_{kind}")(lambda *_: None)
    assert stacked(layer) is None
