"""One meaning everywhere: all accounts of a release speak of the same guarantee.

Every account in METHODS is tried on every release; those that refuse it have no say.
A new account is in these tests as soon as it is in METHODS.
"""

import functools
import itertools
import math

import numpy as np
import pytest
from scipy import special, stats

from privaudit.accounting import METHODS, Certificate, account, closed_forms, gdp
from privaudit.accounting.pld import compose_entries
from privaudit.ledger import Entry, Ledger
from privaudit.mechanisms import DiscretePair
from privaudit.release import (
    NoSampling,
    PoissonSampling,
    Release,
    SamplingWithoutReplacement,
    Sensitivity,
)

DELTA = 1e-5
RELATIONS = ("add-or-remove-one", "replace-one")
SAMPLINGS = (
    NoSampling(),
    PoissonSampling(0.2),
    SamplingWithoutReplacement(5, 100),
)
COUNTS = (1, 20)
# How much an account may lose against the best one: RDP converts at a cost, more so
# for one step; gdp-clt is no bound; the classical theorem is two or three times loose.
# A factor of two in the meaning of a sensitivity exceeds the first two by far.
LOSES = {"rdp": 1.75, "classical-gaussian": 3.0}
EXACT = ("gdp", "analytic-gaussian")


def cases():
    for mechanism, sampling, count, relation in itertools.product(
        ("gaussian", "laplace"), SAMPLINGS, COUNTS, RELATIONS
    ):
        noise = (12.0 if sampling == NoSampling() else 2.0) if count == 1 else 6.0
        yield pytest.param(
            Release.of_sum(
                norm_bound=3.0,
                noise_multiplier=noise,
                sampling=sampling,
                mechanism=mechanism,
            ),
            count,
            relation,
            id=f"{mechanism}-{noise}-{sampling}-{count}-{relation}",
        )


@functools.lru_cache(maxsize=1000)
def figures(release, count, relation):
    """Epsilon by every account that has one, without those that are no bounds."""
    found = {}
    for name, method in METHODS.items():
        try:
            bound = account(Ledger.of(release, count), DELTA, relation, name)
        except ValueError:
            continue
        if method.standing == "certified":
            found[name] = bound.epsilon
    return found


@pytest.mark.sampled(4)
@pytest.mark.parametrize(("release", "count", "relation"), list(cases()))
def test_certified_accounts_agree(release, count, relation):
    found = figures(release, count, relation)
    for name, exact in found.items():
        if name in EXACT:
            # No bound is below the truth, and each pair of exact ones is one.
            for other, epsilon in found.items():
                assert epsilon >= exact * (1 - 1e-9), (other, found)
    best = min(found.values(), default=0.0)
    for name, epsilon in found.items():
        loses = 1.01 if name in EXACT else LOSES.get(name, 1.02)
        assert epsilon <= best * loses + 2e-3, (name, found)


@pytest.mark.full
def test_every_account_is_tried_somewhere():
    tried = set()
    for case in cases():
        tried |= set(figures(*case.values))
    certified = {n for n, method in METHODS.items() if method.standing == "certified"}
    assert tried == certified


def test_the_trap_of_replace_one():
    # dp-accounting 0.6.0 reads GaussianDpEvent(1.0) under replace-one in two ways: its
    # RDP accountant says 4.73, its PLD accountant 10.00. Noise equal to the norm bound
    # is half the sensitivity, so that 10.00 is meant, and all of ours say so.
    import dp_accounting as dpa
    from dp_accounting.pld import PLDAccountant
    from dp_accounting.rdp import RdpAccountant

    event, relation = dpa.GaussianDpEvent(1.0), dpa.NeighboringRelation.REPLACE_ONE
    theirs = [
        RdpAccountant(neighboring_relation=relation).compose(event).get_epsilon(DELTA),
        PLDAccountant(relation).compose(event).get_epsilon(DELTA),
    ]
    assert theirs == pytest.approx([4.73, 10.00], abs=5e-3)

    release = Release.of_sum(
        norm_bound=1.0, noise_multiplier=1.0, sampling=NoSampling()
    )
    ours = figures(release, 1, "replace-one")
    assert set(ours) >= {"gdp", "rdp", "pld", "analytic-gaussian"}
    for name, epsilon in ours.items():
        assert 9.99 < epsilon < 10.9, name


