"""Mechanisms of which a Renyi divergence D_a is bounded at some orders a, or at all.

delta(epsilon) <= exp((a - 1) (D_a - epsilon)) (1 - 1/a)^a / (a - 1) for every order
(Canonne, Kamath and Steinke, arXiv:2004.00010, Proposition 12), and <= sqrt(1 -
exp(-D_a)) (Bretagnolle and Huber; D_a >= D_1). Where some (epsilon, delta) are known
besides, H is at most their chords, being convex. The least of all bounds H at every
grid point with a >= 1; for a < 1 H_a(P, Q) = 1 - a + a H_{1/a}(Q, P), and the curve is
of both directions. `profile.measure_of` makes a measure of that. Poisson sampling with
rate q: H_a = q H_{(a - 1 + q) / q} for a > 1 - q in the direction of a removed record,
1 - a below; the other direction is its mirror image.

The curves of several add up to that of their composition (Mironov 2017), which bounds
it better than the measures' composition does: `added` merges what is not sampled.
From below: nothing, since the mechanism that was run may give less than its curve.
"""

from __future__ import annotations

import math

import numpy as np

from privaudit.accounting.pld.cells import Direction
from privaudit.accounting.pld.dots import GridMeasure
from privaudit.accounting.pld.line import UNIT, Floats, unsampled_loss
from privaudit.accounting.pld.mechanisms.loss import Loss, sampled_divergence
from privaudit.accounting.pld.mechanisms.profile import MOST_POINTS, measure_of
from privaudit.mechanisms import RDP, ZCDP

_COARSE = 300  # points above 0 of what is only looked at
_LEAST = 1e-30  # delta at which the grid ends
_ORDERS = 1 + np.geomspace(1e-4, 1e7, 200)


