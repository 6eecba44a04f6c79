"""Noise's first pass as loops that numba compiles: a fifth of torch's time.

What is noise, and where it is not sure, is that of `trainers.numerics.noise`
(noise.md); arithmetic is not reordered: one result on all processors. Words are (nodes,
runs, padded), values (all runs, all nodes, width); a piece begins at ``start``: run,
node, position.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba
import numpy as np
from numba.core import types
from numba.extending import intrinsic

from trainers.numerics.quantiles import LN2, LOG, MOST, OVER, UNDER, UNDER_ROOT_HALF

_Function = Callable[..., Any]


def _compiled(function: _Function) -> _Function:
    """``function`` compiled when it is called, and kept on disk where that can be."""
    try:
        return numba.njit(function, cache=True, error_model="numpy")
    except RuntimeError:  # no folder can be written to
        return numba.njit(function, error_model="numpy")


def _same_bits(given: Any, found: Any) -> Any:
    """A function from one type to the other, of as many bits: what these stand for."""

    @intrinsic
    def read(typing: Any, x: Any) -> Any:
        def code(context: Any, builder: Any, signature: Any, values: Any) -> Any:
            return builder.bitcast(values[0], context.get_value_type(found))

        return found(given), code

    return read


_bits = _same_bits(types.float64, types.int64)
_double = _same_bits(types.int64, types.float64)


def _long_vectors(typing: Any) -> Any:
    """Ask for vectors of 512 bits where there are some: LLVM's habit is 256.

    No other numbers: 1.4 times as many a second. llvmlite's own list of attributes has
    none with values, so that it is passed by.
    """

    def code(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        set.add(builder.function.attributes, '"prefer-vector-width"="512"')
        return context.get_dummy_value()

    return types.none(), code


_ask: Any = intrinsic(_long_vectors)


def _inlined(function: _Function) -> _Function:
    return numba.njit(function, inline="always", error_model="numpy")


@_inlined
def _log(x: float) -> float:
    """The natural logarithm of a normal double, to 1e-15 of 1 or of itself."""
    bits = _bits(x)
    power = (bits - UNDER_ROOT_HALF) >> 52
    part = _double(bits - (power << 52)) - 1.0  # in [sqrt(1/2), sqrt(2)) - 1
    s = part / (2.0 + part)
    z = s * s
    total = 0.0
    for each in LOG:
        total = total * z + each
    return power * LN2 + s * (2.0 + z * total)


@_inlined
def _quantile(word: int, normal: bool) -> float:
    """x of u = word / 2^63, where |x| is at most 4.5 (normal) or 10 (Laplace)."""
    high = (word ^ (word >> 63)) ^ MOST
    tail = (high + 0.5) * 2.0**-64  # of |x| upwards
    if normal:
        w = -_log(4.0 * tail * (1.0 - tail))
        over = under = 0.0
        for each in OVER:
            over = over * w + each
        for each in UNDER:
            under = under * w + each
        x = (1.0 - 2.0 * tail) * over / under
    else:
        x = -_log(2.0 * tail)
    return -x if word < 0 else x


@_compiled
def noisy(
    values: np.ndarray,
    found: np.ndarray,
    grid: tuple[float, float, float],
    words: np.ndarray,
    unsure: np.ndarray,
    start: tuple[int, int, int],
    margin: tuple[float, float, float],
    normal: bool,
) -> int:
    """Write ``values`` on the grid with noise to ``found``; how many are too large.

    ``grid`` is 1 / step, step and the most steps, ``margin`` scale, half and limit:
    where |x| is above the limit, or scale x further than ``half`` from a whole number,
    noise is left out, and ``unsure`` says so.
    """
    _ask()  # for long vectors
    inverse, step, most = grid
    scale, half, limit = margin
    nodes, runs, padded = words.shape
    beyond = 0
    for node in range(nodes):
        for run in range(runs):
            given = values[start[0] + run, start[1] + node, start[2] :]
            made = found[start[0] + run, start[1] + node, start[2] :]
            row, doubt = words[node, run], unsure[node, run]
            width = min(len(given), padded)
            for i in range(width):
                x = _quantile(row[i], normal)
                near = np.rint(x * scale)
                left = (abs(x * scale - near) > half) | (abs(x) > limit)
                whole = np.rint(given[i] * inverse)
                beyond += not abs(whole) <= most
                made[i] = ((0.0 if left else near) + whole) * step
                doubt[i] = left
            doubt[width:] = False
    return beyond


@_compiled
def add_noise(
    sums: np.ndarray,
    words: np.ndarray,
    unsure: np.ndarray,
    start: tuple[int, int, int],
    margin: tuple[float, float, float],
    normal: bool,
) -> None:
    """As `noisy`, of whole steps in place."""
    _ask()  # for long vectors
    scale, half, limit = margin
    nodes, runs, padded = words.shape
    for node in range(nodes):
        for run in range(runs):
            given = sums[start[0] + run, start[1] + node, start[2] :]
            row, doubt = words[node, run], unsure[node, run]
            width = min(len(given), padded)
            for i in range(width):
                x = _quantile(row[i], normal)
                near = np.rint(x * scale)
                left = (abs(x * scale - near) > half) | (abs(x) > limit)
                given[i] += np.int64(0.0 if left else near)  # vectorised, as int is not
                doubt[i] = left
            doubt[width:] = False
