"""Transforms of records as they are used: each by itself, with its own randomness."""

from __future__ import annotations

import contextlib
import random
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from privaudit.files.user_code import checked
from trainers.numerics.randomness import Streams

Transform = Callable[[Tensor], Any]  # of one record's input, to one like it


class Drawn:
    """Private data of which a record may draw random numbers as it is read: its own.

    They are of the record's node and number, the release and the key.
    """

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
            shape = (1, self.sizes[node] + 1)
            rows = self._streams.rows(
                "transform", [self._numbers[node]], self.release, shape
            )
            known = self.release, rows.words(torch.device("cpu"))[0, 0]
            self._words[node] = known
        return known[1]


class Transformed(Drawn):
    """Private data whose inputs go through ``transform`` as they are read.

    What comes of a record is a function of that record, its node and number, the
    release and the key: the same in every batch and whoever else is drawn, so that a
    clipped sum moves no further with it than without a transform.

    Parameters
    ----------
    data
        `trainers.data.PrivateData`, or what is read as asked for.
    transform
        As `check_transform` takes it.
    """

    def __init__(self, data: Any, transform: Transform) -> None:
        super().__init__()
        self._data = data
        self._transform = transform
        self.sizes = data.sizes

    def draws_from(self, streams: Streams, numbers: Sequence[int]) -> None:
        """See `Drawn.draws_from`."""
        super().draws_from(streams, numbers)
        if isinstance(self._data, Drawn):
            self._data.draws_from(streams, numbers)

    def records(self, node: Tensor, index: Tensor) -> tuple[Tensor, Tensor]:
        """Inputs and targets of records ``index`` (rows, samples) of nodes ``node``."""
        if isinstance(self._data, Drawn):
            self._data.release = self.release
        inputs, targets = self._data.records(node, index)
        found = inputs.cpu().clone()
        with set_aside():
            for row, (who, wanted) in enumerate(
                zip(node.tolist(), index.tolist(), strict=True)
            ):
                made: dict[int, Tensor] = {}
                for place, record in enumerate(wanted):
                    if record not in made:
                        seed = int(self._seeds(who)[record])
                        made[record] = self._made(found[row, place].clone(), seed)
                    found[row, place] = made[record]
        return found.to(inputs.device), targets

    def _made(self, input: Tensor, seed: int) -> Tensor:
        """Output for an input; a void record for one that the transform fails on."""
        try:
            return _applied(self._transform, input, seed)
        except KeyboardInterrupt:
            raise
        except BaseException:  # no run ends by what a record is
            return torch.full_like(input, torch.nan if input.is_floating_point() else 0)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._data, name)


def check_transform(transform: Transform, inputs: Tensor) -> None:
    """Try ``transform`` on some records, (samples, ...).

    Raises
    ------
    ValueError
        If it fails, gives something else than an input of the same shape and kind, or
        another one where records come in another order: it keeps something of one for
        the next.
    """
    if not callable(transform):
        raise ValueError(
            "transform is a function of one record's input, got "
            f"{type(transform).__name__}"
        )
    places = range(len(inputs))
    with set_aside(), checked("the transform fails on a record"):
        first = [_applied(transform, inputs[i].clone(), i) for i in places]
        second = [_applied(transform, inputs[i].clone(), i) for i in reversed(places)]
    if not all(each.isfinite().all() for each in first):
        raise ValueError("the transform makes an input that is not finite")
    if not all(map(torch.equal, first, reversed(second))):
        raise ValueError(
            "the transform of a record depends on more than the record and its random "
            "numbers: what it keeps of one record reaches others, which clipping does "
            "not bound; draw from torch's, numpy's or Python's own generator"
        )


def drawn_from(seed: int) -> None:
    """Have somebody's code draw from ``seed``, by any global generator."""
    torch.default_generator.manual_seed(seed)
    # Another seed: of one, numpy's generator and torch's give the same bits.
    np.random.seed((seed ^ 0x9E3779B9) % 2**32)  # noqa: NPY002
    random.seed(seed)


def _applied(transform: Transform, input: Tensor, seed: int) -> Tensor:
    drawn_from(seed)
    found = transform(input)
    if not isinstance(found, Tensor):
        found = torch.as_tensor(found)
    found = found.detach().to(input.dtype)
    if found.shape != input.shape:
        raise ValueError(
            f"the transform makes an input of shape {tuple(found.shape)} of one of "
            f"{tuple(input.shape)}: it must keep the shape"
        )
    return found


@contextlib.contextmanager
def set_aside() -> Iterator[None]:
    """Leaves the global generators as they were; what is warned of is not heard."""
    others, own = np.random.get_state(), random.getstate()  # noqa: NPY002
    kept = torch.default_generator.get_state()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        torch.default_generator.set_state(kept)
        np.random.set_state(others)  # noqa: NPY002
        random.setstate(own)
