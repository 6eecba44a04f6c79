"""Settings that make gradients private, and the releases that they are accounted as."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Literal, get_args

from privaudit.accounting.factorization import (
    Buffers,
    rounding_of,
    rounding_of_buffers,
    turn_norm,
)
from privaudit.ledger import Entry, Ledger, Recorder
from privaudit.release import (
    PoissonSampling,
    RandomAllocation,
    Release,
    Sampling,
    SamplingWithoutReplacement,
)
from privaudit.results import Unit
from privaudit.task_settings import batches_taken

SamplingName = Literal["poisson", "without-replacement"]

# A gradient of many values below 1e-23 has a norm of 0 in single precision, whose
# squares begin at 1e-45 and end at 1e38; a bound must be far from either.
CLIP_NORMS = (1e-15, 1e15)
MOST_BAND = 256
_LEAST_SHARE = 1e-3  # of which a step of the grid is next to nothing
# Noise is below 2^36 steps of its grid: what releases share is wrong by less than 1/4
MOST_ROUNDING = 2.0**14


@dataclasses.dataclass(frozen=True, slots=True)
class Mechanism:
    """Mechanism of gradients: sampling, clipping and noise.

    That of Abadi et al. 2016, Algorithm 1, with other ways of sampling.

    Examples
    --------
    >>> halving = Mechanism(8, clip_norm=1.0, noise_multiplier=lambda k: 4 / 2**k)
    >>> [halving.at(index) for index in range(3)]
    [(1.0, 4.0), (1.0, 2.0), (1.0, 1.0)]
    >>> halving.sampling_rate(80)
    0.1
    """

    # size of a batch, the same at every node; also the divisor of the sum. Under
    # Poisson sampling it is the expected size. With a ``rate``, that at a node of mean
    # size
    batch_size: float
    # L2 bound on each record's gradient; infinity: no clipping. A number, or a function
    # of the release's index (0, 1, ...)
    clip_norm: float | Callable[[int], float] = math.inf
    # standard deviation of the noise on the sum, divided by ``clip_norm``; 0: no noise.
    # A number, or a function of the release's index
    noise_multiplier: float | Callable[[int], float] = 0.0
    # how a batch is drawn: "poisson", each record by its own coin, or
    # "without-replacement", a uniform subset of ``batch_size`` (whole) records;
    # "random-allocation", each record by itself in one of an epoch's batches, or in k
    # of them: "random-allocation:k". An epoch has as many batches as bring their
    # expected size nearest to ``batch_size``
    sampling: SamplingName | str = "poisson"
    # 0: the oracle returns noisy means. n > 0: it returns noisy sums, in double
    # precision, on a grid that all nodes share, so that n of them add up exactly
    summed: int = 0
    # probability that a record is in a batch, at every node, whatever its size; under
    # sampling without replacement as near as a whole number of records comes. None:
    # that of ``batch_size``
    rate: float | None = None
    # of a node's sum, beside those of others: its divisor is divided by it
    weight: float = 1.0
    # mechanisms of single nodes, which differ in noise; empty where all have this
    by_node: tuple[Mechanism, ...] = ()
    # 1, c_1, c_2, ...: first column of a banded Toeplitz matrix C. Releases' noise is
    # C^-1 times independent noise (docs/factorisation.md)
    strategy: tuple[float, ...] = (1.0,)
    # a record is in one of so many parts, drawn once; release k draws from part k %
    # parts. No fewer than the strategy is long
    parts: int = 1
    # (m, l), ...: C has c_j = sum of m l^j instead, and no band
    buffers: Buffers = ()

    def __post_init__(self) -> None:
        if len(self.strategy) > MOST_BAND or self.strategy[:1] != (1.0,):
            raise ValueError(
                f"a strategy has 1 to {MOST_BAND} coefficients, the first of which is "
                f"1, got {self.strategy[:3]} and so on"
            )
        if len(self.strategy) > 1 and not rounding_of(self.strategy) <= MOST_ROUNDING:
            raise ValueError(
                f"noise of the strategy {self.strategy} grows with time: use "
                "coefficients that fall, as those of "
                "privaudit.accounting.factorization.toeplitz"
            )
        mass = math.fsum(m for m, _ in self.buffers)
        if not mass <= 1 or not all(m >= 0 <= x < 1 for m, x in self.buffers):
            raise ValueError(
                "buffers are pairs (m, l), 0 <= l < 1, m >= 0 of sum at most 1, as of "
                f"privaudit.accounting.factorization.blt, got {self.buffers}"
            )
        if self.buffers and (len(self.strategy) > 1 or self.summed or self.parts < 2):
            raise ValueError(
                "noise by buffers goes with 2 or more parts of the records, single "
                "means and no other strategy"
            )
        if not self.parts >= len(self.strategy):
            raise ValueError(
                f"noise that {len(self.strategy)} releases share needs as many parts "
                f"of the records, or more, got {self.parts}"
            )
        if self.parts > 1 and (
            callable(self.clip_norm) or callable(self.noise_multiplier)
        ):
            raise ValueError(
                "records in parts, whose releases share noise, go with one clip norm "
                "and one noise multiplier: ledgers have the first part's turns"
            )
        if self.parts > 1 and self.sampling != "poisson":
            raise ValueError(
                f"records in {self.parts} parts are drawn by Poisson sampling: leave "
                f"sampling={self.sampling} out"
            )

    @property
    def spread(self) -> float:
        """`spread_of` the first turn."""
        return self.spread_of(0)

    def spread_of(self, index: int) -> float:
        """|c|, rounded up: how far a record moves all releases that share its noise.

        In clip norms, in one of its turns; that of release ``index``.
        """
        if self.buffers:
            return turn_norm(self.buffers, self.parts, index // self.parts)
        if self.strategy[1:]:
            return math.nextafter(math.hypot(*self.strategy), 1e9)
        return 1.0

    def column(self, releases: int) -> list[float]:
        """First column of C, of so many releases."""
        if self.buffers:
            return [1.0] + [
                math.fsum(mass * decay**back for mass, decay in self.buffers)
                for back in range(1, releases)
            ]
        return [*self.strategy, *[0.0] * releases][:releases]

    def rounded(self, rate: float) -> float:
        """Price of rounding what releases share, a coordinate: in steps of the grid.

        Of turns; and where a part is secret, at ``rate``, of each row, which all move
        by at least `_least`: docs/factorisation.md, "Secret parts".
        """
        row, rows = 1.5, len(self.strategy) - 1
        if self.buffers:  # noise is below 2^36 steps, and doubles have 53 bits
            wrong = rounding_of_buffers(self.buffers) * 2.0**-17
            row, rows = 1 + 2 * wrong, self.parts
        whole = 1 + row * math.sqrt(rows)
        return max(whole, row / self._least) if self.is_secret(rate) else whole

    def of(self, node: int) -> Mechanism:
        """The mechanism of ``node``, by its number in the whole network."""
        return self.by_node[node] if self.by_node else self

    def batch(self, records: int) -> float:
        """Expected number of records in a batch, at a node of ``records`` records.

        >>> Mechanism(16, rate=0.2).batch(50)
        10.0
        >>> Mechanism(16, rate=0.26, sampling="without-replacement").batch(50)
        13
        """
        if self.rate is None:
            return self.batch_size
        expected = self.rate * records
        fixed = self.sampling == "without-replacement"
        return max(1, round(expected)) if fixed else expected

    @property
    def varies(self) -> bool:
        """Return whether batches differ in size, at one node or between nodes."""
        return self.sampling != "without-replacement" or self.rate is not None

    @property
    def unit(self) -> Unit:
        """Unit of clipping and sampling, in which neighbours differ."""
        return "record"

    def divisor(self, records: int) -> float:
        """Divisor of the sum of a node with ``records`` records, a public number."""
        return self.batch_size / self.weight

    def divisors(self, sizes: Sequence[int]) -> tuple[float, ...]:
        """Divisor of the sums that each node gets: 1 where they are ``summed``."""
        if self.summed:
            return (1.0,) * len(sizes)
        return tuple(self.of(node).divisor(size) for node, size in enumerate(sizes))

    def at(self, index: int) -> tuple[float, float]:
        """Clip norm and noise multiplier of release ``index`` = 0, 1, ..., checked."""
        clip = self.clip_norm(index) if callable(self.clip_norm) else self.clip_norm
        multiplier = (
            self.noise_multiplier(index)
            if callable(self.noise_multiplier)
            else self.noise_multiplier
        )
        if not (CLIP_NORMS[0] <= clip <= CLIP_NORMS[1] or clip == math.inf):
            raise ValueError(
                f"clip_norm must be in [{CLIP_NORMS[0]:g}, {CLIP_NORMS[1]:g}], or "
                f"infinity, got {clip} at release {index}: beyond, the squares that "
                "norms are made of are no numbers in single precision"
            )
        if not 0 <= multiplier < math.inf:
            raise ValueError(
                f"noise_multiplier must be finite and >= 0, got {multiplier} at "
                f"release {index}"
            )
        if multiplier > 0 and clip == math.inf:
            raise ValueError("noise needs a finite clip_norm: it is scaled by it")
        return clip, multiplier

    def sampling_rate(self, records: int) -> float:
        """Probability that a record is in a batch, at a node of ``records`` records."""
        if not self.batch_size > 0:
            raise ValueError(f"batch_size must be > 0, got {self.batch_size}")
        allocated = batches_taken(self.sampling) is not None
        if not allocated and self.sampling not in get_args(SamplingName):
            raise ValueError(
                "sampling must be poisson, without-replacement, random-allocation or "
                f"random-allocation:k, got {self.sampling}"
            )
        batch = self.batch(records)
        if self.sampling == "without-replacement" and batch % 1:
            raise ValueError(
                "a batch of fixed size has a whole number of records, got "
                f"batch_size = {self.batch_size:g}; round it, or use Poisson sampling"
            )
        if batch > records:
            raise ValueError(
                f"a batch of {batch:g} is larger than a node's data "
                f"({records} records); use at most {records}"
            )
        if (allocation := self.allocation(records)) is not None:
            return allocation.rate
        if self.rate is not None and self.sampling == "poisson":
            return self.rate
        return batch / records

    def turn_rate(self, records: int) -> float:
        """Probability that a record is in a batch drawn from its part."""
        rate = self.sampling_rate(records) * self.parts
        if self.buffers:  # whole parts: sampling would amplify nothing
            if self.parts != (whole := max(2, round(self.parts / rate))):
                raise ValueError(
                    "with noise by buffers a part is a batch, and all nodes have as "
                    f"many: {records:,} records are {whole} parts, not {self.parts}; "
                    "use parts of that number, or sampling_rate"
                )
            return 1.0
        if rate > 1 + 1e-9:
            fewer = math.floor(self.parts / rate + 1e-9)
            some = f", or at most {fewer} parts" * (fewer >= len(self.strategy))
            raise ValueError(
                f"{self.parts} parts of {records:,} records are smaller than a batch: "
                f"use a sampling_rate of at most {math.floor(1e6 / self.parts) / 1e6:g}"
                f", batches of at most {math.floor(records / self.parts)}{some}"
            )
        return rate if rate < 1 - 1e-9 else 1.0

    def is_secret(self, rate: float) -> bool:
        """Return whether it is accounted that nobody knows which part a record is in.

        ``rate``: of a part's turns. With fewer coins these hide more; and each row of a
        turn must be far beyond what it is rounded by.
        """
        return self.parts > 1 and rate > 0.5 and self._least >= _LEAST_SHARE

    @property
    def _least(self) -> float:
        """Least move of a row of its turn by a record, in clip norms."""
        if self.buffers:
            return math.fsum(
                mass * decay ** (self.parts - 1) for mass, decay in self.buffers
            )
        return min((abs(c) for c in self.strategy if c), default=1.0)

    def most_turns(self, releases: int) -> int:
        """Number of turns of the first part, which has most, in so many releases."""
        return -(-releases // self.parts)

    def allocation(self, records: int) -> RandomAllocation | None:
        """The random allocation of a node's ``records``; None with other sampling."""
        taken = batches_taken(self.sampling)
        if taken is None:
            return None
        batch = self.batch(records)
        all_of_them = records / batch if self.rate is None else 1 / self.rate
        batches = max(taken, round(taken * all_of_them))
        if batches >= 1 << 31:
            raise ValueError(
                f"batches of {batch:g} of {records:,} records are too many "
                "batches for an epoch: use larger ones"
            )
        return RandomAllocation(batches, taken)

    def release(self, index: int, records: int) -> Release:
        """The release ``index`` of a node that has ``records`` records.

        With parts, that of a turn: all releases which share the noise of it.
        """
        clip, multiplier = self.at(index)
        rate = self.turn_rate(records)
        sampling: Sampling | None = self.allocation(records)
        if self.sampling == "poisson":
            sampling = PoissonSampling(
                rate,
                self.parts,
                self.strategy[1:],
                self.buffers,
                index // self.parts if self.buffers else 0,
                secret=self.is_secret(rate),
            )
        spread = self.spread_of(index)
        return Release.of_sum(
            norm_bound=clip * spread,
            noise_multiplier=multiplier * (self.spread / spread),
            sampling=sampling
            or SamplingWithoutReplacement(int(self.batch(records)), records),
        )

    def ledger(self, sizes: Sequence[int], releases: int) -> Ledger:
        """The ledger that a run will have, from which noise is planned.

        ``sizes`` has each node's number of records; each node makes ``releases``.

        >>> mechanism = Mechanism(8, clip_norm=1.0, noise_multiplier=2.0)
        >>> mechanism.ledger([80, 80], 5).nodes[1][0].count
        5
        """
        nodes = {size: self._entries(size, releases) for size in set(sizes)}
        return Ledger(nodes=tuple(nodes[size] for size in sizes), unit=self.unit)

    def _entries(self, records: int, releases: int) -> tuple[Entry, ...]:
        recorder = Recorder(1)
        varies = callable(self.clip_norm) or callable(self.noise_multiplier)
        if varies or self.buffers:
            for index in range(0, releases, self.parts):
                recorder.record(0, self.release(index, records))
        elif releases:
            recorder.record(0, self.release(0, records), self.most_turns(releases))
        return recorder.ledger().nodes[0]
