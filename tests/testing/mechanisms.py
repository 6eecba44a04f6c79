"""Mechanisms that others wrote, right and wrong, with pairs that tell.

The sparse-vector variants are written from the pseudocode of figure 1 of M. Lyu, D. Su
and N. Li, "Understanding the Sparse Vector Technique for Differential Privacy", VLDB
2017; noisy max and histograms as in Z. Ding, Y. Wang, G. Wang, D. Zhang and D. Kifer,
"Detecting Violations of Differential Privacy", CCS 2018. Data are answers to queries of
sensitivity 1, any of which may move between neighbours, or lists of records.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

Rng = np.random.Generator


def sparse_vector(
    answers: list[float],
    rng: Rng,
    *,
    threshold: float,
    query: float,
    most: float = np.inf,
    again: float = 0.0,
    numeric: bool = False,
) -> list[object]:
    """The six variants: scales of the two noises, cut-off, new threshold, numbers.

    ``threshold`` and ``query`` are scales of Laplace noise, ``most`` is c, ``again``
    the scale of a new threshold after each answer above.
    """
    found: list[object] = []
    limit = rng.laplace(scale=threshold)
    above = 0
    for answer in answers:
        noisy = answer + (rng.laplace(scale=query) if query else 0.0)
        if noisy >= limit:
            found.append(noisy if numeric else True)
            above += 1
            if above >= most:
                break
            if again:
                limit = rng.laplace(scale=again)
        else:
            found.append(False)
    return found


def svt(variant: int, epsilon: float, c: int = 1) -> Callable[..., list[object]]:
    """Algorithm 1 to 6 of the paper's figure 1, at threshold 0 and sensitivity 1."""
    half = epsilon / 2
    return functools.partial(
        sparse_vector,
        **{
            1: {"threshold": 1 / half, "query": 2 * c / half, "most": c},
            2: {
                "threshold": c / half,
                "query": 2 * c / half,
                "most": c,
                "again": c / half,
            },
            3: {"threshold": 1 / half, "query": c / half, "most": c, "numeric": True},
            4: {
                "threshold": 1 / (epsilon / 4),
                "query": 1 / (3 * epsilon / 4),
                "most": c,
            },
            5: {"threshold": 1 / half, "query": 0.0},
            6: {"threshold": 1 / half, "query": 1 / half},
        }[variant],
    )


def number_below_zero(output: list[object]) -> float:
    """Large where six answers were below the threshold and a number shows how low."""
    number = output[6] if len(output) == 7 else False
    return -float(number) if number is not False else -50.0


def noisy_max(answers: list[float], rng: Rng) -> int:
    """Index of the largest answer with noise of scale 2: 1-DP."""
    return int(np.argmax(np.array(answers) + rng.laplace(scale=2.0, size=len(answers))))


def noisy_max_value(answers: list[float], rng: Rng) -> float:
    """The largest noisy answer itself, which that noise does not protect."""
    return float(np.max(np.array(answers) + rng.laplace(scale=2.0, size=len(answers))))


def histogram(counts: list[float], rng: Rng) -> np.ndarray:
    """Counts with noise of scale 1: 1-DP where a record is in one of them."""
    return np.array(counts) + rng.laplace(scale=1.0, size=len(counts))


def histogram_of_no_use(counts: list[float], rng: Rng) -> np.ndarray:
    """Its noise has scale epsilon instead of 1 / epsilon, here for epsilon 1 / 2."""
    return np.array(counts) + rng.laplace(scale=0.5, size=len(counts))


def shared_noise(counts: list[float], rng: Rng) -> np.ndarray:
    """One draw for all counts: their difference is exact."""
    return np.array(counts) + rng.laplace(scale=1.0)


def laplace_mean(records: list[float], rng: Rng, factor: float = 1.0) -> float:
    """Of records in [0, 1], replaced one by one; 1-DP at factor 1."""
    mean = float(np.mean(np.clip(records, 0, 1)))
    return mean + rng.laplace(scale=factor / len(records))


