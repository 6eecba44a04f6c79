"""Certified brackets from a paper's settings."""

from __future__ import annotations

import functools
import math

from privaudit.accounting import Certificate, noise_multiplier
from privaudit.claims.claim import Certified
from privaudit.ledger import Ledger
from privaudit.release import (
    NoSampling,
    PoissonSampling,
    Release,
    Sampling,
    SamplingWithoutReplacement,
)
from privaudit.results import Relation

_WIDTH = 2e-3  # of brackets, relative


def releases(
    noise: float, steps: int, sampling: Sampling, *, moved: float = 1.0
) -> Ledger:
    """``steps`` noisy sums of vectors of norm <= ``moved``, noise in their unit."""
    release = Release.of_sum(
        norm_bound=moved, noise_multiplier=noise / moved, sampling=sampling
    )
    return Ledger.of(release, steps)


def poisson(noise: float, steps: int, rate: float) -> Ledger:
    """Poisson batches, noise over clip norm."""
    return releases(noise, steps, PoissonSampling(rate))


def fixed(noise: float, steps: int, size: int, population: int) -> Ledger:
    """Batches of fixed size."""
    return releases(noise, steps, SamplingWithoutReplacement(size, population))


def single(noise: float, steps: int = 1, *, moved: float = 1.0) -> Ledger:
    """No sampling."""
    return releases(noise, steps, NoSampling(), moved=moved)


@functools.cache
def bracket(
    ledger: Ledger, delta: float, relation: Relation = "add-or-remove-one"
) -> Certified:
    """Bracket of a ledger's epsilon, proved from both sides, without assumptions."""
    return Certified.of(Certificate.of(ledger, relation).epsilon(delta, _WIDTH))


@functools.cache
def calibrated(
    kind: str,
    epsilon: float,
    delta: float,
    *numbers: float,
    relation: Relation = "add-or-remove-one",
) -> tuple[float, Certified]:
    """Least noise that is certified for (epsilon, delta), and what it is certified for.

    "poisson", steps, rate; "fixed", steps, size, population; or "single", moved.
    """

    def make(noise: float) -> Ledger:
        match kind, numbers:
            case "poisson", (steps, rate):
                return poisson(noise, int(steps), rate)
            case "fixed", (steps, size, population):
                return fixed(noise, int(steps), int(size), int(population))
            case "single", (moved,):
                return single(noise, moved=moved)
        raise ValueError(f"no kind {kind} with {len(numbers)} numbers")

    noise, bound = noise_multiplier(make, epsilon, delta, relation)
    return noise, Certified(
        bound.epsilon, 0.0, f"noise raised to {noise:.4g} times the clip norm"
    )


UNBOUNDED = Certified(math.inf, 0.0, "nothing bounds it")
