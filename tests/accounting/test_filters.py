"""Contract of privaudit.accounting.filters: budgets of releases chosen as one goes."""

import contextlib
import copy
import math
import os
import pickle

import mpmath
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import privaudit as pa
from privaudit.accounting import Certificate, filters, gdp
from privaudit.accounting.filters import Budget, BudgetExceeded
from privaudit.ledger import Entry, Ledger
from privaudit.mechanisms import DiscreteGaussian, EpsilonDelta
from privaudit.release import (
    NoSampling,
    PoissonSampling,
    Release,
    SamplingWithoutReplacement,
)
from tests.accounting import reference_gdp as reference
from tests.tiers import examples, size


def release(noise, rate=1.0, mechanism="gaussian"):
    sampling = NoSampling() if rate == 1 else PoissonSampling(rate)
    return Release.of_sum(
        norm_bound=1.0, noise_multiplier=noise, sampling=sampling, mechanism=mechanism
    )


def guarantee(epsilon, delta):
    return Release.of(EpsilonDelta(epsilon, delta))


noises = st.floats(-0.5, 2.0).map(lambda x: 10**x)
rates = st.sampled_from([1.0, 1.0, 0.3, 0.02])
kinds = st.sampled_from(["gaussian", "gaussian", "gaussian", "laplace"])
wishes = st.lists(
    st.tuples(st.builds(release, noises, rates, kinds), st.integers(1, 40)),
    min_size=1,
    max_size=6,
)


def all_that_fits(budget, wanted):
    """What a greedy adversary gets: of each wish as much as the budget lets it."""
    got = []
    for one, count in wanted:
        for number in (count, max(1, int(min(budget.room(one), 10**6)))):
            with contextlib.suppress(BudgetExceeded):
                budget.spend(one, number)
                got.append(Entry(one, number))
    return tuple(got)


