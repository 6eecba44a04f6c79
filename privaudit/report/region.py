"""True positive rates and right guesses that (epsilon, delta)-DP allows."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray


def allowed_tpr(
    epsilon: float, delta: float, fpr: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Least and largest TPR at ``fpr`` that (epsilon, delta)-DP allows."""

    def most(rate: NDArray[np.float64]) -> NDArray[np.float64]:
        if epsilon == math.inf:
            return np.ones_like(rate)
        here = np.exp(min(epsilon, 700.0)) * rate + delta
        there = 1 - np.exp(-epsilon) * (1 - delta - rate)
        return np.clip(np.minimum(here, there), 0, 1)

    return 1 - most(1 - fpr), most(fpr)


def most_right(epsilon: float, delta: float) -> float:
    """Largest share of right guesses at a fair coin, under (epsilon, delta)-DP.

    (e^epsilon + delta) / (e^epsilon + 1): where TPR = 1 - FPR.

    >>> most_right(0.0, 0.0), most_right(math.inf, 0.0)
    (0.5, 1.0)
    """
    decay = math.exp(-epsilon)
    return (1 + delta * decay) / (1 + decay)
