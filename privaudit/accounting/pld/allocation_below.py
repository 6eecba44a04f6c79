"""An epoch of random allocation from below, of a record in several of its batches.

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
from collections.abc import Callable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray
from scipy import fft

from privaudit.accounting.pld.allocation import Epoch, pair_below
from privaudit.accounting.pld.cells import Direction
from privaudit.accounting.pld.dots import GridMeasure
from privaudit.accounting.pld.line import (
    LONG,
    LONG_UNIT,
    UNIT,
    Floats,
    log_normal_mass,
)
from privaudit.accounting.pld.mechanisms.atoms import Atoms
from privaudit.accounting.pld.mechanisms.loss import Loss, PairLoss

_FINENESS = 0.04  # grid step over the deviation of a ratio
_FAR = 6.5  # deviations of noise beyond which a ratio is not told apart
_GOOD_POINTS, _FINEST = 1 << 17, 0.1  # a finer one where that costs nothing
_MOST_POINTS, _MOST_OUTPUTS = 1 << 20, 1 << 14  # the points of one kind of batches
_MOST = 4096  # products of transforms
_MOST_KINDS, _FEW_KINDS = 512, 16  # long doubles where there are few
_WIDTHS = (1, 8, 64, 512)  # of outputs that are made one
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
        """None where there is no bound: for too many choices of those ``taken``."""
        if taken == 1:
            return None if pair_below(epoch) is None else cls(epoch)
        epoch = _fewer(epoch)
        products = itertools.chain.from_iterable(_shares(epoch, taken))
        few = sum(1 for _ in itertools.islice(products, _MOST + 1)) <= _MOST
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


def _fewer(epoch: Epoch) -> Epoch:
    """With at most 512 shifts, some of them less: of data whose sums move less."""
    if len(epoch.shifts) <= _MOST_KINDS:
        return epoch
    levels = np.geomspace(epoch.shifts[0], epoch.shifts[-1], _MOST_KINDS)
    levels[0] = epoch.shifts[0]
    at = np.searchsorted(levels, epoch.shifts, "right") - 1
    counts = np.bincount(at, weights=epoch.counts, minlength=_MOST_KINDS)
    some = counts > 0
    kinds = levels[some].tolist()
    return Epoch(tuple(kinds), tuple(map(int, counts[some])), epoch.batches)


@functools.lru_cache(maxsize=16)
def _pairs(epoch: Epoch, taken: int) -> dict[Direction, Atoms]:
    """The outputs' chances, of the first law too little and of the second too much."""
    if taken == 1:
        pair = pair_below(epoch)
        assert pair is not None  # `AllocatedBelow.of` has looked
        return {"remove": pair, "add": pair}
    low, (p, off_p), (q, off_q), relative = _laws(epoch, taken)
    # Neighbours become one output, wherever their losses are about the same.
    sums = low + np.arange(p.size)
    scale = sums.astype(np.float64)
    each = max((scale[-1] - scale[0]) / _MOST_OUTPUTS, 1e-300)
    place = np.floor((scale - scale[0]) / each).astype(np.int64)
    whole = math.sqrt(sums.size)
    pairs: dict[Direction, Atoms] = {}
    for way in ("remove", "add"):
        (first, off), (second, more) = (p, off_p), (q, off_q)
        if way == "add":
            (first, off), (second, more) = (second, more), (first, off)
        least, other, wrong = _outputs(place, (first, off), (second, more))
        most = other + wrong
        # All other outputs are one, of which the first law is said to have nothing.
        rest = max(0.0, 1 - math.fsum(other)) + whole * more
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


