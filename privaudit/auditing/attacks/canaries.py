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
from trainers.oracles.mechanism import Mechanism
from trainers.runs.problem import Planted, Problem

CRAFTED, MISLABELLED, NOISE = "gradient", "mislabelled", "out-of-distribution"
TOGETHER = 128  # in each of many runs, where only bounds within a family read them
KINDS = (CRAFTED, MISLABELLED, NOISE)  # of many in one run
_MOST_VALUES = 1 << 26  # of all records' gradients, that a direction is chosen from


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Canary:
    """One record, or one whose gradient is crafted; or several of these."""

    record: Dataset  # one sample, or as many as there are
    # (dims,), of norm 1: its gradient points there whatever the parameters, with a norm
    # exactly at the clip; None if its gradient is that of ``record``. Of several,
    # (samples,) whole numbers: along which parameter each one's is
    direction: Tensor | None = None
    nodes: tuple[int, ...] = (CANARY_NODE,)  # that several join, dealt to these in turn

    def __len__(self) -> int:
        return len(self.record)

    def at(self, node: int) -> slice:
        """Those that join ``node``, one of ``nodes``."""
        return slice(self.nodes.index(node), None, len(self.nodes))

    def along(self, values: Tensor) -> Tensor:
        """Parts of ``values``, (..., dims), along crafted gradients: (..., samples)."""
        assert self.direction is not None
        if self.direction.is_floating_point():
            return (values.double() @ self.direction.double())[..., None]
        return values[..., self.direction].double()

    def planted(self, runs: Tensor, *, replaces: bool = False) -> Planted:
        """Itself in those ``runs``, (runs,) bool or (runs, samples).

        ``replaces``: in the place of a record.
        """
        return Planted(self.record, runs, self.direction, replaces, self.nodes)


def blank(problem: Problem, seed: int) -> Canary:
    """A blank image of the first class (Bayrooti et al. 2023, appendix D)."""
    inputs, target = problem.material.example
    return Canary(
        Dataset(torch.zeros_like(inputs)[None], torch.zeros_like(target)[None])
    )


def mislabelled(problem: Problem, seed: int) -> Canary:
    """The first test image of its node's commonest class, with the next one's label."""
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
    return Canary(Dataset(problem.test.inputs[[place]], torch.tensor([wrong])))


def out_of_distribution(problem: Problem, seed: int) -> Canary:
    """An image of uniform noise over the range of the data, labelled at random."""
    return _of_noise(problem, 1, seed)


def _of_noise(problem: Problem, count: int, seed: int) -> Canary:
    """``count`` of these; one where there are no classes."""
    generator = public_generator(seed, "canary")
    own = problem.shares[CANARY_NODE]
    low, high = own.inputs.min(), own.inputs.max()
    shape = (count, *own.inputs.shape[1:])
    noise = torch.rand(shape, generator=generator, dtype=own.inputs.dtype)
    classes = classes_of(problem)
    if classes is not None:
        targets = torch.randint(classes, (count,), generator=generator)
    else:
        far = own.targets.abs().max()  # as far as any
        targets = far * torch.ones_like(own.targets[:1])
    return Canary(Dataset(low + noise * (high - low), targets))


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

    Along the direction in which inputs vary least, of their mean length, labelled with
    the class that the model at the start finds least likely.
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

    Coordinates that none touches if there are any; else a direction orthogonal to all
    at the start; else the one in which these are smallest.
    """
    start = problem.start(seed)[0, 0]
    known = _few_gradients(problem, start)
    vector = _random(len(start), seed)
    if known is not None and (silent := (known == 0).all(0)).any():
        vector = silent.double()
    elif known is not None:
        _, _, rows = torch.linalg.svd(known, full_matrices=False)
        full = len(rows) == len(start)
        vector = rows[-1] if full else vector - rows.T @ (rows @ vector)
    return Canary(blank(problem, seed).record, vector / vector.norm())


def quiet_gradients(problem: Problem, count: int, seed: int) -> Canary:
    """As `quiet_gradient`, ``count`` of them, each along a parameter of its own."""
    if count == 1:
        return quiet_gradient(problem, seed)
    return _crafted(problem, count, _quietest(problem, seed))


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


def canaries_of(problem: Problem, kind: str, count: int, seed: int) -> Canary:
    """``count`` canaries of a kind of `KINDS`; ``ValueError`` if there are too few."""
    if kind == CRAFTED:
        return _crafted(problem, count, _quietest(problem, seed))
    classes = classes_of(problem)
    if classes is None or (kind == MISLABELLED and problem.test is None):
        raise ValueError(
            f"{kind} canaries need classes, and {MISLABELLED} ones test data: there is "
            f"none; choose {CRAFTED}"
        )
    if kind == NOISE:
        return _of_noise(problem, count, seed)
    # Held-out records with a wrong label, a little apart where one is used again.
    generator, test = public_generator(seed, "canary"), problem.test
    chosen = torch.arange(count) % len(test)
    inputs = test.inputs[chosen]
    again = 0.05 * torch.randn(inputs.shape, generator=generator, dtype=inputs.dtype)
    again[: len(test)] = 0
    shift = torch.randint(1, classes, (count,), generator=generator)
    return Canary(Dataset(inputs + again, (test.targets[chosen] + shift) % classes))


def public_canaries(
    problem: Problem, count: int, seed: int, nodes: tuple[int, ...] = (CANARY_NODE,)
) -> Canary:
    """``count`` crafted gradients along parameters that are chosen without the data."""
    dims = problem.start(seed).shape[2]
    order = torch.randperm(dims, generator=public_generator(seed, "canaries of a run"))
    return _crafted(problem, count, order, nodes)


def _crafted(
    problem: Problem, count: int, order: Tensor, nodes: tuple[int, ...] = (CANARY_NODE,)
) -> Canary:
    """Crafted gradients along the first ``count`` of the parameters in ``order``."""
    if len(order) < count:
        raise ValueError(
            f"{count:,} crafted gradients need a parameter each, and the model has "
            f"{len(order):,}: plant fewer canaries, or use a larger model"
        )
    several = blank(problem, 0).record.select(torch.zeros(count, dtype=torch.long))
    return Canary(several, order[:count], nodes)


def _quietest(problem: Problem, seed: int) -> Tensor:
    """All parameters: first where records' gradients at the start are small."""
    start = problem.start(seed)[0, 0]
    known = _few_gradients(problem, start)
    if known is None:
        return torch.randperm(len(start), generator=public_generator(seed, "canary"))
    return torch.argsort(known.square().sum(0), stable=True)


