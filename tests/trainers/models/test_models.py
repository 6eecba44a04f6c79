"""Contract of trainers.models and trainers.models.layers."""

import sys
import types

import pytest
import torch
from torch import nn
from torch.nn import functional

from trainers.gradients.bookkeeping import BookKeeping
from trainers.gradients.per_sample import PerSample
from trainers.models import (
    MODELS,
    cross_entropy,
    hollow_out,
    initial_parameters,
    make_model,
    model_named,
    small_cnn,
)
from trainers.models.layers import Lstm, SelfAttention
from trainers.runs.training import Training

IMAGE, PHOTO = (1, 28, 28), (3, 32, 32)
COUNTS = [
    ("logistic", (54,), 2, 55),
    ("softmax", IMAGE, 10, 7_850),
    ("one-vs-all", (50,), 10, 500),
    ("small-cnn", (1, 32, 32), 10, 38_424),
    ("small-cnn", IMAGE, 10, 28_440),
    ("shallow-cnn", IMAGE, 10, 26_010),
    ("tanh-mlp", IMAGE, 10, 7_850 + 8_624 + 7_850),
    ("resnet9", PHOTO, 100, 7_802_724),
    ("resnet9", PHOTO, 10, 7_756_554),
    ("resnet18", PHOTO, 10, 11_181_642),
    ("vit", PHOTO, 10, 141_898),
    ("lstm", IMAGE, 10, 24_458),
]
# The smallest input of each.
SMALL = {
    "logistic": ((5,), 2, {}),
    "softmax": ((2, 3), 3, {}),
    "one-vs-all": ((5,), 3, {}),
    "small-cnn": ((1, 8, 8), 3, {"hidden": 5}),
    "shallow-cnn": ((2, 16, 16), 3, {"filters": 4, "hidden": 5}),
    "tanh-mlp": ((6,), 3, {"hidden": 4}),
    "resnet9": ((2, 8, 8), 3, {}),
    "resnet18": ((1, 16, 16), 3, {}),
    "vit": ((1, 8, 8), 3, {"features": 8, "heads": 2, "depth": 2}),
    "lstm": ((1, 4, 3), 3, {"hidden": 5}),
}


def count(module):
    return sum(p.numel() for p in module.parameters())


