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
from privaudit.accounting.pld.cells import Direction, Step
from privaudit.accounting.pld.closed_form import gaussian_delta, gaussian_epsilon
from privaudit.accounting.pld.families import Family
from privaudit.accounting.pld.fixed_size import bound
from privaudit.accounting.pld.fourier import MOST_POINTS, Bundle, Tilted, compose
from privaudit.accounting.pld.grouping import (
    MOST_CELLS,
    Grid,
    Part,
    bundle,
    chosen,
    groups_of,
)
from privaudit.accounting.pld.grouping_below import bundle_below
from privaudit.accounting.pld.line import Floats, sampled_loss
from privaudit.accounting.pld.mechanisms.loss import Loss
from privaudit.accounting.pld.scout import LONG, Guess, Law, Scout
from privaudit.accounting.pld.targets import DeltaAt, EpsilonAt, Sides, Target
from privaudit.results import check_sides

Side = Literal["both", "upper", "lower"]

_ROUNDS = 4  # refinements before a bracket is returned as it is
_NARROWER = 0.9  # by which a refinement must narrow a bracket for another to follow
_MOST_BLUR = 0.5  # of the width: what numerical errors may leave open
_FINE = 0.45  # of the width: what cells add above; they take a little more below
_SCOUTED = 1e-20  # far as measures go: a tilt must suit their tails
_LN10 = math.log(10.0)
_LINES, _LINES_AT = 30, (-1.5, -7.0)  # a side; logs of delta that compositions aim at
_LINES_AN_AIM = 12
_FAR_LINE, _MOST_LINE = -20.0, 300.0  # log of the least delta, and the most epsilon
# Of grid points that lie on losses: the largest loss must be above the last dot of what
# is below the curve, and the least one below the first dot, if only just.
_INWARDS = 1e-8
_FINER = (1, 3, 9, 27, 81)  # grids that are tried where one has nothing from below
_AFFORDABLE = 1 << 17  # points of a grid that is finer than is needed
_MOST_CELLS = 1.2e7  # cells in all measures together; about 10 s
_SPARE = 8  # points of a grid that may lie beside its losses
_MOST_ANEW = 1.5  # by which cells are finer where rare losses are cut anew
_CHOSEN = 4  # slack of grids where what is chosen leaves per cents open


@functools.cache
def _threads() -> ThreadpoolController:
    return ThreadpoolController()


