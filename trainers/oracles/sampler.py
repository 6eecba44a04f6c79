"""Which records are in a batch: drawn by the streams, never by the data."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from privaudit.release import RandomAllocation
from trainers.data import PrivateData
from trainers.gradients.batches import most
from trainers.numerics.device import placed
from trainers.numerics.randomness import Streams
from trainers.oracles.mechanism import Mechanism


class Sampler:
    """Draws batches of each node's records, for a block of runs at once.

    Parameters
    ----------
    data, mechanism, streams
        Of the oracle that has it. The mechanism says how, and how many.
    runs
        How many runs there are in the block.
    planted
        (runs,) bool, or (runs, canaries): in which runs each of the data's canaries is
        a record of its node.
    """

    def __init__(
        self,
        data: PrivateData,
        mechanism: Mechanism,
        streams: Streams,
        *,
        runs: int = 1,
        planted: Tensor | None = None,
    ) -> None:
        self.data = data
        self.mechanism = mechanism
        self.streams = streams
        self.runs = runs
        here = tuple(range(data.nodes))
        self.numbers = here if streams.numbers is None else streams.numbers
        self.rates = [mechanism.sampling_rate(size) for size in data.sizes]
        self._present = data.present(runs, planted)  # (runs, nodes, records)

    def most(self) -> int:
        """How large a batch gets, but with a chance that is nothing."""
        if self.mechanism.sampling == "without-replacement":
            return int(self.mechanism.batch_size)
        return max(
            most(rate, size + self.data.canaries)
            for rate, size in zip(self.rates, self.data.sizes, strict=True)
        )

    def batches(self, nodes: Sequence[int], index: int) -> Tensor:
        """The ``index``-th batch of each of ``nodes``, (runs, len(nodes), records)."""
        present = self.present(nodes)
        drawn = torch.zeros_like(present)
        fixed = self.mechanism.sampling == "without-replacement"
        for row, node in enumerate(nodes):
            records = self.data.sizes[node]
            if fixed:
                # A canary comes in a record's place: it must, for there to be a subset
                # of equal chances in both worlds. It takes that record's coin.
                size = int(self.mechanism.batch_size)
                drawn[:, row, :records] = self.subset(node, index, records, size)
                if self.data.replaced is not None and node == self.data.canary_node:
                    drawn[:, row, records] = drawn[:, row, self.data.replaced]
                continue
            # More than the public size: the canaries' coins are tossed whether they are
            # there or not.
            planted = self.data.canaries if node == self.data.canary_node else 1
            how = self.mechanism.allocation(records)
            if how is None:
                coins = self.coins(node, index, records + planted, self.rates[node])
            else:
                coins = self.allocated(node, index, records + planted, how)
            drawn[:, row, : coins.shape[1]] = coins
        return drawn & present

    def present(self, nodes: Sequence[int]) -> Tensor:
        """Which of the rows of ``nodes`` are records, (runs, len(nodes), records)."""
        if list(nodes) == list(range(self.data.nodes)):
            return self._present
        return self._present[:, placed(tuple(nodes), self._present.device)]

    def coins(self, node: int, index: int, records: int, rate: float) -> Tensor:
        """Which of ``records`` coins of chance ``rate`` are heads, (runs, records)."""
        who, shape = [self.numbers[node]], (self.runs, records)
        return self.streams.coins(who, index, shape, rate)[:, 0]

    def allocated(
        self, node: int, index: int, records: int, how: RandomAllocation
    ) -> Tensor:
        """Which of ``records`` are in the ``index``-th batch, (runs, records).

        All batches of an epoch make its allocation again, from the same random numbers.
        """
        batch = index % how.batches
        who, shape = [self.numbers[node]], (self.runs, records)
        choice = (how.batches, how.taken, batch)
        return self.streams.allocated(who, index - batch, shape, *choice)[:, 0]

    def subset(self, node: int, index: int, records: int, size: int) -> Tensor:
        """A uniform subset of ``size`` of a node's records, (runs, records)."""
        who, shape = [self.numbers[node]], (self.runs, records)
        return self.streams.subsets(who, index, shape, size)[:, 0]
