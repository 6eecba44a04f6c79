"""Epochs in which a record is in several batches, from below: sums of scores.

A test of an epoch adds up scores of batches' outputs, whole numbers of a step, and asks
if the sum is large. Its chances are convolutions, whatever the scores are. These start
as losses of batches by themselves would be; then, at one loss after another, each is
the best answer to those before. Proofs, rounding included: ``allocation.md``, "Sums of
scores".
"""

from __future__ import annotations

import dataclasses
import heapq
import itertools
import math

import numpy as np
from scipy import special

from privaudit.accounting.pld.allocation_replaced import (
    Kinds,
    attained,
    attained_apart,
    grouped,
)
from privaudit.accounting.pld.line import UNIT, Floats, log_normal_mass

MOST_TAKEN = 24  # batches of a record; of more laws take minutes
_POINTS = 1000  # cells of one output
_NODES = 160  # outputs whose best answer is looked for
# Odds of a record's being in a batch, over its share of them, by which scores start.
_ODDS = (2.0, 0.5, 0.05)
_TURNS = 2  # how often scores are improved at a loss
# At so many losses, and with so many products of all laws together, a few seconds: of a
# record replaced, and of one removed, where cones tell nearly all.
_LOSSES, _WORK = (18, 9), (6e9, 2e9)
# Sums of all batches, as many as variance asks for: rounding adds a twelfth of a step's
# square for each batch.
_FEWEST, _MOST, _ROUNDED = 2000, 5000, 0.02
_FAR, _JUMPS = 7.0, 2  # deviations, and batches by themselves, to either side of sums
_LEAST_KEPT = 0.02  # part of the range of sums that is kept, as a guess
_DENSE = 25.0  # events for each e-fold of their chance
_AWAY = 1e-3  # of the tail that may be lost, what each sum loses at either end
_LEAST_MASS = 1e-290  # what is below all doubles is no share of it, however often


@dataclasses.dataclass(frozen=True, slots=True)
class _Kind:
    """Batches with one shift: cells of an output, and their chances."""

    shift: float
    count: int
    opposed: bool  # whether the record is replaced by its opposite, or removed
    at: Floats  # about where cells are
    masses: Floats  # where the record is not, where it is, and in the other world
    accuracy: float

    @classmethod
    def of(cls, shift: float, count: int, opposed: bool, tail: float) -> _Kind:
        """Cells of so many batches' outputs, even but for the outermost."""
        far = shift - float(special.ndtri_exp(math.log(_AWAY * tail)))
        ends = np.linspace(-far, far, _POINTS - 1)
        at = np.concatenate([ends[:1], (ends[1:] + ends[:-1]) / 2, ends[-1:]])
        ends = np.concatenate([[-np.inf], ends, [np.inf]])
        means = 0.0, shift, -shift if opposed else 0.0
        masses = [np.exp(log_normal_mass(ends, mean)) for mean in means]
        error = UNIT * (1024 + 32 * (far + shift) ** 2)
        return cls(shift, count, opposed, at, np.array(masses), error)

    def ratios(self, at: Floats) -> tuple[Floats, Floats]:
        """Likelihood ratios of outputs in the one world and in the other."""
        s, away = self.shift, -self.shift if self.opposed else 0.0
        return np.exp(s * at - s * s / 2), np.exp(away * at - away * away / 2)


@dataclasses.dataclass(frozen=True, slots=True)
class _Sum:
    """Laws of the sum of some batches' scores.

    ``laws``, (2, k + 1, sums from ``low`` on): in both worlds, if none, one, ..., k of
    these ``size`` batches are the record's, all choices alike.
    """

    low: int
    laws: Floats
    size: int
    accuracy: float  # bound on relative errors

    @property
    def told(self) -> Floats:
        """Return the laws that there are: no more batches than it has."""
        return self.laws[:, : self.size + 1]

    def kept(self, lost: float) -> _Sum:
        """Leave out of all laws what hardly counts in any, and raise what is no double.

        Raised masses are no share of those that events have which P or Q likes.
        """
        most = self.told.max((0, 1))
        first = int(np.searchsorted(np.cumsum(most), lost))
        last = most.size - int(np.searchsorted(np.cumsum(most[::-1]), lost))
        first = min(first, most.size - 1)
        last = max(last, first + 1)
        laws = self.laws[:, :, first:last].copy()
        kept = dataclasses.replace(self, low=self.low + first, laws=laws)
        np.maximum(kept.told, _LEAST_MASS, out=kept.told)
        return kept

    def added(self, other: _Sum, lost: float) -> _Sum:
        """The laws of the sum of two parts."""
        size, most = self.size + other.size, self.laws.shape[1] - 1
        sums = self.laws.shape[2] + other.laws.shape[2] - 1
        laws = np.zeros((2, most + 1, sums))
        for j in range(min(most, size) + 1):
            whole = math.comb(size, j)
            for i in range(max(0, j - other.size), min(j, self.size) + 1):
                ways = math.comb(self.size, i) * math.comb(other.size, j - i)
                for world in range(2 if j else 1):
                    one, more = self.laws[world, i], other.laws[world, j - i]
                    laws[world, j] += ways / whole * np.convolve(one, more)
        laws[1, 0] = laws[0, 0]
        terms = min(self.laws.shape[2], other.laws.shape[2]) + most + 8
        accuracy = self.accuracy + other.accuracy + terms * UNIT
        return _Sum(self.low + other.low, laws, size, accuracy).kept(lost)


