"""From arrays of steps, or a ledger's entries, to their composition."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Sequence

import numpy as np
from msgspec import UNSET, UnsetType
from numpy.typing import ArrayLike

from privaudit.accounting.pld.cells import Noise, Scheme
from privaudit.accounting.pld.composition import Composition
from privaudit.accounting.pld.families import Family
from privaudit.accounting.pld.line import Floats
from privaudit.accounting.pld.mechanisms import Curve, Loss, added, loss_of, unattained
from privaudit.ledger import Entry
from privaudit.mechanisms import RDP, ZCDP, Mechanism
from privaudit.release import PoissonSampling, RandomAllocation
from privaudit.results import Relation

Others = tuple[tuple[Loss, float], ...]
_Part = tuple[Noise, Scheme, Floats, Floats, Floats]  # shifts, rates, counts


def compose_steps(
    noise_multiplier: ArrayLike,
    sampling_rate: ArrayLike = 1.0,
    count: ArrayLike = 1,
    *,
    noise: Noise = "gaussian",
    scheme: Scheme = "poisson",
) -> Composition:
    """The composition of many steps, given as arrays that broadcast.

    ``noise_multiplier``: deviation (gaussian) or scale (laplace) over how far one
    record moves the release: over its own size with ``scheme`` ``poisson`` (Poisson
    sampling or none, add or remove one) and ``replace`` (Poisson, by its opposite),
    over the difference of two with ``fixed`` (fixed-size samples, replace one).
    ``count``: how often each is taken.
    """
    given = np.broadcast_arrays(noise_multiplier, sampling_rate, count)
    z, q, n = (np.ascontiguousarray(a, float).ravel() for a in given)
    if not (z > 0).all():
        raise ValueError(
            "noise multipliers must be > 0: without noise nothing is private"
        )
    if not ((q >= 0) & (q <= 1)).all():
        raise ValueError("sampling rates must be in [0, 1]")
    if not ((n >= 0) & (n <= 2.0**52) & (n == np.floor(n))).all():
        raise ValueError("counts must be whole numbers from 0 to 2^52")
    with np.errstate(over="ignore"):  # to infinity, which has no bound
        shift = 1 / z
    return _composition([(noise, scheme, shift, q, n)])


# What grids of floating-point numbers can tell apart. Beyond, a step is replaced by one
# that is surely no more private: from below it is none, or there is no lower bound.
_LEAST_MOVE = 1e-8  # shift times rate, which is what sampling leaves of a Gaussian
# Many steps of small shifts need no grid.
_MANY, _SMALL_SHIFT, _LEAST_OF_MANY = 1e7, 5e-3, 5e-10
_LEAST_SHIFT = {"gaussian": 1e-5, "laplace": 1e-100}
_MOST_SHIFT = {"gaussian": 1e3, "laplace": 1e6}
_FARTHEST = 1e70  # of unsampled Gaussian noise: fourth powers of it are added
_MOST_STEPS = 1e100  # of a kind: sums of more leave the range of doubles


def _composition(parts: Sequence[_Part]) -> Composition:
    """Families by kind; unsampled Gaussians, which compose exactly, become one step."""
    rows: dict[tuple[Noise, Scheme, bool], list[tuple[Floats, Floats, Floats]]] = {}
    squares: list[float] = []
    exact, bounded = True, True
    for noise, scheme, shift, rate, count in parts:
        used = (shift > 0) & (rate > 0) & (count > 0)
        shift, rate, count = shift[used], rate[used], count[used]
        far = shift > (_FARTHEST if noise == "gaussian" else _MOST_SHIFT[noise])
        bounded &= not far.any()
        # Without sampling each step is easier to tell, and with less noise.
        bare = (rate < 1) & (shift > _MOST_SHIFT[noise])
        small = (rate < 1) | (noise != "gaussian")
        near = small & (shift < _LEAST_SHIFT[noise])
        shift = np.where(near, _LEAST_SHIFT[noise], np.minimum(shift, _FARTHEST))
        least = _LEAST_MOVE / np.maximum(shift, _LEAST_MOVE)
        many = (count > _MANY) & (shift <= _SMALL_SHIFT)
        known = np.where(many, _LEAST_OF_MANY / _LEAST_MOVE, 1.0) * least
        rare = (rate < known) if noise == "gaussian" else np.zeros(rate.shape, bool)
        exact &= not (far | bare).any()
        rate = np.where(bare, 1.0, np.where(rare, least, rate))
        whole = rate == 1
        unit = 2.0 if scheme == "replace" else 1.0  # N(shift) against N(-shift)
        if noise == "gaussian":
            squares += (count[whole] * (unit * shift[whole]) ** 2).tolist()
        one = whole & (noise != "gaussian")
        for known in (True, False):
            some = (near | rare) != known
            for form, size, own in (
                ("poisson", unit * shift, some & one),
                (scheme, shift, some & ~whole),
            ):
                rows.setdefault((noise, form, known), []).append(
                    (size[own], rate[own], count[own])
                )
    if not bounded:
        return Composition((), exact=False, bounded=False)
    families = []
    for kind, arrays in sorted(rows.items()):
        shift, rate, count = (
            np.concatenate(column) for column in zip(*arrays, strict=True)
        )
        if shift.size:
            families.append(Family.of(kind, shift, rate, count))
    if squares:
        one = np.ones(1)
        size = math.sqrt(math.fsum(squares))
        total = np.array([max(size, 1 / _FARTHEST)])
        known = size >= 1 / _FARTHEST
        families.append(Family("gaussian", "poisson", total, one, one, known))
    return Composition(tuple(families), exact=exact)


def compose_entries(entries: Sequence[Entry], relation: Relation) -> Composition:
    """The composition of a node's releases under ``relation``, outside of passes."""
    _, columns, others = columns_of(entries, relation)
    return compose_columns(columns, others)


