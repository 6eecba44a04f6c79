"""Privacy filters and odometers: budgets for releases chosen adaptively.

Composing a ledger after the fact bounds nothing if its releases were chosen in view of
earlier ones. A filter does: it counts costs that depend on parameters alone, and
refuses before the budget would be exceeded. Which filters there are, and their proofs:
``filters.md``.

References
----------
Smith and Thakurta, arXiv:2210.17520. Feldman and Zrnic, arXiv:2008.11193. Lecuyer,
arXiv:2103.01379. Whitehouse, Ramdas, Rogers and Wu, arXiv:2203.05481.
"""

from __future__ import annotations

import abc
import fractions
import functools
import math
import numbers
import os
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NoReturn

from scipy import special

from privaudit.accounting import gdp, rdp
from privaudit.accounting.certificate import Certificate
from privaudit.accounting.pld.adaptive import Units
from privaudit.accounting.pld.composition import Composition
from privaudit.accounting.pld.menus import Menu
from privaudit.accounting.pld.steps import compose_entries
from privaudit.accounting.renyi import divergence
from privaudit.accounting.witness import of_budget
from privaudit.files import json as _json
from privaudit.files.arguments import public
from privaudit.ledger import Entry, Ledger
from privaudit.mechanisms import EpsilonDelta
from privaudit.release import NoSampling, RandomAllocation, Release
from privaudit.results import Relation, check_relation

_State = tuple[fractions.Fraction, ...]
_UNIT = 2.0**-53
_LEAST_DELTA = 1e-300
_FINE = 1 << 1100  # parts of 1, finer than doubles
_MOST_ALONE = 1 << 20  # releases that nothing but an account of them alone admits
_SPENDING = threading.Lock()  # one release is charged at a time, of whichever budget
# Of the odometer, fixed beforehand; each has an equal share of delta.
_ORDERS = (1.25, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 16.0, 24.0, 32.0, 64.0, 128.0)

_BY_FIRST = (
    " (the first release decided how this budget is counted, which can refuse others "
    "that would fit: give the one with the least noise as typical)"
)


class BudgetExceeded(ValueError):
    """Raised if a release would exceed a `Budget`; the release must not be made."""


class _Filter(abc.ABC):
    """A way of counting, fixed before releases; what is left is a state."""

    name: str
    start: _State

    @abc.abstractmethod
    def after(self, state: _State, release: Release, count: int) -> _State | None:
        """State after ``count`` more releases; None if they do not fit."""

    @abc.abstractmethod
    def room(self, state: _State, release: Release) -> int | float:
        """Number of such releases that still fit; infinity if they cost nothing."""

    @abc.abstractmethod
    def left(self, state: _State) -> float:
        """Share of the budget that is left."""

    @property
    def unit(self) -> tuple[Release | float | None, int]:
        """Unit that the budget is copies of (a float: a Gaussian's mu), or None."""
        return None, 1


class _Additive(_Filter):
    """Costs that add up to at most ``capacity``, rounded down: what is left of it."""

    def __init__(self, capacity: float, relation: Relation) -> None:
        self.capacity = capacity
        self.relation: Relation = relation
        self.start = (fractions.Fraction(capacity),)

    @abc.abstractmethod
    def cost(self, release: Release) -> float:
        """Cost of one release, rounded up; infinity if nothing is enough for it."""

    def after(self, state: _State, release: Release, count: int) -> _State | None:
        cost = self.cost(release)
        if cost == math.inf:
            return None
        left = state[0] - count * fractions.Fraction(cost)
        return None if left < 0 else (left,)

    def room(self, state: _State, release: Release) -> int | float:
        cost = self.cost(release)
        if not cost:
            return math.inf
        return 0 if cost == math.inf else int(state[0] / fractions.Fraction(cost))

    def left(self, state: _State) -> float:
        return float(state[0] / self.start[0]) if self.capacity else 0.0


class _Gaussian(_Additive):
    """Costs are mu^2."""

    name = "Gaussian filter"

    def __init__(self, epsilon: float, delta: float, relation: Relation) -> None:
        mu = float(gdp.mu(epsilon, delta))
        super().__init__(min(mu, 1e154) ** 2 * (1 - 4 * _UNIT), relation)

    @property
    def unit(self) -> tuple[Release | float | None, int]:
        return math.sqrt(self.capacity) * (1 + 8 * _UNIT), 1

    def cost(self, release: Release) -> float:
        if not _tells(release, self.relation):
            return 0.0
        if release.mechanism == "gaussian":
            ratio = release.noise_over_sensitivity(self.relation)
            mu = 1 / ratio if ratio > 1e-150 else math.inf
        else:
            mu = _gdp_of_pure(divergence(release, self.relation, math.inf))
        return mu * mu * (1 + 8 * _UNIT) + 5e-324


