"""Deep-Q networks that choose between the local and the global model, many at once.

Paper 002, Algorithm 2: a network for each node and class, with experience replay and a
target network. Its input is a private model and a private loss: everything here,
the choices included, depends on private data without noise.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import torch
from torch import Tensor

from trainers.collaborative.policies import exploration
from trainers.optimisers import OPTIMISERS


@dataclasses.dataclass(frozen=True, slots=True)
class QSettings:
    """Settings of paper 002, section V, but for those marked.

    Parameters
    ----------
    hidden
        Units of each of the two hidden layers; all activations are linear.
    learning_rate, discount
        The paper prints one symbol, 0.01, for both.
    replay, batch
        Transitions that are remembered, and that one step learns from.
    target_every
        Steps between copies to the target network ("C"); ours, the paper has none.
    least_exploration
        What the share of random choices falls to.
    """

    hidden: int = 128
    learning_rate: float = 0.01
    discount: float = 0.01
    replay: int = 20
    batch: int = 10
    target_every: int = 10
    least_exploration: float = 0.1

    def __post_init__(self) -> None:
        for name in ("hidden", "replay", "batch", "target_every"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be >= 1, got {getattr(self, name)}")
        for name in ("discount", "least_exploration"):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"{name} must be in [0, 1], got {getattr(self, name)}")
        if not 0 < self.learning_rate < float("inf"):
            raise ValueError(f"learning_rate must be > 0, got {self.learning_rate}")


class QNetworks:
    """Networks of one shape, (runs, nodes, classes) of them, each with its own memory.

    Parameters
    ----------
    shape
        (runs, nodes, classes)
    features
        Of a state.
    turns
        Of the whole run, which the exploration is annealed over.
    settings
        Of learning.
    generators
        One a node, for all that is random of its networks.
    """

    def __init__(
        self,
        shape: tuple[int, int, int],
        features: int,
        turns: int,
        settings: QSettings,
        generators: list[torch.Generator],
    ) -> None:
        self.settings = settings
        self.turns = turns
        self._generators = generators
        self._shape = shape
        hidden = settings.hidden
        self._sizes = [(features, hidden), (hidden, hidden), (hidden, 2)]
        self.network = self._xavier()  # (runs, nodes, classes, parameters)
        self.target = self.network.clone()
        self._adam = OPTIMISERS["adam"]
        self._optimiser = self._adam.init(self.network)
        self._states = torch.zeros(*shape, settings.replay, 2, features)
        self._actions = torch.zeros(*shape, settings.replay, dtype=torch.long)
        self._rewards = torch.zeros(*shape, settings.replay)
        self._stored = self._learned = 0

    def _draw(self, *more: int, kind: str = "rand") -> Tensor:
        """Random numbers, (runs, nodes, classes, *more), each node's own."""
        runs, _, classes = self._shape
        make = getattr(torch, kind)
        parts = [make(runs, classes, *more, generator=g) for g in self._generators]
        return torch.stack(parts, 1)

    def _xavier(self) -> Tensor:
        parts = []
        for inputs, outputs in self._sizes:
            bound = (6 / (inputs + outputs)) ** 0.5
            parts.append((2 * self._draw(inputs * outputs) - 1) * bound)
            parts.append(torch.zeros(*self._shape, outputs))
        return torch.cat(parts, -1)

    def values(self, network: Tensor, states: Tensor) -> Tensor:
        """Q of both actions, (..., batch, 2), for states (..., batch, features)."""
        at = 0
        for inputs, outputs in self._sizes:
            weight = network[..., at : at + inputs * outputs]
            at += inputs * outputs
            bias = network[..., at : at + outputs]
            at += outputs
            states = states @ weight.unflatten(-1, (inputs, outputs))
            states = states + bias.unsqueeze(-2)
        return states

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
        with torch.enable_grad():
            network = self.network.detach().requires_grad_()
            told = self.values(network, states[..., 0, :])
            actions = self._actions.gather(-1, chosen)[..., None]
            error = told.gather(-1, actions)[..., 0] - wanted
            # Summed over networks: each has its own gradient.
            error.square().mean(-1).sum().backward()
        down = network.grad
        assert down is not None
        self.network, self._optimiser = self._adam.step(
            self._optimiser, self.network, down, settings.learning_rate
        )
        self._learned += 1
        if self._learned % settings.target_every == 0:
            self.target = self.network.clone()

    def choose(self, states: Tensor, turn: int) -> Tensor:
        """Global or not, bool, (runs, nodes, classes), for states (..., features)."""
        greedy = self.values(self.network, states.unsqueeze(-2))[..., 0, :].argmax(-1)
        share = exploration(turn, self.turns, self.settings.least_exploration)
        explores, coins = self._draw(2).unbind(-1)
        return torch.where(explores < share, coins < 0.5, greedy == 1)

    def state_dict(self) -> dict[str, Any]:
        """All that is needed to go on, for `trainers.checkpoint`."""
        return {
            "network": self.network,
            "target": self.target,
            "optimiser": self._optimiser,
            "states": self._states,
            "actions": self._actions,
            "rewards": self._rewards,
            "stored": self._stored,
            "learned": self._learned,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from where networks of this shape stood."""
        from trainers.checkpoint import like

        self.network, self.target = state["network"], state["target"]
        self._optimiser = like(self._optimiser, state["optimiser"])
        self._states, self._actions = state["states"], state["actions"]
        self._rewards = state["rewards"]
        self._stored, self._learned = state["stored"], state["learned"]
