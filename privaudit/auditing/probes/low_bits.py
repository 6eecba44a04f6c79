"""Low bits of floats that tell two data sets apart (Mironov 2012).

A sum in floating point is a multiple of the last place of its larger summand: where
noise nearly cancels a large value the low bits are empty, and with a small one they are
not. Values are compared within one octave and sign, as the last place depends on both.

A density that is flat over `_FINE` of its spread, and of an octave, has all bits below
that alike, whatever the data are: given the counts of fine values and of data sets in
an octave, how many fine ones each data set has is hypergeometric. An *e-value* is a
number whose mean is 1 at most if that holds, so that it reaches 1 / alpha with
probability alpha at most (Markov); those of octaves and of further runs multiply.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import special

_FINE = 2.0**-14  # well below any feature of noise, well above the 24 bits of a float32
_LOG_ODDS = np.log([1 / 64, 1 / 8, 8.0, 64.0])  # of fine values, which are bet on
_LEAST = 4  # values of an octave that is looked at; fewer show nothing

Floats = NDArray[np.float64]
Worlds = NDArray[np.bool_]


def lowest_bit(values: Floats) -> Floats:
    """Exponent of the lowest bit that is set; infinity where there is none.

    >>> lowest_bit(np.array([1.0, 0.75, 6.0])).tolist()
    [0.0, -2.0, 1.0]
    """
    mantissa, exponent = np.frexp(values)
    whole = np.ldexp(np.where(np.isfinite(mantissa), mantissa, 0), 53).astype(np.int64)
    with np.errstate(divide="ignore"):
        trailing = np.log2((whole & -whole).astype(float))
    return np.where(whole == 0, np.inf, exponent - 53 + trailing)


def log_e_value(here: Floats, other: Floats) -> float:
    """Logarithm of an e-value against equal low bits of two samples.

    A value that comes twice is left out: a mechanism may give one, such as the end of a
    range, with a chance that depends on the data.

    >>> grid = np.arange(1.0, 2.0, 1 / 512)
    >>> log_e_value(grid + 2.0**-40, grid + 2.0**-30) > 100
    True
    >>> log_e_value(grid, grid + 2.0**-40) > 100
    True
    """
    return sum(
        _octave(bits, edges, worlds)
        for _, bits, edges, worlds in _octaves(here, other, once=True)
    )


def lone(here: Floats, other: Floats, chance: float) -> str:
    """Low bits that only one sample has, by ``chance`` at most; "" if it has none."""
    for size, bits, edges, worlds in _octaves(here, other, once=False):
        for edge in edges:
            fine = worlds[bits <= edge]
            alone = int((worlds == fine[0]).sum())
            if fine.all() or not fine.any():
                log = _log_choose(alone, len(fine)) - _log_choose(len(bits), len(fine))
                if log < math.log(chance) and len(bits) > alone + 9:
                    return (
                        f"of values near {size:.4g}, {len(fine)} of {alone} have low "
                        "bits on one data set that none of "
                        f"{len(bits) - alone} have on the other"
                    )
    return ""


def _octaves(
    here: Floats, other: Floats, *, once: bool
) -> Iterator[tuple[float, Floats, Floats, Worlds]]:
    """The least size, lowest bits, fine ones of these, and worlds of each octave."""
    quartiles = np.quantile([here, other], [0.25, 0.75], axis=1)
    spread = float((quartiles[1] - quartiles[0]).min())
    both = np.concatenate([here, other])
    worlds = np.arange(len(both)) >= len(here)
    looked = both != 0
    if once:
        _, inverse, counts = np.unique(both, return_inverse=True, return_counts=True)
        looked &= counts[inverse] == 1
    if not spread > 0 or not looked.any():
        return
    both, worlds = both[looked], worlds[looked]
    bits, octaves = lowest_bit(both), np.frexp(both)[1]
    names = 2 * octaves + (both < 0)
    order = np.argsort(names, kind="stable")
    for places in np.split(order, np.flatnonzero(np.diff(names[order])) + 1):
        octave = int(octaves[places[0]])
        fine = math.log2(_FINE) + min(octave - 1, math.log2(spread))
        edges = np.unique(bits[places])[:-1]  # all bits are at or below the last
        edges = edges[edges < fine]
        members = int(worlds[places].sum())
        if len(edges) and len(places) >= _LEAST and 0 < members < len(places):
            yield math.ldexp(0.5, octave), bits[places], edges, worlds[places]


def _octave(bits: Floats, edges: Floats, worlds: Worlds) -> float:
    """Half of the capital is kept; the rest is on each edge and odds alike."""
    fine = bits <= edges[:, None]  # (edges, runs)
    total, members = fine.sum(1)[:, None], int(worlds.sum())  # (edges, 1)
    inside = (fine & worlds).sum(1)
    # Of all counts that are possible, by their hypergeometric chances.
    counts = np.arange(min(members, int(total.max())) + 1)
    others = total - counts
    possible = (others >= 0) & (others <= len(bits) - members)
    chances = np.where(
        possible,
        _log_choose(members, counts)
        + _log_choose(len(bits) - members, np.where(possible, others, 0))
        - _log_choose(len(bits), total),
        -np.inf,
    )
    bets = [
        odds * inside - special.logsumexp(chances + odds * counts, axis=1)
        for odds in _LOG_ODDS
    ]
    mean = special.logsumexp(bets) - math.log(np.size(bets))
    return float(np.logaddexp(math.log(0.5), math.log(0.5) + mean))


def _log_choose(many: int, few: NDArray[Any] | int) -> Floats:
    return (
        special.gammaln(many + 1)
        - special.gammaln(np.add(few, 1))
        - special.gammaln(many - np.asarray(few) + 1)
    )