@pytest.mark.full
def test_close_records_far_from_zero_are_not_hidden_by_the_batches_without_them():
    # Two records of norm 5 that are 1 apart, under noise 1: whoever sees the sum knows
    # whether it holds one of them, and sampling hides nothing of which.
    release = Release(
        mechanism="gaussian",
        norm_bound=5.0,
        noise=1.0,
        sensitivity=Sensitivity(replace_one=1.0),
        sampling=PoissonSampling(0.01),
    )

    def delta(epsilon):
        # Of the half-lines above c, which the likelihood ratio of 4 and 5 grows with.
        c = np.linspace(0, 10, 2001)
        rest = 0.99 * stats.norm.sf(c)
        one, other = (rest + 0.01 * stats.norm.sf(c - at) for at in (5.0, 4.0))
        return float((one - math.exp(epsilon) * other).max())

    assert delta(1.1) > 1e-3
    found = {
        name: account(Ledger.of(release), 1e-3, "replace-one", name).epsilon
        for name in ("certified", "pld", "rdp")
    }
    assert min(found.values()) >= 1.1, found
    # No data set is known to attain the pair that these are of.
    lower = compose_entries([Entry(release)], "replace-one").epsilon(1e-3).lower
    assert lower <= gdp.epsilon(1.0, 1e-3)


@pytest.mark.parametrize("name", ["certified", "pld", "rdp"])
def test_what_a_replacement_cannot_move_costs_nothing(name):
    release = Release(
        mechanism="gaussian",
        norm_bound=10.0,
        noise=1.0,
        sensitivity=Sensitivity(replace_one=0.0),
        sampling=PoissonSampling(0.5),
    )
    assert account(Ledger.of(release), 1e-3, "replace-one", name).epsilon == 0


def test_the_limit_is_not_called_a_bound():
    assert METHODS["gdp-clt"].standing == "asymptotic"
    release = Release.of_sum(
        norm_bound=1.0, noise_multiplier=1.0, sampling=PoissonSampling(0.01)
    )
    bound = account(Ledger.of(release, 10_000), DELTA, method="gdp-clt")
    assert bound.standing == "asymptotic"
    entries = Ledger.of(release, 10_000).nodes[0]
    assert 0.01 < closed_forms.clt_distance(entries) < 0.2
    # 6.007 by the limit, 6.1877 in truth.
    assert bound.epsilon == pytest.approx(6.007, abs=2e-3)
    assert account(Ledger.of(release, 10_000), DELTA).epsilon > 6.18


def discrete(generator, most):
    """A random pair of laws, and how often it is run: ``most`` outcomes in all."""
    size = int(generator.integers(2, 5))
    p, q = generator.dirichlet(np.full(size, generator.uniform(0.3, 3)), 2)
    if generator.random() < 0.2:  # an output that one world alone has
        p[0], q[-1] = 0.0, 0.0
    count = int(generator.integers(1, max(2, int(math.log(most) / math.log(size)))))
    return p / p.sum(), q / q.sum(), count


def sampled(shift, rate):
    """delta of one sampled Gaussian at epsilons of any sign, both directions."""

    def strike(epsilon):
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            over = np.exp(epsilon) - (1 - rate)
            return np.where(over > 0, np.log(over / rate) / shift + shift / 2, -np.inf)

    def remove(epsilon):
        x = strike(epsilon)
        p = (1 - rate) * special.ndtr(-x) + rate * special.ndtr(shift - x)
        return p - np.exp(epsilon) * special.ndtr(-x)

    def add(epsilon):
        x = strike(-epsilon)
        q = (1 - rate) * special.ndtr(x) + rate * special.ndtr(x - shift)
        return special.ndtr(x) - np.exp(epsilon) * q

    return {"remove": remove, "add": add}


NODES = np.linspace(-10.0, 10.0, 4001)


