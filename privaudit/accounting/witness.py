"""The witness of a certificate: a file that `privaudit.kernel` checks by itself.

It has the ledger in the plainest words, a line for each kind of release, what is
claimed, and hints (a grid) that make checking fast and decide nothing.
The claims are what another proof, on a coarser grid, can be expected to reach: the
account's upper side raised and its lower side lowered by a thousandth.
"""

from __future__ import annotations

import collections
import dataclasses
import decimal
import fractions
import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import numpy as np
from msgspec import UNSET, UnsetType
from numpy.typing import NDArray
from scipy.special import ndtr

from privaudit import mechanisms
from privaudit.accounting import gdp
from privaudit.accounting.pld.composition import Side
from privaudit.accounting.provers import MOST_GUARANTEED, largest_loss
from privaudit.ledger import Entry, Ledger
from privaudit.release import (
    NoSampling,
    PoissonSampling,
    Release,
    SamplingWithoutReplacement,
)
from privaudit.results import Relation

MARGIN = 1e-3  # relative, that a claim is less than the account's figure
# A spacing of this share of one step's standard deviation widens an epsilon by about
# its square over 12, .02 %; cells of a tenth of all steps' by as much. Of many kinds
# of steps, whose laws are multiplied one by one, a coarser grid is .06 % wide.
_SPACING, _COARSE = 0.045, 0.14
_GROWTH = 64  # cells become as wide as this part of their loss, or as a smaller one
_ENDS = (14, 9)  # an end loses delta over so many powers of 2
_KINDS = 200  # from so many on the grid is coarse, and another as good may be quicker
_GROWTHS = (16, 24, 32, 48, 64, 96, 128, 192, 256)
_ROOT = math.sqrt(math.tau)
_SAMPLE = 60  # lines that reach furthest, and of the others, whose losses are looked at
_BEYOND = 8  # standard deviations of the sum that the largest loss is above epsilon
_FEWER = 0.3  # bundles of lines for each line, at most, or they gain nothing
_BUNDLES = 0.6  # part of the room that they take; the grid's error is a square
_KNOT = 5.0  # times that a point of a grid takes
_MOST_POINTS = 1 << 19
_LOST = 14_000  # bits: Python reads numbers of 4300 digits at most
_FEW = 1 << 14  # points up to a loss of its own mass that are all knots
_WINDOW = 20  # standard deviations of the sum that masses lie in
_ROOM = 2**27  # units of masses in what delta is of all steps


def witness(
    ledger: Ledger,
    relation: Relation,
    delta: float,
    # epsilon from below and from above; 0 and infinity claim nothing
    sides: tuple[float, float],
    *,
    # overlap, group: as of `Certificate.of`
    overlap: int = 1,
    group: int = 1,
) -> dict[str, object]:
    """Document that says what is claimed of ``ledger``."""
    if group > 1:
        ledger = _without_parts(ledger)
    looking = ledger.observing
    different = dict.fromkeys(
        entries for i, entries in enumerate(ledger.nodes) if i not in looking
    )
    nodes = [one for entries in different for one in _nodes(entries, relation)]
    if overlap > 1:  # equal ones count, up to so many
        copies = overlap if len(ledger.nodes) < overlap else 1
        nodes = [
            one
            for entries, often in collections.Counter(ledger.nodes * copies).items()
            for one in _nodes(entries, relation) * min(often, overlap)
        ]
    lower, upper = sides
    found: dict[str, object] = {
        "format": "privaudit-certificate-3",
        "relation": relation,
        "unit": ledger.unit,
        "delta": repr(delta),
        "upper": _decimal(upper, 1 + MARGIN, decimal.ROUND_CEILING),
        "lower": _decimal(lower, 1 - MARGIN, decimal.ROUND_FLOOR),
        "overlap": overlap,
        "group": group,
        "failure": repr(ledger.failure),
        "assumes": list(ledger.assumptions),
    }
    if ledger.observer is not UNSET:
        found["observer"] = ledger.observer
    steps = max(
        (sum(e.count for e in entries) for entries in different), default=1
    ) * max(overlap, 1)
    marks = [
        (entry.count * mark, mark)
        for entries in different
        for entry in entries
        if (mark := _mark(entry.release, relation, group, steps))
    ]
    marked = [mark for _, mark in sorted(marks, reverse=True)]
    kinds = max((len(set(entries)) for entries in different), default=0)
    # Long laws late: quicker products.
    if kinds >= _KINDS and ledger.observer is UNSET:
        for node in nodes:
            for some in node["groups"]:
                some["lines"].sort(key=_reach)
    size = upper if math.isfinite(upper) else lower
    between = size - lower if lower > 0 else 0.0  # where the truth lies, in the midst
    room = 0.3 * MARGIN * size + between / 6
    lines = [x for node in nodes for some in node["groups"] for x in some["lines"]]
    tilted = None
    if kinds >= _KINDS and delta and all(x["noise"] == "gaussian" for x in lines):
        tilted = _Tilted.of(lines, size, delta, group)
        if group == 1 and ledger.observer is UNSET:
            room -= _bundle(nodes, tilted, _BUNDLES * room)
    hints = _hints(size, delta, steps, kinds, marked, lines, room, tilted)
    return {**found, "nodes": nodes, "hints": hints}


