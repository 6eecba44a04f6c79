"""Mechanisms with details against sums and integrals that are not the account's own."""

from __future__ import annotations

import functools
import itertools
import math

import mpmath
import numpy as np
import pytest
from scipy import optimize, special, stats

import privaudit as pa
from privaudit.accounting.certificate import Certificate
from privaudit.accounting.pld.mechanisms import loss_of
from privaudit.accounting.pld.mechanisms.atoms import Atoms
from privaudit.accounting.pld.mechanisms.noise import Gaussian
from privaudit.accounting.pld.mechanisms.profile import dots_of, measure_of
from privaudit.ledger import Entry, Ledger
from privaudit.mechanisms import (
    NAMES,
    RDP,
    ZCDP,
    DiscreteGaussian,
    DiscreteLaplace,
    DiscretePair,
    EpsilonDelta,
    ExponentialMechanism,
    MixtureOfGaussians,
    PermuteAndFlip,
    RandomizedResponse,
    TruncatedPoisson,
)
from privaudit.release import (
    NoSampling,
    PoissonSampling,
    RandomAllocation,
    Release,
    SamplingWithoutReplacement,
)
from tests.tiers import size

ADD, REPLACE = "add-or-remove-one", "replace-one"


def certificate(*parts, relation=ADD):
    entries = tuple(Entry(release, count) for release, count in parts)
    return Certificate.of(Ledger(nodes=(entries,)), relation)


# Chances of outputs with and without the record, written down from the definitions.


def discrete_gaussian(sigma, shift):
    x = np.arange(-math.ceil(30 * sigma), math.ceil(30 * sigma) + shift + 1)
    law = np.exp(-(x**2) / (2 * sigma**2))
    moved = np.exp(-((x - shift) ** 2) / (2 * sigma**2))
    return moved / moved.sum(), law / law.sum()


def discrete_laplace(a, shift):
    far = math.ceil(60 / a)
    x = np.arange(-far, far + shift + 1)
    law, moved = np.exp(-a * abs(x)), np.exp(-a * abs(x - shift))
    return moved * math.tanh(a / 2), law * math.tanh(a / 2)


def randomized_response(p, k):
    own, other = 1 - p + p / k, p / k
    rest = [other] * (k - 2)
    return np.array([own, other, *rest]), np.array([other, own, *rest])


def epsilon_delta(e, d):
    one, two = (1 - d) / (1 + math.exp(-e)), (1 - d) / (1 + math.exp(e))
    return np.array([d, one, two, 0.0]), np.array([0.0, two, one, d])


def sampled(p, q, rate):
    return (1 - rate) * q + rate * p, q


def atoms(p, q):
    """Losses with their chances under P, and P's chance of an infinite one."""
    sure = float(p[q == 0].sum())
    some = (p > 0) & (q > 0)
    return *merged(np.log(p[some] / q[some]), p[some]), sure


def merged(losses, masses):
    """Equal losses together and none of 1e-19, or there are too many."""
    order = np.argsort(losses)
    losses, masses = losses[order], masses[order]
    starts = np.flatnonzero(np.append(True, np.diff(losses) > 1e-13))
    losses, masses = losses[starts], np.add.reduceat(masses, starts)
    return losses[masses > 1e-19], masses[masses > 1e-19]


def together(one, other):
    losses = np.add.outer(one[0], other[0]).ravel()
    masses = np.multiply.outer(one[1], other[1]).ravel()
    return *merged(losses, masses), 1 - (1 - one[2]) * (1 - other[2])


def hockey_stick(found, epsilon):
    losses, masses, sure = found
    gain = -np.expm1(np.minimum(epsilon - losses, 0.0))
    return float(masses @ gain) + sure


def mixture_profile(shifts, weights, way):
    """delta at any epsilon of a mixture of Gaussians, by its threshold."""
    shifts, weights = np.array(shifts), np.array(weights)

    def loss(x):
        return special.logsumexp(shifts * x - shifts**2 / 2, b=weights)

    def remove(epsilon):
        if epsilon < 400 and math.exp(epsilon) <= weights[shifts == 0].sum():
            return -math.expm1(epsilon)
        far = 60 + 3 * shifts.max()
        if loss(far) < epsilon:
            return 0.0
        if loss(-far) > epsilon:
            return -math.expm1(epsilon)
        t = optimize.brentq(lambda x: loss(x) - epsilon, -far, far, xtol=1e-13)
        above = float(weights @ stats.norm.sf(t - shifts))
        return above - math.exp(epsilon) * stats.norm.sf(t)

    def add(epsilon):
        return 1 - math.exp(epsilon) + math.exp(epsilon) * remove(-epsilon)

    return remove if way == "remove" else add


