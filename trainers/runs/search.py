"""Search for settings on a held-out part of the training data."""

from __future__ import annotations

import dataclasses
import itertools
import pathlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from trainers.numerics.randomness import Streams
from trainers.runs.measures import accuracy
from trainers.runs.problem import Problem
from trainers.runs.training import Training

HELD_OUT = 0.2


@dataclasses.dataclass(frozen=True, slots=True)
class Tried:
    """Settings, and the mean accuracy over runs and nodes on the held-out records.

    ``accuracy`` is 0 where training diverged.
    """

    settings: dict[str, Any]
    accuracy: float


def search(
    training: Training,
    grid: Mapping[str, Sequence[Any]],
    *,
    noise_multiplier: float,
    seed: int = 0,
    runs: int = 1,
    data_dir: str | pathlib.Path | None = None,
) -> Iterator[Tried]:
    """Every combination of ``grid`` on ``training``, tried, in order.

    A fifth of the training data, the same each time, is held out and judges. The test
    data are not read. What a search learns from private data is in *no* ledger of the
    run that follows: for a guarantee, search on public data, or count it.

    Parameters
    ----------
    training
        All other settings.
    grid
        Values by setting.
    noise_multiplier
        The noise that will be used; that for all records, so that a rate which the held
        out ones raise is not made up for.
    seed
        Seed of what is held out, of starts, sampling and noise.
    runs
        How many to take the mean of.
    data_dir
        Where data are kept.

    Raises
    ------
    ValueError
        If settings do not fit.
    """
    for values in itertools.product(*grid.values()):
        settings = dict(zip(grid, values, strict=True))
        here = msgspec.structs.replace(training, **settings)
        problem = Problem.of(here, seed=seed, data_dir=data_dir, held_out=HELD_OUT)
        try:
            models, _ = problem.train(noise_multiplier, Streams(seed), runs=runs)
        except ValueError as error:
            if "not finite" not in str(error):
                raise
            yield Tried(settings, 0.0)
            continue
        right = accuracy(problem.gradients(), models, problem.test)
        yield Tried(settings, float(right.mean()))


def best(tried: Sequence[Tried]) -> Tried:
    """The one with the highest accuracy, the first of equal ones."""
    return max(tried, key=lambda one: one.accuracy)
