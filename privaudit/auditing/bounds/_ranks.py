"""Right guesses along a ranking, drawn for the pair of worlds that leaks most.

Proof in ``ranks.md``: with so many members and others, no ranking has more right
guesses, in all its prefixes at once, than that of a pair of laws by its own likelihood
ratio, if the scores come from something that is no easier to tell than the pair.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from scipy import special

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_CELLS = 2000  # of the law of a false positive rate; what they add is at most 1 / 2000
_SMALLEST = 1e-12  # of a chance that they resolve relatively


@dataclasses.dataclass(frozen=True, slots=True)
class Pair:
    """Two laws with a likelihood ratio of finitely many values, by their ROC."""

    # fpr, tpr: the corners of the ROC from (0, 0) to (1, 1), concave, (corners,)
    fpr: Floats
    tpr: Floats

    @classmethod
    def above(cls, epsilons: Floats, deltas: Floats) -> Pair:
        """The pair with the largest ROC under the lines exp(epsilon) FPR + delta.

        If a mechanism keeps below all of them, in the direction of member against
        non-member, it is no easier to tell than the pair.

        >>> pair = Pair.above(np.array([1.0, -1.0]), np.array([0.0, 1 - np.exp(-1.0)]))
        >>> sorted(set(pair.tpr.round(3).tolist()))  # randomised response
        [0.0, 0.731, 1.0]
        """
        order = np.lexsort((deltas, -epsilons))
        slopes = np.append(np.exp(epsilons[order]), 0.0)
        starts = np.append(np.clip(deltas[order], 0.0, 1.0), 1.0)
        fpr, tpr = [0.0], [float(starts.min())]
        now = int(np.flatnonzero(starts == starts.min())[-1])  # the flattest there
        while slopes[now] > 0 and fpr[-1] < 1:
            flatter = np.flatnonzero(slopes < slopes[now])
            with np.errstate(over="ignore"):
                meets = (starts[flatter] - starts[now]) / (
                    slopes[now] - slopes[flatter]
                )
            nearest = float(meets.min())
            fpr.append(min(1.0, max(fpr[-1], nearest)))
            tpr.append(min(1.0, float(starts[now] + slopes[now] * fpr[-1])))
            now = int(flatter[np.flatnonzero(meets == nearest)[-1]])
        return cls(
            np.array([0.0, *fpr, 1.0]),
            np.maximum.accumulate(np.array([0.0, *tpr, 1.0])),
        )

    def tpr_at(self, fpr: Floats) -> Floats:
        """The ROC; at a jump its upper end."""
        return np.interp(fpr, self.fpr[1:], self.tpr[1:])

    def expected(self, members: int, others: int, cuts: Ints) -> Floats:
        """About how many members there are among the first ``cuts`` of the ranking."""
        ranks = members * self.tpr + others * self.fpr
        return np.interp(cuts, ranks, members * self.tpr)

    def draw(
        self,
        random: np.random.Generator,
        simulations: int,
        members: int,
        others: int,
        cuts: Ints,
    ) -> Ints:
        """Members among the first ``cuts`` of its ranking.  # (simulations, cuts)"""
        inside = random.multinomial(members, _shares(self.tpr), size=simulations)
        outside = random.multinomial(others, _shares(self.fpr), size=simulations)
        last = np.cumsum(inside + outside, axis=1)  # rank at which each value ends
        before = np.cumsum(inside, axis=1) - inside
        rows = np.arange(simulations)
        apart = rows[:, None] * (members + others + 1)  # one sorted list of all
        places = np.searchsorted((last + apart).ravel(), cuts + apart)
        places -= rows[:, None] * last.shape[1]
        found = np.empty((simulations, len(cuts)), dtype=np.int64)
        value = np.full(simulations, -1)
        good, bad = np.zeros((2, simulations), dtype=np.int64)  # left of the value
        at, count = np.zeros((2, simulations), dtype=np.int64)
        for column, cut in enumerate(cuts.tolist()):
            here = places[:, column]
            new = here != value
            value = here
            good = np.where(new, inside[rows, here], good)
            bad = np.where(new, outside[rows, here], bad)
            at = np.where(new, last[rows, here] - good - bad, at)
            count = np.where(new, before[rows, here], count)
            drawn = random.hypergeometric(good, bad, cut - at)
            good, bad = good - drawn, bad - (cut - at - drawn)
            at, count = np.full(simulations, cut), count + drawn
            found[:, column] = count
        return found


def chance_of_top(
    tpr_at: Callable[[Floats], Floats],
    right: int,
    members: int,
    others: int,
    length: int | None = None,
) -> float:
    """Chance that the first ``length`` of a ranking hold ``right`` members or more.

    Not below the true one, for a pair with the ROC ``tpr_at``, or below it. They do if
    and only if the member of rank ``right`` stands before the other of rank ``length``
    - ``right`` + 1; where that one stands is a Beta, each cell counted at its upper
    end's rate. ``length``: by default as many as there are members.
    """
    length = members if length is None else length
    if right <= max(0, length - others):
        return 1.0
    edges, mass = _cells(length - right + 1, others)
    above = tpr_at(np.minimum(1.0, edges[1:] * (1 + 1e-9) + 1e-300))
    reached = special.betainc(right, members - right + 1, above)
    return min(1.0, float(mass @ reached) * (1 + 1e-9) + _SMALLEST)


@functools.lru_cache(maxsize=16)
def _cells(rank: int, others: int) -> tuple[Floats, Floats]:
    """Edges of cells of the law of the rate at an other's ``rank``, and their mass."""
    level = np.linspace(0, 1, _CELLS + 1)
    level = np.union1d(level, np.geomspace(_SMALLEST, 1 / _CELLS, 100))
    level = np.union1d(level, 1 - level)
    edges = special.betaincinv(rank, others - rank + 1, level)
    # Rounding of the edges moves mass between neighbouring cells, and loses none.
    return edges, np.diff(special.betainc(rank, others - rank + 1, edges))


def _shares(rates: Floats) -> Floats:
    shares = np.maximum(np.diff(rates), 0.0)
    return shares / shares.sum()
