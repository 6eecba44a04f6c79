"""Settings for a budget, from public numbers: sizes of shares, model, epsilon.

How far noise drowns what is learned is one number that needs no data. In T rounds at
rate q the sum of all clipped gradients is at most T q n C long, over the n records of
all nodes; the noise in it, of N nodes and d parameters, is z C (T N d)^(1/2) long. With
z as a budget wants it, and as long as z is large, q T^(1/2) / z is the mu of Gaussian
differential privacy (Dong, Roth and Su 2022; Bu et al. 2020) that the budget allows,
whatever T and q are, so that

    signal to noise = mu n / (N d)^(1/2)

is a property of the task. Rounds and rate then only decide what training costs, and the
step size how far models get: the sum of all steps, each C long at most, is `REACH`
times as long as the signal is to the noise. Step sizes fall to 0 by a cosine, so that
the last models are not the noise of the last steps.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from privaudit.accounting import gdp
from privaudit.ledger import Ledger
from privaudit.results import check_delta, check_epsilon
from privaudit.task_settings import laid_over
from trainers.algorithms.family import Noise
from trainers.algorithms.setting import Setting
from trainers.gradients.per_sample import parameter_count
from trainers.oracles.capabilities import GivesGradients, gives
from trainers.runs.material import Material
from trainers.runs.training import Training, training_from

# What is open where nothing is planned.
PLAIN: dict[str, Any] = {
    "rounds": 200,
    "batch_size": 32.0,
    "clip_norm": 1.0,
    "step_size": 0.1,
}
ROUNDS = 150
CLIP_NORM = 1.0
# Below, subsampling costs: at noise 4 signal to noise is 4 % less than with all records
# in each batch, at noise 2 it is 15 % less.
LEAST_NOISE = 4.0
MOST_DRAWN = 3_000_000  # records, in all rounds together: what a run may cost
REACH = 5.0  # total length of steps over signal to noise, see docs/choosing.md
LEAST_REACH = 3.0
MOST_STEP = 2.0  # average length of a step
_MANY = 10_000  # rounds


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """Public numbers of a training before its settings are chosen."""

    sizes: tuple[int, ...]  # number of records, or users, of each node
    parameters: int  # number of trained parameters
    epsilon: tuple[float, ...] | None  # budget of each node, or one for all
    delta: float
    noise_multiplier: float | None = None  # where no budget is given
    overlap: int = 1  # at how many nodes one record may be
    releases: float = 1.0  # of a node in a round, on average: `releases_of`

    def __post_init__(self) -> None:
        for own in self.epsilon or ():
            check_epsilon(own)
        check_delta(self.delta)
        if self.epsilon is not None and len(self.epsilon) not in (1, len(self.sizes)):
            raise ValueError(
                f"{len(self.epsilon)} budgets are given for {len(self.sizes)} nodes: "
                "give one for each"
            )

    @property
    def records(self) -> int:
        return sum(self.sizes)

    def rate(self, settings: Mapping[str, Any]) -> float:
        """Sampling rate of ``settings``, at a node of mean size."""
        if "sampling_rate" in settings:
            return settings["sampling_rate"]
        return min(1.0, settings["batch_size"] * len(self.sizes) / self.records)

    def mus(self, rounds: float, rate: float) -> list[float]:
        """mu of each node's budget, or of the given noise in so many releases."""
        share = math.sqrt(self.overlap)
        if self.epsilon is None:
            assert self.noise_multiplier is not None
            return [rate * math.sqrt(rounds) / self.noise_multiplier] * len(self.sizes)
        each = self.epsilon if len(self.epsilon) > 1 else self.epsilon * len(self.sizes)
        known = {own: float(gdp.mu(own, self.delta)) / share for own in set(each)}
        return [known[own] for own in each]

    def signal_to_noise(self, rounds: float, rate: float) -> float:
        """Length of all clipped gradients, at most, over that of the noise in them.

        >>> task = Task(sizes=(100,) * 4, parameters=25, epsilon=(2.0,), delta=1e-5)
        >>> round(task.signal_to_noise(100, 1.0), 1)
        20.1
        """
        mus = self.mus(rounds, rate)
        told = sum(n * mu for n, mu in zip(self.sizes, mus, strict=True))
        return told / math.sqrt(len(self.sizes) * self.parameters)