class TestSound:
    @examples(60)
    @given(wishes, st.floats(-1, 1), st.sampled_from([1e-2, 1e-6]))
    def test_no_greedy_adversary_exceeds_it(self, wanted, log_epsilon, delta):
        budget = Budget(epsilon=10**log_epsilon, delta=delta)
        got = all_that_fits(budget, wanted)
        # Fixed parameters are one of the strategies that the filter has to withstand.
        truth = Certificate.of(Ledger(nodes=(got,))).epsilon(delta, 0.05)
        assert truth.lower <= budget.epsilon

    @pytest.mark.sized
    @examples(20)
    @given(
        st.lists(
            st.tuples(
                st.builds(
                    release,
                    st.one_of(noises, st.sampled_from([0.0, 1e-3, 0.05, 1e3, 1e6])),
                    st.sampled_from([1.0, 0.5, 1e-3, 1e-6]),
                    kinds,
                ),
                st.sampled_from([1, 7, size(10_000, 100)]),
            ),
            min_size=2,
            max_size=6,
        ),
        st.sampled_from([(10.0, 1.0), (1.0, 0.01), (0.3, 1.0), (1e4, 1.0)]),
        st.floats(-2, 1.3),
        st.sampled_from([1e-2, 1e-9]),
    )
    def test_no_extreme_adversary_exceeds_any_filter(
        self, wanted, typical, log_epsilon, delta
    ):
        """No noise, next to none, and huge: under the filter of any typical release."""
        epsilon = 10**log_epsilon
        budget = Budget(epsilon=epsilon, delta=delta, typical=release(*typical))
        got = all_that_fits(budget, wanted)
        assert all(entry.release.is_private for entry in got)
        truth = Certificate.of(Ledger(nodes=(got,))).epsilon(delta, 0.05)
        assert truth.lower <= epsilon
        assert budget.spent <= 1

    @examples(40)
    @given(st.lists(noises, min_size=1, max_size=8), st.floats(-1, 1))
    def test_no_gaussian_adversary_exceeds_it(self, wanted, log_epsilon):
        budget = Budget(epsilon=10**log_epsilon, delta=1e-5)
        got = all_that_fits(budget, [(release(noise), 3) for noise in wanted])
        square = mpmath.fsum(e.count / mpmath.mpf(e.release.noise) ** 2 for e in got)
        delta = reference.delta(mpmath.sqrt(square), budget.epsilon) if got else 0
        assert delta <= 1e-5

    @pytest.mark.parametrize("epsilon", [0.25, 1.0])
    def test_an_adversary_who_sees_outcomes_gains_nothing(self, epsilon):
        """Two exact steps: the second as large as is left where that helps most."""
        delta = 0.05
        budget = Budget(epsilon=epsilon, delta=delta)
        whole = float(gdp.mu(epsilon, delta))
        first = release(1 / (0.6 * whole))
        budget.spend(first)
        room = 1 / math.sqrt(budget.left * whole**2)
        budget.spend(release(room * (1 + 1e-9)))
        assert budget.left < 1e-8
        # Of any second choice by the first loss, the best is to spend all or nothing.
        x, w = np.polynomial.hermite_e.hermegauss(200)
        mu1, mu2 = 1 / first.noise, 1 / room
        loss = mu1 * x + mu1**2 / 2  # under P
        rest = [float(reference_delta(mu2, epsilon - one)) for one in loss]
        stop = np.maximum(0.0, -np.expm1(epsilon - loss))
        found = float(np.maximum(rest, stop) @ w) / math.sqrt(2 * math.pi)
        assert found == pytest.approx(delta, rel=1e-3)  # no more, and no less

    def test_stopping_by_the_outcome_gains_nothing(self):
        """Simulated: go on in small steps until it pays, within a sampled budget."""
        rng = np.random.default_rng(20)
        epsilon, delta, rate, noise = 1.0, 0.02, 0.2, 2.0
        step = release(noise, rate)
        steps = Budget(epsilon=epsilon, delta=delta).room(step)
        assert steps > 5
        loss, runs = np.zeros(100_000), 100_000
        for _ in range(steps):
            on = loss < 1.2 * epsilon  # a stopping rule of the adversary's
            seen = (rng.random(runs) < rate) + noise * rng.standard_normal(runs)
            with np.errstate(over="ignore"):
                ratio = (1 - rate) + rate * np.exp((seen - 0.5) / noise**2)
            loss += np.where(on, np.log(ratio), 0.0)
        gain = np.maximum(0.0, -np.expm1(epsilon - loss))
        assert gain.mean() - 4 * gain.std() / math.sqrt(runs) <= delta

    @pytest.mark.parametrize("mechanism", ["gaussian", "laplace"])
    def test_other_releases_pay_for_a_gaussian_budget(self, mechanism):
        budget = Budget(epsilon=2.0, delta=1e-3, typical=release(1.0))
        other = release(3.0, 0.5 if mechanism == "gaussian" else 1.0, mechanism)
        count = budget.room(other)
        truth = Certificate.of(Ledger.of(other, count)).epsilon(1e-3, 0.01)
        assert count >= 1
        assert truth.lower <= 2.0

    @examples(20)
    @given(
        st.lists(
            st.tuples(st.sampled_from([0.1, 0.25, 0.4]), st.integers(0, 50)),
            min_size=1,
            max_size=3,
        )
    )
    @example([(0.25, 25)])
    @example([(0.1, 50)])
    def test_the_exact_game_with_guarantees(self, menu):
        """An adversary who picks the next of their worst pairs by the outcomes."""
        budget = Budget(epsilon=1.0, delta=1e-5, typical=guarantee(0.1, 1e-6))
        chosen, known = budget._filter, {}

        def value(state, loss, left):  # H at exp(1 - loss) of what is still to come
            key = state, round(loss, 9), left
            if key not in known:
                best = max(0.0, -math.expm1(1 - loss))
                for e, parts in menu if left else ():
                    delta = parts * 1e-7
                    after = chosen.after(state, guarantee(e, delta), 1)
                    if after is not None:
                        up = (1 - delta) / (1 + math.exp(-e))
                        ends = ((up, e), (1 - delta - up, -e))
                        best = max(
                            best,
                            delta
                            + sum(
                                p * value(after, loss + x, left - 1) for p, x in ends
                            ),
                        )
                known[key] = best
            return known[key]

        assert value(chosen.start, 0.0, 6) <= 1e-5 * (1 + 1e-9)
        if menu == [(0.25, 25)]:  # four of them
            assert value(chosen.start, 0.0, 6) >= 0.99e-5

    def test_guarantees_and_all_else_in_one_budget(self):
        budget = Budget(epsilon=1.0, delta=1.6e-5)
        got = [
            guarantee(0.1, 1e-6),
            release(20.0),
            release(2.0, 0.01),
            release(20.0, 1.0, "laplace"),
            Release.of(DiscreteGaussian(20.0, 1)),
            guarantee(0.05, 2e-6),
        ]
        for one in got:
            budget.spend(one)
        entries = tuple(Entry(one, 1) for one in got)
        found = Certificate.of(Ledger(nodes=(entries,))).delta(1.0)
        assert 0 < found.lower <= found.upper <= 1.6e-5
        # .15 of guarantees, .05 of Laplace noise, and three at a sixteenth of delta.
        three = [
            Certificate.of(Ledger.of(got[i], 1)).epsilon(1e-6).upper for i in (1, 2, 4)
        ]
        assert budget.left == pytest.approx(1 - (0.15 + 0.05 + sum(three)), rel=1e-6)
        with pytest.raises(BudgetExceeded):
            budget.spend(guarantee(0.01, 1.1e-5))
        assert budget.room(guarantee(0.01, 9.9e-6)) == 1

    def test_after_guarantees_a_number_that_fits_into_what_is_left_is_the_last(self):
        parts, one = guarantee(0.1, 1e-6), release(20.0)
        budget = Budget(epsilon=1.0, delta=1e-5, typical=parts)
        budget.spend(parts)
        budget.spend(parts)
        room = budget.room(one)
        least = 1 - (1 - 1e-5) / (1 - 1e-6) ** 2  # of delta is left
        apart = [float(gdp.delta(math.sqrt(n) / 20, 0.8)) for n in (room, room + 1)]
        assert apart[0] <= least < apart[1]
        with pytest.raises(BudgetExceeded):
            budget.spend(one, room + 1)
        budget.spend(one, room)
        assert budget.room(guarantee(1e-6, 0.0)) == 0

    def test_tenths_fill_one(self):
        """As doubles they are above it, by less than basic composition loses."""
        parts = guarantee(0.1, 1e-6)
        budget = Budget(epsilon=1.0, delta=1e-5, typical=parts)
        for _ in range(9):
            budget.spend(parts)
        with pytest.raises(BudgetExceeded):
            budget.spend(guarantee(0.1 + 1e-9, 1e-6))
        budget.spend(parts)
        assert budget.left == 0

    def test_a_pure_loss_as_gaussian(self):
        """mu of e-DP: no test of randomised response is better than one of mu-GDP."""
        for noise in (0.05, 0.5, 1.0, 3.0, 1e4):
            budget = Budget(epsilon=1.0, delta=1e-5, typical=release(1.0))
            assert budget._filter is not None
            mu = math.sqrt(budget._filter.cost(release(noise, mechanism="laplace")))
            with mpmath.workdps(40):
                pure = 1 / mpmath.mpf(noise)
                half = mpmath.sqrt(2) * mpmath.erfinv(mpmath.tanh(pure / 2))
                assert 1 <= mpmath.mpf(mu) / (2 * half) <= 1 + 1e-8

    def test_nothing_is_changed_for_units_of_the_reserve(self):
        """What the proof asks for: they are left when anything but units is paid."""
        step, other = release(2.0, 0.01), release(8.0, 0.1)
        budget = Budget(epsilon=2.0, delta=1e-5, typical=step)
        units = budget._filter.units
        assert 0 < units.reserve < units.count
        budget.spend(step, units.count - units.reserve - 20)
        room = budget.room(other)
        assert room >= 1
        budget.spend(other, room)
        assert units.reserve <= budget._state[0] < units.reserve + 20
        assert budget._state[1] >= 0
        with pytest.raises(BudgetExceeded):
            budget.spend(other)
        budget.spend(step, budget._state[0])  # the reserve itself is there for these
        assert budget.room(step) == 0

    @pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, pickle.dumps])
    def test_there_is_one_of_it(self, copied):
        with pytest.raises(TypeError, match="neither pickled nor copied"):
            copied(Budget(epsilon=1.0, delta=1e-5))

    def test_another_process_does_not_spend_it(self, monkeypatch):
        budget = Budget(epsilon=1.0, delta=1e-5)
        monkeypatch.setattr(os, "getpid", lambda: -1)
        with pytest.raises(ValueError, match="made in another process"):
            budget.spend(release(20.0))
        assert budget.spent == 0

    def test_the_odometer_holds_at_all_times(self):
        """Read at the worst moment of each run, it is exceeded by delta of them."""
        rng = np.random.default_rng(0)
        budget = Budget(epsilon=3.0, delta=0.1)
        loss, worst = np.zeros(20_000), np.full(20_000, -np.inf)
        for noise in (3.0, 2.0, 5.0, 4.0, 10.0, 3.0):
            budget.spend(release(noise))
            loss += rng.standard_normal(20_000) / noise + 0.5 / noise**2
            worst = np.maximum(worst, loss - budget.odometer)
        assert (worst > 0).mean() <= 0.1

    @pytest.mark.parametrize("delta", [0.1, 1e-6])
    def test_the_odometer_splits_delta_among_its_orders(self, delta):
        """Closed form, of rho a: each order may fail with its share of delta."""
        budget, rho = Budget(epsilon=50.0, delta=delta), 0.0
        for noise in (3.0, 0.7, 12.0):
            budget.spend(release(noise))
            rho += 0.5 / noise**2
            each = math.log(len(filters._ORDERS) / delta)
            truth = min(rho * a + each / (a - 1) for a in filters._ORDERS)
            assert truth * (1 - 1e-12) <= budget.odometer <= truth * (1 + 1e-9)

    def test_a_unit_covers_what_costs_no_more_and_nothing_else(self):
        """Less noise, a higher rate, another law or sampling needs more."""
        counted = Budget(epsilon=2.0, delta=1e-5, typical=release(2.0, 0.01))._filter
        assert counted._is_covered(release(2.0, 0.01))
        assert counted._is_covered(release(2.5, 0.01))
        assert counted._is_covered(release(2.0, 0.009))
        gaussian = Budget(epsilon=1.0, delta=1e-5, typical=release(1.0))._filter
        assert gaussian.cost(release(1e200)) > 0  # its square is no double
        for other in (
            release(1.9, 0.01),
            release(2.0, 0.011),
            release(2.5, 1.0),
            release(9.0, 0.001, "laplace"),
            release(0.0, 0.001),
        ):
            assert not counted._is_covered(other)

    def test_the_odometer_is_never_below_the_account(self):
        budget = Budget(epsilon=5.0, delta=1e-5, typical=release(2.0, 0.05))
        for one, count in ((release(4.0), 3), (release(2.0, 0.05), 50)):
            budget.spend(one, count)
        got = tuple(Entry(one, n) for one, n in budget._releases.items())
        account = Certificate.of(Ledger(nodes=(got,))).epsilon(1e-5)
        assert account.upper <= budget.odometer


