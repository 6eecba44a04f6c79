"""Theorem 2 of the A(DP)2SGD paper: its noise, and both its conditions.

The theorem asks for noise of variance sigma^2 = 20 G^2 T alpha / (K^2 n^2 mu epsilon)
with alpha = log(1/delta) / ((1 - mu) epsilon) + 1, for some mu in (0, 1) with

    epsilon <= 10 B^2 T alpha / (3 K^2 n^2 mu)                            (i)
    alpha <= log(K^3 n^3 mu epsilon / (K^2 n^2 mu epsilon B + 5 T alpha B^3))   (ii)

Three things are not as its proof has them. Its sensitivity 2G/B is that of the mean of
a batch, while the algorithm adds the noise to the sum: a factor of B too little. Its
sampling rate B/(K n) counts on the secret of which worker is drawn, which the others
see: a worker's rate is B/n, over the steps that this worker makes: the theorem of one
worker, times B on the sum, has both right. And often no mu meets the conditions: then
there is no theorem, and these functions raise.

*Which mu are admissible is decided, not sampled.* Times mu (1 - mu) > 0, (i) is a
quadratic inequality. (ii) is h(mu) <= 0 with h = alpha + log(K^2 n^2 epsilon B + 5 T
B^3 alpha / mu) - log(K^3 n^3 epsilon); alpha is convex in mu, and alpha/mu is a sum of
1/mu and 1/(1 - mu), which are log-convex, so that h is convex: (ii) holds on one
interval, or nowhere if it fails at the minimum.

References
----------
Xu, Zhang and Wang, "A(DP)2SGD: asynchronous decentralized parallel stochastic gradient
descent with differential privacy", Theorem 2. Wang, Balle and Kasiviswanathan,
arXiv:1808.00087, for the sampling lemma behind it.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable

from privaudit.files.arguments import Checked
from privaudit.task_settings import Inside, Positive


@dataclasses.dataclass(frozen=True, slots=True)
class TheoremTwo(Checked):
    """The setting of the theorem, for one (epsilon, delta)."""

    steps: Positive  # T: all workers' steps together
    workers: Positive  # K
    records: Positive  # n_(1): size of the smallest local data set
    batch: Positive  # B, at most ``records``
    # epsilon, delta: the budget
    epsilon: Positive
    delta: Inside
    lipschitz: Positive = 1.0  # G: largest norm of a record's gradient

    def __post_init__(self) -> None:
        Checked.__post_init__(self)
        if self.batch > self.records:
            raise ValueError(
                f"a batch of {self.batch} exceeds a worker's {self.records} records"
            )

    def order(self, mu: float) -> float:
        """alpha at ``mu``."""
        return math.log(1 / self.delta) / ((1 - mu) * self.epsilon) + 1

    def sigma(self, mu: float) -> float:
        """The theorem's noise at ``mu``, whether or not its conditions hold."""
        self._check(mu)
        data = (self.workers * self.records) ** 2
        variance = 20 * self.lipschitz**2 * self.steps * self.order(mu)
        return math.sqrt(variance / (data * mu * self.epsilon))

    def slacks(self, mu: float) -> tuple[float, float]:
        """Slack of each condition at ``mu``, in units of epsilon and of alpha."""
        self._check(mu)
        alpha, data = self.order(mu), (self.workers * self.records) ** 2
        first = 10 * self.batch**2 * self.steps * alpha / (3 * data * mu) - self.epsilon
        below = data * self.epsilon * self.batch
        below += 5 * self.steps * self.batch**3 * alpha / mu
        second = math.log(data * self.workers * self.records * self.epsilon / below)
        return first, second - alpha

    def admissible(self) -> tuple[tuple[float, float], ...]:
        """All mu that meet both conditions, as closed intervals, rounded inwards."""
        second = self._second_condition()
        found = [] if second is None else self._where_first_holds(*second)
        if not found:
            raise ValueError(self._why_none(second))
        return tuple(found)

    def least_sigma(self) -> tuple[float, float]:
        """The least noise over all admissible mu, and the mu that has it."""
        best = (
            _minimum(lambda mu: self.order(mu) / mu, low, high)
            for low, high in self.admissible()
        )
        mu = min(best, key=self.sigma)
        return self.sigma(mu), mu

    def _second_condition(self) -> tuple[float, float] | None:
        bottom, top = 1e-12, 1 - 1e-12

        def excess(mu: float) -> float:
            return -self.slacks(mu)[1]

        least = _minimum(excess, bottom, top)
        if excess(least) > 0:
            return None
        return (
            _edge(lambda mu: excess(mu) <= 0, inside=least, outside=bottom),
            _edge(lambda mu: excess(mu) <= 0, inside=least, outside=top),
        )

    def _where_first_holds(self, low: float, high: float) -> list[tuple[float, float]]:
        def holds(mu: float) -> bool:
            return self.slacks(mu)[0] >= 0

        # c mu^2 - (c + d) mu + d (1 + log(1/delta)/epsilon) >= 0, least in the middle.
        c = 3 * (self.workers * self.records) ** 2 * self.epsilon
        d = 10 * self.batch**2 * self.steps
        middle = min(max((c + d) / (2 * c), low), high)
        if holds(middle):
            return [(low, high)]
        pieces = []
        if holds(low):
            pieces.append((low, _edge(holds, inside=low, outside=middle)))
        if holds(high):
            pieces.append((_edge(holds, inside=high, outside=middle), high))
        return pieces

    def _why_none(self, second: tuple[float, float] | None) -> str:
        setting = (
            f"T = {self.steps:g}, K = {self.workers:g}, n = {self.records:g}, "
            f"B = {self.batch:g}, epsilon = {self.epsilon:g}, delta = {self.delta:g}"
        )
        if second is None:
            mu = _minimum(lambda mu: -self.slacks(mu)[1], 1e-12, 1 - 1e-12)
            reason = (
                f"alpha exceeds the logarithm by at least {-self.slacks(mu)[1]:.3g} "
                f"(at mu = {mu:.3g})"
            )
        else:
            reason = (
                f"those that meet the second, {second[0]:.3g} to {second[1]:.3g}, all "
                "break the first"
            )
        return (
            f"no mu in (0, 1) meets both conditions of the theorem at {setting}: "
            f"{reason}; account the run by rdp or pld instead"
        )

    @staticmethod
    def _check(mu: float) -> None:
        if not 0 < mu < 1:
            raise ValueError(f"mu must be in (0, 1), got {mu}")


def _minimum(function: Callable[[float], float], low: float, high: float) -> float:
    """Minimiser of a convex function, by golden section."""
    ratio = (math.sqrt(5) - 1) / 2
    left, right = high - ratio * (high - low), low + ratio * (high - low)
    at_left, at_right = function(left), function(right)
    while high - low > 1e-15 * high and low < left < right < high:
        if at_left <= at_right:
            high, right, at_right = right, left, at_left
            left = high - ratio * (high - low)
            at_left = function(left)
        else:
            low, left, at_left = left, right, at_right
            right = low + ratio * (high - low)
            at_right = function(right)
    return min((low, left, right, high), key=function)


def _edge(holds: Callable[[float], bool], *, inside: float, outside: float) -> float:
    """The last point towards ``outside`` at which ``holds`` is still True."""
    if holds(outside):
        return outside
    for _ in range(200):  # invariant: holds(inside), not holds(outside)
        middle = (inside + outside) / 2
        if middle in (inside, outside):
            break
        inside, outside = (middle, outside) if holds(middle) else (inside, middle)
    return inside
