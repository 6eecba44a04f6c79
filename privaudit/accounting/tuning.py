"""Tuning charged: a training repeated a random number of times, the best one published.

The number of tries is drawn before, in secret, and independent of the data; only the
best output is published, by any rule. Then Renyi divergences of the outcome are at most

- truncated negative binomial with shape s >= 0 and parameter g (shape 1 is the
  geometric law, 0 the logarithmic one): D'(a) = D(a) + (1 + s) ((1 - 1/b) D(b) +
  log(1/g) / b) + log(mean) / (a - 1), at any order b >= 1 (theorem 2 of Papernot and
  Steinke, arXiv:2110.03620);
- Poisson: D'(a) = D(a) + mean delta + log(mean) / (a - 1), where one try is (e,
  delta)-DP for some e <= log(1 + 1 / (a - 1)) (theorem 6). Of no try, which has chance
  c = exp(-mean) whatever the data are, a fixed output is published, or the number is
  drawn again: outputs of some try have exp((a - 1) D') - c of the integral of powers,
  and are drawn with chance 1 - c, so that log((exp((a - 1) D') - c) / (1 - c)) / (a -
  1), which is larger, bounds both.

Both grow with order, so that a lower order may use a higher one's.

*Profiles.* Let f generate the number K >= 1 of tries, f(z) = E z^K, Q and Q' be one
try's law in both worlds, outputs in the order of the rule, F(y) = Q(<= y), ties parted
by coins. The best has density f'(F) q. Let delta(x) bound H of Q and Q' both ways at
exp(x), G(t) the least Q'(S) of Q(S) = t. With U any set, U_t its part above F = t and
a(t) = Q(U_t) <= 1 - t: F' >= G(F), Q'(U_t) >= G(a(t)), and f' rises, so that by parts

    A(U) - e^eps A'(U) <= f'(0) (a(0) - e^eps G(a(0)))
        + integral of a(t) df'(t) - e^eps G(a(t)) df'(G(t)),

where f' above and f'(G) below may be steps on a grid of t; and as a falls, f'(G) may be
any smaller function that rises, such as the largest that is convex in f'(t). Each a(t)
by itself has at most df' delta(eps + log(df'(G) / df')), nor more than df' (1 - t).
That a fixed output is published of no try only takes from the chances of all others.
"""

from __future__ import annotations

import functools
import math
import reprlib
from collections.abc import Callable, Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from privaudit.accounting.allocation import is_allocated
from privaudit.accounting.certificate import Certificate, relation_of
from privaudit.accounting.parallel import outside_passes
from privaudit.accounting.pld import compose_entries
from privaudit.accounting.renyi import divergence
from privaudit.files.arguments import public
from privaudit.ledger import Entry, Ledger
from privaudit.mechanisms import RDP
from privaudit.release import Release
from privaudit.results import Relation, check_relation

Floats = NDArray[np.float64]
Law = Literal["geometric", "logarithmic", "poisson"]
ORDERS = (
    *(1 + x / 10 for x in range(1, 50)),
    *map(float, range(6, 64)),
    *(80.0, 100.0, 128.0, 192.0, 256.0, 512.0, 1024.0),
)
MOST_SHAPE = 1e4  # beyond, parameters are so near 1 that digits of them are lost
MOST_TRIES = 1e10  # on average; the parameter of a law is searched from 1e-300 on
# What the account of the best try assumes beside its releases.
SECRET_TRIES = (
    "nobody learns more of the tuning than the try that came out: not how many tries "
    "there were, how long they took, nor anything of the others"
)
_AIMS, _LINES = (-1.5, -7.0, -16.0, -30.0), 120  # of one try's profile
_CELLS, _LEAST_REST, _DOTS = 2000, 1e-24, 240  # of t, the least 1 - t, and of the best
_SHAPES = {"geometric": 1.0, "logarithmic": 0.0, "poisson": math.inf}


