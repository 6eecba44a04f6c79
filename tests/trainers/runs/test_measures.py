"""Contract of trainers.runs.measures."""

import dataclasses

import pytest
import torch

from trainers.data import Dataset
from trainers.runs.measures import (
    CURVE_RECORDS,
    CurveRecorder,
    Looks,
    accuracy,
    consensus_distance,
)
from trainers.runs.problem import Problem
from trainers.runs.training import Training, training_from

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


def looks(test, rounds, batch, points=200, evaluate="tenth", **settings):
    values = {"algorithm": "dsgd", "nodes": 4, "model": "softmax", **settings}
    training = training_from(
        {**values, "rounds": rounds, "batch_size": batch}, where="a test"
    )
    return tuple(Looks.of(training, test, points, evaluate))


class TestLooks:
    """A tenth of what gradients are worth, three looks a record: by hand."""

    @pytest.mark.parametrize(
        ("test", "rounds", "batch", "found"),
        [
            # 19,200 looks: 9,600, and 9,600 over ten points.
            (10_000, 1000, 64, (9600, 960, 100)),
            (1000, 1000, 64, (1000, 1000, 56)),  # 18 points of 1,000 in 18,200
            (10_000, 100, 32, (500, 50, 10)),  # 960: the least of both
            (10_000, 200, 64, (1920, 192, 20)),  # 3,840
            (397, 200, 64, (397, 344, 20)),  # 3,443 left
            (397, 40, 64, (397, 50, 4)),
            (30, 40, 64, (30, 30, 2)),  # 24 points of 30 in 738
            (10_000, 3, 1, (500, 50, 1)),
        ],
    )
    def test_half_for_the_last_and_the_rest_for_the_curve(
        self, test, rounds, batch, found
    ):
        assert looks(test, rounds, batch) == found

    def test_gradients_are_what_counts_and_not_rounds(self):
        # Workers take a step each in turn; DiNNO takes several gradients in a round.
        asked = 10_000, 4000, 32
        assert looks(*asked)[0] == 10_000
        assert looks(*asked, algorithm="adpsgd", nodes=10)[0] == 1920
        assert looks(*asked, algorithm="adpsgd", nodes=4)[0] == 4800
        few = 10_000, 400, 32
        assert looks(*few)[0] == 1920
        assert looks(*few, algorithm="dinno", inner_steps=2)[0] == 3840

    @pytest.mark.parametrize("batch", [1.0, 17.5, 256.0])
    @pytest.mark.parametrize("rounds", [1, 7, 19, 199, 201, 3000])
    @pytest.mark.parametrize("test", [1, 49, 700, 100_000])
    def test_no_more_than_a_tenth_or_the_least(self, test, rounds, batch):
        last, records, every = looks(test, rounds, batch)
        assert 1 <= records <= last <= test
        assert last >= min(test, 500)
        before = (rounds - 1) // every * records
        tenth = 0.3 * rounds * batch
        assert last <= max(500, tenth / 2)
        assert before <= max(10 * 50, tenth - last)

    def test_all_is_all(self):
        assert looks(10_000, 1000, 64, evaluate="all") == (10_000, 1920, 100)
        assert looks(10_000, 10, 1, evaluate="all") == (10_000, 100, 1)


class TestTenth:
    @pytest.fixture
    def seen(self, problem, monkeypatch):
        """Inputs of each measurement, by a fresh recorder."""
        found = []

        def quality(gradients, models, test, kind):
            found.append({tuple(row) for row in test.inputs.flatten(1).tolist()})
            return torch.zeros(models.shape[:2])

        monkeypatch.setattr("trainers.runs.measures.quality", quality)
        return found

    def test_the_same_records_each_time_all_of_them_among_the_last(self, problem, seen):
        models = torch.zeros(1, 3, problem.gradients().dims)
        recorder = CurveRecorder(problem, problem.gradients(), 25, "tenth", 3)
        for done in range(1, problem.training.rounds + 1):
            recorder(done, models)
        assert recorder.test_records == 500
        assert [len(one) for one in seen] == [50] * 9 + [500]
        assert all(one == seen[0] for one in seen[:9])
        assert seen[0] < seen[-1]
        assert len(recorder.points) == 10

    def test_evenly_by_a_public_seed(self, problem, seen):
        models = torch.zeros(1, 3, problem.gradients().dims)
        for seed in (0, 0, 1):
            recorder = CurveRecorder(problem, problem.gradients(), 25, "tenth", seed)
            recorder.final(models)
        assert seen[0] == seen[1] != seen[2]
        order = [tuple(row) for row in problem.test.inputs.flatten(1).tolist()]
        places = [k for k, row in enumerate(order) if row in seen[0]]
        # The mean of 500 of 0 to 4,999 has a standard deviation below 65.
        assert abs(sum(places) / 500 - 2500) < 5 * 65

    def test_the_last_are_measured_once(self, problem, seen):
        models = torch.zeros(1, 3, problem.gradients().dims)
        recorder = CurveRecorder(problem, problem.gradients(), 25, "tenth")
        recorder(problem.training.rounds, models)
        recorder.final(models.clone())
        assert len(seen) == 1
        recorder.final(models + 1)  # others are others
        assert len(seen) == 2

    def test_equal_bits_whoever_holds_the_nodes(self, problem):
        gradients = problem.gradients()
        models = torch.randn(1, 3, gradients.dims) * 0.1

        def final(part):
            return CurveRecorder(problem, gradients, 25, "tenth").final(part)

        apart = torch.cat([final(models[:, k : k + 1]) for k in range(3)], 1)
        assert torch.equal(final(models), apart)


class TestConsensus:
    def test_of_equal_models_it_is_zero(self):
        models = torch.randn(4, 1, 9).expand(4, 5, 9)
        torch.testing.assert_close(consensus_distance(models), torch.zeros(4))

    def test_two_nodes(self):
        models = torch.tensor([[[1.0, 0.0], [-1.0, 0.0]]])
        assert consensus_distance(models).tolist() == [1.0]
