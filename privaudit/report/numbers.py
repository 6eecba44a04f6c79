"""Numbers as the page prints them: bounds never to their unsafe side."""

from __future__ import annotations

import math
from collections.abc import Callable

from privaudit.results import Claim, UpperBound, round_down, round_up, seen_by, stated


def exact(value: float, rounded: Callable[[float, int], str]) -> str:
    """``value`` as it is if that is short; else rounded to its safe side."""
    text = f"{value:.15g}"
    if not math.isfinite(value):
        return "∞"
    return text if len(text) <= 6 else rounded(value, 5)


def up(value: float, digits: int = 4) -> str:
    """An upper bound, never below it."""
    return round_up(value, digits).replace("infinity", "∞")


def down(value: float, digits: int = 4) -> str:
    """A lower bound, never above it."""
    return round_down(value, digits).replace("infinity", "∞")


def claimed(value: float) -> str:
    """A claimed epsilon as it was stated; one of many digits, never below it."""
    return stated(value).replace("infinity", "∞")


def at_most(bound: UpperBound) -> str:
    """An upper bound behind its sign; "no bound" if it is infinite."""
    if bound.epsilon == math.inf:
        return "no bound"
    return f"ε {'≈' if bound.standing == 'asymptotic' else '≤'} {up(bound.epsilon)}"


def seer(figure: Claim | UpperBound) -> str:
    """By whom what ``figure`` is of is seen; "" if by whoever sees all."""
    return seen_by(figure.observer).removeprefix("; seen by ")