def columns_of(
    entries: Sequence[Entry], relation: Relation
) -> tuple[list[Entry], Floats, Others]:
    """Entries that tell something; columns of those without details, and the others.

    Columns are whether noise is Gaussian, schemes (0: Poisson, or unsampled; 1: a fixed
    size, replaced; 2: Poisson, replaced), shifts, the norm bounds over the noise (or
    half of shifts if these are more; for what is replaced), rates and counts.
    """
    kept: list[Entry] = []
    detailed: list[Entry] = []
    rows: list[tuple[float, ...]] = []
    for entry in entries:
        release, sampling = entry.release, entry.release.sampling
        if entry.disjoint is not UNSET:
            raise ValueError(
                "releases on disjoint records do not add up; compose each of "
                "privaudit.accounting.parallel.views"
            )
        if isinstance(sampling, RandomAllocation):
            raise ValueError(
                "one release of a random allocation has no loss of its own; see "
                "privaudit.accounting.allocation"
            )
        if not release.is_private:
            raise ValueError(
                "a release without noise has no finite epsilon at any delta"
            )
        norm, rate = release.sensitivity_under(relation), sampling.rate
        if not norm or not rate:
            continue
        kept.append(entry)
        if release.details is not UNSET:
            detailed.append(entry)
            continue
        scheme, shift = 0, norm / release.noise
        if rate < 1 and relation == "replace-one":
            scheme = 2 if isinstance(sampling, PoissonSampling) else 1
            norm = release.opposed_norm()
        gaussian = release.mechanism == "gaussian"
        rows.append(
            (gaussian, scheme, shift, norm / release.noise, rate, float(entry.count))
        )
    return kept, np.array(rows, float).reshape(-1, 6).T, _others_of(detailed, relation)


def compose_columns(columns: Floats, others: Others) -> Composition:
    """The composition of what `columns_of` says."""
    gaussian, scheme, moved, norm, rate, count = columns
    often = max([0.0, *(n for _, n in others)])
    if max(often, float(count.max(initial=0.0))) > _MOST_STEPS:
        return Composition((), exact=False, bounded=False)
    # Replaced, of Poisson samples: records half as far apart as they can be, on both
    # sides of 0; of Laplace noise as if unsampled, which costs no less; from below as
    # nothing.
    opposed, bare = ((scheme == 2) & (gaussian == one) for one in (1, 0))
    shift = np.where(opposed, norm, moved)
    attained = np.where(opposed, moved / 2, np.where(bare, 0.0, moved))
    rate = np.where(bare, 1.0, rate)
    schemes: tuple[Scheme, ...] = ("poisson", "fixed", "replace")
    scheme = np.where(bare, 0, scheme)
    noises: tuple[Noise, ...] = ("laplace", "gaussian")
    above: list[_Part] = []
    below: list[_Part] = []
    for noise, which in itertools.product(noises, range(3)):
        some = (gaussian == (noise == "gaussian")) & (scheme == which)
        for parts, size in ((above, shift), (below, attained)):
            parts.append((noise, schemes[which], size[some], rate[some], count[some]))
    fixed = scheme == 1
    ball = bool(fixed.any() and (2 * norm <= moved)[fixed].all())
    found = dataclasses.replace(_composition(above), others=others, ball=ball)
    if (shift == attained).all():
        return found
    known = _composition(below)
    exact = found.exact and known.exact
    return dataclasses.replace(found, exact=exact, attained=lambda: known)


def _others_of(entries: Sequence[Entry], relation: Relation) -> Others:
    """Losses of the mechanisms with details, and their counts.

    Under replace-one as without sampling, which costs no less; from below nothing.
    """
    counts: dict[tuple[Mechanism, float, bool], float] = {}
    curves: list[tuple[ZCDP | RDP, float]] = []
    for entry in entries:
        release = entry.release
        assert not isinstance(release.details, UnsetType)
        rate = release.sampling.rate
        known = relation == "add-or-remove-one" or rate == 1
        rate = rate if known else 1.0
        if isinstance(release.details, ZCDP | RDP) and rate == 1:
            curves.append((release.details, float(entry.count)))
            continue
        key = (release.details, rate, known)
        counts[key] = counts.get(key, 0.0) + entry.count
    found = [
        (one if known else unattained(one), n)
        for (details, rate, known), n in counts.items()
        for one in (loss_of(details, relation, rate),)
    ]
    found += [(Curve(curve, 1.0), n) for curve, n in added(curves)]
    return tuple(found)
