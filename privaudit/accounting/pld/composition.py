"""Certified brackets of epsilon and delta for a composition of sampled noise."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Mapping
from typing import Literal

import numpy as np
from scipy import special
from threadpoolctl import ThreadpoolController

from privaudit.accounting.pld.allocation import Epoch, epoch_measure, losses
from privaudit.accounting.pld.cells import Cells, Direction
from privaudit.accounting.pld.closed_form import gaussian_delta, gaussian_epsilon
from privaudit.accounting.pld.dots import GridMeasure
from privaudit.accounting.pld.families import Family
from privaudit.accounting.pld.fixed_size import bound
from privaudit.accounting.pld.fourier import MOST_POINTS, Tilted, compose
from privaudit.accounting.pld.grouping import (
    MOST_CELLS,
    Grid,
    boxes_of,
    terms_above,
    terms_below,
)
from privaudit.accounting.pld.line import Floats, sampled_loss
from privaudit.accounting.pld.mechanisms.loss import Loss
from privaudit.accounting.pld.mechanisms.noise import loss_cells
from privaudit.accounting.pld.mixture import Term
from privaudit.accounting.pld.scout import Guess, Scout
from privaudit.accounting.pld.targets import DeltaAt, EpsilonAt, Sides, Target
from privaudit.results import check_sides

Side = Literal["both", "upper", "lower"]

_BELOW = 0.4  # of what grouping may add above: what it may take away below
_ROUNDS = 4  # refinements before a bracket is returned as it is
_SCOUTED = 1e-20  # far as measures go: a tilt must suit their tails
_LN10 = math.log(10.0)
_LINES, _LINES_AT = 30, (-1.5, -7.0)  # a side; logs of delta that compositions aim at
_FAR_LINE, _MOST_LINE = -20.0, 300.0  # log of the least delta, and the most epsilon
# Of grid points that lie on losses: the largest loss must be above the last dot of what
# is below the curve, and the least one below the first dot, if only just.
_INWARDS = 1e-8
_FINER = (1, 3, 9, 27, 81)  # grids that are tried where one has nothing from below
_AFFORDABLE = 1 << 17  # points of a grid that is finer than is needed
_MOST_WORK = 1.2e7  # cells in all measures together; about 10 s
_CHOSEN = 4  # slack of grids where what is chosen leaves per cents open


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
    epochs
        Of random allocations, and how many there are of each; what is known from below
        is among the others of ``attained``.
    others
        Losses of other mechanisms, and how often each was run.
    ball
        Whether all records that fixed-size batches are of lie in a ball whose diameter
        is the shift; else they are only known to be no further than that apart.
    """

    families: tuple[Family, ...]
    exact: bool = True
    bounded: bool = True
    attained: Composition | None = None
    epochs: tuple[tuple[Epoch, int], ...] = ()
    others: tuple[tuple[Loss, float], ...] = ()
    ball: bool = False

    @property
    def is_empty(self) -> bool:
        """Return whether there is no step at all."""
        return not (self.families or self.epochs or self.others)

    @property
    def directions(self) -> tuple[Direction, ...]:
        """Remove and add, or one of them if they are the same."""
        alike = all(family.is_symmetric for family in self.families)
        if not self.epochs and alike and all(one.symmetric for one, _ in self.others):
            return ("remove",)
        return ("remove", "add")

    @property
    def steps(self) -> float:
        """Number of steps; unsampled Gaussian ones count as one."""
        often = sum(count for _, count in self.epochs)
        often += sum(count for _, count in self.others)
        return sum(family.steps for family in self.families) + often

    def epsilon(self, delta: float, width: float = 0.01) -> Sides:
        """Sides of the least epsilon >= 0 with which this is (epsilon, delta)-DP.

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
            return Sides(0.0, math.inf, width, False, "remove")
        if self.is_empty:
            return Sides(0.0, 0.0, width, True, "remove")
        if self._gaussian is not None:
            return self._known(gaussian_epsilon(self._gaussian, delta, width))
        return self._search(EpsilonAt(delta, width), width)

    def delta(self, epsilon: float, width: float = 0.01) -> Sides:
        """Sides of the least delta at ``epsilon`` >= 0; arguments as `epsilon`."""
        if not 0 <= epsilon < math.inf:
            raise ValueError(f"epsilon must be >= 0 and finite, got {epsilon}")
        _check_width(width)
        epsilon = float(epsilon)
        if not self.bounded:
            return Sides(0.0, 1.0, width, False, "remove")
        if self.is_empty:
            return Sides(0.0, 0.0, width, True, "remove")
        if self._gaussian is not None:
            return self._known(gaussian_delta(self._gaussian, epsilon, width))
        return self._search(DeltaAt(epsilon, width), width)

    def lines(self, direction: Direction = "remove") -> tuple[Floats, Floats]:
        """Epsilons of any sign, and a delta at each that is not below the true one.

        Of one direction alone: TPR <= exp(epsilon) FPR + delta for every attack that
        tells "with the record" (``remove``) from "without" it, or the other way about
        (``add``). Dense where delta changes, and as fast as one composition or two.

        >>> from privaudit.ledger import Entry
        >>> from privaudit.release import NoSampling, Release
        >>> from privaudit.accounting.pld import compose_entries
        >>> noisy = Release.of_sum(
        ...     norm_bound=1.0, noise_multiplier=1.0, sampling=NoSampling()
        ... )
        >>> lines = compose_entries([Entry(noisy, 1)], "add-or-remove-one").lines()
        >>> print(np.interp(0.0, *lines).round(3))  # at most 2 Phi(1 / 2) - 1
        0.383
        """
        if not self.bounded:
            return np.zeros(1), np.ones(1)
        if self.is_empty:
            return np.zeros(1), np.zeros(1)
        other = direction
        if len(self.directions) > 1:
            other = "add" if direction == "remove" else "remove"
        high, low = (
            min(max(self._scout(way).at_delta(_FAR_LINE).epsilon, 1e-6), _MOST_LINE)
            for way in (direction, other)
        )
        steps = np.geomspace(0.01, 1.0, _LINES)
        epsilons = np.unique(
            np.concatenate([-low * steps, [0.0], high * steps])
            if low > 0
            else high * steps
        )
        deltas = np.ones(epsilons.shape)
        scout = self._scout(direction)
        for log_delta in _LINES_AT:
            guess = scout.at_delta(log_delta)
            slack = 0.002 * min(1.0, high, low)
            grid = self._grid(guess, slack, 0.05)
            with _threads().limit(limits=1, user_api="blas"):
                found = self._above(direction, grid, guess)
            if found is not None:
                each = [found.delta_above(epsilon) for epsilon in epsilons.tolist()]
                deltas = np.minimum(deltas, each)
        return epsilons, deltas

    def _known(self, bracket: Sides) -> Sides:
        """``bracket``, less what is not known of these steps."""
        if self.exact or bracket.lower == 0:
            return bracket
        return dataclasses.replace(bracket, lower=0.0, reached=False)

    @property
    def _gaussian(self) -> float | None:
        """The shift if all there is is one unsampled Gaussian, which is exact."""
        if len(self.families) != 1 or self.epochs or self.others:
            return None
        family = self.families[0]
        exact = (
            family.noise == "gaussian"
            and family.scheme == "poisson"
            and family.steps == 1
            and family.rate[0] == 1
        )
        return float(family.shift[0]) if exact else None

    def _search(
        self,
        target: Target,
        width: float,
    ) -> Sides:
        found = self.each(target, width)
        worst = max(found.upper, key=lambda way: found.upper[way])
        upper, lower = found.upper[worst], max(found.lower.values(), default=0.0)
        reached = bool(upper <= (1 + width) * lower or upper == 0)
        return Sides(float(lower), float(upper), width, reached, worst)

    def each(
        self,
        target: Target,
        width: float,
        directions: tuple[Direction, ...] | None = None,
        *,
        side: Side = "both",
        caps: Mapping[Direction, float] | None = None,
    ) -> Found:
        """Bounds of each direction, narrow for the worse one only.

        Refined until the width is reached, or it would be too much work. By one thread:
        sums of a few thousand numbers are slower by several, and their last bits would
        depend on how many there are.

        Parameters
        ----------
        side
            The side that is wanted. An upper side alone is as narrow as grids make it:
            nothing is there to compare it to.
        caps
            Upper bounds known already, by direction: no work is spent above them.
        """
        ways = directions or self.directions
        if not self.bounded:
            return Found(dict.fromkeys(ways, target.trivial_upper), {}, True)
        if self.is_empty:
            return Found(dict.fromkeys(ways, 0.0), {}, False)
        if any(not one.sketch(way)[0].size for one, _ in self.others for way in ways):
            # Two laws of different outputs: nothing is left to be hidden.
            return Found(dict.fromkeys(ways, target.trivial_upper), {}, True)
        if any(
            losses(epoch, way, _SCOUTED) is None
            for epoch, _ in self.epochs
            for way in ways
        ):
            return Found(dict.fromkeys(ways, target.trivial_upper), {}, True)
        scouts = {way: self._scout(way) for way in ways}
        guesses = {way: target.guess(scouts[way], self._infinite(way)) for way in ways}
        # The direction that looks worse comes first.
        guesses = dict(sorted(guesses.items(), key=lambda item: -target.size(item[1])))
        search = _Search(self, target, width, guesses, dict(caps or {}))
        with _threads().limit(limits=1, user_api="blas"):
            found = {
                "both": search.both,
                "upper": search.upper_side,
                "lower": search.lower_side,
            }[side]()
            if side != "lower":
                self._narrow(found, search)
        if self.exact:
            return found
        return dataclasses.replace(found, lower={})

    def _narrow(self, found: Found, search: _Search) -> None:
        """Put in a better upper bound of equal batches of a fixed size, if there is.

        Nothing else may be composed with them.
        """
        way: Direction = "remove"
        alone = len(self.families) == 1 and not self.epochs and not self.others
        if not (self.ball and alone and 0 < found.upper.get(way, 0.0) < math.inf):
            return
        family = self.families[0]
        if family.scheme != "fixed" or family.shift.size > 1:
            return
        step = family.step(float(family.shift[0]), float(family.rate[0]))
        guess = search.guesses[way]
        slack = search.slack(way) * search.fine * _CHOSEN
        grid = self._grid(guess, slack, search.width)
        better = bound(step, int(family.count[0]), grid, guess)
        if better is not None:
            upper = float(search.target.upper(better, guess))
            found.upper[way] = min(found.upper[way], upper)
            check_sides(found.lower.get(way, 0.0), found.upper[way])

    @property
    def _is_realised(self) -> bool:
        """Return whether some data sets attain the dominating pair at every step."""
        return (
            self.attained is None
            and all(family.scheme != "fixed" for family in self.families)
            and all(one.attained == (one,) for one, _ in self.others)
        )

    def _realised_lower(
        self, target: Target, width: float, fine: float
    ) -> dict[Direction, float]:
        """A lower bound from what two data sets attain.

        Of fixed-size batches, two whose other records are alike.
        """
        base = self.attained or self
        families = tuple(
            dataclasses.replace(family, scheme="poisson")
            if family.scheme == "fixed"
            else family
            for family in base.families
        )
        best: dict[Direction, float] = {}
        ways: tuple[Direction, ...] = ("remove", "add")
        for others in base._attained_choices if base.others else ((),):
            known = Composition(families, others=others)
            if known.is_empty:
                continue
            for way in ways:
                guess = target.guess(known._scout(way), known._infinite(way))
                slack = target.slack(guess, guess)
                # On coarse grids few and small losses are sometimes nothing.
                of, finer = (known, _FINER) if self.epochs else (self, _FINER[:3])
                for times in finer:
                    grid = of._grid(guess, slack * fine / times, width)
                    found = known._below(way, grid, guess)
                    low = 0.0 if found is None else target.lower(found, guess)
                    best[way] = max(best.get(way, 0.0), low)
                    # A coarse one leaves out what it is nothing on.
                    known_low = low or (found is not None and not self.epochs)
                    if known_low and not any(
                        one.below(way, grid.spacing, grid.reach) is None
                        for one, _ in known._attained_others
                    ):
                        break
                if best[way] == 0:
                    best[way] = known._lowered(way, target, guess, slack, width)
        if not best:
            return {}
        return best if len(self.directions) > 1 else {"remove": max(best.values())}

    @functools.cached_property
    def _attained_others(self) -> tuple[tuple[Loss, float], ...]:
        return self._attained_choices[0] if self.others else ()

    @functools.cached_property
    def _attained_choices(self) -> tuple[tuple[tuple[Loss, float], ...], ...]:
        """Choices in `others` that data attain: each kind's first, second and so on."""
        most = max(len(one.attained) for one, _ in self.others)
        return tuple(
            tuple(
                (one.attained[min(i, len(one.attained) - 1)], count)
                for one, count in self.others
                if one.attained
            )
            for i in range(max(most, 1))
        )

    def _infinite(self, way: Direction) -> float:
        """P's mass at infinite loss, about; of `others`, where it is no rounding."""
        logs = [
            count * math.log1p(-min(one.infinite(way), 1 - 1e-16))
            for one, count in self.others
        ]
        return -math.expm1(math.fsum(logs))

    def _above(self, way: Direction, grid: Grid, guess: Guess) -> Tilted | None:
        """A composition that dominates; None if no grid can hold it."""
        if any(family.noise == "laplace" for family in self.families):
            # No largest loss may lie above the last point, if only by rounding.
            grid = dataclasses.replace(grid, spacing=grid.spacing * (1 + 1e-14))
        measures, terms = terms_above(self.families, way, grid)
        for epoch, often in self.epochs:
            measure = epoch_measure(epoch, way, grid.spacing, grid.tail)
            if measure is None:
                return None
            _add(measures, terms, measure, often)
        for one, often in self.others:
            _add(measures, terms, one.above(way, grid.spacing, grid.reach), often)
        return compose(measures, terms, grid.spacing, guess) if terms else None

    def _below(
        self, way: Direction, grid: Grid, guess: Guess, *, lowered: bool = False
    ) -> Tilted | None:
        """A composition that is dominated; None if nothing is told apart."""
        measures, terms = terms_below(self.families, way, grid)
        for one, often in self._attained_others:
            measure_of = one.lowered if lowered else one.below
            measure = measure_of(way, grid.spacing, grid.reach)
            if measure is not None:
                _add(measures, terms, measure, often)
        return compose(measures, terms, grid.spacing, guess) if terms else None

    def _lowered(
        self, way: Direction, target: Target, guess: Guess, slack: float, width: float
    ) -> float:
        """A lower bound by losses lowered by ``slack`` in all; 0 if it is too long."""
        often = sum(count for _, count in self._attained_others)
        if not often or guess.window * often > 4 * _AFFORDABLE * slack:
            return 0.0
        # Beside the largest losses a tilt may be so steep that it sees none of those
        # that are left.
        guess = dataclasses.replace(guess, tilt=min(guess.tilt, 2 / slack))
        grid = self._grid(guess, slack, width, slack / often)
        found = self._below(way, grid, guess, lowered=True)
        return 0.0 if found is None else target.lower(found, guess)

    def _scout(self, way: Direction) -> Scout:
        steps, counts = [], []
        for family in self.families:
            some, of_each = family.typical()
            steps += some
            counts.append(of_each)
        more = []
        for epoch, often in self.epochs:
            seen = losses(epoch, way, _SCOUTED)
            assert seen is not None  # `each` has looked
            more.append(seen)
            counts.append(np.array([float(often)]))
        for one, often in self.others:
            more.append(one.sketch(way))
            counts.append(np.array([float(often)]))
        return Scout(steps, np.concatenate(counts), way, more)

    def _work(self, way: Direction, grid: Grid) -> float:
        """About how many cells there are in all measures of a refinement."""
        cells = [
            boxes_of(family, way, grid) * self._reach_of(family, grid.reach)
            for family in self.families
        ]
        cells += [one.length(grid.reach) for one, _ in self.others]
        return sum(cells) / grid.spacing

    def _longest(self, reach: float) -> float:
        """Length of the longest grid of any step, at most about."""
        lengths = [self._reach_of(family, reach) for family in self.families]
        lengths += [one.length(reach) for one, _ in self.others]
        return max(lengths, default=0.0)

    @staticmethod
    def _reach_of(family: Family, reach: float) -> float:
        """Length of the grid of a step's losses, at most about."""
        m, q = float(family.shift.max()), float(family.rate.max())
        far = m * (reach + m / 2) if family.noise == "gaussian" else m
        high, low = sampled_loss(far, q), sampled_loss(-far, q)
        return 2 * (high - low) if family.scheme != "poisson" else high - low

    def _grid(
        self,
        guess: Guess,
        slack: float,
        width: float,
        spacing: float | None = None,
        cells: Callable[..., Cells] = loss_cells,
    ) -> Grid:
        spacing = guess.spacing(slack) if spacing is None else spacing
        log_tail = max(guess.log_delta, -800.0) + math.log(width * 2e-3 / self.steps)
        reach = -float(special.ndtri_exp(min(log_tail, -1.0)))
        # No more points in the window, or in the cells of one step, than can be had.
        spacing = max(spacing, 1.5 * guess.window / MOST_POINTS)
        for family in self.families:
            spacing = max(spacing, self._reach_of(family, reach) / MOST_CELLS)
        for one, _ in self.others:
            spacing = max(spacing, one.length(reach) / one.points)
        # Losses that have mass of their own: put grid points there, last where most is.
        least = max(guess.window, self._longest(reach)) / _AFFORDABLE
        marks = [
            (often, one.lattice)
            for one, often in self.others
            if one.lattice is not None and one.lattice > min(spacing, least)
        ]
        for _, mark in sorted(marks, key=lambda mark: mark[0] * mark[1] ** 2):
            spacing = mark / math.ceil(mark / spacing) * (1 - _INWARDS)
        for family in self.families:
            if family.noise == "laplace" and family.shift.size == 1:
                top = sampled_loss(float(family.shift[0]), float(family.rate[0]))
                top = max(top, 1e-100)
                spacing = max(top / math.ceil(top / spacing), 1e-100)
        # In powers of ten, so that the next grid finds the same epochs.
        often = max(sum(count for _, count in self.epochs), 1)
        tail = math.log10(width * 0.02 / often) + max(guess.log_delta, -600.0) / _LN10
        room = guess.slope * slack
        tail = 10.0 ** math.floor(tail)
        aim = (guess.epsilon, guess.log_delta)
        return Grid(spacing, reach, guess.slope, room, tail, cells, aim)


