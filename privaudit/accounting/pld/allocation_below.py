"""An epoch of random allocation from below: what a sum of rounded ratios tells.

The data that attain it have one record, whose vector is the same in every batch, and
others that add up to nothing. Each batch's likelihood ratio is rounded to a grid, and
these integers are added up, modulo a number of points: a function of what was released,
so that its two laws are a pair below. Both are products of transforms: without the
record of the rounded ratios without it, with it of as many with it as batches have it.
The proof, rounding included, is in ``allocation.md``.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
from collections.abc import Iterator

import numpy as np
from scipy import fft

from privaudit.accounting.pld.allocation import Epoch
from privaudit.accounting.pld.cells import Direction
from privaudit.accounting.pld.dots import GridMeasure
from privaudit.accounting.pld.line import UNIT, Floats, log_normal_mass
from privaudit.accounting.pld.mechanisms.atoms import Atoms
from privaudit.accounting.pld.mechanisms.loss import Loss, PairLoss

_FINENESS = 0.04  # grid step over the deviation of a ratio
_FAR = 6.5  # deviations of noise beyond which a ratio is not told apart
_GOOD_POINTS, _FINEST = 1 << 17, 0.1  # a finer one where that costs nothing
_MOST_POINTS, _MOST_CELLS, _MOST_OUTPUTS = 1 << 20, 1 << 18, 1 << 14
_MOST = 101  # kinds, those not released among them; and choices of the k
_SURE = 16.0  # times its error, from which on a mass is looked at


@dataclasses.dataclass(frozen=True)
class AllocatedBelow(Loss):
    """The loss of an epoch, for lower bounds only.

    Parameters
    ----------
    epoch
        Its batches.
    taken
        How many of the batches a record is in.
    """

    epoch: Epoch
    taken: int = 1

    @classmethod
    def of(cls, epoch: Epoch, taken: int) -> AllocatedBelow | None:
        """None where there is no bound: for too many kinds of batches."""
        every = (*epoch.counts, epoch.batches - sum(epoch.counts))
        some = itertools.islice(_choices(every, taken), _MOST + 1)
        few = len(every) <= _MOST and sum(1 for _ in some) <= _MOST
        return cls(epoch, taken) if few else None

    @property
    def _pairs(self) -> dict[Direction, Atoms]:
        return _pairs(self.epoch, self.taken)

    def above(self, way: Direction, spacing: float, reach: float) -> GridMeasure:
        """See `Loss`; nothing is known."""
        raise NotImplementedError("an epoch from below bounds nothing from above")

    def below(self, way: Direction, spacing: float, reach: float) -> GridMeasure | None:
        """See `Loss`."""
        return PairLoss(self._pairs[way]).below(way, spacing, reach)

    def sketch(self, way: Direction) -> tuple[Floats, Floats]:
        """See `Loss`."""
        pair = self._pairs[way]  # its rarest losses matter as well, far above
        starts = np.arange(0, pair.loss.size, -(-pair.loss.size // 4000))
        loss, log_q = pair.loss[starts], np.logaddexp.reduceat(pair.log_q, starts)
        return (loss, log_q) if way == "remove" else (-loss, log_q + loss)

    def length(self, reach: float) -> float:
        """See `Loss`."""
        return max(PairLoss(one).length(reach) for one in self._pairs.values())

    def range(self, way: Direction) -> tuple[float, float]:
        """See `Loss`."""
        return math.inf, math.inf

    def distance(self) -> float:
        """See `Loss`."""
        return 1.0

    def infinite(self, way: Direction) -> float:
        """See `Loss`."""
        return PairLoss(self._pairs[way]).infinite(way)


@functools.lru_cache(maxsize=16)
def _pairs(epoch: Epoch, taken: int) -> dict[Direction, Atoms]:
    """The outputs' chances, of the first law too little and of the second too much."""
    low, (p, off_p), (q, off_q), relative = _laws(epoch, taken)
    # Neighbours become one output, wherever their losses are about the same.
    sums = low + np.arange(p.size)
    scale = np.log(np.maximum(sums, 1)) if taken == 1 else sums.astype(np.float64)
    each = max((scale[-1] - scale[0]) / _MOST_OUTPUTS, 1e-300)
    starts = np.unique(np.floor(scale / each), return_index=True)[1]
    p, q = np.add.reduceat(p, starts), np.add.reduceat(q, starts)
    size = np.diff(np.append(starts, sums.size))
    wrong_p, wrong_q = off_p * np.sqrt(size), off_q * np.sqrt(size)
    seen = (p > _SURE * wrong_p) & (q > _SURE * wrong_q)
    p, q, wrong_p, wrong_q = p[seen], q[seen], wrong_p[seen], wrong_q[seen]
    whole = math.sqrt(sums.size)
    pairs: dict[Direction, Atoms] = {}
    both: list[tuple[Direction, Floats, Floats, Floats, Floats]] = [
        ("remove", p, q, wrong_p, wrong_q),
        ("add", q, p, wrong_q, wrong_p),
    ]
    for way, first, second, off_first, off_second in both:
        least, most = first - off_first, second + off_second
        # All other outputs are one, of which the first law is said to have nothing.
        off = whole * (off_q if way == "remove" else off_p)
        rest = max(0.0, 1 - math.fsum(second)) + off
        had, all_ = math.fsum(least), math.fsum(most) + rest
        # Both are made laws again: that is one more relative error.
        error = relative + abs(math.log(had)) + abs(math.log(all_)) + 64 * UNIT
        logs = np.log(least / had), np.log(most / all_)
        if way == "remove":
            pair = Atoms(*logs, null=rest / all_, far=error / UNIT)
        else:
            pair = Atoms(*logs[::-1], top=rest / all_, far=error / UNIT)
        pairs[way] = pair
    return pairs


