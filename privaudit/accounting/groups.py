"""Groups of k records: what they pay together, release by release.

All k records are there or none is (under add-or-remove-one), or all are replaced. Each
release is taken as one for the group, so that whole curves compose, not epsilons:

- *Noise without sampling*: k records move a sum k times as far.
- *Gaussian noise, Poisson sampled, add or remove*: of the k records Binomial(k, q) are
  in a batch, and its sum moves by at most their number: a mixture of Gaussians with
  these shifts and chances dominates (Ganesh, arXiv:2401.10294), and k equal records
  attain it.
- *Any other sampling*: as without it, which costs no less (convexity) and is attained
  by no data: fixed sizes, replaced records, Laplace noise, and turns of several parts,
  in any of which records of the group may be (their shifts add up to no more than k of
  one turn, whatever the coins). Random allocation and passes over disjoint records are
  not accounted for groups.
- *Guarantees*: epsilon-DP is k epsilon-DP; (epsilon, delta) becomes k epsilon and delta
  (exp(k epsilon) - 1) / (exp(epsilon) - 1) (Dwork and Roth 2014, by k steps); rho-zCDP
  becomes k^2 rho (Bun and Steinke 2016, proposition 1.9).

A user who takes part with at most k records, in all, is such a group: bounded
participation makes user-level privacy of this.
"""

from __future__ import annotations

import math
from fractions import Fraction

import msgspec

from privaudit import mechanisms
from privaudit.ledger import Entry, Ledger
from privaudit.release import (
    NoSampling,
    PoissonSampling,
    RandomAllocation,
    Release,
    Sensitivity,
)
from privaudit.results import Relation, check_relation

_MOST = 500  # chances of Binomial(k, q) are exact to 1e-13


def of_group(ledger: Ledger, size: int, relation: Relation) -> tuple[Ledger, bool]:
    """The ledger of groups of ``size`` records in place of one, and if data attain it.

    ``ledger``: whose sensitivities are one record's. ``size``: from 1 to 500.
    ``relation``: "add-or-remove-one": all of the group's records are there or none; or
    "replace-one": each of them is replaced. Raises ``ValueError`` if a value is out of
    its range, or a release has no such bound.

    >>> from privaudit.accounting.certificate import Certificate
    >>> from privaudit.accounting.plans import Plan
    >>> one = Plan.constant(2.0, 0.01, 1000).ledger()
    >>> two, attained = of_group(one, 2, "add-or-remove-one")
    >>> e = [Certificate.of(ledger).epsilon(1e-5).upper for ledger in (one, two)]
    >>> bool(e[0] < e[1] < 3 * e[0])
    True
    """
    check_relation(relation)
    if not 1 <= size <= _MOST or size != int(size):
        raise ValueError(
            f"a group has a whole number of records from 1 to {_MOST}, got {size}"
        )
    size = int(size)
    if size == 1:
        return ledger, True
    if ledger.unit != "record":
        raise ValueError(
            f"groups are of records, and the unit of this ledger is a {ledger.unit}"
        )
    failure = size * ledger.failure * (1 + 2**-50)
    if not failure < 1:
        raise ValueError(
            f"the chance of failure of a group of {size} is {failure:g}: nothing is "
            "bounded"
        )
    every = [entry for entries in ledger.nodes for entry in entries]
    known = {one: _release(one, size, relation) for one in {e.release for e in every}}
    if any(entry.disjoint is not msgspec.UNSET for entry in every):
        raise ValueError(
            "passes over disjoint records are not accounted for groups: how many of a "
            "group's records enter one release is not known"
        )
    nodes = tuple(
        tuple(Entry(known[entry.release][0], entry.count) for entry in entries)
        for entries in ledger.nodes
    )
    grouped = msgspec.structs.replace(ledger, nodes=nodes, failure=failure)
    return grouped, all(attained for _, attained in known.values())


def _release(release: Release, size: int, relation: Relation) -> tuple[Release, bool]:
    if isinstance(release.sampling, RandomAllocation):
        raise ValueError(
            "random allocation is not accounted for groups of records: account its "
            "batches as Poisson sampled or unsampled releases"
        )
    if not isinstance(release.details, msgspec.UnsetType):
        return _of_details(release, release.details, size, relation)
    rate = release.sampling.rate
    moved = release.sensitivity_under(relation)
    if not moved or not rate:
        return release, True
    add = relation == "add-or-remove-one"
    how = release.sampling
    poisson = isinstance(how, PoissonSampling) and rate < 1 and how.parts == 1
    if poisson and add and release.mechanism == "gaussian" and release.is_private:
        chances = [
            math.comb(size, i) * rate**i * (1 - rate) ** (size - i)
            for i in range(size + 1)
        ]
        # What underflows is of no account: delta has 1e-300 to spare.
        kept = [(float(i), c) for i, c in enumerate(chances) if c]
        mixture = mechanisms.MixtureOfGaussians(
            release.noise / moved, tuple(i for i, _ in kept), tuple(c for _, c in kept)
        )
        return Release.of(mixture, relation=relation), True
    if not release.is_private and rate < 1:  # the chance that one of them is in it
        both = 1 - (1 - rate) ** size
        return msgspec.structs.replace(release, sampling=PoissonSampling(both)), False
    far = _times(moved, size)
    grown = Sensitivity(
        add_or_remove_one=far if add else None,
        replace_one=None if add else far,
    )
    whole = msgspec.structs.replace(
        release,
        norm_bound=_times(release.norm_bound, size),
        sensitivity=grown,
        sampling=NoSampling(),
    )
    return whole, rate == 1 and release == release.of_known_part()


def _of_details(
    release: Release, what: mechanisms.Any, size: int, relation: Relation
) -> tuple[Release, bool]:
    release.sensitivity_under(relation)  # refuses what has no meaning
    found: mechanisms.Any
    attained = release.sampling.rate == 1
    match what:
        case mechanisms.DiscreteGaussian() | mechanisms.DiscreteLaplace():
            found = msgspec.structs.replace(what, sensitivity=what.sensitivity * size)
        case mechanisms.ExponentialMechanism() | mechanisms.PermuteAndFlip():
            found = type(what)(_times(what.epsilon, size))
        case mechanisms.EpsilonDelta():
            far = _times(what.epsilon, size)
            if far > 700:
                raise ValueError(
                    f"epsilon of the group is {far:g}, more than the largest, 700"
                )
            some = what.epsilon > 1e-12
            grown = math.expm1(far) / math.expm1(what.epsilon) if some else size * 2
            delta = what.delta * grown * (1 + 1e-12)
            if not delta < 1:
                raise ValueError(
                    f"delta of a group of {size} is {delta:g}: nothing is bounded"
                )
            found, attained = mechanisms.EpsilonDelta(far, delta), False
        case mechanisms.ZCDP(xi=0.0):
            found = mechanisms.ZCDP(what.rho * size**2 * (1 + 1e-15))
        case _:
            raise ValueError(
                f"no account of groups of records is known for a {release.mechanism} "
                "mechanism; give its guarantee for the group itself"
            )
    return Release.of(found, relation=relation), attained


def _times(value: float, size: int) -> float:
    """The product, rounded up."""
    found = value * size
    if found < math.inf and Fraction(found) < Fraction(value) * size:
        found = math.nextafter(found, math.inf)
    return found
