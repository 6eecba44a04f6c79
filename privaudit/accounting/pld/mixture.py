"""Steps that are mixtures of a few measures, and sums of their logarithms."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from privaudit.accounting.pld.line import UNIT, Floats


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
        """How many steps there are."""
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
    good = z < 0.5
    reach = float(z[good].max()) if good.any() else 0.0
    limit = {1: 40, 2: 10}.get(len(ratios), 7)
    degree = 1
    while degree < limit and term.steps * reach ** (degree + 1) > 1e-12:
        degree += 1
    result = np.zeros(first.size, complex)
    if len(ratios) == 1:
        weight = term.weights[:, 0]
        for d in range(degree, 0, -1):
            result += (1 if d % 2 else -1) * float(term.counts @ weight**d) / d
            result *= ratios[0]
    else:
        for d in range(1, degree + 1):
            for powers in _powers(len(ratios), d):
                moment = term.counts
                product: NDArray[np.complex128] | float = 1.0
                for m, power in enumerate(powers):
                    if power:
                        moment = moment * term.weights[:, m] ** power
                        product = product * ratios[m] ** power
                share = (1 if d % 2 else -1) / d * _multinomial(powers)
                result += share * float(moment.sum()) * product
    result -= float(term.counts @ np.log1p(term.weights @ (heads[1:] - 1)))
    z = np.minimum(z, 0.999)
    remainder = term.steps * z ** (degree + 1) / ((degree + 1) * (1 - z))
    # Errors of the ratios, at most 4 transform / |F_0| each, and of the sums.
    slip = 4 * transform * float(heads.max()) / np.abs(first)
    rounding = term.steps * (slip + 64 * UNIT * z + 16 * UNIT) / (1 - z)
    return result, np.where(good, remainder + rounding, np.inf)


def _powers(variables: int, degree: int) -> Iterator[tuple[int, ...]]:
    for cut in itertools.combinations_with_replacement(range(variables), degree):
        yield tuple(cut.count(v) for v in range(variables))


def _multinomial(powers: tuple[int, ...]) -> int:
    result = math.factorial(sum(powers))
    for power in powers:
        result //= math.factorial(power)
    return result