class Case:
    """A random composition, and delta by enumeration."""

    def __init__(self, seed):
        self.random = np.random.default_rng(seed)
        self.relation = self.random.choice([ADD, REPLACE])
        self.parts, self.pairs, self.smooth = [], [], None
        for _ in range(self.random.integers(1, 4)):
            self._discrete()
        if self.relation == ADD and self.random.random() < 0.5:
            self._continuous()

    def _discrete(self):
        draw = self.random
        kinds = ["dg", "dl", "ed"] + (["pair"] if self.relation == ADD else ["rr"])
        kind, count = draw.choice(kinds), int(draw.integers(1, 4))
        rate = 1.0
        if self.relation == ADD and draw.random() < 0.5:
            rate = float(draw.uniform(0.02, 1))
        twice = 2 if self.relation == REPLACE else 1
        if kind == "dg":
            sigma, moved = float(draw.uniform(0.6, 2)), int(draw.integers(1, 3))
            what = DiscreteGaussian(sigma, moved)
            p, q = discrete_gaussian(sigma, twice * moved)
        elif kind == "dl":
            a, moved = float(draw.uniform(0.2, 1.5)), int(draw.integers(1, 4))
            what = DiscreteLaplace(a, moved)
            p, q = discrete_laplace(a, twice * moved)
        elif kind == "rr":
            share, k = float(draw.uniform(0.1, 0.95)), int(draw.integers(2, 7))
            what = RandomizedResponse(share, k)
            p, q = randomized_response(share, k)
        elif kind == "ed":
            e, d = float(draw.uniform(0.05, 2)), float(draw.choice([0.0, 1e-6, 0.01]))
            what = EpsilonDelta(e, d)
            p, q = epsilon_delta(e, d)
        else:
            p, q = draw.dirichlet(np.ones(5), 2)
            what = DiscretePair(p, q)
        sampling = NoSampling() if rate == 1 else PoissonSampling(rate)
        self.parts.append((Release.of(what, sampling), count))
        self.pairs += [sampled(p, q, rate)] * count

    def _continuous(self):
        draw = self.random
        z = float(draw.uniform(0.5, 3))
        if draw.random() < 0.5:
            rate = float(draw.uniform(0.01, 1))
            release = Release.of_sum(
                norm_bound=1.0, noise_multiplier=z, sampling=PoissonSampling(rate)
            )
            self.smooth = [0.0, 1 / z], [1 - rate, rate]
        else:
            shifts, weights = draw.uniform(0, 3, 3), draw.dirichlet(np.ones(3))
            shifts[0] = 0.0
            release = Release.of(MixtureOfGaussians(z, shifts, weights))
            self.smooth = shifts / z, weights
        self.parts.append((release, 1))

    def delta(self, epsilon):
        worst = 0.0
        for way in ("remove", "add"):
            found = np.zeros(1), np.ones(1), 0.0
            for p, q in self.pairs:
                found = together(found, atoms(*((p, q) if way == "remove" else (q, p))))
            if self.smooth is None:
                worst = max(worst, hockey_stick(found, epsilon))
                continue
            profile = mixture_profile(*self.smooth, way)
            kept = found[1] > 1e-16
            value = math.fsum(
                m * profile(epsilon - loss)
                for loss, m in zip(found[0][kept], found[1][kept], strict=True)
            )
            worst = max(worst, value + found[2])
        return worst


def check(seed):
    case = Case(seed)
    found = certificate(*case.parts, relation=case.relation)
    epsilon = float(case.random.uniform(0.0, 4.0))
    truth = case.delta(epsilon)
    bracket = found.delta(epsilon, 0.01)
    slack = 1e-12 + 1e-9 * truth  # of the sums here
    assert bracket.lower <= truth + slack, (seed, bracket.lower, truth)
    assert truth <= bracket.upper + slack, (seed, truth, bracket.upper)
    return bracket, truth


