"""Steps that are mixtures of a few measures, and sums of their logarithms."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math

import numpy as np
from numpy.typing import NDArray

from privaudit.accounting.pld.line import UNIT, Floats

_FEW = 16  # steps, of which no series is faster
_SMALL = 1e-12  # error of a logarithm that needs no better
_MOST_WORK = 4e7  # steps times frequencies, one by one
_AT_ONCE = 1 << 16  # of those, which fit a cache


@dataclasses.dataclass(frozen=True, slots=True)
class Term:
    """Steps that are mixtures of the same few measures.

    Step k is A (1 - sum of weights[k]) + sum_m weights[k, m] B_m, taken counts[k]
    times; A is the measure at ``measures[0]`` of a list, B_m that at
    ``measures[m + 1]``. Weights are >= 0 with sums at most 1.
    """

    measures: tuple[int, ...]
    weights: Floats  # (steps, measures - 1)
    counts: Floats  # (steps,)

    @property
    def steps(self) -> float:
        """Number of steps."""
        return float(self.counts.sum())


def log_ratio(
    term: Term,
    spectra: list[NDArray[np.complex128]],
    heads: Floats,
    transform: float,
) -> tuple[NDArray[np.complex128], Floats]:
    """sum_k n_k log(1 + w_k . r) over its value at frequency 0, and its error.

    r_m = heads[m] F_m / F_0 - 1, with the spectra F normalised. log(1 + z) is its
    series up to z^d, in moments of the weights; the rest is at most
    |z|^(d + 1) / ((d + 1) (1 - |z|)) a step.
    """
    first = spectra[0]
    ratios = [h * s / first - 1 for s, h in zip(spectra[1:], heads[1:], strict=True)]
    largest = np.abs(ratios[0])
    for ratio in ratios[1:]:
        largest = np.maximum(largest, np.abs(ratio))
    z = largest * float(term.weights.sum(axis=1).max())
    # Errors of the ratios, at most 4 transform / |F_0| each, and of the sums.
    slip = 4 * transform * float(heads.max()) / np.abs(first)
    base = float(term.counts @ np.log1p(term.weights @ (heads[1:] - 1)))
    result = np.zeros(first.size, complex)
    error = np.full(first.size, np.inf)
    one_by_one = np.ones(first.size, bool)
    if term.counts.size > _FEW:
        good = z < 0.5
        degree, parts = _series(term, float(z[good].max()) if good.any() else 0.0)
        some = [ratio[good] for ratio in ratios] if not good.all() else ratios
        if parts:
            result[good] = _sum_of(parts, some)
        near = z[good]
        remainder = term.steps * near ** (degree + 1) / ((degree + 1) * (1 - near))
        rounding = term.steps * (slip[good] + 64 * UNIT * near + 16 * UNIT)
        error[good] = remainder + rounding / (1 - near)
        one_by_one = ~(error < 100 * _SMALL)
        if np.count_nonzero(one_by_one) * term.counts.size > _MOST_WORK:
            one_by_one[:] = False
    if one_by_one.any():
        some = [ratio[one_by_one] for ratio in ratios]
        exact = _directly(term, some, slip[one_by_one])
        result[one_by_one], error[one_by_one] = exact
    result -= base
    return result, error


def _directly(
    term: Term, ratios: list[NDArray[np.complex128]], slip: Floats
) -> tuple[NDArray[np.complex128], Floats]:
    """Each logarithm by itself; of any branch, as counts are whole numbers."""
    found = np.zeros(slip.size, complex)
    error = np.zeros(slip.size)
    each = np.stack(ratios)
    largest = 1 + np.abs(each).sum(axis=0)
    most = max(_AT_ONCE // slip.size, 1)
    for start in range(0, term.counts.size, most):
        weights = term.weights[start : start + most]
        counts = term.counts[start : start + most]
        value = 1 + weights @ each
        with np.errstate(divide="ignore", invalid="ignore"):
            off = weights.sum(axis=1)[:, None] * slip + 16 * UNIT * largest
            off /= np.abs(value)
            found += counts @ np.log(value)
        error += counts @ np.where(off < 0.5, 2 * off + 16 * UNIT, np.inf)
    # Sums of so many, of phases as well as of sizes.
    return found, error + 4 * UNIT * term.counts.size * np.abs(found)


def _series(
    term: Term, reach: float
) -> tuple[int, list[tuple[tuple[int, ...], float]]]:
    """Degree, and the powers of ratios with their coefficients."""
    ratios = term.weights.shape[1]
    limit = {1: 40, 2: 10}.get(ratios, 7)
    degree = 1
    while degree < limit and term.steps * reach ** (degree + 1) > _SMALL:
        degree += 1
    found = []
    for d in range(1, degree + 1):
        for powers in _powers(ratios, d):
            moment = term.counts
            for m, power in enumerate(powers):
                if power:
                    moment = moment * term.weights[:, m] ** power
            share = (1 if d % 2 else -1) / d * _multinomial(powers)
            found.append((powers, share * float(moment.sum())))
    return degree, found


def _sum_of(
    parts: list[tuple[tuple[int, ...], float]], ratios: list[NDArray[np.complex128]]
) -> NDArray[np.complex128]:
    """The series, each power from one of a degree less."""
    result = np.zeros(ratios[0].size, complex)
    products: dict[tuple[int, ...], NDArray[np.complex128]] = {}
    for powers, share in parts:
        m = next(i for i, power in enumerate(powers) if power)
        less = tuple(power - (i == m) for i, power in enumerate(powers))
        before = products.get(less)
        product = ratios[m] if before is None else before * ratios[m]
        products[powers] = product
        result += share * product
    return result


@functools.cache
def _powers(variables: int, degree: int) -> tuple[tuple[int, ...], ...]:
    cuts = itertools.combinations_with_replacement(range(variables), degree)
    return tuple(tuple(cut.count(v) for v in range(variables)) for cut in cuts)


@functools.cache
def _multinomial(powers: tuple[int, ...]) -> int:
    result = math.factorial(sum(powers))
    for power in powers:
        result //= math.factorial(power)
    return result
