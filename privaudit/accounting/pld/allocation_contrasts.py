"""Epochs in which a record in several batches is replaced, from below: by contrasts.

A mean of a part's outputs moves alike wherever the record is: one release without
sampling. Likelihood ratios of what is left, the outputs less their mean, are quotients
of elementary symmetric polynomials; those of two parts together are made of each and of
how far their means are apart. Vectors are put in cells, mass to the mean. Proofs,
rounding included: ``allocation.md``, "Contrasts".
"""

from __future__ import annotations

import dataclasses
import heapq
import itertools
import math

import numpy as np
from numpy.typing import NDArray
from scipy import special

from privaudit.accounting.pld.line import UNIT, Floats, log_normal_mass

_ALONG, _GROWS = 0.05, 8.0  # cells of logs, over the deviation; how they grow
_ACROSS = 0.1
_LAST = 0.02  # along, of all batches together
_APART, _MOST_APART = 0.5, 300  # cells of how far means are apart, over the deviation
_SAMPLE = 20_000
_WORK = 1.5e7  # rows of all sums together, some seconds
_AT_ONCE = 2e6  # of those, in one sum of two entries each
_AWAY = 1e-3  # of the tail that may be lost, what each sum loses
_LEAST_MASS = 1e-150


@dataclasses.dataclass(frozen=True, slots=True)
class _Part:
    """Vectors (E_0, ..., E_k) of both records, (points, 2, k + 1), and their masses."""

    rows: Floats
    mass: Floats
    accuracy: float  # bound on masses' relative errors
    moved: float  # and on entries'
    size: int  # of how many batches
    spread: float  # Q, the sum of 1 / s^2


def contrasts(
    kinds: list[tuple[float, int]], batches: int, taken: int, tail: float
) -> tuple[Floats, Floats, float, float]:
    """P's and Q's masses, P's where Q has none, and a bound on relative errors."""
    parts: list[tuple[int, int, _Part]] = []
    order = itertools.count()
    sums = sum(n.bit_count() + n.bit_length() - 1 for _, n in kinds) - 1
    share = min(_WORK / max(sums, 1), _AT_ONCE) * 3 / (taken + 1)

    def push(part: _Part) -> None:
        heapq.heappush(parts, (part.size, next(order), part))

    for s, count in kinds:
        ratio = math.exp(-s * s / 2)
        one = np.tile(np.array([1.0, ratio, *[0.0] * taken])[: taken + 1], (1, 2, 1))
        error = (8 + s * s) * UNIT
        power, left = _Part(one, np.ones(1), 0.0, error, 1, s**-2), count
        while left:
            if left & 1:
                push(power)
            left >>= 1
            if left:
                power = _added(power, power, batches, tail, share)
    while len(parts) > 1:
        (_, _, first), (_, _, second) = heapq.heappop(parts), heapq.heappop(parts)
        push(_added(first, second, batches, tail, share))
    law = parts[0][2]
    more = taken * taken / law.spread / 2
    whole = math.exp(more) / math.comb(batches, taken)
    p, q = law.rows[:, :, taken].T * (whole * law.mass)
    return p, q, 0.0, law.accuracy + law.moved + 32 * (1 + more) * UNIT


def _factors(
    one: _Part, other: _Part, taken: int, tail: float, number: float
) -> tuple[Floats, Floats, float]:
    """Chances of cells of d, and E exp(nu d) in each, nu by degrees of both parts.

    d is how far the means are apart, its deviation 1 / ``unit`` here.
    """
    whole = one.spread + other.spread
    unit = math.sqrt(one.spread * other.spread / whole)
    degrees = np.arange(taken + 1)
    nu = (degrees[:, None] * other.spread - degrees * one.spread) / (whole * unit)
    most = float(np.abs(nu).max())
    far = most - float(special.ndtri_exp(math.log(_AWAY * tail)))
    number = math.ceil(min(max(2 * far / _APART, number), _MOST_APART))
    ends = np.linspace(-far, far, number + 1)
    mass = np.exp(log_normal_mass(ends))
    means = np.array(
        [
            [[np.exp(log_normal_mass(ends, sign * at)) for at in row] for row in nu]
            for sign in (1, -1)
        ]
    )
    means *= np.exp(nu * nu / 2)[..., None]
    error = UNIT * (1024 + 32 * (far + most) ** 2)
    return mass, means / mass, error