def reference_delta(mu, epsilon):
    """delta of mu-GDP at any epsilon, also below 0."""
    with mpmath.workdps(30):
        m, e = mpmath.mpf(mu), mpmath.mpf(epsilon)
        return mpmath.ncdf(m / 2 - e / m) - mpmath.exp(e) * mpmath.ncdf(-m / 2 - e / m)


class TestTight:
    def test_gaussian_releases_lose_nothing(self):
        budget = Budget(epsilon=1.0, delta=1e-5)
        one = release(100.0)
        account = Certificate.of(Ledger.of(one, budget.room(one) + 1))
        assert account.epsilon(1e-5).lower > 1.0

    @pytest.mark.parametrize(
        ("noise", "rate", "share"), [(2.0, 0.01, 0.7), (4.0, 0.04, 0.75)]
    )
    def test_sampled_releases_get_most_of_what_a_fixed_number_would(
        self, noise, rate, share
    ):
        one = release(noise, rate)
        fixed = 1
        while Certificate.of(Ledger.of(one, 2 * fixed)).meets(2.0, 1e-5):
            fixed *= 2
        room = Budget(epsilon=2.0, delta=1e-5).room(one)
        assert not Certificate.of(Ledger.of(one, math.ceil(room / share))).meets(
            2.0, 1e-5
        )
        assert room >= share * fixed

    def test_a_typical_release_makes_room(self):
        step = release(4.0, 0.04)
        poor = Budget(epsilon=1.0, delta=1e-5)
        poor.spend(release(30.0))
        good = Budget(epsilon=1.0, delta=1e-5, typical=step)
        good.spend(release(30.0))
        assert good.room(step) > 20 * max(1, poor.room(step))

    def test_laplace_noise_at_delta_zero_adds_up(self):
        budget = Budget(epsilon=1.0, delta=0.0)
        one = release(8.0, mechanism="laplace")
        budget.spend(one, 7)
        assert budget.room(one) in (0, 1)  # the eighth is a matter of rounding
        assert budget.odometer == pytest.approx(7 / 8)