class TestSound:
    @pytest.mark.parametrize("seed", range(12))
    def test_random_compositions(self, seed):
        check(seed)

    @pytest.mark.full
    @pytest.mark.parametrize("block", range(50))
    def test_a_thousand_random_compositions(self, block):
        for seed in range(100 + 20 * block, 120 + 20 * block):
            check(seed)

    @pytest.mark.sized
    def test_exponential_mechanism(self):
        """Of two outputs, for many places of its interval of losses."""
        e, count = 1.0, 4
        found = certificate((Release.of(ExponentialMechanism(e)), count))
        for epsilon in size((0.3, 1.0, 2.0), (1.0,)):
            bracket = found.delta(epsilon)
            for t in np.linspace(0.05, 0.95, size(19, 4)) * e:
                high = (1 - math.exp(t - e)) / (math.exp(t) - math.exp(t - e))
                q = np.array([high, 1 - high])
                p = q * np.exp([t, t - e])
                one = atoms(p, q)
                all_ = one
                for _ in range(count - 1):
                    all_ = together(all_, one)
                assert hockey_stick(all_, epsilon) <= bracket.upper * (1 + 1e-12)
            assert 0.2 * bracket.upper < bracket.lower <= bracket.upper

    @pytest.mark.sampled(2)
    @pytest.mark.sized
    @pytest.mark.parametrize("e", [0.5, 3.0])
    def test_permute_and_flip(self, e):
        """Algorithm 1 of McKenna and Sheldon 2020, by all orders of candidates."""

        def law(scores):
            chances = np.zeros(3)
            for order in itertools.permutations(range(3)):
                left = 1 / 6
                for i in order:
                    wins = math.exp(e / 2 * (scores[i] - max(scores)))
                    chances[i] += left * wins
                    left *= 1 - wins
            return chances

        random, moves = (
            np.random.default_rng(0),
            [*itertools.product((-1, 1), repeat=3)],
        )
        for count in (1, 2):
            found = certificate((Release.of(PermuteAndFlip(e)), count))
            # As Laplace noise of scale 1 / e, from both sides.
            noise = Release.of_sum(
                norm_bound=1.0,
                noise_multiplier=1 / e,
                sampling=NoSampling(),
                mechanism="laplace",
            )
            some = (0.3 * e, 0.7 * e, 0.95 * count * e)
            for epsilon in size(some, some[1:2]):
                bracket, most = found.delta(epsilon), 0.0
                truth = certificate((noise, count)).delta(epsilon)
                assert truth.lower <= bracket.upper <= truth.upper * (1 + 1e-3)
                for scores in random.uniform(-2, 2, (size(40, 8), 3)):
                    for move in moves:
                        p, q = law(scores), law(scores + move)
                        assert (p / q).max() <= math.exp(e) * (1 + 1e-9)
                        one = atoms(p, q)
                        all_ = one if count == 1 else together(one, one)
                        most = max(most, hockey_stick(all_, epsilon))
                assert 0 < most <= bracket.upper * (1 + 1e-9)
                assert bracket.lower <= bracket.upper
                assert bracket.lower >= 0.8 * bracket.upper or count > 1

    @pytest.mark.parametrize("rate", [1.0, 0.3])
    def test_zcdp_bounds_the_gaussian(self, rate):
        sampling = NoSampling() if rate == 1 else PoissonSampling(rate)
        noise = Release.of_sum(norm_bound=1.0, noise_multiplier=1.5, sampling=sampling)
        truth = certificate((noise, 3)).delta(2.0)
        found = certificate((Release.of(ZCDP(0.5 / 1.5**2), sampling), 3)).delta(2.0)
        assert found.upper >= truth.lower
        assert found.lower == 0, "only a guarantee is known"

    def test_points_beside_a_curve_bound_what_has_them(self):
        """A pair's own delta at each, of which one release is no less."""
        p, q = randomized_response(0.6, 3)
        epsilons = (0.0, 0.1, 0.3, 0.6)
        deltas = tuple(hockey_stick(atoms(p, q), epsilon) for epsilon in epsilons)
        found = certificate((Release.of(RDP((2.0,), (9.0,), epsilons, deltas)), 1))
        for epsilon in (*epsilons, 0.05, 0.2, 0.5, 2.0):
            least = hockey_stick(atoms(p, q), epsilon)
            upper = found.delta(epsilon).upper
            assert least <= upper
            if epsilon in epsilons:
                assert upper <= least * 1.02  # by its grid

    def test_renyi_curves_bound_what_has_them(self):
        orders = (1.5, 2.0, 4.0, 8.0, 16.0, 32.0)
        p, q = randomized_response(0.6, 3)
        curve = [math.log(p**a @ q ** (1 - a)) / (a - 1) for a in orders]
        found = certificate((Release.of(RDP(orders, curve)), 6))
        one = atoms(p, q)
        truth = one
        for _ in range(5):
            truth = together(truth, one)
        for epsilon in (0.5, 2.0, 4.0):
            upper = found.delta(epsilon).upper
            assert hockey_stick(truth, epsilon) <= upper < 1

    @pytest.mark.parametrize("count", [1, 2, 3])
    @pytest.mark.parametrize(
        ("p", "q"),
        [
            ((0.5, 0.5, 0.0), (0.0, 0.5, 0.5)),  # all finite losses are one
            ((0.5, 0.5), (0.0, 1.0)),
            ((0.1, 0.9, 0.0, 0.0), (0.0, 0.45, 0.45, 0.1)),
        ],
    )
    def test_outcomes_that_only_one_side_has(self, p, q, count):
        found = certificate((Release.of(DiscretePair(p, q)), count))
        ways = []
        for one in (atoms(*map(np.array, pair)) for pair in ((p, q), (q, p))):
            ways.append(functools.reduce(together, [one] * count))
        for epsilon in (0.1, 0.5, 0.69, 2.0):
            truth = max(hockey_stick(one, epsilon) for one in ways)
            bracket = found.delta(epsilon)
            assert bracket.lower <= truth * (1 + 1e-12)
            assert truth * (1 - 1e-12) <= bracket.upper <= truth * (1 + 1e-3)

    def test_a_replaced_record_of_an_uneven_pair_may_be_either(self):
        p, q = np.array([0.7, 0.2, 0.1]), np.array([0.4, 0.35, 0.25])
        found = certificate((Release.of(DiscretePair(p, q)), 3), relation=REPLACE)
        for epsilon in (0.2, 0.6, 1.2):
            upper = found.delta(epsilon).upper
            one, two = atoms(p, q), atoms(q, p)
            for ways in ((one, one, one), (one, one, two), (one, two, two), (two,) * 3):
                truth = together(together(ways[0], ways[1]), ways[2])
                assert hockey_stick(truth, epsilon) <= upper * (1 + 1e-12)

    @pytest.mark.parametrize("relation", [ADD, REPLACE])
    def test_truncated_poisson_on_data_that_can_be_summed(self, relation):
        """Others all at one end: batch sizes show, and a record takes one's place."""
        n, most, q, z = 6, 2, 0.4, 0.8
        what = TruncatedPoisson(z, q, most, n)
        found = certificate((Release.of(what), 1), relation=relation)

        def law(value):
            """Means of the sum and their chances; one record has ``value``, or none."""
            means = {}
            for k in range(n):  # others drawn
                chance = stats.binom.pmf(k, n - 1, q)
                for drawn in (0, 1):
                    c = chance * (q if drawn else 1 - q)
                    drawn_in = value is not None and drawn
                    if not drawn_in:
                        rows = [(-min(k, most), 1.0)]
                    elif k < most:
                        rows = [(-k + value, 1.0)]
                    else:
                        stay = most / (k + 1)
                        rows = [(-most, 1 - stay), (-(most - 1) + value, stay)]
                    for mean, share in rows:
                        means[mean] = means.get(mean, 0.0) + c * share
            return means

        def density(means, x):
            return sum(c * stats.norm.pdf(x, m, z) for m, c in means.items())

        x = np.linspace(-14, 14, 40001)
        values = (1.0, -1.0) if relation == REPLACE else (1.0, None)
        one, two = (density(law(v), x) for v in values)
        for epsilon in (0.1, 0.7, 1.5):
            bracket = found.delta(epsilon)
            for p, r in ((one, two), (two, one)):
                truth = np.trapezoid(np.maximum(p - math.exp(epsilon) * r, 0), x)
                assert truth <= bracket.upper + 1e-9
            assert bracket.lower <= bracket.upper

    @pytest.mark.parametrize(
        ("z", "q", "most", "n", "true"),
        [
            # At epsilon 0; sums of binomial chances by mpmath with 80 digits.
            (0.018963228617372863, 0.04052351393226433, 405235, 10**7, 0.0404986309585),
            (
                0.4066416611949219,
                4.0504734902557805e-05,
                1,
                10**5,
                9.544498080830592e-6,
            ),
            (0.040332567820135355, 0.2662626452398533, 1, 10, 0.09547721131668387),
        ],
    )
    def test_chances_of_truncation_are_not_too_small(self, z, q, most, n, true):
        one = certificate((Release.of(TruncatedPoisson(z, q, most, n)), 1))
        assert true <= one.delta(0.0, 1e-6, "upper").upper <= true * (1 + 1e-5)

    def test_measures_from_dots_are_above_them(self):
        spacing, start = 0.01, -300
        loss = np.arange(start, 301) * spacing
        dots = np.clip(1 - np.exp(loss), 0, 1) + 0.2 * np.exp(-abs(loss)) + 1e-6
        dots = np.minimum(dots, 1.0)
        got = dots_of(measure_of(dots, start, spacing), spacing)
        hull = np.minimum.accumulate(dots)
        assert (got <= hull + 1e-2).all()
        # The convex hull of the dots is all that a convex H can reach.
        at = np.exp(loss)
        for i in range(10, 590, 37):
            left, right = dots[:i], dots[i + 1 :]
            chord = min(
                left[j]
                + (right[k] - left[j]) * (at[i] - at[j]) / (at[i + 1 + k] - at[j])
                for j in range(0, i, 11)
                for k in range(0, 600 - i, 11)
            )
            assert got[i] >= min(chord, dots[i]) - 1e-2