class TestSound:
    @pytest.mark.parametrize(("name", "shape", "classes", "wanted"), COUNTS)
    def test_parameters_and_outputs(self, name, shape, classes, wanted):
        module = make_model(name, shape, classes)
        assert count(module) == wanted
        assert module(torch.zeros(2, *shape)).shape == (2, classes)

    def test_the_parts_that_are_shared(self):
        mlp = make_model("tanh-mlp", IMAGE, 10)
        assert [n for n in map(count, mlp) if n] == [7_850, 8_624, 7_850]
        resnet = make_model("resnet18", PHOTO, 10)
        assert count(resnet[:2]) == 9_536
        assert count(resnet[:6]) == 157_504

    @pytest.mark.sampled(20)
    @pytest.mark.parametrize("name", MODELS)
    def test_every_model_is_clipped_by_book_keeping(self, name):
        shape, classes, options = SMALL[name]
        module = make_model(name, shape, classes, **options).double()
        generator = torch.Generator().manual_seed(3)
        start = initial_parameters(module, generator)
        large = len(start) > 10**6
        replicas, samples = (1, 2) if large else (2, 4)
        inputs = torch.randn(
            replicas, samples, *shape, generator=generator, dtype=torch.float64
        )
        targets = torch.arange(replicas * samples).view(replicas, -1) % classes
        at = start.repeat(replicas, 1) * torch.arange(1, replicas + 1)[:, None]
        fast = BookKeeping(module, cross_entropy, inputs[0, 0])
        slow = PerSample(module, cross_entropy)
        assert fast.tried

        def clipped(norms):
            return 1 / norms.clamp_min(0.5 * norms.mean())

        wanted = torch.zeros_like(at)
        norms = torch.empty(replicas, samples, dtype=torch.float64)
        for turn in ("norms", "sums"):
            for replica in range(replicas):
                for sample in range(samples):
                    here = (replica, sample)
                    one = slow.gradient(at[replica], inputs[here], targets[here])
                    if turn == "norms":
                        norms[here] = one.norm()
                    else:
                        wanted[replica] += clipped(norms)[here] * one
        got = fast.weighted_sum(at, inputs, targets, clipped, 0.0)
        torch.testing.assert_close(got, wanted, rtol=1e-9, atol=1e-11)

    def test_a_weight_of_two_layers_is_drawn_once(self):
        module = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
        module[1].weight = module[0].weight
        start = initial_parameters(module, torch.Generator().manual_seed(1))
        assert len(start) == PerSample(module, cross_entropy).dims == 9 + 3 + 3

    @pytest.mark.parametrize("name", MODELS)
    def test_starts(self, name):
        shape, classes, options = SMALL[name]
        module = make_model(name, shape, classes, **options)
        one, other = (
            initial_parameters(module, torch.Generator().manual_seed(1))
            for _ in range(2)
        )
        assert torch.equal(one, other)
        hollow_out(module)  # nothing but memory is lost
        other = initial_parameters(module, torch.Generator().manual_seed(1))
        assert torch.equal(one, other)
        held = sum(each.untyped_storage().nbytes() for each in module.parameters())
        assert held < one.nbytes
        nn.utils.vector_to_parameters(one, module.parameters())
        inputs = torch.rand(4, *shape, generator=torch.Generator().manual_seed(0))
        outputs = module(inputs)
        assert outputs.isfinite().all()
        assert outputs.abs().max() < 10

    def test_attention_is_that_of_torch(self):
        ours, theirs = (
            SelfAttention(8, 2),
            nn.MultiheadAttention(8, 2, batch_first=True),
        )
        with torch.no_grad():
            theirs.in_proj_weight.copy_(ours.inside.weight)
            theirs.in_proj_bias.copy_(ours.inside.bias)
            theirs.out_proj.weight.copy_(ours.outside.weight)
            theirs.out_proj.bias.copy_(ours.outside.bias)
        x = torch.randn(3, 5, 8, generator=torch.Generator().manual_seed(0))
        torch.testing.assert_close(ours(x), theirs(x, x, x)[0])

    def test_lstm_is_that_of_torch(self):
        ours, theirs = Lstm(3, 4), nn.LSTM(3, 4, batch_first=True)
        with torch.no_grad():
            theirs.weight_ih_l0.copy_(ours.inside.weight)
            theirs.weight_hh_l0.copy_(ours.recurrent.weight)
            theirs.bias_ih_l0.copy_(ours.inside.bias)
            theirs.bias_hh_l0.zero_()
        x = torch.randn(2, 6, 3, generator=torch.Generator().manual_seed(0))
        torch.testing.assert_close(ours(x), theirs(x)[0])

    def test_tokens(self):
        module = make_model("lstm", (6,), 3, vocabulary=9, hidden=4)
        assert count(module) == 9 * 4 + 4 * 16 + 16 + 4 * 16 + 4 * 3 + 3
        assert module(torch.randint(0, 9, (2, 6))).shape == (2, 3)


def own(input_shape, classes, hidden=0):
    return nn.Sequential(nn.Flatten(), nn.Linear(input_shape[0], classes))


@pytest.fixture
def mine(monkeypatch):
    module = types.ModuleType("a_users_models")
    module.good = own
    module.no_module = lambda input_shape, classes: 3
    module.no_keywords = lambda: nn.Linear(2, 2)
    module.no_parameters = lambda input_shape, classes: nn.Flatten()
    module.other_classes = lambda input_shape, classes: nn.Linear(3, classes + 1)
    module.other_inputs = lambda input_shape, classes: nn.Linear(4, classes)
    monkeypatch.setitem(sys.modules, module.__name__, module)
    return module.__name__


class TestNames:
    def test_options_stand_behind_the_name(self):
        assert model_named("vit:depth=2,features=32") == (
            "vit",
            {"depth": 2, "features": 32},
        )
        assert model_named("mine:make:width=3") == ("mine:make", {"width": 3})
        assert model_named("mine:make") == ("mine:make", {})
        written = make_model("tanh-mlp:hidden=4", (6,), 3)
        assert count(written) == count(make_model("tanh-mlp", (6,), 3, hidden=4))

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("vit:width=3", "no option width; it has: patch, features"),
            ("vit:depth=0", "depth must be a whole number >= 1, got '0'"),
            ("vit:depth=2.5", "depth must be a whole number >= 1, got '2.5'"),
            ("vit:depth", "cannot import vit"),
            ("vot:depth=2", "did you mean vit"),
            ("vit:=2", "vit has no option ;"),
        ],
    )
    def test_errors_are_sentences(self, text, message):
        with pytest.raises(ValueError, match=message):
            make_model(text, (1, 8, 8), 3)

    def test_of_a_training(self):
        def of(**more):
            return Training(algorithm="dp-dsgd", **more).module((1, 28, 28))

        assert count(of()) == count(of(model="small-cnn:hidden=32"))
        assert count(of(hidden=8)) == count(of(model="small-cnn:hidden=8"))
        with pytest.raises(ValueError, match="hidden is set twice, to 8"):
            of(model="small-cnn:hidden=8", hidden=8)
        with pytest.raises(ValueError, match="softmax has no option hidden"):
            of(model="softmax", hidden=8)


