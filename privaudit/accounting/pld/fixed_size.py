"""Batches of a fixed size, from above: what data chosen step by step can reach.

No data set attains the pair of `cells` (scheme ``fixed``) at all epsilons at once: its
losses above 0 need the other records where one of the two is, those below 0 where the
other one is. Here each step is one of many pairs, each of which some placing of three
records in a ball has as a bound, and who chooses sees all earlier releases. What that
can reach is bounded by a composition of one measure and a remainder. The proof is in
``fixed_size.md``.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
from collections.abc import Callable

import numpy as np
from scipy import fft, special

from privaudit.accounting.pld.cells import Cells, Step, half_grid, mix
from privaudit.accounting.pld.dots import GridMeasure, measure_above
from privaudit.accounting.pld.fourier import (
    Bundle,
    Tilted,
    compose,
    fold,
    transform_error,
)
from privaudit.accounting.pld.grouping import MOST_CELLS, Grid
from privaudit.accounting.pld.line import UNIT, Floats, log_normal_mass
from privaudit.accounting.pld.mechanisms.noise import loss_cells
from privaudit.accounting.pld.scout import Guess

_FIRST_PARTS, _PARTS = 8, 64  # of a right angle
_GAIN, _GAIN_OF_ALL = 0.04, 0.2  # what is worth quarters: of a share, of a log
_ALLOWED = 0.04  # of delta: what all choices together may add
_EARLY, _GROWTH = 4, 1.5  # levels: all up to the first, then by that factor
_MOST_POINTS, _MOST_CELLS = 1 << 15, 1 << 13
_MOST_LOG = 600.0  # of what masses are multiplied by
_LOG_SMALL = -34.0  # what wraps around, beside 1
_NEWTON = 100
_FAR = 40.0  # outputs beyond have no mass that a double could hold


@dataclasses.dataclass(frozen=True, slots=True)
class Chosen:
    """delta is at most that of ``base``, and exp(log_rest - tilt epsilon) + lost."""

    base: Tilted
    tilt: float
    log_rest: float
    lost: float

    def delta_above(self, epsilon: float) -> float:
        """At least delta."""
        drift = self.base.drift
        log_rest = self.log_rest + drift - self.tilt * (epsilon - drift)
        wobble = 64 * UNIT * (1 + abs(self.log_rest) + self.tilt * abs(epsilon))
        rest = math.exp(min(log_rest + wobble, 0.0)) + self.lost
        return min(1.0, (self.base.delta_above(epsilon) + rest) * (1 + 1e-14))


def triangle_cells(
    rate: float, sides: tuple[float, float, float], spacing: float, stop: int
) -> Cells:
    """Losses of the pair that bounds three records with ``sides``.

    The first side is from the others' record to the one in P, the second to the one in
    Q, the third between these two; ``stop`` is the last grid point. See `_half`.
    """
    first, second, apart = sides
    highs, ends, one = _half(rate, first, apart, spacing, stop)
    lows, lasts, two = _half(rate, second, apart, spacing, stop)
    (above_p, above_q), (end_p, end_q) = highs, ends
    (below_q, below_p), (low_q, low_p) = lows, lasts
    log_p = np.concatenate([below_p[::-1], above_p])
    log_q = np.concatenate([below_q[::-1], above_q])
    total = float(np.exp(log_p).sum()) + math.exp(low_p) + math.exp(end_p)
    return Cells(
        -stop,
        log_p,
        log_q,
        (low_p, low_q),
        (end_p, end_q),
        max(1 - total, 0.0) + 1e-13,
        4 * UNIT * (1024 + 32 * (_FAR + max(sides)) ** 2) + one + two,
    )


@functools.lru_cache(maxsize=_PARTS * _PARTS)  # each is half of two triangles
def _half(
    rate: float, others: float, apart: float, spacing: float, stop: int
) -> tuple[list[Floats], list[float], float]:
    """Logs of masses of P and Q at losses above 0, in half cells, and beyond them.

    And a bound on how far losses are off.

    P = (1 - q) N(-others) + q N(0), Q = (1 - q) N(-others) + q N(-apart). The loss is
    above log a to the right of x where (a - 1) (1 - q) dN(-others) + a q dN(-apart) = q
    dN(0): the log of the left side over the right is convex in x and falls, so that
    Newton's steps come from the left.
    """
    loss = half_grid(0, stop, spacing)
    with np.errstate(divide="ignore"):
        one = np.log(np.expm1(loss)) + math.log((1 - rate) / rate) - others**2 / 2
    two = loss - apart**2 / 2
    x = np.full(loss.shape, -apart / 2)
    # Rounding of the log; the loss is off by no more than it is from 0.
    slip = 64 * UNIT * (40 + loss[-1] + (others + apart) * _FAR - math.log(rate))
    for _ in range(_NEWTON):
        log = np.logaddexp(one - others * x, two - apart * x)
        if (np.abs(log) <= slip)[x < _FAR].all():
            break
        share = np.exp(two - apart * x - log)
        x = x + log / (others + (apart - others) * share)
    else:
        raise ArithmeticError("losses of a fixed-size batch were not found")
    inside, beyond = [], []
    base, end = log_normal_mass(x, -others), -x[-1:]
    for centre in (0.0, -apart):
        inside.append(mix(rate, base, log_normal_mass(x, centre)))
        tails = special.log_ndtr(end - others), special.log_ndtr(end + centre)
        beyond.append(float(mix(rate, *tails)[0]))
    return inside, beyond, slip


@dataclasses.dataclass(frozen=True, slots=True)
class Box:
    """Triangles inscribed in a ball whose first two angles are in one of many squares.

    Those of a right angle over ``parts``, at ``i`` and ``j``. Each side of such a
    triangle is the ball's diameter times the sine of the angle across.
    """

    parts: int = 1
    i: int = 0
    j: int = 0

    @property
    def sides(self) -> tuple[float, float, float]:
        """For diameter 1: what none of its triangles' sides exceeds."""
        part = math.pi / 2 / self.parts
        third = min(math.pi - (self.i + self.j) * part, math.pi / 2)
        one, two = (self.i + 1) * part, (self.j + 1) * part
        return math.sin(one), math.sin(two), math.sin(third)

    def quarters(self) -> list[Box]:
        """Those with a triangle whose third angle is no more than a right one."""
        quarters = (
            Box(2 * self.parts, 2 * self.i + i, 2 * self.j + j)
            for i, j in itertools.product((0, 1), repeat=2)
        )
        return [box for box in quarters if box.i + box.j + 2 > box.parts]