@public
def repeat_and_select(
    ledger: Ledger | Sequence[Ledger],
    *,
    tries: float,
    law: Law | float = "geometric",
    relation: Relation | None = None,
) -> Ledger:
    """Charge hyperparameter tuning: return the ledger of the best of many tries.

    The number of tries must be drawn from ``law`` beforehand, in secret and
    independently of the data, and only the best try may be published: the ledger
    assumes this (`SECRET_TRIES`), and what is certified of it is conditional. The
    bounds are theorems 2 and 6 of Papernot and Steinke, arXiv:2110.03620.

    Parameters
    ----------
    ledger
        What one try releases; several, if each try draws one of these by itself,
        whatever the data are: at each order the worst of them counts.
    tries
        The mean number of tries, >= 1.
    law
        Distribution of the number of tries: "geometric", "logarithmic", "poisson", or a
        number >= 0, the shape of a truncated negative binomial law.
    relation
        The neighbour relation. None: as `Certificate.of` chooses.

    Returns
    -------
    A ledger of Renyi curves with a profile, for `privaudit.epsilon` and
    `privaudit.Certificate`.

    Raises
    ------
    ValueError
        If a value is out of its range, or no Renyi divergence of a release is known.

    Examples
    --------
    >>> from privaudit.accounting.plans import Plan
    >>> one = Plan.constant(1.0, 0.01, 1000).ledger()
    >>> tuned = repeat_and_select(one, tries=10)
    >>> bool(2 < Certificate.of(tuned).epsilon(1e-5).upper < 6)
    True
    """
    shape = shape_of(law)
    if not 1 <= tries <= MOST_TRIES:
        raise ValueError(
            f"the mean number of tries must be between 1 and 1e10, got {tries}"
        )
    ledgers = [ledger] if isinstance(ledger, Ledger) else list(ledger)
    if not ledgers:
        raise ValueError("give what one try releases: a ledger, or several")
    if any(one.failure for one in ledgers):
        raise ValueError(
            "a ledger whose sensitivities may fail cannot be tuned: the chance counts "
            "once a try, and how many tries there are is not bounded"
        )
    if any(one.most_nodes > 1 for one in ledgers):
        raise ValueError(
            "tuning is charged for records at one node: leave overlap at 1, or charge "
            "a ledger of one node that has the releases of all"
        )
    whole = Ledger.composed(ledgers)  # raises, if they are not of the same data
    chosen = relation_of(whole) if relation is None else check_relation(relation)

    @functools.cache
    def charged(each: tuple[tuple[Entry, ...], ...]) -> tuple[Entry, ...]:
        return _selected(tuple(dict.fromkeys(each)), chosen, tries, shape)

    return Ledger(
        # A record at one node is hidden by that node's releases, in each of the tries.
        nodes=tuple(map(charged, zip(*(one.nodes for one in ledgers), strict=True))),
        unit=whole.unit,
        assumes=tuple(dict.fromkeys((*whole.assumptions, SECRET_TRIES))),
        observer=whole.observer,
    )


def _selected(
    each: tuple[tuple[Entry, ...], ...], relation: Relation, tries: float, shape: float
) -> tuple[Entry, ...]:
    """Charge one node, of which a try releases one of ``each``."""
    if not any(each):
        return ()
    if any(
        len(outside_passes(entries)) < len(entries) or any(map(is_allocated, entries))
        for entries in each
    ):
        raise ValueError(
            "tuning is charged for releases in sequence, not for passes over disjoint "
            "records nor for random allocation"
        )
    for entries in each:
        if not all(entry.release.is_private for entry in entries):
            return entries
    ones = [Certificate.of(Ledger(nodes=(entries,)), relation) for entries in each]
    # Under Poisson delta is asked for at every order.
    orders = ORDERS[::4] if shape == math.inf else ORDERS
    curve = [
        max(
            math.fsum(
                entry.count * divergence(entry.release, relation, order)
                for entry in entries
            )
            for entries in each
        )
        * (1 + 1e-15)
        for order in orders
    ]

    def delta_at(epsilon: float) -> float:
        return max(one.delta(epsilon, 0.05, "upper").upper for one in ones)

    lines = [
        compose_entries(entries, relation).lines(way, _AIMS, _LINES)
        for entries in each
        for way in ("remove", "add")
    ]
    profile = selected_profile(lines, tries, shape)
    found = selected_curve(orders, curve, tries, shape, delta_at)
    if shape == math.inf:  # where no try would be made, the number is drawn again
        found = [_some_try(d, a - 1, tries) for a, d in zip(orders, found, strict=True)]
    some = [(a, d) for a, d in zip(orders, found, strict=True) if math.isfinite(d)]
    if not some:
        raise ValueError(
            "no Renyi divergence is known of these releases: tuning cannot be charged"
        )
    curves = RDP(tuple(a for a, _ in some), tuple(d for _, d in some), *profile)
    return (Entry(Release.of(curves, relation=relation)),)


