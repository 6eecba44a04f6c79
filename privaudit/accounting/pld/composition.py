"""Certified brackets of epsilon and delta for any composition of sampled noise."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from privaudit.accounting.pld.cells import (
    Direction,
    Floats,
    Noise,
    Scheme,
    sampled_loss,
)
from privaudit.accounting.pld.dots import GridMeasure
from privaudit.accounting.pld.fourier import MOST_POINTS, Term, Tilted, compose
from privaudit.accounting.pld.grouping import (
    MOST_CELLS,
    Family,
    Grid,
    boxes_of,
    terms_above,
    terms_below,
)
from privaudit.accounting.pld.scout import Guess, Scout
from privaudit.ledger import Entry, NoSampling, PoissonSampling
from privaudit.results import Relation

_ROUNDS = 4  # refinements before a bracket is returned as it is
_MOST_WORK = 1.2e7  # cells in all measures together; about 10 s


@dataclasses.dataclass(frozen=True, slots=True)
class Bracket:
    """lower <= the truth <= upper, both proved, numerical error included.

    Parameters
    ----------
    lower, upper
        The bracket; ``upper`` may be infinity.
    width
        What was asked for: upper <= (1 + width) lower.
    reached
        Whether it was reached. If not, both are still bounds.
    worst
        The direction that gave ``upper``.
    """

    lower: float
    upper: float
    width: float
    reached: bool
    worst: Direction


@dataclasses.dataclass(frozen=True)
class Composition:
    """The privacy profile of a composition; see `compose_entries`, `compose_steps`.

    Parameters
    ----------
    families
        The steps, by kind.
    """

    families: tuple[Family, ...]

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
        if not self.families:
            return Bracket(0.0, 0.0, width, True, "remove")
        if self._gaussian is not None:
            return _gaussian_epsilon(self._gaussian, delta, width)
        return self._search(_EpsilonAt(delta, width), width)

    def delta(self, epsilon: float, width: float = 0.01) -> Bracket:
        """Bracket of the least delta at ``epsilon`` >= 0; arguments as `epsilon`."""
        if not 0 <= epsilon < math.inf:
            raise ValueError(f"epsilon must be >= 0 and finite, got {epsilon}")
        _check_width(width)
        if not self.families:
            return Bracket(0.0, 0.0, width, True, "remove")
        if self._gaussian is not None:
            return _gaussian_delta(self._gaussian, epsilon, width)
        return self._search(_DeltaAt(epsilon, width), width)

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

    def _search(self, target: _Target, width: float) -> Bracket:
        """Refine until the width is reached, or it would be too much work."""
        guesses = {way: target.guess(self._scout(way)) for way in self.directions}
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
                grid = self._grid(guess, slack * fine, target.width, nodes)
                found = _run(self.families, way, grid, guess, terms_above)
                if found is not None:
                    upper[way] = min(upper[way], target.upper(found, guess))
                guesses[way] = target.improved(guess, upper[way])
            worst = max(guesses, key=lambda way: upper[way])
            guess = guesses[worst]
            slack = target.slack(guess, guess)
            grid = self._grid(guess, slack * fine, target.width, nodes)
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
            fine, nodes = fine / factor, math.ceil(nodes * factor**0.5)
            guess = guesses[worst]
            slack = target.slack(guess, guess) * fine
            if self._work(self._grid(guess, slack, width, nodes)) > _MOST_WORK:
                break
        if not self._is_realised:
            lower = self._realised_lower(target, fine, nodes)
            reached = upper[worst] <= (1 + width) * lower or upper[worst] == 0
        return Bracket(min(lower, upper[worst]), upper[worst], width, reached, worst)

    @property
    def _is_realised(self) -> bool:
        """Whether some data sets attain the dominating pair at every step."""
        return all(family.scheme != "fixed" for family in self.families)

    def _realised_lower(self, target: _Target, fine: float, nodes: int) -> float:
        """Fixed-size lots: what two data sets attain whose other records are alike."""
        families = tuple(
            dataclasses.replace(family, scheme="poisson")
            if family.scheme == "fixed"
            else family
            for family in self.families
        )
        best = 0.0
        for way in ("remove", "add"):
            scout = Composition(families)._scout(way)
            guess = target.guess(scout)
            slack = target.slack(guess, guess)
            grid = self._grid(guess, slack * fine, target.width, nodes)
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
        """Length of the grid of a step's losses, at most."""
        m = float(family.shift.max())
        return 2 * (m * (reach + m / 2) if family.noise == "gaussian" else m)

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