def _added(one: _Part, other: _Part, batches: int, tail: float, share: float) -> _Part:
    """The law of the vector of two independent parts."""
    taken = one.rows.shape[2] - 1
    number = share / one.mass.size / other.mass.size
    mass, means, error = _factors(one, other, taken, tail, number)
    i, j = np.indices((one.mass.size, other.mass.size)).reshape(2, -1)
    if one is other:
        i, j = np.triu_indices(one.mass.size)
    both = one.mass[i] * other.mass[j]
    if one is other:
        both[i != j] *= 2
    size = one.size + other.size
    rows = np.zeros((2, taken + 1, i.size, mass.size))
    for a in range(taken + 1):
        for b in range(taken + 1 - a):
            pair = one.rows[i, :, a].T * other.rows[j, :, b].T
            rows[:, a + b] += pair[:, :, None] * means[:, a, b, None, :]
    flat = rows.reshape(2, taken + 1, -1)
    weight = (both[:, None] * mass).ravel()
    rest = batches - size
    counts = [math.comb(rest, taken - d) for d in range(taken + 1)]
    # As the others' ratios had their means.
    scale = np.array(counts, float) / math.comb(batches, taken)
    u, v = np.log(np.maximum(np.einsum("d,rdn->rn", scale, flat), 1e-300))
    counted = weight * (np.exp(u) + np.exp(v))
    kept = np.argsort(counted)
    kept = kept[
        np.searchsorted(np.cumsum(counted[kept]), _AWAY * tail * counted.sum()) :
    ]
    kept = kept[weight[kept] > _LEAST_MASS]
    flat, weight, counted = flat[:, :, kept], weight[kept], counted[kept]
    x, y = (u - v)[kept], np.minimum(u, v)[kept]
    at = _cells(x, y, counted, rest, math.sqrt(share / 30))
    terms = np.bincount(at)
    found = np.bincount(at, weight).astype(np.float64)
    some = found > 0
    sums = np.array([[np.bincount(at, weight * e)[some] for e in r] for r in flat])
    more = (int(terms.max()) + 8) * UNIT
    return _Part(
        np.moveaxis(sums / found[some], 2, 0),
        found[some],
        one.accuracy + other.accuracy + error + more,
        one.moved + other.moved + 2 * (error + more) + 8 * (taken + 1) * UNIT,
        size,
        one.spread + other.spread,
    )


def _cells(
    x: Floats, y: Floats, counted: Floats, rest: int, most: float
) -> NDArray[np.int64]:
    """Cells by logs of quotients, and of sizes: a guess that needs no proof."""
    deviation = max(math.sqrt(counted @ (x * x) / counted.sum()), 1e-6)
    wide, across = (_ALONG, _ACROSS) if rest else (_LAST, math.inf)
    some = slice(None, None, -(-x.size // _SAMPLE))

    def places(x: Floats, y: Floats) -> tuple[Floats, NDArray[np.int64]]:
        # Even steps of a function whose slope is 1 / (1 + |x| / (_GROWS deviation)).
        bent = np.sign(x) * np.log1p(np.abs(x) / deviation / _GROWS) * _GROWS / wide
        i, j = np.floor(bent + 0.5), np.floor(y / across)
        key = (i - i.min()) * (np.ptp(j) + 1) + j
        return np.unique(key, return_inverse=True)

    while rest and places(x[some], y[some])[0].size > most:
        wide, across = wide * 1.2, across * 1.2
    return places(x, y)[1]