class _Renyi(_Additive):
    """Costs are Renyi divergences of one order; pure losses at order infinity."""

    def __init__(
        self, epsilon: float, delta: float, relation: Relation, order: float
    ) -> None:
        super().__init__(rdp.divergence_for(order, epsilon, delta), relation)
        self.order = order
        self.name = f"Renyi filter of order {order:.4g}"
        if order == math.inf:
            self.name = "pure composition"

    def cost(self, release: Release) -> float:
        return float(divergence(release, self.relation, self.order))


class _Counted(_Filter):
    """Units, each what one typical release costs, and parts of them: both counted."""

    name = "filter of certified units"

    def __init__(
        self, epsilon: float, delta: float, relation: Relation, typical: Release
    ) -> None:
        self.relation: Relation = relation
        family = _composed(typical, relation).families[0]
        step = family.step(float(family.shift[0]), float(family.rate[0]))
        self.units = Units(step, epsilon, delta)
        self.typical = typical
        self.start = fractions.Fraction(self.units.count), fractions.Fraction(0)
        self._price = functools.cache(self._priced)

    @property
    def unit(self) -> tuple[Release | float | None, int]:
        return self.typical, self.units.count

    def after(self, state: _State, release: Release, count: int) -> _State | None:
        if not _tells(release, self.relation):
            return state
        units, parts = state
        price, change = self._price(release), self.units.change
        if price is not None:
            some = min(count, self._room_by_parts(state, price))
            changed = max(0, math.ceil((some * price - parts) / max(change, 1)))
            units, parts = units - changed, parts + changed * change - some * price
            count -= some
        if count and not (self._is_covered(release) and units >= count):
            return None
        return units - count, parts

    def room(self, state: _State, release: Release) -> int | float:
        if not _tells(release, self.relation):
            return math.inf
        price, some = self._price(release), 0
        if price is not None:
            some = self._room_by_parts(state, price)
        if not self._is_covered(release):
            return some
        after = self.after(state, release, some) if some else state
        return some if after is None else some + int(after[0])

    def left(self, state: _State) -> float:
        units, parts = state
        return float((units + parts / max(self.units.change, 1)) / self.start[0])

    def _room_by_parts(self, state: _State, price: int) -> int:
        free = state[0] - self.units.reserve
        return int((state[1] + self.units.change * free) / price) if free >= 0 else 0

    def _is_covered(self, release: Release) -> bool:
        """Return whether the pair of a filter's unit dominates ``release``."""
        return _dominates(self.typical, release, self.relation)

    def _priced(self, release: Release) -> int | None:
        """Price in parts, if it is not more than a unit; None if it has none."""
        if not release.is_private:
            return None
        found = self.units.price(_composed(release, self.relation))
        if found and found >= self.units.change and self._is_covered(release):
            return None
        return found


class _Basic(_Filter):
    """Guarantees, whose epsilons and deltas add up to at most the budget's.

    A pure loss has delta 0; any other release is taken as its epsilon at a fixed share
    of the budget's delta.
    """

    name = "basic composition"

    def __init__(self, epsilon: float, delta: float, relation: Relation) -> None:
        self.relation: Relation = relation
        self.start = fractions.Fraction(epsilon), fractions.Fraction(delta)
        self._other = delta / 16  # of one that is neither: at most so many fit
        self._cost = functools.cache(self._worked_out)

    def after(self, state: _State, release: Release, count: int) -> _State | None:
        if count > self.room(state, release):
            return None
        epsilon, delta = map(fractions.Fraction, self._cost(release))
        rest = (state[1] - count * delta) / (1 - count * delta)  # rounded down
        return state[0] - count * epsilon, fractions.Fraction(int(rest * _FINE), _FINE)

    def room(self, state: _State, release: Release) -> int | float:
        costs = self._cost(release)
        if math.inf in costs:
            return 0
        return min(
            int(x / fractions.Fraction(c)) if c else math.inf
            for x, c in zip(state, costs, strict=True)
        )

    def left(self, state: _State) -> float:
        shares = zip(state, self.start, strict=True)
        return min(float(x / whole) if whole else 0.0 for x, whole in shares)

    def _worked_out(self, release: Release) -> tuple[float, float]:
        told = release.details
        if not _tells(release, self.relation):
            return 0.0, 0.0
        if not release.is_private:
            return math.inf, math.inf
        if isinstance(told, EpsilonDelta):  # sampled, it is no less private
            return told.epsilon, told.delta
        certificate = Certificate.of(Ledger.of(release, 1), self.relation)
        pure = certificate.epsilon(0.0).upper
        if pure < math.inf:
            return pure, 0.0
        return certificate.epsilon(self._other).upper, self._other


