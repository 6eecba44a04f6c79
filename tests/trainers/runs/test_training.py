"""Settings of data, partition and model, and that they train."""

import math

import pytest
import torch

from trainers.data import Dataset, DataUnavailableError, glyphs
from trainers.gradients.per_sample import PerSample
from trainers.models import cross_entropy, make_model
from trainers.numerics.randomness import Streams
from trainers.runs.measures import accuracy
from trainers.runs.problem import Problem
from trainers.runs.training import Training, training_from

SHORT = dict(algorithm="dp-dsgd", nodes=2, train=100, rounds=2, batch_size=10.0)


@pytest.fixture
def few_glyphs(monkeypatch, tmp_path):
    monkeypatch.setattr(glyphs, "TRAIN", 200)
    monkeypatch.setattr(glyphs, "TEST", 50)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


class TestSettings:
    @pytest.mark.parametrize(
        ("settings", "message"),
        [
            ({"data": "mnists"}, "did you mean mnist"),
            ({"model": "resnet-18"}, "did you mean resnet18"),
            ({"model": "softmax", "hidden": 5}, "no option hidden"),
            ({"hidden": 0}, "hidden must be >= 1"),
            ({"partition": "uneven"}, "file:PATH"),
            ({"partition": "even", "split": 0.5}, "split is t of A"),
            ({"data": "covertype", "digits": (0, 1)}, "has 7: leave them out"),
        ],
    )
    def test_errors_are_sentences(self, settings, message):
        with pytest.raises(ValueError, match=message):
            Training(**SHORT, **settings)

    def test_a_model_that_the_data_do_not_fit(self):
        with pytest.raises(ValueError, match="model shallow-cnn: images of 8 pixels"):
            Problem.of(Training(**SHORT, model="shallow-cnn"))

    def test_labels(self):
        assert Training(**SHORT, digits=(3, 8)).labels == (3, 8)
        assert Training(**SHORT, data="cifar-100").labels == tuple(range(100))
        assert Training(**SHORT, data="covertype").labels == tuple(range(7))


class TestText:
    @pytest.mark.parametrize("text", [".3", "3.", "+.3", "1e-3", ".5e1", "3.E+0", "+2"])
    @pytest.mark.parametrize("name", ["step_size", "rho"])
    def test_numbers_are_read_as_python_reads_them(self, text, name):
        values = {"algorithm": "dp-dinno", name: text}
        found = training_from(values, where="--set")
        fields = {**found.options, "step_size": found.step_size}
        assert fields[name] == float(text)

    def test_in_lists_and_for_whole_numbers(self):
        values = {"algorithm": "sgd", "digits": ["3.", "+8"], "rounds": "2."}
        found = training_from(values, where="--set")
        assert (found.digits, found.rounds) == ((3, 8), 2)

    @pytest.mark.parametrize("text", ["-.5", ".", "1.2.3", "e3", ".3x", "0x3", "", "+"])
    def test_what_is_no_size_of_a_step(self, text):
        with pytest.raises(ValueError, match="step_size"):
            training_from({"algorithm": "sgd", "step_size": text}, where="--set")


class TestTrains:
    @pytest.mark.sampled(2)
    @pytest.mark.parametrize(
        "settings",
        [
            {},
            {"model": "softmax", "partition": "even"},
            {"model": "lstm", "hidden": 6, "partition": "dirichlet:1"},
            {"model": "logistic", "digits": (1, 7), "split": 0.5},
            {"data": "glyphs", "model": "shallow-cnn"},
            {"data": "glyphs", "model": "tanh-mlp", "partition": "even"},
        ],
    )
    def test_every_kind(self, few_glyphs, settings):
        training = Training(**SHORT, **settings)
        problem = Problem.of(training)
        assert sum(problem.sizes) == 100
        models, ledger = problem.train(1.0, Streams(0))
        assert models.isfinite().all()
        assert ledger == problem.ledger(1.0)

    def test_default_hidden_units(self):
        module = Problem.of(Training(**SHORT)).module
        assert sum(p.numel() for p in module.parameters()) == 78 + 12 * 32 + 32 + 330

    def test_data_that_are_not_to_be_had(self, monkeypatch):
        def fails(**asked):
            raise OSError("no network here")

        monkeypatch.setattr("sklearn.datasets.fetch_openml", fails)
        with pytest.raises(DataUnavailableError, match="no network here"):
            Problem.of(Training(**SHORT, data="mnist"))


def test_accuracy_does_not_depend_on_chunks(monkeypatch):
    module = make_model("softmax", (4,), 3)
    generator = torch.Generator().manual_seed(0)
    models = torch.randn(2, 3, 15, generator=generator)
    test = Dataset(
        torch.randn(37, 4, generator=generator),
        torch.randint(0, 3, (37,), generator=generator),
    )
    gradients = PerSample(module, cross_entropy)
    whole = accuracy(gradients, models, test)
    said = gradients.outputs(models.flatten(0, 1), test.inputs.expand(6, -1, -1))
    wanted = (said.argmax(-1) == test.targets).double().mean(1).view(2, 3)
    torch.testing.assert_close(whole, wanted)
    monkeypatch.setattr("trainers.runs.measures.MEMORY_LIMIT", 3000)
    assert torch.equal(accuracy(gradients, models, test), whole)
    assert math.isclose(whole.max().item(), wanted.max().item())