@dataclasses.dataclass(frozen=True, slots=True)
class Found:
    """Bounds by direction; a lower one may be missing.

    ``coarse``: finer grids would narrow the upper side, but were too much work.
    """

    upper: dict[Direction, float]
    lower: dict[Direction, float]
    coarse: bool


class _Search:
    """One search: what is known of each direction so far."""

    def __init__(
        self,
        composition: Composition,
        target: Target,
        width: float,
        guesses: dict[Direction, Guess],
        caps: dict[Direction, float],
    ) -> None:
        self.of, self.target, self.width = composition, target, width
        self.guesses, self.caps = guesses, caps
        self.upper = dict.fromkeys(guesses, target.trivial_upper)
        self.lower: dict[Direction, float] = {}
        # Of epochs the sides do not meet: the upper one is as narrow as its grid.
        self.fine = 0.05 if composition.epochs else 0.5
        # Both sides of one direction mostly have the same.
        self.cells = functools.lru_cache(maxsize=4)(loss_cells)
        self.coarse = False

    def top(self, way: Direction) -> float:
        return min(self.upper[way], self.caps.get(way, math.inf))

    def worst(self) -> Direction:
        return max(self.guesses, key=self.top)

    def slack(self, way: Direction, worst: Guess | None = None) -> float:
        return self.target.slack(self.guesses[way], worst or self.guesses[way])

    def grid(self, way: Direction, slack: float, spacing: float | None = None) -> Grid:
        return self.of._grid(
            *(self.guesses[way], slack * self.fine, self.width),
            spacing=spacing,
            cells=self.cells,
        )

    def found(self) -> Found:
        return Found(self.upper, self.lower, self.coarse)

    def run_above(self, way: Direction, slack: float, enough: float = 0.0) -> None:
        guess = self.guesses[way]
        wanted = guess.spacing(slack * self.fine)
        grid = self.grid(way, slack, spacing=wanted)
        self.coarse |= grid.spacing > 1.5 * wanted
        found = self.of._above(way, grid, guess)
        if found is not None:
            top = self.target.upper(found, guess, enough)
            self.upper[way] = min(self.upper[way], top)
            if top > enough:
                self.guesses[way] = self.target.seen(guess, found, top)
        else:
            self.coarse = True
        self.guesses[way] = self.target.improved(self.guesses[way], self.upper[way])

    def run_below(self, way: Direction) -> float:
        """A lower bound on the dominating pair's own figure."""
        guess = self.guesses[way]
        grid = self.grid(way, self.slack(way))
        # Tangents leave about that much more than mixtures.
        grid = dataclasses.replace(grid, room=_BELOW * grid.room)
        found = self.of._below(way, grid, guess)
        low = 0.0 if found is None else self.target.lower(found, guess)
        if self.of.others and not self.target.is_met(low, self.top(way)):
            slack = self.slack(way)
            lowered = self.of._lowered(way, self.target, guess, slack, self.width)
            low = max(low, lowered)
        return low

    def upper_side(self) -> Found:
        self.fine /= 2  # nothing below to tell when more is wanted
        # Coarsely first: that is a better guess, and often all of the better direction.
        used: dict[Direction, float] = {}
        for way in self.guesses:
            worst = max(self.guesses.values(), key=self.target.size)
            used[way] = 4 * self.slack(way, worst)
            self.run_above(way, used[way])
        self.coarse = False
        for _ in range(_ROUNDS):
            way = self.worst()
            wanted = self.slack(way)
            if used[way] <= 1.34 * wanted or not 0 < self.top(way) < math.inf:
                break
            used[way] = wanted
            self.run_above(way, wanted)
        self.coarse |= self.top(self.worst()) == math.inf
        return self.found()

    def lower_side(self) -> Found:
        if self.of._is_realised and math.isfinite(max(map(self.top, self.guesses))):
            return self.lower_to_caps()
        # As fine as both sides end up: nothing above tells when it is enough.
        self.fine /= 3
        way = next(iter(self.guesses))
        if not self.of._is_realised:
            self.lower = self.of._realised_lower(self.target, self.width, self.fine)
            return self.found()
        for _ in range(2):
            slack = self.slack(way)
            self.lower[way] = max(self.lower.get(way, 0.0), self.run_below(way))
            if not self.lower[way]:
                break
            self.guesses[way] = self.target.improved(self.guesses[way], self.lower[way])
            if slack <= 1.34 * self.slack(way):
                break
        return self.found()

    def lower_to_caps(self) -> Found:
        """Refined until it is as near to the upper bounds known as was asked for.

        Or once, where that leaves less than two widths: the rest is theirs.
        """
        way = self.worst()
        top = self.top(way)
        self.guesses[way] = self.target.improved(self.guesses[way], top)
        self.lower[way] = 0.0
        for room in (1, 1, 1, 2):
            low = self.lower[way] = max(self.lower[way], self.run_below(way))
            if self.target.is_met(low, top, room):
                break
            if not self.refine(way, top, low / (1 + self.width / 2)):
                break
        return self.found()

    def both(self) -> Found:
        inner = dict.fromkeys(self.guesses, 0.0)  # of the dominating pairs
        for _ in range(_ROUNDS):
            most, seen = max(inner.values()), ""
            for way in sorted(self.guesses, key=lambda way: -self.top(way)):
                top = self.top(way)
                if top <= most or top < 0.5 * max(map(self.top, self.guesses)):
                    continue  # the other direction is worse
                worst = max(self.guesses.values(), key=self.target.size)
                # Of the better direction it is enough to be below the worse one.
                self.run_above(way, self.slack(way, worst), most)
                if not seen and self.top(way) > (1 + self.width) * most:
                    seen = way
                    inner[way] = max(inner[way], self.run_below(way))
                    most = max(inner.values())
            way = self.worst()
            if way != seen and self.top(way) > (1 + self.width) * most:
                inner[way] = max(inner[way], self.run_below(way))
            most, top = max(inner.values()), self.top(way)
            self.coarse = not self.target.is_met(most, top)
            if not self.coarse or top == math.inf or not self.refine(way, top, most):
                break
        if self.of._is_realised:
            self.lower = inner
        else:
            self.lower = self.of._realised_lower(self.target, self.width, self.fine)
        for way, low in self.lower.items():
            if way in self.upper:
                check_sides(low, self.upper[way])
        return self.found()

    def refine(self, way: Direction, top: float, inner: float) -> bool:
        """Make the grids finer; False if that would be too much work."""
        factor = min(max(self.target.ratio(inner, top), 1.2) * 1.2, 9.0)
        guess, slack = self.guesses[way], self.slack(way)
        while factor > 1.3:
            grid = self.of._grid(guess, slack * self.fine / factor, self.width)
            if self.of._work(way, grid) <= _MOST_WORK:
                self.fine /= factor
                return True
            factor *= 0.75
        return False


def _add(
    measures: list[GridMeasure], terms: list[Term], measure: GridMeasure, often: float
) -> None:
    one = np.array([float(often)])
    terms.append(Term((len(measures),), np.zeros((1, 0)), one))
    measures.append(measure)


def _check_width(width: float) -> None:
    if not 0 < width <= 1:
        raise ValueError(
            f"width must be in (0, 1], got {width}; it is relative, 0.01 is one percent"
        )
