"""Certified brackets of epsilon and delta for a composition of sampled noise."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike
from scipy import special
from threadpoolctl import ThreadpoolController

from privaudit.accounting.pld.cells import Direction
from privaudit.accounting.pld.closed_form import gaussian_delta, gaussian_epsilon
from privaudit.accounting.pld.dots import GridMeasure
from privaudit.accounting.pld.fourier import MOST_POINTS, Tilted, compose
from privaudit.accounting.pld.grouping import (
    MOST_CELLS,
    Family,
    Grid,
    boxes_of,
    terms_above,
    terms_below,
)
from privaudit.accounting.pld.line import Floats, sampled_loss
from privaudit.accounting.pld.mixture import Term
from privaudit.accounting.pld.scout import Guess, Scout
from privaudit.accounting.pld.targets import Bracket, DeltaAt, EpsilonAt, Target

_ROUNDS = 4  # refinements before a bracket is returned as it is
_MOST_WORK = 1.2e7  # cells in all measures together; about 10 s


@functools.cache
def _threads() -> ThreadpoolController:
    return ThreadpoolController()


@dataclasses.dataclass(frozen=True)
class Composition:
    """The privacy profile of a composition; see `compose_entries`, `compose_steps`.

    Parameters
    ----------
    families
        The steps, by kind.
    exact
        Whether they are the steps that were asked for. Else they are surely less
        private, and nothing is known from below.
    bounded
        Whether there is any bound: far too little noise has none.
    attained
        What some data sets attain, where that is less than ``families``: the lower
        sides are its.
    """

    families: tuple[Family, ...]
    exact: bool = True
    bounded: bool = True
    attained: Composition | None = None

    @property
    def directions(self) -> tuple[Direction, ...]:
        """Remove and add, or one of them if they are the same."""
        if all(family.is_symmetric for family in self.families):
            return ("remove",)
        return ("remove", "add")

    @property
    def steps(self) -> float:
        """How many steps there are; unsampled Gaussian ones count as one."""
        return sum(family.steps for family in self.families)

    def epsilon(self, delta: float, width: float = 0.01) -> Bracket:
        """Bracket of the least epsilon >= 0 with which this is (epsilon, delta)-DP.

        Parameters
        ----------
        delta
            In (0, 1).
        width
            Relative width to stop at, in (0, 1].

        Raises
        ------
        ValueError
            If an argument is out of its range.
        """
        if not 0 < delta < 1:
            raise ValueError(
                f"delta must be in (0, 1), got {delta}; "
                "choose well below one over the number of records"
            )
        _check_width(width)
        # Compared to a number of a shorter kind, bounds would be rounded to it.
        delta = float(delta)
        if not self.bounded:
            return Bracket(0.0, math.inf, width, False, "remove")
        if not self.families:
            return Bracket(0.0, 0.0, width, True, "remove")
        if self._gaussian is not None:
            return self._known(gaussian_epsilon(self._gaussian, delta, width))
        return self._search(EpsilonAt(delta, width), width)

    def delta(self, epsilon: float, width: float = 0.01) -> Bracket:
        """Bracket of the least delta at ``epsilon`` >= 0; arguments as `epsilon`."""
        if not 0 <= epsilon < math.inf:
            raise ValueError(f"epsilon must be >= 0 and finite, got {epsilon}")
        _check_width(width)
        epsilon = float(epsilon)
        if not self.bounded:
            return Bracket(0.0, 1.0, width, False, "remove")
        if not self.families:
            return Bracket(0.0, 0.0, width, True, "remove")
        if self._gaussian is not None:
            return self._known(gaussian_delta(self._gaussian, epsilon, width))
        return self._search(DeltaAt(epsilon, width), width)

    def _known(self, bracket: Bracket) -> Bracket:
        """``bracket``, less what is not known of these steps."""
        if self.exact or bracket.lower == 0:
            return bracket
        return dataclasses.replace(bracket, lower=0.0, reached=False)

    def profile(
        self, epsilons: ArrayLike, width: float = 0.01
    ) -> tuple[Floats, Floats]:
        """Lower and upper bounds on delta at each of ``epsilons``."""
        points = np.asarray(epsilons, float)
        found = [self.delta(float(e), width) for e in points.ravel()]
        lower = np.array([b.lower for b in found]).reshape(points.shape)
        upper = np.array([b.upper for b in found]).reshape(points.shape)
        return lower, upper

    def trade_off(self, false_positive_rates: ArrayLike) -> Floats:
        """The least false negative rate of any attack at each false positive rate.

        A lower bound on it, proved: f(a) >= 1 - delta - exp(eps) a and
        exp(-eps) (1 - delta - a) for every point (eps, delta) of the profile (Dong,
        Roth and Su 2022, eq. 5), of which a hundred are taken.
        """
        rates = np.asarray(false_positive_rates, float)
        if not ((rates >= 0) & (rates <= 1)).all():
            raise ValueError("false positive rates must be in [0, 1]")
        top = self.epsilon(1e-6, 0.1).upper if self.families else 0.0
        epsilons = np.linspace(0.0, min(top, 50.0), 40)
        _, deltas = self.profile(epsilons, 0.02)
        a = rates[..., None]
        first = 1 - deltas - np.exp(epsilons) * a
        second = np.exp(-epsilons) * (1 - deltas - a)
        best = np.maximum(first, second).max(axis=-1)
        return np.clip(best - 1e-12, 0.0, 1.0)

    @property
    def _gaussian(self) -> float | None:
        """The shift if all there is is one unsampled Gaussian, which is exact."""
        if len(self.families) != 1:
            return None
        family = self.families[0]
        exact = (
            family.noise == "gaussian"
            and family.scheme == "poisson"
            and family.steps == 1
            and family.rate[0] == 1
        )
        return float(family.shift[0]) if exact else None

    def epsilon_each(
        self, delta: float, width: float = 0.01
    ) -> dict[Direction, Bracket]:
        """`epsilon` of each direction alone: a record removed, or added.

        The guarantee is the larger; which one that is may change with delta. A relation
        that is its own mirror image has one entry, ``remove``.
        """
        worst = self.epsilon(delta, width)
        if len(self.directions) == 1 or not self.families:
            return {"remove": worst}
        target = EpsilonAt(delta, width)
        return {way: self._search(target, width, (way,)) for way in self.directions}

    def _search(
        self,
        target: Target,
        width: float,
        directions: tuple[Direction, ...] | None = None,
    ) -> Bracket:
        """Refine until the width is reached, or it would be too much work.

        By one thread: sums of a few thousand numbers are slower by several, and their
        last bits would depend on how many there are.
        """
        with _threads().limit(limits=1, user_api="blas"):
            return self._refined(target, width, directions)

    def _refined(
        self,
        target: Target,
        width: float,
        directions: tuple[Direction, ...] | None,
    ) -> Bracket:
        ways = directions or self.directions
        guesses = {way: target.guess(self._scout(way)) for way in ways}
        # The direction that looks worse comes first.
        guesses = dict(sorted(guesses.items(), key=lambda item: -target.size(item[1])))
        upper = dict.fromkeys(guesses, target.trivial_upper)
        lower, reached = 0.0, False
        worst: Direction = "remove"
        inner = 0.0  # lower bound on the dominating pair's own figure
        fine, nodes = 0.6, self._first_nodes(width)
        for _ in range(_ROUNDS):
            for way in sorted(guesses, key=lambda way: -upper[way]):
                if upper[way] <= inner or upper[way] < 0.5 * max(upper.values()):
                    continue  # the other direction is worse
                guess = guesses[way]
                slack = target.slack(guess, max(guesses.values(), key=target.size))
                grid = self._grid(guess, slack * fine, width, nodes)
                found = _run(self.families, way, grid, guess, terms_above)
                if found is not None:
                    upper[way] = min(upper[way], target.upper(found, guess))
                guesses[way] = target.improved(guess, upper[way])
            worst = max(guesses, key=lambda way: upper[way])
            guess = guesses[worst]
            slack = target.slack(guess, guess)
            grid = self._grid(guess, slack * fine, width, nodes)
            found = _run(self.families, worst, grid, guess, terms_below)
            if found is not None:
                inner = max(inner, target.lower(found, guess))
            lower = max(lower, inner if self._is_realised else 0.0)
            top = upper[worst]
            reached = top <= (1 + width) * inner or top == 0
            if reached or not math.isfinite(top):
                break
            ratio = math.log(top / inner) / math.log1p(width) if inner > 0 else 9.0
            factor = min(max(ratio, 1.2) * 1.2, 9.0)
            guess = guesses[worst]
            slack = target.slack(guess, guess)
            while factor > 1.3:
                finer = math.ceil(nodes * factor**0.5)
                grid = self._grid(guess, slack * fine / factor, width, finer)
                if self._work(grid) <= _MOST_WORK:
                    break
                factor *= 0.75
            else:
                break
            fine, nodes = fine / factor, finer
        if not self._is_realised:
            lower = self._realised_lower(target, width, fine, nodes)
            reached = upper[worst] <= (1 + width) * lower or upper[worst] == 0
        low = min(lower, upper[worst])
        return self._known(Bracket(low, upper[worst], width, reached, worst))

    @property
    def _is_realised(self) -> bool:
        """Whether some data sets attain the dominating pair at every step."""
        return self.attained is None and all(
            family.scheme != "fixed" for family in self.families
        )

    def _realised_lower(
        self, target: Target, width: float, fine: float, nodes: int
    ) -> float:
        """A lower bound from what two data sets attain.

        Of fixed-size lots, two whose other records are alike.
        """
        families = tuple(
            dataclasses.replace(family, scheme="poisson")
            if family.scheme == "fixed"
            else family
            for family in (self.attained or self).families
        )
        best = 0.0
        for way in ("remove", "add"):
            scout = Composition(families)._scout(way)
            guess = target.guess(scout)
            slack = target.slack(guess, guess)
            grid = self._grid(guess, slack * fine, width, nodes)
            found = _run(families, way, grid, guess, terms_below)
            if found is not None:
                best = max(best, target.lower(found, guess))
        return best

    def _scout(self, way: Direction) -> Scout:
        steps, counts = [], []
        for family in self.families:
            some, of_each = family.typical(8)
            steps += some
            counts.append(of_each)
        return Scout(steps, np.concatenate(counts), way)

    def _first_nodes(self, width: float) -> int:
        two = any(
            np.unique(f.shift).size > 1 and np.unique(f.rate).size > 1
            for f in self.families
        )
        return math.ceil((1.0 if two else 1.7) / math.sqrt(width)) + 1

    def _work(self, grid: Grid) -> float:
        """About how many cells there are in all measures of a refinement."""
        return sum(
            boxes_of(family, grid) * self._reach_of(family, grid.reach) / grid.spacing
            for family in self.families
        )

    @staticmethod
    def _reach_of(family: Family, reach: float) -> float:
        """Length of the grid of a step's losses, at most about."""
        m, q = float(family.shift.max()), float(family.rate.max())
        far = m * (reach + m / 2) if family.noise == "gaussian" else m
        high, low = sampled_loss(far, q), sampled_loss(-far, q)
        return 2 * (high - low) if family.scheme != "poisson" else high - low

    def _grid(self, guess: Guess, slack: float, width: float, nodes: int) -> Grid:
        spacing = guess.spacing(slack)
        log_tail = max(guess.log_delta, -800.0) + math.log(width * 1e-4 / self.steps)
        reach = -float(special.ndtri_exp(min(log_tail, -1.0)))
        # No more points in the window, or in the cells of one step, than can be had.
        spacing = max(spacing, 1.5 * guess.window / MOST_POINTS)
        for family in self.families:
            spacing = max(spacing, self._reach_of(family, reach) / MOST_CELLS)
        for family in self.families:
            if family.noise == "laplace" and family.shift.size == 1:
                # The largest loss has mass of its own: put a grid point there.
                top = sampled_loss(float(family.shift[0]), float(family.rate[0]))
                spacing = top / math.ceil(top / spacing)
        return Grid(spacing, nodes, reach)


def _run(
    families: tuple[Family, ...],
    way: Direction,
    grid: Grid,
    guess: Guess,
    make: Callable[
        [tuple[Family, ...], Direction, Grid], tuple[list[GridMeasure], list[Term]]
    ],
) -> Tilted | None:
    measures, terms = make(families, way, grid)
    if not terms:
        return None
    return compose(measures, terms, grid.spacing, guess)


def _check_width(width: float) -> None:
    if not 0 < width <= 1:
        raise ValueError(
            f"width must be in (0, 1], got {width}; it is relative, 0.01 is one percent"
        )