def selected_profile(
    lines: Sequence[tuple[Floats, Floats]], tries: float, shape: float
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Epsilons, and bounds on delta of the best of some tries, by the module's proof.

    ``lines``: epsilons of any sign and bounds on one try's delta there; the largest of
    all counts.
    """
    at = np.unique(np.concatenate([epsilons for epsilons, _ in lines]))

    def one_try(x: Floats) -> Floats:
        """H is convex: chords, from H = 1 at exp(-infinity) on."""
        found, a = np.zeros(x.shape), np.exp(np.minimum(x, 700.0))
        for epsilons, deltas in lines:
            dots = np.append(0.0, np.exp(epsilons)), np.append(1.0, deltas)
            found = np.maximum(found, np.interp(a, *dots))
        return found * (1 + 1e-11)

    if shape == math.inf:

        def slope(above: Floats) -> Floats:
            return tries * np.exp(-tries * above) / -math.expm1(-tries)

    else:
        gamma = parameter_of(tries, shape)
        mean = mean_of(gamma, shape)

        def slope(above: Floats) -> Floats:
            return mean * (gamma / (gamma + (1 - gamma) * above)) ** (shape + 1)

    # t is kept as 1 - t; the mean is rounded, and so is the law that has it.
    far = np.geomspace(1.0, _LEAST_REST / tries, _CELLS)
    rest = np.unique(np.append(far, np.linspace(0.0, 1.0, 2 * _CELLS)))[::-1]
    most = np.full(rest.shape, 1.0)
    for x, delta in zip(np.exp(at), one_try(at), strict=True):
        most = np.minimum(most, x * rest + delta)
    slack = 1e-9 * (1 + shape) if shape < math.inf else 1e-9 + 1e-15 * tries
    over, under = slope(rest[1:]) * (1 + slack), slope(most[:-1]) * (1 - slack)
    dots = np.append(0.0, over), np.append(0.0, np.maximum.accumulate(under))
    kept = _convex(*dots)
    rise, fall = (np.diff(each[kept]) for each in dots)
    rest = rest[kept[:-1]]
    with np.errstate(divide="ignore"):
        moved = np.log(fall / rise)

    def best(epsilon: float) -> float:
        found = np.minimum(one_try(epsilon + moved), rest)
        return min(1.0, float(rise @ found) * (1 + 1e-11))

    high = 1.0
    while high < 512 and best(high) > 1.1 * best(700.0):
        high *= 1.25
    epsilons = np.linspace(0.0, high, _DOTS).tolist()
    return tuple(epsilons), tuple(map(best, epsilons))


def selected_curve(
    # orders, curve: orders >= 1, and bounds on the divergence of one try there;
    # from orders of 1 nothing follows
    orders: Sequence[float],
    curve: Sequence[float],
    # tries, shape: mean and shape of the law; shape infinity is Poisson, under
    # which a fixed output is published of no try
    tries: float,
    shape: float,
    # of one try at an epsilon; asked for under Poisson only
    delta_at: Callable[[float], float],
) -> list[float]:
    """Renyi divergences of the best of some tries from those of one, rounded up."""
    a, d = np.asarray(orders, float), np.asarray(curve, float)
    found = np.full(a.shape, np.inf)
    above = a > 1
    with np.errstate(divide="ignore", invalid="ignore"):
        more = math.log(tries) / (a - 1)
    if shape == math.inf:
        for i in np.flatnonzero(above):
            delta = delta_at(math.log1p(1 / (float(a[i]) - 1)) * (1 - 1e-14))
            found[i] = d[i] + tries * delta + more[i]
    else:
        gamma = parameter_of(tries, shape)
        with np.errstate(invalid="ignore"):
            each = (1 - 1 / a) * d - math.log(gamma) / a
        if np.isfinite(d).any():  # and so the divergence of order 1 is
            each[a == 1] = -math.log(gamma)
        constant = (1 + shape) * float(np.nanmin(each))
        found[above] = (d + more)[above] + constant
    order = np.argsort(-a)  # a lower order may use a higher one's
    found[order] = np.minimum.accumulate(found[order])
    return (found * (1 + 1e-14)).tolist()


def _convex(x: Floats, y: Floats) -> list[int]:
    """Corners of the largest convex function below points, of which ``x`` rise."""
    kept: list[int] = []
    for i in range(x.size):
        if kept and x[i] <= x[kept[-1]]:
            continue
        while len(kept) > 1:
            a, b = kept[-2:]
            if (y[b] - y[a]) * (x[i] - x[a]) < (y[i] - y[a]) * (x[b] - x[a]):
                break
            kept.pop()
        kept.append(i)
    return kept


def shape_of(law: Law | float) -> float:
    """The shape of ``law``; ``ValueError`` if it is none."""
    shape = _SHAPES.get(law, -1.0) if isinstance(law, str) else law
    if not (0 <= shape <= MOST_SHAPE or shape == math.inf):
        raise ValueError(
            f"law is {', '.join(_SHAPES)}, or a number up to 1e4, a shape >= 0, got "
            f"{reprlib.repr(law)}; larger shapes are as poisson, nearly: give that"
        )
    return float(shape)


def _some_try(divergence: float, power: float, tries: float) -> float:
    """Divergence of order ``power`` + 1, given that there is a try; rounded up."""
    if not power * divergence < 700:  # c is lost beside its exponential
        return divergence - math.log1p(-math.exp(-tries)) / power
    # log((e^x - c) / (1 - c)) = log1p((e^x - 1) / (1 - c)), without a difference of two
    more = math.expm1(power * max(0.0, divergence)) / -math.expm1(-tries)
    return math.log1p(more) / power * (1 + 1e-14)


def draw_tries(tries: float, law: Law | float, uniform: float) -> int:
    """Number of tries, >= 1, at ``uniform`` in [0, 1) of its law's distribution.

    Under the Poisson law the number is drawn again where it is 0.

    >>> [draw_tries(3.0, "geometric", u) for u in (0.0, 0.5, 0.9)]
    [1, 2, 6]
    """
    shape, gamma = shape_of(law), 1.0
    if shape == math.inf:
        chance = tries / math.expm1(tries)
    else:
        gamma = parameter_of(tries, shape)
        if gamma == 1:
            return 1
        log = math.log(gamma)
        chance = (1 - gamma) * (shape / math.expm1(-shape * log) if shape else -1 / log)
    number = 1
    while uniform >= chance > 0:  # at the far end chances are none, by rounding
        uniform -= chance
        ratio = tries if shape == math.inf else (1 - gamma) * (number + shape)
        number += 1
        chance *= ratio / number
    return number


def mean_of(gamma: float, shape: float) -> float:
    """Mean of the truncated negative binomial law (definition 1 there)."""
    if gamma == 1:
        return 1.0
    log = math.log(gamma)
    if shape == 0:
        return (1 / gamma - 1) / -log
    return shape * (1 / gamma - 1) / -math.expm1(shape * log)


def parameter_of(mean: float, shape: float) -> float:
    """The law's parameter, rounded down, which bounds more than it needs.

    >>> round(parameter_of(10.0, 1.0), 9)
    0.1
    """
    if mean <= 1:
        return 1.0
    if shape == 1:
        return 1 / mean * (1 - 1e-15)
    low, high = 1e-300, 1.0  # the mean of low is at least what is asked for
    for _ in range(2000):
        if high <= low * (1 + 1e-12):
            break
        middle = math.sqrt(low * high) if high > 4 * low else (low + high) / 2
        low, high = (middle, high) if mean_of(middle, shape) >= mean else (low, middle)
    return low * (1 - 1e-11)
