"""Somebody's generators of random numbers: put back, or begun at a seed."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

# Those that code draws from without naming one.
GLOBAL = (random.random.__self__, np.random.get_state.__self__)  # type: ignore[attr-defined]


def generator_of(
    value: Any,
) -> tuple[Callable[[], Any], Callable[[Any], Any], Callable[[int], Any]] | None:
    """Functions that read a generator's state, set it, and begin it at a seed.

    None for what is no generator.

    >>> draws = random.Random(0)
    >>> state, put, begin = generator_of(draws)
    >>> was, first = state(), draws.random()
    >>> put(was); draws.random() == first
    True
    """
    if isinstance(value, torch.Generator):
        return (
            lambda: value.get_state().numpy(),
            lambda state: value.set_state(torch.from_numpy(state)),
            value.manual_seed,
        )
    if isinstance(value, np.random.Generator):
        bits: Any = value.bit_generator

        def put(state: Any) -> None:
            bits.state = state

        return lambda: bits.state, put, lambda seed: put(type(bits)(seed % 2**64).state)
    if isinstance(value, np.random.RandomState):
        return (
            value.get_state,
            value.set_state,
            lambda seed: value.seed(seed % 2**32),
        )
    system = isinstance(value, random.SystemRandom)  # which has no state
    if isinstance(value, random.Random) and not system:
        return value.getstate, value.setstate, value.seed
    return None