class _OfMenu(_Filter):
    """Numbers of each kind of a menu, which the exact game admits."""

    name = "filter of the menu"

    def __init__(
        self, kinds: tuple[Release, ...], menu: Menu, relation: Relation
    ) -> None:
        self.kinds, self.menu, self.relation = kinds, menu, relation
        self.start = (fractions.Fraction(0),) * len(kinds)
        self._as = functools.cache(self._columns)

    def after(self, state: _State, release: Release, count: int) -> _State | None:
        if not _tells(release, self.relation):
            return state
        for i in self._as(release):
            if self._most(state, i) >= count:
                return (*state[:i], state[i] + count, *state[i + 1 :])
        return None

    def room(self, state: _State, release: Release) -> int | float:
        if not _tells(release, self.relation):
            return math.inf
        return max((self._most(state, i) for i in self._as(release)), default=0)

    def left(self, state: _State) -> float:
        """Share of the kind of which most still fits."""
        return max(
            self._most(state, i) / max(self._most(self.start, i), 1)
            for i in range(len(self.kinds))
        )

    def _most(self, state: _State, i: int) -> int:
        return self.menu.room(tuple(map(int, state)), i)

    def _columns(self, release: Release) -> list[int]:
        """Kinds that are no more private than it."""
        return [
            i
            for i, kind in enumerate(self.kinds)
            if kind == release or _dominates(kind, release, self.relation)
        ]


class _Whole(_Filter):
    """Nothing is left but for what tells nothing."""

    name = "all of it for what fits by itself"
    start = (fractions.Fraction(1),)

    def __init__(self, relation: Relation) -> None:
        self.relation: Relation = relation

    def after(self, state: _State, release: Release, count: int) -> _State | None:
        return None if _tells(release, self.relation) else state

    def room(self, state: _State, release: Release) -> int | float:
        return 0 if _tells(release, self.relation) else math.inf

    def left(self, state: _State) -> float:
        return float(state[0])


def _tells(release: Release, relation: Relation) -> bool:
    """Return whether its outcome may depend on the record."""
    return bool(release.sensitivity_under(relation) and release.sampling.rate)


def _composed(release: Release, relation: Relation) -> Composition:
    return compose_entries([Entry(release, 1)], relation)


def _dominates(kind: Release, release: Release, relation: Relation) -> bool:
    """Return whether ``release`` has the noise of ``kind``, no less of it nor rarer."""
    if not release.is_private:
        return False
    steps = []
    for one in (kind, release):
        found = _composed(one, relation)
        if len(found.families) != 1 or found.others or not found.bounded:
            return False
        (family,) = found.families
        steps.append(family.step(float(family.shift[0]), float(family.rate[0])))
    large, small = steps
    alike = (large.noise, large.scheme) == (small.noise, small.scheme)
    return alike and small.shift <= large.shift and small.rate <= large.rate


def _most(fits: Callable[[int], bool]) -> int:
    """Largest number that fits, of a growing search; fewer fit as well."""
    most, step = 0, 1
    while most + step < _MOST_ALONE and fits(most + step):
        most, step = most + step, 2 * step
    while step := step // 2:
        most += step * fits(most + step)
    return most


