"""One-sided limits of a binomial probability (Clopper and Pearson, Biometrika 1934)."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special


def limit_down(hits: ArrayLike, runs: ArrayLike, alpha: float) -> NDArray[np.float64]:
    """Lower limit: above the probability in at most a share ``alpha`` of samples."""
    hits, runs = np.broadcast_arrays(np.asarray(hits, float), np.asarray(runs, float))
    some = hits > 0
    limit = special.betaincinv(np.where(some, hits, 1.0), runs - hits + 1, alpha)
    return np.where(some, limit, 0.0)


def limit_up(hits: ArrayLike, runs: ArrayLike, alpha: float) -> NDArray[np.float64]:
    """Upper limit: below the probability in at most a share ``alpha`` of samples."""
    hits, runs = np.broadcast_arrays(np.asarray(hits, float), np.asarray(runs, float))
    some = hits < runs
    limit = special.betainccinv(hits + 1, np.where(some, runs - hits, 1.0), alpha)
    return np.where(some, limit, 1.0)


def mass(
    hits: NDArray[np.int64], runs: int, probability: ArrayLike
) -> NDArray[np.float64]:
    """Chance of just so many ``hits``, elementwise."""
    return np.exp(
        special.gammaln(runs + 1)
        - special.gammaln(hits + 1)
        - special.gammaln(runs - hits + 1)
        + special.xlogy(hits, probability)
        + special.xlog1py(runs - hits, -np.asarray(probability))
    )


def least_hits(
    runs: ArrayLike, probability: ArrayLike, alpha: float
) -> NDArray[np.int64]:
    """Least number of hits whose lower limit reaches ``probability``; else runs + 1."""
    runs, probability = np.broadcast_arrays(
        np.asarray(runs, np.int64), np.asarray(probability, float)
    )
    low, high = np.zeros_like(runs), runs + 1
    while (low < high).any():
        middle = (low + high) // 2
        before = np.maximum(middle - 1, 0).astype(float)
        tail = special.bdtrc(np.minimum(before, runs), runs, probability)
        # The relative 1e-9 outweighs rounding in the tail.
        reached = np.where(middle > 0, tail, 1.0) <= alpha * (1 + 1e-9)
        high = np.where(reached, np.minimum(high, middle), high)
        low = np.where(reached | (low >= high), low, middle + 1)
    return high
