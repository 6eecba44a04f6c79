"""The neighbour's attack on messages that carry the noise themselves.

PartPSP and its kin send s + noise, where s is what the node held after mixing, plus a
step along a clipped gradient of its shared parameters. Whoever hears all that the node
hears knows what it held, so that a message is Laplace noise around one of three points:
the step without the record that is asked for, with it, or with the one that stands in
its place. Their likelihood ratio is summed over the rounds. The gradients are those of
all records that the attacker knows, at the shared parameters that it heard; batches are
taken at their mean, and local parameters, which nobody hears, at steps of its own.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor

from privaudit.auditing.attacks.canaries import CANARY_NODE, repeated
from privaudit.auditing.attacks.contract import Scene, Watcher
from privaudit.auditing.attacks.likelihood import mixture_ratio
from trainers.algorithms.partpsp.partpsp import PartPsp
from trainers.data import Dataset
from trainers.gradients.differentiator import Differentiator
from trainers.gradients.per_sample import PerSample, parameter_places
from trainers.network.engine import Observer
from trainers.network.mixing import Mixing
from trainers.oracles.messages.noise import planned_scales
from trainers.oracles.messages.oracle import MessageMechanism, shared_places


def is_overheard(mixing: Mixing) -> bool:
    """Return whether another node hears the canary's and all that it hears."""
    graphs = [mixing.at(k) > 0 for k in range(mixing.period)]
    return any(
        all(graph[node, graph[CANARY_NODE]].all() for graph in graphs)
        for node in range(mixing.nodes)
        if node != CANARY_NODE
    )


class PerturbedWatcher(Watcher):
    """Weighs each message of the canary's node."""

    def __init__(self, scene: Scene, gradients: Differentiator) -> None:
        if scene.canary.direction is not None:
            raise ValueError(
                "crafted gradients are for algorithms that release gradients, and "
                f"{scene.problem.training.algorithm} sends messages; plant a record, "
                "such as clipbkd"
            )
        algorithm, how = scene.problem.network.algorithm, scene.mechanism
        assert isinstance(algorithm, PartPsp)
        assert isinstance(how, MessageMechanism)
        assert how.mixing is not None
        if not is_overheard(how.mixing):
            raise ValueError(
                "a neighbour reads noisy parameters only if it hears all that the "
                "canary's node hears: set graph=complete or sync_interval=1"
            )
        self._algorithm, self._how = algorithm, how
        self._scene, self._gradients = scene, gradients
        self._mixing = how.mixing
        module = scene.problem.module
        self._shared = torch.tensor(
            shared_places(parameter_places(module), algorithm.shared)
        )
        self._reference = PerSample(module, gradients.loss)
        own = scene.problem.shares[CANARY_NODE]
        replaced = int(scene.replaces)  # the first record, if any
        self._others = own.select(torch.arange(replaced, len(own)))
        self._targets = [scene.canary.record]
        if scene.replaces:
            self._targets.append(own.select(torch.arange(1)))
        bounds = [self._bound(k) for k in range(scene.problem.training.rounds)]
        dims = len(self._shared)
        scales = planned_scales(how.messages, how.mixing, bounds, dims)
        self._scales = [scale for scale, _ in scales]
        self._theta: Tensor | None = None  # (runs, dims), as the attacker thinks
        self._held: Tensor | None = None  # (runs, shared)
        self._score: Tensor | float = 0.0

    def _bound(self, k: int) -> float:
        clip = self._how.at(0)[0]
        return self._algorithm.bound(k, clip if clip < math.inf else 1.0)

    @property
    def observers(self) -> tuple[Observer, ...]:
        return (self,)

    def messages(self, k: int, sent: Mapping[str, Tensor]) -> None:
        """Weigh the message of round ``k``, and find what is held after it."""
        message = sent["s"].double()
        runs = len(message)
        if self._theta is None or self._held is None:
            start = self._scene.start.repeat(runs, 1)
            self._theta, self._held = start, start[:, self._shared].double()
        noise = message[:, CANARY_NODE] - self._held
        points, self._theta = self._expected(self._theta, self._held, k)
        multiplier = self._how.messages.noise_multiplier
        if multiplier == 0:
            width = torch.full((runs,), self._bound(k), dtype=torch.float64)
        elif "S" in sent:
            width = multiplier * sent["S"].amax((1, 2))
        else:
            width = torch.full((runs,), multiplier * self._scales[k]).double()

        def likelier(point: Tensor) -> Tensor:
            """Log density around ``point``, over that without either record."""
            without = (noise - points[0]).abs() - (noise - point).abs()
            return mixture_ratio(without.sum(1) / width, self._scene.rate)

        found = likelier(points[1])
        self._score = self._score + (
            found - likelier(points[2]) if self._scene.replaces else found
        )
        weights = torch.tensor(self._mixing.at(k)[CANARY_NODE], dtype=torch.float64)
        self._held = torch.einsum("n,rnd->rd", weights, message)
        self._theta = self._at(self._theta, self._held)

    def _at(self, theta: Tensor, values: Tensor) -> Tensor:
        theta = theta.clone()
        theta[:, self._shared] = values.to(theta.dtype)
        return theta

    def _expected(
        self, theta: Tensor, held: Tensor, k: int
    ) -> tuple[list[Tensor], Tensor]:
        """Expected sums without the record and with each, and the node's parameters."""
        algorithm, step = self._algorithm, self._algorithm.step_size(k)
        own = step if algorithm.local_step_size is None else algorithm.local_step_size
        points = [torch.zeros_like(held) for _ in range(1 + len(self._targets))]
        for _ in range(algorithm.local_steps):
            means = self._means(theta)
            descent = means[0].clone()
            descent[:, self._shared] = 0
            for point, mean in zip(points, means, strict=True):
                point -= step * self._clipped(mean[:, self._shared].double())
            theta = self._at(theta - own * descent, held + points[0])
        return points, theta

    def _means(self, theta: Tensor) -> list[Tensor]:
        """Mean gradients of a batch: of others alone, and with each target in it."""
        size = self._how.batch_size
        others = self._sum(theta, self._others) / len(self._others)
        fixed = self._how.sampling == "without-replacement"
        rest = (size - 1) / size if fixed else 1.0
        return [
            others,
            *(
                rest * others + self._sum(theta, target) / size
                for target in self._targets
            ),
        ]

    def _sum(self, theta: Tensor, of: Dataset) -> Tensor:
        """Summed gradients, (runs, dims), each clipped if that is how batches are."""
        each = repeated(of, len(theta))
        if self._how.clip_by == "batch":
            total = self._gradients.weighted_sum(theta, *each, torch.ones_like)
            return total.to(theta.dtype)
        each = self._reference.gradients(theta, *each)
        norms = each[:, :, self._shared].abs().sum(2)
        clip = self._how.at(0)[0]
        return (each * (clip / norms.clamp_min(clip))[:, :, None]).sum(1)

    def _clipped(self, mean: Tensor) -> Tensor:
        clip = self._how.at(0)[0]
        if clip == math.inf:
            return mean
        norms = mean.abs().sum(1, keepdim=True)
        return mean * (clip / norms.clamp_min(clip))

    def score(self, models: Tensor) -> Tensor:
        assert isinstance(self._score, Tensor)
        return self._score
