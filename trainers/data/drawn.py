"""Somebody's code that draws random numbers: by a key, for each record its own.

The global generators of torch, numpy and Python are seeded for each record by words of
the run's key, that are the record's node's and number's and the release's, and are put
back afterwards. What the code makes of a record is then a function of that record and
of what is public or secret anyway, the same in every batch, if it keeps nothing.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

if TYPE_CHECKING:
    from trainers.numerics.randomness import Streams


class Seeds:
    """A seed for each record of each node, of the release at hand.

    Parameters
    ----------
    sizes
        How many records each node has.
    more
        What tells seeds for one use from those for another.

    Attributes
    ----------
    release
        Its index.
    """

    def __init__(self, sizes: Sequence[int], more: int = 0) -> None:
        self._sizes, self._more = tuple(sizes), more
        self._streams: Streams | None = None
        self._numbers: Sequence[int] = ()
        self._words: dict[int, tuple[int, Tensor]] = {}  # by node: release, words
        self.release = 0

    def draws_from(self, streams: Streams, numbers: Sequence[int]) -> None:
        """Take random numbers from ``streams``, for nodes by their ``numbers``."""
        self._streams, self._numbers = streams, tuple(numbers)

    def of(self, node: int, record: int) -> int:
        """The seed of a record; before there are streams, that of what is tried."""
        if self._streams is None:
            return record
        known = self._words.get(node)
        if known is None or known[0] != self.release:
            shape = (1, self._sizes[node] + 1)
            rows = self._streams.rows(
                "transform", [self._numbers[node]], self.release, shape
            )
            known = self.release, rows.words(torch.device("cpu"))[0, 0]
            self._words[node] = known
        return int(known[1][record]) ^ self._more


@contextlib.contextmanager
def set_aside() -> Iterator[None]:
    """Leaves the global generators as they were."""
    others, own = np.random.get_state(), random.getstate()  # noqa: NPY002
    kept = torch.default_generator.get_state()
    try:
        yield
    finally:
        torch.default_generator.set_state(kept)
        np.random.set_state(others)  # noqa: NPY002
        random.setstate(own)


def drawn_from(seed: int) -> None:
    """Have somebody's code draw from ``seed``, by any global generator."""
    torch.default_generator.manual_seed(seed)
    np.random.seed(seed % 2**32)  # noqa: NPY002  # what a user's code may draw from
    random.seed(seed)