class _Target:
    """What is bracketed: the part of the search that differs for epsilon and delta."""

    width: float
    trivial_upper: float

    def guess(self, scout: Scout) -> Guess:
        raise NotImplementedError

    def size(self, guess: Guess) -> float:
        """How bad a direction looks."""
        raise NotImplementedError

    def slack(self, guess: Guess, worst: Guess) -> float:
        """Width in epsilon that is wanted, where ``worst`` decides."""
        raise NotImplementedError

    def upper(self, found: Tilted, guess: Guess) -> float:
        raise NotImplementedError

    def lower(self, found: Tilted, guess: Guess) -> float:
        raise NotImplementedError

    def improved(self, guess: Guess, upper: float) -> Guess:
        return guess


@dataclasses.dataclass(frozen=True)
class _EpsilonAt(_Target):
    delta: float
    width: float
    trivial_upper: float = math.inf

    def guess(self, scout: Scout) -> Guess:
        return scout.at_delta(math.log(self.delta))

    def size(self, guess: Guess) -> float:
        return guess.epsilon

    def slack(self, guess: Guess, worst: Guess) -> float:
        wanted = self.width * max(worst.epsilon, 1e-3 / (1 + worst.tilt))
        return max(wanted, 0.5 * (worst.epsilon - guess.epsilon))

    def upper(self, found: Tilted, guess: Guess) -> float:
        return _least_epsilon(
            lambda e: found.delta_above(e) <= self.delta, guess.epsilon, self.width
        )[1]

    def lower(self, found: Tilted, guess: Guess) -> float:
        return _largest_epsilon(
            lambda e: found.delta_below(e) > self.delta, guess.epsilon, self.width
        )

    def improved(self, guess: Guess, upper: float) -> Guess:
        if math.isfinite(upper):
            return dataclasses.replace(guess, epsilon=upper)
        return guess


@dataclasses.dataclass(frozen=True)
class _DeltaAt(_Target):
    epsilon: float
    width: float
    trivial_upper: float = 1.0

    def guess(self, scout: Scout) -> Guess:
        return scout.at_epsilon(self.epsilon)

    def size(self, guess: Guess) -> float:
        return guess.log_delta

    def slack(self, guess: Guess, worst: Guess) -> float:
        room = min(0.5 * (worst.log_delta - guess.log_delta), 2.0)
        return max(self.width, room) / (1 + guess.tilt)

    def upper(self, found: Tilted, guess: Guess) -> float:
        return found.delta_above(self.epsilon)

    def lower(self, found: Tilted, guess: Guess) -> float:
        return found.delta_below(self.epsilon)


def _least_epsilon(
    holds: Callable[[float], bool], guess: float, width: float
) -> tuple[float, float]:
    """(bad, good) with ``holds(good)`` and not ``holds(bad)``, close together.

    (0, 0) if it holds at 0; good is infinity if it is found to hold nowhere.
    """
    if holds(0.0):
        return 0.0, 0.0
    bad, good = 0.0, max(guess, 1e-12)
    step = max(1e-3, width)
    while not holds(good):  # invariant: not holds(bad)
        bad, good = good, good * (1 + step)
        step *= 4
        if good > 1e300:
            return bad, math.inf
    step = max(1e-3, width)
    while True:  # invariant: holds(good), not holds(bad)
        trial = good / (1 + step)
        if trial <= bad:
            break
        if not holds(trial):
            bad = trial
            break
        good = trial
        step *= 4
    while good - bad > 0.01 * width * good:  # the same invariant
        middle = (good + bad) / 2
        if holds(middle):
            good = middle
        else:
            bad = middle
    return bad, good


