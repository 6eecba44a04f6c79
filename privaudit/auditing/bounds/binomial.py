"""One-sided Clopper-Pearson limits of a binomial probability.

C. J. Clopper and E. S. Pearson, "The use of confidence or fiducial limits illustrated
in the case of the binomial", Biometrika 26 (1934).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special


def limit_down(hits: ArrayLike, runs: ArrayLike, alpha: float) -> NDArray[np.float64]:
    """Lower limit: above the probability in at most a share ``alpha`` of samples.

    0 where there is no hit. Shapes broadcast; counts need not be whole numbers.
    """
    hits, runs = np.broadcast_arrays(np.asarray(hits, float), np.asarray(runs, float))
    some = hits > 0
    limit = special.betaincinv(np.where(some, hits, 1.0), runs - hits + 1, alpha)
    return np.where(some, limit, 0.0)


def limit_up(hits: ArrayLike, runs: ArrayLike, alpha: float) -> NDArray[np.float64]:
    """Upper limit: below the probability in at most a share ``alpha`` of samples.

    1 where every run is a hit.
    """
    hits, runs = np.broadcast_arrays(np.asarray(hits, float), np.asarray(runs, float))
    some = hits < runs
    limit = special.betainccinv(hits + 1, np.where(some, runs - hits, 1.0), alpha)
    return np.where(some, limit, 1.0)