def planted_together(problem: Problem, mechanism: Mechanism) -> int:
    """Number of canaries that share a run: along parameters where noise hides them.

    Where other records of a batch move a sum by a fourth of the noise they are not
    planted, so that less noise than is promised still shows; one always is.
    """
    start = problem.start(0)[0, 0]
    known = _few_gradients(problem, start)
    if known is None:
        return min(TOGETHER, len(start))
    records = problem.sizes[CANARY_NODE]
    own = known[:records]
    clip, multiplier = mechanism.at(0)
    moved = own * (clip / own.norm(dim=1).clamp_min(1e-300)).clamp_max(1)[:, None]
    rate = min(mechanism.batch(records) / records, 1.0)
    spread = rate * (1 - rate) * moved.square().sum(0)
    alike = spread <= (multiplier * clip / 4) ** 2 if multiplier else spread == 0
    return max(1, min(TOGETHER, int(alike.sum())))


def all_gradients(problem: Problem, start: Tensor) -> Tensor:
    """Every record's gradient at ``start``, (dims,): (records, dims)."""
    reference = reference_of(problem)
    return torch.cat(
        [
            reference.gradients(start[None], share.inputs[None], share.targets[None])[0]
            for share in problem.shares
        ]
    )


def _few_gradients(problem: Problem, start: Tensor) -> Tensor | None:
    """`all_gradients` in doubles; None where they would be too many values."""
    if sum(problem.sizes) * len(start) > _MOST_VALUES:
        return None
    return all_gradients(problem, start).double()


def repeated(data: Dataset, runs: int) -> tuple[Tensor, Tensor]:
    """Inputs and targets of all records, (runs, records, ...), alike in each run."""
    return (
        data.inputs.expand(runs, *data.inputs.shape),
        data.targets.expand(runs, *data.targets.shape),
    )


def reference_of(problem: Problem) -> PerSample:
    """Gradients of single records, by the problem's own loss."""
    return PerSample(problem.module, problem.material.loss)


def is_silent(problem: Problem, start: Tensor, direction: Tensor) -> bool:
    """Return whether no gradient at ``start`` touches a coordinate of ``direction``."""
    known = _few_gradients(problem, start)
    if known is None:
        return False
    where = direction != 0 if direction.is_floating_point() else direction
    return not bool((known != 0).any(0)[where].any())


def _random(dims: int, seed: int) -> Tensor:
    generator = public_generator(seed, "canary")
    vector = torch.randn(dims, generator=generator, dtype=torch.float64)
    return vector / vector.norm()