def of_budget(
    releases: Mapping[Release, int],
    unit: Release | float | None,
    count: int,
    relation: Relation,
    delta: float,
    epsilon: float,
) -> dict[str, object]:
    """Document of releases that ``count`` units, or one of a Gaussian mu, pay for."""
    whole = Ledger(nodes=(tuple(Entry(one, n) for one, n in releases.items()),))
    found = witness(whole, relation, delta, (0.0, epsilon))
    lines = [line_of(one, relation, n) for one, n in releases.items()]
    above: dict[str, object] = {"noise": "as a Renyi divergence"}
    if isinstance(unit, float):
        moves = repr(unit)
        above = {"noise": "gaussian", "moves": moves, "norm": moves}
    elif unit is not None:
        above = line_of(unit, relation, count)
    hints = _hints(epsilon, delta, count, 1, [])
    plain = {"sampling": "none", "rate": "1", "count": 1}
    groups = [{"lines": lines, "above": {**plain, **above}}]
    return {**found, "nodes": [{"groups": groups}], "hints": hints}


def _decimal(value: float, times: float, rounding: str) -> str | None:
    """``value`` raised or lowered, with six digits; None where nothing is claimed."""
    if not math.isfinite(value) or (times < 1 and not value > 0):
        return None
    with decimal.localcontext(prec=6, rounding=rounding):
        return str(+(decimal.Decimal(value) * decimal.Decimal(times))).lower()


