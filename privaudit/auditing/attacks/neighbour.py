"""The honest-but-curious neighbour, who sees the messages sent to one node."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from privaudit.auditing.attacks.canaries import CANARY_NODE
from privaudit.auditing.attacks.contract import Adversary, Scene, Watcher
from privaudit.auditing.attacks.likelihood import clipped_sum, log_ratio
from privaudit.auditing.attacks.messages import LinearAdversary, heard_by
from privaudit.auditing.attacks.perturbed import PerturbedWatcher
from trainers.algorithms.asynchronous.virtual_time import Asynchronous
from trainers.algorithms.dinno import Dinno
from trainers.algorithms.optimisers import OPTIMISERS, Adam
from trainers.gradients.differentiator import Differentiator
from trainers.network.engine import Observer
from trainers.oracles.messages.oracle import MessageMechanism


def adam_of(scene: Scene) -> tuple[Dinno, Adam] | None:
    """The algorithm and its optimiser where this is the reading; None elsewhere."""
    algorithm = scene.problem.network.algorithm
    if not isinstance(algorithm, Dinno) or algorithm.inner_steps != 1:
        return None
    optimiser = OPTIMISERS[algorithm.optimiser]
    crafted = scene.canary.direction is not None
    return (algorithm, optimiser) if isinstance(optimiser, Adam) and crafted else None


class AdamWatcher(Watcher):
    """Reads noisy gradients from DiNNO's messages, where its steps are Adam's.

    Whoever hears all that a node hears knows its dual and its penalty, c_k, and sees
    its step D_k = eta m_k / sqrt(v_k), bias corrected, of d_k = G_k + c_k. Scaling all
    d_k by one number changes no step (but for Adam's epsilon, 1e-8): a coordinate hides
    its scale and nothing else. From |d_0| = 1 on, each step gives the next d_k as the
    root of a quadratic; where there are two, the nearer to 0 is taken, and a wrong
    guess is only another scale from there on. The scale is then the most likely one for
    noise of known size: r with r^2 sum h^2 - r sum h c - K s^2 = 0, d_k = r h_k.
    """

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
        scale = scene.rate / scene.divisors[CANARY_NODE]
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
        divisor = scene.divisors[CANARY_NODE]
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


class Neighbour(LinearAdversary):
    """The messages that one neighbour of the canary's node hears, and its own.

    The neighbour that hears most of what the node does; it knows what is public, and
    all records but the canary. What it does not hear is noise. DiNNO's Adam is read by
    `adam`, for crafted gradients where it hears all; PartPSP and its kin by
    `perturbed`.
    """

    name = "neighbour"
    reads_models = False  # but what of them is sent
    sees = (
        "all that one neighbour of its node receives and sends, with all other records "
        "known"
    )

    def __init__(self, scene: Scene) -> None:
        self._by: Callable[[Scene, Differentiator], Watcher] | None = None
        if isinstance(scene.mechanism, MessageMechanism):
            self._by = PerturbedWatcher
        elif adam_of(scene) is not None and self._hears_all(scene):
            self._by = AdamWatcher
        if self._by is None:
            super().__init__(scene)
        else:
            Adversary.__init__(self, scene)

    def watch(self, runs: int, gradients: Differentiator) -> Watcher:
        if self._by is not None:
            return self._by(self.scene, gradients)
        return super().watch(runs, gradients)

    def _hears_all(self, scene: Scene) -> bool:
        """Return whether it hears all that the canary's node hears, in every round."""
        mixing = scene.problem.training.mixing()
        return all(
            mixing.at(k)[CANARY_NODE, node] == 0 or node in heard
            for k, heard in enumerate(self.hears(scene))
            for node in range(mixing.nodes)
        )

    def hears(self, scene: Scene) -> list[list[int]]:
        """Whom it hears, itself too, by round or exchange of the matrices' cycle."""
        network = scene.problem.network
        if isinstance(network, Asynchronous):
            return _exchanges(network, scene.problem.training.rounds)
        mixing = scene.problem.training.mixing()
        graphs = [mixing.at(k) > 0 for k in range(mixing.period)]

        def worth(node: int) -> int:
            own = sum(int(graph[node, CANARY_NODE]) for graph in graphs)
            both = sum(int((g[node] & g[CANARY_NODE]).sum()) for g in graphs)
            return both if own else -1

        apart = set(range(mixing.nodes)) - {CANARY_NODE}
        others = [node for node in sorted(apart) if worth(node) > 0]
        if not others:
            raise ValueError(
                f"nobody hears the canary's node with {scene.problem.training.nodes} "
                f"nodes of {scene.problem.training.algorithm}; choose another adversary"
            )
        return heard_by([max(others, key=worth)], graphs)


def _exchanges(network: Asynchronous, steps: int) -> list[list[int]]:
    """By global step: the pair that exchanges, if the busiest neighbour is of it."""
    pairs: list[list[int]] = [
        [] if step.partner is None else [step.worker, step.partner]
        for instant in network.algorithm.clock.instants(steps)
        for step in instant
    ]
    partners = [node for pair in pairs if CANARY_NODE in pair for node in pair]
    others = [node for node in partners if node != CANARY_NODE]
    if not others:
        raise ValueError(
            f"nobody exchanges models with the canary's node in {steps} steps; "
            "use more rounds, which are global steps here"
        )
    listener = max(sorted(set(others)), key=others.count)
    return [pair if listener in pair else [] for pair in pairs]
