"""The witness of a certificate: a file that `privaudit.kernel` checks by itself.

It has the ledger in the plainest words, a line for each kind of release, what is
claimed, and hints (grid, groups of lines) that make checking fast and decide nothing.
The claims are what another proof, on a coarser grid, can be expected to reach: the
account's upper side raised and its lower side lowered by a thousandth.
"""

from __future__ import annotations

import collections
import decimal
import math
from collections.abc import Sequence

import msgspec
from msgspec import UNSET, UnsetType

from privaudit import mechanisms
from privaudit.accounting import gdp
from privaudit.accounting.pld.composition import Side
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
# its square over 12, .02 %; cells of a tenth of all steps' by as much.
_SPACING, _WIDEST = 0.045, 0.1
_MOST_POINTS = 1 << 20
_FEW = 1 << 14  # points up to a loss of its own mass that are all knots
_WINDOW = 20  # standard deviations of the sum that masses lie in
_ALIKE = 700  # groups of unlike steps; their number is what a check takes long for


def witness(
    ledger: Ledger,
    relation: Relation,
    delta: float,
    sides: tuple[float, float],
    *,
    overlap: int = 1,
    group: int = 1,
) -> dict[str, object]:
    """Document that says what is claimed of ``ledger``.

    Parameters
    ----------
    sides
        Epsilon from below and from above; 0 and infinity claim nothing.
    overlap, group
        As of `Certificate.of`.
    """
    looking = ledger.observing
    different = dict.fromkeys(
        entries for i, entries in enumerate(ledger.nodes) if i not in looking
    )
    nodes = [_node(entries, relation) for entries in different]
    if overlap > 1:  # equal ones count, up to so many
        copies = overlap if len(ledger.nodes) < overlap else 1
        all_nodes = collections.Counter(ledger.nodes * copies)
        nodes = [
            one
            for entries, often in all_nodes.items()
            for one in [_node(entries, relation)] * min(often, overlap)
        ]
    lower, upper = sides
    found: dict[str, object] = {
        "format": "privaudit-certificate",
        "version": 1,
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
        if (mark := _mark(entry.release, relation, group))
    ]
    mark = max(marks)[1] if marks else None
    hints = {
        side: _hints(value, delta, steps, mark)
        for side, value in (("upper", upper), ("lower", lower))
        if math.isfinite(value)
    }
    return {**found, "nodes": nodes, "hints": hints}


def _decimal(value: float, times: float, rounding: str) -> str | None:
    """``value`` raised or lowered, with six digits; None where nothing is claimed."""
    if not math.isfinite(value) or (times < 1 and not value > 0):
        return None
    with decimal.localcontext(prec=6, rounding=rounding):
        return str(+(decimal.Decimal(value) * decimal.Decimal(times)))


def _hints(
    epsilon: float, delta: float, steps: int, mark: float | None
) -> dict[str, object]:
    """Grid of masses for a composition of so many steps."""
    size = float(gdp.mu(max(epsilon, 1e-6), min(max(delta, 1e-12), 0.5)))
    if not 0 < size < math.inf:
        size = 1.0
    # Where epsilon is near 0, an error of delta is a larger one of epsilon.
    fine = _SPACING * math.sqrt(min(1.0, max(epsilon / size / 2, 0.01)))
    spacing = max(fine * size / math.sqrt(max(steps, 1)), _WINDOW * size / _MOST_POINTS)
    widest = max(1, round(_WIDEST * size / spacing))
    if mark:  # a loss that has mass of its own is put just below a grid point
        points = math.ceil(mark / spacing)
        spacing = mark / points * (1 + 1e-12)
        widest = 1 if points < _FEW else widest
    grid: dict[str, object] = {"spacing": repr(spacing), "widest": widest}
    if not delta:  # masses may be as small as the chance of the largest losses
        grid["bits"] = min(20000, 200 + math.ceil(2 * epsilon) + 4 * steps)
    return grid


def _mark(release: Release, relation: Relation, group: int) -> float | None:
    """Largest loss of ``release``, if it has mass of its own."""
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


def _node(entries: Sequence[Entry], relation: Relation) -> dict[str, object]:
    """Lines of a node's releases, equal ones in one, and groups of unlike ones."""
    counts: dict[tuple[Release, int | None], int] = collections.Counter()
    for entry in entries:
        where = None if isinstance(entry.disjoint, UnsetType) else entry.disjoint
        counts[entry.release, where] += entry.count
    lines = [
        {**_line(release, relation), "count": count}
        | ({} if where is None else {"pass": where})
        for (release, where), count in counts.items()
    ]
    if len(lines) > _ALIKE:
        groups = _groups([release for release, _ in counts], relation)
        for label, some in enumerate(groups):
            for i in some:
                lines[i]["like"] = label
    return {"lines": lines}


