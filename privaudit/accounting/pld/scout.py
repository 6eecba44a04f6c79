"""Choice of tilt, grid spacing and window, from moments: no part of any bound."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import fft, special

from privaudit.accounting.pld.cells import Direction, Step
from privaudit.accounting.pld.line import Floats
from privaudit.accounting.pld.mechanisms.gaussian import upper_reach
from privaudit.accounting.pld.mechanisms.noise import total_variation

_LOG_SQRT_TAU = 0.5 * math.log(2 * math.pi)
LEFT_OUT = 1e-5  # of delta: what is left out beside
_ROOM = math.log(1e4)  # by which errors may grow, beside delta
_LEAST_ROOM = math.log(1e3)
_SHARES = (0.85, 0.7, 0.55, 0.4, 0.25, 0.15, 0.08, 0.04, 0.02, 0.01, 3e-3, 1e-3)
_STRENGTHS = np.geomspace(0.1, 8.0, 10)
_FEW_LARGE = np.geomspace(1e-3, 8.0, 30)  # where they are far beyond a deviation
_MOST_TILTED = 40.0  # tilt times loss under which no mass of what is rare is lost
_LOG_LEAST = -500.0
_CUTS, _TRIED = (0.05, 4.0), 80  # of epsilon, the least and the most; as many
_FIRST_CUT, _EACH_CUT = 16, 4
# Points of a window from which on few are rare losses apart, if that makes less than a
# part of them; and of the least rare loss, on a grid for these.
LONG, _SHORTER, RARE_WIDTH = 1e5, 4, 1 / 16
_MAY_CHANGE = 1e-2  # of what is rare: of its square, by what common losses spread
# Of a step, and beside delta: bounds of rounding are some 70 times larger.
_ROUNDED, _MOST_ROUNDED = 1e-15, math.log(1e-4)
_AT_ONCE = 20_000  # losses, of all tilts that are looked at together
LOG_OUTSIDE = 18.0  # minus log of the tilted mass allowed beyond each end of a window
_LAW_POINTS = 1 << 13
_WIDEST = 1e60  # window of a composition that any grid holds
_LEAST_WINDOW = 1e-140  # whose waves' squares doubles hold
_MOST_BETWEEN = 64  # points between losses of a quadrature
_LAW_LEAST = -40.0  # log of a size that nothing is seen of
_MOST_OUTSIDE = 60.0  # the same: transforms' rounding is larger
_LOG_BESIDE = 12.0  # the same, where that mass counts for more beside delta
_ALIKE = 1.5  # log of what errors may be more, for a shorter window
_LOG_LEFT_OUT = 11.5  # minus log of what a step's grid may leave out, beside delta


@dataclasses.dataclass(frozen=True, slots=True)
class Guess:
    """A tilt, epsilon and delta, and spreads.

    ``slope`` is the tilt at which delta is most of what is seen; it is about how fast
    log delta falls. Transforms may be better off with less, ``tilt``.

    ``down`` and ``up`` are the changes of the tilt whose Chernoff bounds make the least
    window, ``window`` its length; ``losses`` and ``weights`` are the steps' under the
    slope, of what is accounted on the grid's own cells, the weights summing to their
    number; ``variances`` are those of the
    kinds of steps, taken ``counts`` times. ``outside`` is minus the log of the tilted
    mass that may lie beyond each end of the window. ``steep`` is how fast log delta
    falls, over the slope. ``rest``: how to see compositions in which some loss is
    above ``cut``; the others, seen by this, are then those of smaller losses alone.
    """

    tilt: float
    slope: float
    epsilon: float
    log_delta: float
    deviation: float
    down: float
    up: float
    window: float
    losses: Floats
    weights: Floats
    variances: Floats
    counts: Floats
    outside: float
    steep: float = 1.0
    cut: float = math.inf
    rest: Guess | None = None
    whole: Guess | None = None  # before it was parted
    moved: float = 0.0  # the mean size of the others, in sum
    aims: tuple[float, ...] = ()  # more epsilons that cells are to suit

    def seen_as(self, other: Guess) -> Guess:
        """The same figures, with the tilt and window of another."""
        names = ("tilt", "down", "up", "window", "outside")
        return dataclasses.replace(self, **{n: getattr(other, n) for n in names})

    def spacing(self, slack: float) -> float:
        """Grid spacing whose bracket is about ``slack`` wide in epsilon.

        The measure above adds h^2 / 6 to the variance of a step's loss (less where the
        loss is below h); that below takes half as much away, and all of it where h is
        above the loss's deviation. Variance moves epsilon by (1 + tilt) / 2 as much.
        """
        if not self.counts.size:
            return math.inf
        slack *= min(self.steep, 1.0)
        least = max(slack * 1e-9 / (1 + self.slope), 1e-100)
        # In powers of 2^(1/32), so that both sides mostly have one grid, and its cells.
        low, high = math.floor(32 * math.log2(least)), 32 * 6
        size = np.abs(self.losses)
        variance = np.maximum(self.variances, 1e-300)
        # First near where it would be if all losses were large.
        middle = 8 * slack / ((1 + self.slope) * float(self.counts.sum()))
        near = math.floor(16 * math.log2(max(middle, 1e-300))) + np.arange(-16, 24)
        tries = np.append(low, near[(near > low) & (near <= high)])
        while high - low > 1:
            h = np.exp2(tries / 32)
            more = h * (np.minimum(size, h[:, None] / 6) @ self.weights)
            squares = (h * h / 12)[:, None]
            less = np.minimum(squares * (1 + 12 * squares / variance), variance)
            fits = 0.5 * (1 + self.slope) * (more + less @ self.counts) < slack
            fit = fits.size if fits.all() else max(int(np.argmin(fits)), 1)
            low = int(tries[fit - 1])
            high = int(tries[fit]) if fit < fits.size else high
            tries = np.arange(low, high + 1, -(-max(high - low, 1) // 40))
        return 2.0 ** (low / 32)


def rare_spacing(cut: float, moved: float, share: float = _MAY_CHANGE) -> float:
    """Largest spacing of a grid for losses above ``cut``, of which a ``share`` may go.

    On it steps' common losses spread by twice the spacing times ``moved``, the sum of
    their sizes, which is to be little beside the least rare one's square.
    """
    return min(RARE_WIDTH * cut, share * cut * cut / max(4 * moved, 1e-300))


def log_peak(tilt: float) -> float:
    """log of the largest value of exp(-tilt x) (1 - exp(-x)) over x >= 0."""
    if tilt == 0:
        return 0.0
    return -tilt * math.log1p(1 / tilt) - math.log1p(tilt)


class Scout:
    """Log moments of the composed loss, for any tilt."""

    def __init__(
        self,
        steps: list[Step],
        counts: Floats,
        direction: Direction,
        more: Sequence[tuple[Floats, Floats]] = (),
    ) -> None:
        """``more``: losses and log masses of what is no step, counted after them."""
        self._own = len(steps)
        self._counts = np.asarray(counts, float)
        self._steps, self._direction, self._more = steps, direction, more
        self._look(math.inf)

    def _look(self, reach: float) -> None:
        """Leave out what grids leave out: a far tail would lengthen every window."""
        pairs = [_quadrature(step, self._direction, reach) for step in self._steps]
        more = [_within(loss, log_q, reach) for loss, log_q in self._more]
        losses, log_q = zip(*pairs, *more, strict=True)
        width = max(map(len, losses))
        self._losses = np.zeros((len(losses), width))
        self._log_q = np.full((len(losses), width), -np.inf)
        for i, (loss, log_mass) in enumerate(zip(losses, log_q, strict=True)):
            self._losses[i, : loss.size] = loss
            self._log_q[i, : loss.size] = log_mass

    def reach(self, log_delta: float) -> float:
        """Reach of grids where delta is about that; see `loss_cells`."""
        log_tail = max(log_delta, -800.0) - _LOG_LEFT_OUT
        log_tail -= math.log(max(float(self._counts.sum()), 1.0))
        return -float(special.ndtri_exp(min(log_tail, -1.0)))

    def _tilted(self, tilts: Floats) -> tuple[Floats, Floats]:
        """Weights, (tilts, steps, losses), and log moments, (tilts, steps)."""
        exponent = self._log_q + (1 + tilts[:, None, None]) * self._losses
        top = exponent.max(axis=2, keepdims=True)
        weight = np.exp(exponent - top)
        total = weight.sum(axis=2, keepdims=True)
        weight /= total
        return weight, (top + np.log(total))[:, :, 0]

    def log_moments(self, tilts: Floats) -> Floats:
        """About log E_P[exp(tilt L)], of each tilt: as many at once as fit a cache."""
        most = max(_AT_ONCE // self._losses.size, 1)
        parts = (tilts[i : i + most] for i in range(0, len(tilts), most))
        return np.concatenate([self._tilted(part)[1] @ self._counts for part in parts])

    def log_moment(self, tilt: float) -> float:
        """The same, of one."""
        exponent = self._log_q + (1 + tilt) * self._losses
        top = np.maximum.reduce(exponent, axis=1)
        total = np.add.reduce(np.exp(exponent - top[:, None]), axis=1)
        return float(self._counts @ (top + np.log(total)))

    def excess(self, tilt: float, epsilon: float, log_delta: float) -> float:
        """About the log of Chernoff's bound on delta at a tilt, less ``log_delta``."""
        return self.log_moment(tilt) + log_peak(tilt) - tilt * epsilon - log_delta

    def alone(self, epsilon: float) -> float:
        """About the log of the sum of single steps' deltas: what no tilt may see."""
        ahead = np.maximum(self._losses - epsilon, 0.0)
        with np.errstate(divide="ignore"):
            log = np.log(-np.expm1(-ahead)) + self._log_q + self._losses
        return float(special.logsumexp(log, b=self._counts[:, None]))

    def at_delta(self, log_delta: float, room: float = math.inf) -> Guess:
        """Near the tilt of Chernoff's least epsilon; errors grow by exp(``room``)."""
        self._look(self.reach(log_delta))

        def bound(log_tilt: float) -> float:
            tilt = math.exp(log_tilt)
            return (self.log_moment(tilt) + log_peak(tilt) - log_delta) / tilt

        tilt = math.exp(_least(bound))
        guess = self._guess(tilt, 0.0, log_delta)
        # The saddle point's delta is exp(log moment - tilt eps) over this.
        width = max(tilt * (1 + tilt) * guess.deviation * math.sqrt(2 * math.pi), 1.0)
        epsilon = max((self.log_moment(tilt) - log_delta - math.log(width)) / tilt, 0.0)
        return self._narrowest(dataclasses.replace(guess, epsilon=epsilon), room)

    def at_epsilon(self, epsilon: float) -> Guess:
        """Near the tilt at which Chernoff's bound on delta is least."""

        def bound(log_tilt: float) -> float:
            return self.excess(math.exp(log_tilt), epsilon, 0.0)

        tilt = math.exp(_least(bound))
        guess = self._guess(tilt, epsilon, 0.0)
        width = max(tilt * (1 + tilt) * guess.deviation * math.sqrt(2 * math.pi), 1.0)
        moment = self.log_moment(tilt) - tilt * epsilon
        log_delta = min(moment - math.log(width), 0.0)
        self._look(self.reach(log_delta))
        return self._narrowest(self._guess(tilt, epsilon, log_delta))

    def _narrowest(self, guess: Guess, room: float = math.inf) -> Guess:
        """The tilt up to that of ``guess`` that needs the shortest window."""
        best = guess
        most = max(_ROOM - math.log(float(self._counts.sum())), _LEAST_ROOM)
        for share in _SHARES:
            tilt = share * guess.tilt
            excess = max(self.excess(tilt, guess.epsilon, guess.log_delta), 0.0)
            if not excess < min(most, room):
                break
            outside = max(LOG_OUTSIDE, _LOG_BESIDE + excess)
            trial = self._guess(tilt, guess.epsilon, guess.log_delta, outside)
            if trial.window < 0.8 * best.window:
                best = trial
        return guess.seen_as(best)

    def wider(self, guess: Guess, epsilon: float) -> Guess:
        """``guess`` with less outside its window, if delta is little of all.

        Beside rare large losses it is that at any tilt; the largest ones alone are
        seen at those from where on they are most, which grids are far too coarse for.
        """

        def beside(tilt: float) -> float:
            return _LOG_BESIDE + self.excess(tilt, epsilon, guess.log_delta)

        if not LOG_OUTSIDE + 1 < beside(guess.tilt) < _MOST_OUTSIDE:
            return guess
        most = {share * guess.slope: 0.0 for share in _SHARES}
        most = {t: max(beside(t), LOG_OUTSIDE) for t in (guess.tilt, *most)}
        least = min(most.values()) + _ALIKE
        best = min(
            (
                self._guess(tilt, epsilon, guess.log_delta, outside, _FEW_LARGE)
                for tilt, outside in most.items()
                if outside < least
            ),
            key=lambda one: one.window,
        )
        return guess.seen_as(best)

    def _finer(self, edges: Floats) -> None:
        """Put losses in the middle of ``edges``, by the chance of larger ones."""
        inside = (self._losses > edges[0]) & (self._losses < edges[-1])
        middle = np.broadcast_to(
            (edges[1:] + edges[:-1]) / 2, (len(inside), len(edges) - 1)
        )
        found = []
        for loss, log_q in zip(self._losses, self._log_q, strict=True):
            some, mass = np.argsort(loss), np.exp(log_q + loss)
            above = np.cumsum(mass[some][::-1])[::-1][1:]
            at = (loss[some][1:] + loss[some][:-1]) / 2
            above, at = np.maximum(above, 1e-300)[at > 0], at[at > 0]
            if not at.size:
                found.append(np.zeros(middle.shape[1]))
                continue
            logs = np.interp(np.log(edges), np.log(at), np.log(above), right=-700.0)
            first, last = (mass[loss > edges[0]].sum(), mass[loss >= edges[-1]].sum())
            beyond = np.clip(np.exp(logs), last, first)
            beyond[0], beyond[-1] = first, last  # so that no mass is lost
            found.append(-np.diff(beyond))
        with np.errstate(divide="ignore"):
            more = np.log(np.maximum(found, 0.0)) - middle
        self._losses = np.concatenate([self._losses, middle], axis=1)
        kept = np.where(inside, -np.inf, self._log_q)
        self._log_q = np.concatenate([kept, more], axis=1)

    def parted(
        self, guess: Guess, *, always: bool = False, spacing: float = 0.0
    ) -> Guess:
        """``guess``, with rare large losses apart where transforms' rounding matters.

        Where these make delta no tilt sees it well: with them it is little of all up
        to the tilt from which on the largest ones are most. Without them there is a
        saddle point, and of the rest all is as small as the chance of one of them.
        ``always``: wherever that is seen to help. ``spacing``: of the grid, if it is
        to be less than a part of its points. What is parted is parted anew.
        """
        if guess.whole is not None:
            guess = dataclasses.replace(
                guess.whole, epsilon=guess.epsilon, aims=guess.aims
            )
        epsilon, log_delta = guess.epsilon, guess.log_delta
        rounding = math.log(float(self._counts.sum()) * _ROUNDED)

        def excess(tilt: float) -> float:
            return self.excess(tilt, epsilon, log_delta)

        hidden = excess(guess.tilt)
        known = hidden + rounding <= _MOST_ROUNDED and not (always or spacing)
        known = known or log_delta < _LOG_LEAST
        if self._more or known or not epsilon < math.inf:
            return guess
        far = float(np.abs(self._losses[np.isfinite(self._log_q)]).max())
        least, most = epsilon * _CUTS[0], epsilon * _CUTS[1]
        if spacing:
            least, most = spacing / RARE_WIDTH, far / 2
        if not 1e-300 < least < most:
            return guess
        edges = np.geomspace(least, most, _TRIED)
        self._finer(edges)
        losses, whole = self._losses, self._log_q
        tilts = min(guess.slope, 0.9 * _MOST_TILTED / far) * np.array([1.0, *_SHARES])
        seen = {tilt: excess(tilt) for tilt in tilts.tolist()}
        best, parts = (math.inf, math.inf), None
        for cut in edges[_FIRST_CUT::_EACH_CUT].tolist():
            rare = np.where(losses > cut, whole + losses, -np.inf)
            beside, tilt = min(
                (
                    more
                    + special.logsumexp(rare + tilt * losses, b=self._counts[:, None]),
                    tilt,
                )
                for tilt, more in seen.items()
            )
            self._log_q = np.where(losses > cut, -np.inf, whole)
            steep = math.exp(_least(lambda log: excess(math.exp(log))))
            least = max(excess(steep), float(beside))
            if least < hidden:
                outside = max(LOG_OUTSIDE, _LOG_BESIDE + excess(steep))
                bulk = self._guess(steep, epsilon, log_delta, outside)
                self._log_q = whole
                outside = _LOG_BESIDE + max(seen[tilt], 0.0)
                rest = self._guess(tilt, epsilon, log_delta, outside, _FEW_LARGE)
                sizes = np.exp(whole + losses) * np.minimum(np.abs(losses), cut)
                moved = float(self._counts @ sizes.sum(axis=1))
                points = 0.0
                if spacing:
                    coarse = rare_spacing(cut, moved)
                    points = bulk.window / spacing + rest.window / max(coarse, spacing)
                if (points, least) < best:
                    best = points, least
                    new = {"cut": cut, "rest": rest, "whole": guess, "moved": moved}
                    parts = dataclasses.replace(guess.seen_as(bulk), **new)
            self._log_q = whole
        if parts is None or best[0] * spacing > guess.window / _SHORTER:
            return guess
        return parts

    def _guess(
        self,
        tilt: float,
        epsilon: float,
        log_delta: float,
        outside: float = LOG_OUTSIDE,
        tried: Floats = _STRENGTHS,
    ) -> Guess:
        (weight,), (log_moments,) = self._tilted(np.array([tilt]))
        here = float(self._counts @ log_moments)
        mean = (weight * self._losses).sum(axis=1)
        spread = (weight * (self._losses - mean[:, None]) ** 2).sum(axis=1)
        deviation = max(math.sqrt(float(self._counts @ spread)), 1e-150)

        strengths = tried / deviation
        changes = np.concatenate([-strengths, strengths])
        moments = self.log_moments(tilt + changes)
        ends = ((moments - here + outside) / np.abs(changes)).reshape(2, -1)
        down, up = ends.argmin(axis=1)
        window = max(float(ends[0, down] + ends[1, up]), deviation)
        others = slice(self._own, None)  # which are accounted on the grid's own cells
        return Guess(
            *(tilt, tilt, epsilon, log_delta, deviation),
            *(float(strengths[down]), float(strengths[up]), window),
            self._losses[others].ravel(),
            (weight * self._counts[:, None])[others].ravel(),
            *(spread[others], self._counts[others], outside),
        )

    def law(self, guess: Guess) -> Law:
        """About the law of the composed loss, on a window of its own."""
        here = self.log_moment(guess.tilt)
        low, high = (
            sign * (self.log_moment(guess.tilt + sign * t) - here + guess.outside) / t
            for sign, t in ((-1, guess.down), (1, guess.up))
        )
        spacing = max(high - low, 1e-300) / _LAW_POINTS
        (weight,), (moments,) = self._tilted(np.array([guess.tilt]))
        mean = (weight * self._losses).sum(axis=1)
        spread = (weight * (self._losses - mean[:, None]) ** 2).sum(axis=1)
        loud = int(np.argmax(spread))
        total = np.zeros(_LAW_POINTS // 2 + 1, complex)
        one = total
        live = np.arange(total.size)
        for i in np.argsort(-self._counts):
            some = weight[i] > 0
            at, mass = _between(
                np.clip(np.nan_to_num(self._losses[i, some] / spacing), -1e15, 1e15),
                weight[i, some],
                self._counts[i] * weight[i, some] < 1,
            )
            # On three points, which keep mean and variance: most losses may be far
            # smaller than the spacing.
            nearest = np.rint(at)
            off = at - nearest
            index = nearest.astype(np.int64)
            square = off * off
            dense = np.zeros(_LAW_POINTS)
            for beside, share in (
                (-1, (square - off) / 2),
                (0, 1 - square),
                (1, (square + off) / 2),
            ):
                point = (index + beside) % _LAW_POINTS
                dense += np.bincount(point, mass * share, _LAW_POINTS)
            with np.errstate(divide="ignore"):
                log = np.log(fft.rfft(dense))
            total[live] += (self._counts[i] - (i == loud)) * log[live]
            live = live[total[live].real > _LAW_LEAST]
            if i == loud:
                one = log
        at = math.floor(min(max(low / spacing, -1e15), 1e15)) + np.arange(_LAW_POINTS)
        where = at.astype(float) * spacing

        def seen(logs: NDArray[np.complex128], moment: float, **more: Any) -> Law:
            keep = np.zeros(total.size, complex)
            with np.errstate(over="ignore"):  # `is_known` says so
                keep[live] = np.exp(logs[live])
            found = np.maximum(fft.irfft(keep, _LAW_POINTS), 0.0)[at % _LAW_POINTS]
            waves = float(live.size)
            if live.size == total.size:
                waves = _mattering(guess, moment, high - low, np.abs(keep))
            known = (where, found, guess.tilt, moment, high - low)
            return Law(*known, (guess.down, guess.up), waves, guess.slope, **more)

        rest = seen(total, here - float(moments[loud]))
        step = self._steps[loud] if loud < len(self._steps) else None
        return seen(total + one, here, loud=step, rest=rest)


@dataclasses.dataclass(frozen=True)
class Law:
    """About the law of a composed loss: losses, and tilted masses there.

    ``rest`` is that of all but one step, ``loud``, whose loss spreads most; None if
    that is no step. ``ends`` are the changes of the tilt, down and up, that bound the
    window, ``waves`` about how many of its frequencies are not negligible; infinity if
    all that are seen.
    """

    losses: Floats
    tilted: Floats
    tilt: float
    log_moment: float
    window: float
    ends: tuple[float, float]
    waves: float
    slope: float
    loud: Step | None = None
    rest: Law | None = None

    @property
    def is_known(self) -> bool:
        """Return whether doubles hold it."""
        held = bool(np.isfinite(self.tilted).all()) and self.window < _WIDEST
        return held and math.isfinite(self.log_moment)

    def masses(self, epsilon: float) -> Floats:
        """P's masses, over exp(log_moment - tilt epsilon)."""
        exponent = np.clip(self.tilt * (epsilon - self.losses), -700.0, 700.0)
        with np.errstate(over="ignore"):
            return self.tilted * np.exp(exponent)

    def delta(self, epsilon: float) -> tuple[float, float]:
        """Log of delta, and minus its derivative: how fast that falls."""
        some = self.losses > epsilon
        ahead = self.losses[some] - epsilon
        mass = self.tilted[some] * np.exp(-self.tilt * ahead)
        value = float(mass @ -np.expm1(-ahead)) + 1e-300
        fall = float(mass @ np.exp(-ahead))
        log = self.log_moment - self.tilt * epsilon + math.log(value)
        return log, fall / value

    def epsilon(self, log_delta: float) -> float:
        """Epsilon >= 0 at which delta is about that."""
        low, high = 0.0, max(float(self.losses[-1]), 0.0)
        while high - low > 1e-4 * high + 1e-300:
            middle = (low + high) / 2
            if self.delta(middle)[0] > log_delta:
                low = middle
            else:
                high = middle
        return high

    def spread(self) -> Floats:
        """Losses between which there is about as much tilted mass."""
        sums = np.cumsum(self.tilted)
        parts = np.concatenate(
            [np.geomspace(1e-9, 0.02, 12), np.linspace(0.03, 0.5, 16)]
        )
        parts = np.concatenate([parts, 1 - parts[::-1]]) * sums[-1]
        return np.unique(np.interp(parts, sums, self.losses))

    def beside(self, points: Floats, aims: Floats, *, loud: bool) -> Floats:
        """P's mass above ``aims`` less each of ``points``, over the fall of delta.

        So that a step's loss there, moved by a square in the mean, moves epsilon by
        half of that times its density; shape (aims, points). Of what is composed with
        the ``loud`` step, or with another.
        """
        found = np.empty((aims.size, points.size))
        edges = np.append(self.losses, 2 * self.losses[-1] - self.losses[-2])
        edges -= 0.5 * (edges[1] - edges[0])
        rest = self.rest or self
        scale = math.exp(min(rest.log_moment - self.log_moment, 600.0))
        for i, aim in enumerate(aims.tolist()):
            mass = self.masses(aim)
            ahead = self.losses - aim
            fall = float(mass[ahead > 0] @ np.exp(-ahead[ahead > 0])) + 1e-100
            each = scale * rest.masses(aim) if loud else mass
            above = np.concatenate([np.cumsum(each[::-1])[::-1], [0.0]])
            above = np.minimum(above, 1e200 * min(fall, 1.0)) / fall
            found[i] = np.interp(aim - points, edges, above)
        return found


def _between(at: Floats, mass: Floats, rare: NDArray[np.bool]) -> tuple[Floats, Floats]:
    """The same law, of which what is ``rare`` is spread up to those beside it.

    ``at`` is in points. Others' losses do not fill the gaps of what happens once at
    most, and between would be no density at all.
    """
    order = np.argsort(at)
    at, mass, rare = at[order], mass[order], rare[order]
    edges = np.concatenate([at[:1], (at[1:] + at[:-1]) / 2, at[-1:]])
    wide = np.where(rare, np.diff(edges), 0.0)
    parts = np.clip(np.ceil(wide), 1, _MOST_BETWEEN).astype(np.int64)
    which = np.repeat(np.arange(at.size), parts)
    part = np.arange(which.size) - np.repeat(np.cumsum(parts) - parts, parts)
    among = edges[which] + (part + 0.5) / parts[which] * wide[which]
    return np.where(parts[which] > 1, among, at[which]), mass[which] / parts[which]


def _mattering(guess: Guess, moment: float, window: float, sizes: Floats) -> float:
    """About how many waves of ``sizes`` tell of delta; infinity if that is not seen.

    Each has 2 / window over |t + iw| |1 + t + iw| in its sum, w its frequency, and what
    may be left out is `LEFT_OUT` of delta.
    """
    if not (_LEAST_WINDOW < window < _WIDEST and np.isfinite(sizes).all()):
        return math.inf
    number = np.arange(sizes.size)
    turns = (2 * math.pi / window) * number
    add = np.hypot(guess.tilt, turns) * np.hypot(1 + guess.tilt, turns)
    add = 2 / window * sizes / np.maximum(add, 1e-300)
    beyond = float((add * number)[-(sizes.size // 8) :].max())  # if no more falls
    left = guess.log_delta - moment + guess.tilt * guess.epsilon
    left = LEFT_OUT * math.exp(min(max(left, _LOG_LEAST), 0.0)) - beyond
    if not left > 0:
        return math.inf
    return float(np.count_nonzero(np.cumsum(add[::-1]) > left))


def _least(bound: Callable[[float], float]) -> float:
    """Minimiser in [-12, 14] of a function with one valley, by golden section."""
    ratio = (math.sqrt(5) - 1) / 2
    a, b = -12.0, 14.0
    c, d = b - ratio * (b - a), a + ratio * (b - a)
    at_c, at_d = bound(c), bound(d)
    while b - a > 0.02:
        if at_c < at_d:
            b, d, at_d = d, c, at_c
            c = b - ratio * (b - a)
            at_c = bound(c)
        else:
            a, c, at_c = c, d, at_d
            d = a + ratio * (b - a)
            at_d = bound(d)
    return (a + b) / 2


def _within(loss: Floats, log_q: Floats, reach: float) -> tuple[Floats, Floats]:
    """Drop the largest losses, which have less of P's mass than Phi(-reach)."""
    order = np.argsort(-loss)
    beyond = np.cumsum(np.exp(log_q[order] + loss[order]))
    some = order[beyond > special.ndtr(-reach)]
    return (loss[some], log_q[some]) if some.size else (loss, log_q)


def _quadrature(
    step: Step, direction: Direction, reach: float
) -> tuple[Floats, Floats]:
    """Losses at outputs x, and log of Q's mass around each x (trapezoid)."""
    m, q = step.shift, step.rate
    x: Floats
    loss: Floats
    if step.noise == "laplace":
        inner = np.linspace(-m, m, 201)
        loss = np.concatenate([[-m], (inner[1:] + inner[:-1]) / 2, [m]])
        x = (loss + m) / 2
        log_a = np.log(0.5) - x
        # Exact, of P and Q: log 2 sinh of half a cell.
        log_a[1:-1] += m / 400 + math.log(-math.expm1(-m / 200))
        log_a[0], log_a[-1] = np.log(0.5), np.log(0.5) - m
    else:
        # As far as tilts that matter can reach, at a step that the trapezoid forgives.
        far = 12 + 4 * m + 24
        apart = 0.4 if m < 2 else 0.2
        low, high = max(-far, -reach), min(far, float(upper_reach(m, q, reach)) + m)
        if step.scheme == "replace":
            low = -high
        points = int(min(max((high - low) / apart, 40), 2000))
        x = np.linspace(low, high, points, dtype=np.float64)
        if step.scheme == "fixed":
            # Half of the line is used, from where the loss is 0: cells end there.
            half = np.arange(0.5, 4 * points) / (4 * points)
            x = m / 2 + (high - m / 2) * half
        loss = m * x - m * m / 2
        log_a = -0.5 * x * x - _LOG_SQRT_TAU + math.log(x[1] - x[0])
    ratio = _log_mix(loss, q)
    if step.scheme == "replace":
        other = _log_mix(-loss - m * m, q) if step.noise == "gaussian" else -ratio
        return ratio - other, log_a + other
    if step.scheme == "fixed":
        up = ratio > 0
        rest = np.array([0.0])
        # What is neither above 0 nor below: the rest of the pair's mass.
        stay = np.array([math.log(max((1 - q) * total_variation(step), 1e-300))])
        return (
            np.concatenate([-ratio[up], rest, ratio[up]]),
            np.concatenate([(log_a + ratio)[up], stay, log_a[up]]),
        )
    if direction == "remove":
        return ratio, log_a
    return -ratio, log_a + ratio


def _log_mix(loss: Floats, rate: float) -> Floats:
    return loss if rate == 1 else np.logaddexp(math.log1p(-rate), math.log(rate) + loss)
