"""What is seen: attackers who score each run by how much it looks like a member's.

An adversary lives for one block of runs. It may watch messages
(`trainers.engine.Observer`) or releases (`trainers.oracle.ReleaseObserver`), and keeps
one running number a run.
"""

from __future__ import annotations

import abc
from collections.abc import Sequence
from typing import ClassVar

import torch
from torch import Tensor

from trainers.data import Dataset
from trainers.differentiator import Differentiator
from trainers.engine import Observer
from trainers.models import cross_entropy
from trainers.oracle import ReleaseObserver, clip_weights
from trainers.per_sample import PerSample
from trainers.problem import Problem

CANARY_NODE = 0


class Adversary(abc.ABC):
    """Scores one block of runs; a higher score says "member"."""

    name: ClassVar[str]
    sees: ClassVar[str]  # the threat model, in words

    def __init__(
        self,
        problem: Problem,
        gradients: Differentiator,
        canary: Dataset,
        runs: int,
    ) -> None:
        self.problem = problem
        self.gradients = gradients
        self.canary = canary
        self.runs = runs

    @property
    def observers(self) -> tuple[Observer, ...]:
        """Who is to be shown the messages of every round; nobody by default."""
        return ()

    @property
    def release_observers(self) -> tuple[ReleaseObserver, ...]:
        """Who is to be shown every release; nobody by default."""
        return ()

    @abc.abstractmethod
    def score(self, models: Tensor) -> Tensor:
        """(runs,), given each node's final model, (runs, nodes, dims)."""


class FinalLoss(Adversary):
    """The loss of the canary under the final model of its node, negated."""

    name = "final-loss"
    sees = "the canary's loss under the final model of its node"

    def score(self, models: Tensor) -> Tensor:
        """Minus the loss."""
        inputs = self.canary.inputs.expand(self.runs, *self.canary.inputs.shape)
        outputs = self.gradients.outputs(models[:, CANARY_NODE], inputs)[:, 0]
        targets = self.canary.targets.expand(self.runs)
        return -cross_entropy(outputs.double(), targets)


class NoisyGradients(Adversary):
    """A matched filter for the canary's gradient in all that its node releases.

    A release is the sum of the lot's gradients, plus the canary's, plus noise. The
    attacker knows the node's other records, so it takes off what they give on average,
    and weighs directions by how much the choice of the lot and the noise blur them: the
    best linear statistic, g' S^-1 (x - E x), with S = q (1 - q) G'G + s^2 I over the
    other records' clipped gradients G. The noise s is estimated from the part of x that
    no record can reach, so that noise which is not there does not blind the filter.
    """

    name = "noisy-gradients"
    sees = "all noisy gradients of its node, with all other records known"

    def __init__(
        self,
        problem: Problem,
        gradients: Differentiator,
        canary: Dataset,
        runs: int,
    ) -> None:
        super().__init__(problem, gradients, canary, runs)
        self._reference = PerSample(problem.module, cross_entropy)
        self._total = torch.zeros(runs, dtype=torch.float64)

    @property
    def release_observers(self) -> tuple[ReleaseObserver, ...]:
        """This one."""
        return (self,)

    def release(
        self, index: int, at: Tensor, gradient: Tensor, nodes: Sequence[int]
    ) -> None:
        """Add this release's evidence to the running score."""
        if CANARY_NODE not in nodes:
            return
        column = nodes.index(CANARY_NODE)
        mechanism = self.problem.training.mechanism(1.0)
        clip, _ = mechanism.at(index)
        own = self.problem.shares[CANARY_NODE]
        rate = mechanism.sampling_rate(len(own))
        theta = at[:, column]
        canary = self._clipped(theta, self.canary, clip)[:, 0]  # (runs, dims)
        others = self._clipped(theta, own, clip)  # (runs, records, dims)
        released = gradient[:, column].double() * mechanism.lot_size
        surprise = released - rate * others.sum(1)

        gram = others @ others.mT
        floor = 1e-9 * gram.diagonal(dim1=1, dim2=2).mean(1) + 1e-12
        eye = torch.eye(gram.shape[1], dtype=gram.dtype)

        def outside(vector: Tensor, ridge: Tensor) -> Tensor:
            inner = torch.linalg.solve(
                gram + ridge[:, None, None] * eye,
                (others @ vector[:, :, None]),
            )
            return vector - (others.mT @ inner)[:, :, 0]

        free = max(1, theta.shape[1] - len(own))
        noise = outside(surprise, floor).square().sum(1) / free  # variance, (runs,)
        ridge = noise / max(rate * (1 - rate), 1e-12) + floor
        filtered = outside(canary, ridge)
        # In units of its own noise, so that releases of different noise add up.
        self._total += (filtered * surprise).sum(1) / (noise + floor)

    def _clipped(self, theta: Tensor, data: Dataset, clip: float) -> Tensor:
        runs = len(theta)
        gradients = self._reference.gradients(
            theta,
            data.inputs.expand(runs, *data.inputs.shape),
            data.targets.expand(runs, *data.targets.shape),
        ).double()
        weights = clip_weights(torch.linalg.vector_norm(gradients, dim=2), clip)
        return gradients * weights[:, :, None]

    def score(self, models: Tensor) -> Tensor:
        """The evidence of all releases."""
        return self._total


ADVERSARIES: dict[str, type[Adversary]] = {
    adversary.name: adversary for adversary in (FinalLoss, NoisyGradients)
}
