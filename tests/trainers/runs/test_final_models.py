"""The model that training keeps: what was trained, readable without privaudit."""

import dataclasses
import math

import msgspec
import pytest
import safetensors
import torch
from safetensors.torch import load_file

from privaudit.files.folder import RunFolder
from privaudit.files.manifest import read
from tests.trainers.runs.test_run import done, plan
from trainers.gradients.per_sample import parameter_vector
from trainers.runs.final_models import may_be_released
from trainers.runs.measures import accuracy
from trainers.runs.outcome import TrainingResult
from trainers.runs.problem import Problem


def secret(**settings):
    return dataclasses.replace(plan("dp-dsgd", rounds=3, **settings), seed=None)


def models_of(path, problem):
    """(1, nodes, dims), by plain torch."""
    tensors = load_file(path / "model.safetensors")
    vectors = []
    for node in range(len(problem.shares)):
        problem.module.load_state_dict(
            {
                name.removeprefix(f"node{node}."): value
                for name, value in tensors.items()
                if name.startswith(f"node{node}.")
            }
        )
        vectors.append(parameter_vector(problem.module))
    return torch.stack(vectors)[None]


class TestSound:
    def test_it_is_what_the_accuracy_is_of(self, tmp_path):
        run = dataclasses.replace(plan(rounds=20), evaluate="all")
        result = done(tmp_path, run)
        problem = Problem.of(run.training)
        models = models_of(tmp_path, problem)
        right = accuracy(problem.gradients(), models, problem.test)
        assert float(right.mean()) == result.accuracy
        assert float(right.min()) == result.worst_accuracy

    def test_who_knows_the_seed_takes_the_noise_off(self, tmp_path):
        done(tmp_path / "study", plan("dp-dsgd", rounds=3))
        done(tmp_path / "secret", secret())
        for name, private in (("study", True), ("secret", False)):
            manifest = read(RunFolder(tmp_path / name))
            assert manifest is not None
            assert manifest.files["model.safetensors"].private is private
            others = {n for n, file in manifest.files.items() if not file.private}
            assert others <= {"model.safetensors"}

    def test_what_no_certificate_covers_is_private(self, tmp_path):
        run = secret()
        result = done(tmp_path, run)
        assert may_be_released(run.training, result)

        def worst(**changes):
            node = msgspec.structs.replace(result.nodes[0], **changes)
            return msgspec.structs.replace(result, nodes=(node, *result.nodes[1:]))

        for other in (
            worst(epsilon=math.inf),
            worst(standing="asymptotic"),
            worst(standing="conditional", assumes=("something",)),
            msgspec.structs.replace(result, protected=False),
        ):
            assert isinstance(other, TrainingResult)
            assert not may_be_released(run.training, other)

    @pytest.mark.parametrize("private", [False, True])
    def test_models_that_stay_home_are_private(self, tmp_path, private):
        run = plan("partpsp", rounds=3)
        names = [name for name, _ in Problem.of(run.training).module.named_parameters()]
        options = {"shared": names[0] if private else "*"}
        training = msgspec.structs.replace(run.training, options=options)
        result = msgspec.structs.replace(done(tmp_path, secret()), protected=True)
        assert may_be_released(training, result) is not private


class TestLaws:
    def test_metadata_say_which_settings(self, tmp_path):
        for name, run in (
            ("one", plan(rounds=3)),
            ("two", plan(rounds=3, seed=1)),
            ("three", plan(rounds=4)),
        ):
            done(tmp_path / name, run)
        told = []
        for name in ("one", "two", "three"):
            with safetensors.safe_open(
                tmp_path / name / "model.safetensors", framework="pt"
            ) as file:
                told.append(file.metadata())
        assert told[0] == told[1] != told[2]
        assert list(told[0]) == ["privaudit"]

    def test_equal_studies_have_equal_files(self, tmp_path):
        for name in ("one", "two"):
            done(tmp_path / name, plan(rounds=3))
        one, two = (tmp_path / name / "model.safetensors" for name in ("one", "two"))
        assert one.read_bytes() == two.read_bytes()

    def test_it_can_be_left_out(self, tmp_path):
        done(tmp_path, plan(rounds=3), save_models=False)
        assert not (tmp_path / "model.safetensors").exists()
        manifest = read(RunFolder(tmp_path))
        assert manifest is not None
        assert "model.safetensors" not in manifest.files
