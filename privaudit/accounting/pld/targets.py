"""Targets of a bracket, epsilon or delta, and the searches for its sides."""

from __future__ import annotations

import abc
import dataclasses
import itertools
import math
from collections.abc import Callable
from typing import ClassVar

from privaudit.accounting.pld.cells import Direction
from privaudit.accounting.pld.fixed_size import Chosen
from privaudit.accounting.pld.fourier import Tilted
from privaudit.accounting.pld.scout import Guess, Law, Scout
from privaudit.results import check_sides

_HIDDEN = 7.0  # log of how little of all delta is where windows hide it
_NEAR = 12  # steps down from a guess that are short
_AIMED = 1.2  # times the epsilon that cells were chosen for: not too far above
_FIRST = 0.05  # of the tolerance: where a search begins that knows of nothing else
_FAR_BELOW = 10.0  # log of delta, of the other direction beside the worse one
_LOG_LEAST = -700.0  # of what a double holds


@dataclasses.dataclass(frozen=True, slots=True)
class Sides:
    """lower <= the truth <= upper, both proved, numerical error included."""

    # lower, upper: the bracket; ``upper`` may be infinity
    lower: float
    upper: float
    width: float  # what was asked for: upper <= (1 + width) lower
    reached: bool  # whether it was reached. If not, both are still bounds
    worst: Direction  # the direction that gave ``upper``

    def __post_init__(self) -> None:
        check_sides(self.lower, self.upper)


class Target(abc.ABC):
    """Quantity to bracket: where the searches for epsilon and delta differ."""

    trivial_upper: ClassVar[float]  # an upper bound that always holds

    @property
    def refined(self) -> bool:
        """Return whether finer grids follow until the width is reached."""
        return True

    @abc.abstractmethod
    def seen(self, scout: Scout, infinite: float = 0.0) -> tuple[Guess, Law]:
        """Guess of the figure, from a scout; ``infinite``: about its infinite mass."""

    @abc.abstractmethod
    def size(self, guess: Guess) -> float:
        """Size by which directions are compared: the worst comes first."""

    @abc.abstractmethod
    def slack(self, guess: Guess, worst: Guess) -> float:
        """Width in epsilon that is wanted, where ``worst`` decides."""

    @abc.abstractmethod
    def upper(self, found: Tilted | Chosen, guess: Guess, enough: float = 0.0) -> float:
        """Upper bound from a composition that dominates; no less than ``enough``."""

    @abc.abstractmethod
    def lower(self, found: Tilted, guess: Guess) -> float:
        """Lower bound from a composition that is dominated."""

    @abc.abstractmethod
    def is_met(self, lower: float, upper: float, widths: float = 1.0) -> bool:
        """Return whether the sides are within that many times the width asked for."""

    @abc.abstractmethod
    def ratio(self, lower: float, upper: float) -> float:
        """About how many times further apart they are; 9 if that is not known."""

    def both_seen(
        self,
        seen: dict[Direction, tuple[Guess, Law]],
        scouts: dict[Direction, Scout],
    ) -> dict[Direction, tuple[Guess, Law]]:
        """Guesses and laws of each direction, once the other is known."""
        return seen

    def improved(self, guess: Guess, upper: float, lower: float = 0.0) -> Guess:
        """``guess`` once ``upper``, and perhaps ``lower``, is known."""
        return guess

    def is_aimed(self, guess: Guess, upper: float) -> bool:
        """Return whether ``guess`` is near, beside what `improved` makes of it."""
        return True


