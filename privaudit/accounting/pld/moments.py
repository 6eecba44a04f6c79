"""Log moments of the losses of sampled Gaussians at complex orders, with their errors.

Of a Poisson sampled Gaussian let r = 1 - q + q exp(g) be the likelihood ratio, where g
is normal with mean -m^2 / 2 and variance m^2 under Q. psi(s) = E_Q[r^s] is an integral
by the trapezoidal rule, and log psi of many steps that differ in m and q is
interpolated at Chebyshev points of log m and log q: both converge exponentially, since
the integrand is analytic in g, and psi in m and in q. Each remainder is bounded by an
integral of a majorant off the real line. The proofs are in ``inversion.md``.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import NDArray

from privaudit.accounting.pld.grouping import Family, Grid, Lattice
from privaudit.accounting.pld.line import UNIT, Floats

Complexes = NDArray[np.complex128]
Indices = NDArray[np.int64]

MOST_RATE = 0.8  # beyond, r comes too near to 0
_SHIFT_RATIO, _RATE_RATIO = 3.0, 4.0  # of the largest to the least in one box
_MOST_BOXES = 100
_MIXED = 12  # nodes of a box where bounds are enough
_MOST_DIRECT = 16  # different steps of a box, beyond which they are interpolated
_MOST_POINTS = 8000  # of an integral
_MOST_WORK = 1 << 23  # points of an integral times orders and rates, in a box
_DEGREES = np.arange(3.0, 60.0)
_LEVELS = 8  # groups of orders that share a bound
_ANGLES = (
    0.005,
    0.012,
    0.03,
    0.06,
    0.12,
    0.2,
    0.3,
    0.45,
    0.6,
)  # of m or q off the real line
_STRIPS = (0.8, 0.5, 0.3, 0.2, 0.1, 0.05)  # of g, over the widest
_CELLS = 120  # of a majorant's integral
_INNER = np.linspace(-1.0, 1.0, _CELLS + 1)  # an even number: 0 is one of them
_OUTER = np.linspace(0.0, 1.0, 24), np.linspace(0.0, 1.0, 48)


class TooHard(Exception):
    """These moments cannot be had to the accuracy that is asked for.

    ``rows`` are the values that would have to be closer together, if that can help.
    """

    def __init__(self, rows: Floats | None = None) -> None:
        super().__init__()
        self.rows = rows


@dataclasses.dataclass(frozen=True, slots=True)
class Orders:
    """Orders s, and the errors of one step's log psi that are hoped for there.

    In groups, whose bounds are those of their worst: ``size`` is the largest modulus
    of s in a group, ``turn`` that of its imaginary part, ``power`` and ``root`` the
    largest real part and minus the least, both at least 0.
    """

    s: Complexes
    aim: Floats
    group: Indices
    size: Floats
    turn: Floats
    power: Floats
    root: Floats
    hoped: Floats

    @property
    def many(self) -> bool:
        """Whether there are many, in equal steps, at which rounding does not matter."""
        return self.s.size > 12 and float(self.hoped.min()) > 1e-12

    @classmethod
    def of(cls, s: Complexes, aim: Floats) -> Orders:
        turn = np.abs(s.imag)
        rank = np.argsort(np.argsort(turn, kind="stable"), kind="stable")
        real = turn == 0
        rest = np.maximum(rank - int(real.sum()), 0)
        group = np.where(
            real, 0, 1 + rest * (_LEVELS - 1) // max(int((~real).sum()), 1)
        )
        _, group = np.unique(group, return_inverse=True)
        groups = int(group.max()) + 1

        def most(values: Floats) -> Floats:
            found = np.zeros(groups)
            np.maximum.at(found, group, values)
            return found

        hoped = 1 / most(1 / aim)
        return cls(
            s,
            aim,
            group,
            most(np.abs(s)),
            most(turn),
            most(s.real),
            most(-s.real),
            hoped,
        )


@dataclasses.dataclass(frozen=True, slots=True)
class _Weight:
    """At least the density of g: size exp(-(curve g^2 + g + level) / 2).

    For all m of a box, complex ones too, with a modulus in [low, high] and an argument
    of up to ``angle``.
    """

    size: float
    curve: float
    level: float

    @classmethod
    def of(cls, low: float, high: float, angle: float = 0.0) -> _Weight:
        cos = math.cos(2 * angle)
        size = 1 / (math.sqrt(2 * math.pi) * low)
        return cls(size, cos / high**2, low * low * cos / 4)

    def log(self, g: Floats) -> Floats:
        return math.log(self.size) - 0.5 * (g * (g * self.curve + 1) + self.level)

    def edges(self, orders: Orders, angle: float = 0.0) -> Floats:
        """Of cells, beyond which the weight times (r - 1)^2 r^s falls by e a unit.

        arg r, which is at most ``angle``, grows by tan(angle / 2) / 2 a unit at most.
        """
        turn = float(orders.turn.max()) * math.tan(angle / 2) / 2
        ends = []
        for slope in (1.5, float(orders.power.max()) + 3.5 + turn):
            far = slope + math.sqrt(slope**2 + 180.0 * self.curve)
            ends.append(far / self.curve)
        core = min(8 / math.sqrt(self.curve), *ends)
        low, high = (
            core * np.exp(math.log(end / core) * part)
            for end, part in zip(ends, _OUTER, strict=True)
        )
        return np.concatenate([-low[:0:-1], core * _INNER, high[1:]])

    @property
    def spare(self) -> float:
        """By how much more than that it falls at those ends."""
        return 13.0 * math.sqrt(self.curve)


def _majorant(
    weight: _Weight, orders: Orders, rate: float, strip: float = 0.0, angle: float = 0.0
) -> Floats:
    """At least the integral of |r^s - 1 - s (r - 1)|, by group of orders.

    On the real line, where its integral is all that is asked for, or of |r^s - 1|.

    Parameters
    ----------
    weight
        Of g.
    rate
        The largest modulus of q.
    strip, angle
        Imaginary part of g, and the largest argument of q.
    """
    if rate > 0.9:
        return np.full(orders.size.shape, np.inf)
    edges = weight.edges(orders, strip + angle)
    if edges[-1] > 600:
        return np.full(orders.size.shape, np.inf)
    left, right = edges[:-1], edges[1:]
    top = np.clip(-0.5 / weight.curve, left, right)
    log_mass = weight.log(top) + np.log(right - left)
    grown = np.exp(np.minimum(right, 650.0))
    away = np.maximum(
        np.abs(np.expm1(left)), np.abs(np.expm1(np.minimum(right, 650.0)))
    )
    move = rate * (away + 2 * math.sin(strip / 2) * grown)  # at least |r - 1|
    most = np.log1p(move)  # at least log |r|
    gain = rate * np.maximum(grown, away)
    along = np.where(left >= 0, gain * math.cos(strip + angle), 0.0)
    sine = math.sin(strip + angle)
    turn = np.arctan2(gain * sine, (1 - rate) + along)  # at least |arg r|
    least = -math.log1p(-rate)  # at least -log |r|
    size = np.minimum(move / (1 - rate), np.maximum(most, least) + turn)  # |log r|
    s, t = orders.size[:, None], orders.turn[:, None]
    fall = np.minimum(least, move / (1 - rate))
    power = orders.power[:, None] * most + orders.root[:, None] * fall + t * turn
    square = np.log(np.maximum(size, 1e-300)) * 2
    with np.errstate(over="ignore"):
        # |exp(w) - 1 - w| <= |w|^2 / 2 exp(Re w)+, and <= exp(Re w) + 1 + |w|.
        inner = np.minimum(0.5 * (s * size) ** 2, 2 + s * size)
        first = np.exp(
            np.minimum(log_mass + np.log(np.maximum(inner, 1e-300)) + power, 700.0)
        )
        first = first.sum(axis=1)
        second = np.exp(np.minimum(log_mass + square + most, 700.0)).sum()
        # Beyond the ends: each falls by e a unit there.
        last = (log_mass + square + power)[:, [0, -1]] + orders.root[:, None] * least
        last = np.exp(np.minimum(last, 700.0))
        rest = np.exp(np.minimum((log_mass + square + most)[[0, -1]], 700.0)).sum()
        wide = 2 / min(float((right - left).min()), 1.0)
        found = first + 0.5 * orders.size**2 * wide * last.sum(axis=1)
        found = found + 0.5 * orders.size * (second + wide * rest)
        if not strip:  # r - 1 and its multiples add nothing to the integral
            end = (log_mass + 0.5 * square + power)[:, [0, -1]]
            end = np.exp(np.minimum(end + orders.root[:, None] * least, 700.0))
            # |exp(w) - 1| <= |w| exp(Re w)+, and <= exp(Re w)+ + 1.
            plain = np.log(np.maximum(np.minimum(s * size, 2), 1e-300))
            plain = np.exp(np.minimum(log_mass + plain + power, 700.0)).sum(axis=1)
            found = np.minimum(found, plain + orders.size * wide * end.sum(axis=1))
    # Nor does what r adds grow faster than that towards the lower end.
    grows = (orders.turn * sine + orders.root) * rate / (1 - rate) * math.exp(edges[0])
    return np.where(grows <= weight.spare, found, np.inf)


@dataclasses.dataclass(frozen=True, slots=True)
class _Integral:
    """The trapezoidal rule for steps with shifts in [low, high] and rates up to most.

    ``error`` is by group of orders, without rounding.
    """

    g: Floats
    spacing: float
    error: Floats

    @classmethod
    def of(cls, low: float, high: float, most: float, orders: Orders) -> _Integral:
        weight = _Weight.of(low, high)
        best = 0.0, None
        for part in _STRIPS:
            strip = part * min(1.0, 6 * low)
            size = _majorant(weight, orders, most, strip)
            size = size * math.exp(0.5 * (strip / low) ** 2)
            # 2 size / (exp(2 pi strip / spacing) - 1) is the error.
            with np.errstate(divide="ignore"):
                log = float(np.log(8 * size / orders.hoped + 1).max())
            spacing = 2 * math.pi * strip / max(log, 1.0) if log < 1e4 else 0.0
            if spacing > best[0]:
                best = spacing, (strip, size)
            elif best[0]:
                break
        spacing, how = best
        if how is None:
            raise TooHard
        # A multiple of a power of two, so that all points are exact.
        unit = 2.0 ** (math.floor(math.log2(spacing)) - 6)
        spacing = math.floor(spacing / unit) * unit
        strip, size = how
        error = 2 * size / math.expm1(min(2 * math.pi * strip / spacing, 700.0))
        edges = weight.edges(orders)
        sizes = _sizes(weight, orders, most, edges)
        used = np.flatnonzero((sizes > 1e-34).any(axis=0))
        first = math.floor(edges[used[0]] / spacing)
        last = math.ceil(edges[used[-1] + 1] / spacing)
        if last - first > _MOST_POINTS:
            raise TooHard
        # What lies beyond: of a cell, and beyond all cells, where it falls by e a unit.
        wide = sizes * (np.diff(edges) + spacing)
        apart = wide[:, : used[0]].sum(axis=1) + wide[:, used[-1] + 1 :].sum(axis=1)
        error = error + apart + (spacing + 2) * (sizes[:, 0] + sizes[:, -1])
        return cls(np.arange(first, last + 1) * spacing, spacing, error)

    def masses(self, shift: Floats) -> tuple[Floats, Floats]:
        """Of the points (columns) at each shift, and those times 1 + x^2."""
        x = self.g / shift[:, None] + 0.5 * shift[:, None]
        mass = np.exp(-0.5 * x * x) * (self.spacing / math.sqrt(2 * math.pi))
        mass = mass / shift[:, None]
        return mass, mass * (1 + x * x)

    def logs(
        self, masses: tuple[Floats, Floats], rate: float, orders: Orders
    ) -> tuple[Complexes, Floats]:
        """log psi at each shift (rows) and order, and its error by order."""
        mass, rough = masses
        ratio = rate * np.expm1(self.g)
        loss = np.log1p(ratio)
        power = np.maximum(
            0.0,
            np.maximum(
                float(orders.power.max()) * loss, -float(orders.root.max()) * loss
            ),
        )
        if power.max() > 600 or self.g[-1] > 600:
            raise TooHard
        if orders.many:  # by products, which are good to a unit in the last place of 1
            powers = _powers(loss, orders.s)
            # Of the same integrand: where psi is near 1, the rule may be too coarse for
            # that of 1 and of r, which must not be put in for their sums.
            moved = mass @ powers.real.T + 1j * (mass @ powers.imag.T)
            moved = (
                moved - mass.sum(axis=1)[:, None] - orders.s * (mass @ ratio)[:, None]
            )
            size = float((rough @ np.exp(power)).max())
            size = size + np.abs(orders.s) * float(
                (rough @ (np.abs(loss) * np.exp(power) + np.abs(ratio))).max()
            )
        else:
            inner = np.expm1(orders.s[:, None] * loss) - orders.s[:, None] * ratio
            moved = mass @ inner.T
            size = rough @ (np.abs(loss) * np.exp(power) + np.abs(ratio))
            size = np.abs(orders.s) * float(size.max())
        rounding = UNIT * (64 + loss.size) * size
        off = self.error[orders.group] + rounding
        room = 1 - off / np.abs(1 + moved).min(axis=0)
        if not (room > 0.5).all():
            raise TooHard
        error = 2 * off / np.abs(1 + moved).min(axis=0)
        return _log1p(moved), error


def _powers(loss: Floats, s: Complexes) -> Complexes:
    """exp(s loss), by order and loss, of orders in equal steps."""
    some = math.isqrt(s.size) + 1
    first = np.exp(s[:some, None] * loss)
    jumps = np.arange(-(-s.size // some)) * some * (s[1] - s[0])
    found = np.exp(jumps[:, None] * loss)[:, None, :] * first
    return found.reshape(-1, loss.size)[: s.size]


def _log1p(z: Complexes) -> Complexes:
    """log(1 + z), good to a few units in the last place of |z|, which may be tiny.

    Or of 1 / |1 + z|, which may be large: there the squares would have too few digits.
    """
    size = np.abs(1 + z)
    near = 0.5 * np.log1p(np.maximum(2 * z.real + z.real**2 + z.imag**2, -0.9))
    real = np.where(size < 0.5, np.log(np.maximum(size, 1e-300)), near)
    return real + 1j * np.arctan2(z.imag, 1 + z.real)


def _sizes(weight: _Weight, orders: Orders, rate: float, edges: Floats) -> Floats:
    """At least the integrand in each cell, by group of orders; of real m and q."""
    left, right = edges[:-1], edges[1:]
    mass = weight.log(np.clip(-0.5 / weight.curve, left, right))
    gain = np.logaddexp(0.0, math.log(rate) + right)
    power = np.maximum(orders.power, 1.0)[:, None] * gain
    power = power - orders.root[:, None] * math.log1p(-rate)
    log_size = mass + power + np.log(2 + orders.size)[:, None]
    return np.exp(np.clip(log_size, -745.0, 700.0))


def log_moments(family: Family, s: Complexes, aim: Floats) -> tuple[Complexes, Floats]:
    """sum_k n_k log psi_k at each order, and bounds on the errors.

    Up to multiples of 2 pi i. ``aim`` is the error that is hoped for, in all.

    Raises
    ------
    TooHard
        If a step is sampled at more than `MOST_RATE`, or it would be too much work.
    """
    if family.noise != "gaussian" or family.scheme != "poisson":
        raise TooHard
    if float(family.rate.max()) > MOST_RATE:
        raise TooHard
    value, error = np.zeros(s.shape, complex), np.zeros(s.shape)
    orders = Orders.of(s, aim / family.steps)
    todo = [(some, 8) for some in _boxes(family)]
    made = 0
    while todo:
        some, depth = todo.pop()
        box = dataclasses.replace(
            family,
            shift=family.shift[some],
            rate=family.rate[some],
            count=family.count[some],
        )
        try:
            direct = some.size <= _MOST_DIRECT
            more, off = (_direct if direct else _interpolated)(box, orders)
        except TooHard as error_:
            if error_.rows is None or not depth or made + len(todo) > _MOST_BOXES:
                raise
            halves = error_.rows < math.sqrt(error_.rows.min() * error_.rows.max())
            if halves.all() or not halves.any():  # neighbouring floats
                raise
            todo += [(some[halves], depth - 1), (some[~halves], depth - 1)]
            continue
        made += 1
        value += more
        error += off + 16 * UNIT * np.abs(more)
    return value, error + 4 * UNIT * made * np.abs(value)


def most_log_moment(family: Family, order: float) -> float:
    """At least sum_k n_k log psi_k at a real order that is >= 1 or <= 0.

    A step is dominated by the mixture of those at the nodes around it (``pld.md``,
    "Grouping"), and psi is an f-divergence: convex, and no less of what dominates.
    """
    total = 0.0
    orders = Orders.of(np.array([order + 0j]), np.array([1e-3 / family.steps]))
    for some in _boxes(family):
        shift, rate, count = family.shift[some], family.rate[some], family.count[some]
        box = dataclasses.replace(family, shift=shift, rate=rate, count=count)
        nodes = Grid(1.0, _MIXED, 1.0)
        lattice = Lattice.of(box, nodes, up=True)
        low, high = float(lattice.shifts[0]), float(lattice.shifts[-1])
        integral = _Integral.of(low, high, float(lattice.rates[-1]), orders)
        masses = integral.masses(lattice.shifts)
        grid = np.ones((lattice.rates.size + 1, lattice.shifts.size + 1))
        for j, one in enumerate(lattice.rates.tolist()):
            value, error = integral.logs(masses, one, orders)
            grid[j, :-1] = np.exp(value[:, 0].real + error[0])
        grid[-1], grid[:, -1] = grid[-2], grid[:, -2]
        i, j = lattice.at_shift, lattice.at_rate
        a, b = lattice.to_shift, lattice.to_rate
        psi = (1 - b) * ((1 - a) * grid[j, i] + a * grid[j, i + 1])
        psi += b * ((1 - a) * grid[j + 1, i] + a * grid[j + 1, i + 1])
        total += float(count @ np.log(psi)) * (1 + 1e-12)
        total += 64 * UNIT * float(count.sum())
    return total


def _boxes(family: Family) -> Iterator[Indices]:
    def bins(values: Floats, ratio: float) -> Indices:
        far = math.log(values.max() / values.min())
        parts = max(math.ceil(far / math.log(ratio) - 1e-9), 1)
        where = np.log(values / values.min()) * (parts / max(far, 1e-300))
        return np.minimum(where.astype(np.int64), parts - 1)

    rows, columns = bins(family.shift, _SHIFT_RATIO), bins(family.rate, _RATE_RATIO)
    code = rows * (int(columns.max()) + 1) + columns
    order = np.argsort(code, kind="stable")
    _, first = np.unique(code[order], return_index=True)
    yield from np.split(order, first[1:])


def _direct(box: Family, orders: Orders) -> tuple[Complexes, Floats]:
    low, high = float(box.shift.min()), float(box.shift.max())
    integral = _Integral.of(low, high, float(box.rate.max()), orders)
    total, error = np.zeros(orders.s.shape, complex), np.zeros(orders.s.shape)
    for rate in np.unique(box.rate).tolist():
        some = box.rate == rate
        value, off = integral.logs(integral.masses(box.shift[some]), rate, orders)
        total += box.count[some] @ value
        error += float(box.count[some].sum()) * off
    return total, error


def _interpolated(box: Family, orders: Orders) -> tuple[Complexes, Floats]:
    low, high = float(box.shift.min()), float(box.shift.max())
    often = float(box.rate.max())
    shifts = _Nodes.of(
        box.shift,
        orders,
        lambda angle, a, b: _majorant(_Weight.of(a, b, angle), orders, often),
    )
    rates = _Nodes.of(
        box.rate,
        orders,
        lambda angle, a, b: _majorant(_Weight.of(low, high), orders, b, angle=angle),
    )
    integral = _Integral.of(low, high, often, orders)
    if integral.g.size * rates.points.size * orders.s.size > _MOST_WORK:
        raise TooHard
    masses = integral.masses(shifts.points)
    values, off = zip(
        *(integral.logs(masses, rate, orders) for rate in rates.points.tolist()),
        strict=True,
    )
    weights = (shifts.weights * box.count[:, None]).T @ rates.weights
    total = np.asarray(np.tensordot(weights.T, np.stack(values), 2), np.complex128)
    most = np.maximum(shifts.size, rates.size)[orders.group]
    nodes = 16 + shifts.points.size + rates.points.size
    rounding = UNIT * (64 * nodes + box.shift.size) * most
    rounding = rounding + functools.reduce(np.maximum, off)
    error = shifts.error[orders.group] + shifts.norm * rates.error[orders.group]
    return total, box.steps * (error + shifts.norm * rates.norm * rounding)


@dataclasses.dataclass(frozen=True, slots=True)
class _Nodes:
    """Chebyshev points in the logarithm, and the weights of values there for each step.

    Parameters
    ----------
    points, weights
        (nodes,) and (steps, nodes).
    norm
        Bounds the sum of the moduli of a step's weights.
    error, size
        Bounds on the remainder for log psi, and on log psi, by group of orders.
    """

    points: Floats
    weights: Floats
    norm: float
    error: Floats
    size: Floats

    @classmethod
    def of(
        cls,
        values: Floats,
        orders: Orders,
        majorant: Callable[[float, float, float], Floats],
    ) -> _Nodes:
        """``majorant`` of an ellipse's largest angle, least and largest modulus."""
        low, high = float(values.min()), float(values.max())
        nothing = np.zeros(orders.size.shape)
        if low == high:
            one = np.ones((values.size, 1))
            return cls(np.array([low]), one, 1.0, nothing, nothing)
        half, middle = 0.5 * math.log(high / low), math.sqrt(high * low)
        tries: list[tuple[float, Floats]] = []
        for angle in reversed(_ANGLES):
            rho = angle / half + math.hypot(1.0, angle / half)
            wide = math.exp(0.5 * (rho + 1 / rho) * half)
            moved = majorant(angle, middle / wide, middle * wide)
            with np.errstate(divide="ignore"):
                size = np.where(moved < 0.9, -np.log1p(-np.minimum(moved, 0.9)), np.inf)
            tries.append((rho, size))
            if len(tries) > 1 and np.isfinite(tries[-2][1]).all():
                break  # narrower ellipses need more points
        rho, sizes = (np.array(each) for each in zip(*tries, strict=True))
        fall = 4 * rho ** -_DEGREES[:, None] / (rho - 1)  # (degrees, tries)
        errors = (fall[:, :, None] * sizes).min(axis=1)
        enough = (errors <= 0.1 * orders.hoped).all(axis=1)
        if not enough.any():
            raise TooHard(values)
        first = int(enough.argmax())
        degree, error = int(_DEGREES[first]), errors[first]
        places = np.cos(np.arange(degree + 1) * (math.pi / degree))
        signs = np.where(np.arange(degree + 1) % 2, -1.0, 1.0)
        signs[[0, -1]] *= 0.5
        apart = (np.log(values / middle) / half)[:, None] - places
        weights = np.where(apart == 0, 1e300, signs / np.where(apart == 0, 1.0, apart))
        weights /= weights.sum(axis=1, keepdims=True)
        norm = 1 + 2 / math.pi * math.log(degree + 1)
        points = middle * np.exp(half * places)
        return cls(points, weights, norm, error, sizes.min(axis=0))
