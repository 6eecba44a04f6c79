"""trainers.gradients.bfloat16: what bfloat16 may change, and what clips."""

import json
import math

import pytest
import torch
from torch import nn

from privaudit.cli import FINE, main
from tests.trainers.problems import random_data
from trainers.data import PrivateData
from trainers.gradients.bfloat16 import exact_products
from trainers.gradients.bookkeeping import BookKeeping
from trainers.gradients.choose import differentiator
from trainers.gradients.clip_weights import ClipTo
from trainers.gradients.clipping import summation
from trainers.models import cross_entropy, initial_parameters, make_model
from trainers.numerics.randomness import Streams
from trainers.runs.measures import accuracy
from trainers.runs.problem import Problem
from trainers.runs.training import training_from

MODELS = {
    "softmax": (1, 8, 8),
    "small-cnn": (1, 12, 12),
    "shallow-cnn": (1, 28, 28),
    "tanh-mlp": (1, 8, 8),
    "lstm": (1, 8, 8),
    "vit": (3, 16, 16),
}


class Difference(nn.Module):
    """The difference of two positions, whose gradients cancel where they are alike."""

    def __init__(self):
        super().__init__()
        self.inside = nn.Linear(8, 6)

    def forward(self, x):  # (samples, 2, 8)
        y = self.inside(x)
        return 1e5 * (y[:, 0] - y[:, 1])


class Mean(nn.Module):
    """The mean over places of a layer without an offset."""

    def __init__(self, layer, outputs):
        super().__init__()
        self.inside, self.outside = layer, nn.Linear(outputs, 3)

    def forward(self, x):
        y = self.inside(x)
        return self.outside(y.mean((2, 3)) if y.dim() == 4 else y.mean(1))


def summed(way, at, inputs, targets, bound, mask=None):
    mask = torch.ones(inputs.shape[:2]) if mask is None else mask
    return way.weighted_sum(at, inputs, targets, ClipTo(bound, mask))


def problem(name, samples=6):
    shape = MODELS[name]
    module = make_model(name, shape, 10)
    way = differentiator(module, cross_entropy, torch.zeros(shape), precision="bf16")
    generator = torch.Generator().manual_seed(1)
    at = initial_parameters(module, generator).repeat(2, 1)
    inputs = torch.randn(2, samples, *shape, generator=generator)
    return way, at, inputs, torch.randint(0, 10, (2, samples), generator=generator)


@pytest.mark.parametrize("name", MODELS)
class TestSound:
    def test_a_record_adds_no_more_than_the_bound(self, name):
        way, at, inputs, targets = problem(name)
        for sample in range(6):
            one = (torch.arange(6) == sample).expand(2, -1)
            for bound in (1e-3, 0.0123456):
                got = summed(way, at, inputs, targets, bound, one).double().norm(dim=1)
                assert (got <= bound).all()
                assert (got >= 0.999 * bound).all()  # and hardly less

    def test_a_record_does_not_see_the_others(self, name):
        way, at, inputs, targets = problem(name)
        one = (torch.arange(6) == 2).expand(2, -1)
        before = summed(way, at, inputs, targets, 0.01, one)
        inputs[:, [0, 1, 3, 4, 5]] *= 1e3
        assert torch.equal(before, summed(way, at, inputs, targets, 0.01, one))

    def test_gradients_are_about_those_of_float32(self, name):
        way, at, inputs, targets = problem(name)
        got = summed(way, at, inputs, targets, math.inf)
        way.lower = False
        wanted = summed(way, at, inputs, targets, math.inf)
        error = (got - wanted).norm() / wanted.norm()
        assert 1e-4 < error < 0.3  # bfloat16 was used, and that is all