def chosen(task: Task, given: dict[str, Any]) -> dict[str, Any]:
    """Rounds, sampling, clip norm and step sizes for a ``task``, over those ``given``.

    Nothing of the data is looked at. A setting that is given stays, and the others are
    chosen to fit it.

    >>> task = Task(sizes=(150, 110, 36), parameters=62, epsilon=(2.0,), delta=1e-5)
    >>> found = chosen(task, {"rounds": 100})
    >>> found["rounds"], round(found["sampling_rate"], 2), found["schedule"]
    (100, 0.2, 'cosine')
    """
    rounds = given.get("rounds", math.ceil(ROUNDS / task.releases))
    steps = rounds * task.releases
    found: dict[str, Any] = {"rounds": rounds, "clip_norm": CLIP_NORM, **given}
    if not {"sampling_rate", "batch_size"} & given.keys():
        found["sampling_rate"] = _rate(task, steps)
    if "step_size" not in given:
        ratio = task.signal_to_noise(steps, task.rate(found))
        reach = min(max(REACH * ratio, LEAST_REACH), MOST_STEP * steps)
        found["step_size"] = two_digits(reach / steps / found["clip_norm"])
        if found.get("schedule", "cosine") == "cosine":
            found["step_size"] *= 2  # which is as far as half of it
    if not {"schedule", "final_step_size"} & given.keys():
        found["schedule"] = "cosine"
    return found


def training_for(
    given: Mapping[str, Any],
    asked: Mapping[str, Any],
    material: Material,
    sizes: tuple[int, ...] | None,
    *,
    epsilon: float | Sequence[float] | None,
    delta: float,
    noise_multiplier: float | None,
    where: str,
) -> Training:
    """A training of ``given`` settings, those ``asked`` for and the rest `chosen`."""
    training = training_from({**given, **laid_over(PLAIN, asked)}, where=where)
    open_ended = epsilon is None and noise_multiplier is None
    if sizes is None or open_ended or not is_planned(training):
        return training
    budget = None
    if epsilon is not None:
        budget = tuple(epsilon) if isinstance(epsilon, Sequence) else (epsilon,)
    task = Task(
        sizes=sizes,
        parameters=parameter_count(material.module),
        epsilon=budget,
        delta=delta,
        noise_multiplier=noise_multiplier,
        overlap=training.overlap,
        releases=releases_of(training),
    )
    last = {name: given[name] for name in ("final_step_size",) if name in given}
    return training_from({**given, **chosen(task, {**asked, **last})}, where=where)


def releases_of(training: Training) -> float:
    """Number of releases of a node in a round, over many rounds."""
    many = msgspec.structs.replace(training, rounds=_MANY, warm_up=0, schedule=None)
    return training.family.releases(many.setting()) / _MANY


def _rate(task: Task, rounds: float) -> float:
    """The least at which noise is large enough, unless that costs too much."""
    enough = 1.0
    if task.epsilon is not None:
        enough = LEAST_NOISE * max(task.mus(rounds, 1.0)) / math.sqrt(rounds)
    most = MOST_DRAWN / rounds / task.records
    # At the smallest node a batch is expected to have a record.
    least = 1 / min(task.sizes)
    return min(1.0, two_digits(max(min(enough, most), least)))


def two_digits(value: float) -> float:
    """``value``, rounded so that it can be read."""
    return float(f"{value:.1e}")


def is_planned(training: Training) -> bool:
    """Return whether `chosen` knows how far steps go: those of noisy gradients."""
    return (
        training.family.private
        and training.unit == "record"
        and gives(training.family.oracle, GivesGradients)
    )


@dataclasses.dataclass(frozen=True, slots=True)
class Sized:
    """A training of which sizes are known, and no data."""

    training: Training
    sizes: tuple[int, ...]

    @property
    def setting(self) -> Setting:
        return self.training.setting(self.sizes)

    def ledger(self, noise: Noise) -> Ledger:
        planned = self.training.family.planned(self.setting, noise)
        if self.training.overlap == 1:
            return planned
        return msgspec.structs.replace(planned, overlap=self.training.overlap)
