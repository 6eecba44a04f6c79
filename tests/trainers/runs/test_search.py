"""Contract of search: held-out data judge, and the test data are not read."""

import pytest
import torch

from trainers.runs import search as module
from trainers.runs.problem import Problem
from trainers.runs.search import best, search
from trainers.runs.training import Training

SHORT = Training(
    algorithm="dp-dsgd", nodes=2, train=200, rounds=20, batch_size=20.0, model="softmax"
)


@pytest.mark.full
def test_the_better_step_is_found_again():
    grid = {"step_size": (1e-6, 0.5), "clip_norm": (1.0, 2.0)}
    tried = list(search(SHORT, grid, noise_multiplier=0.1))
    assert [one.settings for one in tried] == [
        {"step_size": step, "clip_norm": clip}
        for step in (1e-6, 0.5)
        for clip in (1.0, 2.0)
    ]
    assert best(tried).settings["step_size"] == 0.5
    assert tried == list(search(SHORT, grid, noise_multiplier=0.1))


def test_what_is_held_out_is_training_data():
    whole, part = Problem.of(SHORT), Problem.of(SHORT, held_out=0.2)
    assert sum(part.sizes) == 160
    assert len(part.test) == 40
    known = torch.cat([share.inputs for share in whole.shares]).flatten(1)
    seen = torch.cat([*(s.inputs for s in part.shares), part.test.inputs]).flatten(1)
    assert torch.equal(known.unique(dim=0), seen.unique(dim=0))


def test_divergence_is_no_accuracy(monkeypatch):
    def diverges(*given, **more):
        raise ValueError("a sample's gradient is not finite, so that ...")

    monkeypatch.setattr(module.Problem, "train", diverges)
    (one,) = search(SHORT, {"step_size": (1.0,)}, noise_multiplier=1.0)
    assert one.accuracy == 0


def test_all_cannot_be_held_out():
    with pytest.raises(ValueError, match=r"held_out must be in \[0, 1\), got 1"):
        Problem.of(SHORT, held_out=1.0)