@dataclasses.dataclass(frozen=True, slots=True)
class _Test:
    """Scores of each kind's cells, and what sums of them tell."""

    scores: list[Floats]
    step: float
    rest: _Sum | None  # of all batches but one
    # P and Q of sums of so much and more; Q and P of sums that are less: safely rounded
    more: Floats
    less: Floats

    def height(self, loss: float) -> float:
        """The most that P exceeds exp(loss) Q by, or if that is below 0 Q exceeds P."""
        one, other = self.less if loss < 0 else self.more
        return float(np.max(one - math.exp(abs(loss)) * other, initial=0.0))


class _Scorer:
    """Tests of an epoch."""

    def __init__(
        self, kinds: Kinds, batches: int, taken: int, tail: float, *, opposed: bool
    ) -> None:
        self.kinds = [_Kind.of(s, n, opposed, tail) for s, n in kinds]
        self.batches, self.taken, self.lost = batches, taken, _AWAY * tail
        # Of doubling, and of parts that are added up; the last of them are most work.
        sums = math.log2(batches) + math.log2(len(kinds) + 1)
        which = int(not opposed)
        self.losses, work = _LOSSES[which], _WORK[which]
        tests = len(_ODDS) + self.losses * _TURNS
        share = work / tests / (taken + 1) / (taken + 2) / sums
        self.most = min(_MOST, 4 * math.sqrt(share))
        self.part = 1.0  # of the range of sums that is kept, as of the scores before

    def first(self, odds: float) -> _Test:
        """Scores as losses are if each batch is the record's with such odds."""
        found = []
        for kind in self.kinds:
            one, other = kind.ratios(kind.at)
            found.append(np.log1p(odds * one) - np.log1p(odds * other))
        return self.test(found)

    def test(self, scores: list[Floats]) -> _Test:
        """Laws of sums of such scores, and their tests."""
        variance = up = down = 0.0
        for kind, score in zip(self.kinds, scores, strict=True):
            chances = kind.masses[0]
            mean = float(chances @ score)
            variance += kind.count * float(chances @ (score - mean) ** 2)
            up = max(up, float(score.max()) - mean)
            down = max(down, mean - float(score.min()))
        jumps = min(self.taken, _JUMPS)
        # Scores that are all alike are one sum, whatever the step.
        wide = 2 * _FAR * math.sqrt(variance) + jumps * (up + down) or 1.0
        kept = wide * self.part
        step = math.sqrt(_ROUNDED * variance / self.batches)
        few = min(_FEWEST, self.most)
        step = min(max(step, kept / self.most), kept / few)
        step = max(step, (up + down) / (2 * self.most))  # sums of one batch, whatever
        whole, rest = self._sums(scores, step)
        # Of scores that are all alike, or nearly, one sum is kept: no guess for others.
        self.part = max(whole.laws.shape[2] * step / wide, _LEAST_KEPT)
        law = whole.laws[:, self.taken]
        error = whole.accuracy + (law.shape[1] + 8) * UNIT
        more, less = self._events(law[:, ::-1], error), self._events(law[::-1], error)
        return _Test(scores, step, rest, more, less)

    def _events(self, law: Floats, error: float) -> Floats:
        """Chances of one sum after another, of the first and of the second world."""
        one, other = np.cumsum(law, 1)
        some = np.flatnonzero((other > 0) & (one > self.lost))
        dense = np.floor(_DENSE * np.log(one[some]))
        some = some[np.unique(dense, return_index=True)[1]]
        return np.array([one[some] * (1 - error), other[some] * (1 + error)])

    def _sums(self, scores: list[Floats], step: float) -> tuple[_Sum, _Sum | None]:
        """Laws of all batches, and of all but one."""
        parts: list[tuple[int, int, _Sum]] = []
        order, most = itertools.count(), self.taken

        def push(part: _Sum) -> None:
            heapq.heappush(parts, (part.size, next(order), part))

        blank = self.batches - sum(kind.count for kind in self.kinds)
        if blank:  # that were not released: sums of nothing
            push(_Sum(0, np.ones((2, most + 1, 1)), blank, 0.0))
        last = None
        for place, (kind, score) in enumerate(zip(self.kinds, scores, strict=True)):
            values = np.rint(score / step).astype(np.int64)
            low = int(values.min())
            rows = [np.bincount(values - low, each) for each in kind.masses]
            laws = np.zeros((2, most + 1, rows[0].size))
            laws[:, 0], laws[:, 1] = rows[0], rows[1:]
            error = kind.accuracy + (_POINTS + 4) * UNIT
            power, left = _Sum(low, laws, 1, error).kept(0.0), kind.count
            if place == len(self.kinds) // 2:
                last, left = power, left - 1
            while left:
                if left & 1:
                    push(power)
                left >>= 1
                if left:
                    power = power.added(power, self.lost)
        assert last is not None
        while len(parts) > 1:
            (_, _, first), (_, _, second) = heapq.heappop(parts), heapq.heappop(parts)
            push(first.added(second, self.lost))
        rest = parts[0][2] if parts else None
        return (last if rest is None else rest.added(last, self.lost)), rest

    def answered(self, test: _Test, loss: float) -> list[Floats]:
        """The best scores of one batch if all others have those of a test: a guess.

        The outputs that are best at a loss are those beyond a sum of the others', which
        falls with the one's: that is its score.
        """
        rest, share = test.rest, self.taken / self.batches
        assert rest is not None
        rows = rest.laws[:, self.taken - 1 :]
        held = np.flatnonzero((rows > 0).all((0, 1)))
        held = held[:: -(-held.size // _POINTS)]
        sums, found = (held + rest.low) * test.step, []
        (fewer, all_), (fewer_too, all_too) = rows[:, :, held]
        for kind in self.kinds:
            at = np.linspace(kind.at[0], kind.at[-1], _NODES)
            one, other = (share * each[:, None] for each in kind.ratios(at))
            up = (1 - share) * all_ + one * fewer
            down = (1 - share) * all_too + other * fewer_too
            over = np.log(up) - np.log(down) - loss
            # Between the last sum that is too small and the next.
            short = over < 0
            last = held.size - 1 - np.argmax(short[:, ::-1], 1)
            place, row = np.clip(last, 0, held.size - 2), np.arange(_NODES)
            low, high = over[row, place], over[row, place + 1]
            part = np.clip(-low / np.maximum(high - low, 1e-12), 0.0, 1.0)
            least = sums[place] + part * (sums[place + 1] - sums[place])
            least[~short.any(1)], least[short[:, -1]] = sums[0], sums[-1]
            score = np.interp(kind.at, at, np.maximum.accumulate(-least))
            found.append(score - np.interp(0.0, kind.at, score))
        return found


def scored(
    kinds: Kinds,
    batches: int,
    taken: int,
    tail: float,
    *,
    opposed: bool,
    beside: tuple[Floats, Floats, float] | None = None,
) -> tuple[Floats, Floats, float, float]:
    """P's and Q's masses, P's where Q has none, and a bound on relative errors.

    ``beside``: masses of a pair that data attain, too, and a bound on their errors; if
    a record is not replaced.
    """
    kinds = grouped(kinds, below=True)
    scorer = _Scorer(kinds, batches, taken, tail, opposed=opposed)
    odds = taken / max(batches - taken, 0.5)
    tests = [scorer.first(more * odds) for more in _ODDS]
    for sign in (1,) if opposed else (1, -1):
        losses = sign * np.geomspace(1e-4, 460.0, 400)
        heights = np.array([max(t.height(x) for t in tests) for x in losses.tolist()])
        # From 0 on, where the curve falls: closer together where most masses are.
        heights = np.log(np.maximum(heights, 1e-300))
        falls = (heights[0] - math.log(0.05 * tail)) * np.linspace(
            0, 1, scorer.losses
        ) ** 1.5
        for loss in np.interp(falls - heights[0], -heights, losses).tolist():
            for _ in range(_TURNS):
                best = max(tests, key=lambda test: test.height(loss))
                rest = best.rest if taken < batches else None
                alone = rest is None or rest.laws.shape[2] == 1
                if alone or best.height(loss) <= 0:
                    break
                tests.append(scorer.test(scorer.answered(best, loss)))
                if tests[-1].height(loss) < 1.01 * best.height(loss):
                    break
    more = np.concatenate([test.more for test in tests], 1)
    less = np.concatenate([test.less for test in tests], 1)
    if opposed:  # what the other world likes are mirror images
        return attained(*np.concatenate([more, less], 1))
    if beside is not None:
        p, q, error = beside
        order = np.argsort(q / np.maximum(p, 1e-300))
        pair = np.stack([p, q])[:, order]
        up = np.cumsum(pair, 1)
        down = np.cumsum(pair[::-1, ::-1], 1)
        round_ = np.array([[1 - error], [1 + error]])
        more = np.concatenate([more, up * round_], 1)
        less = np.concatenate([less, down * round_], 1)
    return attained_apart(more, less)
