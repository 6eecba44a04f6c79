"""Random streams of a block of runs: all that touches private data comes from a key.

Public numbers, as a start or the deal of a study's data: `public_generator`.
"""

from __future__ import annotations

import copy
import dataclasses
import functools
import hashlib
import math
from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor

from trainers.numerics import noise
from trainers.numerics.device import sent
from trainers.numerics.keys import Key, Purpose, Rows
from trainers.numerics.releases import ReleaseJournal

# Noise of unit size for what has a scale of its own in every row: in doubles.
_UNIT_BITS = 29

TOO_SMALL = (
    "noise is ideal where it was so small beside what it hides, by a factor of 2^20 or "
    "more, that it was added in floating point"
)


def public_generator(seed: int, purpose: str) -> torch.Generator:
    """A generator of numbers that everybody may know, by seed and purpose."""
    if seed < 0:
        raise ValueError(f"a seed must be >= 0, got {seed}")
    digest = hashlib.blake2b(f"{purpose}/{seed}".encode(), digest_size=8).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest[:4]))


class Shard(Protocol):
    """Coordinates of a node that one of several processes holds."""

    @property
    def held(self) -> range:
        """The coordinates, from a multiple of 8 on."""

    @property
    def dims(self) -> int:
        """Number of the node's coordinates."""

    def marks(self, own: Sequence[bytes]) -> tuple[bytes, ...]:
        """A fingerprint of each node's whole sum, from those of all shards' parts."""

    def wait(self) -> None:
        """Wait until all shards are here."""