@dataclasses.dataclass(frozen=True)
class Composition:
    """The privacy profile of a composition; see `compose_entries`, `compose_steps`."""

    families: tuple[Family, ...]  # the steps, by kind
    # whether they are the steps that were asked for. Else they are surely less private,
    # and nothing is known from below
    exact: bool = True
    bounded: bool = True  # whether there is any bound: far too little noise has none
    # makes what some data sets attain, where that is less than ``families``: the lower
    # sides are its, and an upper one does not wait for it
    attained: Callable[[], Composition] | None = None
    # of random allocations, and how many there are of each; what is known from below is
    # among the others of ``attained``
    epochs: tuple[tuple[Epoch, int], ...] = ()
    # losses of other mechanisms, and how often each was run
    others: tuple[tuple[Loss, float], ...] = ()
    # whether all records that fixed-size batches are of lie in a ball whose diameter is
    # the shift; else they are only known to be no further than that apart
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
        """Sides of the least epsilon >= 0 with which this is (epsilon, delta)-DP."""
        if not 0 < delta < 1:
            raise ValueError(
                f"delta must be in (0, 1), got {delta}; "
                "choose well below one over the number of records"
            )
        # Compared to a number of a shorter kind, bounds would be rounded to it.
        delta = float(delta)
        exactly = functools.partial(gaussian_epsilon, delta=delta, width=width)
        return self._sides(EpsilonAt(delta, width), exactly)

    def delta(self, epsilon: float, width: float = 0.01) -> Sides:
        """Sides of the least delta at ``epsilon`` >= 0; arguments as `epsilon`."""
        if not 0 <= epsilon < math.inf:
            raise ValueError(f"epsilon must be >= 0 and finite, got {epsilon}")
        epsilon = float(epsilon)
        exactly = functools.partial(gaussian_delta, epsilon=epsilon, width=width)
        return self._sides(DeltaAt(epsilon, width), exactly)

    def lines(
        self,
        direction: Direction = "remove",
        at: tuple[float, ...] = _LINES_AT,
        count: int = _LINES,
    ) -> tuple[Floats, Floats]:
        """Epsilons of any sign, and a delta at each that is not below the true one.

        Of one direction alone: TPR <= exp(epsilon) FPR + delta for every attack that
        tells "with the record" (``remove``) from "without" it, or the other way about
        (``add``). Dense where delta changes, and as fast as one composition or two:
        ``at``, logs of delta that they aim at; ``count``, epsilons a side.

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
        far = min(_FAR_LINE, 1.3 * min(at))
        high, low = (
            min(max(self._scout(way).at_delta(far).epsilon, 1e-6), _MOST_LINE)
            for way in (direction, other)
        )
        steps = np.geomspace(0.01, 1.0, count)
        epsilons = np.unique(
            np.concatenate([-low * steps, [0.0], high * steps])
            if low > 0
            else high * steps
        )
        deltas = np.ones(epsilons.shape)
        scout = self._scout(direction)
        for log_delta in at:
            guess = scout.at_delta(log_delta)
            slack = 0.002 * min(1.0, high, low)
            law = scout.law(guess)
            some = epsilons[::_LINES_AN_AIM]  # cells for these serve those between
            grid = self._grid(direction, (guess, law), slack, 0.05, aims=some)
            with _threads().limit(limits=1, user_api="blas"):
                # As little is left out as suits the least delta.
                found = self._composed(
                    direction, grid, dataclasses.replace(guess, log_delta=far)
                )
            if found is not None:
                each = [found.delta_above(epsilon) for epsilon in epsilons.tolist()]
                deltas = np.minimum(deltas, each)
        return epsilons, deltas

    def _sides(
        self, target: EpsilonAt | DeltaAt, exactly: Callable[[float], Sides]
    ) -> Sides:
        """Sides of the worse direction; ``exactly``: of one unsampled Gaussian."""
        width = target.width
        if not 0 < width <= 1:
            raise ValueError(
                f"width must be in (0, 1], got {width}; it is relative, 0.01 is one "
                "percent"
            )
        if not self.bounded:
            return Sides(0.0, target.trivial_upper, width, False, "remove")
        if self.is_empty:
            return Sides(0.0, 0.0, width, True, "remove")
        if self._gaussian is not None:
            bracket = exactly(self._gaussian)
            # Of steps that stand for others nothing is known from below.
            exact = self.exact and all(family.known for family in self.families)
            if exact or bracket.lower == 0:
                return bracket
            return dataclasses.replace(bracket, lower=0.0, reached=False)
        found = self.each(target, width)
        worst = max(found.upper, key=lambda way: found.upper[way])
        upper, lower = found.upper[worst], max(found.lower.values(), default=0.0)
        reached = bool(upper <= (1 + width) * lower or upper == 0)
        return Sides(float(lower), float(upper), width, reached, worst)

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

        Refined until the width is reached, or it would be too much work; by one thread,
        on whose number last bits depend. ``side``: what is wanted. ``caps``: upper
        bounds known.
        """
        ways = directions or self.directions
        if self.bounded and self.is_empty:
            return Found(dict.fromkeys(ways, 0.0), {}, False)
        if not self._is_seen(ways):
            return Found(dict.fromkeys(ways, target.trivial_upper), {}, True)
        scouts = {way: self._scout(way) for way in ways}
        seen = {way: target.seen(scouts[way], self._infinite(way)) for way in ways}
        seen = target.both_seen(seen, scouts)
        # The direction that looks worse comes first.
        seen = dict(sorted(seen.items(), key=lambda item: -target.size(item[1][0])))
        search = _Search(self, target, width, seen, scouts, dict(caps or {}))
        with _threads().limit(limits=1, user_api="blas"):
            found = {
                "both": search.both,
                "upper": search.upper_side,
                "lower": search.lower_side,
            }[side]()
            if side != "lower":
                self._narrow(found, search)
        return found if self.exact else dataclasses.replace(found, lower={})

    def _is_seen(self, ways: tuple[Direction, ...]) -> bool:
        """Return whether there is a distribution of losses to compose, both ways."""
        # Two laws of different outputs: nothing is left to be hidden.
        apart = any(
            not one.sketch(way)[0].size for one, _ in self.others for way in ways
        )
        return (
            self.bounded
            and not apart
            and all(
                losses(epoch, way, _SCOUTED) is not None
                for epoch, _ in self.epochs
                for way in ways
            )
        )

    def scouted(self, target: EpsilonAt) -> float:
        """Estimate of the larger direction's epsilon: no bound."""
        ways = self.directions
        if self.bounded and self.is_empty:
            return 0.0
        if not self._is_seen(ways):
            return math.inf
        return max(
            target.seen(self._scout(way), self._infinite(way))[0].epsilon
            for way in ways
        )

    def _narrow(self, found: Found, search: _Search) -> None:
        """Put in a better upper bound of equal batches of a fixed size alone."""
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
        law = search.laws[way]
        grid = self._grid(way, (guess, law), slack, search.width, uniform=True)
        better = bound(step, int(family.count[0]), grid, guess.rest or guess)
        if better is not None:
            upper = float(search.target.upper(better, guess))
            found.upper[way] = min(found.upper[way], upper)
            check_sides(found.lower.get(way, 0.0), found.upper[way])

    @property
    def is_bounded_at_once(self) -> bool:
        """True if the search of the upper side is that of the lower one as well."""
        return self._is_realised and not self.epochs and not self.others

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
        """A lower bound from what two data sets attain."""
        base = self if self.attained is None else self.attained()
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
            if not known.others:  # its own upper side says when it is narrow
                alike = known.directions == ("remove",)
                lower = known.each(target, width, known.directions).lower
                if alike and lower:
                    lower = dict.fromkeys(ways, lower["remove"])
                best = {way: lower[way] for way in ways if way in lower}
                continue
            for way in ways:
                guess, law = target.seen(known._scout(way), known._infinite(way))
                if not law.is_known:
                    continue
                slack = target.slack(guess, guess)
                # On coarse grids few and small losses are sometimes nothing.
                for times in _FINER if self.epochs else _FINER[:3]:
                    grid = known._grid(way, (guess, law), slack * fine / times, width)
                    found = known._composed(way, grid, guess, "below")
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
                    best[way] = known._lowered(way, target, (guess, law), slack, width)
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

    def _composed(
        self,
        way: Direction,
        grid: Grid,
        guess: Guess,
        side: Literal["above", "below", "lowered"] = "above",
    ) -> Tilted | None:
        """A composition that dominates, or is dominated; None if no grid holds it."""
        spacing = grid.spacing
        if any(family.noise == "laplace" for family in self.families):
            # No largest loss may lie above the last point, if only by rounding.
            spacing *= 1 + 1e-14

        def of(part: Part, guess: Guess, coarser: int = 1) -> Tilted | None:
            some = self._bundles(way, grid, spacing, guess.tilt, side, part)
            return compose(some, spacing * coarser, guess) if some else None

        whole, found = guess.rest or guess, None
        if grid.is_parted:
            found, more = of("common", guess), of("rare", whole, grid.coarser)
            found = dataclasses.replace(found, rest=more) if found and more else None
        found = found or of("all", whole)
        if found is None and any(group.apart for group in grid.groups):
            # All kinds told by their groups' means.
            means = (dataclasses.replace(one, apart=False) for one in grid.groups)
            grid = dataclasses.replace(grid, groups=tuple(means))
            return self._composed(way, grid, guess, side)
        return found

    def _bundles(
        self,
        way: Direction,
        grid: Grid,
        spacing: float,
        tilt: float,
        side: Literal["above", "below", "lowered"],
        part: Part,
    ) -> list[Bundle]:
        """All steps on a grid; none if doubles do not hold some."""
        of_group = bundle if side == "above" else bundle_below
        bundles = []
        for group in grid.groups:
            if side != "above" and not group.below.known:
                continue  # without it the composition is dominated
            one = of_group(group, way, spacing, tilt, grid.reach, part)
            if one is None:
                return []
            bundles.append(one)
        if side == "above":
            for epoch, often in self.epochs:
                measure = epoch_measure(epoch, way, spacing, grid.tail)
                if measure is None:
                    return []
                bundles.append(Bundle.single(measure, often, tilt, spacing))
        for one, often in self.others if side == "above" else self._attained_others:
            measure = getattr(one, side)(way, spacing, grid.reach)
            if measure is None:
                continue
            if abs(measure.start) >= 1 << 52:  # beyond doubles that are whole
                return []
            bundles.append(Bundle.single(measure, often, tilt, spacing))
        return bundles

    def _lowered(
        self,
        way: Direction,
        target: Target,
        seen: tuple[Guess, Law],
        slack: float,
        width: float,
    ) -> float:
        """A lower bound by losses lowered by ``slack`` in all; 0 if it is too long."""
        guess, law = seen
        often = sum(count for _, count in self._attained_others)
        if not often or guess.window * often > 4 * _AFFORDABLE * slack:
            return 0.0
        # Beside the largest losses a tilt may be so steep that it sees none of those
        # that are left.
        guess = dataclasses.replace(guess, tilt=min(guess.tilt, 2 / slack))
        grid = self._grid(way, (guess, law), slack, width, spacing=slack / often)
        found = self._composed(way, grid, guess, "lowered")
        return 0.0 if found is None else target.lower(found, guess)

    @functools.cached_property
    def _groups(self) -> list[Family]:
        """Groups of similar steps."""
        return [group for family in self.families for group in groups_of(family)]

    @functools.cached_property
    def _typical(self) -> tuple[list[Step], list[Floats]]:
        """Steps that stand for all, and counts, by family."""
        known = [family.typical() for family in self.families]
        steps = [step for some, _ in known for step in some]
        return steps, [counts for _, counts in known]

    def _scout(self, way: Direction) -> Scout:
        steps, counts = list(self._typical[0]), list(self._typical[1])
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

    def _work(self, grid: Grid) -> float:
        """About how many cells there are in all measures."""
        cells = sum(one.above.shift.size * one.edges.size for one in grid.groups)
        return (
            cells + sum(one.length(grid.reach) for one, _ in self.others) / grid.spacing
        )

    def _longest(self, reach: float) -> float:
        """Length of the longest grid of any step, at most about."""
        lengths = [one.length(reach) for one, _ in self.others]
        for family in self.families:
            m, q = float(family.shift.max()), float(family.rate.max())
            far = m * (reach + m / 2) if family.noise == "gaussian" else m
            length = sampled_loss(far, q) - sampled_loss(-far, q)
            lengths.append(2 * length if family.scheme != "poisson" else length)
        return max(lengths, default=0.0)

    def _grid(
        self,
        way: Direction,
        found: tuple[Guess, Law],
        slack: float,
        width: float,
        *,
        spacing: float | None = None,
        aims: Floats | None = None,
        uniform: bool = False,
        most: int = MOST_POINTS // 4,
    ) -> Grid:
        """Grid, and cells on it, that move epsilon by ``slack``, about."""
        guess, law = found
        log_tail = max(guess.log_delta, -800.0) + math.log(width * 2e-3 / self.steps)
        reach = -float(special.ndtri_exp(min(log_tail, -1.0)))
        aims = np.unique([guess.epsilon, *guess.aims]) if aims is None else aims
        # No more points in the window, or in the cells of one step, than can be had.
        least = 1.5 * guess.window / most
        if guess.window < 1e-12 * self._longest(reach):  # losses too rare to be seen
            least = 0.25 * self._longest(reach)
        if uniform:
            least = max(least, self._longest(reach) / MOST_CELLS)
        for one, _ in self.others:
            least = max(least, one.length(reach) / (one.points - _SPARE))
        known = None
        if self.families:
            known = chosen(self._groups, way, law, aims, slack, reach, least, guess)
        if spacing is None:
            spacing = guess.spacing(slack)
            if known is not None:
                spacing = min(spacing, known.spacing)
        spacing = max(spacing, least)
        # Losses that have mass of their own: put grid points there, last where most is.
        fine = max(guess.window, self._longest(reach)) / _AFFORDABLE
        marks = [
            (often, one.lattice)
            for one, often in self.others
            if one.lattice is not None and one.lattice > min(spacing, fine)
        ]
        for _, mark in sorted(marks, key=lambda mark: mark[0] * mark[1] ** 2):
            parts = min(math.ceil(mark / spacing), max(math.floor(mark / least), 1))
            spacing = mark / parts * (1 - _INWARDS)
        for family in self.families:
            if family.noise == "laplace" and family.shift.size == 1 and family.known:
                top = sampled_loss(float(family.shift[0]), float(family.rate[0]))
                top = max(top, 1e-100)
                spacing = max(top / math.ceil(top / spacing / 2) / 2, 1e-100)
        # In powers of ten, so that the next grid finds the same epochs.
        often = max(sum(count for _, count in self.epochs), 1)
        tail = math.log10(width * 0.02 / often) + max(guess.log_delta, -600.0) / _LN10
        groups, coarser = ((), 1) if known is None else known.on(spacing)
        return Grid(spacing, reach, 10.0 ** math.floor(tail), groups, coarser)


