"""The oracle of noisy gradients: sample, clip, sum, add noise, divide, write it down.

An algorithm that wants to know anything of the data asks `Oracle.gradient`. What it
gets is already noisy, and the ledger already has it.

What is assumed: the numbers of records per node that set sampling rates and divisors
are public. Sums are rounded to a grid and noise is an exactly rounded Gaussian number
of that grid, so that the noisy sum is a function of the ideal mechanism's
(`trainers/numerics/noise.md`). Records are clipped to a little less than the clip norm,
by as much as rounding can move a sum: that of the sums themselves, in floating point
(`trainers/gradients/sums.md`), and that to the grid.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Protocol

import torch
from torch import Tensor

from privaudit.ledger import Ledger, Recorder
from trainers.data import PrivateData
from trainers.gradients.clip_weights import clip_weights
from trainers.gradients.clipping import clipped_sum, plan
from trainers.gradients.differentiator import Differentiator
from trainers.gradients.rounding import Rounding
from trainers.numerics.deferred_checks import Watch
from trainers.numerics.device import placed
from trainers.numerics.randomness import Streams, grid_step, rounding_up
from trainers.oracles.mechanism import Mechanism, SamplingName
from trainers.oracles.sampler import Sampler

__all__ = [
    "MEMORY_LIMIT",
    "Mechanism",
    "Oracle",
    "ReleaseObserver",
    "SamplingName",
    "clip_weights",
]

MEMORY_LIMIT = 1 << 30  # bytes, for what one call keeps alive


class ReleaseObserver(Protocol):
    """Whoever is allowed to see what the oracle gives out."""

    def release(
        self, index: int, at: Tensor, gradient: Tensor, nodes: Sequence[int]
    ) -> None:
        """See the ``index``-th release of each of ``nodes``, all if all asked at once.

        ``gradient``, asked ``at``, is (runs, len(nodes), dims).
        """


def check_memory(limit: int) -> None:
    """Raise ``ValueError`` if a call could keep too little alive to be made."""
    if limit < 1 << 20:
        raise ValueError(f"memory_limit must be at least 1 MiB, got {limit} bytes")


class Oracle:
    """Noisy gradients of the nodes' data, for a block of runs at once.

    Parameters
    ----------
    data
        The nodes' records.
    differentiator
        How gradients are taken: `trainers.gradients.choose.differentiator`.
    mechanism
        Lot size, clipping and noise.
    streams
        Where this block's randomness comes from.
    runs
        How many runs there are in the block.
    planted
        (runs,) bool, or (runs, canaries): in which runs each of the data's canaries is
        a record of its node.
    memory_limit
        Bytes that one call may keep alive, about; larger lots are taken in parts.
    observers
        Shown every release.
    numbers
        The nodes' numbers in the whole network, where not all of them are here: what
        their randomness comes from.
    """

    def __init__(
        self,
        data: PrivateData,
        differentiator: Differentiator,
        mechanism: Mechanism,
        streams: Streams,
        *,
        runs: int = 1,
        planted: Tensor | None = None,
        memory_limit: int = MEMORY_LIMIT,
        observers: Sequence[ReleaseObserver] = (),
        numbers: Sequence[int] | None = None,
    ) -> None:
        check_memory(memory_limit)
        self.data = data
        self.mechanism = mechanism
        self.runs = runs
        self.observers = tuple(observers)
        self._differentiator = differentiator
        self._memory_limit = memory_limit
        self._streams = streams
        self._sampler = Sampler(
            data, mechanism, streams, runs=runs, planted=planted, numbers=numbers
        )
        self._numbers = self._sampler.numbers
        self._recorder = Recorder(data.nodes)
        self._releases = [0] * data.nodes
        # An accelerator is not waited for: what must hold is looked at now and then,
        # and lots are as wide as they may get, which is some more work.
        self._unseen = data.device.type != "cpu"
        self._watch = Watch(at_once=not self._unseen)
        self._width = self._sampler.most()

    def settle(self) -> None:
        """Wait for all that was asked, and raise ``ValueError`` if something failed.

        Does nothing on a CPU, where errors are raised at once. Whoever uses what was
        released calls it first; the ledger and the state do.
        """
        self._watch.settle()

    @property
    def nodes(self) -> int:
        """How many nodes hold data."""
        return self.data.nodes

    @property
    def ledger(self) -> Ledger:
        """All that was released so far, node by node, in each of the runs."""
        self.settle()
        return self._recorder.ledger()

    def releases_of(self, node: int) -> int:
        """How often ``node`` asked."""
        return self._releases[node]

    def state_dict(self) -> dict[str, Any]:
        """How often nodes asked, and what they released, for a checkpoint.

        Lists have an entry a node.
        """
        self.settle()
        return {
            "releases": list(self._releases),
            "ledger": [
                Ledger(nodes=(entries,)).to_json() for entries in self.ledger.nodes
            ],
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from where an oracle stood, made like this one."""
        self._releases = list(state["releases"])
        self._recorder = Recorder.of(
            Ledger.joined(Ledger.from_json(text) for text in state["ledger"])
        )

    def gradient(self, at: Tensor, nodes: Sequence[int] | None = None) -> Tensor:
        """A noisy mean gradient of nodes' losses, each at its own parameters.

        At node i: a lot of its records, drawn as the mechanism says; the sum of their
        gradients, each scaled to L2 norm <= clip_norm; plus N(0, (noise_multiplier *
        clip_norm)^2) in each coordinate; divided by lot_size, whatever the size of the
        lot (Abadi et al. 2016, Algorithm 1). An empty lot releases its noise like any
        other. A gradient that is not finite counts nothing, see `not_finite`: no run
        ends by what its data are.

        Parameters
        ----------
        at
            (runs, len(nodes), dims)
        nodes
            Which nodes ask, all by default. They must have asked equally often.

        Returns
        -------
        (runs, len(nodes), dims)

        Raises
        ------
        ValueError
            If the parameters are not finite, or, without clipping, a sample's
            gradient. On an accelerator this is raised by `settle`.
        """
        nodes = range(self.nodes) if nodes is None else nodes
        if at.shape[:2] != (self.runs, len(nodes)):
            raise ValueError(
                f"parameters must have shape (runs, nodes, dims) = ({self.runs}, "
                f"{len(nodes)}, ...), got {tuple(at.shape)}"
            )
        index = self._releases[nodes[0]]
        if any(self._releases[node] != index for node in nodes):
            raise ValueError(
                "nodes that ask at once must have asked equally often; ask one by one"
            )
        clip, multiplier = self.mechanism.at(index)
        deviation = multiplier * clip
        step = 0.0
        if multiplier > 0:
            # In one lot there is each record at most, and the canaries; those along a
            # coordinate each meet in none.
            planted = 1 if self.data.coordinates is not None else self.data.canaries
            step = grid_step(deviation, (max(self.data.sizes) + planted) * clip)
        if clip < math.inf:
            self._watch.expect(
                torch.isfinite(at), "parameters are not finite: lower the step size"
            )
            clip = _clip_left(clip, self._rounding(at).share, step, at.shape[2])
        lots = self._lots(nodes)
        crafted = self._crafted(lots, nodes, clip, at.shape[2])
        total = self._clipped_sum(at, lots, nodes, clip)
        if crafted is not None:
            row, share = crafted
            total[:, row] += share
        if multiplier > 0:
            total = self._noisy(total, nodes, deviation, step)
        for node in nodes:
            release = self.mechanism.release(index, self.data.sizes[node])
            self._recorder.record(node, release)
            others = self._streams.others("noise", self._numbers[node], index)
            self._recorder.again(node, release, others)
            self._releases[node] += 1
        gradient = total.div_(self.mechanism.lot_size).to(at.dtype)
        for observer in self.observers:
            observer.release(index, at, gradient, nodes)
        return gradient

    @property
    def not_finite(self) -> int:
        """How many gradients that were not finite were drawn and counted nothing.

        It depends on the data: it stays with the party whose they are.
        """
        return self._watch.counted

    def _rounding(self, at: Tensor) -> Rounding:
        """What is paid for the rounding of `_clipped_sum`."""
        return plan(
            self._differentiator,
            self.data,
            at.flatten(0, 1),
            lot_size=self.mechanism.lot_size,
            memory_limit=self._memory_limit,
        ).rounding

    def _clipped_sum(
        self, at: Tensor, lots: Tensor, nodes: Sequence[int], clip: float
    ) -> Tensor:
        """Sum over the lots of clipped gradients, (runs, nodes, dims) doubles."""
        return clipped_sum(
            self._differentiator,
            self.data,
            at.flatten(0, 1),
            lots.flatten(0, 1),
            placed(tuple(nodes), at.device),
            clip,
            lot_size=self.mechanism.lot_size,
            memory_limit=self._memory_limit,
            watch=self._watch,
            width=self._width if self._unseen else None,
        ).view_as(at)

    def _lots(self, nodes: Sequence[int]) -> Tensor:
        """A fresh sample of each node's records, (runs, nodes, records)."""
        return self._sampler.batches(nodes, self._releases[nodes[0]])

    def _crafted(
        self, lots: Tensor, nodes: Sequence[int], clip: float, dims: int
    ) -> tuple[int, Tensor] | None:
        """Take the records of crafted gradients out of ``lots``.

        Returns which of ``nodes`` holds them and their share of its sums, (runs, dims).
        """
        data = self.data
        node = data.canary_node
        if node is None or node not in nodes:
            return None
        row, place = list(nodes).index(node), data.sizes[node]
        if data.coordinates is not None:
            rows = slice(place, place + data.canaries)
            times = lots[:, row, rows].double()
            lots[:, row, rows] = False
            share = times.new_zeros(len(times), dims)
            share[:, data.coordinates] = times * (clip if clip < math.inf else 1.0)
            return row, share
        if data.direction is None:
            return None
        vector = data.direction.double()
        if clip < math.inf:
            norm = torch.linalg.vector_norm(vector)
            vector = vector * (clip / (norm * (1 + 2.0**-24)))
        times = lots[:, row, place].double()
        lots[:, row, place] = False
        if data.replaced is not None:
            times -= lots[:, row, data.replaced].double()
            lots[:, row, data.replaced] = False
        return row, times[:, None] * vector

    def _noisy(
        self, total: Tensor, nodes: Sequence[int], deviation: float, step: float
    ) -> Tensor:
        """``total``, (runs, nodes, dims), on a grid, with each node's own noise."""
        who = [self._numbers[node] for node in nodes]
        index = self._releases[nodes[0]]
        return self._streams.noisy(total, who, index, deviation, step)


def _clip_left(clip: float, share: float, step: float, dims: int) -> float:
    """``clip``, less what rounding can add to a record's move.

    That is ``share`` of the result by the rounding of sums, and that of their rounding
    to the grid.
    """
    left = (clip - rounding_up(step, dims)) / (1 + share)
    if not left > 0.5 * clip:
        raise ValueError(
            f"{dims:,} parameters are rounded to steps of {step:g}, too coarse for "
            f"clip_norm {clip:g}: use less noise"
        )
    return left * (1 - 2.0**-50)