def gaussian_mean(records: list[float], rng: Rng, factor: float = 1.0) -> float:
    """(1, 1e-5)-DP at factor 1: 3.7306 is the least noise for sensitivity 1."""
    mean = float(np.mean(np.clip(records, 0, 1)))
    return mean + rng.normal(scale=3.7307 * factor / len(records))


def randomised_response(
    records: list[int], rng: Rng, truth: float = 0.731
) -> list[int]:
    """Each bit true with chance e / (1 + e) = .73105: 1-DP."""
    return [bit if rng.random() < truth else 1 - bit for bit in records]


def float_laplace(records: list[float], rng: Rng) -> float:
    """A sum with Laplace noise in floating point: 1-DP on paper (Mironov 2012)."""
    return sum(records) + rng.laplace(scale=1.0)


def subsampled_gaussian(
    records: list[float], rng: Rng, noise: float = 2.0, steps: int = 3
) -> np.ndarray:
    """Sums of Poisson samples at rate 1 / 2, of records in [0, 1], step by step."""
    taken = rng.random((steps, len(records))) < 0.5
    return taken @ np.clip(records, 0, 1) + rng.normal(scale=noise, size=steps)


@dataclasses.dataclass(frozen=True)
class Case:
    """A mechanism on a pair, what is claimed of it, and whether that is right."""

    name: str
    mechanism: Callable[[Any, Rng], object]
    pair: tuple[Any, Any]
    right: bool
    epsilon: float = 1.0
    delta: float = 0.0
    score: Any = None
    runs: int = 20_000


def _partial(function: Callable[..., Any], **values: Any) -> Callable[..., Any]:
    return functools.partial(function, **values)


_CROSSED = ([0.0] * 5 + [1.0] * 5, [1.0] * 5 + [0.0] * 5)
_RECORDS = ([0.0] * 10, [0.0] * 9 + [1.0])
# Three Gaussian sums, noise 2, rate 1 / 2, at delta 1e-5: 2.204 to 2.207, certified.
_THREE_SUMS = 2.207

CASES = (
    Case("sparse vector 1, c 1 (Lyu et al.)", svt(1, 1.0), _CROSSED, True),
    Case("sparse vector 1, c 3", svt(1, 1.0, 3), _CROSSED, True),
    Case("sparse vector 2, c 1 (Dwork and Roth)", svt(2, 1.0), _CROSSED, True),
    Case("sparse vector 2, c 3", svt(2, 1.0, 3), _CROSSED, True),
    Case(
        "sparse vector 3 (Roth), numbers",
        svt(3, 1.0),
        ([0.0] * 6 + [-1.0], [-1.0] * 6 + [0.0]),
        False,
        score=number_below_zero,
        runs=100_000,
    ),
    Case("sparse vector 4, c 5 (Lee and Clifton)", svt(4, 1.0, 5), _CROSSED, False),
    Case("sparse vector 5 (Stoddard et al.)", svt(5, 1.0), _CROSSED, False),
    Case("sparse vector 6 (Chen et al.)", svt(6, 1.0), _CROSSED, False),
    Case("noisy max", noisy_max, ([0.0] * 5, [1.0] * 5), True),
    Case(
        "noisy max, one up and others down", noisy_max, ([1.0, 0, 0], [0, 1.0, 1]), True
    ),
    Case("noisy max, the value", noisy_max_value, ([0.0] * 5, [1.0] * 5), False),
    Case("noisy histogram", histogram, ([2.0, 1, 4], [2.0, 2, 4]), True),
    Case(
        "noisy histogram, scale epsilon",
        histogram_of_no_use,
        ([2.0, 1, 4], [2.0, 2, 4]),
        False,
        epsilon=0.5,
    ),
    Case("histogram, shared noise", shared_noise, ([2.0, 1, 4], [2.0, 2, 4]), False),
    Case("Laplace mean", laplace_mean, _RECORDS, True),
    Case(
        "Laplace mean, 30 % less", _partial(laplace_mean, factor=0.7), _RECORDS, False
    ),
    Case("Gaussian mean", gaussian_mean, _RECORDS, True, delta=1e-5),
    Case(
        "Gaussian mean, a third of the noise",
        _partial(gaussian_mean, factor=1 / 3),
        _RECORDS,
        False,
        delta=1e-5,
    ),
    Case("randomised response", randomised_response, ([0, 1], [1, 1]), True),
    Case(
        "randomised response, 80 % true",
        _partial(randomised_response, truth=0.8),
        ([0, 1], [1, 1]),
        False,
    ),
    Case("float Laplace, real numbers", float_laplace, ([], [1.0]), True),
    Case("float Laplace, low bits", float_laplace, ([], [1.0]), False, score="bits"),
    Case(
        "subsampled Gaussian",
        subsampled_gaussian,
        ([0.5], [0.5, 1.0]),
        True,
        epsilon=_THREE_SUMS,
        delta=1e-5,
    ),
    Case(
        "subsampled Gaussian, a third of the noise",
        _partial(subsampled_gaussian, noise=0.7),
        ([0.5], [0.5, 1.0]),
        False,
        epsilon=_THREE_SUMS,
        delta=1e-5,
    ),
)


