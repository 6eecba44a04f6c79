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
from typing import Protocol

import torch
from torch import Tensor

from privaudit.ledger import Ledger, PoissonSampling, Recorder, Release
from trainers.bookkeeping import BookKeeping
from trainers.data import PrivateData
from trainers.per_sample import PerSample
from trainers.randomness import Streams

MEMORY_LIMIT = 1 << 30  # bytes, for what one call keeps alive


@dataclasses.dataclass(frozen=True, slots=True)
class Mechanism:
    """How a gradient is made private.

    Parameters
    ----------
    lot_size
        Expected size of a lot, the same at every node; also the divisor of the sum.
    clip_norm
        L2 bound on each sample's gradient; infinity for none. A number, or a function
        of the release's index (0, 1, ...).
    noise_multiplier
        Standard deviation of the noise over ``clip_norm``; 0 for none. A number or a
        function, as ``clip_norm``.
    """

    lot_size: float
    clip_norm: float | Callable[[int], float] = math.inf
    noise_multiplier: float | Callable[[int], float] = 0.0

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
        """Poisson rate at a node of ``records`` records (public number)."""
        if not self.lot_size > 0:
            raise ValueError(f"lot_size must be > 0, got {self.lot_size}")
        if self.lot_size > records:
            raise ValueError(
                f"a lot of {self.lot_size:g} is larger than a node's data "
                f"({records} records); use at most {records}"
            )
        return self.lot_size / records

    def release(self, index: int, records: int) -> Release:
        """What one call at a node of ``records`` records is accounted as."""
        clip, multiplier = self.at(index)
        return Release.of_sum(
            norm_bound=clip,
            noise_multiplier=multiplier,
            sampling=PoissonSampling(self.sampling_rate(records)),
        )

    def ledger(self, sizes: Sequence[int], releases: int) -> Ledger:
        """What ``releases`` calls would write: for planning noise before a run."""
        recorder = Recorder(len(sizes))
        for node, size in enumerate(sizes):
            if not callable(self.clip_norm) and not callable(self.noise_multiplier):
                recorder.record(node, self.release(0, size), releases)
                continue
            for index in range(releases):
                recorder.record(node, self.release(index, size))
        return recorder.ledger()


class ReleaseObserver(Protocol):
    """Whoever is allowed to see what the oracle gives out."""

    def release(self, index: int, at: Tensor, gradient: Tensor) -> None:
        """See release ``index``, ``gradient``, asked ``at``: (runs, nodes, dims)."""


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
        self._sampling = [
            streams.generator("sampling", node) for node in range(data.nodes)
        ]
        self._noise = [streams.generator("noise", node) for node in range(data.nodes)]
        self._recorder = Recorder(data.nodes)
        self._releases = 0

    @property
    def nodes(self) -> int:
        """How many nodes hold data."""
        return self.data.nodes

    @property
    def ledger(self) -> Ledger:
        """All that was released so far, node by node, in each of the runs."""
        return self._recorder.ledger()

    def gradient(self, at: Tensor) -> Tensor:
        """A noisy mean gradient of every node's loss, each at its own parameters.

        At node i, with rate q_i = lot_size / n_i: a Poisson sample of its records;
        the sum of their gradients, each scaled to L2 norm <= clip_norm; plus
        N(0, (noise_multiplier * clip_norm)^2) in each coordinate; divided by lot_size,
        whatever the size of the lot (Abadi et al. 2016, Algorithm 1). An empty lot
        releases its noise like any other.

        Parameters
        ----------
        at
            (runs, nodes, dims)

        Returns
        -------
        (runs, nodes, dims)

        Raises
        ------
        ValueError
            If a sample's gradient is not finite: clipping cannot bound it.
        """
        if at.shape[:2] != (self.runs, self.nodes):
            raise ValueError(
                f"parameters must have shape (runs, nodes, dims) = ({self.runs}, "
                f"{self.nodes}, ...), got {tuple(at.shape)}"
            )
        clip, multiplier = self.mechanism.at(self._releases)
        total = self._clipped_sum(at, self._lots(), clip)
        if multiplier > 0:
            total.add_(self._draw_noise(at), alpha=multiplier * clip)
        for node, size in enumerate(self.data.sizes):
            self._recorder.record(node, self.mechanism.release(self._releases, size))
        gradient = total.div_(self.mechanism.lot_size)
        for observer in self.observers:
            observer.release(self._releases, at, gradient)
        self._releases += 1
        return gradient

    def _lots(self) -> Tensor:
        """A fresh Poisson sample of each node's records, (runs, nodes, records)."""
        drawn = torch.zeros_like(self._present)
        for node, generator in enumerate(self._sampling):
            # Doubles: a float has 24 bits, too coarse for a small rate. One more than
            # the public size: the canary's coin is tossed whether it is there or not.
            records = self.data.sizes[node] + 1
            coins = torch.rand(
                (self.runs, records),
                generator=generator,
                dtype=torch.float64,
                device=generator.device,
            )
            drawn[:, node, :records] = coins < self._rates[node]
        return drawn & self._present

    def _draw_noise(self, like: Tensor) -> Tensor:
        """Standard normal, (runs, nodes, dims), each node's from its own generator."""
        noise = torch.empty_like(like)
        for node, generator in enumerate(self._noise):
            # Doubles again: float normals have no tail beyond 5.8 standard deviations.
            draw = torch.empty(
                (like.shape[0], like.shape[2]), dtype=torch.float64, device=like.device
            )
            noise[:, node] = draw.normal_(generator=generator)
        return noise

    def _clipped_sum(self, at: Tensor, lots: Tensor, clip: float) -> Tensor:
        """Sum over the lots of clipped gradients, (runs, nodes, dims), in chunks."""
        lots = lots.flatten(0, 1)  # (replicas, records)
        at = at.reshape(lots.shape[0], -1)
        width = int(lots.sum(1).max())
        total = torch.zeros_like(at)
        if width == 0:
            return total.view(self.runs, self.nodes, -1)
        # Pack each lot to the left; rows are as wide as the largest lot, none is cut.
        replica, record = lots.nonzero(as_tuple=True)
        column = lots.cumsum(1)[replica, record] - 1
        chosen = torch.zeros(at.shape[0], width, dtype=torch.long, device=at.device)
        chosen[replica, column] = record
        counts = lots.sum(1)
        taken = torch.arange(width, device=at.device) < counts[:, None]
        node = torch.arange(at.shape[0], device=at.device) % self.nodes

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
        return total.view(self.runs, self.nodes, -1)


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
