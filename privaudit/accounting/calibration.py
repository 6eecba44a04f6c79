"""Calibration: the least noise, most steps or largest rate that meets a budget.

Every search returns a point at which the account was seen to meet the budget: that is
its invariant, not a correction at the end.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable

from privaudit.accounting.account import account, check_delta_of, method_named
from privaudit.accounting.certificate import Certificate
from privaudit.accounting.closed_forms import OutsideTheorem
from privaudit.ledger import Ledger
from privaudit.results import Relation, UpperBound, check_epsilon

# Noise multipliers tried; an answer at the least meets the budget, but less might do.
# Below the first, dp-accounting's PLD takes minutes and GBs.
_LEAST, _MOST = 0.1, 1e9
_LEAST_CERTIFIED = 1e-3
_APART = 0.005  # logs of two points that tell a slope
_FAR = 0.3  # from the budget, in logs of epsilon, for a slope there to tell of it
# Of many kinds, that take longer: the tolerance over that of few, and the one with
# which the least noise by first grids is found.
_MANY, _ROUGH = 5, 2e-3


def least_meeting(
    meets: Callable[[float], bool],
    *,
    guess: float = 1.0,
    least: float = _LEAST,
    most: float = _MOST,
    tolerance: float = 1e-4,
    aim: Callable[[float | None, float | None], float] | None = None,
) -> float:
    """The least x in [least, most] with ``meets(x)``, to a relative ``tolerance``.

    ``meets`` must go from False to True. The answer is always a point that was seen to
    meet: the search's invariant. ``aim`` may say where to look next, given the largest
    x that did not meet and the least that did, or that the latter is near enough, by
    saying it again; without it, and every sixth time, the middle.
    """
    bad, good = None, None
    x = min(max(guess, least), most)
    for turn in itertools.count(1):  # invariant: meets(good), not meets(bad)
        if meets(x):
            good = x
        else:
            bad = x
        low, high = least if bad is None else bad, most if good is None else good
        known = bad is not None and good is not None
        if good == least or (known and not high - low > tolerance * high):
            return high
        if bad == most:
            raise ValueError(f"nothing up to {most:g} meets the budget")
        if good is None:
            x = min(low * 4, most)
        elif bad is None:
            x = max(high / 4, least)
        else:
            x = (high * low) ** 0.5 if high > 2 * low else (high + low) / 2
        if aim is not None and turn % 6:
            aimed = aim(bad, good)
            x = aimed if low < aimed <= high else x
        if x in (bad, good):  # near enough, or below the spacing of doubles
            assert good is not None
            return good
    raise AssertionError("unreachable")


def noise_multiplier(
    make_ledger: Callable[[float], Ledger],
    epsilon: float,
    delta: float,
    relation: Relation = "add-or-remove-one",
    method: str = "certified",
    *,
    tolerance: float = 1e-4,
) -> tuple[float, UpperBound]:
    """The least noise multiplier that meets (epsilon, delta), and the account of it.

    Its epsilon is never above the budget. ``make_ledger``: from a noise multiplier
    (noise over a record's norm bound) to what would be released; more noise must not
    cost more epsilon. ``epsilon``, ``delta``: the budget, epsilon > 0 and delta in
    [0, 1); at 0 noise is Laplace's, and the account certified. ``relation``,
    ``method``: as in `privaudit.accounting.account`. ``tolerance``: relative width to
    which the least noise is found; five times as much where more than 64 kinds of
    releases differ. Raises ``ValueError`` if an argument is out of range, or no noise
    multiplier up to 1e9 meets the budget.
    """
    budget = _Budget(epsilon, delta, relation, method)
    least = _LEAST_CERTIFIED if method == "certified" else _LEAST
    return budget.least(make_ledger, "noise multiplier", least, _MOST, tolerance)


def noise_scale(
    make_ledger: Callable[[float], Ledger],
    epsilon: float,
    delta: float,
    relation: Relation = "add-or-remove-one",
    method: str = "certified",
) -> tuple[float, UpperBound]:
    """The least factor on a schedule of noise that meets (epsilon, delta).

    ``make_ledger`` takes it, from 1e-6 on. All else as `noise_multiplier`.
    """
    budget = _Budget(epsilon, delta, relation, method)
    return budget.least(make_ledger, "scale of the noise", 1e-6, _MOST)


def initial_budget(
    make_ledger: Callable[[float], Ledger],
    epsilon: float,
    delta: float,
    relation: Relation = "add-or-remove-one",
    method: str = "certified",
) -> tuple[float, UpperBound]:
    """The largest mu0 of a schedule mu_k = mu0 growth_k that meets (epsilon, delta).

    As `privaudit.accounting.clt.initial_budget`, under an account that may be a bound.
    ``make_ledger`` takes mu0, up to 1000. All else as `noise_multiplier`.
    """
    budget = _Budget(epsilon, delta, relation, method)
    inverse, bound = budget.least(
        lambda x: make_ledger(1 / x), "inverse of mu0", 1e-3, _MOST
    )
    return 1 / inverse, bound


def sampling_rate(
    make_ledger: Callable[[float], Ledger],
    epsilon: float,
    delta: float,
    relation: Relation = "add-or-remove-one",
    method: str = "certified",
) -> tuple[float, UpperBound]:
    """The largest sampling rate in (0, 1] that meets (epsilon, delta).

    ``make_ledger`` takes it; a larger one must not cost less. All else as
    `noise_multiplier`.
    """
    budget = _Budget(epsilon, delta, relation, method)
    inverse, bound = budget.least(
        lambda x: make_ledger(1 / x), "inverse of the rate", 1.0, 1e12
    )
    return 1 / inverse, bound


def most_steps(
    make_ledger: Callable[[int], Ledger],
    epsilon: float,
    delta: float,
    relation: Relation = "add-or-remove-one",
    method: str = "certified",
    *,
    most: int = 10**9,
) -> tuple[int, UpperBound]:
    """The largest number of steps that meets (epsilon, delta), and the account of it.

    ``make_ledger`` takes it, from 0 to ``most``. All else as `noise_multiplier`.
    """
    budget = _Budget(epsilon, delta, relation, method)

    def meets(steps: int) -> bool:
        return budget.meets(float(steps), lambda x: make_ledger(round(x)))

    if not meets(0):
        raise ValueError("no steps at all exceed the budget: what else is released?")
    good, bad = 0, min(1, most)
    while bad > good and meets(bad):  # invariant: meets(good)
        good, bad = bad, min(2 * bad, most)
    while bad - good > 1:  # invariant: meets(good), not meets(bad)
        middle = (good + bad) // 2
        good, bad = (middle, bad) if meets(middle) else (good, middle)
    return good, budget.checked(float(good))


class _Budget:
    """One search: what was seen at each point, against one budget."""

    def __init__(
        self, epsilon: float, delta: float, relation: Relation, method: str
    ) -> None:
        self.epsilon = check_epsilon(epsilon)
        self.relation: Relation = relation
        self.method = method_named(method)
        self.delta = check_delta_of(self.method, delta)
        self.seen: dict[float, UpperBound | None] = {}
        if epsilon >= self.method.epsilon_below:
            raise ValueError(
                f"the {method} account is valid for epsilon < "
                f"{self.method.epsilon_below:g} only, got {epsilon:g}; "
                "use another account"
            )

    def meets(self, x: float, make_ledger: Callable[[float], Ledger]) -> bool:
        """Return whether the account at ``x`` is within the budget."""
        try:
            found = account(make_ledger(x), self.delta, self.relation, self.method.name)
        except OutsideTheorem:  # too little noise: more than any budget it is valid for
            found = None
        self.seen[x] = found
        return found is not None and found.epsilon <= self.epsilon

    def checked(self, x: float) -> UpperBound:
        """The account at the answer, seen to be within the budget."""
        bound = self.seen[x]
        if bound is None or not bound.epsilon <= self.epsilon:
            raise AssertionError(f"the search returned {x}, which exceeds the budget")
        return bound

    def least(
        self,
        make_ledger: Callable[[float], Ledger],
        name: str,
        least: float,
        most: float,
        tolerance: float = 1e-4,
    ) -> tuple[float, UpperBound]:
        """The least x that meets the budget, and its account."""
        if not 0 < tolerance < math.inf:
            raise ValueError(f"a tolerance must be > 0, got {tolerance}")

        def certificate(x: float) -> Certificate:
            return Certificate.of(make_ledger(x), self.relation)

        def unrefined(x: float) -> float:
            found = certificate(x).epsilon(self.delta, sides="upper", refined=False)
            return found.upper

        def whole(x: float) -> float:
            self.meets(x, make_ledger)
            found = self.seen[x]
            return math.inf if found is None else found.epsilon

        line, guess = _Line(self.epsilon, least, most), min(max(1.0, least), most)
        dear = False
        if self.method.name == "certified":
            guess = self._guess(line, certificate, guess)
            dear = certificate(guess).has_many_kinds
        try:
            if dear:  # where finer grids show less, less noise does
                guess = line.search(unrefined, guess, _ROUGH, by_line=True)
                tolerance *= _MANY
            best = line.search(whole, guess, tolerance, by_line=dear)
        except ValueError as error:
            if most not in line.values:
                raise  # the account itself refused
            more = (
                "more of either" if self.delta else "a delta above 0, or Laplace noise"
            )
            raise ValueError(
                f"no {name} up to {most:g} gives epsilon <= {self.epsilon:g} at delta "
                f"{self.delta:g} by the {self.method.name} account; ask for {more}"
            ) from error
        return best, self.checked(best)

    def _guess(
        self, line: _Line, certificate: Callable[[float], Certificate], start: float
    ) -> float:
        """About the answer: by a closed form, then by what the account scouts first."""
        guess = start
        for scouted, near in ((False, 0.2), (True, 0.02)):

            def worth(x: float, scouted: bool = scouted) -> float:
                return certificate(x).guess(self.delta, scouted=scouted)

            try:
                guess = line.search(worth, guess, near, by_line=True)
            except ValueError:  # what no account takes
                return start
        return guess


class _Line:
    """Points of a search for where epsilon, about a power of 1/x, meets a budget."""

    def __init__(self, epsilon: float, least: float, most: float) -> None:
        self.epsilon, self.least, self.most = epsilon, least, most
        self.power = 1.0
        self.values: dict[float, float] = {}

    def search(
        self,
        worth: Callable[[float], float],
        guess: float,
        tolerance: float,
        *,
        by_line: bool = False,
    ) -> float:
        """As `least_meeting`; ``by_line``: no point that does not meet is waited for.

        Where the line tells that one is next to the point that meets.
        """
        self.power = self.slope()  # as of a search before it
        self.values.clear()

        def meets(x: float) -> bool:
            self.values[x] = worth(x)
            return self.values[x] <= self.epsilon

        def aim(bad: float | None, good: float | None) -> float:
            if by_line and good is not None:
                unspent = 1 - self.values[good] / self.epsilon
                if unspent <= tolerance * self.slope():
                    return good
            return self._aim(bad, good, tolerance, by_line)

        return least_meeting(
            meets,
            guess=guess,
            least=self.least,
            most=self.most,
            tolerance=tolerance,
            aim=aim,
        )

    def _aim(
        self, bad: float | None, good: float | None, tolerance: float, to_good: bool
    ) -> float:
        """Just beyond where the budget is met, on the side that is known less of."""
        if not self._known:
            return 0.0
        x = self._known[0]
        off = math.log(self.values[x] / self.epsilon)
        at = x * math.exp(min(max(off / self.slope(), -5.0), 5.0))
        if good is None:
            at, to_good = max(at, bad or 0.0), True
        elif bad is None:
            at = min(at, good)
        else:
            known = 0 < self.values[good] < self.values[bad] < math.inf
            if known and (good < bad * (1 + 4 * _APART) or abs(off) > _FAR):
                off = math.log(self.values[bad] / self.epsilon)
                fall = math.log(self.values[bad] / self.values[good])
                at = bad * (good / bad) ** (off / fall)
            to_good |= good - at > at - bad
        beyond = 0.4 * tolerance + 0.01 * abs(off)  # the line is not quite one
        return at * (1 + beyond if to_good else 1 - beyond)

    @property
    def _known(self) -> list[float]:
        """The points with a logarithm, those nearest to the budget first."""
        return sorted(
            (x for x, value in self.values.items() if 0 < value < math.inf),
            key=lambda x: abs(math.log(self.values[x] / self.epsilon)),
        )

    def slope(self) -> float:
        """The power, from the two best points that are not too close to tell."""
        for x in self._known[1:]:
            first = self._known[0]
            apart = math.log(x / first)
            if abs(apart) > _APART:
                rise = math.log(self.values[first] / self.values[x])
                return min(max(rise / apart, 0.2), 20.0)
        return self.power
