"""The canaries of one run against the trade-off curve of the run's own ledger.

The hypothesis is a family: the releases of the ledger, all noise times a common factor
c. Each has a trade-off function f_c, which increases with c; the test of Mahloujifar,
Melis and Chaudhuri (2024) holds for any f, and rejects the more easily the larger f is.
What is returned is epsilon of a factor that is refuted: it exceeds the true epsilon
only if a factor below the true one, hence the true one too, was refuted, which happens
with probability at most alpha. Canaries may depend on each other in any way that f-DP
leaves.

f_c is taken from below: f(a) >= exp(-epsilon) (1 - delta - a) and 1 - delta -
exp(epsilon) a at points of the certified profile (Dong, Roth and Su 2022, eq. 5).
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from privaudit.accounting import Certificate
from privaudit.accounting.allocation import is_allocated
from privaudit.accounting.pld import compose_entries
from privaudit.auditing.bounds.contract import Evidence, Found
from privaudit.auditing.bounds.ledger_family import noise_family, scaled
from privaudit.auditing.bounds.one_run import Guesses, OneRunGaussian, curve_refuted
from privaudit.auditing.bounds.top_half import NoiseFamily, least_noise_refuted
from privaudit.auditing.scores import Scores
from privaudit.ledger import Entry, Ledger
from privaudit.results import Relation

_POINTS = 24  # of a profile
_TOLERANCE = 5e-3  # of the noise, relative

LeastOf = Callable[[float], float]


@dataclasses.dataclass(frozen=True, slots=True)
class OneRunOfFamily(OneRunGaussian):
    """Epsilon, within a family, of the most noise that is not refuted in one run."""

    name: ClassVar[str] = "one-run-family"

    family: NoiseFamily = dataclasses.field(kw_only=True)  # its accounts
    # from a factor of the noise to the least probability under a neighbour of an event
    # of a given probability, from below
    curve: Callable[[float], LeastOf] = dataclasses.field(kw_only=True)

    @property
    def valid_for(self) -> str:
        """The family's name."""
        return self.family.name

    @property
    def limited_by_runs(self) -> bool:
        """False: it ends at the least noise of the family."""
        return False

    def find(self, scores: Scores, delta: float, alpha: float, seed: int) -> Found:
        canaries = len(scores)
        guesses = self.guesses(scores, alpha, seed)

        def refuting(noise: float) -> Guesses | None:
            least = self.curve(noise)
            return next(
                (
                    one
                    for one in guesses
                    if curve_refuted(canaries, one.made, one.right, least, one.level)
                ),
                None,
            )

        family = self.family
        noise = least_noise_refuted(
            lambda noise: refuting(noise) is not None,
            family.least_noise,
            family.most_noise,
            _TOLERANCE,
        )
        if noise is None:
            note = "no more right guesses than by chance"
            return 0.0, Evidence(testing_runs=canaries, note=note)
        return family.epsilon_down(noise, delta), Evidence(
            testing_runs=canaries, note=str(refuting(noise))
        )


def _profile(
    entries: tuple[Entry, ...], relation: Relation
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Epsilons >= 0, and at each an upper bound on delta in both directions."""
    if any(map(is_allocated, entries)):
        certificate = Certificate.of(Ledger(nodes=(entries,)), relation)
        epsilons, _, deltas = certificate.profile(
            _POINTS, 1e-6, 0.02, "upper", most=50.0
        )
        return epsilons, deltas
    composed = compose_entries(entries, relation)
    epsilons, deltas = composed.lines()
    if len(composed.directions) > 1:
        # delta is convex in e^epsilon: chords lie above it, and it falls beyond.
        others, more = composed.lines("add")
        more = np.interp(np.exp(epsilons), np.exp(others), more)
        deltas = np.maximum(deltas, more)
    return epsilons[epsilons >= 0], deltas[epsilons >= 0]


@functools.lru_cache(maxsize=8)  # its curves serve all that is scored in such a run
def one_run_family(
    entries: tuple[Entry, ...],
    relation: Relation,
    shares: tuple[float, ...],
    weights: tuple[float, ...],
    one_sided: int = 0,
) -> OneRunOfFamily:
    """The estimator that holds within the family of ``entries``; see `noise_family`."""
    family = noise_family(entries, relation)

    @functools.cache
    def curve(factor: float) -> LeastOf:
        epsilons, deltas = _profile(scaled(entries, factor), relation)
        up, down = np.exp(epsilons), np.exp(-epsilons)

        def least(hit: float) -> float:
            first = 1 - deltas - up * (1 - hit)
            second = down * (hit - deltas)
            return max(0.0, float(np.maximum(first, second).max()) - 1e-12)

        return least

    return OneRunOfFamily(
        shares=shares, weights=weights, one_sided=one_sided, family=family, curve=curve
    )
