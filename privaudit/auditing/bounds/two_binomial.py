"""The exact unconditional test of two binomials, inverted.

After a threshold is chosen on other runs, A of m members and B of n non-members are
called member: two independent binomials. Clopper-Pearson bounds each alone; what counts
is the two together.

Order the outcomes (a, b) by a statistic T that grows with a and falls with b and does
not depend on epsilon. Under (epsilon, delta)-DP the probabilities p of A and q of B
satisfy p <= ceiling(q, epsilon), see below. The chance of {T >= t} grows with p, so

    P(T >= t) <= h(epsilon) = max over q of P(T >= t; ceiling(q, epsilon), q)

and h grows with epsilon since the ceiling does. The bound is the largest epsilon with
h(epsilon) <= alpha, at t = T(observed): it exceeds the true epsilon only if h there is
at most alpha, an event of probability alpha at most (Buehler 1957).

The maximum is taken over q in a confidence interval of level 1 - gamma only, at
alpha - gamma (Berger and Boos 1994). It is bounded, not searched for: between q1 and q2
the chance is at most that of B from q1 and A from ceiling(q2), since T falls with b.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy import optimize, special

from privaudit.auditing.bounds.binomial import least_hits, limit_down, limit_up, mass
from privaudit.auditing.bounds.clopper_pearson import AtThreshold, epsilon_from_limits
from privaudit.auditing.bounds.contract import Rate
from privaudit.task_settings import Inside

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_CUT = 1e-12  # chance of B outside the outcomes summed over; it is added to the p-value
_BLOCKS = 256


@dataclasses.dataclass(frozen=True, slots=True)
class TwoBinomial(AtThreshold):
    """The exact test of TPR against FPR at a threshold that other runs chose."""

    name: ClassVar[str] = "two-binomial"
    source: ClassVar[str] = (
        "R. J. Buehler, J. Amer. Statist. Assoc. 52 (1957); R. L. Berger and "
        "D. D. Boos, J. Amer. Statist. Assoc. 89 (1994)"
    )

    choosing_share: Inside = 0.3
    # gamma / alpha: spent on the interval for q
    interval_share: Inside = 0.05

    def level(self, alpha: float) -> float:
        return _order_level(alpha)

    def tested(
        self, hits: int, runs: int, alarms: int, others: int, delta: float, alpha: float
    ) -> tuple[float, Rate, Rate]:
        epsilon = self.from_counts(hits, runs, alarms, others, delta, alpha)
        limits = _interval(alarms, others, self.interval_share * alpha)
        return epsilon, Rate(hits, runs, 0.0, 1.0), Rate(alarms, others, *limits)

    def from_counts(
        self, hits: int, runs: int, alarms: int, others: int, delta: float, alpha: float
    ) -> float:
        """The bound from ``hits`` of ``runs`` members, ``alarms`` of ``others``."""
        level = _order_level(alpha)
        order = float(
            epsilon_from_limits(
                limit_down(hits, runs, level), limit_up(alarms, others, level), delta
            )
        )
        if order == 0:
            return 0.0
        gamma = self.interval_share * alpha
        low, high = _interval(alarms, others, gamma)
        alarm_counts = _outcomes(others, low, high)
        needed = _hits_needed(order, alarm_counts, runs, others, delta, level)
        # Rounding must not leave the observed outcome outside of its own region.
        needed[alarm_counts <= alarms] = np.minimum(
            needed[alarm_counts <= alarms], hits
        )
        possible = needed <= runs
        needed, alarm_counts = needed[possible], alarm_counts[possible]
        first = np.arange(0, len(needed), max(1, len(needed) // _BLOCKS))
        sizes = runs, others
        test = _Test(needed[first], alarm_counts, first, *sizes, delta, alpha - gamma)
        few = np.linspace(low, high, 9)
        guess = _root(
            lambda epsilon: math.log(test.chance(epsilon, few, few).max() / test.alpha),
            2 * order + 1,
        )
        # The guess is near the answer; the maximum over all q decides.
        step = max(0.003 * guess, 1e-6)
        guess = max(0.0, guess - step)
        while guess > 0 and not test.between(guess, low, high):
            guess, step = max(0.0, guess - step), 1.5 * step
        return guess


def ceiling(fpr: Floats | float, epsilon: float, delta: float) -> Floats:
    """Largest TPR that (epsilon, delta)-DP allows at a FPR; grows with both."""
    fpr = np.asarray(fpr, float)
    with np.errstate(over="ignore"):
        first = np.exp(min(epsilon, 700.0)) * fpr + delta
    second = 1 - np.exp(-epsilon) * np.maximum(1 - fpr - delta, 0)
    return np.minimum(np.minimum(first, second), 1.0)


def _order_level(alpha: float) -> float:
    """Level of the limits that order the outcomes: z / sqrt(2); any choice is valid."""
    return float(special.ndtr(special.ndtri(alpha) / math.sqrt(2)))


def _interval(alarms: int, others: int, gamma: float) -> tuple[float, float]:
    return (
        float(limit_down(alarms, others, gamma / 2)),
        float(limit_up(alarms, others, gamma / 2)),
    )


def _outcomes(others: int, low: float, high: float) -> Ints:
    """The b that matter: all but a chance ``_CUT`` / 2 at each end, for any such q."""
    first = int(special.bdtrik(_CUT / 2, others, low)) if low > 0 else 0
    last = others
    if high < 1:
        above = others - special.bdtrik(_CUT / 2, others, 1 - high)
        last = min(others, math.ceil(above) + 1)
    return np.arange(max(0, first - 1), last + 1)


def _hits_needed(
    order: float, alarms: Ints, runs: int, others: int, delta: float, level: float
) -> Ints:
    """Least a with T(a, b) >= ``order`` for each b; runs + 1 if there is none."""
    ceilings = ceiling(limit_up(alarms, others, level), order, delta)
    return np.maximum.accumulate(least_hits(runs, ceilings, level))


@dataclasses.dataclass(frozen=True, slots=True)
class _Test:
    """The region {T >= t}, to see which epsilon it refutes; neighbouring b together."""

    needed: Ints
    alarms: Ints
    first: Ints
    runs: int
    others: int
    delta: float
    alpha: float

    def chance(self, epsilon: float, of_alarms: Floats, of_hits: Floats) -> Floats:
        """P(T >= t) with B from ``of_alarms``, A from the ceiling of ``of_hits``."""
        chances = mass(self.alarms, self.others, of_alarms[:, None])
        chances = np.add.reduceat(chances, self.first, axis=1)
        tops = ceiling(of_hits, epsilon, self.delta)[:, None]
        before = np.maximum(self.needed - 1, 0).astype(float)
        reach = np.where(self.needed > 0, special.bdtrc(before, self.runs, tops), 1.0)
        return (chances * reach).sum(axis=1) + _CUT

    def between(self, epsilon: float, low: float, high: float) -> bool:
        """Return whether it is refuted for all FPR from ``low`` to ``high``."""
        edges = np.linspace(low, high, 17)
        left, right = edges[:-1], edges[1:]
        for _ in range(4):
            open_ = self.chance(epsilon, left, right) > self.alpha
            if not open_.any():
                return True
            left, right = left[open_], right[open_]
            if self.chance(epsilon, left, left).max() > self.alpha:
                return False
            inner = left + (right - left) * np.array([[0.0], [0.25], [0.5], [0.75]])
            outer = np.concatenate([inner[1:], right[None]])
            left, right = inner.ravel(), outer.ravel()
        return False


def _root(function: Callable[[float], float], high: float) -> float:
    """Root of a growing function in [0, high], near enough for a guess."""
    if function(0.0) > 0:
        return 0.0
    if function(high) <= 0:
        return high
    found = optimize.root_scalar(function, bracket=(0.0, high), xtol=1e-3, rtol=1e-3)
    return float(found.root)