class TestTraps:
    """Inputs on which a bound that is taken from other roundings does not hold."""

    def test_norms_of_other_roundings_than_are_summed(self):
        """All activations are rounded up by bfloat16: their float32 norm is smaller."""
        value = 1 + 3 * 2**-9  # half way between two neighbours, to the even one above
        inputs = torch.full((1, 1, 64), value)
        module = nn.Linear(64, 3, bias=False)
        way = differentiator(module, cross_entropy, torch.zeros(64), precision="bf16")
        at, targets = torch.zeros(1, way.dims), torch.zeros(1, 1, dtype=torch.long)
        norms = []

        def weigh(found):
            norms.append(found)
            return ClipTo(1.0, torch.ones(1, 1))(found)

        got = way.weighted_sum(at, inputs, targets, weigh)
        assert got.double().norm() <= 1
        # The trap is one: the same weight on the rounded numbers is above the bound.
        back = torch.tensor([1 / 3 - 1, 1 / 3, 1 / 3]).bfloat16().double()
        rounded = torch.outer(back, inputs[0, 0].bfloat16().double())
        weight = ClipTo(1.0, torch.ones(1, 1))(norms[0]).double()
        assert (weight * rounded).norm() > 1.001

    @pytest.mark.parametrize("precision", ["float32", "bf16"])
    @pytest.mark.parametrize("apart", [1e-2, 1e-3, 1e-4, 1e-5, 0.0])
    def test_positions_that_cancel(self, precision, apart):
        """Of the Gram matrices' product nothing but rounding is left."""
        way = differentiator(
            Difference(), cross_entropy, torch.zeros(2, 8), precision=precision
        )
        at, targets = torch.zeros(1, way.dims), torch.zeros(1, 1, dtype=torch.long)
        generator = torch.Generator().manual_seed(0)
        for _ in range(50):
            first, other = torch.randn(2, 8, generator=generator)
            inputs = torch.stack([first, first + apart * other])[None, None]
            got = summed(way, at, inputs, targets, 1.0)
            assert got.double().norm() <= 1

    @pytest.mark.parametrize("size", [1e4, 1e8, 1e12])
    @pytest.mark.parametrize("name", ["linear", "convolution"])
    def test_places_that_cancel_wipe_out_no_others(self, name, size):
        """+A and -A of one record leave nothing, and took all small numbers with them.

        Its gradient is small, so that clipping lets it through, but the sum over all
        samples goes by way of A.
        """
        generator = torch.Generator().manual_seed(0)
        if name == "linear":
            shape, module = (16, 4), Mean(nn.Linear(4, 4, bias=False), 4)
            ends = [(0,), (-1,)]
        else:
            shape, module = (3, 8, 8), Mean(nn.Conv2d(3, 400, 1, bias=False), 400)
            ends = [(slice(None), 2, 2), (slice(None), -3, -3)]
        way = BookKeeping(module, cross_entropy, torch.zeros(shape))
        at = 0.3 * torch.randn(1, way.dims, generator=generator)
        inputs = torch.rand(1, 32, *shape, generator=generator)
        inputs[0, -1] = 0
        inputs[0, -1][ends[0]], inputs[0, -1][ends[1]] = size, -size
        targets, there = torch.zeros(1, 32, dtype=torch.long), torch.ones(1, 32)
        having = summed(way, at, inputs, targets, 0.01, there)
        there[0, -1] = 0
        without = summed(way, at, inputs, targets, 0.01, there)
        assert without.norm() > 0.2
        assert (having.double() - without.double()).norm() <= 0.01

    def test_equal_tokens_that_cancel(self):
        class Words(nn.Module):
            def __init__(self):
                super().__init__()
                self.table = nn.Embedding(5, 6)
                self.scales = torch.tensor([1.0, -0.5])

            def forward(self, tokens):
                return (self.table(tokens) * self.scales[:, None]).sum(1)

        example = torch.tensor([1, 1])
        way = BookKeeping(Words(), cross_entropy, example)
        at, targets = torch.zeros(1, way.dims), torch.zeros(1, 1, dtype=torch.long)
        for apart in (1e-2, 1e-3, 1e-4, 1e-5):
            way.template.scales = torch.tensor([1e5, -1e5 * (1 + apart)])
            got = summed(way, at, example[None, None], targets, 1.0)
            assert 0 < got.double().norm() <= 1

    def test_products_are_not_rounded_by_the_library(self):
        data = PrivateData.of(random_data((4, 5)))
        module = nn.Linear(4, 3).double()
        way = BookKeeping(module, cross_entropy, data.inputs[0, 0])
        batches = torch.ones(2, 6, dtype=torch.bool)
        batches[:, 4:] = False
        at = torch.zeros(2, way.dims, dtype=torch.float64)
        planned = summation(way, data, at, batch_size=4, memory_limit=1 << 30)
        try:
            for one in (
                lambda: summation(way, data, at, batch_size=4, memory_limit=1 << 30),
                lambda: planned.clipped_sum(at, batches, torch.arange(2), 1.0),
            ):
                torch.set_float32_matmul_precision("medium")
                torch.backends.cudnn.allow_tf32 = True
                torch.backends.cudnn.deterministic = False
                one()
                assert torch.get_float32_matmul_precision() == "highest"
                assert not torch.backends.cudnn.allow_tf32
                assert torch.backends.cudnn.deterministic
        finally:
            exact_products()


class TestUse:
    def test_accuracy_is_that_of_float32(self):
        values = {
            "algorithm": "dp-dsgd",
            "nodes": 3,
            "rounds": 60,
            "batch_size": 48,
            "step_size": 2.0,
        }
        training = training_from(values, where="the test")
        right = {}
        for precision in ("float32", "bf16"):
            made = Problem.of(training, precision=precision)
            models, ledger = made.train(0.5, Streams(5), runs=2)
            assert ledger == made.ledger(0.5)
            right[precision] = float(
                accuracy(made.gradients(), models, made.test).mean()
            )
        assert right["float32"] > 0.6
        assert abs(right["bf16"] - right["float32"]) < 0.03

    def test_from_the_command_line(self, capsys, tmp_path):
        command = ["train", "dp-dsgd", "--noise-multiplier", "3", "--set", "hidden=4"]
        command += ["--set", "rounds=3", "--out", str(tmp_path), "--json"]
        assert main([*command, "--precision", "bf16"]) == FINE
        assert json.loads((tmp_path / "config.json").read_text())["precision"] == "bf16"
        assert main(["show", str(tmp_path)]) == FINE
        capsys.readouterr()
        assert main(command) != FINE  # the folder is another run's
        assert "precision = bf16, not float32" in capsys.readouterr().err

    def test_unknown_precisions_and_models_are_refused(self):
        example = torch.zeros(4)
        with pytest.raises(ValueError, match="float32, bf16, got 'half'"):
            differentiator(nn.Linear(4, 3), cross_entropy, example, precision="half")
        unknown = nn.Sequential(nn.Linear(4, 3), nn.PReLU())
        with pytest.raises(ValueError, match="use float32"):
            differentiator(unknown, cross_entropy, example, precision="bf16")