def _hints(
    epsilon: float,
    delta: float,
    steps: int,
    kinds: int,
    marks: Sequence[float],
    lines: Sequence[Mapping[str, Any]] = (),
    room: float = 0.0,
    tilted: _Tilted | None = None,
) -> dict[str, object]:
    """Grid of masses for a composition of so many steps, of so many kinds.

    That of many kinds widens an epsilon by about ``room`` at most. ``marks``: losses
    that have mass of their own, that which is most in all first.
    """
    reach = max(map(_reach, lines), default=0.0)
    size = float(gdp.mu(max(epsilon, 1e-6), min(max(delta, 1e-12), 0.5)))
    if not 0 < size < math.inf:
        size = 1.0
    # Where epsilon is near 0, an error of delta is a larger one of epsilon.
    few = kinds < _KINDS
    fine = _SPACING * math.sqrt(min(1.0, max(epsilon / size / 2, 0.01)))
    fine = fine if few else max(fine, _COARSE)
    steps = max(steps, 1)
    fine /= 5 if steps < 100 else 1  # few releases smooth no lattice of losses away
    spacing = max(fine * size / math.sqrt(steps), _WINDOW * size / _MOST_POINTS)
    # A cell of width w adds about (s + 1) w^2 / 12 to epsilon where delta falls as
    # exp(-s epsilon), by Gaussian steps: s + 1 = epsilon / size^2 + 1/2. Of all losses
    # that make up epsilon that is a share of it: here at most 0.3 MARGIN.
    widest = min(reach, epsilon) * (epsilon / size**2 + 0.5)
    widen = max(_GROWTH, math.ceil(math.sqrt(widest / (3.6 * MARGIN))))
    if tilted is not None:
        quick, widen = tilted.grid(spacing, room)
        spacing = max(quick, _WINDOW * size / _MOST_POINTS)
    if marks:  # a loss that has mass of its own is put just below a grid point
        points = math.ceil(marks[0] / spacing)
        spacing = marks[0] / points * (1 + 1e-12)
        widen = _MOST_POINTS if points < _FEW else widen
    bits = math.log2(_ROOM * steps) - math.log2(max(delta, 1e-99)) + 1.45 * epsilon
    if not delta:  # masses may be as small as the chance of the largest losses
        bits = 200 + 2 * epsilon + 4 * steps
        # Each of them is rounded up, by a cell at most, if they are not alike.
        if len({*marks}) > 1:
            spacing = min(spacing, MARGIN / 2 * epsilon / steps)
        widen = _MOST_POINTS
    bits = min(20000, math.ceil(min(bits, 20000.0)))
    ends = math.log2(steps) - math.log2(max(delta, 1e-99)) + _ENDS[not few]
    if delta:  # what an end may lose is more than the units that rounding puts there
        bits = min(
            max(bits, math.ceil(ends + math.log2(8 * reach / spacing + 1))), 20000
        )
    found: dict[str, object] = {
        "spacing": repr(spacing),
        "widen": widen,
        "lost": str(2 ** min(max(0, math.floor(bits - ends)), _LOST)) if delta else "0",
        "bits": bits,
    }
    # A sampled record's law against that without it is the worse order.
    if tilted is not None:
        found["orders"] = 1
        # What is beyond tells by its chance alone, unless others tell this little less.
        found["far"] = math.ceil((epsilon + _BEYOND * size) / spacing)
    return found


