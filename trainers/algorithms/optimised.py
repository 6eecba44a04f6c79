"""An optimiser between an oracle's noisy gradients and whatever algorithm asks."""

from __future__ import annotations

import dataclasses
from typing import Any

from torch import Tensor

from trainers.algorithms.optimisers import (
    OPTIMISERS,
    Adam,
    Descent,
    Momentum,
    Optimiser,
)
from trainers.network.engine import Algorithm, Inbox, WorksFirst


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

    def init(self, start: Tensor) -> State:
        """Both at their beginning."""
        return State(self.algorithm.init(start), self.optimiser.init(start))

    def local(self, state: State, private: Any, k: int) -> State:
        """Step of the algorithm before it sends, if there is any."""
        if not isinstance(self.algorithm, WorksFirst):
            return state
        oracle = _Directions(private, self.optimiser, state.optimiser)
        return State(self.algorithm.local(state.algorithm, oracle, k), oracle.state)

    def messages(self, state: State, k: int) -> dict[str, Tensor]:
        """The algorithm's."""
        return self.algorithm.messages(state.algorithm, k)

    def round(self, state: State, inbox: Inbox, private: Any, k: int) -> State:
        """The algorithm's."""
        oracle = _Directions(private, self.optimiser, state.optimiser)
        return State(
            self.algorithm.round(state.algorithm, inbox, oracle, k), oracle.state
        )

    def models(self, state: State) -> Tensor:
        """The algorithm's."""
        return self.algorithm.models(state.algorithm)


class _Directions:
    """An oracle, whose gradients go through the optimiser."""

    def __init__(self, private: Any, optimiser: Optimiser, state: Any) -> None:
        self._private = private
        self._optimiser = optimiser
        self.state = state

    def gradient(self, at: Tensor) -> Tensor:
        """The direction of a step at ``at``, (runs, nodes, dims)."""
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
    found = dataclasses.replace(found, **options)
    return None if isinstance(found, Descent) else found
