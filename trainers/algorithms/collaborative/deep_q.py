"""Deep-Q networks that choose between the local and the global model, many at once.

Paper 002, Algorithm 2: one a node and class, with replay and a target network. Inputs
are private: so is everything here, the choices included.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from privaudit.files.arguments import Checked
from privaudit.task_settings import AtLeastOne, Natural, Positive, Share
from trainers.algorithms.collaborative.policies import exploration

_KEPT = (  # attributes of networks, in a checkpoint
    *("network", "target", "_first", "_second"),
    *("_states", "_actions", "_rewards", "_stored", "_learned"),
)


@dataclasses.dataclass(frozen=True, slots=True)
class QSettings(Checked):
    """Settings of paper 002, section V, but for those marked."""

    hidden: AtLeastOne = 128  # of the hidden layer; all activations are linear
    # learning_rate, discount: the paper prints one symbol, 0.01, for both
    learning_rate: Positive = 0.01
    discount: Share = 0.01
    # replay, batch: transitions that are remembered, and that one step learns from
    replay: AtLeastOne = 20
    batch: AtLeastOne = 10
    # steps between copies to the target network ("C"); ours, the paper has none
    target_every: AtLeastOne = 10
    least_exploration: Share = 0.1  # what the share of random choices falls to
    # of the networks' own coins, where these are known to all: first weights,
    # exploration and replay are then equal in all runs. None: each run has its own,
    # which nobody knows
    seed: Natural | None = None


class QNetworks:
    """Networks of one shape, (runs, nodes, classes) of them, with a memory each."""

    def __init__(
        self,
        shape: tuple[int, int, int],  # (runs, nodes, classes)
        features: int,  # of a state
        turns: int,  # of the whole run, which the exploration is annealed over
        settings: QSettings,  # of learning
        # from (runs, count) to fresh uniform numbers in [0, 1), (runs, nodes, count),
        # each node's own: all that is random of its networks
        draw: Callable[[tuple[int, int]], Tensor],
        device: torch.device | None = None,  # where they are
    ) -> None:
        self.settings = settings
        self.turns = turns
        self._uniform = draw
        self._shape = shape
        self._device = device
        hidden = settings.hidden
        self._sizes = [(features, hidden), (hidden, 2)]
        self.network = self._xavier()  # weight and bias of each layer
        self.target = [part.clone() for part in self.network]
        self._first = [torch.zeros_like(part) for part in self.network]  # Adam's
        self._second = [torch.zeros_like(part) for part in self.network]
        past = (*shape, settings.replay)
        self._states = torch.zeros(*past, 2, features, device=device)
        self._actions = torch.zeros(past, dtype=torch.long, device=device)
        self._rewards = torch.zeros(past, device=device)
        self._stored = self._learned = 0

    def _draw(self, *more: int) -> Tensor:
        """Uniform numbers, (runs, nodes, classes, *more), each node's own."""
        runs, _, classes = self._shape
        own = runs if self.settings.seed is None else 1
        drawn = self._uniform((own, classes * math.prod(more))).float()
        drawn = drawn.unflatten(2, (classes, *more))
        return drawn.expand(runs, *[-1] * (2 + len(more)))

    def _xavier(self) -> list[Tensor]:
        parts = []
        for inputs, outputs in self._sizes:
            bound = (6 / (inputs + outputs)) ** 0.5
            parts.append(((2 * self._draw(inputs, outputs) - 1) * bound).contiguous())
            parts.append(torch.zeros((*self._shape, 1, outputs), device=self._device))
        return parts

    @staticmethod
    def values(network: list[Tensor], states: Tensor) -> Tensor:
        """Q of both actions, (..., batch, 2), for states (..., batch, features)."""
        for weight, bias in zip(network[::2], network[1::2], strict=True):
            states = states @ weight + bias
        return states

    def gradient(self, states: Tensor, error: Tensor) -> list[Tensor]:
        """Gradient of each weight and bias from ``error``, dQ, (..., batch, 2)."""
        weights, inputs = self.network[::2], [states]
        for weight, bias in zip(weights[:-1], self.network[1:-1:2], strict=True):
            inputs.append(inputs[-1] @ weight + bias)
        found: list[Tensor] = []
        for weight, entered in zip(weights[::-1], inputs[::-1], strict=True):
            found = [entered.mT @ error, error.sum(-2, keepdim=True), *found]
            error = error @ weight.mT
        return found

    def remember(self, before: Tensor, action: Tensor, reward: Tensor, after: Tensor):
        """Keep one transition of every network in the place of the oldest."""
        place = self._stored % self.settings.replay
        self._states[..., place, 0, :] = before
        self._states[..., place, 1, :] = after
        self._actions[..., place] = action.long()
        self._rewards[..., place] = reward
        self._stored += 1

    def learn(self) -> None:
        """One step of Adam on a batch of what is remembered, and perhaps a reset."""
        settings = self.settings
        known = min(self._stored, settings.replay)
        # With repeats while fewer are known than a batch holds.
        chosen = (self._draw(settings.batch) * known).long()
        rows = chosen[..., None, None].expand(*chosen.shape, 2, self._sizes[0][0])
        states = self._states.gather(-3, rows)
        best = self.values(self.target, states[..., 1, :]).amax(-1)
        wanted = self._rewards.gather(-1, chosen) + settings.discount * best
        told = self.values(self.network, states[..., 0, :])
        actions = self._actions.gather(-1, chosen)[..., None]
        error = torch.zeros_like(told)
        # Of the mean over the batch of the squared error.
        off = told.gather(-1, actions) - wanted[..., None]
        error.scatter_(-1, actions, 2 / settings.batch * off)
        self._descend(self.gradient(states[..., 0, :], error))
        if self._learned % settings.target_every == 0:
            self.target = [part.clone() for part in self.network]

    def _descend(self, down: list[Tensor]) -> None:
        """One step of Adam (Kingma and Ba 2015, Algorithm 1), in place."""
        self._learned += 1
        first_decay, second_decay = 0.9, 0.999
        rate = self.settings.learning_rate / (1 - first_decay**self._learned)
        correction = (1 - second_decay**self._learned) ** 0.5
        each = zip(self.network, down, self._first, self._second, strict=True)
        for part, one, first, second in each:
            first.lerp_(one, 1 - first_decay)
            second.mul_(second_decay).addcmul_(one, one, value=1 - second_decay)
            torch.sqrt(second, out=one)
            one.div_(correction).add_(1e-8)
            part.addcdiv_(first, one, value=-rate)

    def choose(self, states: Tensor, turn: int) -> Tensor:
        """Global or not, bool, (runs, nodes, classes), for states (..., features)."""
        greedy = self.values(self.network, states.unsqueeze(-2))[..., 0, :].argmax(-1)
        share = exploration(turn, self.turns, self.settings.least_exploration)
        explores, coins = self._draw(2).unbind(-1)
        return torch.where(explores < share, coins < 0.5, greedy == 1)

    def state_dict(self) -> dict[str, Any]:
        return {name.strip("_"): getattr(self, name) for name in _KEPT}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        for name in _KEPT:
            setattr(self, name, state[name.strip("_")])
