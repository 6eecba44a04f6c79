"""Provers: theorems that bound releases in sequence from above or below.

A prover bounds epsilon at a delta, or delta at an epsilon, of one direction of one
relation. Each has a name and a proof of its own (in its docstring), and rounds to its
safe side, so that no two can cross. `prove` takes the least of the upper bounds and the
greatest of the lower ones in each direction. Nothing here knows of nodes, passes,
units or a chance of failure: that is `privaudit.accounting.certificate`.

Everywhere P is the output on a data set with the record (direction ``remove``) or
without it (``add``), Q the other one, s a release's sensitivity over its noise, q its
rate, and delta(epsilon) = E_P[(1 - exp(epsilon - loss))+] with loss = log(P / Q). Of a
relation that is its own mirror image the one direction is called ``remove``.
"""

from __future__ import annotations

import abc
import contextlib
import dataclasses
import functools
import math
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import ClassVar, Literal

import numpy as np
from msgspec import UNSET
from numpy.typing import NDArray
from scipy import special

from privaudit.accounting import gdp, rdp
from privaudit.accounting.allocation import Allocated, epochs_of, is_allocated
from privaudit.accounting.bins import Bins, bins_of
from privaudit.accounting.pld import Composition, compose_entries
from privaudit.accounting.pld.cells import Direction
from privaudit.accounting.pld.closed_form import gaussian_delta, gaussian_epsilon
from privaudit.accounting.pld.composition import Found, Side
from privaudit.accounting.pld.mechanisms import Curve, Loss, loss_of
from privaudit.accounting.pld.steps import columns_of, compose_columns
from privaudit.accounting.pld.targets import DeltaAt, EpsilonAt, Target, crossing
from privaudit.ledger import Entry
from privaudit.mechanisms import EpsilonDelta
from privaudit.release import Release
from privaudit.results import Relation, check_sides

Floats = NDArray[np.float64]
Quantity = Literal["epsilon", "delta"]

# Relative, for sums of closed forms each of which is good to 1e-13 or better.
_SLACK = 1e-12
_TINY = 1e-300  # absolute, for what underflows
_FEW = 64  # different releases whose ratios are added without rounding, or composed
MOST_GUARANTEED = 700.0  # epsilon of a pair of two outputs: e^-epsilon is a double
# Renyi divergences are worked out for each different release, at some fifty orders.
_MOST_DIFFERENT = 300