def many_queries(
    answers: list[float],
    size: int,
    rng: Rng,
    *,
    threshold: float,
    query: float,
    numeric: bool = False,
    once: bool = True,
) -> np.ndarray:
    """`sparse_vector` with c 1, ``size`` runs at once: 0, 1 or the number; 2 when over.

    ``once``: it stops at the first answer above.
    """
    noise = rng.laplace(scale=query, size=(size, len(answers))) if query else 0.0
    noisy = np.array(answers) + noise
    above = noisy >= 1.0 + rng.laplace(scale=threshold, size=(size, 1))
    found = np.where(above, noisy if numeric else 1.0, -1000.0 if numeric else 0.0)
    if once:
        over = np.cumsum(above, axis=1) - above > 0
        found[over] = np.nan if numeric else 2
    return found if numeric else found.astype(int)


def many_maxima(
    answers: list[float],
    size: int,
    rng: Rng,
    *,
    epsilon: float = 0.1,
    exponential: bool = False,
) -> np.ndarray:
    """The largest noisy answer itself; one in each of ``size`` runs."""
    draw = rng.exponential if exponential else rng.laplace
    noise = draw(scale=2 / epsilon, size=(size, len(answers)))
    return (np.array(answers) + noise).max(axis=1)


def many_histograms(
    counts: list[float], size: int, rng: Rng, *, epsilon: float = 0.1
) -> np.ndarray:
    """Noise of scale epsilon in place of 1 / epsilon."""
    return np.array(counts) + rng.laplace(scale=epsilon, size=(size, len(counts)))


def many_means(
    records: list[float],
    size: int,
    rng: Rng,
    *,
    epsilon: float,
    delta: float = 0.0,
    divides: bool = False,
    scales: bool = False,
) -> np.ndarray:
    """Means of records in [0, 1] by their exact count, or a noisy one at half epsilon.

    ``divides``, ``scales``: whether the noisy count is what the sum is divided by, and
    what the noise is scaled by.
    """
    part = epsilon / 2 if divides or scales else epsilon
    exact = len(records)
    noisy = exact + rng.laplace(scale=1 / part, size=size)
    wide = np.sqrt(2 * np.log(1.25 / delta)) if delta else 1.0
    scale = np.maximum(wide / part / (noisy if scales else exact), 1e-12)
    draw = rng.normal if delta else rng.laplace
    total = float(np.clip(records, 0, 1).sum())
    return total / (noisy if divides else exact) + draw(scale=scale, size=size)


def two_sparse_vectors(answers: list[float], size: int, rng: Rng) -> dict[str, Any]:
    """Variants 3 and 4 side by side."""
    return {
        "3": SNIPED["svt 3"][0](answers, size, rng),
        "4": SNIPED["svt 4"][0](answers, size, rng),
    }


