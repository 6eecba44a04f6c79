"""State that somebody's code can keep from one call to the next, put back."""

from __future__ import annotations

import builtins
import contextlib
import contextvars
import pickle
import types
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor

from trainers.data import holders
from trainers.data.generators import generator_of

_LARGE = 1 << 20  # bytes; beyond, a data set's arrays are left
_FLAT = (bool, int, float, complex, str, bytes, range, slice, type(None), type(...))


class Kept:
    """The mutable values that some objects reach, as they are now.

    These are attributes, containers, tensors, arrays and random generators; of
    functions also closures, defaults and the globals that their code names, with what
    they call; classes and modules, unless installed. Objects of C, files among them,
    and what installed code keeps elsewhere are left as they are.

    Parameters
    ----------
    roots
        Modules, functions and data sets whose code is run.
    largest
        Bytes of the largest tensor or array that is put back; None: of any.

    Attributes
    ----------
    lost
        The type of an iterator that they reach, whose place nothing can put back.
    opaque
        The type of an object of C that they reach, of which nothing is known.
    """

    lost: str | None = None
    opaque: str | None = None

    def __init__(self, roots: Iterable[Any], largest: int | None = None) -> None:
        self._seen: dict[int, Any] = {}  # by identity, which nothing else gets
        self._back: list[Callable[[], Any]] = []
        self._generators: list[tuple[Any, Any, Any, Any]] = []
        self._caches: list[Any] = []
        self._places: dict[int, Tensor] = {}  # in memory
        self._largest = largest
        self._seen[id(vars(builtins))] = builtins  # as of code without any others
        waiting = list(roots)
        while waiting:  # not by recursion: lists of lists may be deep
            value = waiting.pop()
            if id(value) not in self._seen and not isinstance(value, _FLAT):
                self._seen[id(value)] = value
                waiting += self._of(value)

    @classmethod
    def checked(cls, *roots: Any, data: bool = False) -> Kept:
        """All that ``roots`` reach, but for arrays as large as ``data`` are.

        Raises ``ValueError`` where something is `lost`, or, but of data, `opaque`.
        """
        found = cls(roots, _LARGE if data else None)
        lost = found.lost or (None if data else found.opaque)
        if lost is not None:
            raise ValueError(
                f"code keeps a {lost}, which nothing can put back where it was, "
                "so that what one record does to it reaches the next; keep a list or a "
                "number"
            )
        return found

    @contextlib.contextmanager
    def put_back(self, seed: int | None = None) -> Iterator[None]:
        """Be at the first values within and after it.

        Generators that are reached begin at ``seed``; None: where they were.
        """
        self.restore()
        if seed is not None:
            for *_, begin in self._generators:
                begin(seed)
        try:
            yield
        finally:
            self.restore()

    def restore(self) -> None:
        """Be at the first values."""
        with torch._C.DisableTorchFunction(), torch.no_grad():
            for back in self._back:
                back()
        for kept, _, put, _ in self._generators:
            put(kept)
        for cached in self._caches:
            cached.cache_clear()

    def drew(self) -> bool:
        """Return whether a generator that they reach is not where it was."""
        return any(
            pickle.dumps(kept) != pickle.dumps(state())
            for kept, state, *_ in self._generators
        )

    def _of(self, value: Any) -> Iterable[Any]:
        """Keep ``value`` itself; return what it leads to."""
        found: list[Any] = []
        for back, reached in self._held(value):
            if back is not None:
                self._back.append(back)
            found += reached
        return found

    def _held(self, value: Any) -> Iterable[holders.Held]:
        if isinstance(value, Tensor):
            yield holders.tensor(value, self._places, self._largest)
            yield holders.gradient(value)
            yield holders.attributes(value)
        elif isinstance(value, np.ndarray):
            yield holders.numbers(value, self._largest)
            yield holders.attributes(value)
        elif isinstance(value, type):
            yield holders.kind(value)
        elif isinstance(value, types.ModuleType):
            if not holders.is_ours(value.__name__):
                yield holders.attributes(value)
        elif isinstance(value, types.FunctionType):
            if not holders.is_ours(value.__module__):
                yield holders.function(value)
                yield holders.attributes(value)
        elif isinstance(value, types.CellType):
            yield holders.cell(value)
        elif (through := holders.leads_to(value)) is not None:
            yield None, through
        elif (generator := generator_of(value)) is not None:
            self._generators.append((generator[0](), *generator))
        elif isinstance(value, torch.jit.ScriptModule | contextvars.ContextVar) or (
            hasattr(type(value), "__next__")
            and type(value).__module__ in ("builtins", "itertools")
        ):
            self.lost = type(value).__name__
        elif hasattr(value, "cache_clear"):
            self._caches.append(value)
            yield None, (getattr(value, "__wrapped__", None),)
        elif holders.is_opaque(value):
            found = holders.memory(value)
            if found is None:
                self.opaque = type(value).__name__
            else:
                yield found
        else:
            yield holders.items(value)
            if not holders.is_left(value):
                yield None, (type(value),)
                yield holders.attributes(value)
                yield holders.slots(value)
