"""Canaries: the records whose membership an audit infers."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import torch
from torch import Tensor

from privaudit.auditing.scores import CANARY_NODE as CANARY_NODE
from trainers.data import Dataset
from trainers.gradients.per_sample import PerSample
from trainers.numerics.randomness import public_generator
from trainers.runs.problem import Planted, Problem

_MOST_VALUES = 1 << 26  # of all records' gradients, that a direction is chosen from


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Canary:
    """One record, or one whose gradient is crafted.

    Parameters
    ----------
    record
        One sample.
    direction
        (dims,), of norm 1: its gradient points there whatever the parameters, with a
        norm exactly at the clip; None if its gradient is that of ``record``.
    """

    record: Dataset
    direction: Tensor | None = None

    def planted(self, runs: Tensor, *, replaces: bool = False) -> Planted:
        """Itself in those ``runs``, (runs,) bool; or in the place of a record."""
        return Planted(self.record, runs, self.direction, replaces)


def blank(problem: Problem, seed: int) -> Canary:
    """A blank image, labelled with the first class.

    The canary of appendix D of Bayrooti et al. 2023 (after De et al. 2022).
    """
    return Canary(Dataset(*map(_zeros, problem.material.example)))


def _zeros(like: Tensor) -> Tensor:
    return torch.zeros_like(like)[None]


def mislabelled(problem: Problem, seed: int) -> Canary:
    """A held-out image of the commonest class of its node, with the next one's label.

    After Nasr et al. 2021. The first such image of the test set.
    """
    classes = classes_of(problem)
    if problem.test is None or classes is None:
        raise ValueError(
            "a mislabelled canary is a test record of another class, and there are no "
            "test data or no classes: choose another canary"
        )
    own = int(problem.shares[CANARY_NODE].targets.bincount().argmax())
    of_class = (problem.test.targets == own).nonzero()
    place = int(of_class[0]) if len(of_class) else 0
    wrong = (int(problem.test.targets[place]) + 1) % classes
    return Canary(
        Dataset(problem.test.inputs[place : place + 1], torch.tensor([wrong]))
    )


def out_of_distribution(problem: Problem, seed: int) -> Canary:
    """An image of uniform noise over the range of the data, labelled at random."""
    generator = public_generator(seed, "canary")
    own = problem.shares[CANARY_NODE].inputs
    noise = torch.rand(own[:1].shape, generator=generator, dtype=own.dtype)
    record = own.min() + noise * (own.max() - own.min())
    classes = classes_of(problem)
    if classes is not None:
        label = torch.randint(classes, (1,), generator=generator)
        return Canary(Dataset(record, label))
    targets = problem.shares[CANARY_NODE].targets
    far = targets.abs().max() * torch.ones_like(targets[:1])  # as far as any
    return Canary(Dataset(record, far))


def classes_of(problem: Problem) -> int | None:
    """Number of classes that targets tell apart; None if they are no classes."""
    known = len(problem.training.labels)
    if known:
        return known
    _, target = problem.material.example
    if problem.material.quality != "accuracy" or target.is_floating_point():
        return None
    start = problem.start(0)[:, 0]
    inputs = problem.material.example[0][None, None]
    return problem.gradients().outputs(start, inputs).shape[-1]


def clipbkd(problem: Problem, seed: int) -> Canary:
    """ClipBKD (Jagielski, Ullman and Oprea 2020, Algorithm 3).

    The direction of inputs in which the records vary least, as long as a record is on
    average, labelled with the class that the model at the start finds least likely.
    """
    own = problem.shares[CANARY_NODE].inputs
    if classes_of(problem) is None or not own.is_floating_point():
        raise ValueError(
            "a clipbkd canary is of a class that inputs of numbers are told apart by: "
            "choose another canary"
        )
    flat = own.flatten(1).double()
    _, vectors = torch.linalg.eigh(flat.T @ flat)
    image = (vectors[:, 0] * flat.norm(dim=1).mean()).to(own.dtype)
    image = image.view(1, *own.shape[1:])
    outputs = problem.gradients().outputs(problem.start(seed)[:, 0], image[None])
    return Canary(Dataset(image, outputs[0].argmin(-1)))


def quiet_gradient(problem: Problem, seed: int) -> Canary:
    """A crafted gradient where the other records' gradients are smallest.

    Coordinates that no record's gradient touches, such as the weights of a pixel that
    is always dark, if there are any; else a direction orthogonal to all records'
    gradients at the start; else the one in which these are smallest.
    """
    return Canary(blank(problem, seed).record, _quiet(problem, seed))


def random_gradient(problem: Problem, seed: int) -> Canary:
    """A crafted gradient in a random direction, the same in every round."""
    dims = problem.start(seed).shape[2]
    return Canary(blank(problem, seed).record, _random(dims, seed))


RECORD = "record"  # one that is given, and not made here
CANARIES: dict[str, Callable[[Problem, int], Canary]] = {
    "blank": blank,
    "mislabelled": mislabelled,
    "out-of-distribution": out_of_distribution,
    "clipbkd": clipbkd,
    "gradient": quiet_gradient,
    "random-gradient": random_gradient,
}


def all_gradients(problem: Problem, start: Tensor) -> Tensor:
    """Every record's gradient at ``start``, (dims,): (records, dims)."""
    reference = reference_of(problem)
    return torch.cat(
        [
            reference.gradients(start[None], share.inputs[None], share.targets[None])[0]
            for share in problem.shares
        ]
    )


def reference_of(problem: Problem) -> PerSample:
    """Gradients of single records, by the problem's own loss."""
    return PerSample(problem.module, problem.material.loss)


def is_silent(problem: Problem, start: Tensor, direction: Tensor) -> bool:
    """Return whether no record's gradient touches any coordinate of ``direction``.

    Told from the gradients at ``start``, (dims,), where exact zeros are structural.
    """
    if sum(problem.sizes) * len(start) > _MOST_VALUES:
        return False
    touched = (all_gradients(problem, start) != 0).any(0)
    return not bool((touched & (direction != 0)).any())


def _random(dims: int, seed: int) -> Tensor:
    generator = public_generator(seed, "canary")
    vector = torch.randn(dims, generator=generator, dtype=torch.float64)
    return vector / vector.norm()


def _quiet(problem: Problem, seed: int) -> Tensor:
    start = problem.start(seed)[0, 0]
    dims = len(start)
    if sum(problem.sizes) * dims > _MOST_VALUES:
        return _random(dims, seed)
    gradients = all_gradients(problem, start).double()
    silent = (gradients == 0).all(0)
    if silent.any():
        vector = silent.double()
    else:
        _, _, rows = torch.linalg.svd(gradients, full_matrices=False)
        if len(rows) < dims:
            vector = _random(dims, seed)
            vector = vector - rows.T @ (rows @ vector)
        else:
            vector = rows[-1]
    return vector / vector.norm()
