"""Simulated audits of mechanisms of known epsilon: how often bounds exceed it."""

from __future__ import annotations

import dataclasses
import math
import zlib
from collections.abc import Callable, Iterable

import numpy as np
from scipy import special

from privaudit.accounting.pld.closed_form import epsilon_down
from privaudit.auditing.bounds import ESTIMATORS, ONE_RUN, Estimator
from privaudit.auditing.scores import Scores

Generator = np.random.Generator

_CHANCE = 1e-4  # of calling a right estimator wrong, over the whole table


@dataclasses.dataclass(frozen=True, slots=True)
class Mechanism:
    """Scores of known epsilon."""

    name: str  # for the table
    # worlds of runs to their scores
    draw: Callable[[Generator, np.ndarray], np.ndarray]
    epsilon: Callable[[float], float]  # the true one, of delta
    gaussian: bool = False  # whether its trade-off curve is a Gaussian's


def _leaky(epsilon: float, leak: float) -> Mechanism:
    """Randomised response that tells the truth outright with probability ``leak``."""

    def draw(random: Generator, member: np.ndarray) -> np.ndarray:
        honest = random.random(len(member)) < special.expit(epsilon)
        told = np.where(honest, member, ~member)
        outright = random.random(len(member)) < leak
        return np.where(outright, 4.0 * member - 2, 2.0 * told - 1)

    def true(delta: float) -> float:
        # Inverts leak + (1 - leak) max(0, 1 - (1 + e^e) / (1 + e^epsilon)).
        if delta < leak:
            return math.inf
        rest = (1 - delta) / (1 - leak) * (1 + math.exp(epsilon)) - 1
        return math.log(rest) if rest > 1 else 0.0

    name = f"randomised response, epsilon {epsilon:g}"
    return Mechanism(f"{name}, leak {leak:g}" if leak else name, draw, true)


def _gaussian(mu: float) -> Mechanism:
    return Mechanism(
        f"Gaussian, mu {mu:g}",
        lambda random, member: random.normal(size=len(member)) + mu * member,
        lambda delta: epsilon_down(mu, delta),
        gaussian=True,
    )


def _laplace(shift: float) -> Mechanism:
    return Mechanism(
        f"Laplace, shift {shift:g}",
        lambda random, member: random.laplace(size=len(member)) + shift * member,
        lambda delta: max(0.0, shift + 2 * math.log1p(-delta)),
    )


def _dyadic(epsilon: float) -> Mechanism:
    """Score +-k with probability about 2^-k: epsilon shows at every scale alike."""

    def draw(random: Generator, member: np.ndarray) -> np.ndarray:
        level = np.minimum(random.geometric(0.5, len(member)), 10)
        honest = random.random(len(member)) < special.expit(epsilon)
        return np.where(np.where(honest, member, ~member), level, -level).astype(float)

    return Mechanism(
        f"dyadic scales, epsilon {epsilon:g}", draw, _leaky(epsilon, 0.0).epsilon
    )


MECHANISMS = (
    dataclasses.replace(_gaussian(0.0), name="no leak", epsilon=lambda delta: 0.0),
    _gaussian(1.0),
    _gaussian(0.25),
    _laplace(1.0),
    _leaky(1.0, 0.0),
    _leaky(3.0, 0.0),
    _leaky(1.0, 1e-2),
    _leaky(2.0, 1e-2),
    _dyadic(1.0),
)


@dataclasses.dataclass(frozen=True, slots=True)
class Row:
    """One estimator on one mechanism."""

    estimator: str
    mechanism: str
    delta: float
    runs: int
    confidence: float
    # true_epsilon, median: the true one, and the median of the bounds
    true_epsilon: float
    median: float
    # exceeded, repeats: how many of the audits gave more than the true one
    exceeded: int
    repeats: int
    # the most that chance explains at the confidence, over the whole table
    allowed: int

    @property
    def passed(self) -> bool:
        """Return whether the estimator kept its confidence."""
        return self.exceeded <= self.allowed


def selfcheck(
    repeats: int = 2000,
    *,
    runs: int = 1000,
    confidence: float = 0.95,
    deltas: Iterable[float] = (1e-5, 1e-2),
    estimators: Iterable[Estimator] | None = None,
    mechanisms: Iterable[Mechanism] = MECHANISMS,
    seed: int = 0,
    progress: Callable[[Row], None] = lambda row: None,
) -> list[Row]:
    """Exceed rates of every estimator on every mechanism that it is valid for.

    ``repeats``: audits a cell; ``runs``: of both worlds; ``progress``: told each row.
    """
    if estimators is None:
        estimators = [*ESTIMATORS.values(), *ONE_RUN.values()]
    cells = [
        (estimator, mechanism, delta)
        for mechanism in mechanisms
        for delta in deltas
        for estimator in estimators
        if estimator.valid_for == "any mechanism" or mechanism.gaussian
        if math.isfinite(mechanism.epsilon(delta))
    ]
    # Least count that chance exceeds with probability _CHANCE / cells at most.
    alpha, counts = 1 - confidence, np.arange(repeats + 1)
    tail = special.bdtrc(counts.astype(float), repeats, alpha)
    allowed = int(np.argmax(tail <= _CHANCE / max(1, len(cells))))
    rows = []
    for estimator, mechanism, delta in cells:
        truth, bounds = mechanism.epsilon(delta), np.zeros(repeats)
        name = zlib.crc32(mechanism.name.encode())
        for repeat in range(repeats):
            random = np.random.default_rng([seed, repeat, runs, name])
            member = random.random(runs) < 0.5
            scores = Scores(member, mechanism.draw(random, member), "coin-flip")
            bounds[repeat] = estimator(
                scores, delta, confidence, threat_model="scores", seed=repeat
            ).epsilon
        row = Row(
            estimator=estimator.name,
            mechanism=mechanism.name,
            delta=delta,
            runs=runs,
            confidence=confidence,
            true_epsilon=truth,
            median=float(np.median(bounds)),
            # The account of the Gaussian is rounded in the last digits.
            exceeded=int(np.count_nonzero(bounds > truth * (1 + 1e-6))),
            repeats=repeats,
            allowed=allowed,
        )
        rows.append(row)
        progress(row)
    return rows


def table(rows: Iterable[Row]) -> str:
    """The rows as text, one a line."""
    lines = [
        f"{'estimator':17} {'mechanism':36} {'delta':>6} {'true':>7} "
        f"{'median':>7} {'exceed':>7} {'of':>5} {'most':>5}"
    ]
    lines += [
        f"{row.estimator:17} {row.mechanism:36} {row.delta:6.0e} "
        f"{row.true_epsilon:7.4f} {row.median:7.4f} {row.exceeded:7} "
        f"{row.repeats:5} {row.allowed:5}{'' if row.passed else '  TOO OFTEN'}"
        for row in rows
    ]
    return "\n".join(lines)