def boxes_of(parts: int) -> list[Box]:
    """All of that size, a power of two."""
    boxes = [Box()]
    while boxes[0].parts < parts:
        boxes = [quarter for box in boxes for quarter in box.quarters()]
    return boxes


def largest(boxes: list[Box], worth: Callable[[Box], float], gain: float) -> float:
    """No triangle's ``worth`` is more; quarters take a box's place if they lower it."""
    worths = [worth(box) for box in boxes]
    while True:
        top = int(np.argmax(worths))
        before, parts = worths[top], boxes[top].quarters()
        if before <= 0 or boxes[top].parts == _PARTS:
            return before
        boxes[top : top + 1] = parts
        worths[top : top + 1] = found = [worth(box) for box in parts]
        if before - max(found) < gain:
            return max(worths)


def bound(step: Step, count: int, grid: Grid, guess: Guess) -> Chosen | None:
    """A bound on ``count`` steps of records in a ball whose diameter is the shift.

    Of Gaussian noise. None if it would be too much work.
    """
    spacing, reach = grid.spacing, grid.reach
    most = measure_above(
        loss_cells(step, "remove", spacing, reach, MOST_CELLS), spacing
    )
    stop = -most.start
    if step.noise != "gaussian" or count < 2:
        return None
    if stop > _MOST_CELLS or (2 + guess.tilt + guess.up) * stop * spacing > _MOST_LOG:
        return None
    plain = dataclasses.replace(step, scheme="poisson")
    cells = loss_cells(plain, "remove", spacing, reach, MOST_CELLS)
    one_way = measure_above(cells, spacing)
    first = one_way.start + stop
    mass = np.pad(one_way.mass, (first, 2 * stop + 1 - first - one_way.mass.size))
    one_way = dataclasses.replace(one_way, start=-stop, mass=mass)
    used = [one_way, most]

    @functools.cache
    def measure(box: Box) -> Floats:
        first, second, apart = (side * step.shift for side in box.sides)
        cells = triangle_cells(step.rate, (first, second, apart), spacing, stop)
        used.append(measure_above(cells, spacing))
        return used[-1].mass

    found = _schedule(one_way.mass, most.mass, measure, stop, count, spacing, guess)
    _half.cache_clear()
    if found is None:
        return None
    shares, counts, log_rest = found
    bundles = []
    for share, often in zip(shares, counts, strict=True):
        mass = (1 - share) * one_way.mass + share * most.mass
        accuracy = max(one_way.accuracy, most.accuracy) + 4 * UNIT
        mixed = GridMeasure(-stop, mass, max(one_way.infinite, most.infinite), accuracy)
        bundles.append(Bundle.single(mixed, often, guess.tilt, spacing))
    base = compose(bundles, spacing, guess)
    if base is None:
        return None
    slip = count * max(one.accuracy for one in used)
    lost = count * max(one.infinite for one in used)
    base = dataclasses.replace(base, drift=base.drift + slip)
    return Chosen(base, guess.tilt, log_rest, lost)