@dataclasses.dataclass(frozen=True, slots=True)
class _Tilted:
    """Losses of Gaussian lines where together they reach epsilon, as Chernoff's bound.

    ``order``: its best one, s. Of a sample of lines: ``losses`` (absolute), and
    ``weights``, how many there are of each in a mean tilted by exp(s loss).
    """

    order: float
    epsilon: float
    delta: float
    losses: NDArray[np.float64]  # (lines, outputs)
    weights: NDArray[np.float64]
    reach: NDArray[np.float64]  # (lines,)

    @classmethod
    def of(
        cls,
        lines: Sequence[Mapping[str, Any]],
        epsilon: float,
        delta: float,
        group: int,
    ) -> _Tilted:
        ranked = sorted(lines, key=lambda x: -_reach(x) * float(_value(x["count"])))
        most, rest = ranked[:_SAMPLE], ranked[_SAMPLE:]
        some = [*most, *rest[:: math.ceil(len(rest) / _SAMPLE) or 1]]

        def parts(lines: Sequence[Mapping[str, Any]]) -> NDArray[np.float64]:
            m, q, n = _parts(lines, "moves", "rate", "count")
            return np.array([group * m, np.maximum(1 - (1 - q) ** group, 1e-99), n])

        m, q, n = parts(some)
        others = n[_SAMPLE:]
        others *= sum(float(_value(x["count"])) for x in rest) / max(others.sum(), 1)
        least, s, far, weight = math.inf, 1.0, m, n
        for order in np.geomspace(0.05, 5000, 75):
            loss, log = _outputs(m, q, order, epsilon)
            # Beyond epsilon chords change nothing.
            log = np.where(loss < epsilon, log + order * loss, -math.inf)
            moment = np.logaddexp.reduce(log, axis=1, keepdims=True)
            bound = (float((n * moment).sum()) - math.log(delta)) / order
            if bound < least:
                least, s = bound, order
                far, weight = np.abs(loss), n * np.exp(log - moment)
        # The bound makes one large loss rarer, where epsilon is exceeded, than it is.
        large = far > epsilon / 2
        m, q, n = parts(lines)
        alone = float((n * _alone(m, q, epsilon)).sum()) / delta
        weight[large] *= max(min(alone, 1) / max(weight[large].sum(), 1e-9), 1)
        return cls(s, epsilon, delta, far, weight, np.array([_reach(x) for x in some]))

    def grid(self, spacing: float, room: float) -> tuple[float, int]:
        """Spacing and growth of the quickest grid that widens an epsilon no more.

        A loss x of a cell from a to b is put at both, as often as keeps P and Q whole,
        which multiplies its part of E exp(s loss) by about 1 + s (s + 1) (x - a)
        (b - x) / 2 where that is little. An epsilon is larger by the log of that over
        s; by no more than ``room``, or than on the grid of ``spacing``.
        """
        s, far = self.order, self.losses

        def widened(spacing: float, widen: int) -> float:
            inner = s * (s + 1) / 2 * far * (spacing - far)
            half = math.sqrt(s * (s + 1)) / 2 * (spacing + far / widen)
            cells = half / np.tanh(half) - 1  # the chord of exp(s x), over a whole cell
            changed = np.where(far < spacing, inner, cells)
            return float((self.weights * changed).sum()) / s

        def work(spacing: float, widen: int) -> float:
            points = self.reach / spacing + 1
            return float((_KNOT * widen * np.log1p(points / widen) + points).sum())

        bound = min(widened(spacing, _GROWTH), room)
        grids = itertools.product(spacing * np.geomspace(1 / 16, 64, 41), _GROWTHS)
        good = [x for x in grids if widened(*x) <= bound] or [
            (spacing / 16, _GROWTHS[-1])
        ]
        return min(((float(h), w) for h, w in good), key=lambda x: work(*x))

    def moments(
        self, moves: NDArray[np.float64], rates: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        """Parts of lines in the log of delta at epsilon, shape (lines,).

        That of E exp(s min(loss, epsilon)), and of one loss beyond epsilon alone.
        """
        m, q = moves[:, None], np.maximum(rates[:, None], 1e-99)
        loss, log = _outputs(m, q, self.order, self.epsilon)
        log += self.order * np.minimum(loss, self.epsilon)
        alone = _alone(m, q, self.epsilon)[:, 0] / self.delta
        return np.asarray(np.logaddexp.reduce(log, axis=1) + alone)


def _outputs(
    m: NDArray[np.float64], q: NDArray[np.float64], order: float, epsilon: float
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Losses of lines, (lines, 1), at outputs, and logs of their chances with a record.

    The outputs lie between the laws without the record and with it, tilted.
    """
    # The output whose loss is epsilon.
    last = (np.log(math.expm1(min(epsilon, 700)) / q + 1) + m * m / 2) / m
    top = np.minimum((order + 1) * m, last)
    z = (top + 16) * np.linspace(0, 1, 240) - 8
    with np.errstate(divide="ignore"):
        loss = np.logaddexp(np.log1p(-q), np.log(q) + m * z - m * m / 2)
    return loss, loss - z * z / 2 + np.log((z[:, 1:2] - z[:, :1]) / _ROOT)


def _alone(
    m: NDArray[np.float64], q: NDArray[np.float64], epsilon: float
) -> NDArray[np.float64]:
    """Delta of each line at ``epsilon``, as if there were no other."""
    ratio = np.expm1(min(epsilon, 700)) / q + 1  # sampled: H is q times this one's
    loss = np.log(ratio)
    more, less = (ndtr(-loss / m + x * m / 2) for x in (1, -1))
    return np.asarray(q * np.maximum(more - ratio * less, 0))


def _parts(lines: Sequence[Mapping[str, Any]], *names: str) -> NDArray[np.float64]:
    """Numbers that lines say, each of shape (lines, 1)."""
    return np.array([[[float(_value(x[k]))] for x in lines] for k in names])


def _bundle(nodes: list[dict[str, Any]], tilted: _Tilted, room: float) -> float:
    """Put lines that are alike under a line above them, and over one below them.

    Each bundle counts as that line from above, and as the other from below, which
    takes an epsilon by about the number returned, at most ``room``, further.
    """
    spent = 0.0
    for node in nodes:
        lines = [x for some in node["groups"] if len(some) == 1 for x in some["lines"]]
        if len(lines) < _KINDS:
            continue
        m, q, n = _parts(lines, "moves", "rate", "count")[:, :, 0]
        how = [x["sampling"] for x in lines]
        own = tilted.moments(m, q)
        # Bundles are few, at a sum of slopes times widths, if where a slope of the
        # tilted mean is large they are narrow as its root says.
        places = np.log([m, np.maximum(q, 1e-99)])
        for row, less in zip(places, ((m / 1.001, q), (m, q / 1.001)), strict=True):
            slopes = np.maximum(own - tilted.moments(*less), 0)
            by, mean = np.argsort(row), float(slopes @ n)
            roots = np.sqrt(mean * slopes[by])
            row[by[1:]] = np.cumsum(np.diff(row[by]) * (roots[1:] + roots[:-1]))
            row[by[0]] = 0.0
        places /= places.max() or 1.0
        order = np.argsort(m)
        for width in np.geomspace(1, 1e-5, 61):
            runs = _runs(how, places[:, order], order, width)
            if len(runs) > _FEWER * len(lines):
                break
            far, near = (
                np.array([[f(x[i]) for i in runs] for x in (m, q)])
                for f in (np.max, np.min)
            )
            times = np.array([n[i].sum() for i in runs])
            ends = [float(tilted.moments(*x) @ times) for x in (far, near)]
            cost = max(ends[0] - own @ n, own @ n - ends[1]) / tilted.order
            if cost <= room:
                others = [x for x in node["groups"] if len(x) > 1]
                bundles = [_bundled([lines[i] for i in x]) for x in runs]
                bundles.sort(key=lambda x: _reach(x["lines"][0]))
                node["groups"] = others + bundles
                spent = max(spent, float(cost))
                break
    return spent


def _runs(
    how: Sequence[str],
    places: NDArray[np.float64],
    order: NDArray[np.int64],
    width: float,
) -> list[NDArray[np.int64]]:
    """Lines that are alike, a power of 2 in each run: that takes one product.

    ``places``: by moves and by rates, (2, lines), of those of ``order``.
    """
    rows: dict[tuple[str, int], list[int]] = collections.defaultdict(list)
    for i, place in enumerate(np.floor(places[1] / width).astype(int).tolist()):
        rows[how[order[i]], place].append(i)
    runs = []
    for row in rows.values():
        at, start = places[0, row], 0
        ends = np.searchsorted(at, at + width, side="right")
        while start < len(row):
            size = 1 << (int(ends[start]) - start).bit_length() - 1
            runs.append(order[row[start : start + size]])
            start += size
    return runs


def _bundled(lines: list[dict[str, Any]]) -> dict[str, Any]:
    """Group of ``lines``, between a line above and one below each."""
    if len(lines) == 1:
        return {"lines": lines}
    n = sum(x["count"] for x in lines)
    above, below = (
        {k: f((x[k] for x in lines), key=_value) for k in ("moves", "norm", "rate")}
        for f in (max, min)
    )
    return {
        "lines": lines,
        "above": {**lines[0], **above, "count": n},
        "below": {**lines[0], **below, "count": n},
    }


def _without_parts(ledger: Ledger) -> Ledger:
    """Turns of parts as releases of all records, as `groups` accounts them."""

    def whole(entry: Entry) -> Entry:
        if getattr(entry.release.sampling, "parts", 1) == 1:
            return entry
        plain = msgspec.structs.replace(entry.release, sampling=NoSampling())
        return msgspec.structs.replace(entry, release=plain)

    nodes = tuple(tuple(map(whole, entries)) for entries in ledger.nodes)
    return msgspec.structs.replace(ledger, nodes=nodes)


def _mark(release: Release, relation: Relation, group: int, steps: int) -> float | None:
    """Largest loss of ``release``, if it has mass of its own; or the lattice of few."""
    far = group * (release.sensitivity_under(relation) or 0.0)
    twice = 2 if relation == "replace-one" else 1
    what = release.details
    match what:
        case UnsetType():
            if release.mechanism != "laplace" or not release.noise:
                return None
            top, rate = far / release.noise, release.sampling.rate
            poisson = isinstance(release.sampling, PoissonSampling) and rate < 1
            if poisson and relation == "replace-one" and group == 1 and top < 700:
                c = release.opposed_norm() / release.noise
                far_end, near = rate * math.expm1(c), rate * math.expm1(c - top)
                return math.log1p(far_end) - math.log1p(near)
        case mechanisms.RandomizedResponse():
            p, k = what.noise_parameter, what.buckets
            top = math.log1p((1 - p) * k / p)
        case mechanisms.DiscreteLaplace():
            top = what.parameter * what.sensitivity * twice * group
        case mechanisms.DiscreteGaussian() if (
            steps < 100 and release.sampling.rate == 1
        ):
            return what.sensitivity * twice * group / what.sigma**2 / 2
        case mechanisms.EpsilonDelta():
            top = what.epsilon * group
        case mechanisms.DiscretePair():
            ratios = [
                abs(math.log(p / q))
                for p, q in zip(what.p, what.q, strict=True)
                if p > 0 < q
            ]
            top = max(ratios, default=0.0)
        case _:
            return None
    rate = release.sampling.rate
    if relation == "replace-one" and isinstance(release.sampling, PoissonSampling):
        rate = 1.0
    if rate < 1 and 0 < top < 700:
        top = math.log1p(rate * math.expm1(top))
    return top if top > 0 else None


def _nodes(entries: Sequence[Entry], relation: Relation) -> list[dict[str, Any]]:
    """Lines of releases, equal ones in one, and of a pass the line that is above all.

    Where none of them is above all others, those that enter releases below another of
    them are a node of their own, as their records are others'.
    """
    counts: dict[tuple[Release, int | None], int] = collections.Counter()
    for entry in entries:
        where = None if isinstance(entry.disjoint, UnsetType) else entry.disjoint
        counts[entry.release, where] += entry.count
    passes: dict[int, list[dict[str, object]]] = {}
    plain = []
    for (one, where), n in counts.items():
        line = line_of(one, relation, n)
        if where is None:
            plain.append(line)
        else:
            passes.setdefault(where, []).append(line)
    ways = [
        [
            {
                "lines": [line for line in lines if _over(above, line)],
                "above": {**above, "count": 1},
                "pass": where + 1,
            }
            for above in _worst(lines)
        ]
        for where, lines in passes.items()
    ]
    common: list[dict[str, Any]] = [{"lines": plain}] if plain else []
    return [{"groups": [*common, *way]} for way in itertools.product(*ways)]


def _worst(lines: list[dict[str, object]]) -> list[dict[str, object]]:
    """Those of ``lines`` that no other is above, as the kernel compares."""
    left: list[dict[str, object]] = []
    for one in lines:
        if not any(_over(other, one) for other in left):
            left = [other for other in left if not _over(one, other)] + [one]
    return left


def _value(text: object) -> fractions.Fraction:
    top, _, bottom = str(text).partition("/")
    return fractions.Fraction(top) / fractions.Fraction(bottom or "1")


def _reach(line: Mapping[str, Any]) -> float:
    """Approximate the largest loss of a ledger's line that still matters."""
    far = min(7 * float(_value(line.get("moves", 0))), 700.0)
    return math.log1p(float(_value(line["rate"])) * math.expm1(far))


def _over(one: dict[str, object], other: dict[str, object]) -> bool:
    if one["noise"] not in ("gaussian", "laplace"):
        return {**one, "count": 1} == {**other, "count": 1}
    same = all(one[x] == other[x] for x in ("noise", "sampling"))
    return same and all(
        _value(one[x]) >= _value(other[x]) for x in ("rate", "moves", "norm")
    )


def coarse(ledger: Ledger, relation: Relation, side: Side) -> Ledger:
    """The ledger whose figure the kernel comes near to, from above or from below.

    It is ``ledger`` itself, but for replaced records of Poisson samples under Laplace
    noise, of which the kernel knows the largest loss from above and nothing from below,
    and for batches of a fixed size, whose records need not lie in a ball for it.
    """
    return msgspec.structs.replace(
        ledger, nodes=tuple(_coarse(node, relation, side) for node in ledger.nodes)
    )


def _coarse(
    entries: tuple[Entry, ...], relation: Relation, side: Side
) -> tuple[Entry, ...]:
    found = []
    for entry in entries:
        one = entry.release
        unknown = one.mechanism == "laplace" and one.sampling.rate < 1
        unknown &= isinstance(one.sampling, PoissonSampling)
        if unknown and relation == "replace-one":
            if side == "lower":
                continue
            most = largest_loss(one) if one.is_private else math.inf
            if most <= MOST_GUARANTEED:
                one = Release.of(mechanisms.EpsilonDelta(most, 0.0), relation=relation)
        if side == "upper" and isinstance(one.sampling, SamplingWithoutReplacement):
            one = msgspec.structs.replace(one, norm_bound=one.norm_bound * (1 + 1e-9))
        found.append(Entry(one, entry.count, entry.disjoint))
    return tuple(found)


def line_of(release: Release, relation: Relation, count: int) -> dict[str, object]:
    """Say what some releases are, in words of `privaudit.kernel`."""
    twice = 2 if relation == "replace-one" else 1
    what = release.details
    found: dict[str, object]
    match what:
        case UnsetType():
            moves, norm = release.sensitivity_under(relation), release.norm_bound
            scale = repr(release.noise)
            found = {
                "noise": release.mechanism,
                "moves": f"{moves!r}/{scale}",
                "norm": f"{norm!r}/{scale}",
            }
            half = _value(repr(moves)) / 2  # twice a decimal is not that of twice
            if half > _value(repr(norm)):
                found["norm"] = str(half / _value(scale))
        case mechanisms.RandomizedResponse():
            p, k = fractions.Fraction(repr(what.noise_parameter)), what.buckets
            law = [1 - p + p / k, (k - 2) * p / k, p / k]
            found = {"noise": "pair", "p": law, "q": law[::-1]}
        case mechanisms.DiscreteGaussian():
            found = {
                "noise": "discrete-gaussian",
                "scale": repr(what.sigma),
                "moves": what.sensitivity * twice,
            }
        case mechanisms.DiscreteLaplace():
            found = {
                "noise": "discrete-laplace",
                "scale": f"1/{what.parameter!r}",
                "moves": what.sensitivity * twice,
            }
        case mechanisms.MixtureOfGaussians():
            scale = repr(what.standard_deviation)
            found = {
                "noise": "mixture",
                "p": what.probabilities,
                "shifts": [f"{s!r}/{scale}" for s in what.sensitivities],
            }
        case mechanisms.EpsilonDelta():
            found = {
                "noise": "guarantee",
                "epsilon": repr(what.epsilon),
                "delta": repr(what.delta),
            }
        case mechanisms.DiscretePair():
            found = {"noise": "pair", "p": what.p, "q": what.q}
        case _:  # the kernel says that it does not cover it
            found = {"noise": release.mechanism}
    for name in ("p", "q"):
        if name in found:
            found[name] = [str(x) for x in found[name]]  # type: ignore[attr-defined]
    names: dict[type, str] = {
        NoSampling: "none",
        PoissonSampling: "poisson",
        SamplingWithoutReplacement: "fixed",
    }
    how = names.get(type(release.sampling), "random-allocation")
    if getattr(release.sampling, "shuffled", UNSET) is True:
        how = "reshuffled"
    if getattr(release.sampling, "secret", False):
        how = "secret-parts"  # which the kernel does not cover either
    rate = repr(release.sampling.rate)
    if isinstance(release.sampling, SamplingWithoutReplacement):
        rate = f"{release.sampling.size}/{max(release.sampling.population, 1)}"
    elif isinstance(release.sampling, NoSampling):
        rate = "1"
    return {**found, "sampling": how, "rate": rate, "count": count}
