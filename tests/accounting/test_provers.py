"""The provers of the certificate: each is sound by itself, and no two cross."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import mpmath as mp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from privaudit.accounting import provers
from privaudit.accounting.provers import (
    CLOSED,
    FOURIER,
    RENYI,
    Gaussian,
    Proof,
    Pure,
    Question,
    Steps,
    TotalVariation,
    prove,
)
from privaudit.ledger import Entry
from privaudit.mechanisms import DiscreteLaplace, EpsilonDelta, ExponentialMechanism
from privaudit.release import (
    NoSampling,
    PoissonSampling,
    Release,
    SamplingWithoutReplacement,
    Sensitivity,
)
from privaudit.results import CrossedSides
from tests import reference as ref
from tests.tiers import examples

ADD = "add-or-remove-one"
WAYS = ("remove", "add")


def release(z, sampling=None, mechanism="gaussian"):
    return Release.of_sum(
        norm_bound=1.0,
        noise_multiplier=z,
        sampling=sampling or NoSampling(),
        mechanism=mechanism,
    )


def steps(*rows, relation=ADD, mechanism="gaussian"):
    """Of (noise multiplier, rate, count)."""
    return Steps.of(
        [
            Entry(release(z, PoissonSampling(q) if q < 1 else None, mechanism), n)
            for z, q, n in rows
        ],
        relation,
    )


def sampled_laplace_delta(shift, rate, epsilon, way):
    """One sampled Laplace release, by the three pieces of its density."""
    s, q, e = mp.mpf(shift), mp.mpf(rate), mp.e ** mp.mpf(epsilon)

    def density(x):
        zero = mp.e ** -abs(x) / 2
        mixed = (1 - q) * zero + q * mp.e ** -abs(x - s) / 2
        return (mixed, zero) if way == "remove" else (zero, mixed)

    def excess(x):
        p, other = density(x)
        return max(p - e * other, mp.mpf(0))

    # Outside [0, s] the ratio is constant; inside it crosses once.
    left = excess(mp.mpf(0))
    right = excess(s)

    def signed(x):
        p, other = density(x)
        return p - e * other

    ends = [mp.mpf(0), s]
    if signed(ends[0]) * signed(ends[1]) < 0:
        low, high = ends
        rising = signed(high) > 0
        for _ in range(200):
            middle = (low + high) / 2
            if (signed(middle) > 0) == rising:
                high = middle
            else:
                low = middle
        ends = [mp.mpf(0), low, s]
    return left + mp.quad(excess, ends) + right


def gaussian_distance(shift):
    return mp.erf(mp.mpf(shift) / mp.sqrt(8))


rates = st.floats(1e-4, 1.0)
shifts = st.floats(0.01, 6.0)


class TestSound:
    @examples(60)
    @given(shifts, rates, st.floats(0.0, 4.0), st.sampled_from(WAYS))
    def test_closed_forms_of_one_gaussian_step(self, shift, rate, epsilon, way):
        one = steps((1 / shift, rate, 1))
        way = way if len(one.directions) > 1 else "remove"
        with mp.workdps(60):
            true = ref.sampled_gaussian_delta(float(one.shift[0]), rate, epsilon, way)
            true = true if true > 1e-50 else mp.mpf(0)  # what cancels to its digits
        for prover in CLOSED:
            low = prover.delta_below(one, way, epsilon)
            high = prover.delta_above(one, way, epsilon)
            assert low <= true * (1 + mp.mpf(1e-15)) <= high * (1 + 2e-15), prover.name

    @examples(40)
    @given(st.floats(0.05, 5.0), rates, st.floats(0, 1.2), st.sampled_from(WAYS))
    def test_closed_forms_of_one_laplace_step(self, shift, rate, share, way):
        one = steps((1 / shift, rate, 1), mechanism="laplace")
        way = way if len(one.directions) > 1 else "remove"
        epsilon = share * math.log1p(rate * math.expm1(shift))
        with mp.workdps(30):
            true = sampled_laplace_delta(float(one.shift[0]), rate, epsilon, way)
            for prover in CLOSED:
                low = prover.delta_below(one, way, epsilon)
                high = prover.delta_above(one, way, epsilon)
                assert low <= true * (1 + mp.mpf(1e-12)) + mp.mpf(1e-25), prover.name
                assert true <= high * (1 + mp.mpf(1e-12)) + mp.mpf(1e-25), prover.name

    @examples(30)
    @given(
        st.floats(0.1, 3),
        st.floats(1e-3, 0.999),
        st.floats(0, 0.9),
        st.sampled_from(WAYS),
    )
    def test_the_pure_bound_answers_delta_and_epsilon_alike(self, s, q, share, way):
        some = steps((1 / s, q, 3), mechanism="laplace")
        pure = Pure()
        delta = share * 0.3
        above = pure.epsilon_above(some, way, delta)
        assert pure.delta_above(some, way, above * (1 + 1e-12) + 1e-12) <= delta + 1e-12
        below = pure.epsilon_below(some, way, delta)
        if below > 0:
            assert pure.delta_below(some, way, below * (1 - 1e-12)) >= delta * (
                1 - 1e-9
            )

    @pytest.mark.parametrize("sampling", [0.3, SamplingWithoutReplacement(3, 10)])
    def test_pure_bound_of_a_replaced_record_by_enumeration(self, sampling):
        # Scalar records in [-1, 1] (norm bound 1), noise of scale .7: the largest
        # log-ratio of the two output densities over data that differ in one record.
        q = 0.3
        scheme = PoissonSampling(q) if sampling == q else sampling
        some = Steps.of([Entry(release(0.7, scheme, "laplace"))], "replace-one")
        grid = np.linspace(-40, 40, 2001) / 0.7
        zero = np.exp(-np.abs(grid))
        worst = 0.0
        for u, v in itertools.product(np.linspace(-1, 1, 21) / 0.7, repeat=2):
            one = (1 - q) * zero + q * np.exp(-np.abs(grid - u))
            other = (1 - q) * zero + q * np.exp(-np.abs(grid - v))
            if sampling != q:  # the others' records are all -1 or 1 away, or 0
                for w in (-1 / 0.7, 0.0, 1 / 0.7):
                    rest = np.exp(-np.abs(grid - w))
                    pair = [
                        (1 - q) * rest + q * np.exp(-np.abs(grid - at)) for at in (u, v)
                    ]
                    worst = max(worst, float(np.log(pair[0] / pair[1]).max()))
            worst = max(worst, float(np.log(one / other).max()))
        above = Pure().epsilon_above(some, "remove", 0.0)
        below = Pure().epsilon_below(some, "remove", 0.0)
        assert worst <= above * (1 + 1e-12)
        assert below <= worst * (1 + 1e-12)
        assert above <= 1.01 * worst

    @examples(300)
    @given(st.floats(-3, 0), st.floats(-7, 0), st.floats(0.01, 0.99))
    def test_losses_of_a_record_that_hardly_moves_are_rounded_up(self, c, s, q):
        """Two logarithms, of which next to nothing is left."""
        sensitivity = Sensitivity(replace_one=10.0 ** (c + s))
        some = Release(
            mechanism="laplace",
            norm_bound=10.0**c,
            noise=1.0,
            sensitivity=sensitivity,
            sampling=PoissonSampling(q),
        )
        steps = Steps.of([Entry(some)], "replace-one")
        with mp.workdps(50):
            c, s, q = (
                mp.mpf(one.item()) for one in (steps.norm, steps.shift, steps.rate)
            )
            true = mp.log1p(q * mp.expm1(c)) - mp.log1p(q * mp.expm1(c - s))
            assert Pure().epsilon_above(steps, "remove", 0.0) >= true

    @examples(60)
    @given(
        st.lists(
            st.tuples(st.floats(0.2, 50), st.floats(1e-4, 1.0), st.integers(1, 9)),
            min_size=1,
            max_size=3,
        )
    )
    def test_total_variation_of_gaussians_without_sampling(self, rows):
        some = steps(*((z, 1.0, n) for z, _, n in rows))
        mu = mp.sqrt(sum(n * mp.mpf(1 / z) ** 2 for z, _, n in rows))
        assert TotalVariation.distance(some) >= gaussian_distance(mu)
        sampled = steps(*rows)
        one = max(q * gaussian_distance(1 / z) for z, q, _ in rows)
        assert TotalVariation.distance(sampled) >= one * (1 - mp.mpf(1e-15))

    @examples(20)
    @given(
        st.tuples(st.floats(0.3, 4), st.floats(0.01, 0.9)),
        st.tuples(st.floats(0.3, 4), st.floats(0.01, 0.9)),
    )
    def test_total_variation_of_two_sampled_gaussians(self, one, two):
        with mp.workdps(15):
            true = ref.two_steps_delta((one, two), 0.0, "remove")
        some = steps((1 / one[0], one[1], 1), (1 / two[0], two[1], 1))
        assert TotalVariation.distance(some) >= true * (1 - 1e-6)

    @pytest.mark.parametrize(
        "shift", [*np.geomspace(1e-9, 1e-4, 12), 0.99e-3, 1.01e-3, 0.1, 3.0]
    )
    def test_squares_of_laplace_noise(self, shift):
        """E_Q[(P/Q)^2] - 1 by quadrature; below 1e-3 its closed form loses digits."""
        with mp.workdps(40):
            s = mp.mpf(1 / (1 / shift))

            def square(x):
                return mp.e ** (2 * (abs(x) - abs(x - s)) - abs(x)) / 2

            true = mp.quad(square, [-mp.inf, 0, s, mp.inf]) - 1
            some = steps((1 / shift, 1.0, 1), mechanism="laplace")
            found = mp.expm1(TotalVariation.log_squares(some))
            assert true * (1 - mp.mpf(1e-12)) <= found <= true * (1 + mp.mpf(1e-3))

    @pytest.mark.parametrize(("z", "size"), [(2.0, 10), (0.8, 30), (5.0, 80)])
    def test_squares_of_samples_of_fixed_size(self, z, size):
        """E[(P/Q - 1)^2] of the pair that dominates, from its profile by quadrature."""
        entry = Entry(release(z, SamplingWithoutReplacement(size, 100)))
        some = Steps.of([entry], "replace-one")
        shift, rate = float(some.shift[0]), size / 100

        def profile(h):
            delta = ref.sampled_gaussian_delta(shift, rate, mp.log(h), "remove")
            return 2 * delta * (1 + h**-3)

        with mp.workdps(20):
            ends = [1, 1.5, 3, 10, 100, 1e4, 1e8]
            true = mp.quad(profile, ends)
            found = mp.expm1(TotalVariation.log_squares(some))
            assert true <= found <= 2.1 * true

    @pytest.mark.sampled(6)
    @pytest.mark.parametrize("mechanism", ["gaussian", "laplace"])
    @pytest.mark.parametrize(
        ("sampling", "relation"),
        [
            (NoSampling(), ADD),
            (PoissonSampling(0.1), ADD),
            (PoissonSampling(0.1), "replace-one"),
            (SamplingWithoutReplacement(10, 100), "replace-one"),
        ],
    )
    @pytest.mark.parametrize("quantity", ["epsilon", "delta"])
    def test_no_two_provers_cross(self, mechanism, sampling, relation, quantity):
        some = Steps.of([Entry(release(2.0, sampling, mechanism), 8)], relation)
        for at in (0.0, 1e-12, 1e-3, 0.2, 2.0):
            if quantity == "epsilon" and at >= 1:
                continue
            question = Question(quantity, at, 0.01)
            every = (*CLOSED, RENYI)
            for way in some.directions:
                above = [question.above(prover, some, way).value for prover in every]
                below = [question.below(prover, some, way).value for prover in every]
                assert max(below) <= min(above), (at, way)
            prove(some, question)  # with privacy loss distributions: raises if so

    def test_sides_that_cross_are_said(self, monkeypatch):
        some = steps((1.0, 0.01, 100))
        monkeypatch.setattr(
            TotalVariation, "epsilon_above", lambda self, steps, way, delta: 0.25
        )
        with pytest.raises(CrossedSides, match=r"0\.25 \(by total variation\)"):
            prove(some, Question("epsilon", 1e-5, 0.01))

    def test_a_wrong_atom_of_fixed_samples_is_noticed(self, monkeypatch):
        # The upper side was once merged with the lower one, and this went unnoticed.
        from privaudit.accounting.pld.mechanisms import noise

        monkeypatch.setattr(
            noise,
            "total_variation",
            lambda step: math.erf(step.shift / math.sqrt(8.1)),
        )
        release_ = release(0.5, SamplingWithoutReplacement(10, 1000))
        some = Steps.of([Entry(release_, 1000)], "replace-one")
        with pytest.raises(CrossedSides):
            prove(some, Question("epsilon", 1e-5, 1e-3))


class TestTight:
    @examples(40)
    @given(st.lists(st.floats(0.3, 300), min_size=1, max_size=5), st.floats(1e-30, 0.5))
    def test_gaussians_without_sampling_are_exact(self, multipliers, delta):
        some = steps(*((z, 1.0, 1) for z in multipliers))
        found = prove(some, Question("epsilon", delta, 1e-3))["remove"]
        assert found.upper.by in (Gaussian.name, TotalVariation.name)
        assert found.upper.value <= found.lower.value * (1 + 1e-8) + 1e-12
        mu = mp.sqrt(sum(mp.mpf(1 / z) ** 2 for z in multipliers))
        assert ref.gaussian_delta(mu, found.upper.value) <= delta * (1 + 1e-12)

    @pytest.mark.parametrize(("relation", "unit"), [(ADD, 1), ("replace-one", 2)])
    def test_pure_epsilon_is_the_sum(self, relation, unit):
        some = steps(
            (4.0, 1.0, 3), (8.0, 1.0, 2), relation=relation, mechanism="laplace"
        )
        for found in prove(some, Question("epsilon", 0.0, 1e-9)).values():
            assert found.upper.value == pytest.approx(unit, rel=1e-12)
            assert found.lower.value == pytest.approx(unit, rel=1e-12)
            assert found.upper.by == found.lower.by == Pure.name

    @given(
        rows=st.lists(
            st.tuples(st.floats(1e-3, 1e3), st.integers(1, 10**6)),
            min_size=1,
            max_size=5,
        )
    )
    def test_pure_epsilon_is_rounded_once(self, rows):
        entries = [Entry(release(z, mechanism="laplace"), n) for z, n in rows]
        found = Pure().epsilon_above(Steps.of(entries, ADD), "remove", 0.0)
        true = sum(Fraction(n) / Fraction(z) for z, n in rows)
        assert Fraction(math.nextafter(found, 0.0)) < true <= Fraction(found)
        assert Pure().delta_above(Steps.of(entries, ADD), "remove", found) == 0

    @pytest.mark.filterwarnings("ignore:overflow")
    def test_a_pure_epsilon_beyond_doubles_is_infinite(self):
        of = steps((1e-305, 1.0, 10**6), mechanism="laplace")
        assert Pure().epsilon_above(of, "remove", 0.0) == math.inf
        assert Pure().delta_above(of, "remove", 1.0) == 1

    @pytest.mark.parametrize(
        ("one", "relation", "expected"),
        [
            (EpsilonDelta(1.0), ADD, 1.0),
            (ExponentialMechanism(0.5), ADD, 0.5),
            (DiscreteLaplace(0.25, 2), ADD, 0.5),
            (DiscreteLaplace(0.25, 2), "replace-one", 1.0),
        ],
    )
    def test_a_stated_pure_epsilon_is_not_rounded(self, one, relation, expected):
        of = Steps.of([Entry(Release.of(one), 4)], relation)
        assert Pure().epsilon_above(of, "remove", 0.0) == 4 * expected

    @pytest.mark.parametrize("kind", [int, float, np.int64, np.float32])
    def test_whole_numbers_of_any_kind_are_not_rounded(self, kind):
        """7 times .7 is above the double 7 * .7."""
        for entry in (
            Entry(Release.of(EpsilonDelta(0.7)), kind(7)),
            Entry(Release.of(DiscreteLaplace(0.7, kind(7)))),
            Entry(release(1 / 0.7, mechanism="laplace"), kind(7)),
        ):
            noise = entry.release.noise
            one = 1 / Fraction(noise) if noise != 1 else Fraction(0.7)
            found = Pure().epsilon_above(Steps.of([entry], ADD), "remove", 0.0)
            assert Fraction(math.nextafter(found, 0.0)) < 7 * one <= Fraction(found)

    def test_parameters_of_a_shorter_kind_are_what_they_say(self):
        short = np.float32(0.1)
        for kind in (EpsilonDelta, ExponentialMechanism, DiscreteLaplace):
            of = Steps.of([Entry(Release.of(kind(short)), 1000)], ADD)
            assert Pure().epsilon_above(of, "remove", 0.0) >= 1000 * float(short)
            assert kind(short) == kind(float(short))

    @pytest.mark.parametrize("way", WAYS)
    def test_the_largest_loss_has_its_mass(self, way):
        one = steps((1.0, 0.3, 1), mechanism="laplace")
        top = Pure().epsilon_above(one, way, 0.0)
        true = float(sampled_laplace_delta(1.0, 0.3, 0.99 * top, way))
        assert 0.95 * true <= Pure().delta_below(one, way, 0.99 * top) <= true

    def test_the_lower_side_leaves_out_what_hardly_ever_shows(self):
        # All five hundred at once have the largest loss with chance 2^-500.
        some = steps((1.0, 1.0, 3), (1e6, 1.0, 500), mechanism="laplace")
        assert Pure().epsilon_below(some, "remove", 1e-6) > 2.99

    @pytest.mark.parametrize(
        ("z", "rate", "quantity", "at"),
        [
            (1e9, 1.0, "epsilon", 1e-17),
            (3e263, 1 - 2**-53, "epsilon", 8e-170),
            (3e263, 1.0, "delta", 0.0),
            (1e192, 0.9, "delta", 8.128e-193),
            pytest.param(
                0.0031269531029189095,
                7.671033747466123e-225,
                "delta",
                5.919492023397e-86,
                marks=pytest.mark.full,
            ),
            (0.024, 1.9e-148, "delta", 0.0),
            (6e271, 2.7e-296, "delta", 0.0),
            (1e200, 1e-200, "epsilon", 0.0),
        ],
    )
    def test_laplace_noise_far_from_1(self, z, rate, quantity, at):
        known = prove(
            steps((z, rate, 1), mechanism="laplace"), Question(quantity, at, 1e-3)
        )
        with mp.workdps(800):

            def plain(epsilon):
                return max(mp.mpf(0), -mp.expm1((epsilon - 1 / mp.mpf(z)) / 2))

            def true(epsilon):
                a, q = mp.exp(mp.mpf(epsilon)), mp.mpf(rate)
                some = [q * plain(mp.log((a - 1 + q) / q))]
                rest = 1 - a * (1 - q)
                return max(*some, rest * plain(mp.log(a * q / rest)) if rest > 0 else 0)

            low = max(proved.lower.value for proved in known.values())
            high = max(proved.upper.value for proved in known.values())
            if quantity == "delta":
                assert low <= true(at) <= high
            else:
                assert not low or true(low) > at
                assert true(high) <= at

    @pytest.mark.filterwarnings("error")
    @pytest.mark.parametrize("relation", [ADD, "replace-one"])
    @pytest.mark.parametrize("delta", [0.0, 1e-5, 0.9])
    @pytest.mark.parametrize(
        "rows", [((1e-308, 1.0, 1), (7e-309, 1.0, 1)), ((4e-296, 1.0, 10**15),)]
    )
    def test_losses_beyond_doubles_are_added(self, rows, delta, relation):
        some = steps(*rows, relation=relation, mechanism="laplace")
        for quantity in ("epsilon", "delta"):
            for found in prove(some, Question(quantity, delta, 1e-3)).values():
                assert found.upper.value == (1 if quantity == "delta" else math.inf)

    @pytest.mark.filterwarnings("error")
    def test_hardly_any_gaussian_noise(self):
        for at in (0.0, 0.9, 1e5):
            found = prove(steps((7e-97, 1.0, 1)), Question("delta", at, 1e-3))
            assert found["remove"].upper.value == 1

    def test_adding_a_record_to_a_sample_is_pure_whatever_the_noise(self):
        some = steps((0.5, 0.1, 7))
        found = prove(some, Question("epsilon", 0.0, 1e-9))
        assert found["add"].upper.value == pytest.approx(-7 * math.log(0.9))
        assert found["remove"].upper.value == found["remove"].lower.value == math.inf

    def test_total_variation_is_exact_for_one_release(self):
        one = steps((533.0, 4e-5, 1))
        true = mp.mpf(4e-5) * gaussian_distance(1 / 533)
        assert TotalVariation.distance(one) == pytest.approx(float(true), rel=1e-9)

    @pytest.mark.parametrize("steps_", [10, 1000, 10**6])
    def test_total_variation_grows_with_the_root(self, steps_):
        z = 50 * math.sqrt(steps_)
        true = gaussian_distance(math.sqrt(steps_) / z)
        some = steps((z, 1.0, steps_))
        assert TotalVariation.distance(some) <= 1.26 * float(true)

    def test_the_cheap_ones_come_first(self, monkeypatch):
        def never(*_):
            raise AssertionError("nothing was left to gain")

        monkeypatch.setattr(provers, "_by_fourier", never)
        prove(steps((2.0, 1.0, 9)), Question("epsilon", 1e-5, 1e-3))
        prove(steps((533.0, 4e-5, 1)), Question("epsilon", 0.005, 1e-3))

    def test_few_compositions_prove_both_sides(self, monkeypatch):
        from privaudit.accounting.pld import composition

        compose, calls = composition.compose, []
        monkeypatch.setattr(
            composition, "compose", lambda *of: calls.append(of) or compose(*of)
        )
        some = steps((1.0, 0.01, 100), (2.0, 0.02, 50))
        question = Question("epsilon", 1e-5, 1e-2)
        found = prove(some, question, "upper")
        assert found["remove"].upper.by == FOURIER
        assert found["remove"].lower.by == FOURIER
        assert len(calls) <= 3 * len(found)  # one a side, and one more turn


class TestLaws:
    def test_what_reveals_nothing_is_worth_nothing(self):
        none = Steps.of([Entry(release(1.0, PoissonSampling(0.0)), 5)], ADD)
        for question in (Question("epsilon", 0.0, 0.1), Question("delta", 0.0, 0.1)):
            for found in prove(none, question).values():
                assert found.upper.value == found.lower.value == 0

    def test_the_best_is_kept_with_its_name(self):
        one, two = Proof(1.0, "one"), Proof(2.0, "two")
        assert one.least(two) == two.least(one) == one
        assert one.greatest(two) == two.greatest(one) == two

    def test_renyi_is_asked_where_grids_are_too_coarse(self, monkeypatch):
        asked = []
        monkeypatch.setattr(
            provers.Renyi,
            "epsilon_above",
            lambda self, steps, way, delta: asked.append(way) or math.inf,
        )
        prove(steps((1.0, 0.01, 100)), Question("epsilon", 1e-5, 1e-3))
        assert not asked
        prove(steps((30.0, 0.2, 10**9)), Question("epsilon", 1e-5, 1e-3))
        # Here the grid has as many points as it may.
        assert set(asked) <= {"remove", "add"}

    @pytest.mark.parametrize("loss", [-50.0, -1e-9, 0.0, 1e-9, 0.9, 1.1, 699.0, 800.0])
    @pytest.mark.parametrize("rate", [1e-12, 0.3, 0.9999999, 1.0])
    def test_sampled_losses(self, loss, rate):
        found = provers.sampled(np.array([loss]), np.array([rate]))[0]
        with mp.workdps(400):
            true = mp.log(1 - mp.mpf(rate) + mp.mpf(rate) * mp.e ** mp.mpf(loss))
        assert found == pytest.approx(float(true), rel=1e-13, abs=0)