def _largest_epsilon(
    exceeds: Callable[[float], bool], guess: float, width: float
) -> float:
    """An epsilon at which ``exceeds`` holds, near the largest; 0 if none is found.

    It need not hold at 0, which may lie outside the window of a composition.
    """
    if not 0 < guess < math.inf:
        return 0.0
    step = 0.25 * width
    good, bad = guess, math.inf
    while not exceeds(good):
        bad, good = good, good * (1 - min(step, 0.9))
        step *= 2
        if good <= 1e-9 * guess:
            return 0.0
    step = width
    while bad == math.inf:  # invariant: exceeds(good)
        trial = good * (1 + step)
        if exceeds(trial):
            good = trial
            step *= 2
        else:
            bad = trial
    while bad - good > 0.01 * width * bad:  # invariant: exceeds(good)
        middle = (good + bad) / 2
        if exceeds(middle):
            good = middle
        else:
            bad = middle
    return good


def _check_width(width: float) -> None:
    if not 0 < width <= 1:
        raise ValueError(
            f"width must be in (0, 1], got {width}; it is relative, 0.01 is one percent"
        )


def _gaussian_log_delta(shift: float, epsilon: float) -> float:
    """log(Phi(m/2 - e/m) - exp(e) Phi(-m/2 - e/m)) (Balle and Wang 2018, theorem 8)."""
    first = special.log_ndtr(shift / 2 - epsilon / shift)
    second = epsilon + special.log_ndtr(-shift / 2 - epsilon / shift)
    if second >= first:
        return -math.inf
    return float(first + math.log(-math.expm1(second - first)))


def _gaussian_error(shift: float, epsilon: float) -> float:
    """Bound on the error of `_gaussian_log_delta`.

    The two logs are off by 8 units of their size and of their arguments' squares; the
    difference of their exponentials multiplies that by the first over the difference.
    """
    far = shift / 2 + epsilon / shift
    first = special.log_ndtr(shift / 2 - epsilon / shift)
    loss = float(first) - _gaussian_log_delta(shift, epsilon)
    off = 2.0**-50 * (8 + far * far + epsilon)
    return off * (1 + math.exp(min(max(loss, 0.0), 700.0)))


def _gaussian_delta(shift: float, epsilon: float, width: float) -> Bracket:
    log_delta = _gaussian_log_delta(shift, epsilon)
    error = _gaussian_error(shift, epsilon)
    upper = math.exp(min(0.0, log_delta + error)) + 1e-300
    lower = math.exp(log_delta - error)
    return Bracket(lower, upper, width, upper <= (1 + width) * lower, "remove")


def _gaussian_epsilon(shift: float, delta: float, width: float) -> Bracket:
    target = math.log(delta)

    def holds(epsilon: float) -> bool:
        error = _gaussian_error(shift, epsilon)
        return _gaussian_log_delta(shift, epsilon) + error <= target

    def may_hold(epsilon: float) -> bool:
        error = _gaussian_error(shift, epsilon)
        return _gaussian_log_delta(shift, epsilon) - error <= target

    start = shift * (shift / 2 + math.sqrt(max(-2 * target, 0.0)))
    fine = min(width, 1e-9)
    upper = _least_epsilon(holds, start, fine)[1]
    lower = _least_epsilon(may_hold, start, fine)[0]
    return Bracket(lower, upper, width, upper <= (1 + width) * lower, "remove")


