"""Noisy gradients from DiNNO's messages, where its steps are Adam's.

Whoever hears all that a node hears knows its dual and its penalty, c_k, and sees its
step D_k = eta m_k / sqrt(v_k), bias corrected, of d_k = G_k + c_k. Scaling all d_k by
one number changes no step (but for Adam's epsilon, 1e-8): a coordinate hides its scale
and nothing else. From |d_0| = 1 on, each step gives the next d_k as the root of a
quadratic; where there are two, the nearer to 0 is taken, and a wrong guess is only
another scale from there on. The scale is then the most likely one for noise of known
size: r with r^2 sum h^2 - r sum h c - K s^2 = 0, where d_k = r h_k.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from privaudit.auditing.attacks.canaries import CANARY_NODE
from privaudit.auditing.attacks.contract import Differentiator, Scene, Watcher
from privaudit.auditing.attacks.likelihood import clipped_sum, log_ratio
from trainers.algorithms.dinno import Dinno
from trainers.algorithms.optimisers import OPTIMISERS, Adam
from trainers.network.engine import Observer


def adam_of(scene: Scene) -> tuple[Dinno, Adam] | None:
    """The algorithm and its optimiser where this is the reading; None elsewhere."""
    algorithm = scene.problem.network.algorithm
    if not isinstance(algorithm, Dinno) or algorithm.inner_steps != 1:
        return None
    optimiser = OPTIMISERS[algorithm.optimiser]
    crafted = scene.canary.direction is not None
    return (algorithm, optimiser) if isinstance(optimiser, Adam) and crafted else None


class AdamWatcher(Watcher):
    """Keeps the node's parameters and what else moves them, where it matters."""

    def __init__(self, scene: Scene, gradients: Differentiator) -> None:
        found, direction = adam_of(scene), scene.canary.direction
        assert found is not None
        assert direction is not None
        self._algorithm, self._optimiser = found
        self._scene = scene
        self._gradients = gradients
        self._mixing = scene.problem.training.mixing()
        self._alone = direction.is_floating_point()
        self._places = direction.nonzero()[:, 0] if self._alone else direction
        self._direction = direction[self._places].double() if self._alone else None
        self._at: list[Tensor] = []  # (runs, places), round by round
        self._known: list[Tensor] = []  # c_k, likewise
        self._dual: Tensor | float = 0.0

    @property
    def observers(self) -> tuple[Observer, ...]:
        return (self,)

    def messages(self, k: int, sent: Mapping[str, Tensor]) -> None:
        """Keep what is known of the step of round ``k``."""
        theta = sent["theta"][:, :, self._places].double()
        own = theta[:, CANARY_NODE]
        away = self._mixing.degree(k)[CANARY_NODE] * own
        away = away - self._mixing.neighbour_sum(theta, k)[:, CANARY_NODE]
        rho = self._algorithm.rho(k)
        self._dual = self._dual + rho * away
        self._at.append(own)
        # The penalty's gradient at theta_i is 2 rho (n theta_i - (n theta_i + near)/2).
        self._known.append(self._dual + rho * away + self._others(k, sent["theta"]))

    def _others(self, k: int, theta: Tensor) -> Tensor | float:
        """Gradient of the node's other records, on average."""
        scene = self._scene
        if scene.silent:
            return 0.0
        at = theta[:, CANARY_NODE]
        total = clipped_sum(scene, self._gradients, CANARY_NODE, k, at)
        scale = scene.rate / scene.mechanism.batch_size
        return scale * total[:, self._places].double()

    def score(self, models: Tensor) -> Tensor:
        """The likelihood ratios of what the steps show; the last is not sent."""
        scene, rounds = self._scene, len(self._at) - 1
        total = torch.zeros(len(models), len(scene.canary), dtype=torch.float64)
        if rounds < 1:
            return total
        steps = torch.stack(self._relative(rounds))  # h, (rounds, runs, places)
        known = torch.stack(self._known[:rounds])
        scales = [scene.scales(index) for index in range(rounds)]
        divisor = scene.mechanism.batch_size
        noise = torch.tensor([each[1] / divisor for each in scales])[:, None, None]
        h, c = steps / noise, known / noise
        squares, product = h.square().sum(0), (h * c).sum(0)
        root = (product.square() + 4 * squares * rounds).sqrt()
        x = (product + root) / (2 * squares) * h - c  # in units of the noise
        seen = x if self._direction is None else (x @ self._direction)[..., None]
        for index, along in enumerate(seen):
            clip, size = scales[index]
            total += log_ratio(along, clip / size, scene.rate, replaces=scene.replaces)
        return total

    def _relative(self, rounds: int) -> list[Tensor]:
        """d_0, d_1, ... up to one factor a run and coordinate."""
        adam, algorithm = self._optimiser, self._algorithm
        one, two = adam.first_decay, adam.second_decay
        first = second = torch.zeros_like(self._at[0])
        found, count = [], 0
        for k in range(rounds):
            if algorithm.optimiser_state == "rebuilt":
                first, second, count = first * 0, second * 0, 0
            count += 1
            rate = algorithm.step_size(k)
            moved = self._at[k] * (1 - rate * adam.weight_decay) - self._at[k + 1]
            ratio = moved / rate * (1 - one**count) / (1 - two**count) ** 0.5
            step = _solve(one * first, 1 - one, two * second, 1 - two, ratio)
            found.append(step)
            first = one * first + (1 - one) * step
            second = two * second + (1 - two) * step.square()
        return found


def _solve(a: Tensor, b: float, c: Tensor, d: float, y: Tensor) -> Tensor:
    """The root g nearest to 0 of (a + b g) / sqrt(c + d g^2) = y, or its turn."""
    square = b * b - y.square() * d
    half = a * b
    rest = a.square() - y.square() * c
    root = (half.square() - square * rest).clamp_min(0).sqrt()
    # Stable forms of the two roots of a quadratic.
    larger = -(half + torch.where(half < 0, -root, root))
    tiny = torch.finfo(a.dtype).tiny
    both = torch.stack([larger / _apart(square, tiny), rest / _apart(larger, tiny)])
    wrong = (a + b * both) * y < 0
    pick = torch.where(wrong, torch.inf, both.abs()).argmin(0, keepdim=True)
    root = both.gather(0, pick)[0]
    root = torch.where(torch.isfinite(root), root, torch.zeros_like(root))
    sign = torch.where(y < 0, -torch.ones_like(y), torch.ones_like(y))
    return torch.where(c == 0, sign, root)


def _apart(value: Tensor, tiny: float) -> Tensor:
    return torch.where(value.abs() < tiny, torch.full_like(value, tiny), value)
