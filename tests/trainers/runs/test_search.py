"""Searches: no best value at an edge; held-out data judge, test data are not read."""

from __future__ import annotations

import itertools
import math

import hypothesis.strategies as st
import msgspec
import pytest
import torch
from hypothesis import given

from tests.tiers import examples
from trainers.runs.problem import Problem
from trainers.runs.search import (
    chosen,
    climb,
    combinations,
    held_out_accuracy,
    untried,
)
from trainers.runs.training import Training

SHORT = Training(
    algorithm="dp-dsgd", nodes=2, train=200, rounds=20, batch_size=20.0, model="softmax"
)


@pytest.mark.full
def test_the_better_step_is_found_again():
    grid = combinations({"step_size": (1e-6, 0.5), "clip_norm": (1.0, 2.0)})
    right = [
        held_out_accuracy(msgspec.structs.replace(SHORT, **point), 0.1)
        for point in grid
    ]
    assert grid[right.index(max(right))]["step_size"] == 0.5
    again = msgspec.structs.replace(SHORT, **grid[0])
    assert right[0] == held_out_accuracy(again, 0.1)


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

    monkeypatch.setattr(Problem, "train", diverges)
    assert held_out_accuracy(SHORT, 1.0) == 0


def test_all_cannot_be_held_out():
    with pytest.raises(ValueError, match=r"held_out must be in \[0, 1\), got 1"):
        Problem.of(SHORT, held_out=1.0)


LATTICE = {"step_size": (1 / 3, 3.0), "rho": (1 / 3, 3.0)}


@given(st.integers(-4, 4), st.integers(-4, 4), st.integers(-2, 2), st.floats(0.1, 10))
@examples(50)
def test_one_peak_is_found_from_anywhere(across, up, start, tilt):
    def score(point):
        x, y = (math.log(point[name], 3) for name in ("step_size", "rho"))
        return -((x - across) ** 2) - tilt * (y - up) ** 2

    lattice = [3.0**power for power in range(-6, 7)]
    truth = max(
        score({"step_size": a, "rho": b})
        for a, b in itertools.product(lattice, lattice)
    )
    tried = climb(score, [{"step_size": 3.0**start, "rho": 1.0}], LATTICE, most=500)
    assert chosen(tried)[1] == pytest.approx(truth, abs=1e-9)
    assert untried(tried, LATTICE) == []


def test_every_start_is_tried_as_it_stands_and_once():
    published = {"step_size": 0.0792, "optimiser": "adam"}
    starts = [published, {"step_size": 1.0, "rho": 0.1}, dict(published)]
    tried = climb(lambda point: 0.0, starts, LATTICE)
    assert [point for point, _ in tried[:2]] == starts[:2]
    assert sum(point == published for point, _ in tried) == 1
    assert all("rho" not in p for p, _ in tried if "optimiser" in p)  # it has none


def test_there_and_back_is_one_point():
    tried = climb(lambda point: point["step_size"] < 1, [{"step_size": 1.0}], LATTICE)
    values = [point["step_size"] for point, _ in tried]
    assert len(values) == len({f"{value:.6g}" for value in values})


def test_what_runs_out_of_tries_says_so():
    tried = climb(
        lambda point: point["step_size"], [{"step_size": 1.0}], LATTICE, most=5
    )
    assert len(tried) == 5
    assert untried(tried, LATTICE)


def test_nothing_to_start_from():
    with pytest.raises(ValueError, match="at least one start"):
        climb(lambda point: 0.0, [], LATTICE)