class TestLaws:
    def test_a_refusal_charges_nothing(self):
        budget = pa.Budget(epsilon=1.0, delta=1e-5)
        budget.spend(release(20.0), 5)
        before = budget.spent, budget.odometer
        with pytest.raises(pa.BudgetExceeded, match="under add-or-remove-one"):
            budget.spend(release(1.0))
        assert (budget.spent, budget.odometer) == before
        budget.spend(release(20.0), budget.room(release(20.0)))
        with pytest.raises(BudgetExceeded, match="none still fit"):
            budget.spend(release(20.0))

    @pytest.mark.parametrize("typical", [None, release(8.0), release(2.0, 0.01)])
    @pytest.mark.parametrize(
        "one",
        [
            release(4.0, 0.3),
            release(1.9, 1.0, "laplace"),
            Release.of(EpsilonDelta(0.9, 9e-6)),
            Release.of(DiscreteGaussian(6.0, 1)),
        ],
    )
    def test_what_fits_alone_is_never_refused_as_the_first(self, one, typical):
        budget = Budget(epsilon=1.0, delta=1e-5, typical=typical)
        nothing = release(1.0, 0.0)
        budget.spend(nothing)  # depends on no record
        some = budget.room(one)
        assert some >= 1
        budget.spend(one, some)
        if one.mechanism == "epsilon-delta":
            assert some == 1  # twice that is (1.8, 1.8e-5)
        else:
            assert Certificate.of(Ledger.of(one, some)).delta(1.0).upper <= 1e-5
        assert budget.room(one) == 0
        for more in (one, release(1e5)):
            if budget.spent == 1:
                with pytest.raises(BudgetExceeded):
                    budget.spend(more)
        budget.spend(nothing)

    def test_what_does_not_fit_alone_is_refused(self):
        one = release(3.0)  # epsilon 1.3 at that delta
        budget = Budget(epsilon=1.0, delta=1e-5, typical=release(2.0, 0.01))
        assert budget.room(one) == 0
        with pytest.raises(BudgetExceeded):
            budget.spend(one)
        assert budget.spent == 0
        fits = release(4.5, 0.9)
        assert budget.room(fits) == 1
        budget.spend(release(2.0, 0.01))  # an outcome may have been seen
        with pytest.raises(BudgetExceeded):
            budget.spend(fits)

    def test_whoever_is_refused_hears_what_decided(self):
        small, large = release(2.0, 0.01), release(0.5, 0.01)
        budget, told = (
            Budget(epsilon=1.0, delta=1e-5, typical=typical)
            for typical in (None, large)
        )
        assert "first release decides" in repr(budget)
        assert "chosen for the typical release" in repr(told)
        for one in (budget, told):
            one.spend(small)
        assert "chosen for the first release" in repr(budget)
        with pytest.raises(BudgetExceeded, match="first release decided"):
            budget.spend(large, 10**6)
        for one, what in ((budget, small), (told, large)):
            with pytest.raises(BudgetExceeded, match=r"still fit$"):
                one.spend(what, 10**9)

    @given(st.lists(st.integers(1, 50), min_size=1, max_size=10))
    def test_one_by_one_or_together(self, counts):
        one, total = release(30.0), sum(counts)
        parts, whole = (Budget(epsilon=3.0, delta=1e-5) for _ in range(2))
        for count in counts:
            parts.spend(one, count)
        whole.spend(one, total)
        assert parts.spent == whole.spent
        assert 0 <= parts.left <= 1
        assert parts.room(one) == whole.room(one)

    def test_replacing_a_record_costs_more(self):
        one = release(30.0)
        add, replace = (
            Budget(epsilon=1.0, delta=1e-5, relation=relation).room(one)
            for relation in ("add-or-remove-one", "replace-one")
        )
        assert replace == pytest.approx(add / 4, abs=1)

    @given(
        st.floats(0, 1e3) | st.sampled_from([1e-300, 1e-9, 1e15]),
        st.floats(0, 0.999) | st.sampled_from([1e-300, 1e-20, 1 - 2**-53]),
        st.builds(
            release,
            st.floats(1e-200, 1e200) | st.sampled_from([0.0, 5e-324, 1e-6, 1e308]),
            st.sampled_from([1.0, 0.1, 1e-9, 0.0]),
            kinds,
        ),
    )
    @examples(60)
    def test_never_nan(self, epsilon, delta, one):
        budget = Budget(epsilon=epsilon, delta=delta)
        with contextlib.suppress(BudgetExceeded):
            budget.spend(one)
        assert 0 <= budget.spent <= 1
        assert budget.odometer >= 0
        assert budget.room(one) >= 0
        assert "nan" not in repr(budget)

    def test_an_epsilon_next_to_the_largest_double(self):
        assert Budget(epsilon=1.7e308, delta=0.999).room(release(1e-100)) > 0

    def test_no_noise_never_fits(self):
        budget = Budget(epsilon=100.0, delta=0.5)
        assert budget.room(release(0.0)) == 0
        with pytest.raises(BudgetExceeded):
            budget.spend(release(0.0))

    def test_arguments(self):
        for wrong in (
            {"epsilon": -1.0},
            {"epsilon": math.nan},
            {"epsilon": math.inf},
            {"delta": 1.0},
            {"delta": math.nan},
            {"relation": "swap"},
            {"typical": 3},
        ):
            with pytest.raises(ValueError, match=r"budget|relation|typical must be"):
                Budget(**{"epsilon": 1.0, "delta": 1e-5, **wrong})
        budget = Budget(epsilon=1.0, delta=1e-5)
        for count in (0, 1.5, math.nan):
            with pytest.raises(ValueError, match="count"):
                budget.spend(release(9.0), count)
        with pytest.raises(ValueError, match=r"privaudit\.Release"):
            budget.spend(1.0)
        fixed = Release.of_sum(
            norm_bound=1.0,
            noise_multiplier=9.0,
            sampling=SamplingWithoutReplacement(1, 9),
        )
        with pytest.raises(ValueError, match="no sensitivity under add-or-remove"):
            budget.spend(fixed)