@dataclasses.dataclass(frozen=True)
class EpsilonAt(Target):
    """Epsilon at a delta, to a width or ``tolerance``; or by the first grid alone."""

    delta: float
    width: float
    tolerance: float = 0.0
    refined: bool = True
    trivial_upper = math.inf

    def seen(self, scout: Scout, infinite: float = 0.0) -> tuple[Guess, Law]:
        left = self.delta - infinite
        if not left > 0:  # nothing to find but that
            left = 0.1 * self.delta
        guess = scout.at_delta(math.log(max(left, 5e-324)))
        law = scout.law(guess)
        epsilon = law.epsilon(guess.log_delta)
        wider = scout.wider(guess, epsilon)
        if wider is not guess:
            guess, law = wider, scout.law(wider)
            epsilon = law.epsilon(guess.log_delta)
        steep = law.delta(epsilon)[1] / guess.slope
        guess = dataclasses.replace(guess, epsilon=epsilon, steep=steep)
        return scout.parted(guess), law

    def size(self, guess: Guess) -> float:
        return guess.epsilon

    def slack(self, guess: Guess, worst: Guess) -> float:
        # Of an epsilon next to 0 no relative width is asked.
        wanted = self.width * max(worst.epsilon, 1e-3 / (1 + worst.slope))
        wanted = max(wanted, self.tolerance)
        return max(wanted, 0.5 * (worst.epsilon - guess.epsilon))

    def is_met(self, lower: float, upper: float, widths: float = 1.0) -> bool:
        near = upper <= (1 + widths * self.width) * lower or not upper
        near = near or upper - lower <= widths * self.tolerance
        return near or not self.refined

    def ratio(self, lower: float, upper: float) -> float:
        if self.tolerance > self.width * upper:
            return (upper - lower) / self.tolerance
        return _ratio(lower, upper, self.width)

    def upper(self, found: Tilted | Chosen, guess: Guess, enough: float = 0.0) -> float:
        if enough > 0 and found.delta_above(enough) <= self.delta:
            return enough
        first = max(guess.epsilon, _FIRST * self.tolerance)

        def excess(epsilon: float) -> float:
            return _excess(found.delta_above(epsilon), self.delta, unknown=math.inf)

        return crossing(excess, first, guess.slope, 0.01 * self.width)[1]

    def lower(self, found: Tilted, guess: Guess) -> float:
        if found.surely_infinite * (1 - 1e-13) > self.delta:
            return math.inf
        if not 0 < guess.epsilon < math.inf:
            return 0.0

        def excess(epsilon: float) -> float:
            return _excess(found.delta_below(epsilon), self.delta, unknown=-math.inf)

        fine = 0.01 * self.width
        return _bracketed(excess, guess.epsilon, found.tilt, fine, most=1.0)[0]

    def improved(self, guess: Guess, upper: float, lower: float = 0.0) -> Guess:
        if not math.isfinite(upper):
            return guess
        if upper > 8 * guess.epsilon:  # a grid too coarse, more than a poor guess
            least = max(guess.epsilon, 1e-3 / (1 + guess.slope))
            upper = math.sqrt(upper * min(upper, least))
        return dataclasses.replace(guess, epsilon=upper, aims=(lower,) * (lower > 0))

    def is_aimed(self, guess: Guess, upper: float) -> bool:
        return upper < _AIMED * guess.epsilon or not upper > 0


@dataclasses.dataclass(frozen=True)
class DeltaAt(Target):
    """Delta at an epsilon, to a relative width."""

    epsilon: float
    width: float
    trivial_upper = 1.0

    def seen(self, scout: Scout, infinite: float = 0.0) -> tuple[Guess, Law]:
        alone = scout.alone(self.epsilon)  # before it looks less far
        guess = scout.at_epsilon(self.epsilon)
        law = scout.law(guess)
        log_delta, fall = law.delta(self.epsilon)
        known = min(max(log_delta, alone), 0.0)
        hidden = scout.excess(guess.tilt, self.epsilon, known) > _HIDDEN
        if hidden and known > _LOG_LEAST:  # this tilt sees little of it
            guess, law = EpsilonAt(math.exp(known), self.width).seen(scout)
            return dataclasses.replace(guess, epsilon=self.epsilon), law
        guess = dataclasses.replace(
            guess, log_delta=min(log_delta, 0.0), steep=fall / guess.slope
        )
        return scout.parted(guess), law

    def both_seen(
        self,
        seen: dict[Direction, tuple[Guess, Law]],
        scouts: dict[Direction, Scout],
    ) -> dict[Direction, tuple[Guess, Law]]:
        # A delta that is next to nothing beside the other's may be thousands of times
        # smaller than what any grid sees: here it is to be far smaller, no more.
        least = max(guess.log_delta for guess, _ in seen.values()) - _FAR_BELOW
        if least < _LOG_LEAST:
            return seen
        other = EpsilonAt(math.exp(least), self.width)
        return {
            way: other.seen(scouts[way]) if found[0].log_delta < least else found
            for way, found in seen.items()
        }

    def size(self, guess: Guess) -> float:
        return guess.log_delta

    def slack(self, guess: Guess, worst: Guess) -> float:
        room = min(0.5 * (worst.log_delta - guess.log_delta), 2.0)
        return max(self.width, room) / max(guess.slope * guess.steep, 1e-9)

    def is_met(self, lower: float, upper: float, widths: float = 1.0) -> bool:
        return upper <= (1 + widths * self.width) * lower or upper == 0

    def ratio(self, lower: float, upper: float) -> float:
        return _ratio(lower, upper, self.width)

    def upper(self, found: Tilted | Chosen, guess: Guess, enough: float = 0.0) -> float:
        return max(found.delta_above(self.epsilon), enough)

    def lower(self, found: Tilted, guess: Guess) -> float:
        return found.delta_below(self.epsilon)


