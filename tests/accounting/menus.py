"""Menus of releases played as an exact game against a budget: a slow, obvious twin.

An adversary knows all outcomes so far and picks, from a menu, what is released next, as
long as the budget lets it. Loss laws are from densities, put on one grid by chords; the
value of each state of the budget, a function of epsilon, is the best of stopping and of
each release's mean. Neither grids, masses nor prices are the account's.
"""

import functools
import math

import numpy as np
from scipy import signal, stats

from privaudit.accounting.filters import Budget, BudgetExceeded
from privaudit.mechanisms import DiscreteGaussian, DiscreteLaplace, EpsilonDelta
from privaudit.release import NoSampling, PoissonSampling, Release

Kind = tuple[str, float, float]  # name, noise or epsilon, rate or delta


def release_of(kind: Kind) -> Release:
    name, noise, rate = kind
    if name == "guarantee":
        return Release.of(EpsilonDelta(noise, rate))
    if name == "discrete-gaussian":
        return Release.of(DiscreteGaussian(noise, 1))
    if name == "discrete-laplace":
        return Release.of(DiscreteLaplace(noise, sensitivity=1))
    sampling = NoSampling() if rate == 1 else PoissonSampling(rate)
    return Release.of_sum(
        norm_bound=1.0, noise_multiplier=noise, sampling=sampling, mechanism=name
    )


def _masses(kind: Kind) -> tuple[np.ndarray, np.ndarray]:
    """Masses of outputs with the record, and without."""
    name, noise, rate = kind
    if name == "guarantee":
        up = (1 - rate) / (1 + math.exp(-noise))
        return np.array([rate, up, 1 - rate - up, 0]), np.array(
            [0, 1 - rate - up, up, rate]
        )
    if name.startswith("discrete"):
        x = np.arange(-math.ceil(60 * noise), math.ceil(60 * noise) + 2)
        if name == "discrete-gaussian":
            one, other = (np.exp(-0.5 * ((x - at) / noise) ** 2) for at in (1, 0))
        else:  # the parameter is epsilon of sensitivity 1
            one, other = (np.exp(-noise * np.abs(x - at)) for at in (1, 0))
        return one / one.sum(), other / other.sum()
    law = stats.norm if name == "gaussian" else stats.laplace
    x = np.linspace(-10 * noise, 10 * noise + 1, 12_001)
    if name == "laplace":
        x = np.linspace(-40 * noise, 40 * noise + 1, 40_001)
    alone, moved = (np.diff(law.cdf((x - at) / noise)) for at in (0, 1))
    return (1 - rate) * alone + rate * moved, alone


@functools.lru_cache(500)
def loss_law(kind: Kind, spacing: float, way: str) -> tuple[int, np.ndarray, float]:
    """First index, masses of the loss by chords between grid points, and infinite."""
    p, q = _masses(kind)
    if way == "add":
        p, q = q, p
    infinite = float(p[q <= 0].sum())
    both = (p > 0) & (q > 0)
    p, q = p[both], q[both]
    index = np.floor(np.log(p / q) / spacing).astype(int)
    upper = (p - q * np.exp(index * spacing)) / -math.expm1(-spacing)
    upper = np.clip(upper, 0.0, p)
    first = index.min()
    masses = np.zeros(index.max() - first + 2)
    np.add.at(masses, index - first, p - upper)
    np.add.at(masses, index - first + 1, upper)
    # Ends of no weight make transforms long.
    last = masses.size - int(np.argmax(np.cumsum(masses[::-1]) > 1e-16))
    infinite += float(masses[last:].sum())
    begin = int(np.argmax(np.cumsum(masses) > 1e-16))
    masses[begin] += masses[:begin].sum()
    return first + begin, masses[begin:last], infinite


