"""Somebody's generators of random numbers: put back, or begun at a seed."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import torch


def generator_of(
    value: Any,
) -> tuple[Callable[[], Any], Callable[[int], Any]] | None:
    """Functions that put a generator back, and begin it at a seed; None if it is none.

    >>> draws = random.Random(0)
    >>> back, begin = generator_of(draws)
    >>> first = draws.random(); back(); draws.random() == first
    True
    """
    if isinstance(value, torch.Generator):
        kept = value.get_state()
        return lambda: value.set_state(kept), value.manual_seed
    if isinstance(value, np.random.Generator):
        bits: Any = value.bit_generator
        state, kind = bits.state, type(bits)
        return (
            lambda: setattr(bits, "state", state),
            lambda seed: setattr(bits, "state", kind(seed % 2**64).state),
        )
    if isinstance(value, np.random.RandomState):
        was: Any = value.get_state()
        return lambda: value.set_state(was), lambda seed: value.seed(seed % 2**32)
    if isinstance(value, random.Random):
        now = value.getstate()
        return lambda: value.setstate(now), value.seed
    return None
