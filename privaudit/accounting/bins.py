"""Balls in bins: records in parts that stay secret, and noise that releases share.

A record is in one of p parts, drawn uniformly, and has a turn in every p-th step. What
is known of both sides compares Gram matrices: docs/factorisation.md, "Secret parts".
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import msgspec
import numpy as np
from msgspec import UNSET
from numpy.typing import NDArray
from scipy import special

from privaudit.accounting.factorization import turn_rows
from privaudit.accounting.pld.allocation import AllocatedBelow, Epoch
from privaudit.accounting.pld.mechanisms import Loss
from privaudit.ledger import Entry
from privaudit.release import NoSampling, PoissonSampling
from privaudit.results import Relation

Floats = NDArray[np.float64]
_FAR = 1e6  # of shifts: their squares are exponents
_SLACK = 1e-11  # of sums of products by FFT, over the largest
_ALIKE = 1e-9  # by which turns may differ from what their buffers say
_MOST_ROWS = 1 << 22  # of a Gram matrix by buffers
_LEAST_SHIFT = 1e-9  # of blocks that have nothing in common but what all have
_MOST_ORDER = 96
_MOST_NESTS = 12  # numbers of blocks whose bins are looked at
# Sections of bins, from below, by how far before the end: later ones have fewer rows.
_ENDS = (0.0, 0.02, 0.1, 0.3, 0.6)


@dataclasses.dataclass(frozen=True)
class Bins:
    """The turns of records whose part is secret: one release, however many there are.

    ``turns``: of the first part, which has most. ``square``: least and most of the
    squares of what a row's coefficient 1 moves, over the noise; None if the part is
    known to the bound from above, and nothing to that from below.
    """

    how: PoissonSampling
    turns: tuple[Entry, ...]
    square: tuple[float, float] | None
    shuffled = False

    @property
    def _often(self) -> int:
        return sum(entry.count for entry in self.turns)

    def told(self) -> float:
        """Square of what a record of a known part moves, over the noise."""
        assert self.square is not None
        return self.square[1] * float(_overlaps(self.how, self._often)[0])

    def known_batches(self, relation: Relation) -> Iterator[Entry]:
        """Yield turns of a known part."""
        for entry in self.turns:
            yield Entry(entry.release.of_known_part(), entry.count)

    def above(
        self, relation: Relation, *, most: int = 0
    ) -> tuple[list[tuple[Epoch, int]], list[Entry]]:
        """One of so many blocks, one of its bins, and a release of what is common."""
        if self.square is None:
            return [], list(self.known_batches(relation))
        nest = _nest(self.how, self._often, self.square[1])
        rate = self.how.rate
        coins = self.square[1] * float(_overlaps(self.how, 1)[0])
        if rate < 1 and not self.how.buffers:
            told = self._often * _log_moments(coins, rate)
            if _epsilon(told) < nest.told():
                return [], list(self.known_batches(relation))
        epoch: Epoch | None = None  # of single bins first, then of what holds them
        for square, often in ((nest.own, nest.bins), (nest.block, nest.blocks)):
            if square or often > 1:
                shift = max(math.sqrt(square * (1 + _SLACK)), _LEAST_SHIFT)
                epoch = Epoch((shift,), (often,), often, inner=epoch)
        epochs = [] if epoch is None else [(epoch, 1)]
        return epochs, self._common(nest.common * (1 + _SLACK), relation)

    def below(self, relation: Relation) -> tuple[list[tuple[Loss, int]], list[Entry]]:
        """The loss of one of some blocks, each of two blocks and so on, to bins."""
        # Of several runs records may have parts of their own: they tell less.
        one_run = self.how.buffers or len(self.turns) == 1
        signs = all(c >= 0 for c in self.how.shares)
        if self.square is None or self.how.rate < 1 or not (signs and one_run):
            return [], []
        epoch, common = _tree(self.how, self._often, self.square[0])
        loss = None if epoch is None else AllocatedBelow.of(epoch)
        beside = self._common(common * (1 - _SLACK), relation)
        return [] if loss is None else [(loss, 1)], beside

    def tells(self, relation: Relation) -> bool:
        """Return whether any turn depends on the record: all do."""
        return True

    def _common(self, square: float, relation: Relation) -> list[Entry]:
        if not square > 0:
            return []
        release = self.turns[0].release
        noise = release.sensitivity_under(relation) / math.sqrt(square)
        return [
            Entry(msgspec.structs.replace(release, sampling=NoSampling(), noise=noise))
        ]


def bins_of(
    entries: Sequence[Entry], relation: Relation
) -> tuple[list[Bins], list[Entry]]:
    """Split ``entries`` into turns of records whose part is secret, and others.

    Of a record replaced, and of turns that are not all that their strategy makes of
    one clip norm, the part counts as known. So it does for all turns but those that
    tell most, if some have other noise: a record may have one part in all.
    """
    found: dict[PoissonSampling, list[list[Entry]]] = {}
    rest: list[Entry] = []
    for entry in entries:
        how, release = entry.release.sampling, entry.release
        if not isinstance(how, PoissonSampling) or not (
            how.secret
            and release.mechanism == "gaussian"
            and release.noise > 0
            and entry.disjoint is UNSET
        ):
            rest.append(entry)
            continue
        if not release.sensitivity_under(relation):
            continue
        groups = found.setdefault(msgspec.structs.replace(how, turn=0), [])
        for group in groups:
            if math.isclose(group[0].release.noise, release.noise, rel_tol=_ALIKE):
                group.append(entry)
                break
        else:
            groups.append([entry])
    bins = [
        Bins(how, tuple(turns), _square(how, turns, relation))
        for how, groups in found.items()
        for turns in groups
    ]
    told = max((some for some in bins if some.square), key=Bins.told, default=None)
    bins = [
        one if one is told else dataclasses.replace(one, square=None) for one in bins
    ]
    return bins, rest


def _square(
    how: PoissonSampling, turns: Sequence[Entry], relation: Relation
) -> tuple[float, float] | None:
    """As of `Bins`; None if turns are not those of the strategy."""
    if relation != "add-or-remove-one":
        return None
    shifts = [
        entry.release.sensitivity_under(relation) / entry.release.noise
        for entry in turns
    ]
    if not how.buffers:
        units = np.array(shifts) / math.hypot(1.0, *how.shares)
    elif len(turns) * how.parts > _MOST_ROWS or any(one.count > 1 for one in turns):
        return None
    else:
        numbers = [getattr(entry.release.sampling, "turn", -1) for entry in turns]
        if sorted(numbers) != list(range(len(turns))):
            return None
        rows = turn_rows(how.buffers, how.parts, len(turns))
        units = np.array(shifts) / np.linalg.norm(rows, axis=1)[numbers]
    least, most = float(units.min()), float(units.max())
    if not 0 < most < _FAR or most > least * (1 + _ALIKE):
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


@functools.lru_cache(maxsize=64)
def _tree(
    how: PoissonSampling, turns: int, square: float
) -> tuple[Epoch | None, float]:
    """Blocks of bins that have no more in common than bins have, and what all have.

    Each block is two, down to single bins; later bins, whose rows end too early, and
    those of no whole block tell what is common to all.
    """
    last, held, common = _least_overlaps(how, turns)
    held = (held - common) * (square * (1 - _SLACK))
    sizes = [2**k for k in range(how.parts.bit_length())]
    found = []
    for kept, end in enumerate(last, start=1):
        steps = held[:kept, np.array(sizes) - 1]
        least = max(1e-12 * float(steps[0, 0]), _LEAST_SHIFT**2)
        falls = [(float(fall), 2) for fall in -np.diff(steps).max(0)]
        for k, size in enumerate(sizes):
            blocks = (end + 1) // size
            if not (
                blocks and steps[-1, k] > 0 and all(x > least for x, _ in falls[:k])
            ):
                break
            levels = [*falls[:k], (float(steps[-1, k]), -(-how.parts // size))]
            told = _told(levels) + math.log(blocks * size / how.parts)
            found.append((told, blocks, size, levels))
    if not found:  # all that bins have is common, as far as sums are known
        return None, common * square
    _, blocks, size, (*levels, (_, often)) = max(found, key=lambda one: one[0])
    inner = None
    for fall, two in levels:
        inner = Epoch((math.sqrt(fall),), (two,), two, inner=inner)
    ends = np.arange(1, blocks + 1) * size - 1
    each = np.sqrt(held[np.searchsorted(last, ends), size - 1])
    kinds, counts = np.unique(each, return_counts=True)
    shifts, numbers = tuple(kinds.tolist()), tuple(counts.tolist())
    return Epoch(shifts, numbers, often, inner=inner), common * square


def _correlations(one: Floats, other: Floats, lags: int) -> Floats:
    """Sums of ``one``[s] ``other``[s + l], l < ``lags``."""
    from scipy.signal import correlate

    return correlate(other, one, "full", "fft")[one.size - 1 :][:lags]


class _Nest(NamedTuple):
    """One of ``blocks`` blocks, and in it one of ``bins`` bins, ``apart``.

    Squares of shifts: ``common`` to all, of the ``block``, and the bin's ``own``.
    """

    blocks: int
    bins: int
    common: float
    block: float
    own: float
    apart: int = 1

    def told(self) -> float:
        """`_told` of it."""
        return _told([(self.own, self.bins), (self.block, self.blocks)], self.common)


def _told(levels: Sequence[tuple[float, int]], common: float = 0.0) -> float:
    """About epsilon at delta 1e-6, by Renyi divergences.

    ``levels``: squares of shifts and of how many one is drawn, bins first.
    """
    square = sum(one for one, _ in levels)
    most = max(2, min(_MOST_ORDER, int(math.sqrt(1200 / max(square, 1e-9)))))
    orders = np.arange(most + 1)
    logs = np.zeros(most + 1)
    for one, often in levels:
        logs = _of_mean(logs + one * orders * (orders - 1) / 2, often)
    return _epsilon(logs + common * orders * (orders - 1) / 2)


def _epsilon(logs: Floats) -> float:
    """About epsilon at delta 1e-6, of logs of moments of the ratio under Q."""
    some = np.arange(2, logs.size)
    told = (logs[2:] - np.log(1e-6 * some)) / (some - 1) + np.log1p(-1 / some)
    return float(told.min())


def _log_moments(square: float, rate: float) -> Floats:
    """Logs of moments of the ratio of a Gaussian release with coins."""
    orders = np.arange(_MOST_ORDER + 1)
    terms = (
        special.gammaln(orders[:, None] + 1)
        - special.gammaln(orders + 1)
        - special.gammaln(np.maximum(orders[:, None] - orders, 0) + 1)
        + special.xlogy(orders, rate)
        + special.xlogy(np.maximum(orders[:, None] - orders, 0), 1 - rate)
        + square * orders * (orders - 1) / 2
    )
    terms[orders[:, None] < orders] = -np.inf
    return np.asarray(special.logsumexp(terms, axis=1))


def _of_mean(logs: Floats, often: int) -> Floats:
    """Logs of moments of the mean of so many, by exponential series."""
    orders = np.arange(logs.size)
    scale = orders * math.log(logs.size) - special.gammaln(orders + 1)
    once = np.exp(np.minimum(logs + scale - orders * math.log(often), 300.0))
    total = np.eye(1, logs.size)[0]
    with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
        while often:
            if often & 1:
                total = np.convolve(total, once)[: logs.size]
            once, often = np.convolve(once, once)[: logs.size], often // 2
        found = np.log(total) - scale
    return np.where(np.isnan(found), np.inf, found)


@functools.lru_cache(maxsize=64)
def _nest(how: PoissonSampling, turns: int, square: float) -> _Nest:
    """Bins that are told apart such that least is told: any would do.

    Their blocks begin ``parts // blocks`` apart, bins in a block ``apart``.
    """
    overlaps = _overlaps(how, turns) * square
    parts, whole = overlaps.size, float(overlaps[0])
    both = np.maximum(overlaps[1:], overlaps[:0:-1])[: parts // 2]
    common = np.maximum.accumulate(both[::-1])[::-1]  # at least 1, 2, ... apart
    found = [_Nest(1, 1, whole, 0.0, 0.0)]
    for blocks in sorted({parts // s for s in range(1, parts // 2 + 1)}):
        gap = parts // blocks
        far = float(common[gap - 1])
        found.append(_Nest(blocks, 1, far, max(0.0, whole - far), 0.0))
    alone = min(found, key=_Nest.told)
    near = [n for n in found[1:] if alone.blocks / 8 <= n.blocks <= 2 * alone.blocks]
    for one in near[:: -(-len(near) // _MOST_NESTS)]:
        for bins, apart in itertools.product((2, 3, 4, 6, 8), (1, 2, 3, 4, 6, 8, 12)):
            gap = parts // one.blocks - (bins - 1) * apart
            if gap <= apart:
                continue
            far, held = float(common[gap - 1]), float(common[apart - 1])
            if held > far:
                own = max(0.0, whole - held)
                found.append(_Nest(one.blocks, bins, far, held - far, own, apart))
    return min(found, key=_Nest.told)
