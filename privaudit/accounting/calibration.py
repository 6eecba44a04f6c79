"""What meets a budget: the least noise, the most steps and the like, by any account.

Every search returns a point at which the account was seen to meet the budget: that is
its invariant, not a correction at the end.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import msgspec

from privaudit.accounting.account import (
    account,
    check_delta,
    check_epsilon,
    is_met,
    method_named,
)
from privaudit.accounting.gaussian import OutsideTheorem
from privaudit.ledger import Ledger
from privaudit.results import Relation, UpperBound

# Noise multipliers tried; an answer at the least meets the budget, but less might do.
# Below the first, dp-accounting's PLD takes minutes and GBs.
_LEAST, _MOST = 0.1, 1e9
_LEAST_CERTIFIED = 1e-3


def least_meeting(
    meets: Callable[[float], bool],
    *,
    guess: float = 1.0,
    least: float = _LEAST,
    most: float = _MOST,
    tolerance: float = 1e-4,
) -> float:
    """The least x in [least, most] with ``meets(x)``, to a relative ``tolerance``.

    ``meets`` must go from False to True as x grows. The answer is always a point at
    which ``meets`` was seen to be True: that is the invariant of the search.

    Raises
    ------
    ValueError
        If it does not hold at ``most``.
    """
    good = bad = min(max(guess, least), most)
    if meets(good):
        while True:  # invariant: meets(good)
            if good == least:
                return good
            bad = max(good / 4, least)
            if not meets(bad):
                break
            good = bad
    else:
        while True:  # invariant: not meets(bad)
            if bad == most:
                raise ValueError(f"nothing up to {most:g} meets the budget")
            good = min(bad * 4, most)
            if meets(good):
                break
            bad = good
    while good - bad > tolerance * good:  # invariant: meets(good), not meets(bad)
        middle = (good * bad) ** 0.5 if good > 2 * bad else (good + bad) / 2
        if not bad < middle < good:
            break  # a tolerance below the spacing of doubles
        if meets(middle):
            good = middle
        else:
            bad = middle
    return good


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

    Parameters
    ----------
    make_ledger
        From a noise multiplier (noise over a record's norm bound) to what would be
        released; more noise must not cost more epsilon.
    epsilon, delta
        The budget: epsilon > 0, delta in (0, 1).
    relation, method
        As in `privaudit.accounting.account`.
    tolerance
        Relative width to which the least noise is found.

    Returns
    -------
    The multiplier and its upper bound, whose epsilon is never above the budget.

    Raises
    ------
    ValueError
        If an argument is out of range, or no noise multiplier up to 1e9 meets the
        budget.
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
    *,
    least: float = 1e-6,
    tolerance: float = 1e-4,
) -> tuple[float, UpperBound]:
    """The least factor on a given schedule of noise that meets (epsilon, delta).

    ``make_ledger`` takes the factor; ``least`` is the smallest one tried. All else as
    `noise_multiplier`.
    """
    budget = _Budget(epsilon, delta, relation, method)
    return budget.least(make_ledger, "scale of the noise", least, _MOST, tolerance)


def initial_budget(
    make_ledger: Callable[[float], Ledger],
    epsilon: float,
    delta: float,
    relation: Relation = "add-or-remove-one",
    method: str = "certified",
    *,
    most: float = 1e3,
    tolerance: float = 1e-4,
) -> tuple[float, UpperBound]:
    """The largest mu0 of a schedule mu_k = mu0 growth_k that meets (epsilon, delta).

    What `privaudit.accounting.clt.initial_budget` is in the limit, here under an
    account that may be a bound.

    ``make_ledger`` takes mu0; a larger one must not cost less epsilon. ``most`` is the
    largest one tried. All else as `noise_multiplier`.
    """
    budget = _Budget(epsilon, delta, relation, method)
    inverse, bound = budget.least(
        lambda x: make_ledger(1 / x), "inverse of mu0", 1 / most, _MOST, tolerance
    )
    return 1 / inverse, bound


def sampling_rate(
    make_ledger: Callable[[float], Ledger],
    epsilon: float,
    delta: float,
    relation: Relation = "add-or-remove-one",
    method: str = "certified",
    *,
    tolerance: float = 1e-4,
) -> tuple[float, UpperBound]:
    """The largest sampling rate in (0, 1] that meets (epsilon, delta).

    ``make_ledger`` takes the rate; a larger one must not cost less epsilon. All else as
    `noise_multiplier`.
    """
    budget = _Budget(epsilon, delta, relation, method)
    inverse, bound = budget.least(
        lambda x: make_ledger(1 / x), "inverse of the rate", 1.0, 1e12, tolerance
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

    ``make_ledger`` takes the number of steps, from 0 on; ``most`` is the largest one
    tried, and the answer if the budget allows it. All else as `noise_multiplier`.
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
        self.epsilon, self.delta = check_epsilon(epsilon), check_delta(delta)
        self.relation: Relation = relation
        self.method = method_named(method)
        self.seen: dict[float, UpperBound | None] = {}
        self.proved: dict[float, Callable[[float], Ledger]] = {}
        if epsilon >= self.method.epsilon_below:
            raise ValueError(
                f"the {method} account is valid for epsilon < "
                f"{self.method.epsilon_below:g} only, got {epsilon:g}; "
                "use another account"
            )

    def meets(self, x: float, make_ledger: Callable[[float], Ledger]) -> bool:
        """Whether the account at ``x`` is within the budget."""
        told = is_met(
            make_ledger(x), self.epsilon, self.delta, self.relation, self.method.name
        )
        if told is not None:
            self.seen[x] = None
            if told:
                self.proved[x] = make_ledger
            return told
        try:
            found = account(make_ledger(x), self.delta, self.relation, self.method.name)
        except OutsideTheorem:  # too little noise: more than any budget it is valid for
            found = None
        self.seen[x] = found
        return found is not None and found.epsilon <= self.epsilon

    def checked(self, x: float) -> UpperBound:
        """The account at the answer, seen to be within the budget."""
        bound = self.seen[x]
        if x in self.proved:
            ledger = self.proved[x](x)
            bound = account(ledger, self.delta, self.relation, self.method.name)
            # Proved to be no more than the budget, if by a wider bracket.
            bound = msgspec.structs.replace(
                bound, epsilon=min(bound.epsilon, self.epsilon)
            )
        if bound is None or not bound.epsilon <= self.epsilon:
            raise AssertionError(f"the search returned {x}, which exceeds the budget")
        return bound

    def least(
        self,
        make_ledger: Callable[[float], Ledger],
        name: str,
        least: float,
        most: float,
        tolerance: float,
    ) -> tuple[float, UpperBound]:
        """The least x that meets the budget, and its account."""
        if not 0 < tolerance < math.inf:
            raise ValueError(f"a tolerance must be > 0, got {tolerance}")
        try:
            best = least_meeting(
                lambda x: self.meets(x, make_ledger),
                least=least,
                most=most,
                tolerance=tolerance,
            )
        except ValueError as error:
            if most not in self.seen:
                raise  # the account itself refused
            raise ValueError(
                f"no {name} up to {most:g} gives epsilon <= {self.epsilon:g} at delta "
                f"{self.delta:g} by the {self.method.name} account; "
                "ask for more of either"
            ) from error
        return best, self.checked(best)