@dataclasses.dataclass(frozen=True)
class Steps:
    """Releases with noise, one after another, each of which may hold the record.

    Those that nothing can be learned from (no sensitivity, or never sampled) are left
    out of the arrays, which have one element a different release.

    ``gaussian`` (else Laplace), ``scheme``, ``shift`` (s), ``norm``, ``rate`` (q in (0,
    1]), ``count``: as `columns_of` has them. ``epochs``, ``plain``: epochs of random
    allocations, and the rest of ``entries``, in which each epoch is what costs no less:
    the record's batches known. ``attained``: whether ``entries`` are all there is; else
    they bound from above only. ``others``: losses of mechanisms with details, which the
    arrays leave out, and their counts.
    """

    entries: tuple[Entry, ...]
    relation: Relation
    gaussian: NDArray[np.bool_]
    scheme: NDArray[np.int64]
    shift: Floats
    norm: Floats
    rate: Floats
    count: Floats
    plain: tuple[Entry, ...] = ()
    epochs: tuple[Allocated | Bins, ...] = ()
    attained: bool = True
    others: tuple[tuple[Loss, float], ...] = ()

    @classmethod
    def of(
        cls,
        entries: Sequence[Entry],
        relation: Relation,
        dealt: Sequence[Allocated] = (),
    ) -> Steps:
        """Collect the steps of ``entries`` and of one part of each pass ``dealt``."""
        bins, others = bins_of(entries, relation)
        plain = [entry for entry in others if not is_allocated(entry)]
        allocated: list[Allocated | Bins] = [*dealt, *bins]
        for epoch in epochs_of(entries):
            fewer, bare = epoch.halved(relation)
            allocated += fewer
            plain += bare
        known = [one for some in allocated for one in some.known_batches(relation)]
        told: list[Allocated | Bins] = []
        gaussian = all(entry.release.mechanism == "gaussian" for entry in known)
        if gaussian or all(some.shuffled for some in allocated):
            told = [some for some in allocated if some.tells(relation)]
        steps = cls._of([*plain, *known], relation)
        if not allocated:
            return steps
        kept = cls._of(plain if told else [*plain, *known], relation).entries
        return dataclasses.replace(
            steps, plain=kept, epochs=tuple(told), attained=False
        )

    @classmethod
    def _of(cls, entries: Sequence[Entry], relation: Relation) -> Steps:
        kept, columns, others = columns_of(entries, relation)
        return cls(
            tuple(kept),
            relation,
            columns[0] == 1,
            columns[1].astype(np.int64),
            *columns[2:],
            others=others,
        )

    @property
    def directions(self) -> tuple[Direction, ...]:
        """Remove and add, or one of them if they are the same."""
        whole = not self.epochs and bool((self.rate == 1).all())
        alike = self.relation == "replace-one" or whole
        others = all(one.symmetric for one, _ in self.others)
        return ("remove",) if alike and others else ("remove", "add")

    @functools.cached_property
    def composition(self) -> Composition:
        """For privacy loss distributions."""
        if self.attained:
            return compose_columns(self._columns, self.others)
        found = compose_entries(self.plain, self.relation)
        if not self.epochs:  # known batches are no more than a bound
            return dataclasses.replace(found, exact=False)
        above = [some.above(self.relation) for some in self.epochs]
        if beside := [one for _, some in above for one in some]:
            found = compose_entries([*self.plain, *beside], self.relation)
        epochs = tuple(one for some, _ in above for one in some)
        known = functools.cache(self._attained)
        return dataclasses.replace(found, epochs=epochs, attained=known)

    def _attained(self) -> Composition:
        told = [some.below(self.relation) for some in self.epochs]
        below = [one for some, _ in told for one in some]
        beside = [one for _, some in told for one in some]
        base = compose_entries([*self.plain, *beside], self.relation)
        base = base.attained() if base.attained else base
        return dataclasses.replace(base, others=(*base.others, *below))

    @functools.cached_property
    def in_ones(self) -> Composition | None:
        """The composition by blocks of one batch, quick; None if that is no other."""
        if not self.epochs:
            return None
        found = self.composition
        ones = tuple(
            one for some in self.epochs for one in some.above(self.relation, most=1)[0]
        )
        return None if ones == found.epochs else dataclasses.replace(found, epochs=ones)

    @functools.cached_property
    def in_largest_losses(self) -> Composition | None:
        """Records replaced in samples under Laplace noise by their largest losses.

        Losses in [-b, b] are dominated by b-DP's own pair. Of many different b the
        largest of each of some groups. None if there are no such records.
        """
        some = np.flatnonzero((self.scheme == 2) & ~self.gaussian & (self.rate < 1))
        most = opposed_range(self.shift, self.rate, self.norm)[some]
        if not (self.attained and some.size) or most.max() > MOST_GUARANTEED:
            return None
        some, most = some[np.argsort(most)], np.sort(most)
        starts = np.arange(0, some.size, -(-some.size // _FEW))
        counts = np.add.reduceat(self.count[some], starts)
        tops = np.maximum.reduceat(most, starts)
        told = [
            (loss_of(EpsilonDelta(top, 0.0), self.relation), often)
            for top, often in zip(tops.tolist(), counts.tolist(), strict=True)
        ]
        return compose_columns(np.delete(self._columns, some, 1), (*self.others, *told))

    @property
    def _columns(self) -> Floats:
        """As `columns_of` has them."""
        rows = (self.gaussian, self.scheme, self.shift, self.norm)
        return np.array([*rows, self.rate, self.count], dtype=float)


class Prover(abc.ABC):
    """Bounds of one direction; what it cannot prove is infinity, 1 or 0."""

    name: ClassVar[str]

    def epsilon_above(self, steps: Steps, way: Direction, delta: float) -> float:
        """At least the least epsilon >= 0 that holds at ``delta`` in [0, 1)."""
        return math.inf

    def epsilon_below(self, steps: Steps, way: Direction, delta: float) -> float:
        """At most that."""
        return 0.0

    def delta_above(self, steps: Steps, way: Direction, epsilon: float) -> float:
        """At least the least delta that holds at ``epsilon``, >= 0 and finite."""
        return 1.0

    def delta_below(self, steps: Steps, way: Direction, epsilon: float) -> float:
        """At most that."""
        return 0.0


class Gaussian(Prover):
    """Gaussian releases without sampling: exact.

    The loss of one is normal, with variance s^2 and mean s^2 / 2, and is attained; sums
    of independent normal losses are again that, with the sum of the variances (Dong,
    Roth and Su, Corollary 3.3). delta(epsilon) is a closed form (Balle and Wang 2018,
    Theorem 8), whose rounding `privaudit.accounting.gdp` bounds from above and
    `privaudit.accounting.pld.closed_form` from below.
    """

    name = "closed form of the Gaussian"

    def _mu(self, steps: Steps) -> tuple[float, float] | None:
        """Rounded down and up."""
        if steps.others or not (steps.gaussian.all() and (steps.rate == 1).all()):
            return None
        with np.errstate(over="ignore"):
            parts = steps.shift * (1 + 2.0**-52) * np.sqrt(steps.count)
        if steps.count.tolist() == [1.0]:
            up = float(parts[0])
        else:
            up = gdp.compose(parts * (1 + 2.0**-52))
        return up * (1 - _SLACK), up

    def epsilon_above(self, steps: Steps, way: Direction, delta: float) -> float:
        mu = self._mu(steps)
        if mu is None or not delta:
            return math.inf
        return float(gdp.epsilon(mu[1], delta))

    def epsilon_below(self, steps: Steps, way: Direction, delta: float) -> float:
        mu = self._mu(steps)
        if mu is None or not delta or not 1e-100 < mu[0] < 1e100:
            return 0.0
        return gaussian_epsilon(mu[0], delta, 1e-9).lower

    def delta_above(self, steps: Steps, way: Direction, epsilon: float) -> float:
        mu = self._mu(steps)
        return 1.0 if mu is None else float(gdp.delta(mu[1], epsilon))

    def delta_below(self, steps: Steps, way: Direction, epsilon: float) -> float:
        mu = self._mu(steps)
        if mu is None or not 1e-100 < mu[0] < 1e100:
            return 0.0
        return gaussian_delta(mu[0], epsilon, 1e-9).lower


class Pure(Prover):
    """Losses that have a largest value: Laplace noise; a record added to a sample.

    *Above.* Let every loss lie in [-b, a], sums of the steps' ranges. (r - c)+ is
    convex in r = P/Q, so that of all r in [e^-b, e^a] with mean 1 under Q the one on
    both ends has the largest delta(epsilon) = m (1 - exp(epsilon - a)), where m =
    (1 - e^-b) / (1 - e^-(a+b)) is P's mass at the upper end. It is 0 from a on, the
    pure epsilon. Of few unsampled releases that is a sum of ratios of their own
    numbers, worked out exactly: a budget that is just met is met.
    Ranges: Laplace noise has log-ratios in [-s, s]. Sampling makes of a ratio r the
    ratio 1 - q + q r; so does a sample of fixed size, in both directions, of replacing
    a record (Balle, Barthe and Gaboardi 2018, Theorem 11). Replacing a record of a
    Poisson sample: (1 - q + q u) / (1 - q + q v) with u <= min(e^s v, e^c), c the norm
    over the noise, grows in v while e^s v < e^c and falls beyond. Adding a record to a
    sample of rate q: P/Q = 1 / (1 - q + q r) < 1 / (1 - q), whatever the noise.

    *Below.* At delta 0 the largest loss itself, which one record far enough out attains
    or comes as near to as one likes; under other noise than Laplace's it is infinity.
    Laplace noise attains it with positive probability m = the product of 1/2 (1 - q)
    e^-s + q / 2 (remove) or 1/2 (add), so that delta(epsilon) >= m (1 - exp(epsilon -
    a)), of all steps or of some. Of fixed samples this is for data whose other records
    are alike, of replaced records of Poisson samples for two that are opposite, s/2
    from 0.
    """

    name = "pure bound"

    def epsilon_above(self, steps: Steps, way: Direction, delta: float) -> float:
        top, bottom = self._range(steps, way)
        if top == math.inf:
            return math.inf
        share = delta / self._top_mass(top, bottom)
        least = max(0.0, top + math.log1p(-share)) if share < 1 else 0.0
        return min(least, self._exactly(steps, top))

    def delta_above(self, steps: Steps, way: Direction, epsilon: float) -> float:
        top, bottom = self._range(steps, way)
        if epsilon >= self._exactly(steps, top):
            return 0.0
        mass = self._top_mass(top, bottom)
        return min(1.0, mass * -math.expm1(epsilon - top) * (1 + _SLACK) + 5e-324)

    def epsilon_below(self, steps: Steps, way: Direction, delta: float) -> float:
        if steps.others:
            return 0.0
        return max(
            self._epsilon_below(steps, one, delta)
            if delta
            else self._attained(steps, one)
            for one in self._sides(steps, way)
        )

    def delta_below(self, steps: Steps, way: Direction, epsilon: float) -> float:
        best = 0.0
        if steps.others:
            return best
        for one in self._sides(steps, way):
            top = self._attained(steps, one)
            if epsilon < top < math.inf:
                mass = math.exp(self._log_mass(steps, one))
                best = max(best, mass * -math.expm1(epsilon - top) * (1 - _SLACK))
        return best

    def _epsilon_below(self, steps: Steps, way: Direction, delta: float) -> float:
        if steps.gaussian.any():
            return 0.0
        top, log_mass = self._tops(steps, way)
        # Leaving steps out reveals no more: of the best first, as many as delta allows.
        order = np.argsort(log_mass / np.maximum(top, 1e-300))[::-1]
        slack = _SLACK + 4e-16 * order.size
        with np.errstate(over="ignore"):
            tops = np.minimum(np.cumsum(top[order]), 1e308) * (1 - slack)
        log_share = math.log(delta) - np.cumsum(log_mass[order]) * (1 + slack) + slack
        share = np.exp(np.minimum(log_share, 0.0))
        with np.errstate(divide="ignore"):
            # Of a small share 1 - share would be 1, of a large one share.
            less = np.where(
                share < 0.5,
                np.log1p(-share),
                np.log(-np.expm1(np.minimum(log_share, 0.0))),
            )
        return max(0.0, float((tops + less * (1 + slack)).max()) - _TINY)

    @staticmethod
    def _exactly(steps: Steps, top: float) -> float:
        """The largest loss without rounding, where ``top`` is it but for that."""
        if top == math.inf or steps.epochs or len(steps.entries) > _FEW:
            return top
        total = Fraction(0)
        for entry in steps.entries:
            release = entry.release
            pure = None
            if release.sampling.rate == 1 and release.details is not UNSET:
                pure = release.details.pure_under(steps.relation)
            elif release.sampling.rate == 1 and release.mechanism == "laplace":
                moved = release.sensitivity_under(steps.relation)
                pure = Fraction(moved) / Fraction(release.noise)
            if pure is None:
                return top
            total += entry.count * Fraction(pure)
        nearest = float(total)
        if Fraction(nearest) < total:
            nearest = math.nextafter(nearest, math.inf)
        return nearest if abs(nearest - top) <= 1e-9 * top else top

    @staticmethod
    def _sides(steps: Steps, way: Direction) -> tuple[Direction, ...]:
        """Directions to look at: of a mirror-symmetric relation either pair counts."""
        return (way,) if len(steps.directions) > 1 else ("remove", "add")

    @staticmethod
    def _top_mass(top: float, bottom: float) -> float:
        return min(1.0, math.expm1(-bottom) / math.expm1(-top - bottom)) * (1 + _SLACK)

    @staticmethod
    def _range(steps: Steps, way: Direction) -> tuple[float, float]:
        """The largest loss and minus the least, both rounded up."""
        s, q, c = steps.shift, steps.rate, steps.norm
        up, down = sampled(s, q), -sampled(-s, q)
        with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
            both = opposed_range(s, q, c) if (steps.scheme == 2).any() else s
            without = -np.log1p(-q)
        up, down = (
            np.select([steps.scheme == 1, steps.scheme == 2], [up, both], one)
            for one in (up, down)
        )
        up = np.where(steps.gaussian, np.inf, up)
        down = np.where(
            steps.gaussian, np.where(steps.scheme == 0, without, np.inf), down
        )
        slack = np.where(s <= 700, 4e-15 + 2e-16 * s, _SLACK)  # of exp(s), s rounded
        with np.errstate(over="ignore"):
            sums = []
            for i, one in enumerate((up, down)):
                parts = [_TINY, *(steps.count * one * (1 + slack)).tolist()]
                for loss, n in steps.others:
                    parts.append(n * loss.range("remove")[i] * (1 + 1e-15))
                sums.append(_sum(parts))
        return (sums[0], sums[1]) if way == "remove" else (sums[1], sums[0])

    def _attained(self, steps: Steps, way: Direction) -> float:
        """The largest loss that some data sets attain or come near to, rounded down."""
        return max(0.0, _sum(self._tops(steps, way)[0].tolist()) * (1 - _SLACK) - _TINY)

    def _log_mass(self, steps: Steps, way: Direction) -> float:
        """log of the probability of the largest loss, rounded down."""
        return math.fsum(self._tops(steps, way)[1].tolist()) * (1 + _SLACK) - _SLACK

    @staticmethod
    @np.errstate(divide="ignore", over="ignore", invalid="ignore")
    def _tops(steps: Steps, way: Direction) -> tuple[Floats, Floats]:
        """The largest losses that are attained, and logs of their probabilities."""
        s, q = steps.shift, steps.rate
        up, down = sampled(s, q), -sampled(-s, q)
        half = sampled(s / 2, q) - sampled(-s / 2, q)
        half -= 1e-15 * (np.abs(sampled(s / 2, q)) + np.abs(sampled(-s / 2, q)))
        half = np.maximum(half, 0.0)
        without = np.where(steps.scheme == 2, np.inf, -np.log1p(-q))
        up, down = (np.where(steps.scheme == 2, half, one) for one in (up, down))
        up = np.where(steps.gaussian, np.inf, up)
        down = np.where(steps.gaussian, without, down)
        far = np.where(steps.scheme == 2, s / 2, s)
        log_mass = np.log(0.5 * ((1 - q) * np.exp(-far) + q))
        if way == "add":
            log_mass = np.where(steps.scheme == 2, log_mass, math.log(0.5))
        log_mass = np.where(steps.gaussian, -np.inf, log_mass)
        return steps.count * (up if way == "remove" else down), steps.count * log_mass


class TotalVariation(Prover):
    """The total variation distance t of P and Q bounds delta at every epsilon >= 0.

    delta(0) is t, and delta falls; so epsilon is 0 where delta covers t. Of one release
    t is q times that without sampling (couple the samples; for a record replaced the
    parts with other records are common), 2 Phi(s/2) - 1 or 1 - e^(-s/2). Of several it
    is at most the least of two:

    - 1 - the product of (1 - t_i): couple one release after another;
    - sqrt(X) / 2, where 1 + X is the product of 1 + X_i, X_i >= E_Q[(P/Q - 1)^2], by
      Cauchy and Schwarz. With e^(s^2) for Gaussian noise and 2/3 e^s + 1/3 e^-2s for
      Laplace noise as E, X_i = q^2 (E - 1) in the direction of a removed record (t has
      no direction). A sample of fixed size: twice that, since E_Q[f(P/Q)] for convex f
      is an integral of f'' over delta at all epsilon, which for negative epsilon is at
      most its mirror image. Replaced under Poisson sampling, Gaussian: Q >= (1 - q)
      N(0), so that X_i <= q^2 / (1 - q) (2 e^(c^2) - 2 e^(-c^2)).
    """

    name = "total variation"

    def epsilon_above(self, steps: Steps, way: Direction, delta: float) -> float:
        return 0.0 if self.distance(steps) <= delta else math.inf

    def delta_above(self, steps: Steps, way: Direction, epsilon: float) -> float:
        return self.distance(steps)

    @staticmethod
    def distance(steps: Steps) -> float:
        """At least the total variation distance."""
        s, q, n = steps.shift, steps.rate, steps.count
        one = q * np.where(
            steps.gaussian, special.erf(s / math.sqrt(8)), -np.expm1(-s / 2)
        )
        more = [
            often * math.log1p(-min(loss.distance(), 1 - 1e-16))
            for loss, often in steps.others
        ]
        with np.errstate(divide="ignore"):
            coupled = -math.expm1(math.fsum((n * np.log1p(-one)).tolist() + more))
        if any(loss.distance() >= 1 - 1e-12 for loss, _ in steps.others):
            return 1.0
        total = TotalVariation.log_squares(steps) if not steps.others else math.inf
        schwarz = math.sqrt(math.expm1(total)) / 2 if total < 2 else 1.0
        return min(1.0, min(coupled, schwarz) * (1 + _SLACK) + _TINY)

    @staticmethod
    def log_squares(steps: Steps) -> float:
        """log(1 + X)."""
        s, q, n = steps.shift, steps.rate, steps.count
        with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
            laplace = 2 / 3 * np.expm1(s) + 1 / 3 * np.expm1(-2 * s)
            # The series is s^2 - s^3 / 3 + s^4 / 4 - ...; there the sum cancels.
            laplace = np.where(s < 1e-3, s * s, laplace)
            squares = q * q * np.where(steps.gaussian, np.expm1(s * s), laplace)
            squares *= np.where(steps.scheme == 1, 2.0, 1.0)
            replaced = np.where(
                steps.gaussian, q * q / (1 - q) * 4 * np.sinh(steps.norm**2), np.inf
            )
            squares = np.where(steps.scheme == 2, replaced, squares)
            squares = np.where(np.isnan(squares), np.inf, squares) + _TINY
            return math.fsum((n * np.log1p(squares)).tolist())


class Renyi(Prover):
    """Renyi divergences at the best order: see `privaudit.accounting.rdp`.

    Divergences add up over the steps (Mironov 2017, Proposition 1); an order's total
    gives epsilon and delta by Proposition 12 of Canonne, Kamath and Steinke. Each is
    rounded up where it is made, with its proof (`privaudit.accounting.renyi`). Both
    directions at once. Not for Laplace noise under Poisson sampling and replace-one.
    """

    name = "Renyi"

    def epsilon_above(self, steps: Steps, way: Direction, delta: float) -> float:
        if not delta or len(steps.entries) > _MOST_DIFFERENT:
            return math.inf
        try:
            return rdp.rdp_epsilon(steps.entries, delta, steps.relation)
        except ValueError:  # no bound is known for one of the releases
            return math.inf

    def delta_above(self, steps: Steps, way: Direction, epsilon: float) -> float:
        if len(steps.entries) > _MOST_DIFFERENT:
            return 1.0
        try:
            # What underflows is not nothing.
            found = rdp.rdp_delta(steps.entries, epsilon, steps.relation)
            return min(1.0, found + 5e-324)
        except ValueError:
            return 1.0


FOURIER = "privacy loss distributions"  # pld/, proved in pld.md
CLOSED: tuple[Prover, ...] = (Gaussian(), Pure(), TotalVariation())
RENYI = Renyi()


@dataclasses.dataclass(frozen=True, slots=True)
class Proof:
    """A bound and the prover that gave it."""

    value: float
    by: str

    def least(self, other: Proof) -> Proof:
        return other if other.value < self.value else self

    def greatest(self, other: Proof) -> Proof:
        return other if other.value > self.value else self


NOTHING = Proof(0.0, "none")


@dataclasses.dataclass(frozen=True, slots=True)
class Proved:
    """Both sides of one direction."""

    lower: Proof
    upper: Proof


@dataclasses.dataclass(frozen=True, slots=True)
class Question:
    """Epsilon at a delta in [0, 1], or delta at an epsilon in [0, infinity]."""

    quantity: Quantity
    at: float
    width: float
    tolerance: float = 0.0  # absolute, of epsilon
    refined: bool = True  # until the width or the tolerance is reached

    @property
    def trivial(self) -> Proof:
        """The upper bound that always holds."""
        if self.quantity == "delta":
            return Proof(1.0, "none")
        return Proof(0.0 if self.at >= 1 else math.inf, "none")

    @property
    def target(self) -> Target:
        """The question as privacy loss distributions ask it."""
        if self.quantity == "epsilon":
            return EpsilonAt(self.at, self.width, self.tolerance, self.refined)
        return DeltaAt(self.at, self.width)

    def above(self, prover: Prover, steps: Steps, way: Direction) -> Proof:
        ask = getattr(prover, f"{self.quantity}_above")
        return Proof(ask(steps, way, self.at), prover.name)

    def below(self, prover: Prover, steps: Steps, way: Direction) -> Proof:
        ask = getattr(prover, f"{self.quantity}_below")
        return Proof(ask(steps, way, self.at), prover.name)

    def reached(self, lower: float, upper: float) -> bool:
        if self.quantity == "epsilon" and upper - lower <= self.tolerance:
            return True
        return upper <= (1 + self.width) * lower or upper == 0


class _Sides:
    """Sides proved so far of each direction."""

    def __init__(self, question: Question, ways: tuple[Direction, ...]) -> None:
        self.question = question
        self.upper = dict.fromkeys(ways, question.trivial)
        self.lower = dict.fromkeys(ways, NOTHING)

    def above(self, way: Direction, proof: Proof) -> None:
        self.upper[way] = self.upper[way].least(proof)

    def below(self, way: Direction, proof: Proof) -> None:
        self.lower[way] = self.lower[way].greatest(proof)

    @property
    def most(self) -> float:
        return max(proof.value for proof in self.upper.values())

    @property
    def least(self) -> float:
        return max(proof.value for proof in self.lower.values())

    @property
    def reached(self) -> bool:
        return self.question.reached(self.least, self.most)

    def proved(self) -> dict[Direction, Proved]:
        for way, upper in self.upper.items():
            lower = self.lower[way]
            check_sides(lower.value, upper.value, lower.by, upper.by)
        return {way: Proved(self.lower[way], self.upper[way]) for way in self.upper}


def prove(
    steps: Steps,
    question: Question,
    sides: Side = "both",
    ways: tuple[Direction, ...] | None = None,
    # upper bounds that are known already
    above: Mapping[Direction, Proof] | None = None,
) -> dict[Direction, Proved]:
    """The best bounds of each direction, narrow for the worse one only.

    Closed forms first, privacy loss distributions if these leave a gap, Renyi if finer
    grids were too much work. The upper side is the same without a lower one.
    ``ValueError`` if no prover bounds releases; `CrossedSides` if two sides cross.
    """
    ways = ways or steps.directions
    known = _Sides(question, ways)
    nothing_to_tell = not steps.entries or question.trivial.value == 0
    if nothing_to_tell or question.at == math.inf:
        for way in ways:
            known.above(way, Proof(0.0, "closed form"))
        return known.proved()
    for way, proof in (above or {}).items():
        known.above(way, proof)
    for prover in CLOSED:
        for way in ways:
            known.above(way, question.above(prover, steps, way))
            if steps.attained:
                known.below(way, question.below(prover, steps, way))
    if known.reached or (question.quantity == "epsilon" and not question.at):
        return known.proved()
    if sides != "lower":
        _prove_above(steps, question, known)
    if sides != "upper" and not known.reached:
        with contextlib.suppress(ValueError):  # what has a bound from above only
            _by_fourier(steps, question, "lower", known)
    return known.proved()


def _prove_above(steps: Steps, question: Question, known: _Sides) -> None:
    refused: ValueError | None = None
    try:
        for quick in (steps.in_ones, steps.in_largest_losses):
            if quick is not None:
                _compose(quick, question, "upper", known)
        more_to_gain = _by_fourier(steps, question, "upper", known)
    except ValueError as error:
        refused, more_to_gain = error, True
    # Of a Renyi curve the conversion at one order is sometimes the better one.
    if more_to_gain or any(isinstance(one, Curve) for one, _ in steps.others):
        for way in known.upper:
            known.above(way, question.above(RENYI, steps, way))
    if refused is not None and known.most >= question.trivial.value:
        raise refused


def _by_fourier(steps: Steps, question: Question, side: Side, known: _Sides) -> bool:
    """Return whether from above there is still something to gain for others."""
    found = _compose(steps.composition, question, side, known)
    for way in known.lower:
        known.below(way, Proof(found.lower.get(way, 0.0), FOURIER))
    if side == "upper" and question.quantity == "epsilon" and not known.least:
        _look_at_zero(steps, question, known)
    return found.coarse or known.most == question.trivial.value


def _compose(
    composition: Composition, question: Question, side: Side, known: _Sides
) -> Found:
    """Ask for a side of each direction; the upper ones that are found are put in."""
    caps = {way: proof.value for way, proof in known.upper.items()}
    found = composition.each(
        question.target, question.width, tuple(caps), side=side, caps=caps
    )
    for way, value in found.upper.items():
        known.above(way, Proof(value, FOURIER))
    return found


def _look_at_zero(steps: Steps, question: Question, known: _Sides) -> None:
    """Look whether delta covers the total variation, on a grid made for that."""
    if not known.most or TotalVariation.distance(steps) > 4 * question.at:
        return
    ways = tuple(way for way, proof in known.upper.items() if proof.value > 0)
    found = steps.composition.each(DeltaAt(0.0, 0.01), 0.01, ways, side="upper")
    for way in ways:
        if found.upper[way] <= question.at:
            known.above(way, Proof(0.0, FOURIER))


def likely_epsilon(steps: Steps, delta: float, scouted: bool = False) -> float:
    """About epsilon at ``delta`` in (0, 1), no bound: by mu^2 = sum log(1 + X_i).

    X_i as in `TotalVariation`; or by the pure bound; or ``scouted`` before composing.
    """
    if not steps.entries:
        return 0.0
    squares = TotalVariation.log_squares(steps)
    squares += sum(n * min(one.divergence(2.0), 1e6) for one, n in steps.others)
    mu, target = math.sqrt(squares), math.log(delta)
    cap = max(Pure().epsilon_above(steps, way, delta) for way in steps.directions)
    if scouted:
        return min(steps.composition.scouted(EpsilonAt(delta, 0.01)), cap)

    def excess(epsilon: float) -> float:
        return float(gdp.log_delta(mu, epsilon)) - target

    high = mu * (mu / 2 + math.sqrt(-2 * target))
    if not 0 < high < math.inf:
        return min(high, cap)
    slope = math.sqrt(-2 * target) / mu
    return min(crossing(excess, high, slope, 1e-3)[1], cap)


def _sum(parts: list[float]) -> float:
    """Sum of numbers >= 0, of which `math.fsum` cannot add the largest doubles."""
    try:
        return math.fsum(parts)
    except OverflowError:
        return math.inf


@np.errstate(invalid="ignore", over="ignore")
def opposed_range(shift: Floats, rate: Floats, norm: Floats) -> Floats:
    """Largest loss of a record replaced in a Poisson sample, rounded up; see `Pure`."""
    near, far = sampled(norm, rate), sampled(norm - shift, rate)
    both = near - far + (1e-15 + 2e-16 * norm) * (np.abs(near) + np.abs(far))
    return np.where(np.isnan(both), np.inf, np.minimum(both, shift))


def largest_loss(release: Release) -> float:
    """`opposed_range` of one release by Laplace noise."""
    shift = release.sensitivity_under("replace-one") / release.noise
    norm, rate = release.opposed_norm() / release.noise, release.sampling.rate
    return float(opposed_range(*map(np.array, (shift, rate, norm))))


def sampled(loss: Floats, rate: Floats) -> Floats:
    """log(1 - q + q e^loss), to a few units in the last place."""
    loss, rate = np.broadcast_arrays(loss, rate)
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        small = np.minimum(loss, 700.0)
        near = np.log1p(rate * np.expm1(small))
        low = np.log((1 - rate) + rate * np.exp(small))
        far = np.logaddexp(0.0, loss + np.log(rate))
    near = np.where((rate > 0.5) & (loss < -1), low, near)
    return np.where(rate == 1, loss, np.where(loss > 700, far, near))