def _schedule(
    one_way: Floats,
    most: Floats,
    measure: Callable[[Box], Floats],
    stop: int,
    count: int,
    spacing: float,
    guess: Guess,
) -> tuple[Floats, Floats, float] | None:
    """Shares of ``most`` in the base, how many steps have each, and log of the rest.

    From the last step backwards: the share is the least with which no triangle adds
    more than is allowed. The rest is that at epsilon 0; it falls as exp(-tilt epsilon).
    All masses are on -stop, ..., stop.
    """
    tilt, slope = guess.tilt, guess.up
    at = np.arange(-stop, stop + 1) * spacing
    weight = np.exp(tilt * at)
    boxes = boxes_of(_FIRST_PARTS)

    def log_moment(box: Box) -> float:
        return count * math.log(float(measure(box) @ weight))

    ends = [float(one @ weight) for one in (one_way, most)]
    least = math.exp(largest(boxes, log_moment, _GAIN_OF_ALL) / count)
    least = max(least, ends[0]) * (1 + 1e-12)  # what a sum of thousands rounds
    further = np.exp((tilt + slope) * at)
    steep = max(float(one @ further) for one in (most, measure(Box()))) * (1 + 1e-9)
    levels = _levels(count)
    low = _LOG_SMALL / tilt
    while True:  # as far up as what wraps around is small
        high = (
            (levels[-1] + 1) * max(math.log(steep / least), 0.0) - _LOG_SMALL
        ) / slope
        width = max(high, 2 * stop * spacing) - low
        points = fft.next_fast_len(math.ceil(width / spacing) + 2 * stop, real=True)
        if points <= _MOST_POINTS or len(levels) < 3:
            break
        levels.pop()
    if points > _MOST_POINTS:
        return None
    x = np.arange(points) * spacing
    gain = np.exp(-tilt * x) * -np.expm1(-x)
    spectrum, norm = fft.rfft(gain), float(np.linalg.norm(gain))

    def transformed(mass: Floats) -> np.ndarray:
        return fft.rfft(fold(mass * weight / least, -stop, points))

    first = transformed(one_way)
    over = transformed(most) - first

    @functools.cache
    def beyond(box: Box) -> np.ndarray:
        return transformed(measure(box)) - first

    rises: dict[Box, Floats] = {}

    def needed(kernel: np.ndarray, per_gap: Floats, box: Box) -> float:
        rises[box] = fft.irfft(kernel * beyond(box), points)
        return min(float(((rises[box] - allowed) * per_gap).max()), 1.0)

    # Of a transform; and of one of a difference, or of a mixture of two.
    error = 4 * transform_error(points) * max(ends[1] / least, 1.0)
    allowed = guess.log_delta + tilt * guess.epsilon - count * math.log(least)
    allowed = math.exp(min(allowed, 0.0)) * _ALLOWED / count
    wraps = 4 * (math.exp(_LOG_SMALL) + math.exp(-tilt * points * spacing))
    kernel, slack = np.conj(spectrum), np.zeros(spectrum.size)  # and error of its log
    shares, counts, worsts, scale = [], [], [], 0.0
    for level, following in zip(levels, [*levels[1:], count], strict=True):
        # e^600 is as bad as infinity, and times another number still finite.
        wrong = np.abs(kernel) * np.expm1(np.minimum(slack, 600.0))
        off = 4 * float(wrong.mean()) + 8 * error * norm
        gap = fft.irfft(kernel * over, points)
        per_gap = 1 / np.maximum(gap, 1e-300)
        needs = functools.partial(needed, kernel, per_gap)
        share = max(largest(boxes, needs, _GAIN), 0.0)
        worst = max(float((rises[box] - share * gap).max()) for box in boxes)
        rises.clear()
        worst = max(worst, 0.0) + 2 * off + wraps
        often = following - level
        moment = max(ends[0] + share * (ends[1] - ends[0]), least) * (1 + 1e-12) / least
        worsts.append(math.log(often * worst / moment))
        scale += often * math.log(moment)
        factor = first + share * over
        kernel = kernel * (factor / moment) ** often
        slack += often * np.log1p(error / np.maximum(np.abs(factor), 1e-30) + 64 * UNIT)
        shares.append(share)
        counts.append(float(often))
    rest = float(np.logaddexp.reduce(worsts)) + scale + tilt * spacing
    rest += count * math.log(least) + 1e-9
    return np.array(shares), np.array(counts), rest


def _levels(count: int) -> list[int]:
    found = [0]
    while found[-1] < count - 1:
        last = found[-1]
        following = last + 1 if last < _EARLY else math.ceil(last * _GROWTH)
        found.append(min(following, count - 1))
    return found
