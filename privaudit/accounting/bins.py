"""Balls in bins: records in parts that stay secret, and noise that releases share.

A record is in one of p parts, drawn uniformly, and has a turn in every p-th step. What
is known of both sides compares Gram matrices: docs/factorisation.md, "Secret parts".
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Iterator, Sequence

import msgspec
import numpy as np
from msgspec import UNSET
from numpy.typing import NDArray
from scipy import special

from privaudit.accounting.factorization import turn_rows
from privaudit.accounting.pld.allocation import AllocatedBelow, Epoch
from privaudit.accounting.pld.mechanisms import Loss
from privaudit.ledger import Entry
from privaudit.release import NoSampling, PoissonSampling, Release
from privaudit.results import Relation

Floats = NDArray[np.float64]
_SLACK = 1e-11  # of sums of products by FFT, over the largest
_ALIKE = 1e-9  # by which turns may differ from what their buffers say
_MOST_ROWS = 1 << 22  # of a Gram matrix by buffers
_MOST_ORDER = 24
# Sections of bins, from below, by how far before the end: later ones have fewer rows.
_ENDS = (0.0, 0.02, 0.1, 0.3, 0.6)


@dataclasses.dataclass(frozen=True)
class Bins:
    """The turns of records whose part is secret: one release, however many there are.

    ``turns``: of the first part, which has most. ``square``: least and most of the
    squares of what a row's coefficient 1 moves, over the noise.
    """

    how: PoissonSampling
    turns: tuple[Entry, ...]
    square: tuple[float, float]
    shuffled = False

    def told(self) -> float:
        """Square of what a record of a known part moves, over the noise."""
        return self.square[1] * float(_overlaps(self.how, self._often)[0])

    @property
    def _release(self) -> Release:
        return self.turns[0].release

    @property
    def _often(self) -> int:
        return sum(entry.count for entry in self.turns)

    def known_batches(self, relation: Relation) -> Iterator[Entry]:
        """Yield turns without sampling: the part is known."""
        for entry in self.turns:
            yield Entry(_bare(entry.release), entry.count)

    def above(
        self, relation: Relation, *, most: int = 0
    ) -> tuple[list[tuple[Epoch, int]], list[Entry]]:
        """One of t bins, and a release of what they have in common."""
        overlaps = self.square[1] * _overlaps(self.how, self._often)
        whole = float(overlaps[0])
        batches, common = _fewest(overlaps)
        own = math.sqrt(max(0.0, whole - common) * (1 + _SLACK))
        epochs = [(Epoch((own,), (batches,), batches), 1)] if own else []
        return epochs, self._common(common * (1 + _SLACK), relation)

    def below(self, relation: Relation) -> tuple[list[tuple[Loss, int]], list[Entry]]:
        """The loss of one of t blocks of bins, each of which counts as one bin."""
        if not all(c >= 0 for c in self.how.shares):
            return [], []
        square, parts = self.square[0] * (1 - _SLACK), self.how.parts
        last, held, common = _least_overlaps(self.how, self._often)
        own = np.maximum(held - common, 0.0) * square
        sizes = [2**k for k in range(parts.bit_length())]
        size = max(
            sizes, key=lambda m: _told(-(-parts // m), float(own[0, m - 1]), 0.0)
        )
        shifts: dict[float, int] = {}
        for many, shift in zip(
            np.diff([-1, *last]), np.sqrt(own[:, size - 1]), strict=True
        ):
            if shift > 0 and (blocks := int(many) // size):
                shifts[float(shift)] = shifts.get(float(shift), 0) + blocks
        beside = self._common(common * square, relation)
        if not shifts:
            return [], beside
        kinds, counts = zip(*sorted(shifts.items()), strict=True)
        loss = AllocatedBelow.of(Epoch(kinds, counts, -(-parts // size)))
        return ([], []) if loss is None else ([(loss, 1)], beside)

    def tells(self, relation: Relation) -> bool:
        """Return whether any turn depends on the record: all do."""
        return True

    def _common(self, square: float, relation: Relation) -> list[Entry]:
        if not square > 0:
            return []
        noise = self._release.sensitivity_under(relation) / math.sqrt(square)
        return [Entry(msgspec.structs.replace(_bare(self._release), noise=noise))]


def bins_of(
    entries: Sequence[Entry], relation: Relation
) -> tuple[list[Bins], list[Entry]]:
    """Split ``entries`` into turns of records whose part is secret, and others.

    Of a record replaced, and of turns that are not what their strategy makes of one
    clip norm, the part counts as known: they are among the others. So are turns of
    different noise but those that tell most: a record may have one part in all.
    """
    found: dict[PoissonSampling, list[list[Entry]]] = {}
    rest: list[Entry] = []
    for entry in entries:
        how, release = entry.release.sampling, entry.release
        secret = isinstance(how, PoissonSampling) and how.secret
        if not (secret and relation == "add-or-remove-one" and release.noise > 0) or (
            release.mechanism != "gaussian" or entry.disjoint is not UNSET
        ):
            rest.append(entry)
            continue
        assert isinstance(how, PoissonSampling)
        groups = found.setdefault(how, [])
        alike = (some for some in groups if _are_alike(some[0].release, release))
        if (group := next(alike, None)) is None:
            groups.append(group := [])
        group.append(entry)
    bins = []
    for how, groups in found.items():
        for turns in groups:
            square = _square(how, turns, relation)
            if square is None or not square[0] > 0:
                rest += turns
            else:
                bins.append(Bins(how, tuple(turns), square))
    bins.sort(key=Bins.told, reverse=True)
    rest += [turn for some in bins[1:] for turn in some.turns]
    return bins[:1], rest


def _are_alike(one: Release, other: Release) -> bool:
    return math.isclose(one.noise, other.noise, rel_tol=_ALIKE)


def _square(
    how: PoissonSampling, turns: Sequence[Entry], relation: Relation
) -> tuple[float, float] | None:
    """As of `Bins`; None if turns are not those of the strategy."""
    shifts = [
        entry.release.sensitivity_under(relation) / entry.release.noise
        for entry in turns
    ]
    if not how.buffers:
        units = np.array(shifts) / math.hypot(1.0, *how.shares)
    elif len(turns) * how.parts > _MOST_ROWS or any(one.count > 1 for one in turns):
        return None
    else:
        rows = turn_rows(how.buffers, how.parts, len(turns))
        units = np.sort(shifts) / np.linalg.norm(rows, axis=1)
    least, most = float(units.min()), float(units.max())
    if not most < math.inf or most > least * (1 + _ALIKE):
        return None
    return least**2 * (1 - _SLACK), most**2 * (1 + _SLACK)


@functools.lru_cache(maxsize=64)
def _overlaps(how: PoissonSampling, turns: int) -> Floats:
    """(parts,): at most what bins l apart have in common, of the coefficients' sizes.

    At 0 a bin's square. Bins j < k have most where j = 0 and no row is cut.
    """
    parts = how.parts
    if how.buffers:
        rows = turn_rows(how.buffers, parts, turns).ravel()
        found = _correlations(rows, rows, parts)
        return found + _SLACK * found[0]
    size = np.abs((1.0, *how.shares))
    once = np.zeros(parts + 1)
    once[: size.size] = np.correlate(size, size, "full")[size.size - 1 :]
    return turns * once[:parts] + (turns - 1) * np.append(0.0, once[parts - 1 : 0 : -1])


@functools.lru_cache(maxsize=64)
def _least_overlaps(
    how: PoissonSampling, turns: int
) -> tuple[list[int], Floats, float]:
    """At least what bins have in common, of ``turns`` whole passes: rows end there.

    Last bins of some sections, which follow each other; (sections, parts): what any two
    of a section have in common that are at most 0, 1, ... apart; and any two of all.
    Coefficients are >= 0.
    """
    parts = how.parts
    last = sorted({max(0, parts - 1 - int(parts * x)) for x in _ENDS})
    if how.buffers:
        rows = turn_rows(how.buffers, parts, turns).ravel()
        found = [_correlations(rows[: rows.size - k], rows, parts) for k in last]
        held = np.array(found) - _SLACK * (rows @ rows)
    else:
        column = np.append((1.0, *how.shares), np.zeros(parts))
        cut = [
            _correlations(column[: min(parts - k, parts)], column, parts) for k in last
        ]
        whole = _correlations(column[:parts], column, parts)
        held = (turns - 1) * whole + np.array(cut) - _SLACK * turns * whole[0]
    held = np.minimum.accumulate(np.maximum(held, 0.0), axis=1)
    return last, held, float(held[-1, -1])


def _correlations(one: Floats, other: Floats, lags: int) -> Floats:
    """Sums of ``one``[s] ``other``[s + l], l < ``lags``."""
    from scipy.signal import correlate

    return correlate(other, one, "full", "fft")[one.size - 1 :][:lags]


def _fewest(overlaps: Floats) -> tuple[int, float]:
    """Number of bins that are told apart, and at most what two of them have in common.

    So far apart that least is told, by Renyi divergences at delta 1e-6: any will do.
    """
    parts, whole = overlaps.size, float(overlaps[0])
    if parts == 1:
        return 1, 0.0
    both = np.maximum(overlaps[1:], overlaps[:0:-1])[: parts // 2]
    common = np.maximum.accumulate(both[::-1])[::-1]  # at least 1, 2, ... apart
    apart = np.arange(1, parts // 2 + 1)
    batches = parts // apart
    # Of equal numbers of bins those that are farthest apart have least in common.
    kept = {int(t): float(c) for t, c in zip(batches, common, strict=True)}
    told = {t: _told(t, whole - c, c) for t, c in kept.items()}
    best = min(told, key=told.__getitem__)
    if told[best] >= _told(1, 0.0, whole):
        return 1, whole
    return best, kept[best]


def _told(batches: int, own: float, common: float) -> float:
    """About epsilon at delta 1e-6 of one of ``batches`` bins and what is common."""
    most = 2
    while most < _MOST_ORDER and own * most * (most + 1) < 1200:
        most += 1
    k = np.arange(most + 1)
    # Moments of a ratio, and of the sum of so many, as exponential series.
    once = np.exp(np.minimum(own * k * (k - 1) / 2, 700.0)) / special.factorial(k)
    once /= float(batches) ** k
    total, often = np.eye(1, most + 1)[0], batches
    while often:
        if often & 1:
            total = np.convolve(total, once)[: most + 1]
        once, often = np.convolve(once, once)[: most + 1], often // 2
    orders = k[2:]
    moments = np.log(total[2:] * special.factorial(orders))
    return float(
        ((moments - math.log(1e-6)) / (orders - 1) + common * orders / 2).min()
    )


def _bare(release: Release) -> Release:
    return msgspec.structs.replace(release, sampling=NoSampling())
