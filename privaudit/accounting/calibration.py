"""The least noise that meets a budget, under any account."""

from __future__ import annotations

from collections.abc import Callable

from privaudit.accounting.account import account, check_delta, check_epsilon
from privaudit.ledger import Ledger
from privaudit.results import Relation, UpperBound

# Noise multipliers tried. Below the least, dp-accounting's PLD takes minutes and GBs;
# an answer at the least meets the budget, but less might do.
_LEAST, _MOST = 0.1, 1e9


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
            bad = max(good / 4, least)
            if not meets(bad):
                break
            good = bad
            if good == least:
                return good
    else:
        while True:  # invariant: not meets(bad)
            good = min(bad * 4, most)
            if meets(good):
                break
            bad = good
            if bad == most:
                raise ValueError(f"nothing up to {most:g} meets the budget")
    while good - bad > tolerance * good:  # invariant: meets(good), not meets(bad)
        middle = (good * bad) ** 0.5 if good > 2 * bad else (good + bad) / 2
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
    method: str = "pld",
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
    check_epsilon(epsilon)
    check_delta(delta)
    seen: dict[float, UpperBound] = {}

    def meets(multiplier: float) -> bool:
        seen[multiplier] = account(make_ledger(multiplier), delta, relation, method)
        return seen[multiplier].epsilon <= epsilon

    try:
        best = least_meeting(meets, tolerance=tolerance)
    except ValueError as error:
        if seen.get(_MOST) is None:
            raise  # the account itself refused
        raise ValueError(
            f"no noise multiplier up to {_MOST:g} gives epsilon <= {epsilon:g} at "
            f"delta {delta:g} by the {method} account; ask for more of either"
        ) from error
    return best, seen[best]
