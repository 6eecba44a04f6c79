"""Sampling of batches: decided by random numbers, never by records."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from trainers.data import PrivateData
from trainers.gradients.batches import most
from trainers.numerics.device import placed
from trainers.numerics.keys import MAX_RELEASES
from trainers.numerics.randomness import Streams
from trainers.oracles.mechanism import Mechanism

OF_PARTS = MAX_RELEASES - 1  # the release whose words deal records to parts


class Sampler:
    """Draws batches of each node's records, for a block of runs at once.

    Raises ``ValueError`` if a node has too few records for a batch.

    Examples
    --------
    >>> import torch
    >>> from trainers.data import Dataset
    >>> share = Dataset(torch.zeros(6, 3), torch.zeros(6, dtype=torch.long))
    >>> fixed = Mechanism(2, sampling="without-replacement")
    >>> sampler = Sampler(PrivateData.of([share, share]), fixed, Streams(0), runs=4)
    >>> sampler.batches([0, 1], 0).sum(2)  # (runs, nodes): the size of each batch
    tensor([[2, 2],
            [2, 2],
            [2, 2],
            [2, 2]])
    """

    def __init__(
        self,
        # data, mechanism, streams: those of its oracle. The mechanism has the sampling
        # scheme and the batch size
        data: PrivateData,
        mechanism: Mechanism,
        streams: Streams,
        *,
        runs: int = 1,  # number of runs in the block
        # (runs,) or (runs, canaries) bool: in which runs each of the data's canaries is
        # a record of its node
        planted: Tensor | None = None,
    ) -> None:
        self.data = data
        self.mechanism = mechanism
        self.streams = streams
        self.runs = runs
        here = tuple(range(data.nodes))
        self.numbers = here if streams.numbers is None else streams.numbers
        self.rates = [mechanism.turn_rate(size) for size in data.sizes]
        self._present = data.present(runs, planted)  # (runs, nodes, records)

    def most(self) -> int:
        """Largest size of a batch, exceeded with negligible probability."""
        if self.mechanism.sampling == "without-replacement":
            return int(max(map(self.mechanism.batch, self.data.sizes)))
        return max(
            most(rate / self.mechanism.parts, size + self.data.canaries)
            for rate, size in zip(self.rates, self.data.sizes, strict=True)
        )

    def batches(self, nodes: Sequence[int], index: int) -> Tensor:
        """Mask of the records in batch ``index``: (runs, len(nodes), records) bool."""
        present = self.present(nodes)
        drawn = torch.zeros_like(present)
        fixed = self.mechanism.sampling == "without-replacement"
        # Nodes of equal public size go through together: calls cost more than coins.
        alike: dict[tuple[int, int], list[int]] = {}
        for row, node in enumerate(nodes):
            # More than the public size: the canaries' coins are tossed whether they
            # are there or not.
            planted = self.data.canaries if node in self.data.canary_nodes else 1
            alike.setdefault((self.data.sizes[node], planted), []).append(row)
        for (records, planted), rows in alike.items():
            who = [nodes[row] for row in rows]
            if fixed:
                size = int(self.mechanism.batch(records))
                found = self.subsets(who, index, records, size)
            elif (how := self.mechanism.allocation(records)) is not None:
                turn, shape = index % how.batches, (self.runs, records + planted)
                choice = self._numbered(who), index - turn, shape
                found = self.streams.allocated(*choice, how.batches, how.taken, turn)
            else:
                found = self.coins(who, index, records + planted, self.rates[who[0]])
                if self.mechanism.parts > 1:
                    found &= self._of_part(who, index, records, planted)
            here = (
                slice(None)
                if len(who) == len(nodes)
                else placed(tuple(rows), drawn.device)
            )
            drawn[:, here, : found.shape[2]] = found
        replaced = self.data.replaced
        for canary in self.data.canary_nodes:
            if not fixed or replaced is None or canary not in nodes:
                continue
            # A canary comes in a record's place: it must, for there to be a subset
            # of equal chances in both worlds. It takes that record's coin.
            own = drawn[:, list(nodes).index(canary)]
            own[:, self.data.sizes[canary]] = own[:, replaced]
        return drawn & present

    def present(self, nodes: Sequence[int]) -> Tensor:
        """Mask of rows that are records: (runs, len(nodes), records) bool."""
        if list(nodes) == list(range(self.data.nodes)):
            return self._present
        return self._present[:, placed(tuple(nodes), self._present.device)]

    def coins(
        self, nodes: Sequence[int], index: int, records: int, rate: float
    ) -> Tensor:
        """Coins that are heads with probability ``rate``, as `batches`."""
        shape = (self.runs, records)
        return self.streams.coins(self._numbered(nodes), index, shape, rate)

    def _of_part(
        self, nodes: Sequence[int], index: int, records: int, planted: int
    ) -> Tensor:
        """Records of the part that batch ``index`` is drawn from, as `batches`.

        Parts are drawn once, each record's by itself; a canary is in the first one,
        which has most turns, unless it is accounted that parts are secret.
        """
        parts, who = self.mechanism.parts, self._numbered(nodes)
        turn, shape = index % parts, (self.runs, records + planted)
        # No batch has this number: its coins would be made of the same words.
        found = self.streams.allocated(who, OF_PARTS, shape, parts, 1, turn)
        secret = self.mechanism.is_secret(self.rates[nodes[0]])
        if secret and self.data.replaced is None:
            return found
        found[:, :, records:] = turn == 0
        if (replaced := self.data.replaced) is not None:
            found[:, :, replaced] = turn == 0
        return found

    def subsets(
        self, nodes: Sequence[int], index: int, records: int, size: int
    ) -> Tensor:
        """Uniform subsets of ``size`` records, as `batches`."""
        shape = (self.runs, records)
        return self.streams.subsets(self._numbered(nodes), index, shape, size)

    def _numbered(self, nodes: Sequence[int]) -> list[int]:
        """Numbers of ``nodes`` in the whole network."""
        return [self.numbers[node] for node in nodes]
