"""A pair with countably many outputs, each an atom of the loss of its own."""

from __future__ import annotations

import math

import numpy as np
from scipy import special

from privaudit.accounting.pld.line import UNIT, Floats
from privaudit.accounting.pld.mechanisms.loss import Pair


class Atoms(Pair):
    """Outputs with logs of chances ``log_p`` and ``log_q``, exact to ``far`` units.

    ``top``, ``null``: masses where the other has none. ``lattice``: losses' unit.
    """

    def __init__(
        self,
        log_p: Floats,
        log_q: Floats,
        *,
        top: float = 0.0,
        null: float = 0.0,
        lattice: float | None = None,
        far: float = 64.0,
    ) -> None:
        loss = log_p - log_q
        order = np.argsort(loss, kind="stable")
        self.loss, self.log_p, self.log_q = loss[order], log_p[order], log_q[order]
        self.top, self.null, self._lattice = top, null, lattice
        logs = np.concatenate([log_p, log_q, [1.0]])
        self.accuracy = UNIT * (64 + far + 16 * float(np.abs(logs).max()))

    @classmethod
    def of(cls, p: Floats, q: Floats) -> Atoms:
        """From chances, some perhaps 0, taken as exact; both divided by their sums."""
        p, q = p / math.fsum(p), q / math.fsum(q)
        both = (p > 0) & (q > 0)
        top, null = math.fsum(p[q == 0]), math.fsum(q[p == 0])
        return cls(np.log(p[both]), np.log(q[both]), top=top, null=null)

    @property
    def symmetric(self) -> bool:  # pyrefly: ignore[bad-override]
        """Return whether the reversed pair has the same atoms."""
        return (
            self.top == self.null
            and np.array_equal(self.log_p, self.log_q[::-1])
            and np.array_equal(self.log_q, self.log_p[::-1])
        )

    @property
    def lattice(self) -> float | None:
        return self._lattice

    def masses(self, edges: Floats) -> tuple[Floats, Floats, float]:
        at = np.searchsorted(edges, self.loss, "right")
        found = []
        for logs in (self.log_p, self.log_q):
            sums = np.full(edges.size + 1, -np.inf)
            if at.size == np.unique(at).size:
                sums[at] = logs
            else:
                np.logaddexp.at(sums, at, logs)
            found.append(sums)
        return found[0], found[1], self.accuracy

    def span(self, reach: float) -> tuple[float, float]:
        if not self.loss.size:
            return 0.0, 0.0
        tail = float(special.log_ndtr(-reach))
        ends = []
        for step in (1, -1):
            beyond = np.logaddexp.accumulate(np.maximum(self.log_p, self.log_q)[::step])
            ends.append(int(np.searchsorted(beyond, tail)))
        last = self.loss.size - 1
        low, high = min(ends[0], last), max(last - ends[1], 0)
        return float(self.loss[min(low, high)]), float(self.loss[max(low, high)])

    def extremes(self) -> tuple[float, float]:
        if not self.loss.size:
            return 0.0, 0.0
        low, high = float(self.loss[0]), float(self.loss[-1])
        return low - 2 * self.accuracy, high + 2 * self.accuracy

    def sketch(self) -> tuple[Floats, Floats]:
        most = 4000
        if self.loss.size <= most:
            return self.loss, self.log_q
        # The heaviest under P, Q and between; the rest is of no account for a guess.
        some = np.sort(np.argsort(np.logaddexp(self.log_p, self.log_q))[-most:])
        return self.loss[some], self.log_q[some]

    def distance(self) -> float:
        p, q = np.exp(self.log_p), np.exp(self.log_q)
        most = float(np.maximum(p - q, 0).sum()) + self.top
        return min(1.0, most + 4 * self.accuracy)

    def divergence(self, order: float) -> float:
        if self.top or self.null:
            return math.inf
        low, high = self.extremes()
        if order == math.inf:
            return max(high, -low)
        found = []
        for loss, log_q in ((self.loss, self.log_q), (-self.loss, self.log_p)):
            exponent = order * loss + log_q
            top = float(exponent.max())
            log = top + math.log(float(np.exp(exponent - top).sum()))
            found.append((log + 4 * order * self.accuracy) / (order - 1))
        return max(*found, 0.0) * (1 + 1e-14)