def _groups(releases: Sequence[Release], relation: Relation) -> list[list[int]]:
    """Groups of releases that are near in rate and noise, of equal sizes.

    A tile of neighbours in rate is cut into neighbours in noise.
    """
    kinds: dict[object, list[int]] = {}
    for i, one in enumerate(releases):
        if one.details is UNSET and one.noise and one.sensitivity_under(relation):
            kinds.setdefault((one.mechanism, type(one.sampling)), []).append(i)

    def noise(i: int) -> float:
        return releases[i].noise / releases[i].sensitivity_under(relation)

    found = []
    for kind in kinds.values():
        size = 2 ** max(0, math.ceil(math.log2(len(kind) / _ALIKE)))
        kind.sort(key=lambda i: (releases[i].sampling.rate, noise(i)))
        rates = {releases[i].sampling.rate for i in kind}
        noises = {noise(i) for i in kind}
        across = len(kind)
        if len(rates) > 1 and len(noises) > 1:
            across = size * math.ceil(math.sqrt(len(kind) / size))
        for first in range(0, len(kind), across):
            tile = sorted(kind[first : first + across], key=noise)
            found += [tile[i : i + size] for i in range(0, len(tile), size)]
    return [some for some in found if len(some) > 1]


def coarse(ledger: Ledger, relation: Relation, side: Side) -> Ledger:
    """The ledger whose figure the kernel comes near to, from above or from below.

    It is ``ledger`` itself, but for groups of unlike steps, of which each is taken as
    the one with the least noise and the highest rate (from below: the other ends); for
    replaced records of Poisson samples under Laplace noise, of which the kernel knows
    nothing from below; and
    for batches of a fixed size, whose records need not lie in a ball for the kernel.
    """
    return msgspec.structs.replace(
        ledger, nodes=tuple(_coarse(node, relation, side) for node in ledger.nodes)
    )


def _coarse(
    entries: tuple[Entry, ...], relation: Relation, side: Side
) -> tuple[Entry, ...]:
    pick = max if side == "upper" else min
    releases = [entry.release for entry in entries if entry.disjoint is UNSET]
    groups = _groups(releases, relation) if len(set(releases)) > _ALIKE else []
    shared: dict[Release, Release] = {}
    for some in groups:
        alike = [releases[i] for i in some]
        base = alike[0]
        moved = pick(r.sensitivity_under(relation) / r.noise for r in alike)
        norm = pick(r.norm_bound / r.noise for r in alike)
        rate = pick(r.sampling.rate for r in alike)
        noise = base.sensitivity_under(relation) / moved
        sampling = base.sampling
        if isinstance(sampling, PoissonSampling):
            sampling = PoissonSampling(rate)
        elif isinstance(sampling, SamplingWithoutReplacement):
            sampling = max((r.sampling for r in alike), key=lambda s: s.rate)
        one = msgspec.structs.replace(
            base, noise=noise, norm_bound=norm * noise, sampling=sampling
        )
        shared |= dict.fromkeys(alike, one)
    found = []
    for entry in entries:
        one = entry.release
        unknown = one.mechanism == "laplace" and one.sampling.rate < 1
        unknown &= isinstance(one.sampling, PoissonSampling)
        if unknown and side == "lower" and relation == "replace-one":
            continue
        if entry.disjoint is UNSET:
            one = shared.get(one, one)
        if side == "upper" and isinstance(one.sampling, SamplingWithoutReplacement):
            one = msgspec.structs.replace(one, norm_bound=one.norm_bound * (1 + 1e-9))
        found.append(Entry(one, entry.count, entry.disjoint))
    return tuple(found)


def _line(release: Release, relation: Relation) -> dict[str, object]:
    """Say what one release is, in words of `privaudit.kernel`."""
    moves = release.sensitivity_under(relation)
    twice = 2 if relation == "replace-one" else 1
    what = release.details
    found: dict[str, object]
    match what:
        case UnsetType():
            found = {
                "noise": release.mechanism,
                "scale": repr(release.noise),
                "moves": repr(moves),
            }
            if relation == "replace-one":
                found["norm"] = repr(release.norm_bound)
        case mechanisms.RandomizedResponse():
            found = {
                "noise": "randomised-response",
                "chance": repr(what.noise_parameter),
                "buckets": what.buckets,
            }
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
            found = {
                "noise": "mixture",
                "scale": repr(what.standard_deviation),
                "shifts": [repr(s) for s in what.sensitivities],
                "chances": [repr(c) for c in what.probabilities],
            }
        case mechanisms.EpsilonDelta():
            found = {
                "noise": "guarantee",
                "epsilon": repr(what.epsilon),
                "delta": repr(what.delta),
            }
        case mechanisms.DiscretePair():
            found = {
                "noise": "pair",
                "p": [repr(p) for p in what.p],
                "q": [repr(q) for q in what.q],
            }
        case _:  # the kernel says that it does not cover it
            found = {"noise": release.mechanism}
    match release.sampling:
        case NoSampling():
            return {**found, "sampling": "none"}
        case PoissonSampling(rate=rate):
            return {**found, "sampling": "poisson", "rate": repr(rate)}
        case SamplingWithoutReplacement(size=size, population=population):
            drawn = {"size": size, "population": population}
            return {**found, "sampling": "fixed", **drawn}
    return {**found, "sampling": "random-allocation"}