class Game:
    """``kinds``: the menu; ``spacing``: of the grid; ``most``: the largest epsilon."""

    def __init__(self, kinds, epsilon: float, spacing: float, most: float) -> None:
        self.kinds, self.epsilon, self.spacing = kinds, epsilon, spacing
        n = math.ceil(most / spacing)
        self.epsilons = epsilon + np.arange(-n, n + 1) * spacing
        self.stop = np.maximum(0.0, -np.expm1(self.epsilons))

    def before(self, kind, way, value):
        """Value before a release of what is ``value`` after it, at each epsilon."""
        first, masses, infinite = loss_law(kind, self.spacing, way)
        pad = masses.size + abs(first)
        under = -np.expm1(self.epsilons[0] - self.spacing * np.arange(pad, 0, -1))
        whole = np.r_[np.maximum(under, 0), value, np.full(pad, value[-1])]
        whole = signal.fftconvolve(whole, masses)
        return infinite + whole[np.arange(value.size) + pad - first]

    def reached(self, budget: Budget, way: str, *, last: bool = False) -> float:
        """Most of delta that a choice by all outcomes reaches at epsilon.

        ``last``: all that fits of one kind at a time is tried as well.
        """
        known = {}
        releases = [release_of(kind) for kind in self.kinds]

        def value(now: Budget):
            key = now._filter and now._filter.name, now._state, bool(now._releases)
            if key not in known:
                best = self.stop
                for kind, one in zip(self.kinds, releases, strict=True):
                    room = int(min(now.room(one), 1e4))
                    for count in {1, room} if last else {1}:
                        if not 1 <= count <= room:
                            continue
                        after = object.__new__(Budget)  # as nobody may copy one
                        vars(after).update(vars(now), _releases=dict(now._releases))
                        try:
                            after.spend(one, count)
                        except BudgetExceeded:
                            continue
                        found = value(after)
                        for _ in range(count):
                            found = self.before(kind, way, found)
                        best = np.maximum(best, found)
                known[key] = best
            return known[key]

        self.states = known
        return float(np.interp(self.epsilon, self.epsilons, value(budget)))

    def fixed(self, way: str, delta: float) -> float:
        """Largest delta, at most ``delta``, of numbers that are fixed beforehand."""
        known, best = {}, 0.0

        def value(counts):
            if counts not in known:
                which = next((i for i, n in enumerate(counts) if n), None)
                if which is None:
                    known[counts] = self.stop
                else:
                    less = tuple(n - (i == which) for i, n in enumerate(counts))
                    known[counts] = self.before(self.kinds[which], way, value(less))
            return known[counts]

        seen, todo = set(), [(0,) * len(self.kinds)]
        while todo:
            counts = todo.pop()
            if counts in seen:
                continue
            seen.add(counts)
            found = float(np.interp(self.epsilon, self.epsilons, value(counts)))
            if found <= delta:
                best = max(best, found)
                todo += [
                    tuple(n + (i == j) for i, n in enumerate(counts))
                    for j in range(len(counts))
                ]
        return best


def draw(rng: np.random.Generator) -> tuple[list[Kind], float, float]:
    """A menu of two or three kinds as people would have them, epsilon and delta."""
    epsilon = float(rng.choice([0.5, 1.0, 2.0, 4.0]))
    delta = float(rng.choice([1e-4, 1e-5, 1e-6]))
    mu = epsilon / math.sqrt(2 * math.log(1 / delta))  # about
    found: list[Kind] = []
    names = ["gaussian", "sampled", "laplace", "discrete", "guarantee"]
    often = [0.25, 0.3, 0.15, 0.15, 0.15]
    for name in rng.choice(names, int(rng.integers(2, 4)), False, often).tolist():
        count = rng.uniform(3, 16)  # of them alone, about
        noise = math.sqrt(count) / mu
        if name == "sampled":
            rate = float(rng.choice([0.05, 0.1, 0.2, 0.5]))
            noise = max(1.0 if epsilon < 4 else 0.8, rate * noise)
            found.append(("gaussian", float(f"{noise:.2g}"), rate))
        elif name == "gaussian":
            found.append((name, float(f"{noise:.2g}"), 1.0))
        elif name == "laplace":
            found.append((name, float(f"{1.4 * noise:.2g}"), 1.0))
        elif name == "discrete" and rng.random() < 0.5:
            found.append(("discrete-gaussian", float(f"{noise:.2g}"), 1.0))
        elif name == "discrete":
            found.append(("discrete-laplace", float(f"{0.7 / noise:.2g}"), 1.0))
        else:
            share = float(rng.choice([0.0, 0.01, 0.05, 0.1]))
            found.append((name, float(f"{1 / noise:.2g}"), share * delta))
    return found, epsilon, delta
