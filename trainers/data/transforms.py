"""Transforms of records as they are used: each by itself, with its own randomness."""

from __future__ import annotations

import contextlib
import os
import random
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from privaudit.files.user_code import checked
from trainers.data.kept import Kept
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
        self._transform = Alone(transform)
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
    places, alone = range(len(inputs)), Alone(transform)
    with checked("the transform fails on a record"):
        first = [_applied(alone, inputs[i].clone(), i) for i in places]
        second = [_applied(alone, inputs[i].clone(), i) for i in reversed(places)]
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


class Alone:
    """Somebody's function, with all that it keeps put back around each call.

    Its random numbers, by global generators or by its own, are of that call's seed.
    Raises ``ValueError`` for what cannot be put back, see `trainers.data.kept`.
    """

    def __init__(self, function: Callable[..., Any], *reached: Any) -> None:
        self._function = function
        self._kept = Kept.checked(function, *reached, data=True)

    def __call__(self, seed: int, *given: Any) -> Any:
        """Call it with those ``given``."""
        with set_aside(), self._kept.put_back(seed):
            drawn_from(seed)
            return self._function(*given)


@contextlib.contextmanager
def apart(*code: Any) -> Iterator[None]:
    """Have what isolated ``code`` reaches as at first, and put it back after.

    For all that is of one record, or one user: forward pass, loss and backward pass, in
    which autograd may run code of theirs. Nothing is done for what is not isolated.
    """
    kept = [one.kept for one in code if getattr(one, "alone", False)]
    with contextlib.ExitStack() as stack:
        if kept:
            stack.enter_context(set_aside())
            drawn_from(0)
        for one in kept:
            stack.enter_context(one.put_back(0))
        yield


def plain(tensor: Tensor) -> Tensor:
    """The same numbers, where a subclass of somebody's would run code of theirs."""
    with torch._C.DisableTorchFunction():
        return tensor.detach().as_subclass(Tensor)


def _applied(alone: Alone, input: Tensor, seed: int) -> Tensor:
    found = alone(seed, input)
    found = plain(torch.as_tensor(found)).to(input.dtype)
    if found.shape != input.shape:
        raise ValueError(
            f"the transform makes an input of shape {tuple(found.shape)} of one of "
            f"{tuple(input.shape)}: it must keep the shape"
        )
    return found


def as_written() -> Any:
    """Context in which what people gave to `torch.compile` runs as they wrote it."""
    known = "torch._dynamo" in sys.modules  # else nothing is compiled; it loads slowly
    return (
        torch.compiler.set_stance("force_eager") if known else contextlib.nullcontext()
    )


@contextlib.contextmanager
def set_aside() -> Iterator[None]:
    """Leaves global generators and settings as they were, and no warning is heard."""
    others, own = np.random.get_state(), random.getstate()  # noqa: NPY002
    kept = torch.default_generator.get_state()
    kind, threads = torch.get_default_dtype(), torch.get_num_threads()
    strict = torch.are_deterministic_algorithms_enabled()
    graded, environ = torch.is_grad_enabled(), dict(os.environ)
    try:
        with warnings.catch_warnings(), as_written():
            warnings.simplefilter("ignore")
            yield
    finally:
        if os.environ != environ:
            os.environ.clear()
            os.environ.update(environ)
        torch.set_default_dtype(kind)
        torch.set_grad_enabled(graded)
        if torch.get_num_threads() != threads:
            torch.set_num_threads(threads)
        if torch.are_deterministic_algorithms_enabled() != strict:
            torch.use_deterministic_algorithms(strict)
        torch.default_generator.set_state(kept)
        np.random.set_state(others)  # noqa: NPY002
        random.setstate(own)
