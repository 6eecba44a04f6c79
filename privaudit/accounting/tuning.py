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
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Literal

import numpy as np

from privaudit.accounting.allocation import is_allocated
from privaudit.accounting.certificate import Certificate, relation_of
from privaudit.accounting.parallel import outside_passes
from privaudit.accounting.renyi import divergence
from privaudit.files.arguments import public
from privaudit.ledger import Entry, Ledger
from privaudit.mechanisms import RDP
from privaudit.release import Release
from privaudit.results import Relation, check_relation

Law = Literal["geometric", "logarithmic", "poisson"]
ORDERS = (
    *(1 + x / 10 for x in range(1, 50)),
    *map(float, range(6, 64)),
    *(80.0, 100.0, 128.0, 192.0, 256.0, 512.0, 1024.0),
)
MOST_TRIES = 1e10  # on average; the parameter of a law is searched from 1e-300 on
# What the account of the best try assumes beside its releases.
SECRET_TRIES = (
    "nobody learns more of the tuning than the try that came out: not how many tries "
    "there were, how long they took, nor anything of the others"
)
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
    A ledger of Renyi curves, for `privaudit.epsilon` and `privaudit.Certificate`.

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
    shape = _shape_of(law)
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
    known: dict[tuple[tuple[Entry, ...], ...], tuple[Entry, ...]] = {}
    # A record at one node is hidden by that node's releases, in each of the tries.
    nodes = list(zip(*(one.nodes for one in ledgers), strict=True))
    for each in nodes:
        if each not in known:
            distinct = tuple(dict.fromkeys(each))
            known[each] = _selected(distinct, chosen, tries, shape)
    return Ledger(
        nodes=tuple(known[each] for each in nodes),
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

    found = selected_curve(orders, curve, tries, shape, delta_at)
    if shape == math.inf:  # where no try would be made, the number is drawn again
        found = [_some_try(d, a - 1, tries) for a, d in zip(orders, found, strict=True)]
    some = [(a, d) for a, d in zip(orders, found, strict=True) if math.isfinite(d)]
    if not some:
        raise ValueError(
            "no Renyi divergence is known of these releases: tuning cannot be charged"
        )
    release = Release.of(
        RDP(tuple(a for a, _ in some), tuple(d for _, d in some)), relation=relation
    )
    return (Entry(release),)


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


def _shape_of(law: Law | float) -> float:
    shape = _SHAPES.get(law, -1.0) if isinstance(law, str) else float(law)
    if not shape >= 0:
        raise ValueError(
            f"law is {', '.join(_SHAPES)}, or a number, a shape >= 0, got {law!r}"
        )
    return shape


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
    shape, gamma = _shape_of(law), 1.0
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
    low, high = 0.0, 1.0  # the mean of low is at least what is asked for
    if mean <= 1:
        return 1.0
    if shape == 1:
        return 1 / mean * (1 - 1e-15)
    low = 1e-300
    for _ in range(2000):
        if high <= low * (1 + 1e-12):
            break
        middle = math.sqrt(low * high) if high > 4 * low else (low + high) / 2
        low, high = (middle, high) if mean_of(middle, shape) >= mean else (low, middle)
    return low * (1 - 1e-11)