class TestOwn:
    def test_a_users_model(self, mine):
        assert count(make_model(f"{mine}:good:hidden=2", (3,), 4)) == 16
        module = make_model(f"{mine}:good", (3,), 4, hidden=2)
        assert count(module) == 16

    @pytest.mark.parametrize(
        ("function", "message"),
        [
            ("missing", "has no function missing"),
            ("no_module", "must return a torch.nn.Module, got int"),
            ("no_keywords", "cannot call it with input_shape and classes"),
            ("no_parameters", "no parameters"),
            ("other_classes", r"\(2, 5\), not \(2, 4\)"),
            ("other_inputs", r"cannot take inputs of shape \(3,\)"),
        ],
    )
    def test_what_is_wrong_with_it(self, mine, function, message):
        with pytest.raises(ValueError, match=message):
            make_model(f"{mine}:{function}", (3,), 4)

    def test_a_module_that_is_not_there(self):
        with pytest.raises(ValueError, match="cannot import no_such_module_of_mine"):
            make_model("no_such_module_of_mine:f", (3,), 4)


@pytest.mark.parametrize(
    ("name", "shape", "classes", "options", "message"),
    [
        ("resnet-9", PHOTO, 10, {}, "did you mean resnet9"),
        ("nothing", PHOTO, 10, {}, "own as module:function"),
        ("a b:c", PHOTO, 10, {}, "there is no model"),
        ("vit", (54,), 10, {}, "model vit: it takes square images"),
        ("small-cnn", (1, 5, 5), 3, {}, "too small"),
        ("shallow-cnn", (1, 8, 8), 3, {}, "too small"),
        ("resnet9", (3, 4, 4), 3, {}, "too small"),
        ("resnet18", (3, 2, 2), 3, {}, "too small"),
        ("vit", (3, 30, 30), 3, {}, "do not divide"),
        ("vit", (3, 32, 32), 3, {"heads": 3}, "heads that divides"),
        ("logistic", (3,), 3, {}, "use softmax"),
        ("lstm", PHOTO, 3, {}, "one channel"),
        ("lstm", (5,), 3, {}, "one channel"),
        ("softmax", (5,), 1, {}, "at least 2 classes"),
        ("softmax", (5,), 3, {"hidden": 3}, "no option hidden; it has: none"),
        ("vit", PHOTO, 3, {"width": 3}, "it has: patch, features"),
    ],
)
def test_errors_are_sentences(name, shape, classes, options, message):
    with pytest.raises(ValueError, match=message):
        make_model(name, shape, classes, **options)


def test_small_cnn_of_other_sizes():
    assert count(small_cnn(size=8, classes=3, hidden=16)) == 337
    with pytest.raises(ValueError, match="too small"):
        small_cnn(size=5, classes=3)


class TestCrossEntropy:
    @pytest.mark.parametrize("classes", [2, 10, 16, 17])
    @pytest.mark.parametrize("samples", [1, 20, 72, 331])
    def test_is_of_each_sample_alone_to_the_bit(self, samples, classes):
        """Wherever it comes, among however many: losses and gradients."""
        generator = torch.Generator().manual_seed(samples)
        outputs = 5 * torch.randn(samples, classes, generator=generator)
        targets = torch.randint(0, classes, (samples,), generator=generator)

        def found(loss, rows):
            at = outputs[rows].requires_grad_()
            losses = loss(at, targets[rows])
            return losses.detach(), torch.autograd.grad(losses.sum(), at)[0]

        whole = found(cross_entropy, torch.arange(samples))
        torch.testing.assert_close(
            whole,
            found(
                lambda at, of: functional.cross_entropy(at, of, reduction="none"),
                torch.arange(samples),
            ),
        )
        for count in (samples, 1 + samples // 2, 1):
            rows = torch.randperm(samples, generator=generator)[:count]
            for one, other in zip(found(cross_entropy, rows), whole, strict=True):
                assert torch.equal(one, other[rows])
