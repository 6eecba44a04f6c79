"""Correlated noise as one Gaussian release: tree aggregation and matrix factorisation.

A training releases C x + z with independent Gaussian z, where row i of x is the sum of
clipped vectors of step i, and what is published of it are linear functions (prefix
sums, noisy gradients). So the whole run is one Gaussian release, also if each step's
gradient depends on earlier outputs (Denisov et al., arXiv:2202.08312). A record in
steps S moves it by at most the largest norm of the sum over i in S of C_i u_i^T with
|u_i| up to the norm bound: sqrt(sum |X_ij|) over i, j in S with X = C^T C. Signs s_i
that make all s_i s_j X_ij >= 0 attain it (Choquette-Choo et al., arXiv:2306.08153,
equation 5).
"""

from __future__ import annotations

import functools
import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

from privaudit.release import NoSampling, Release, Sensitivity

Buffers = tuple[tuple[float, float], ...]  # (m, l), ...: c_j = sum of m l^j, c_0 = 1
_MOST_STEPS = 4096
MOST_BUFFERS = 8
_SLACK = 1e-12  # of sums of products


def matrix_factorization(
    strategy: ArrayLike,
    *,
    noise_multiplier: float,
    norm_bound: float = 1.0,
    epochs: int = 1,
    min_separation: int | None = None,
    max_participations: int | None = None,
) -> Release:
    """The release of a training whose noise is ``strategy`` inverse times white noise.

    ``strategy``: C, a column a step. ``noise_multiplier``: of z over ``norm_bound``,
    not over C's sensitivity. ``epochs``: a record is in each once, at one place
    (cyclic); or ``min_separation``: in any steps so far apart, of banded C, or Toeplitz
    C whose column falls, up to ``max_participations``. Returns one Gaussian release
    with the exact sensitivity, or ``ValueError``; replacing a record moves it twice as
    far.

    Examples
    --------
    >>> release = matrix_factorization([[1, 0], [1, 1]], noise_multiplier=2.0, epochs=2)
    >>> round(release.sensitivity.add_or_remove_one**2, 9)  # |(1, 2)|^2
    5.0
    """
    found = np.asarray(strategy, float)
    if found.ndim != 2 or not found.size or not np.isfinite(found).all():
        raise ValueError(
            "a strategy is a matrix of finite numbers with a column for each step, got "
            f"one of shape {found.shape}"
        )
    steps = found.shape[1]
    if steps > _MOST_STEPS:
        raise ValueError(f"a strategy has at most {_MOST_STEPS} steps, got {steps}")
    gram = found.T @ found
    if min_separation is not None:
        if epochs != 1:
            raise ValueError("give one of epochs and min_separation")
        square = _separated(gram, min_separation, max_participations, _falls(found))
    elif max_participations is not None:
        raise ValueError("max_participations goes with min_separation; give both")
    elif epochs != int(epochs) or epochs < 1 or steps % int(epochs):
        raise ValueError(
            f"epochs must be a whole number >= 1 that divides the {steps} steps, got "
            f"{epochs}"
        )
    else:
        cycles = np.arange(steps).reshape(-1, steps // int(epochs)).T
        square = max(_square(gram, each) for each in cycles)
    moved = norm_bound * math.sqrt(square) * (1 + _SLACK)
    return Release(
        mechanism="gaussian",
        norm_bound=norm_bound,
        noise=noise_multiplier * norm_bound,
        sensitivity=Sensitivity(add_or_remove_one=moved, replace_one=2 * moved),
        sampling=NoSampling(),
    )


@functools.lru_cache(maxsize=256)
def toeplitz(steps: int, band: int) -> tuple[float, ...]:
    """First column 1, c_1, ... of the banded Toeplitz C of least `toeplitz_error`.

    Of ``band`` coefficients, for ``steps`` (Choquette-Choo et al., arXiv:2306.08153,
    section 4.2), by L-BFGS from those of (1 - x)^(-1/2), which without a band are
    optimal but for a constant (Henzinger, Upadhyay and Upadhyay 2023).

    >>> [round(c, 3) for c in toeplitz(100, 3)]
    [1.0, 0.739, 0.622]
    """
    from scipy.optimize import minimize

    if not 1 <= band <= steps:
        raise ValueError(f"a band is from 1 to the {steps} steps wide, got {band}")
    if band == 1:
        return (1.0,)
    start = np.cumprod(1 - 1 / (2 * np.arange(1.0, band)))

    def error(given: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        column = np.append(1.0, given)
        inverse = _inverse(column, steps)
        sums, twice = np.cumsum(inverse), np.cumsum(np.convolve(inverse, inverse))
        weighed = np.arange(steps, 0, -1) * sums
        norm, noise = column @ column, weighed @ sums
        slopes = [weighed[j:] @ twice[: steps - j] for j in range(1, band)]
        # Of the logarithm: a step in a flat valley is as long as one on a steep wall.
        return math.log(norm * noise), 2 * (given / norm - np.array(slopes) / noise)

    # Within [0, 1] the inverse is bounded, if not small.
    limits, most = [(0.0, 1.0)] * (band - 1), {"maxiter": 500, "maxfun": 1000}
    found = minimize(
        error, start, jac=True, method="L-BFGS-B", bounds=limits, options=most
    )
    return (1.0, *map(float, found.x))


def toeplitz_error(column: ArrayLike, steps: int) -> float:
    """Mean square of the noise in the sums of the first k releases, k = 1 to ``steps``.

    For noise multiplier 1: |c|^2 |A C^-1|^2 / ``steps``, A all ones up to its diagonal.
    """
    given = np.asarray(column, float)
    sums = np.cumsum(_inverse(given, steps))
    return float(given @ given * (np.arange(steps, 0, -1) @ sums**2) / steps)


@functools.lru_cache(maxsize=256)
def rounding_of(column: tuple[float, ...]) -> float:
    """Bound on the error of a sum of c_j w, in units of 2^-53 of the largest z.

    w is C^-1 z: |c| |C^-1|, absolute values added up, times the number of terms.
    """
    given = np.array(column)
    with np.errstate(over="ignore", invalid="ignore"):
        inverse = np.abs(_inverse(given, 4096)).sum()
    return float(len(given) * np.abs(given).sum() * inverse)


@functools.lru_cache(maxsize=64)
def blt(steps: int, parts: int, buffers: int) -> Buffers:
    """Buffered linear Toeplitz C of least mean square noise in sums.

    For ``steps``, in every ``parts``-th of which a record is: least |C x|^2 |A C^-1|^2,
    x that record (Dvijotham et al., arXiv:2404.16706; McMahan, Xu and Zhang,
    arXiv:2408.08868), by L-BFGS, of pairs m >= 0, sum m <= 1, 0 < l < 1, which
    docs/factorisation.md needs.

    >>> [(round(m, 2), round(x, 2)) for m, x in blt(100, 50, 1)]
    [(0.41, 0.94)]
    """
    from scipy.optimize import minimize
    from scipy.signal import lfilter
    from scipy.special import expit

    if not 1 <= parts <= steps or not 1 <= buffers <= MOST_BUFFERS:
        raise ValueError(
            f"noise has 1 to {MOST_BUFFERS} buffers and records 1 to the {steps} steps "
            f"many parts, got {buffers} and {parts}"
        )

    def pairs(given: NDArray[np.float64]) -> NDArray[np.float64]:
        share = np.exp(given[:buffers])  # a little is left, that sums are below 1
        return np.array(
            [share / (1 + share.sum()) * (1 - 1e-9), expit(given[buffers:])]
        )

    def error(given: NDArray[np.float64]) -> float:
        mass, decay = pairs(given)
        moved = turn_rows(
            tuple(zip(mass, decay, strict=True)), parts, -(-steps // parts)
        )
        poles = np.poly(decay)  # C is the quotient of these two, as series
        zeros = (1 - mass.sum()) * poles
        for k in range(buffers):
            zeros[:-1] += mass[k] * np.poly(np.delete(decay, k))
        sums = np.asarray(lfilter(poles, zeros, np.ones(steps)))
        noise = np.arange(steps, 0, -1) @ sums**2
        return math.log(np.square(moved.ravel()[:steps]).sum() * noise)

    # As long as from one step to all, as heavy as in (1 - x)^(-1/2).
    lengths = steps ** (np.arange(1.0, buffers + 1) / (buffers + 1))
    start = np.concatenate([-np.log(lengths) / 2, np.log(lengths)])
    limits = [(-20.0, 20.0)] * buffers + [(-5.0, math.log(9.0 * steps))] * buffers
    best = minimize(
        error,
        start,
        jac="3-point",
        method="L-BFGS-B",
        bounds=limits,
        options={"ftol": 1e-10, "gtol": 1e-6, "maxfun": 1000, "maxiter": 500},
    )
    return tuple((float(m), float(decay)) for m, decay in pairs(best.x).T)


def turn_rows(buffers: Buffers, parts: int, turns: int) -> NDArray[np.float64]:
    """Moves of the rows of C x by a record of the first part, (turns, parts)."""
    mass, decay = np.array(buffers).T
    column = decay ** np.arange(turns * parts)[:, None] @ mass
    column[0] = 1.0
    return column.reshape(turns, parts).cumsum(0)


def turn_norm(buffers: Buffers, parts: int, turn: int) -> float:
    """Norm of `turn_rows` of one turn, rounded up."""
    return _norms(buffers, parts, 1 << turn.bit_length())[turn]


@functools.lru_cache(maxsize=64)
def _norms(buffers: Buffers, parts: int, turns: int) -> tuple[float, ...]:
    found = np.linalg.norm(turn_rows(buffers, parts, turns), axis=1)
    return tuple(map(float, found * (1 + _SLACK + turns * 2.0**-52)))


def rounding_of_buffers(buffers: Buffers) -> float:
    """`rounding_of`, where w is kept in buffers s <- l (s + w), whose sum is of m s.

    C^-1 has absolute values of sum 2 at most (Kaluza 1928): |s| is at most 2 l / (1 -
    l) times the largest z, and s is wrong by 1 / (1 - l) times what a step rounds.
    """
    return 2.02 * math.fsum(
        m * decay / (1 - decay) * (2 / (1 - decay) + len(buffers) + 1)
        for m, decay in buffers
    )


def _inverse(column: NDArray[np.float64], steps: int) -> NDArray[np.float64]:
    """First column of the inverse of a lower triangular Toeplitz matrix."""
    found = np.zeros(steps + len(column))
    back = column[:0:-1]
    for k in range(len(column), steps + len(column)):
        found[k] = (k == len(column)) - found[k - len(back) : k] @ back
    return found[len(column) :]


def tree_aggregation(
    steps: int, *, noise_multiplier: float, norm_bound: float = 1.0, epochs: int = 1
) -> Release:
    """The release of a training by a binary tree over its steps (DP-FTRL).

    Every complete node of the tree gets noise of its own; a record of one step is in
    one node a level (Kairouz et al., arXiv:2103.00039). With ``epochs`` one tree goes
    over all of them, without a restart. All else as `matrix_factorization`.

    >>> release = tree_aggregation(1600, noise_multiplier=8.83)
    >>> round(release.sensitivity.add_or_remove_one**2, 9)
    11.0
    """
    if steps != int(steps) or steps < 1:
        raise ValueError(f"a tree has a whole number of steps >= 1, got {steps}")
    steps = int(steps)
    if epochs == 1:
        strategy: NDArray[np.float64] = np.full((steps.bit_length(), 1), 1.0)
    else:
        if steps > _MOST_STEPS:
            raise ValueError(
                f"a tree over several epochs has at most {_MOST_STEPS} steps, got "
                f"{steps}"
            )
        # Which steps each of a level's complete nodes sums.
        sizes, at = (
            [1 << level for level in range(steps.bit_length())],
            np.arange(steps),
        )
        levels = [at // size == np.arange(steps // size)[:, None] for size in sizes]
        strategy = np.concatenate(levels).astype(float)
    return matrix_factorization(
        strategy,
        noise_multiplier=noise_multiplier,
        norm_bound=norm_bound,
        epochs=epochs,
    )


def _square(gram: NDArray[np.float64], steps: NDArray[np.int64]) -> float:
    part = gram[np.ix_(steps, steps)]
    if not are_balanced(np.sign(part)):
        raise ValueError(
            "the inner products of this strategy's columns have signs that no record's "
            "vectors attain at once: its exact sensitivity is not known; use one whose "
            "columns have inner products >= 0"
        )
    return math.fsum(np.abs(part).ravel())


def are_balanced(entries: NDArray[np.float64]) -> bool:
    """Return whether signs of rows and columns alike make all entries >= 0.

    ``entries``: -1, 0 or 1, symmetric.
    """
    signs = np.zeros(len(entries))
    for start in range(len(entries)):
        if signs[start]:
            continue
        signs[start], todo = 1, [start]
        while todo:
            one = todo.pop()
            fresh = (entries[one] != 0) & (signs == 0)
            signs[fresh] = entries[one, fresh] * signs[one]
            todo += np.flatnonzero(fresh).tolist()
    return bool((entries * signs[:, None] * signs >= 0).all())


def _falls(strategy: NDArray[np.float64]) -> bool:
    """Return whether C is lower triangular Toeplitz, of a column >= 0 that falls.

    Of steps at least b apart the first, its b-th successor and so on are the worst then
    (Kalinin and Lampert, arXiv:2405.13763, Theorem 2): X_ij is a sum of c_s c_(s+j-i)
    over s < steps - j, and so the less, the later j is and the farther from i.
    """
    from scipy.linalg import toeplitz as of_column

    column = strategy[:, 0]
    lower = np.array_equal(strategy, of_column(column, np.zeros(len(column))))
    return lower and column[-1] >= 0 and bool((np.diff(column) <= 0).all())


def _separated(
    gram: NDArray[np.float64], apart: int, most: int | None, falls: bool
) -> float:
    steps = len(gram)
    if apart != int(apart) or not 1 <= apart <= steps:
        raise ValueError(
            f"min_separation must be a whole number from 1 to the {steps} steps, got "
            f"{apart}"
        )
    if most is None:
        most = -(-steps // int(apart))
    if most != int(most) or most < 1:
        raise ValueError(f"max_participations must be a whole number >= 1, got {most}")
    if falls:
        return _square(gram, np.arange(0, steps, int(apart))[: int(most)])
    i, j = np.indices(gram.shape)
    if (gram[np.abs(i - j) >= apart] != 0).any():
        raise ValueError(
            f"columns {apart} steps apart or more must be orthogonal for "
            f"min_separation={apart}: a band of at most so many diagonals is; or C is "
            "lower triangular Toeplitz, and its first column falls and is >= 0"
        )
    # The best sum of squares from each step on, of one step more each time.
    best = np.zeros(steps + int(apart))
    for _ in range(min(int(most), steps)):
        taken = np.diag(gram) + best[int(apart) :]
        best[:steps] = np.maximum.accumulate(taken[::-1])[::-1]
    return float(best[0])