_TEN = ([0.0] * 5 + [1.0] * 5, [1.0] * 5 + [0.0] * 5)
# The eight mechanisms of B. Bichsel, S. Steffen, I. Bogunovic and M. Vechev,
# "DP-Sniper: Black-Box Discovery of Differential Privacy Violations using Classifiers",
# SP 2021, that are not .1-DP, as they claim. Scales of sparse vectors are as in `svt`,
# for c 1.
SNIPED: dict[str, tuple[Callable[..., Any], tuple[list[float], list[float]]]] = {
    "noisy histogram 2": (many_histograms, ([2.0, 1, 4, 0, 3], [2.0, 2, 4, 0, 3])),
    "noisy max 3": (many_maxima, ([0.0] * 5, [1.0] * 5)),
    "noisy max 4": (
        functools.partial(many_maxima, exponential=True),
        ([0.0] * 5, [1.0] * 5),
    ),
    "svt 3": (
        functools.partial(many_queries, threshold=20.0, query=20.0, numeric=True),
        _TEN,
    ),
    "svt 4": (functools.partial(many_queries, threshold=40.0, query=1 / 0.075), _TEN),
    "svt 5": (
        functools.partial(many_queries, threshold=20.0, query=0.0, once=False),
        _TEN,
    ),
    "svt 6": (
        functools.partial(many_queries, threshold=20.0, query=20.0, once=False),
        _TEN,
    ),
    "svt 3 and 4": (two_sparse_vectors, _TEN),
}


def _sparse(variant: int, epsilon: float) -> Callable[..., np.ndarray]:
    """Faulty sparse vectors at c 1, as in `svt`, many runs at once."""
    half = epsilon / 2
    values: dict[int, dict[str, Any]] = {
        3: {"threshold": 1 / half, "query": 1 / half, "numeric": True},
        4: {"threshold": 2 / half, "query": 2 / (3 * half)},
        5: {"threshold": 1 / half, "query": 0.0, "once": False},
        6: {"threshold": 1 / half, "query": 1 / half, "once": False},
    }
    return functools.partial(many_queries, **values[variant])


def _of_statdp(epsilon: float) -> Iterator[tuple[str, Callable[..., Any], Any]]:
    """What StatDP's authors test it with at a claim; its inputs, all or one moved."""
    all_move, one_moves = ([0.0] * 5, [1.0] * 5), ([1.0] * 5, [2.0, 1, 1, 1, 1])
    for exponential in (False, True):
        maxima = functools.partial(
            many_maxima, epsilon=epsilon, exponential=exponential
        )
        name = "exponential" if exponential else "Laplace"
        yield f"the noisy maximum, {name}", maxima, all_move
    if epsilon < 1:  # else it is more private than it says
        histograms = functools.partial(many_histograms, epsilon=epsilon)
        yield "histogram of noise epsilon", histograms, one_moves
    for variant in (5, 6, 4, 3):  # its iSVT 1 to 4
        yield f"sparse vector {variant}", _sparse(variant, epsilon), _TEN


def _of_auditorium() -> Iterator[tuple[str, Callable[..., Any], Any, float]]:
    for delta, noise in ((0.0, "Laplace"), (1e-5, "Gaussian")):
        for divides, scales in ((False, False), (True, False), (False, True)):
            means = functools.partial(
                many_means, epsilon=1.0, delta=delta, divides=divides, scales=scales
            )
            exact = {(0, 0): "all", (1, 0): "its noise", (0, 1): "its mean"}
            yield (
                f"{noise} mean, {exact[divides, scales]} by the exact count",
                means,
                ([1.0], [1.0, 0.0]),
                delta,
            )
    reveal = ([1.0] * 9 + [0.0], [0.0] * 9 + [1.0])
    for variant in (3, 4, 5, 6):
        yield f"sparse vector {variant}", _sparse(variant, 1.0), reveal, 0.0


# Faulty mechanisms that come with StatDP (github.com/cmla-psu/statdp) and dp-auditorium
# (github.com/google/differential-privacy), from their definitions; many runs at once.
# The mechanism, a pair, and the claim that is wrong.
OTHERS: dict[str, tuple[Callable[..., Any], Any, float, float]] = {
    f"StatDP: {name}, {claim}": (mechanism, pair, claim, 0.0)
    for claim in (0.2, 0.7, 1.5)
    for name, mechanism, pair in _of_statdp(claim)
} | {
    f"dp-auditorium: {name}": (mechanism, pair, 1.0, delta)
    for name, mechanism, pair, delta in _of_auditorium()
}