def compose_steps(
    noise_multiplier: ArrayLike,
    sampling_rate: ArrayLike = 1.0,
    count: ArrayLike = 1,
    *,
    noise: Noise = "gaussian",
    scheme: Scheme = "poisson",
) -> Composition:
    """The composition of many steps, given as arrays that broadcast.

    Parameters
    ----------
    noise_multiplier
        Standard deviation (gaussian) or scale (laplace) of the noise over how far one
        record can move the release: over its own size with ``scheme`` ``poisson``
        (adding or removing a record) and ``replace`` (Poisson sampling, replacing one
        by its opposite), over the difference of two with ``fixed``.
    sampling_rate
        Probability, or share of the records, in [0, 1].
    count
        How often each step is taken, >= 0.
    noise
        Shape of the noise.
    scheme
        ``poisson``: Poisson sampling or none, add or remove one record. ``replace``:
        Poisson sampling, replace one. ``fixed``: fixed-size samples without
        replacement, replace one.
    """
    z, q, n = (
        np.ascontiguousarray(a, float).ravel()
        for a in np.broadcast_arrays(
            np.asarray(noise_multiplier, float),
            np.asarray(sampling_rate, float),
            np.asarray(count, float),
        )
    )
    if not (z > 0).all():
        raise ValueError(
            "noise multipliers must be > 0: without noise nothing is private"
        )
    if not ((q >= 0) & (q <= 1)).all():
        raise ValueError("sampling rates must be in [0, 1]")
    if not ((n >= 0) & (n < math.inf)).all():
        raise ValueError("counts must be >= 0 and finite")
    return _composition([(noise, scheme, 1 / z, q, n)])


def _composition(
    parts: Sequence[tuple[Noise, Scheme, Floats, Floats, Floats]],
) -> Composition:
    """Families by kind; unsampled Gaussians, which compose exactly, become one step."""
    rows: dict[tuple[Noise, Scheme], list[tuple[Floats, Floats, Floats]]] = {}
    squares: list[float] = []
    for noise, scheme, shift, rate, count in parts:
        used = (shift > 0) & (rate > 0) & (count > 0)
        shift, rate, count = shift[used], rate[used], count[used]
        whole = rate == 1
        if noise == "gaussian":
            unit = 2.0 if scheme == "replace" else 1.0
            squares += (count[whole] * (unit * shift[whole]) ** 2).tolist()
        else:
            rows.setdefault((noise, "poisson"), []).append(
                (shift[whole], rate[whole], count[whole])
            )
        rows.setdefault((noise, scheme), []).append(
            (shift[~whole], rate[~whole], count[~whole])
        )
    families = []
    for (noise, scheme), arrays in sorted(rows.items()):
        shift, rate, count = (
            np.concatenate(column) for column in zip(*arrays, strict=True)
        )
        if shift.size:
            families.append(Family.of(noise, scheme, shift, rate, count))
    if squares:
        one = np.ones(1)
        total = np.array([math.sqrt(math.fsum(squares))])
        families.append(Family("gaussian", "poisson", total, one, one))
    return Composition(tuple(families))


def compose_entries(entries: Sequence[Entry], relation: Relation) -> Composition:
    """The composition of a node's releases under ``relation``.

    Raises
    ------
    ValueError
        If a release has no noise, or no meaning under the relation.
    """
    kinds: dict[tuple[Noise, Scheme], list[tuple[float, float, int]]] = {}
    for entry in entries:
        release = entry.release
        if not release.is_private:
            raise ValueError(
                "a release without noise has no finite epsilon at any delta"
            )
        sensitivity = release.sensitivity_under(relation)
        scheme: Scheme = "poisson"
        if not isinstance(release.sampling, NoSampling) and relation == "replace-one":
            scheme = "fixed"
            if isinstance(release.sampling, PoissonSampling):
                scheme = "replace"
                # Half-way apart, and each no further from 0 than its norm bound.
                sensitivity = max(sensitivity / 2, release.norm_bound)
        kinds.setdefault((release.mechanism, scheme), []).append(
            (sensitivity / release.noise, release.sampling.rate, entry.count)
        )
    return _composition(
        [
            (
                noise,
                scheme,
                *(np.array(column, float) for column in zip(*rows, strict=True)),
            )
            for (noise, scheme), rows in kinds.items()
        ]
    )