class TestTight:
    @pytest.mark.parametrize("count", [1, 30, 1000])
    def test_randomized_response(self, count):
        found = certificate(
            (Release.of(RandomizedResponse(0.7, 2)), count), relation=REPLACE
        )
        bracket = found.epsilon(1e-5)
        assert bracket.reached
        k = np.arange(count + 1)
        e = math.log(0.65 / 0.35)
        masses = stats.binom.pmf(k, count, 0.65)
        truth = (e * (2 * k - count), masses, 0.0)
        assert hockey_stick(truth, bracket.upper) <= 1e-5 * (1 + 1e-9)
        assert hockey_stick(truth, bracket.lower * (1 - 1e-9)) >= 1e-5 * (1 - 1e-9)

    @pytest.mark.full
    def test_most_random_compositions_reach_their_width(self):
        """Several kinds of atoms that no grid holds at once are what is wider."""
        reached = [check(seed)[0].reached for seed in range(12, 32)]
        assert sum(reached) >= 12

    @pytest.mark.sampled(2)
    @pytest.mark.parametrize("seed", range(4))
    def test_few_steps_of_large_losses_close(self, seed):
        """Delta is that of the largest losses alone; against all outcomes summed."""
        random = np.random.default_rng(seed)
        kinds = [
            RandomizedResponse(random.uniform(0.1, 0.9), int(random.integers(2, 5)))
            if i % 2
            else DiscreteLaplace(random.uniform(0.1, 2.0), int(random.integers(1, 3)))
            for i in range(3)
        ]
        found = np.zeros(1), np.ones(1), 0.0
        for kind in kinds:
            if isinstance(kind, RandomizedResponse):
                pair = randomized_response(kind.noise_parameter, kind.buckets)
            else:
                pair = discrete_laplace(kind.parameter, 2 * kind.sensitivity)
            found = together(found, atoms(*pair))
        delta = float(10.0 ** random.uniform(-8, -3))
        truth = optimize.brentq(
            lambda e: hockey_stick(found, e) - delta, 0, 60, xtol=1e-10
        )
        whole = [(Release.of(kind), 1) for kind in kinds]
        bracket = certificate(*whole, relation=REPLACE).epsilon(delta)
        assert bracket.lower <= truth * (1 + 1e-9)
        assert truth <= bracket.upper * (1 + 1e-9)
        assert bracket.reached

    def test_optimal_composition_of_epsilon_delta(self):
        """Kairouz, Oh and Viswanath 2015, theorem 3.3."""
        e, d, k = 0.3, 1e-3, 8
        found = certificate((Release.of(EpsilonDelta(e, d)), k))
        for i in range(1, k // 2 + 1):
            inner = (
                sum(
                    math.comb(k, m)
                    * (math.exp((k - m) * e) - math.exp((k - 2 * i + m) * e))
                    for m in range(i)
                )
                / (1 + math.exp(e)) ** k
            )
            truth = 1 - (1 - d) ** k * (1 - inner)
            bracket = found.delta((k - 2 * i) * e)
            assert truth * (1 + 1e-12) <= bracket.upper * (1 + 2e-12)
            assert bracket.upper <= 1.005 * truth
            assert bracket.lower == 0, "only a guarantee is known"

    @pytest.mark.full
    def test_truncated_poisson_is_no_worse_than_dp_accounting(self):
        import dp_accounting as dpa
        from dp_accounting.pld import PLDAccountant

        theirs = PLDAccountant()
        theirs.compose(dpa.TruncatedSubsampledGaussianDpEvent(1000, 0.05, 70, 1.0), 50)
        ours = certificate((Release.of(TruncatedPoisson(1.0, 0.05, 70, 1000)), 50))
        assert ours.epsilon(1e-5).upper <= theirs.get_epsilon(1e-5) * 1.002

    def test_what_is_nothing_else_is_the_same(self):
        """A mixture of two is a sampled Gaussian; a batch never cut is one, too."""
        noise = Release.of_sum(
            norm_bound=1.0, noise_multiplier=1.0, sampling=PoissonSampling(0.1)
        )
        same = [
            Release.of(MixtureOfGaussians(2.0, [0.0, 2.0], [0.9, 0.1])),
            Release.of(
                MixtureOfGaussians(1.0, [0.0, 1.0], [0.8, 0.2]), PoissonSampling(0.5)
            ),
            Release.of(TruncatedPoisson(1.0, 0.1, 100, 100)),
        ]
        truth = certificate((noise, 20)).epsilon(1e-5)
        for release in same:
            found = certificate((release, 20)).epsilon(1e-5)
            assert found.upper <= truth.upper * 1.001
            assert found.upper >= truth.lower


class TestLaws:
    def test_a_ledger_comes_back(self):
        whats = [
            RandomizedResponse(0.5, 3),
            DiscreteGaussian(2.0, 3),
            DiscreteLaplace(0.5, 2),
            MixtureOfGaussians(1.0, [0, 1], [0.5, 0.5]),
            TruncatedPoisson(1.0, 0.1, 10, 50),
            ExponentialMechanism(1.0),
            PermuteAndFlip(1.0),
            EpsilonDelta(1.0, 1e-6),
            ZCDP(0.1, 0.01),
            RDP([2.0, math.inf], [0.1, math.inf]),
            DiscretePair(np.array([0.5, 0.5]), [0.25, 0.75]),
        ]
        assert {type(what) for what in whats} == set(NAMES)
        entries = tuple(Entry(Release.of(what), 2) for what in whats)
        ledger = Ledger(nodes=(entries,))
        assert ledger.version == 4
        assert Ledger.from_json(ledger.to_json()) == ledger

    def test_more_costs_more(self):
        def worth(what, count=3):
            return certificate((Release.of(what), count)).epsilon(1e-4).upper

        assert worth(DiscreteGaussian(1.0)) > worth(DiscreteGaussian(2.0))
        assert worth(DiscreteLaplace(0.2)) < worth(DiscreteLaplace(0.2, 2))
        assert worth(ExponentialMechanism(0.5)) < worth(EpsilonDelta(0.5))
        assert worth(ZCDP(0.1), 2) < worth(ZCDP(0.1), 3)

    def test_curves_add_up(self):
        parts = certificate((Release.of(ZCDP(0.1)), 3), (Release.of(ZCDP(0.2)), 1))
        whole = certificate((Release.of(ZCDP(0.5)), 1))
        assert math.isclose(
            parts.epsilon(1e-5).upper, whole.epsilon(1e-5).upper, rel_tol=1e-6
        )

    @pytest.mark.parametrize(
        "what",
        [
            RandomizedResponse(1.0, 5),
            DiscreteGaussian(1.0, 0),
            MixtureOfGaussians(1.0, [0.0], [1.0]),
            TruncatedPoisson(1.0, 0.0, 5, 5),
            EpsilonDelta(0.0),
            DiscretePair([0.5, 0.5], [0.5, 0.5]),
        ],
    )
    def test_what_tells_nothing_costs_nothing(self, what):
        relation = what.relations[-1]
        assert (
            certificate((Release.of(what), 9), relation=relation).epsilon(0).upper == 0
        )

    def test_delta_within_what_is_sure_has_no_epsilon(self):
        found = certificate((Release.of(EpsilonDelta(1.0, 0.1)), 2))
        assert found.epsilon(0.18).upper == math.inf
        assert found.epsilon(0.2).upper <= 2

    def test_a_guarantee_disproves_nothing(self):
        release = Release.of_sum(
            norm_bound=1.0, noise_multiplier=1.0, sampling=NoSampling()
        )
        noisy = (release, 1)
        alone = certificate(noisy).epsilon(1e-5)
        for what in (EpsilonDelta(1.0, 1e-6), ZCDP(0.5), RDP([2.0], [1.0])):
            found = certificate(noisy, (Release.of(what), 1)).epsilon(1e-5)
            assert 0.999 * alone.lower <= found.lower <= alone.upper < found.upper

    def test_pure_losses_bound_epsilon_at_delta_0(self):
        assert certificate((Release.of(EpsilonDelta(0.5)), 4)).epsilon(0).upper < 2.001
        assert certificate((Release.of(DiscreteGaussian(1.0)), 1)).epsilon(0).upper > 30

    @pytest.mark.full
    @pytest.mark.sampled(2)
    @pytest.mark.parametrize("rate", [1.0, 0.01])
    def test_the_discrete_gaussian_has_no_largest_loss(self, rate):
        sampling = PoissonSampling(rate)
        one = certificate((Release.of(DiscreteGaussian(1.0), sampling), 1))
        assert one.epsilon(0.0).upper == math.inf
        assert one.delta(45.0).upper > 0  # 1e-450 is no double
        for order in (1.5, 2.0, 20.0, 1e6):
            found = loss_of(DiscreteGaussian(1.0), ADD, rate).divergence(order)
            assert found <= order / 2 * (1 + 1e-12)
        assert rate < 1 or found >= 0.5e6

    @pytest.mark.parametrize("rate", [1e-8, 3e-10, 1e-12, 7e-15])
    def test_the_largest_loss_of_what_is_rarely_sampled(self, rate):
        release = Release.of(DiscreteLaplace(3.0), PoissonSampling(rate))
        true = rate * math.expm1(3.0) - (rate * math.expm1(3.0)) ** 2 / 2
        found = certificate((release, 1)).epsilon(0.0).upper
        assert true * (1 - 1e-15) <= found <= true * (1 + 1e-10)

    def test_the_least_double_is_a_delta(self):
        one = certificate((Release.of(EpsilonDelta(1.0, 0.5)), 1))
        assert one.epsilon(5e-324).upper == math.inf


class TestRefused:
    @pytest.mark.parametrize(
        ("make", "words"),
        [
            (lambda: RandomizedResponse(0.0), "noise_parameter must be between"),
            (lambda: RandomizedResponse(0.5, 0), "buckets must be a whole number"),
            (lambda: DiscreteGaussian(0.0), "sigma must be between"),
            (lambda: DiscreteGaussian(1.0, 1.5), "sensitivity must be a whole number"),
            (lambda: DiscreteLaplace(math.nan), "parameter must be between"),
            (lambda: MixtureOfGaussians(1.0, [1], [0.5]), "must sum to 1, got 0.5"),
            (lambda: MixtureOfGaussians(1.0, [-1], [1]), "sensitivities must be >= 0"),
            (lambda: MixtureOfGaussians(1.0, [1, 2], [1]), "as many sensitivities"),
            (lambda: TruncatedPoisson(1.0, 2.0, 5, 9), "sampling_rate must be between"),
            (lambda: ExponentialMechanism(-1.0), "epsilon must be between"),
            (lambda: EpsilonDelta(1.0, 1.0), r"delta must be in \[0, 1\)"),
            (lambda: ZCDP(-1.0), "rho must be between"),
            (lambda: RDP([1.0], [0.1]), "orders must be > 1, got 1.0"),
            (lambda: RDP([2.0], [-0.1]), "divergences must be >= 0"),
            (lambda: DiscretePair([0.5], [0.5, 0.5]), "as many chances p as q"),
            (lambda: Release.of("zcdp"), "one of privaudit.mechanisms: Randomized"),
            (
                lambda: Release.of(RandomizedResponse(0.5), relation=ADD),
                "a meaning under replace-one only, got 'add-or-remove-one'",
            ),
            (
                lambda: Release.of(ZCDP(0.1), SamplingWithoutReplacement(1, 9)),
                "unsampled or Poisson sampled",
            ),
            (lambda: Release.of(ZCDP(0.1), RandomAllocation(9)), "unsampled or"),
            (
                lambda: Release.of(
                    TruncatedPoisson(1.0, 0.1, 5, 9), PoissonSampling(0.1)
                ),
                "sampled already",
            ),
            (
                lambda: Release.of(ZCDP(0.1)).noise_over_sensitivity(ADD),
                "no noise over sensitivity; use the certified account",
            ),
        ],
    )
    def test_in_one_sentence(self, make, words):
        with pytest.raises(ValueError, match=words) as error:
            make()
        assert "\n" not in str(error.value)

    @pytest.mark.parametrize("method", ["pld", "gdp", "analytic-gaussian"])
    def test_by_accounts_of_noise(self, method):
        ledger = Ledger.of(Release.of(EpsilonDelta(0.5)))
        with pytest.raises(ValueError, match=r"Gaussian|certified account"):
            pa.accounting.account(ledger, 1e-5, method=method)


def test_budgets_are_spent_on_them():
    budget = pa.Budget(epsilon=1.0, delta=1e-6)
    release = Release.of(ZCDP(0.001))
    budget.spend(release, 5)
    assert 0 < budget.spent < 1
    assert budget.room(release) > 5


def test_sampled_losses_move_toward_0():
    loss = loss_of(EpsilonDelta(1.0, 0.0), ADD, 0.1)
    up, down = loss.range("remove")
    assert math.isclose(up, math.log1p(0.1 * math.expm1(1.0)), rel_tol=1e-9)
    assert math.isclose(-down, math.log1p(0.1 * math.expm1(-1.0)), rel_tol=1e-9)


@pytest.mark.parametrize("way", ["remove", "add"])
@pytest.mark.parametrize("rate", [0.1, 1.0])
@pytest.mark.parametrize(
    "details",
    [
        DiscreteGaussian(1.3),
        DiscreteLaplace(1.0),
        EpsilonDelta(1.0, 0.01),
        ExponentialMechanism(2.0),
        PermuteAndFlip(2.0),
        RandomizedResponse(0.4, 3),
    ],
)
def test_total_variation_and_range_cover_the_law(details, rate, way):
    """Of a measure that is dominated, the part of P above Q, and its largest loss."""
    loss = loss_of(details, ADD, rate)
    check_covers(loss, way)


def test_also_of_a_sampled_gaussian():
    for way in ("remove", "add"):
        check_covers(Gaussian(1.5, 0.2), way)


def check_covers(loss, way):
    spacing = 0.002
    below = loss.below(way, spacing, 8.0)
    losses = (below.start + np.arange(below.mass.size)) * spacing
    above = below.mass @ np.clip(-np.expm1(-np.maximum(losses, 0.0)), 0.0, None)
    assert 1e-3 < above + below.infinite <= loss.distance()
    assert losses[below.mass > 0].max() <= loss.range(way)[0] + spacing


@pytest.mark.parametrize("rate", [1e-3, 0.3, 0.97])
def test_ends_of_a_sampled_loss_are_rounded_outwards(rate):
    """log(1 - q + q e^eps) of an added record and of a removed one, by mpmath."""
    for e in np.linspace(0.01, 6.0, 97).tolist():
        loss = loss_of(ExponentialMechanism(e), ADD, rate)
        with mpmath.workdps(40):
            ends = [mpmath.log1p(rate * mpmath.expm1(x)) for x in (e, -e)]
            removed, added = loss.range("remove"), loss.range("add")
            for exact, found in ((ends[0], removed[0]), (-ends[1], removed[1])):
                assert exact <= found <= exact * (1 + 1e-12)
        assert added == removed[::-1]


@pytest.mark.parametrize("order", [1.5, 2.0, 30.0])
def test_a_divergence_covers_what_its_atoms_may_be_off_by(order):
    """Each log chance of P larger and of Q smaller, by all of the accuracy."""
    p, q = np.log([0.5, 0.3, 0.2]), np.log([0.2, 0.3, 0.5])
    found = Atoms(p, q, far=2.0**40)
    off = found.accuracy
    assert 1e-5 < off < 1e-3
    worst = special.logsumexp(order * (p + off) + (1 - order) * (q - off))
    assert worst / (order - 1) <= found.divergence(order)


@pytest.mark.parametrize(("d", "delta"), [(1e-6, 1e-5), (9e-6, 1e-5), (1e-3, 2e-3)])
def test_one_guarantee_is_what_it_says(d, delta):
    """Its one finite loss is the end of a grid, which must hold it."""
    found = certificate((Release.of(EpsilonDelta(0.9, d)), 1)).epsilon(delta)
    truth = 0.9 - (delta - d) * (1 + math.exp(-0.9)) / (1 - d)
    assert truth - 1e-6 <= found.upper <= 0.9001