def _laws(
    epoch: Epoch, taken: int
) -> tuple[int, tuple[Floats, float], tuple[Floats, float], float]:
    """The least sum, and the chances of all sums with the record and without it.

    With each law the Euclidean norm of its error; last the relative one of all chances.
    """
    counts = np.array(epoch.counts)
    released, total = int(counts.sum()), epoch.batches
    # Of a record in one batch the mean of the l is the likelihood ratio. Of k it is a
    # coefficient of the product of all 1 + z l, which is about z^-k times the product.
    z = 0.0 if taken == 1 else taken / (total - taken + 0.5)
    x = np.linspace(-8.0, 8.0, 1601)
    bell = np.exp(-0.5 * x * x) / np.exp(-0.5 * x * x).sum()
    means, variances = np.ones(counts.size), np.expm1(np.square(epoch.shifts))
    if z:
        told = [np.log1p(z * np.exp(s * x - s * s / 2)) for s in epoch.shifts]
        means = np.array([bell @ one for one in told])
        variances = np.array([bell @ one**2 for one in told]) - means**2
    mean, variance = float(counts @ means), float(counts @ variances)
    step = _FINENESS * math.sqrt(min(variance / released, 1.0))
    wide = 10 * math.sqrt(min(variance, 4 * mean))
    tops = [math.exp(min(s * (_FAR + s / 2), 700)) for s in epoch.shifts]
    if z:
        tops = [math.log1p(z * top) for top in tops]
    length = min(mean, wide) + wide + taken * max(tops)
    step *= min(max(length / step / _GOOD_POINTS, _FINEST), 1.0)
    cells = [math.ceil(min(top / step, _MOST_CELLS)) for top in tops]
    low = max(0, math.floor((mean - wide) / step))  # few sums are below
    points = math.ceil((min(mean, wide) + wide) / step + taken * max(cells)) + 64
    points = fft.next_fast_len(min(points, _MOST_POINTS), real=True)
    tiny = 24 * UNIT * (math.log2(points) + 2)
    without, with_it = [], []
    relative = 0.0
    for s, most in zip(epoch.shifts, cells, strict=True):
        edges = (np.arange(most) + 0.5) * step
        # log((e^x - 1) / z), for any x that a double holds
        logs = edges + np.log(-np.expm1(-edges)) - math.log(z) if z else np.log(edges)
        edges = logs / s + s / 2
        x = np.concatenate([[-np.inf], edges, [np.inf]])
        reach = float(np.abs(x[1:-1]).max()) + s
        relative = max(relative, UNIT * (1024 + 32 * reach * reach))
        for into, centre in ((without, 0.0), (with_it, s)):
            mass = np.exp(log_normal_mass(x[:-1], x[1:], centre))
            index = np.arange(mass.size) % points
            into.append(fft.rfft(np.bincount(index, mass, minlength=points)))
    p, off_p = np.zeros(points // 2 + 1, complex), np.zeros(points // 2 + 1)
    every = (*epoch.counts, total - released)
    for here in _choices(every, taken):
        ways = math.prod(math.comb(n, m) for n, m in zip(every, here, strict=True))
        weight = ways / math.comb(total, taken)
        rest = [n - m for n, m in zip(epoch.counts, here, strict=False)]
        found, off = _product([*with_it, *without], [*here[:-1], *rest], tiny)
        p += weight * found
        off_p += weight * off
    q, off_q = _product(without, list(epoch.counts), tiny)
    back = functools.partial(_back, points=points, low=low, tiny=tiny)
    return low, back(p, off_p), back(q, off_q), (released + 1) * relative


def _choices(counts: tuple[int, ...], taken: int) -> Iterator[tuple[int, ...]]:
    """How many of each kind the ``taken`` may be."""
    if not counts:
        yield ()
        return
    first, others = counts[0], counts[1:]
    for m in range(max(0, taken - sum(others)), min(first, taken) + 1):
        for rest in _choices(others, taken - m):
            yield m, *rest


def _product(
    spectra: list[np.ndarray], powers: list[int], tiny: float
) -> tuple[np.ndarray, Floats]:
    """The product of powers of transforms, and a bound on its error.

    Each transform is off by ``tiny`` at most. Products of a's and b's differ by the sum
    over the factors of |a - b| times the others, each the larger of its two.
    """
    size, phase, rounding = (np.zeros(spectra[0].size) for _ in range(3))
    largest: list[tuple[int, Floats]] = []
    for values, n in zip(spectra, powers, strict=True):
        if not n:
            continue
        modulus = np.abs(values)
        with np.errstate(divide="ignore"):
            log = np.log(modulus)
        turn = np.angle(values)
        size += n * log
        phase += n * turn
        rounding += 32 * UNIT * n * (np.minimum(-log, 800.0) + np.abs(turn) + 1)
        with np.errstate(divide="ignore"):
            largest.append((n, np.log(modulus + tiny)))
    found = np.exp(size + 1j * phase)
    bound = sum((n * log for n, log in largest), np.zeros(found.size))
    off = np.abs(found) * np.expm1(np.minimum(rounding, 50.0))
    off += 1e-290
    for n, log in largest:
        off += n * tiny * np.exp(np.minimum(bound - log, 1.0)) * (1 + 1e-9)
    return found, off


def _back(
    spectrum: np.ndarray, off: Floats, *, points: int, low: int, tiny: float
) -> tuple[Floats, float]:
    """The law, and the Euclidean norm of its error, by Parseval."""
    double = np.full(off.size, 2.0)
    double[0] = 1.0
    if points % 2 == 0:
        double[-1] = 1.0
    norm = math.sqrt(float(double @ np.abs(spectrum) ** 2) / points)
    wrong = math.sqrt(float(double @ off**2) / points) + tiny * norm
    return np.roll(fft.irfft(spectrum, points), -(low % points)), wrong * (1 + 1e-9)
