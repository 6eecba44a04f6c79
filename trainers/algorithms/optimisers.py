"""First-order steps on stacked parameters, with their state passed in and returned."""

from __future__ import annotations

import dataclasses
from typing import Any, Literal, Protocol

import torch
from torch import Tensor

OptimiserName = Literal["adam", "adamw", "sgd"]


class Optimiser(Protocol):
    """One step from a gradient; coordinates do not see each other."""

    def init(self, at: Tensor) -> Any:
        """The state before the first step, for parameters like ``at``."""
        ...

    def step(
        self, state: Any, at: Tensor, gradient: Tensor, step_size: float
    ) -> tuple[Tensor, Any]:
        """Parameters and state after one step down ``gradient``, both like ``at``."""
        ...


@dataclasses.dataclass(frozen=True, slots=True)
class Descent:
    """at <- at - eta gradient."""

    def init(self, at: Tensor) -> None:
        """Nothing is kept."""

    def step(
        self, state: None, at: Tensor, gradient: Tensor, step_size: float
    ) -> tuple[Tensor, None]:
        """One step."""
        return at - step_size * gradient, None


@dataclasses.dataclass(frozen=True, slots=True)
class Moments:
    """Running means of the gradient and of its square, and of how many steps."""

    first: Tensor
    second: Tensor
    steps: int


@dataclasses.dataclass(frozen=True, slots=True)
class Adam:
    """Adam (Kingma and Ba 2015, Algorithm 1); with decay, AdamW.

    ``weight_decay`` takes the share eta weight_decay off the parameters at each step,
    apart from the gradient (Loshchilov and Hutter 2019, Algorithm 2 without schedule).
    The defaults are the paper's, and torch's.
    """

    first_decay: float = 0.9
    second_decay: float = 0.999
    epsilon: float = 1e-8
    weight_decay: float = 0.0

    def init(self, at: Tensor) -> Moments:
        """No steps yet."""
        return Moments(torch.zeros_like(at), torch.zeros_like(at), 0)

    def step(
        self, state: Moments, at: Tensor, gradient: Tensor, step_size: float
    ) -> tuple[Tensor, Moments]:
        """One step."""
        steps = state.steps + 1
        first = state.first.lerp(gradient, 1 - self.first_decay)
        second = state.second.lerp(gradient.square(), 1 - self.second_decay)
        mean = first / (1 - self.first_decay**steps)
        spread = (second / (1 - self.second_decay**steps)).sqrt_()
        kept = at * (1 - step_size * self.weight_decay) if self.weight_decay else at
        new = kept - step_size * mean / (spread + self.epsilon)
        return new, Moments(first, second, steps)


OPTIMISERS: dict[OptimiserName, Optimiser] = {
    "adam": Adam(),
    "adamw": Adam(weight_decay=0.01),
    "sgd": Descent(),
}