@dataclasses.dataclass(frozen=True, slots=True)
class Found:
    """Bounds by direction, a lower one perhaps missing; ``coarse`` if too much work."""

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
        seen: dict[Direction, tuple[Guess, Law]],
        scouts: dict[Direction, Scout],
        caps: dict[Direction, float],
    ) -> None:
        self.of, self.target, self.width, self.caps = composition, target, width, caps
        self.scouts = scouts
        self.guesses = {way: guess for way, (guess, _) in seen.items()}
        self.laws = {way: law for way, (_, law) in seen.items()}
        self.upper = dict.fromkeys(seen, target.trivial_upper)
        self.inner = dict.fromkeys(seen, 0.0)  # of the dominating pairs, from below
        self.lower: dict[Direction, float] = {}
        # Of the width: what cells add above, where as much again is taken away below.
        self.fine = _FINE
        self.alone = not composition.epochs and not composition.others
        self.coarse = False
        self.anew = False  # rare losses are cut at another loss than before
        self.last: tuple[Guess, float, Grid] | None = None  # that was looked at

    def top(self, way: Direction) -> float:
        return min(self.upper[way], self.caps.get(way, math.inf))

    def worst(self) -> Direction:
        return max(self.guesses, key=self.top)

    def slack(self, way: Direction) -> float:
        most = max(self.guesses.values(), key=self.target.size)
        return self.target.slack(self.guesses[way], most)

    def grid(self, way: Direction) -> Grid:
        guess, law = self.guesses[way], self.laws[way]
        slack = self.slack(way) * self.fine
        if self.last is None or self.last[0] is not guess or self.last[1] != slack:
            # As many points as can be had where fewer have not done.
            most = MOST_POINTS // (1 if self.alone and self.fine < _FINE else 4)
            grid = self.of._grid(way, (guess, law), slack, self.width, most=most)
            self.last = guess, slack, grid
        return self.last[2]

    def met(self) -> bool:
        return self.target.is_met(max(self.inner.values()), self.top(self.worst()))

    def near(self, way: Direction) -> bool:
        """Return whether a little less than the bracket's width will do."""
        return self.target.ratio(max(self.inner.values()), self.top(way)) < 1.5

    def found(self) -> Found:
        if self.of._is_realised:
            self.lower = {
                w: max(low, self.lower.get(w, 0.0)) for w, low in self.inner.items()
            }
            for way, low in self.lower.items():
                if math.isfinite(self.upper[way]):
                    check_sides(low, self.upper[way])
        return Found(self.upper, self.lower, self.coarse)

    def run(self, way: Direction) -> None:
        """Bound one direction; from below as well where that costs nothing."""
        guess, found, before = self.guesses[way], None, None
        grid = self.grid(way) if self.laws[way].is_known else None
        whole = grid and self.alone and guess.rest is None
        whole = whole and self.laws[way].waves == math.inf
        if grid and whole and guess.window > LONG * grid.spacing:
            before = guess
            guess = self.scouts[way].parted(guess, spacing=grid.spacing)
            self.guesses[way] = guess
            grid = self.grid(way)
        for _ in range(_ROUNDS):  # coarse cells may need too long a window
            if grid is None:
                break
            found = self.of._composed(way, grid, guess)
            if found is not None or (self.upper[way] < math.inf and before is None):
                break
            if before is not None:
                guess, before = before, None
            elif guess.rest is not None:
                rest = dataclasses.replace(guess.rest, window=4 * guess.rest.window)
                guess = dataclasses.replace(guess, rest=rest)
            else:
                self.fine /= 4
                guess = dataclasses.replace(guess, window=2 * guess.window)
            self.guesses[way] = guess
            grid = self.grid(way)
        if grid is None or found is None:
            self.coarse = True
            return
        told = self.alone and self.target.refined  # how wide the bracket is
        enough = max(self.inner.values())
        top = self.target.upper(found, guess, enough)
        self.upper[way] = min(self.upper[way], top)
        blurred = top > enough and self._is_blurred(way, found)
        if blurred and self._rare_apart(way):
            guess, grid = self.guesses[way], self.grid(way)
            found = self.of._composed(way, grid, guess) or found
            top = min(top, self.target.upper(found, guess, enough))
            self.upper[way] = min(self.upper[way], top)
        known = [
            each for each in self.upper.values() if each < self.target.trivial_upper
        ]
        told = told and not self.target.is_met(enough, top)
        if told and self.upper[way] >= max(known, default=0.0):
            below, low = self._below(way)
            met = below is None or self.target.is_met(low, top)
            blurred = not met and self._is_blurred(way, found, below)
            if blurred and self._rare_apart(way):
                guess, grid = self.guesses[way], self.grid(way)
                below, more = self._below(way)
                low = max(low, more)
                if not self.target.is_met(low, top):
                    found = self.of._composed(way, grid, guess) or found
                    top = min(top, self.target.upper(found, guess, max(enough, low)))
            self.upper[way] = min(self.upper[way], top)
            self.inner[way] = max(self.inner[way], low)
        known = self.target.improved(guess, self.upper[way], self.inner[way])
        self.guesses[way] = self._parted_anew(way, guess, known) or known

    def _parted_anew(self, way: Direction, before: Guess, known: Guess) -> Guess | None:
        """Cut at another loss where the figure is far from what was guessed."""
        low, top = self.inner[way], self.upper[way]
        if not self.alone or not 0 < low < top < math.inf or self.met():
            return None
        between = dataclasses.replace(known, epsilon=math.sqrt(low * top))
        aimed = self.target.is_aimed(before, between.epsilon)
        if aimed and self.target.is_aimed(between, before.epsilon):
            return None
        scout, spacing = self.scouts[way], self.grid(way).spacing
        parted = scout.parted(between, spacing=spacing)  # where few points will do
        if parted.rest is None:
            parted = scout.parted(between, always=True)
        self.anew = parted.rest is not None
        return parted if self.anew else None

    def _below(self, way: Direction) -> tuple[Tilted | None, float]:
        """A composition that is dominated, and the figure it has."""
        guess = self.guesses[way]
        found = self.of._composed(way, self.grid(way), guess, "below")
        return found, 0.0 if found is None else self.target.lower(found, guess)

    def _is_blurred(self, way: Direction, *found: Tilted) -> bool:
        """Return whether numerical errors leave most of the bracket open."""
        guess = self.guesses[way]
        room = self.slack(way) * guess.slope * guess.steep  # of log delta
        return sum(one.blur(guess.epsilon) for one in found) > _MOST_BLUR * room

    def _rare_apart(self, way: Direction) -> bool:
        """Compose rare large losses by themselves; False if they are, or nothing is."""
        guess = self.guesses[way]
        if guess.rest is not None or not self.alone:
            return False
        known = guess
        if guess.epsilon < 1e-3 / (1 + guess.slope):  # no loss is rare beside nothing
            known = self.target.improved(guess, self.upper[way])
        self.guesses[way] = self.scouts[way].parted(known, always=True)
        return self.guesses[way] is not known

    def run_below(self, way: Direction) -> None:
        """A lower bound on the dominating pair's own figure."""
        guess, law = self.guesses[way], self.laws[way]
        if not law.is_known:
            return
        _, low = self._below(way)
        if self.of.others and not self.target.is_met(low, self.top(way)):
            slack = self.slack(way)
            lowered = self.of._lowered(
                way, self.target, (guess, law), slack, self.width
            )
            low = max(low, lowered)
        self.inner[way] = max(self.inner[way], low)

    def _unseen(self, parts: float) -> float:
        """Parts of the slack where the other side tells nothing; cells err, too."""
        return 16.0 if self.of.epochs else parts

    def upper_side(self) -> Found:
        if not self.alone:
            self.fine /= self._unseen(4)  # nothing below tells when more is wanted
        gap = math.inf
        for turn in range(_ROUNDS):
            before = {way: self.slack(way) for way in self.guesses}
            for way in self.guesses:
                if turn == 0 or self.top(way) >= self.top(self.worst()):
                    self.run(way)
            way = self.worst()
            if self.alone:
                apart = self.top(way) - max(self.inner.values())
                gains = apart < _NARROWER * gap or self.near(way)
                if self.met() or not gains or not self.refine(way):
                    break
                gap = apart
            elif before[way] <= 1.34 * self.slack(way) or self.coarse:
                break
        self.coarse |= not (self.top(self.worst()) < math.inf)
        if self.alone:
            self.coarse |= not self.met()
        return self.found()

    def lower_side(self) -> Found:
        if not self.of._is_realised:
            self.fine /= self._unseen(2)  # nothing above tells when it is enough
            self.lower = self.of._realised_lower(self.target, self.width, self.fine)
            return self.found()
        if self.alone:
            self.upper_side()
            self.upper = dict.fromkeys(self.upper, self.target.trivial_upper)
            return self.found()
        way = self.worst()
        if math.isfinite(self.top(way)):
            self.guesses[way] = self.target.improved(self.guesses[way], self.top(way))
        for _ in range(_ROUNDS):
            self.run_below(way)
            if self.met() or not self.refine(way):
                break
        return self.found()

    def both(self) -> Found:
        self.upper_side()
        if self.alone and self.of._is_realised:
            return self.found()
        upper, coarse = dict(self.upper), self.coarse
        self.lower_side()
        self.upper, self.coarse = upper, coarse
        return self.found()

    def refine(self, way: Direction) -> bool:
        """Make the cells finer; False if that would be too much work."""
        top = self.top(way)
        if not (top < math.inf and self.laws[way].is_known):
            return False
        most = _MOST_ANEW if self.anew else 9.0  # these cells may do
        self.anew = False
        factor = min(self.target.ratio(max(self.inner.values()), top) * 1.2, most)
        fine = self.fine
        while factor > 1.1:
            self.fine = fine / factor
            if self.of._work(self.grid(way)) <= _MOST_CELLS:
                return True
            factor *= 0.75
        self.fine = fine
        return False
