"""Transforms of records as they are used: each by itself, with its own randomness."""

from __future__ import annotations

import functools
import random
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from trainers.data import forked
from trainers.data.forked import Ended
from trainers.data.generators import GLOBAL, Generators
from trainers.numerics.randomness import Streams

NO_CLASS = -100  # what torch's cross entropy passes over
_KEPT = 1 << 29  # bytes
_DREW = torch.tensor(True)
Transform = Callable[[Tensor], Any]  # of one record's input, to one like it


class Drawn:
    """Private data whose records draw numbers: by node, number, release and key."""

    sizes: tuple[int, ...]

    def __init__(self) -> None:
        self._streams: Streams | None = None
        self._numbers: Sequence[int] = ()
        self._words: dict[int, tuple[int, Tensor]] = {}  # by node: release, seeds
        self.release = 0

    def draws_from(self, streams: Streams, numbers: Sequence[int]) -> None:
        """Take random numbers from ``streams``, for nodes by their ``numbers``."""
        self._streams, self._numbers = streams, tuple(numbers)

    def records(self, node: Tensor, index: Tensor) -> tuple[Tensor, Tensor]:
        """Inputs and targets of records ``index`` (rows, samples) of nodes ``node``."""
        raise NotImplementedError

    def _seeds(self, node: int) -> Tensor:
        """A word for each record of a node in the release at hand, (records + 1,)."""
        assert self._streams is not None
        known = self._words.get(node)
        if known is None or known[0] != self.release:
            who, shape = [self._numbers[node]], (1, self.sizes[node] + 1)
            rows = self._streams.rows("transform", who, self.release, shape)
            known = self.release, rows.words(torch.device("cpu"))[0, 0]
            self._words[node] = known
        return known[1]


class Transformed(Drawn):
    """Private data whose inputs go through ``transform`` as they are read.

    What comes of a record is a function of it, its node and number, the release and the
    key: a clipped sum moves no further with it than without a transform.
    """

    def __init__(self, data: Any, transform: Transform) -> None:
        super().__init__()
        self._data = data
        self._transform = Alone(transform, _numbers)
        self.sizes = data.sizes

    def draws_from(self, streams: Streams, numbers: Sequence[int]) -> None:
        super().draws_from(streams, numbers)
        if isinstance(self._data, Drawn):
            self._data.draws_from(streams, numbers)

    def records(self, node: Tensor, index: Tensor) -> tuple[Tensor, Tensor]:
        if isinstance(self._data, Drawn):
            self._data.release = self.release
        inputs, targets = self._data.records(node, index)
        found, labels = inputs.cpu().clone(), targets.clone()
        for row, (who, wanted) in enumerate(zip(node.tolist(), index, strict=True)):
            once, places = wanted.cpu().unique(return_inverse=True)
            first = [int((places == each).nonzero()[0]) for each in range(len(once))]
            rows = found[row, first]
            keys = [(who, record) for record in once.tolist()]
            if isinstance(self._data, Drawn):  # which may be read otherwise next time
                keys = [(*key, self.release) for key in keys]
            seeds = self._seeds(who)[once].tolist()
            made = self._transform.each(keys, seeds, rows, like=rows[:1])
            for place, record in enumerate(places.tolist()):
                one = made[record]
                if isinstance(one, Ended):
                    found[row, place], labels[row, place] = void(
                        (rows[record], targets[row, place])
                    )
                else:
                    (found[row, place],) = one
        return found.to(inputs.device), labels

    def __getattr__(self, name: str) -> Any:
        return getattr(self._data, name)


def check_transform(transform: Transform, inputs: Tensor) -> None:
    """Try ``transform`` on (samples, ...): ``ValueError`` unless shapes stay."""
    if not callable(transform):
        raise ValueError(
            "transform is a function of one record's input, got "
            f"{type(transform).__name__}"
        )
    every = range(len(inputs))
    made = Alone(transform, _numbers).each(every, every, inputs)
    for one, input in zip(made, inputs, strict=True):
        if isinstance(one, Ended):
            raise ValueError(f"the transform fails on a record: {one}")
        if one[0].shape != input.shape:
            raise ValueError(
                f"the transform makes an input of shape {tuple(one[0].shape)} of one "
                f"of {tuple(input.shape)}: it must keep the shape"
            )
        if not one[0].isfinite().all():
            raise ValueError("the transform makes an input that is not finite")


def _numbers(found: Any, input: Tensor) -> tuple[Tensor, ...]:
    return (plain(torch.as_tensor(found)).to(input.dtype),)


def void(like: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """Record without a finite gradient: no number, or else no class, in any case."""
    filled = (torch.nan if part.is_floating_point() else 0 for part in like)
    input, target = (torch.full_like(*each) for each in zip(like, filled, strict=True))
    if not (input.is_floating_point() or target.is_floating_point()):
        target = torch.full_like(target, NO_CLASS)
    return input, target


def drawn_from(seed: int) -> None:
    """Have somebody's code draw from ``seed``, by any global generator."""
    torch.default_generator.manual_seed(seed)
    # Another seed: of one, numpy's generator and torch's give the same bits.
    np.random.seed((seed ^ 0x9E3779B9) % 2**32)  # noqa: NPY002
    random.seed(seed)


class Alone:
    """Somebody's function, of which each call has a process and a seed of its own.

    What it gives without drawing is kept, for as many bytes as `_KEPT`.
    """

    def __init__(
        self, function: Callable[..., Any], made: Callable[..., tuple[Tensor, ...]]
    ) -> None:
        self._function, self._made = function, made
        forked.begin()
        self._generators = Generators(function)
        self._every = Generators(function, torch.default_generator, *GLOBAL)
        self._kept: dict[Any, tuple[Tensor, ...]] = {}
        self._room = _KEPT

    def each(
        self,
        keys: Sequence[Any],
        seeds: Iterable[int],
        *given: Iterable[Any],
        like: Iterable[Tensor] | None = None,
    ) -> list[tuple[Tensor, ...] | Ended]:
        """Call it with each seed and what is given, kept by ``keys``: `forked.each`."""
        wanted = [
            (key, functools.partial(self._call, *one))
            for key, one in zip(keys, zip(seeds, *given, strict=True), strict=True)
            if key not in self._kept
        ]
        kinds = None if like is None else [*like, _DREW]
        made = forked.each([call for _, call in wanted], kinds)
        found: dict[Any, tuple[Tensor, ...] | Ended] = {}
        for (key, _), one in zip(wanted, made, strict=True):
            found[key] = one
            if isinstance(one, Ended) or not one:
                continue
            found[key] = parts = one[:-1]
            size = sum(part.nbytes for part in parts)
            if size <= self._room and not one[-1].any():  # it drew nothing
                self._kept[key], self._room = parts, self._room - size
        return [self._kept.get(key) or found[key] for key in keys]

    def _call(self, seed: int, *given: Any) -> tuple[Tensor, ...]:
        drawn_from(seed)
        self._generators.begin(seed)
        before = self._every.now()
        # A tensor may be a part of one that has other records, too.
        own = [one.clone() if isinstance(one, Tensor) else one for one in given]
        made = self._made(self._function(*own), *given)
        return *made, _DREW if self._every.now() != before else ~_DREW


def plain(tensor: Tensor) -> Tensor:
    """The same numbers, where a subclass of somebody's would run code of theirs."""
    with torch._C.DisableTorchFunction():
        return tensor.detach().as_subclass(Tensor)