def joined(shift, rate, rest):
    """One more sampled Gaussian before ``rest``, by the trapezoid rule."""
    weights = (
        np.exp(-NODES * NODES / 2) / math.sqrt(2 * math.pi) * (NODES[1] - NODES[0])
    )

    def remove(epsilon):
        found = 0.0
        for centre, share in ((0.0, 1 - rate), (shift, rate)):
            x = NODES + centre
            loss = np.log1p(rate * np.expm1(shift * x - shift * shift / 2))
            found += share * rest["remove"](epsilon[:, None] - loss) @ weights
        return found

    def add(epsilon):
        loss = -np.log1p(rate * np.expm1(shift * NODES - shift * shift / 2))
        return rest["add"](epsilon[:, None] - loss) @ weights

    return {"remove": remove, "add": add}


@pytest.mark.parametrize(
    ("p", "q", "epsilon", "truth"),
    [
        ((0.0, 1.0), (1.0, 0.0), 1.0, 1.0),
        # One finite loss, 2.16, of which two are a spike far from 0.
        ((0.0, 0.94, 0.06), (0.89, 0.11, 0.0), 2.5, 1 - 0.11**2),
    ],
)
def test_laws_of_different_outputs(p, q, epsilon, truth):
    """No loss is finite, or one is: no crash, and no grid of a billion points."""
    entry = Entry(Release.of(DiscretePair(p, q)), 2)
    found = Certificate.of(Ledger(nodes=((entry,),))).delta(epsilon, 1e-2)
    assert found.lower <= truth * (1 + 1e-12)
    assert truth <= found.upper * (1 + 1e-12)


@pytest.mark.full
@pytest.mark.parametrize("seed", range(10))
def test_a_hundred_random_compositions_each(seed):
    """Against outcomes that are enumerated, closed forms and the trapezoid rule."""
    generator = np.random.default_rng(seed)
    for _ in range(100):
        continuous = int(generator.integers(0, 3))
        most = 64 if continuous == 2 else 5000
        entries = []
        log_p, log_q = np.zeros(1), np.zeros(1)
        for _ in range(int(generator.integers(0 if continuous else 1, 3))):
            p, q, count = discrete(generator, max(most // log_p.size, 2))
            if log_p.size * p.size**count > most:
                continue
            mechanism = DiscretePair(tuple(p.tolist()), tuple(q.tolist()))
            entries.append(Entry(Release.of(mechanism), count))
            with np.errstate(divide="ignore"):
                for _ in range(count):
                    log_p = np.add.outer(log_p, np.log(p)).ravel()
                    log_q = np.add.outer(log_q, np.log(q)).ravel()
        rest = None
        for _ in range(continuous):
            noise = float(10 ** generator.uniform(-0.2, 1.0))
            rate = float(generator.choice([1.0, 0.5, 0.1, 0.01]))
            how = NoSampling() if rate == 1 else PoissonSampling(rate)
            release = Release.of_sum(
                norm_bound=1.0, noise_multiplier=noise, sampling=how
            )
            entries.append(Entry(release, 1))
            one = (1 / noise, rate)
            rest = sampled(*one) if rest is None else joined(*one, rest)
        epsilon = float(generator.choice([0.0, 0.1, 1.0])) * generator.uniform(0.1, 4)
        truth = 0.0
        for way in ("remove", "add"):
            first, second = (log_p, log_q) if way == "remove" else (log_q, log_p)
            some = np.isfinite(first)
            first, second = first[some], second[some]
            weight, loss = np.exp(first), first - second  # infinite where alone
            left = np.where(np.isfinite(loss), epsilon - loss, -50.0)
            each = np.maximum(-np.expm1(left), 0.0) if rest is None else rest[way](left)
            truth = max(truth, float(weight @ each))
        found = Certificate.of(Ledger(nodes=(tuple(entries),))).delta(epsilon, 1e-2)
        slack = 1e-6 * truth + 1e-12  # of the trapezoid rule, at kinks
        assert found.lower - slack <= truth <= found.upper + slack, entries
        if truth > 1e-7 and found.reached:
            assert found.upper <= 1.0101 * truth
