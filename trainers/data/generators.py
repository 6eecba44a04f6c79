"""Somebody's generators of random numbers: begun at a seed, and asked if they drew."""

from __future__ import annotations

import gc
import pickle
import random
import sys
import types
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

# Those that code draws from without naming one.
GLOBAL = (random.random.__self__, np.random.get_state.__self__)  # type: ignore[attr-defined]

_FLAT = (bool, int, float, complex, str, bytes, range, slice, type(None), type(...))
_MOST = 1_000_000  # objects that are looked at


class Generators:
    """Generators that ``roots`` reach: modules, functions, data sets.

    By attributes, containers, closures and globals of code that is not installed.

    >>> draws = random.Random(0)
    >>> found = Generators([draws])
    >>> found.begin(3); first = draws.random(); found.drew()
    True
    >>> found.begin(3); draws.random() == first
    True
    """

    def __init__(self, *roots: Any) -> None:
        self._held = _reached(roots)
        self._states = self.now()

    def begin(self, seed: int) -> None:
        for _, begin in self._held:
            begin(seed)

    def drew(self) -> bool:
        """Return whether one is not where it was at first."""
        return self._states != self.now()

    def now(self) -> list[bytes]:
        return [pickle.dumps(state()) for state, _ in self._held]


Held = tuple[Callable[[], Any], Callable[[int], Any]]


def _reached(roots: Any) -> list[Held]:
    """Generators among the objects that ``roots`` lead to."""
    seen: dict[int, Any] = {}  # by identity, which nothing else gets
    found, waiting = [], [*roots]
    while waiting and len(seen) < _MOST:
        value = waiting.pop()
        if isinstance(value, _FLAT) or id(value) in seen or _is_installed(value):
            continue
        seen[id(value)] = value
        if (held := generator_of(value)) is not None:
            found.append(held)
        elif isinstance(value, types.FunctionType):
            waiting += [value.__closure__, value.__defaults__, value.__kwdefaults__]
            waiting.append(value.__dict__)
            # Of all that stands beside it in its module, what it names.
            names = _names(value.__code__) & value.__globals__.keys()
            waiting += [value.__globals__[name] for name in names]
        else:
            waiting += gc.get_referents(value)
            waiting.append(getattr(value, "__self__", None))  # of a method of C's
    return found


def _names(code: types.CodeType) -> set[str]:
    """Names that a function's code has, and that of functions within it."""
    inner = [one for one in code.co_consts if isinstance(one, types.CodeType)]
    return {*code.co_names}.union(*map(_names, inner))


def _is_installed(value: Any) -> bool:
    """Return whether it is code of no user's: of ours, Python's own, or installed."""
    if isinstance(value, types.ModuleType):
        name = value.__name__
    elif isinstance(value, type | types.FunctionType):
        name = value.__module__
    else:
        return False
    package = (name or "").partition(".")[0]
    file = getattr(sys.modules.get(package), "__file__", None) or ""
    return (
        package in ("privaudit", "trainers")
        or package in sys.stdlib_module_names - {"__main__"}
        or "-packages" in file
    )


def generator_of(value: Any) -> Held | None:
    """Functions that read a generator's state, and begin it at a seed; or None."""
    if isinstance(value, torch.Generator):
        return lambda: value.get_state().numpy(), value.manual_seed
    if isinstance(value, np.random.Generator):
        bits: Any = value.bit_generator

        def begin(seed: int) -> None:
            bits.state = type(bits)(seed % 2**64).state

        return lambda: bits.state, begin
    if isinstance(value, np.random.RandomState):
        return value.get_state, lambda seed: value.seed(seed % 2**32)
    system = isinstance(value, random.SystemRandom)  # which has no state
    if isinstance(value, random.Random) and not system:
        return value.getstate, value.seed
    return None