def _outputs(
    place: NDArray[np.int64], first: tuple[Floats, float], second: tuple[Floats, float]
) -> tuple[Floats, Floats, Floats]:
    """The first law's chances, at least, and the second's, with their errors.

    With each law its error in the Euclidean norm. Of outputs whose chance is not known
    well enough more are made one, as far as that.
    """
    laws, offs = zip(first, second, strict=True)
    size = np.bincount(place)
    masses = [np.bincount(place, weights=law) for law in laws]
    left = np.flatnonzero(size)
    found: list[tuple[Floats, Floats, Floats]] = []
    for width in _WIDTHS:
        _, where = np.unique(left // width, return_inverse=True)
        root = np.sqrt(np.bincount(where, weights=size[left]))
        one, other = (np.bincount(where, weights=each[left]) for each in masses)
        sure = one > _SURE * offs[0] * root
        if width < _WIDTHS[-1]:
            sure &= other > _SURE * offs[1] * root
        some = one - offs[0] * root, np.maximum(other, 0.0), offs[1] * root
        found.append((some[0][sure], some[1][sure], some[2][sure]))
        left = left[~sure[where]]
    least, more, wrong = (np.concatenate(each) for each in zip(*found, strict=True))
    return least, more, wrong


def _laws(
    epoch: Epoch, taken: int
) -> tuple[int, tuple[Floats, float], tuple[Floats, float], float]:
    """The least sum, and the chances of all sums with the record and without it.

    With each law the Euclidean norm of its error; last the relative one of all chances.
    """
    counts = np.array(epoch.counts)
    released, total = int(counts.sum()), epoch.batches
    # The likelihood ratio is a coefficient of the product of all 1 + z l: about z^-k
    # times the product.
    z = taken / (total - taken + 0.5)
    x = np.linspace(-8.0, 8.0, 1601)
    bell = np.exp(-0.5 * x * x) / np.exp(-0.5 * x * x).sum()
    told = [np.log1p(z * np.exp(s * x - s * s / 2)) for s in epoch.shifts]
    means = np.array([bell @ one for one in told])
    variances = np.array([bell @ one**2 for one in told]) - means**2
    mean, variance = float(counts @ means), float(counts @ variances)
    step = _FINENESS * math.sqrt(min(variance / released, 1.0))
    wide = 10 * math.sqrt(min(variance, 4 * mean))
    tops = [
        math.log1p(z * math.exp(min(s * (_FAR + s / 2), 700))) for s in epoch.shifts
    ]
    length = min(mean, wide) + wide + taken * max(tops)
    good = _GOOD_POINTS / counts.size
    step *= min(max(length / step / good, _FINEST), 1.0)
    most = int(_MOST_POINTS / math.sqrt(counts.size))
    cells = [math.ceil(min(top / step, 0.75 * most)) for top in tops]
    low = max(0, math.floor((mean - wide) / step))  # few sums are below
    points = math.ceil((min(mean, wide) + wide) / step + taken * max(cells)) + 64
    points = fft.next_fast_len(min(points, most), real=True)
    few = counts.size <= _FEW_KINDS
    real, unit = (LONG, LONG_UNIT) if few else (np.float64, UNIT)
    tiny = 24 * unit * (math.log2(points) + 2)
    relative = 0.0
    # By how many of the batches so far have the record: a transform and its error.
    known = {0: (np.ones(1, complex), np.zeros(1))}
    shares = _shares(epoch, taken)
    for s, n, size in zip(epoch.shifts, epoch.counts, cells, strict=True):
        edges = (np.arange(size) + 0.5) * step
        # log((e^x - 1) / z), for any x that a double holds
        logs = edges + np.log(-np.expm1(-edges)) - math.log(z)
        edges = logs / s + s / 2
        x = np.concatenate([[-np.inf], edges, [np.inf]])
        reach = float(np.abs(x[1:-1]).max()) + s
        relative = max(relative, UNIT * (1024 + 32 * reach * reach))
        spectra = []
        for centre in (0.0, s):
            mass = np.exp(log_normal_mass(x[:-1], x[1:], centre))
            index = np.arange(mass.size) % points
            whole = np.bincount(index, mass, minlength=points).astype(real)
            spectra.append(fft.rfft(whole))
        power = functools.partial(_power, spectra, n, tiny=tiny, unit=unit)
        known = _added(known, next(shares), power, unit)
    if total > released:
        known = _added(known, next(shares), lambda m: (np.ones(1), np.zeros(1)), unit)
    back = functools.partial(_back, points=points, low=low, tiny=tiny)
    return low, back(*known[taken]), back(*known[0]), (released + 1) * relative


def _shares(epoch: Epoch, taken: int) -> Iterator[list[tuple[int, int, float]]]:
    """For each kind, those not released last: (j, m, chance).

    The chance that m of its batches have the record if j of all up to it have: of the
    j that ``taken`` in all may come from, and 0.
    """
    had, left = 0, epoch.batches
    for n in (*epoch.counts, epoch.batches - sum(epoch.counts)):
        if not n:
            continue
        left -= n
        yield [
            (j, m, math.comb(had, j - m) * math.comb(n, m) / math.comb(had + n, j))
            for j in {0, *range(max(taken - left, 0), min(taken, had + n) + 1)}
            for m in range(max(j - had, 0), min(n, j) + 1)
        ]
        had += n


def _added(
    known: dict[int, tuple[np.ndarray, Floats]],
    shares: list[tuple[int, int, float]],
    power: Callable[[int], tuple[np.ndarray, Floats]],
    unit: float,
) -> dict[int, tuple[np.ndarray, Floats]]:
    """The mixtures with one more kind of batches, and bounds on their errors."""
    powers = {m: power(m) for m in {m for _, m, _ in shares}}
    sizes = {m: _size(values) for m, (values, _) in powers.items()}
    found: dict[int, tuple[np.ndarray, Floats]] = {}
    rounding = 8 * unit * (len(powers) + 4)
    for j, m, chance in shares:
        (before, off_before), (values, off_values) = known[j - m], powers[m]
        size = _size(before)
        off = off_before * (sizes[m] + off_values) + size * off_values
        off += rounding * size * sizes[m]
        part = chance * before * values, chance * off
        more = found.get(j)
        found[j] = part if more is None else (more[0] + part[0], more[1] + part[1])
    return found


def _power(
    spectra: Sequence[np.ndarray], n: int, m: int, *, tiny: float, unit: float
) -> tuple[np.ndarray, Floats]:
    """The transform of n batches of which m have the record, and a bound on its error.

    ``spectra`` are those of a batch without it and with it, both off by ``tiny`` at
    most. Products of a's and b's differ by the sum over the factors of |a - b| times
    the others, each the larger of its two.
    """
    without, with_it = spectra
    if n == 1:
        values = with_it if m else without
        return values, np.full(values.size, tiny)
    size, phase, rounding, bound = (np.zeros_like(without.real) for _ in range(4))
    largest: list[tuple[int, Floats]] = []
    for values, often in ((without, n - m), (with_it, m)):
        if not often:
            continue
        modulus = np.abs(values)
        log, turn = np.log(np.maximum(modulus, 1e-300)), np.angle(values)
        size += often * log
        phase += often * turn
        rounding += 32 * unit * often * (np.abs(log) + np.abs(turn) + 1)
        largest.append((often, np.log(modulus + tiny)))
        bound += often * largest[-1][1]
    found = np.exp(size + 1j * phase)
    off = np.abs(found) * np.expm1(np.minimum(rounding, 50.0)) + 1e-290
    for often, log in largest:
        off += often * tiny * np.exp(np.minimum(bound - log, 1.0)) * (1 + 1e-9)
    return found, off


def _size(values: np.ndarray) -> Floats:
    """At least |values|, but for some roundings; sooner than numpy's."""
    return np.sqrt(values.real**2 + values.imag**2) + 1e-150


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
    law = np.roll(fft.irfft(spectrum, points), -(low % points))
    return law.astype(np.float64), wrong * (1 + 1e-9)
