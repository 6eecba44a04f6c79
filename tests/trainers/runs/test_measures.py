"""Contract of trainers.runs.measures."""

import dataclasses

import pytest
import torch

from trainers.data import Dataset
from trainers.runs.measures import (
    CURVE_RECORDS,
    CurveRecorder,
    accuracy,
    consensus_distance,
)
from trainers.runs.problem import Problem
from trainers.runs.training import Training

TRAINING = Training(
    algorithm="dsgd",
    nodes=3,
    train=60,
    model="softmax",
    rounds=40,
    batch_size=5.0,
    step_size=0.1,
)


@pytest.fixture
def problem():
    """With 5 000 test records, which is more than a curve looks at."""
    of = Problem.of(TRAINING)
    generator = torch.Generator().manual_seed(0)
    inputs = torch.rand(5000, 1, 8, 8, generator=generator)
    targets = torch.randint(0, 10, (5000,), generator=generator)
    material = dataclasses.replace(of.material, test=Dataset(inputs, targets))
    return dataclasses.replace(of, material=material)


class TestCurves:
    def test_the_last_is_of_all_test_data_and_others_of_some(self, problem):
        gradients = problem.gradients()
        models = torch.randn(2, 3, gradients.dims) * 0.1
        seen = []

        def outputs(flat, inputs):
            seen.append(inputs.shape[1])
            return type(gradients).outputs(gradients, flat, inputs)

        recorder = CurveRecorder(problem, gradients)
        gradients.outputs = outputs
        rounds, batch = problem.training.rounds, problem.training.batch_size
        for done in range(1, rounds):
            recorder(done, models)
        assert 9 <= len(recorder.points) <= 10
        assert sum(seen) <= max(1000, 0.1 * 3 * rounds * batch)
        assert max(seen) <= CURVE_RECORDS
        seen.clear()
        last = recorder(rounds, models)
        assert sum(seen) == 5000
        whole = accuracy(gradients, models, problem.test)
        assert last.accuracy == pytest.approx(float(whole.mean()))
        assert recorder.points[0].accuracy == pytest.approx(last.accuracy, abs=0.03)

    def test_equal_records_whoever_asks(self, problem):
        gradients = problem.gradients()
        models = torch.randn(1, 3, gradients.dims)
        one, other = (CurveRecorder(problem, gradients)(7, models) for _ in range(2))
        assert one == other


class TestConsensus:
    def test_of_equal_models_it_is_zero(self):
        models = torch.randn(4, 1, 9).expand(4, 5, 9)
        torch.testing.assert_close(consensus_distance(models), torch.zeros(4))

    def test_two_nodes(self):
        models = torch.tensor([[[1.0, 0.0], [-1.0, 0.0]]])
        assert consensus_distance(models).tolist() == [1.0]
