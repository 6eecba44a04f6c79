"""A Gaussian sum of a Poisson batch cut to at most B records at random.

Let n records be in the data set that has the record x, and K of the n - 1 others be
drawn; K has the same law in both worlds. Whoever sees also whether K >= B and then the
batch that would have been without x, sees no less than what is released.

- K < B: x comes in with chance q, nothing is cut: N(C) with chance q against N(0).
- K >= B: without x the batch is some B of the K. With x it is the same, or, with some
  chance r, one of them, y, has left its place to x; all such choices are alike, so that
  r does not depend on the batch. The sum moves by x - y, of norm at most 2 C: given y,
  N(x - y) with chance r against N(0), which is dominated by a shift of 2 C (H grows
  with the shift), and so is a mean over y by convexity.

The pair is a mixture of both, known apart: losses' masses add with weights P(K < B)
and P(K >= B). r = q E[B / (K + 1) | K >= B] = B P(M > B) / (n P(K >= B)), M the number
drawn of n. A record replaced: x and x' in the same place, in one batch at once, 2 C
from each other and from y, or C and opposite (``pld.md``, "Poisson, replace one").
From below: all other records are 0; then x is in with chance (1 - t) q + t r, t =
P(K >= B).
"""

from __future__ import annotations

import dataclasses
import math

import numpy as np
from scipy import special

from privaudit.accounting.pld.cells import Direction, Scheme, Step
from privaudit.accounting.pld.dots import GridMeasure, measure_above
from privaudit.accounting.pld.line import Floats
from privaudit.accounting.pld.mechanisms.loss import MOST_CELLS, Loss
from privaudit.accounting.pld.mechanisms.noise import Gaussian, loss_cells
from privaudit.mechanisms import TruncatedPoisson
from privaudit.results import Relation

# Relative, of scipy's incomplete beta functions; a thousand times what was measured
# against mpmath with up to 1e9 records.
_SLACK, _SLACK_EACH = 1e-10, 1e-17


@dataclasses.dataclass(frozen=True)
class _Mixed(Loss):
    """Steps known apart, with chances that sum to 1 or a little more."""

    steps: tuple[tuple[Step, float], ...]
    least: Gaussian | None

    @property
    def symmetric(self) -> bool:  # pyrefly: ignore[bad-override]
        return all(step.scheme != "poisson" for step, _ in self.steps)

    @property
    def attained(self) -> tuple[Loss, ...]:
        return () if self.least is None else (self.least,)

    def above(self, way: Direction, spacing: float, reach: float) -> GridMeasure:
        """See `Loss`: the parts' measures add."""
        each = (
            loss_cells(step, way, spacing, reach, MOST_CELLS) for step, _ in self.steps
        )
        parts = [
            (measure_above(cells, spacing), w)
            for cells, (_, w) in zip(each, self.steps, strict=True)
        ]
        start = min(part.start for part, _ in parts)
        mass = np.zeros(max(part.start + part.mass.size for part, _ in parts) - start)
        for part, weight in parts:
            at = part.start - start
            mass[at : at + part.mass.size] += weight * part.mass
        infinite = math.fsum(w * part.infinite for part, w in parts)
        accuracy = max(part.accuracy for part, _ in parts) + 1e-15
        return GridMeasure(start, mass, infinite, accuracy)

    def sketch(self, way: Direction) -> tuple[Floats, Floats]:
        parts = [
            (*Gaussian(step.shift, step.rate).sketch(way), math.log(w))
            for step, w in self.steps
        ]
        return (
            np.concatenate([loss for loss, _, _ in parts]),
            np.concatenate([log_q + log_w for _, log_q, log_w in parts]),
        )

    def length(self, reach: float) -> float:
        return max(Gaussian(s.shift, s.rate).length(reach) for s, _ in self.steps) * 2

    def distance(self) -> float:
        """See `Loss`: replaced, q times what two opposite records give."""
        parts = []
        for step, weight in self.steps:
            far = 2 if step.scheme == "replace" else 1
            part = step.rate * math.erf(far * step.shift / math.sqrt(8))
            parts.append(weight * part)
        return min(1.0, math.fsum(parts) * (1 + 1e-12))


def loss(mechanism: TruncatedPoisson, relation: Relation) -> Loss:
    """Loss of one release."""
    q, n, most = mechanism.sampling_rate, mechanism.records, mechanism.batch_size
    shift = 1 / mechanism.noise_multiplier
    slack = _SLACK + _SLACK_EACH * n
    cut, kept, full = 0.0, 1.0, 0.0
    if most <= n - 1:
        # P(K >= B), P(K < B) and P(M > B): a difference of two would lose small ones.
        cut = float(special.betainc(most, n - most, q))
        kept = float(special.betaincc(most, n - most, q))
        full = float(special.betainc(most + 1, n - most, q))
    rate = min(1.0, most * full / n / cut) if cut > 1e-250 else 1.0
    share = (kept * q + cut * rate) * (1 - 4 * slack)
    rate_up = min(1.0, rate * (1 + 4 * slack))
    cut, kept = (min(1.0, one * (1 + slack) + 1e-300) for one in (cut, kept))
    scheme: Scheme = "poisson" if relation == "add-or-remove-one" else "replace"
    parts = [(_step(scheme, shift, q), kept), (_step(scheme, 2 * shift, rate_up), cut)]
    least = Gaussian(shift, share) if scheme == "poisson" else None
    used = tuple((s, w) for s, w in parts if w > 1e-300 and s.rate > 0)
    return _Mixed(used, least)


def _step(scheme: Scheme, shift: float, rate: float) -> Step:
    if scheme == "replace" and rate == 1:  # N(shift) against N(-shift)
        return Step("gaussian", "poisson", 2 * shift, 1.0)
    return Step("gaussian", scheme, shift, rate)