class Budget:
    """A privacy budget for releases that are chosen adaptively: a privacy filter.

    Call `spend` before each release, and do not make one that it refuses. Then all
    releases together are (epsilon, delta)-differentially private under ``relation``,
    even if earlier results decide on the noise, the rate or the number of later ones.
    One Budget covers the releases that one record enters: nodes with disjoint records
    have one each. Threads may share it; it is neither copied nor pickled, and spent in
    the process that made it alone, since each copy would admit the whole again.

    Parameters
    ----------
    epsilon
        The budget's epsilon, >= 0 and finite.
    delta
        The budget's delta, in [0, 1). With 0, only Laplace noise fits.
    relation
        What neighbouring data sets differ in.
    typical
        A release like most that will be made; if they differ, the one with the least
        noise. The filter that admits most of these is chosen; of a sampled Gaussian
        release it admits as many as if their number were fixed beforehand. A wrong
        guess wastes budget or refuses what would fit, and never exceeds the budget; but
        what fits by itself is never refused as the first, and is all then. Guarantees
        with a delta fit beside other releases if ``typical`` is one of them; then a
        count that fits into what is left, by its certificate, is never refused either.
        A sequence is a menu: these kinds alone are admitted, each as often as an
        adversary who chooses among them by all outcomes may have it, which takes some
        seconds to work out; a kind that does not fit by itself is left out.
        Default: the first release that is spent.

    Raises
    ------
    ValueError
        If an argument is out of its range, or ``typical`` has no meaning under
        ``relation``.

    >>> from privaudit.release import NoSampling, Release
    >>> release = Release.of_sum(
    ...     norm_bound=1.0, noise_multiplier=10.0, sampling=NoSampling()
    ... )
    >>> budget = Budget(epsilon=1.0, delta=1e-5)
    >>> budget.spend(release, 4)
    >>> round(budget.spent, 4), budget.room(release)
    (0.5567, 3)
    >>> budget.spend(release, 4)
    Traceback (most recent call last):
    ...
    privaudit.accounting.filters.BudgetExceeded: 4 of these releases would exceed the \
budget of epsilon 1 at delta 1e-05 under add-or-remove-one; 3 still fit
    """

    @public
    def __init__(
        self,
        *,
        epsilon: float,
        delta: float,
        relation: Relation = "add-or-remove-one",
        typical: Release | Sequence[Release] | None = None,
    ) -> None:
        if not 0 <= epsilon < math.inf:
            raise ValueError(
                f"the epsilon of a budget must be >= 0 and finite, got {epsilon}"
            )
        if not 0 <= delta < 1:
            raise ValueError(f"the delta of a budget must be in [0, 1), got {delta}")
        self._epsilon, self._delta = float(epsilon), float(delta)
        self._relation: Relation = check_relation(relation)
        self._process = os.getpid()
        self._filter: _Filter | None = None
        self._state: _State = ()
        self._first: tuple[Release, _Filter] | None = None  # asked about, not spent
        self._typical = typical
        self._releases: dict[Release, int] = {}
        if typical is not None:
            several = isinstance(typical, Sequence)
            self._filter = self._of_menu(tuple(typical) if several else (typical,))
            self._state = self._filter.start

    @property
    def epsilon(self) -> float:
        """The epsilon that all releases together keep to."""
        return self._epsilon

    @property
    def delta(self) -> float:
        """The delta that all releases together keep to."""
        return self._delta

    @property
    def relation(self) -> Relation:
        """Neighbouring relation of the budget."""
        return self._relation

    def spend(self, release: Release, count: int = 1) -> None:
        """Charge ``count`` equal releases; call it before you make them.

        Raises
        ------
        BudgetExceeded
            If they do not all fit. Nothing is charged, and none of them may be made.
        ValueError
            If the release has no meaning under the relation, no bound is known, or
            another process made the budget.
        """
        if os.getpid() != self._process:
            raise ValueError(
                "this budget was made in another process, which would not know what is "
                "spent here: spend it there, or make each process one of its own part"
            )
        real = isinstance(count, numbers.Real)
        if not real or not 1 <= count < math.inf or count % 1:
            raise ValueError(f"count must be a whole number >= 1, got {count!r}")
        count, release = int(count), _checked(release)
        with _SPENDING:
            chosen, state = self._now(release)
            after = chosen.after(state, release, count)
            few = isinstance(chosen, _Basic) or not chosen.room(state, release)
            if after is None and few and self._last(chosen, state, release, count):
                chosen, after = _Whole(self._relation), (fractions.Fraction(0),)
            if after is None:
                some = self._room(chosen, state, release) or "none"
                by_first = not self._typical and release != next(
                    iter(self._releases), release
                )
                raise BudgetExceeded(
                    f"{count} of these releases would exceed the budget of epsilon "
                    f"{self._epsilon:.15g} at delta {self._delta:.15g} under "
                    f"{self._relation}; {some} still fit" + _BY_FIRST * by_first
                )
            self._filter, self._state = chosen, after
            self._releases[release] = self._releases.get(release, 0) + count

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        raise TypeError(
            "a budget is neither pickled nor copied: each copy would admit the whole "
            "again; pass the one object on"
        )

    def room(self, release: Release) -> int | float:
        """Number of such releases that still fit; infinity if they cost nothing."""
        release = _checked(release)
        with _SPENDING:
            return self._room(*self._now(release), release)

    @property
    def spent(self) -> float:
        """Share of the budget that is used, in [0, 1].

        It is not an epsilon: the guarantee is (epsilon, delta), however little is used.
        `odometer` bounds the privacy loss so far.
        """
        if self._filter is None or self._state == self._filter.start:
            return 0.0
        return min(1.0, max(0.0, 1.0 - self._filter.left(self._state)))

    @property
    def left(self) -> float:
        """Share of the budget that is left: 1 - `spent`."""
        return 1.0 - self.spent

    @property
    def odometer(self) -> float:
        """Upper bound on the privacy loss of what was released so far, rounded up.

        With probability 1 - delta it holds at all times at once: it may be read at any
        time, and may decide when training stops. In exchange it is larger than a budget
        that admits the same releases. Infinity if no Renyi order has a finite bound.
        """
        found = [self._divergence(math.inf)]
        if self._delta >= _LEAST_DELTA:
            each = -math.log(self._delta / len(_ORDERS)) * (1 + 4 * _UNIT)
            for order in _ORDERS:
                bound = self._divergence(order) + each / (order - 1)
                found.append(bound * (1 + 4 * _UNIT))
        return min(found) if self._releases else 0.0

    def write(self, path: str | Path) -> Path:
        """Write a certificate of what was spent; ``python kernel.py FILE`` checks it.

        The kernel proves filters of units whose releases are each below a unit, and of
        unsampled Gaussian noise; of others it says that they are not covered.
        """
        if self._filter is None:
            raise ValueError("nothing was spent: there is nothing to certify")
        unit, count = self._filter.unit
        document = of_budget(
            self._releases, unit, count, self._relation, self._delta, self._epsilon
        )
        target = Path(path)
        target.write_bytes(_json.encode(document) + b"\n")
        return target

    def _room(self, chosen: _Filter, state: _State, release: Release) -> int | float:
        some = chosen.room(state, release)
        few = isinstance(chosen, _Basic) and some < _MOST_ALONE
        if some and not few:
            return some
        some = int(some)
        return some + _most(lambda n: self._last(chosen, state, release, some + n))

    def _last(
        self, chosen: _Filter, state: _State, release: Release, count: int
    ) -> bool:
        """Return whether they keep to what is left, after which nothing is.

        That is known of basic composition, and of all of the budget.
        """
        told = any(_tells(one, self._relation) for one in self._releases)
        basic = isinstance(chosen, _Basic)
        if not release.is_private or (told and not basic):
            return False
        budget = map(fractions.Fraction, (self._epsilon, self._delta))
        epsilon, delta = state if basic else budget
        given = release.details
        if isinstance(given, EpsilonDelta):  # guarantees add up, without rounding
            more = count * fractions.Fraction(given.epsilon) - epsilon
            fits = max(more, 0) + count * fractions.Fraction(given.delta) <= delta
            if fits or (told and count == 1):
                return fits
        least = float(epsilon)
        least = math.nextafter(least, 0) if least > epsilon else least
        certificate = Certificate.of(Ledger.of(release, count), self._relation)
        return certificate.delta(least).upper <= delta

    def _divergence(self, order: float) -> float:
        each = (
            count * divergence(release, self._relation, order)
            for release, count in self._releases.items()
        )
        return math.fsum(each) * (1 + 4 * _UNIT)

    def _now(self, release: Release) -> tuple[_Filter, _State]:
        """The filter and what is left of it, as ``release`` comes."""
        if self._filter is not None:
            return self._filter, self._state
        if self._first is None or self._first[0] != release:
            self._first = release, self._chosen(release)
        return self._first[1], self._first[1].start

    def _of_menu(self, kinds: tuple[Release, ...]) -> _Filter:
        """By the exact game, if there are several that it holds; else by the first."""
        if not kinds:
            raise ValueError("typical is a release, or several: got an empty list")
        kinds = tuple(map(_checked, kinds))
        for one in kinds:
            one.sensitivity_under(self._relation)
        telling = tuple(dict.fromkeys(o for o in kinds if _tells(o, self._relation)))
        alone = {}
        if len(telling) > 1 and self._delta >= 1e-12 and 1e-3 <= self._epsilon <= 50:
            for one in telling:
                fits = functools.partial(self._last, _Whole(self._relation), (), one)
                if some := _most(fits):
                    alone[one] = some
        least = next(iter(alone), kinds[0])
        if len(alone) > 1 or (alone and least.mechanism != "gaussian"):
            found = [_composed(one, self._relation) for one in alone]
            counts = tuple(alone.values())
            if menu := Menu.of(found, counts, self._epsilon, self._delta):
                return _OfMenu(tuple(alone), menu, self._relation)
        return self._chosen(least)

    def _chosen(self, typical: Release) -> _Filter:
        """The filter that admits the most of ``typical``."""
        epsilon, delta, relation = self._epsilon, self._delta, self._relation
        typical.sensitivity_under(relation)  # refuses what has no meaning
        pure = _Renyi(epsilon, delta, relation, math.inf)
        if delta < _LEAST_DELTA:  # as 0, which is less
            return pure
        if isinstance(typical.details, EpsilonDelta) and typical.details.delta:
            return _Basic(epsilon, delta, relation)
        unsampled = isinstance(typical.sampling, NoSampling)
        if unsampled and typical.mechanism == "gaussian":
            return _Gaussian(epsilon, delta, relation)

        counted = None
        if typical.mechanism == "gaussian" and 0 < typical.sampling.rate < 1:
            counted = self._counted(typical)
            if counted is not None and counted.units.change:
                return counted

        def share(order: float) -> float:
            filter_ = _Renyi(epsilon, delta, relation, order)
            return filter_.cost(typical) / max(filter_.capacity, 1e-300)

        least, order = rdp.best_order(share, most=rdp.MOST_SAMPLED_ORDER)
        if pure.cost(typical) / max(epsilon, 1e-300) <= least:
            return pure
        renyi = _Renyi(epsilon, delta, relation, order)
        # Units alone, of which nothing else can be paid, must be worth it.
        if counted and counted.units.count > 2 * renyi.room(renyi.start, typical):
            return counted
        return renyi

    def _counted(self, typical: Release) -> _Counted | None:
        """None where units are not worked out, or none fits."""
        relation = self._relation
        if not (typical.is_private and typical.sensitivity_under(relation)):
            return None
        if not (1e-4 <= self._epsilon <= 100 and self._delta >= 1e-30):
            return None
        noise = typical.noise_over_sensitivity(relation)
        if not (0.1 <= noise <= 1e3 and typical.sampling.rate >= 1e-7):
            return None
        found = _Counted(self._epsilon, self._delta, relation, typical)
        return found if found.units.count else None

    def __repr__(self) -> str:
        chosen = f"the {'typical' if self._typical else 'first'} release"
        by = f"{chosen} decides how it is counted"
        if self._filter is not None:
            by = f"{self._filter.name}, chosen for {chosen}"
        return (
            f"<Budget of epsilon {self._epsilon:.15g} at delta {self._delta:.15g} "
            f"under {self._relation}: {100 * self.spent:.3g} % spent; {by}>"
        )


def _gdp_of_pure(epsilon: float) -> float:
    """mu such that epsilon-DP implies mu-GDP, rounded up."""
    if epsilon == math.inf:
        return math.inf
    if epsilon < 1:  # 2 Phi(mu / 2) - 1 = tanh(epsilon / 2)
        half = float(special.erfinv(math.tanh(epsilon / 2))) * math.sqrt(2)
    else:
        half = -float(special.ndtri_exp(-epsilon - math.log1p(math.exp(-epsilon))))
    return 2 * half * (1 + 1e-9)


def _checked(release: Release) -> Release:
    if not isinstance(release, Release):
        raise ValueError(f"a budget is spent on a privaudit.Release, got {release!r}")
    if isinstance(release.sampling, RandomAllocation):
        raise ValueError(
            "one release of a random allocation has no cost of its own; spend a "
            "release without sampling once an epoch"
        )
    return release.of_known_part()