class Streams:
    """The random numbers of one block of runs, by a key or the seed of a study.

    They depend neither on how many runs are computed together, nor on order, process or
    device. ``first``: number of the block's first run. ``journal`` is told of every
    release under a secret key that may be made again. ``numbers``: the nodes' in the
    whole network.
    """

    numbers: tuple[int, ...] | None = None
    shard: Shard | None = None

    def __init__(
        self,
        key: Key | int,
        first: int = 0,
        device: str = "cpu",
        journal: ReleaseJournal | None = None,
    ) -> None:
        if isinstance(key, int):
            if key < 0:
                raise ValueError(f"a seed must be >= 0, got {key}")
            key = Key.study(key)
        self.key = key
        self.first = first
        self.device = device
        self.journal = journal

    def of(self, numbers: Sequence[int]) -> Streams:
        """The same for those nodes of a larger network that are here."""
        found = copy.copy(self)
        found.numbers = tuple(numbers)
        return found

    def within(self, shard: Shard) -> Streams:
        """The same where sums are a shard's: their noise is that of whole nodes."""
        found = copy.copy(self)
        found.shard = shard
        return found

    @property
    def seed(self) -> int:
        """Seed of a study's start; 0 if the key is secret."""
        return self.key.seed if isinstance(self.key.seed, int) else 0

    def rows(
        self,
        purpose: Purpose,
        nodes: Sequence[int],
        release: int,
        shape: tuple[int, int],
        fingerprints: Sequence[Sequence[bytes]] | None = None,
    ) -> Rows:
        """Row of words of each run and node; ``shape`` is (runs, words in a row)."""
        return self.key.rows(
            purpose,
            nodes=nodes,
            release=release,
            width=shape[1],
            runs=range(self.first, self.first + shape[0]),
            fingerprints=fingerprints,
        )

    def coins(
        self, nodes: Sequence[int], release: int, shape: tuple[int, int], rate: float
    ) -> Tensor:
        """Coins of chance ``rate`` for a batch, (runs, nodes, records) bool."""
        rows = self.rows("sampling", nodes, release, shape)
        return noise.coins(rows, rate, torch.device(self.device))

    def worlds(self, runs: int, canaries: int = 1) -> Tensor:
        """A fair coin for each run, (runs,) bool, on the host; or (runs, canaries)."""
        rows = self.rows("world", [0], 0, (runs, canaries))
        found = noise.coins(rows, 0.5, torch.device("cpu"))[:, 0]
        return found if canaries > 1 else found[:, 0]

    def subsets(
        self, nodes: Sequence[int], release: int, shape: tuple[int, int], size: int
    ) -> Tensor:
        """Uniform subsets of ``size`` records, (runs, nodes, records) bool."""
        rows = self.rows("sampling", nodes, release, shape)
        return noise.subsets(rows, size, torch.device(self.device))

    def allocated(
        self,
        nodes: Sequence[int],
        release: int,
        shape: tuple[int, int],
        batches: int,
        taken: int,
        batch: int,
    ) -> Tensor:
        """Mask of records in ``batch`` of an epoch, (runs, nodes, records) bool."""
        rows = self.rows("sampling", nodes, release, (shape[0], shape[1] * taken))
        found = noise.allocations(rows, batches, taken)
        here = functools.reduce(torch.logical_or, (one == batch for one in found))
        return sent(here, torch.device(self.device))

    def permutations(
        self, nodes: Sequence[int], release: int, shape: tuple[int, int]
    ) -> Tensor:
        """Uniform orders of records, (runs, nodes, records) int64."""
        rows = self.rows("sampling", nodes, release, shape)
        return sent(noise.permutations(rows), torch.device(self.device))

    def uniforms(
        self,
        purpose: Purpose,
        nodes: Sequence[int],
        release: int,
        shape: tuple[int, int],
    ) -> Tensor:
        """Multiples of 2^-53 in [0, 1), uniform, (runs, nodes, count) doubles."""
        words = self.rows(purpose, nodes, release, shape).words(
            torch.device(self.device)
        )
        return ((words >> 11) + (1 << 52)).double() * 2.0**-53

    def unit_noise(
        self,
        purpose: Purpose,
        nodes: Sequence[int],
        release: int,
        shape: tuple[int, int],
        law: noise.Law = noise.GAUSSIAN,
        *,
        hides: Tensor | None = None,
    ) -> Tensor:
        """Noise of scale 1, rounded to 2^-29, (runs, nodes, dims) doubles.

        For what scales it afterwards, rounded as floats are. ``hides``, (runs, nodes,
        any), is what it hides: under a secret key others have other noise, as in
        `noisy`.
        """
        marks = None
        if hides is not None and self.key.seed is None:
            marks = self.key.fingerprints(hides.double().contiguous().view(torch.int64))
        rows = self.rows(purpose, nodes, release, shape, marks)
        zero = torch.zeros(rows.shape, dtype=torch.float64, device=self.device)
        return noise.noisy(zero, 2.0**-_UNIT_BITS, rows, 2.0**_UNIT_BITS, law)

    def noisy(
        self,
        sums: Tensor,
        nodes: Sequence[int],
        release: int,
        deviation: float,
        step: float | None = None,
        *,
        purpose: Purpose = "noise",
        law: noise.Law = noise.GAUSSIAN,
        point: Tensor | None = None,
    ) -> Tensor:
        """``sums``, (runs, nodes, dims), with exactly rounded noise on a grid.

        ``deviation`` (of Laplace noise, its scale) and ``step``, by default
        `grid_step`, are public; sums in doubles may be overwritten. Under a secret key
        the noise is a function of sums and ``point``, (runs, nodes, dims) floats, too:
        a release that is made again has the same noise if these are the same to the
        last bit, and independent noise else. So no two sums are told apart by noise
        that they share, and whoever leads a resumed run to another point does not learn
        whether a sum changed.
        """
        step = grid_step(deviation) if step is None else step
        scale = deviation / step

        def rows_of(marks: Sequence[Sequence[bytes]] | None) -> Rows:
            shape = (sums.shape[0], sums.shape[2])
            if self.shard is None:
                return self.rows(purpose, nodes, release, shape, marks)
            first, dims = self.shard.held.start, self.shard.dims
            whole = self.rows(purpose, nodes, release, (shape[0], dims), marks)
            return dataclasses.replace(whole, width=shape[1], part=(first, dims))

        if self.key.seed is not None:
            rows = rows_of(None)
            return noise.noisy(sums, step, rows, scale, law, spent=True)
        whole = noise.to_grid(sums, step)
        marked = whole
        if point is not None:
            bits = point.double().contiguous().view(torch.int64).to(whole.device)
            marked = torch.cat([whole, bits], 2)
        marks = self.key.fingerprints(marked, step, scale)
        if self.shard is not None:  # no part has noise that another sum's had
            marks = (self.shard.marks(marks[0]),)
        if self.journal is not None:
            (row,) = marks  # a run that can be resumed is one
            self.journal.enter(purpose, nodes, release, row)
        if self.shard is not None:  # until the one with the journal has entered it
            self.shard.wait()
        rows = rows_of(marks)
        noise.add_noise_(whole, rows, scale, law)
        return noise.from_grid(whole, step, sums.dtype)

    def noisy_if_it_fits(
        self,
        sums: Tensor,
        nodes: Sequence[int],
        release: int,
        deviation: float,
        step: float,
        *,
        purpose: Purpose = "noise",
        law: noise.Law = noise.GAUSSIAN,
    ) -> tuple[Tensor, bool]:
        """As `noisy`, for what no public number bounds; and whether it was.

        Where a node's sum has 2^52 steps or more, noise is added in floating point:
        who accounts it as ideal must say `TOO_SMALL`.
        """
        fits = sums.abs().amax(2, keepdim=True) < noise.MOST * step
        found = self.noisy(
            *(sums.where(fits, 0.0), nodes, release, deviation, step),
            purpose=purpose,
            law=law,
        )
        if fits.all():
            return found, True
        shape = (sums.shape[0], sums.shape[2])
        hides = torch.cat([sums, torch.full_like(sums[:, :, :1], deviation)], 2)
        drawn = self.unit_noise(purpose, nodes, release, shape, law, hides=hides)
        return found.where(fits, sums + deviation * drawn.to(sums)), False

    def begun(self, purpose: Purpose, node: int) -> int:
        """Number of releases ``node`` began there before this run was resumed."""
        return 0 if self.journal is None else self.journal.begun(purpose, node)

    def others(self, purpose: Purpose, node: int, release: int) -> int:
        """Number of other sums of ``node`` there before this run was resumed."""
        journal = self.journal
        return 0 if journal is None else journal.others(purpose, node, release)


# A deviation is 2^27 steps of the grid or more, unless sums would have too many.
_GRID_BITS, _SUM_BITS = 27, 51


def grid_step(deviation: float, most: float = 0.0) -> float:
    """The step, a power of two, of the grid for noise of ``deviation``.

    No number of absolute value ``most`` or less has more than 2^51 steps: whether a sum
    fits depends on public numbers alone.
    """
    step = noise.grid(deviation, _GRID_BITS)
    if most > 0:
        step = max(step, math.ldexp(1.0, math.frexp(most)[1] - _SUM_BITS))
    return step


def rounding_up(step: float, dims: int) -> float:
    """Largest distance that rounding adds to two sums, in L2; see `noisy`."""
    return 2 * noise.rounding_l2_up(step, dims)