class Curve(Loss):
    """D_a <= ``xi`` + ``rho`` a, or at ``orders`` the ``divergences``; sampled."""

    points = MOST_POINTS

    def __init__(self, curve: ZCDP | RDP, rate: float) -> None:
        self.curve, self.rate = curve, rate
        if isinstance(curve, ZCDP):
            self.orders = _ORDERS
            with np.errstate(over="ignore"):
                self.divergences = curve.xi + curve.rho * _ORDERS
        else:
            orders, found = np.array(curve.orders), np.array(curve.divergences)
            some = np.isfinite(orders)
            self.orders, self.divergences = orders[some], found[some]
            if not some.all():  # D_a <= D_infinity
                best = np.full(_ORDERS.size, found[~some].min())
                self.divergences = np.minimum(self.divergences, best[0])
                self.orders = np.append(self.orders, _ORDERS)
                self.divergences = np.append(self.divergences, best)

    @property
    def symmetric(self) -> bool:  # pyrefly: ignore[bad-override]
        return self.rate == 1

    @property
    def attained(self) -> tuple[Loss, ...]:
        return ()

    def _delta(self, epsilon: Floats) -> Floats:
        """delta without sampling at ``epsilon`` >= 0, rounded up."""
        least = np.full(epsilon.shape, 1.0)
        log = np.full(epsilon.shape, np.inf)
        for order, rdp in zip(self.orders, self.divergences, strict=True):
            if not math.isfinite(rdp):
                continue
            least = np.minimum(least, math.sqrt(-math.expm1(-rdp)))
            fixed = (order - 1) * math.log1p(-1 / order) - math.log(order)
            slack = 1e-14 * (order - 1) * (rdp + epsilon + 1) + 1e-14 * abs(fixed)
            log = np.minimum(log, (order - 1) * (rdp - epsilon) + fixed + slack)
        found = np.minimum(least, np.exp(np.minimum(log, 0.0))) * (1 + 1e-14)
        if isinstance(self.curve, RDP) and self.curve.epsilons:
            at = np.exp(np.minimum(epsilon, 701.0) * (1 - 1e-15))
            chords = np.interp(at, np.exp(self.curve.epsilons), self.curve.deltas)
            found = np.minimum(found, chords * (1 + 1e-11))
        return found

    def _profile(self, loss: Floats) -> Floats:
        """H at exp(loss) in the direction of a removed record, rounded up."""
        with np.errstate(over="ignore"):
            inner = unsampled_loss(loss, self.rate)
            found = np.empty(loss.shape)
            high = inner >= 0
            found[high] = self.rate * self._delta(inner[high])
            low = inner[~high]
            a = np.exp(low)
            mirrored = -np.expm1(low) + a * self._delta(np.minimum(-low, 1e4))
            found[~high] = self.rate * mirrored
        # Below the sampled losses, and as a margin for rounding everywhere.
        none = -np.expm1(np.minimum(loss, 0.0))
        return np.clip(np.maximum(found, none) * (1 + 1e-12) + 1e-300, 0.0, 1.0)

    def _ends(self) -> float:
        """Loss beyond which delta is below what matters."""
        high = 1.0
        while float(self._delta(np.array([high]))[0]) > _LEAST and high < 600:
            high *= 1.5
        return min(high, 600.0)

    def above(self, way: Direction, spacing: float, reach: float) -> GridMeasure:
        top = self._ends()
        stop = max(2, min(math.ceil(top / spacing), MOST_POINTS // 2))
        loss = np.arange(-stop, stop + 1, dtype=np.float64) * spacing
        if way == "remove":
            dots = self._profile(loss)
        else:
            up = loss > 0
            dots = np.empty(loss.shape)
            dots[up] = self._added(loss[up])
            low = loss[~up]
            dots[~up] = -np.expm1(low) + np.exp(low) * self._profile(-low)
        return measure_of(dots * (1 + 1e-9), -stop, spacing)

    def _added(self, loss: Floats) -> Floats:
        """H of an added record at exp(loss) > 1, without cancellation.

        With b from 1/a = 1 - q + q b: 1 - a + a q H_b(P, Q), and H_b = 1 - b +
        b H_{1/b}(Q, P), is a q b H_{1/b}(Q, P), and 0 where b is below 0.
        """
        inner = unsampled_loss(-loss, self.rate)
        with np.errstate(over="ignore", invalid="ignore"):
            found = np.exp(loss + np.maximum(inner, -1e4)) * self.rate
            found = found * self._delta(np.minimum(-inner, 1e4))
        return np.where(np.isfinite(inner), found, 0.0) * (1 + 1e-12) + 1e-300

    def sketch(self, way: Direction) -> tuple[Floats, Floats]:
        """See `Loss`: of a coarse measure."""
        spacing = self._ends() / _COARSE
        found = self.above(way, spacing, 0.0)
        some = found.mass > 0
        if not some.any():  # nothing is bounded
            return np.zeros(1), np.zeros(1)
        index = found.start + np.flatnonzero(some)
        loss = np.asarray(index * spacing, np.float64)
        return loss, np.log(found.mass[some]) - loss

    def length(self, reach: float) -> float:
        return 2 * self._ends()

    def range(self, way: Direction) -> tuple[float, float]:
        pure = self.divergence(math.inf)
        return pure, pure

    def distance(self) -> float:
        return self.rate * float(self._delta(np.zeros(1))[0])

    def divergence(self, order: float) -> float:
        """See `Loss`: divergences grow with the order."""
        if isinstance(self.curve, ZCDP):
            whole = self.curve.xi + (self.curve.rho * order if self.curve.rho else 0.0)
        else:
            known = zip(self.curve.orders, self.curve.divergences, strict=True)
            whole = min((d for a, d in known if a >= order), default=math.inf)
        return sampled_divergence(whole * (1 + 4 * UNIT), self.rate, order)


def added(curves: list[tuple[ZCDP | RDP, float]]) -> list[tuple[ZCDP | RDP, float]]:
    """Curves with their counts, added up where their sum is again a curve."""
    rho = math.fsum(c.rho * n for c, n in curves if isinstance(c, ZCDP))
    xi = math.fsum(c.xi * n for c, n in curves if isinstance(c, ZCDP))
    sums: dict[tuple[float, ...], np.ndarray] = {}
    known = [(c, n) for c, n in curves if isinstance(c, RDP) and c.epsilons]
    for curve, count in curves:
        if isinstance(curve, RDP) and not curve.epsilons:
            total = sums.setdefault(curve.orders, np.zeros(len(curve.orders)))
            total += count * np.array(curve.divergences)
    if len(sums) == 1 and (rho or xi):  # at these orders zCDP is a curve as well
        (orders,) = sums
        sums[orders] += xi + rho * np.array(orders)
        rho = xi = 0.0
    found: list[tuple[ZCDP | RDP, float]] = [*known]
    up = 1 + 8 * UNIT
    if rho or xi:
        found.append((ZCDP(min(rho * up, 1e4), min(xi * up, 1e4)), 1.0))
        if max(rho, xi) > 9e3:
            raise ValueError(
                "zCDP curves with rho or xi above 9000 in all bound nothing; use less"
            )
    found += [(RDP(orders, tuple(sum_ * up)), 1.0) for orders, sum_ in sums.items()]
    return found
