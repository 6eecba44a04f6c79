"""The one door to private data: sample, clip, sum, add noise, divide, write it down.

An algorithm that wants to know anything of the data asks `Oracle.gradient`. What it
gets is already noisy, and the ledger already has it.

What is assumed: the numbers of records per node that set sampling rates and divisors
are public; clipping and noise are in floating point (the noise is drawn in double
precision), whose own leaks (Mironov 2012) are not accounted.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Any, Literal, Protocol

import torch
from torch import Tensor

from privaudit.ledger import (
    Entry,
    Ledger,
    PoissonSampling,
    Recorder,
    Release,
    SamplingWithoutReplacement,
)
from trainers.bookkeeping import BookKeeping
from trainers.data import PrivateData
from trainers.per_sample import PerSample
from trainers.randomness import Streams

MEMORY_LIMIT = 1 << 30  # bytes, for what one call keeps alive
SamplingName = Literal["poisson", "without-replacement"]


@dataclasses.dataclass(frozen=True, slots=True)
class Mechanism:
    """How a gradient is made private.

    Parameters
    ----------
    lot_size
        Size of a lot, the same at every node; also the divisor of the sum. Under
        Poisson sampling it is the expected size.
    clip_norm
        L2 bound on each sample's gradient; infinity for none. A number, or a function
        of the release's index (0, 1, ...).
    noise_multiplier
        Standard deviation of the noise over ``clip_norm``; 0 for none. A number or a
        function, as ``clip_norm``.
    sampling
        How a lot is drawn: "poisson", each record by its own coin, or
        "without-replacement", a uniform subset of ``lot_size`` records, a whole number.
    """

    lot_size: float
    clip_norm: float | Callable[[int], float] = math.inf
    noise_multiplier: float | Callable[[int], float] = 0.0
    sampling: SamplingName = "poisson"

    def at(self, index: int) -> tuple[float, float]:
        """Clip norm and noise multiplier of release ``index``, checked."""
        clip = self.clip_norm(index) if callable(self.clip_norm) else self.clip_norm
        multiplier = (
            self.noise_multiplier(index)
            if callable(self.noise_multiplier)
            else self.noise_multiplier
        )
        if not clip > 0:
            raise ValueError(f"clip_norm must be > 0, got {clip} at release {index}")
        if not 0 <= multiplier < math.inf:
            raise ValueError(
                f"noise_multiplier must be finite and >= 0, got {multiplier} at "
                f"release {index}"
            )
        if multiplier > 0 and clip == math.inf:
            raise ValueError("noise needs a finite clip_norm: it is scaled by it")
        return clip, multiplier

    def sampling_rate(self, records: int) -> float:
        """The share of a node's ``records`` (public number) in a lot, on average."""
        if not self.lot_size > 0:
            raise ValueError(f"lot_size must be > 0, got {self.lot_size}")
        if self.sampling == "without-replacement" and self.lot_size % 1:
            raise ValueError(
                "a lot of fixed size has a whole number of records, got "
                f"lot_size = {self.lot_size:g}; round it, or use Poisson sampling"
            )
        if self.lot_size > records:
            raise ValueError(
                f"a lot of {self.lot_size:g} is larger than a node's data "
                f"({records} records); use at most {records}"
            )
        return self.lot_size / records

    def release(self, index: int, records: int) -> Release:
        """What one call at a node of ``records`` records is accounted as."""
        clip, multiplier = self.at(index)
        rate = self.sampling_rate(records)
        return Release.of_sum(
            norm_bound=clip,
            noise_multiplier=multiplier,
            sampling=PoissonSampling(rate)
            if self.sampling == "poisson"
            else SamplingWithoutReplacement(int(self.lot_size), records),
        )

    def ledger(self, sizes: Sequence[int], releases: int) -> Ledger:
        """What ``releases`` calls would write: for planning noise before a run."""
        nodes = {size: self._entries(size, releases) for size in set(sizes)}
        return Ledger(nodes=tuple(nodes[size] for size in sizes))

    def _entries(self, records: int, releases: int) -> tuple[Entry, ...]:
        recorder = Recorder(1)
        if callable(self.clip_norm) or callable(self.noise_multiplier):
            for index in range(releases):
                recorder.record(0, self.release(index, records))
        elif releases:
            recorder.record(0, self.release(0, records), releases)
        return recorder.ledger().nodes[0]


class ReleaseObserver(Protocol):
    """Whoever is allowed to see what the oracle gives out."""

    def release(
        self, index: int, at: Tensor, gradient: Tensor, nodes: Sequence[int]
    ) -> None:
        """See the ``index``-th release of each of ``nodes``, all if all asked at once.

        ``gradient``, asked ``at``, is (runs, len(nodes), dims).
        """


