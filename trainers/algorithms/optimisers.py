"""First-order steps on stacked parameters, and algorithms that take them."""

from __future__ import annotations

import dataclasses
from typing import Annotated, Any, ClassVar, Literal

import torch
from msgspec import Meta
from torch import Tensor

from privaudit.files.arguments import Checked
from privaudit.task_settings import NotNegative, Positive
from trainers.network.engine import Algorithm, Inbox, WorksFirst

Decay = Annotated[float, Meta(ge=0, lt=1)]
OptimiserName = Literal["adam", "adamw", "sgd", "momentum"]


class Optimiser:
    """One step from a gradient; coordinates do not see each other."""

    def init(self, at: Tensor) -> Any:
        """The state before the first step, for parameters like ``at``."""

    def step(
        self, state: Any, at: Tensor, gradient: Tensor, step_size: float
    ) -> tuple[Tensor, Any]:
        """Parameters and state after one step down ``gradient``, both like ``at``."""
        moved, state = self.direction(state, at, gradient)
        return at - step_size * moved, state

    def direction(self, state: Any, at: Tensor, gradient: Tensor) -> tuple[Tensor, Any]:
        """Direction to take off ``at``, times a step size, and the state."""
        return gradient, state


@dataclasses.dataclass(frozen=True, slots=True)
class Descent(Optimiser):
    """at <- at - eta gradient."""


@dataclasses.dataclass(frozen=True, slots=True)
class Momentum(Checked, Optimiser):
    """v <- decay v + gradient; at <- at - eta v (Polyak 1964), as torch's SGD.

    ``weight_decay``: times ``at``, added to the gradient.
    """

    decay: Decay = 0.9
    weight_decay: NotNegative = 0.0
    by_coordinate: ClassVar[bool] = True  # and to the bit, which lerp is not

    def init(self, at: Tensor) -> Tensor:
        return torch.zeros_like(at)

    def direction(
        self, state: Tensor, at: Tensor, gradient: Tensor
    ) -> tuple[Tensor, Tensor]:
        if self.weight_decay:
            gradient = gradient + self.weight_decay * at
        moved = self.decay * state + gradient
        return moved, moved


@dataclasses.dataclass(frozen=True, slots=True)
class Moments:
    """Running means of the gradient and of its square, and of how many steps."""

    first: Tensor
    second: Tensor
    steps: int


@dataclasses.dataclass(frozen=True, slots=True)
class Adam(Checked, Optimiser):
    """Adam (Kingma and Ba 2015, Algorithm 1); with decay, AdamW.

    ``weight_decay``: eta times it off the parameters a step (Loshchilov and Hutter
    2019).
    """

    first_decay: Decay = 0.9
    second_decay: Decay = 0.999
    epsilon: Positive = 1e-8
    weight_decay: NotNegative = 0.0

    def init(self, at: Tensor) -> Moments:
        return Moments(torch.zeros_like(at), torch.zeros_like(at), 0)

    def step(
        self, state: Moments, at: Tensor, gradient: Tensor, step_size: float
    ) -> tuple[Tensor, Moments]:
        mean, spread, moments = self._moments(state, gradient)
        kept = at * (1 - step_size * self.weight_decay) if self.weight_decay else at
        return kept - step_size * mean / (spread + self.epsilon), moments

    def direction(
        self, state: Moments, at: Tensor, gradient: Tensor
    ) -> tuple[Tensor, Moments]:
        """The mean over the root mean square; with decay, and some of ``at``."""
        mean, spread, moments = self._moments(state, gradient)
        found = mean / (spread + self.epsilon)
        if self.weight_decay:
            found = found + self.weight_decay * at
        return found, moments

    def _moments(
        self, state: Moments, gradient: Tensor
    ) -> tuple[Tensor, Tensor, Moments]:
        """The mean, the root mean square, and the state."""
        steps = state.steps + 1
        first = state.first.lerp(gradient, 1 - self.first_decay)
        second = state.second.lerp(gradient.square(), 1 - self.second_decay)
        mean = first / (1 - self.first_decay**steps)
        spread = (second / (1 - self.second_decay**steps)).sqrt_()
        return mean, spread, Moments(first, second, steps)


OPTIMISERS: dict[OptimiserName, Optimiser] = {
    "adam": Adam(),
    "adamw": Adam(weight_decay=0.01),
    "sgd": Descent(),
    "momentum": Momentum(),
}


@dataclasses.dataclass(frozen=True, slots=True)
class State:
    """State of the algorithm and of the optimiser, (runs, nodes, dims) each tensor."""

    algorithm: Any
    optimiser: Any


@dataclasses.dataclass(frozen=True, slots=True)
class Optimised:
    """An algorithm whose noisy gradients an optimiser makes steps of, node by node.

    The step over the step size is what the algorithm gets in the gradient's place.
    """

    algorithm: Algorithm
    optimiser: Optimiser

    @property
    def by_coordinate(self) -> bool:
        """Return whether both are computed coordinate by coordinate."""
        both = (self.algorithm, self.optimiser)
        return all(getattr(one, "by_coordinate", False) for one in both)

    def init(self, start: Tensor) -> State:
        return State(self.algorithm.init(start), self.optimiser.init(start))

    def local(self, state: State, private: Any, k: int) -> State:
        if not isinstance(self.algorithm, WorksFirst):
            return state
        oracle = _Directions(private, self.optimiser, state.optimiser)
        return State(self.algorithm.local(state.algorithm, oracle, k), oracle.state)

    def messages(self, state: State, k: int) -> dict[str, Tensor]:
        return self.algorithm.messages(state.algorithm, k)

    def round(self, state: State, inbox: Inbox, private: Any, k: int) -> State:
        oracle = _Directions(private, self.optimiser, state.optimiser)
        after = self.algorithm.round(state.algorithm, inbox, oracle, k)
        return State(after, oracle.state)

    def models(self, state: State) -> Tensor:
        return self.algorithm.models(state.algorithm)


class _Directions:
    """An oracle, whose gradients go through the optimiser."""

    def __init__(self, private: Any, optimiser: Optimiser, state: Any) -> None:
        self._private = private
        self._optimiser = optimiser
        self.state = state

    def gradient(self, at: Tensor) -> Tensor:
        noisy = self._private.gradient(at=at)
        found, self.state = self._optimiser.direction(self.state, at, noisy)
        return found

    def __getattr__(self, name: str) -> Any:
        return getattr(self._private, name)


def optimiser_named(text: str | None) -> Optimiser | None:
    """From text such as ``momentum:decay=0.8``; None for plain descent."""
    name, _, given = (text or "sgd").partition(":")
    if name not in OPTIMISERS:
        raise ValueError(
            f"there is no optimiser {name!r}; choose one of {', '.join(OPTIMISERS)}"
        )
    found = OPTIMISERS[name]
    assert isinstance(found, Adam | Descent | Momentum)
    known = [field.name for field in dataclasses.fields(found)]
    options = {}
    for part in given.split(",") if given else ():
        option, _, value = part.partition("=")
        if option not in known:
            raise ValueError(
                f"the optimiser {name} has no option {option!r}; it has "
                f"{', '.join(known) or 'none'}"
            )
        try:
            options[option] = float(value)
        except ValueError:
            raise ValueError(
                f"optimiser {name}: {option} is a number, got {value!r}"
            ) from None
    try:
        found = dataclasses.replace(found, **options)
    except ValueError as error:
        raise ValueError(f"optimiser {name}: {error}") from None
    return None if isinstance(found, Descent) else found
