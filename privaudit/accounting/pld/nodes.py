"""Choice of the nodes between which many different steps are grouped.

Nothing here enters a bound. A step between two nodes at distance d is replaced by their
mixture, which adds about M'' d^2 / 12 to its moment M = E_P[exp(tilt L)], derivatives
being with respect to tau or to the rate. Of all steps that is least, for a number n of
intervals, where each has the same part of U, the integral of the cube root of the
density of M'' / M; and then it is U^3 / (12 n^2). Where delta is that of few loud steps
it is about the sum of their own, H(epsilon), and no moment tells: H'' / delta is added.
"""

from __future__ import annotations

import math

import numpy as np
from scipy import special

from privaudit.accounting.pld.cells import Direction
from privaudit.accounting.pld.families import Family
from privaudit.accounting.pld.line import Floats

_BINS = (32, 12)  # of shifts, and of rates
_NEAR = 0.02  # relative, of finite differences
_APART = 0.25  # of outputs, for the trapezoidal rule
_MOST = 400  # nodes


def nodes_of(
    family: Family,
    way: Direction,
    tilt: float,
    room: float,
    reach: float,
    aim: tuple[float, float],
) -> tuple[Floats, Floats]:
    """Shifts and rates that add about ``room`` to the log moment at ``tilt``.

    And to log delta, at the epsilon and log delta of ``aim``.
    """
    shifts, rates = np.unique(family.shift), np.unique(family.rate)
    if max(shifts.size, rates.size) < 3:
        return shifts, rates
    edges = [_edges(shifts, _BINS[0]), _edges(rates, _BINS[1])]
    size = (edges[0].size - 1, edges[1].size - 1)
    index = [
        np.clip(np.searchsorted(one, values, "right") - 1, 0, one.size - 2)
        for one, values in zip(edges, (family.shift, family.rate), strict=True)
    ]
    code = np.ravel_multi_index(tuple(index), size)
    often = np.bincount(code, weights=family.count, minlength=size[0] * size[1])
    used = np.flatnonzero(often)
    at = np.unravel_index(used, size)
    middle = [np.sqrt(e[i] * e[i + 1]) for e, i in zip(edges, at, strict=True)]
    bends = _bends(family, way, tilt, reach, aim, *middle)
    both = room if min(shifts.size, rates.size) < 3 else room / 2
    found = []
    for one, i, bend, values, scale in zip(
        *(edges, at, bends, (shifts, rates), (family.tau, _itself)), strict=True
    ):
        weight = np.bincount(i, weights=often[used] * bend, minlength=one.size - 1)
        found.append(_nodes(values, one, scale(one), weight, both))
    return found[0], found[1]


def _itself(values: Floats) -> Floats:
    return values


def _edges(values: Floats, most: int) -> Floats:
    low, high = float(values[0]), float(values[-1])
    if values.size < 3:
        return np.array([low, high]) if high > low else np.array([low, low])
    return np.geomspace(low, high, most + 1)


def _nodes(
    values: Floats, edges: Floats, scale: Floats, weight: Floats, room: float
) -> Floats:
    """Nodes, by the weight of each interval between ``edges``."""
    if values.size < 3:
        return values
    lengths = np.diff(scale)
    part = np.cbrt(weight) * np.cbrt(lengths) ** 2
    total = float(part.sum())
    wanted = total**1.5 / math.sqrt(12 * room) if total > 0 else 1.0
    intervals = math.ceil(min(max(wanted, 1.0), _MOST))
    if intervals + 1 >= values.size:
        return values
    part += 1e-6 * total / part.size + 1e-300  # so that the sums grow
    sums = np.concatenate([[0.0], np.cumsum(part)])
    at = np.linspace(0.0, sums[-1], intervals + 1)
    nodes = np.interp(at, sums, edges)
    nodes[0], nodes[-1] = values[0], values[-1]
    return nodes


def _bends(
    family: Family,
    way: Direction,
    tilt: float,
    reach: float,
    aim: tuple[float, float],
    shift: Floats,
    rate: Floats,
) -> tuple[Floats, Floats]:
    """M'' / M, and H'' / delta, with respect to tau and to the rate."""
    order = -tilt if way == "add" else 1 + tilt
    up, down = math.exp(_NEAR), math.exp(-_NEAR)

    def excess(shift: Floats, rate: Floats) -> tuple[Floats, Floats]:
        own = np.zeros(shift.size)
        if way == "remove":
            own = _delta(family, aim[0], shift, rate) * math.exp(min(-aim[1], 600.0))
        return _excess(family, order, reach, shift, rate), own

    def second(at: list[Floats], *values: tuple[Floats, Floats]) -> Floats:
        found = np.zeros(shift.size)
        whole = (1 + values[1][0], 1.0)
        for low, here, high, over in zip(*values, whole, strict=True):
            slopes = [(high - here) / (at[2] - at[1]), (here - low) / (at[1] - at[0])]
            bend = 2 * (slopes[0] - slopes[1]) / (at[2] - at[0])
            found += np.maximum(np.nan_to_num(bend, posinf=0.0), 0.0) / over
        return found

    with np.errstate(all="ignore"):
        here = excess(shift, rate)
        taus = [family.tau(shift * by) for by in (down, 1.0, up)]
        by_tau = second(
            taus, excess(shift * down, rate), here, excess(shift * up, rate)
        )
        rates = [rate * down, rate, np.minimum(rate * up, 1.0)]
        rates[1] = np.minimum(rate, 0.5 * (rates[0] + rates[2]))
        by_rate = second(
            rates,
            excess(shift, rates[0]),
            excess(shift, rates[1]),
            excess(shift, rates[2]),
        )
    return by_tau, by_rate


def _excess(
    family: Family, order: float, reach: float, shift: Floats, rate: Floats
) -> Floats:
    """About E_Q[r^order] - 1, r = 1 - rate + rate exp(loss without sampling)."""
    m = shift[:, None]
    if family.noise == "laplace":
        x = np.linspace(0.0, 1.0, 41) * m
        loss, mass = 2 * x - m, 0.5 * np.exp(-x) * m / 40
        mass[:, 0], mass[:, -1] = 0.5, 0.5 * np.exp(-shift)
    else:
        top = float(shift.max()) * math.exp(_NEAR)
        x = np.arange(-reach, reach + top + _APART, _APART)
        loss = m * x - 0.5 * m * m
        mass = np.exp(-0.5 * x * x) * (_APART / math.sqrt(2 * math.pi))
    ratio = np.expm1(np.minimum(loss, 600.0)) * rate[:, None]
    power = np.minimum(order * np.log1p(ratio), 600.0)
    # What is linear in the ratio has the mean 0.
    return ((np.expm1(power) - order * ratio) * mass).sum(axis=1)


def _delta(family: Family, epsilon: float, shift: Floats, rate: Floats) -> Floats:
    """About H(exp(epsilon)) of each step, remove."""
    g = np.log1p(np.expm1(min(epsilon, 600.0)) / rate)
    if family.noise == "laplace":
        return rate * np.maximum(-np.expm1((g - shift) / 2), 0.0)
    x = g / shift
    far = np.exp(g + special.log_ndtr(-shift / 2 - x))
    return rate * (special.ndtr(shift / 2 - x) - far)