def _ratio(lower: float, upper: float, width: float) -> float:
    # 9: far more widths than are asked, which no search takes for nearly enough.
    return math.log(upper / lower) / math.log1p(width) if lower > 0 else 9.0


def _excess(found: float, delta: float, *, unknown: float) -> float:
    """About log(found / delta), > 0 exactly where ``found > delta``."""
    if math.isnan(found):
        return unknown
    off = math.log(found) - math.log(delta) if found > 0 else -math.inf
    return max(off, 5e-324) if found > delta else min(off, 0.0)


def crossing(
    excess: Callable[[float], float], guess: float, slope: float, fine: float
) -> tuple[float, float]:
    """(low, high) with ``excess(low) > 0 >= excess(high)``, relatively ``fine`` apart.

    (0, 0) if it is not above 0 at 0; high is infinity if it is found to be above
    everywhere. ``slope`` is about that at which it falls.
    """
    low, high = _bracketed(excess, guess, slope, fine)
    if (low == 0 or high == math.inf) and not excess(0.0) > 0:
        return 0.0, 0.0
    while high - low > fine * high and high < math.inf:  # invariant: as promised
        middle = (low + high) / 2
        if middle in (low, high):
            break
        low, high = (middle, high) if excess(middle) > 0 else (low, middle)
    return low, high


def _bracketed(
    excess: Callable[[float], float],
    guess: float,
    slope: float,
    fine: float,
    most: float = math.inf,
) -> tuple[float, float]:
    """As `crossing`; but low is 0 if none was seen down from the guess."""
    x, slope = max(guess, 1e-12), max(1e-300, min(1e300, slope))  # finite steps
    low, high, above, below = 0.0, math.inf, math.inf, -math.inf
    least, stride, before = 1e-9 * x, 0.1 * fine * x, (0.0, math.inf)
    for turn in itertools.count(1):  # invariant: low is 0 or above, high not above
        off = excess(x)
        fall = (before[1] - off) / (x - before[0])
        if slope < 4 * fall < 16 * slope:  # of the line through the last two
            slope = fall
        before = x, off
        if off > 0:
            low, above = x, off
        else:
            high, below = x, off
        if high == math.inf:
            if not x < 1e300:
                break
            x = low + stride + (above / slope if above < math.inf else 0.0)
            stride *= 4
        elif low == 0:
            # Not past all of where it is above 0, if that has an end below.
            part = high / 2 if most == math.inf or turn > _NEAR else high / 8
            x = high - min(min(-below, most) / slope + stride, part)
            stride *= 4
            if x <= least:
                break
        elif high - low <= fine * high:
            break
        else:
            x = (low + high) / 2
            if turn % 4 and below > -math.inf:
                # Just beyond where a line is 0, on the side that is known less of.
                at = low + (high - low) * above / (above - below)
                beyond = 0.4 * fine * high
                at += beyond if high - at > at - low else -beyond
                x = at if low < at < high else x
            if x in (low, high):
                break
    return low, high