class Oracle:
    """Noisy gradients of the nodes' data, for a block of runs at once.

    Parameters
    ----------
    data
        The nodes' records.
    differentiator
        How gradients are taken: `trainers.bookkeeping.differentiator`.
    mechanism
        Lot size, clipping and noise.
    streams
        Where this block's randomness comes from.
    runs
        How many runs there are in the block.
    planted
        (runs,) bool: in which runs the data's canary is a record of its node.
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
        differentiator: BookKeeping | PerSample,
        mechanism: Mechanism,
        streams: Streams,
        *,
        runs: int = 1,
        planted: Tensor | None = None,
        memory_limit: int = MEMORY_LIMIT,
        observers: Sequence[ReleaseObserver] = (),
        numbers: Sequence[int] | None = None,
    ) -> None:
        if memory_limit < 1 << 20:
            raise ValueError(
                f"memory_limit must be at least 1 MiB, got {memory_limit} bytes"
            )
        self.data = data
        self.mechanism = mechanism
        self.runs = runs
        self.observers = tuple(observers)
        self._differentiator = differentiator
        self._memory_limit = memory_limit
        self._rates = [mechanism.sampling_rate(size) for size in data.sizes]
        self._present = data.present(runs, planted)  # (runs, nodes, records)
        numbers = range(data.nodes) if numbers is None else numbers
        self._sampling = [streams.generator("sampling", node) for node in numbers]
        self._noise = [streams.generator("noise", node) for node in numbers]
        self._recorder = Recorder(data.nodes)
        self._releases = [0] * data.nodes

    @property
    def nodes(self) -> int:
        """How many nodes hold data."""
        return self.data.nodes

    @property
    def ledger(self) -> Ledger:
        """All that was released so far, node by node, in each of the runs."""
        return self._recorder.ledger()

    def releases_of(self, node: int) -> int:
        """How often ``node`` asked."""
        return self._releases[node]

    def state_dict(self) -> dict[str, Any]:
        """Where its streams stand and what it released, for `trainers.checkpoint`.

        Lists have an entry a node.
        """
        return {
            "sampling": [generator.get_state() for generator in self._sampling],
            "noise": [generator.get_state() for generator in self._noise],
            "releases": list(self._releases),
            "ledger": [
                Ledger(nodes=(entries,)).to_json() for entries in self.ledger.nodes
            ],
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from where an oracle stood, made like this one."""
        for generators, name in ((self._sampling, "sampling"), (self._noise, "noise")):
            for generator, kept in zip(generators, state[name], strict=True):
                generator.set_state(kept)
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
        other.

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
            If a sample's gradient is not finite: clipping cannot bound it.
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
        lots = self._lots(nodes)
        crafted = self._crafted(lots, nodes, clip, at.dtype)
        total = self._clipped_sum(at, lots, nodes, clip)
        if crafted is not None:
            row, share = crafted
            total[:, row] += share
        if multiplier > 0:
            total.add_(self._draw_noise(at, nodes), alpha=multiplier * clip)
        for node in nodes:
            release = self.mechanism.release(index, self.data.sizes[node])
            self._recorder.record(node, release)
            self._releases[node] += 1
        gradient = total.div_(self.mechanism.lot_size)
        for observer in self.observers:
            observer.release(index, at, gradient, nodes)
        return gradient

    def _lots(self, nodes: Sequence[int]) -> Tensor:
        """A fresh sample of each node's records, (runs, nodes, records)."""
        if self.mechanism.sampling == "without-replacement":
            return self._fixed_lots(nodes)
        present = self._present[:, nodes]
        drawn = torch.zeros_like(present)
        for row, node in enumerate(nodes):
            # Doubles: a float has 24 bits, too coarse for a small rate. One more than
            # the public size: the canary's coin is tossed whether it is there or not.
            coins = self._coins(node, self.data.sizes[node] + 1)
            drawn[:, row, : coins.shape[1]] = coins < self._rates[node]
        return drawn & present

    def _fixed_lots(self, nodes: Sequence[int]) -> Tensor:
        """As `_lots`, each a uniform subset of lot_size records."""
        present = self._present[:, nodes]
        drawn = torch.zeros_like(present)
        size = int(self.mechanism.lot_size)
        for row, node in enumerate(nodes):
            # A canary comes in a record's place: it must, for there to be a subset of
            # equal chances in both worlds. It takes that record's coin.
            records = self.data.sizes[node]
            coins = self._coins(node, records)
            chosen = coins.topk(size, dim=1, largest=False).indices
            drawn[:, row].scatter_(1, chosen, True)
            if self.data.replaced is not None and node == self.data.canary_node:
                place = self.data.replaced
                drawn[:, row, records] = drawn[:, row, place]
        return drawn & present

    def _crafted(
        self, lots: Tensor, nodes: Sequence[int], clip: float, dtype: torch.dtype
    ) -> tuple[int, Tensor] | None:
        """Take the records of a crafted gradient out of ``lots``.

        Returns which of ``nodes`` holds them and their share of its sums, (runs, dims).
        """
        data = self.data
        node = data.canary_node
        if data.direction is None or node is None or node not in nodes:
            return None
        row, place = list(nodes).index(node), data.sizes[node]
        vector = data.direction.to(dtype)
        if clip < math.inf:
            norm = torch.linalg.vector_norm(vector)
            vector = vector * (clip / (norm * (1 + 64 * torch.finfo(dtype).eps)))
        times = lots[:, row, place].to(dtype)
        lots[:, row, place] = False
        if data.replaced is not None:
            times -= lots[:, row, data.replaced].to(dtype)
            lots[:, row, data.replaced] = False
        return row, times[:, None] * vector

    def _coins(self, node: int, records: int) -> Tensor:
        generator = self._sampling[node]
        return torch.rand(
            (self.runs, records),
            generator=generator,
            dtype=torch.float64,
            device=generator.device,
        )

    def _draw_noise(self, like: Tensor, nodes: Sequence[int]) -> Tensor:
        """Standard normal, (runs, nodes, dims), each node's from its own generator."""
        noise = torch.empty_like(like)
        for row, node in enumerate(nodes):
            # Doubles again: float normals have no tail beyond 5.8 standard deviations.
            draw = torch.empty(
                (like.shape[0], like.shape[2]), dtype=torch.float64, device=like.device
            )
            noise[:, row] = draw.normal_(generator=self._noise[node])
        return noise

    def _clipped_sum(
        self, at: Tensor, lots: Tensor, nodes: Sequence[int], clip: float
    ) -> Tensor:
        """Sum over the lots of clipped gradients, (runs, nodes, dims), in chunks."""
        lots = lots.flatten(0, 1)  # (replicas, records)
        at = at.reshape(lots.shape[0], -1)
        width = int(lots.sum(1).max())
        total = torch.zeros_like(at)
        if width == 0:
            return total.view(self.runs, len(nodes), -1)
        # Pack each lot to the left; rows are as wide as the largest lot, none is cut.
        replica, record = lots.nonzero(as_tuple=True)
        column = lots.cumsum(1)[replica, record] - 1
        chosen = torch.zeros(at.shape[0], width, dtype=torch.long, device=at.device)
        chosen[replica, column] = record
        counts = lots.sum(1)
        taken = torch.arange(width, device=at.device) < counts[:, None]
        node = torch.tensor(nodes, device=at.device).repeat(self.runs)

        # For each sample: its inputs, and what the differentiator keeps of it.
        values = self._differentiator.values_per_sample + self.data.values_per_record
        budget = max(1, self._memory_limit // (values * at.element_size()))
        columns = min(width, budget)
        rows = max(1, budget // columns)
        for top in range(0, at.shape[0], rows):
            for left in range(0, width, columns):
                here = (slice(top, top + rows), slice(left, left + columns))
                inputs, targets = self.data.records(node[here[0]], chosen[here])
                mask = taken[here]

                def weigh(norms: Tensor, mask: Tensor = mask) -> Tensor:
                    return clip_weights(norms, clip) * mask

                total[here[0]] += self._differentiator.weighted_sum(
                    at[here[0]], inputs, targets, weigh
                )
        return total.view(self.runs, len(nodes), -1)


def clip_weights(norms: Tensor, clip: float) -> Tensor:
    """min(1, clip / norm) for every norm; 1 without a bound, and for a zero gradient.

    The norm is taken a little too large, by 64 roundings, so that what is scaled with
    the weight has a norm of at most ``clip`` after rounding too. Raises ``ValueError``
    for a norm that is not finite.
    """
    if not torch.isfinite(norms).all():
        raise ValueError(
            "a sample's gradient is not finite, so that clipping cannot bound it: "
            "lower the step size, or look for inf and nan in the data"
        )
    if clip == math.inf:
        return torch.ones_like(norms)
    return clip / (norms * (1 + 64 * torch.finfo(norms.dtype).eps)).clamp_min(clip)
