"""What a bracket bounds, epsilon or delta, and the searches for its sides."""

from __future__ import annotations

import abc
import dataclasses
import math
from collections.abc import Callable

from privaudit.accounting.pld.cells import Direction
from privaudit.accounting.pld.fixed_size import Chosen
from privaudit.accounting.pld.fourier import Tilted
from privaudit.accounting.pld.inversion import Chernoff, Inverted
from privaudit.accounting.pld.scout import Guess, Scout
from privaudit.results import check_sides


@dataclasses.dataclass(frozen=True, slots=True)
class Sides:
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

    def __post_init__(self) -> None:
        check_sides(self.lower, self.upper)


class Target(abc.ABC):
    """What is bracketed: the part of the search that differs for epsilon and delta."""

    @property
    @abc.abstractmethod
    def trivial_upper(self) -> float:
        """An upper bound that always holds."""

    @abc.abstractmethod
    def guess(self, scout: Scout, infinite: float = 0.0) -> Guess:
        """Where to look; ``infinite`` is the mass at infinite loss, about."""

    @abc.abstractmethod
    def size(self, guess: Guess) -> float:
        """How bad a direction looks."""

    @abc.abstractmethod
    def slack(self, guess: Guess, worst: Guess) -> float:
        """Width in epsilon that is wanted, where ``worst`` decides."""

    @abc.abstractmethod
    def upper(
        self, found: Tilted | Inverted | Chosen | Chernoff, guess: Guess
    ) -> float:
        """Upper bound from a composition that dominates."""

    @abc.abstractmethod
    def lower(self, found: Tilted | Inverted, guess: Guess) -> float:
        """Lower bound from a composition that is dominated."""

    def improved(self, guess: Guess, upper: float) -> Guess:
        """``guess`` once ``upper`` is known."""
        return guess


@dataclasses.dataclass(frozen=True)
class EpsilonAt(Target):
    delta: float
    width: float

    @property
    def trivial_upper(self) -> float:
        return math.inf

    def guess(self, scout: Scout, infinite: float = 0.0) -> Guess:
        left = self.delta - infinite
        if not left > 0:  # nothing to find but that
            left = 0.1 * self.delta
        return scout.at_delta(math.log(left))

    def size(self, guess: Guess) -> float:
        return guess.epsilon

    def slack(self, guess: Guess, worst: Guess) -> float:
        wanted = self.width * max(worst.epsilon, 1e-3 / (1 + worst.tilt))
        return max(wanted, 0.5 * (worst.epsilon - guess.epsilon))

    def upper(
        self, found: Tilted | Inverted | Chosen | Chernoff, guess: Guess
    ) -> float:
        return least_epsilon(
            lambda e: found.delta_above(e) <= self.delta, guess.epsilon, self.width
        )[1]

    def lower(self, found: Tilted | Inverted, guess: Guess) -> float:
        if found.surely_infinite * (1 - 1e-13) > self.delta:
            return math.inf
        return largest_epsilon(
            lambda e: found.delta_below(e) > self.delta,
            guess.epsilon,
            self.width,
            found.tilt,
        )

    def improved(self, guess: Guess, upper: float) -> Guess:
        if math.isfinite(upper):
            return dataclasses.replace(guess, epsilon=upper)
        return guess


@dataclasses.dataclass(frozen=True)
class DeltaAt(Target):
    epsilon: float
    width: float

    @property
    def trivial_upper(self) -> float:
        return 1.0

    def guess(self, scout: Scout, infinite: float = 0.0) -> Guess:
        return scout.at_epsilon(self.epsilon)

    def size(self, guess: Guess) -> float:
        return guess.log_delta

    def slack(self, guess: Guess, worst: Guess) -> float:
        room = min(0.5 * (worst.log_delta - guess.log_delta), 2.0)
        return max(self.width, room) / (1 + guess.tilt)

    def upper(
        self, found: Tilted | Inverted | Chosen | Chernoff, guess: Guess
    ) -> float:
        return found.delta_above(self.epsilon)

    def lower(self, found: Tilted | Inverted, guess: Guess) -> float:
        return found.delta_below(self.epsilon)


def least_epsilon(
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


def largest_epsilon(
    exceeds: Callable[[float], bool], guess: float, width: float, tilt: float
) -> float:
    """An epsilon at which ``exceeds`` holds, near the largest; 0 if none is found.

    It need not hold at 0, which may lie outside the window of a composition, and so may
    a few times 1 / tilt below the largest.
    """
    if not 0 < guess < math.inf:
        return 0.0
    step = min(0.25 * width, 1 / (tilt * guess))
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
