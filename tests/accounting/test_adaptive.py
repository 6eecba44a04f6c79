"""Contract of privaudit.accounting.pld.adaptive: releases paid in units of one pair."""

import contextlib
import functools
import math
import threading

import numpy as np
import pytest
from dp_accounting import dp_event
from dp_accounting.pld import PLDAccountant
from hypothesis import given
from hypothesis import strategies as st
from scipy import signal, stats

import privaudit as pa
from privaudit.accounting.filters import BudgetExceeded, _composed, _Counted
from privaudit.accounting.pld.adaptive import Units
from privaudit.accounting.pld.cells import Step
from privaudit.accounting.pld.dots import GridMeasure
from privaudit.accounting.pld.steps import compose_steps
from privaudit.mechanisms import EpsilonDelta
from privaudit.release import NoSampling, PoissonSampling, Release, Sensitivity
from tests.tiers import examples


def release(noise, rate):
    sampling = NoSampling() if rate == 1 else PoissonSampling(rate)
    return Release.of_sum(norm_bound=1.0, noise_multiplier=noise, sampling=sampling)


@functools.cache
def budgets():
    typical = release(2.0, 0.01)
    return [pa.Budget(epsilon=3.0, delta=1e-5, typical=typical) for _ in range(2)]


def loss_law(noise, rate, spacing, way):
    """First index and masses of the loss, each put on two grid points, mean kept."""
    x = np.linspace(-9 * noise, 9 * noise + 1, 8_001)
    middle = (x[1:] + x[:-1]) / 2
    alone, moved = (np.diff(stats.norm.cdf((x - at) / noise)) for at in (0, 1))
    loss = np.log1p(rate * np.expm1((middle - 0.5) / noise**2))
    mass = (1 - rate) * alone + rate * moved
    if way == "add":
        loss, mass = -loss, alone
    index = np.floor(loss / spacing).astype(int)
    first, share = index.min(), loss / spacing - index
    masses = np.zeros(index.max() - first + 2)
    np.add.at(masses, index - first, mass * (1 - share))
    np.add.at(masses, index - first + 1, mass * share)
    return first, masses


def best_adversary(budget, releases, spacing, most, way):
    """What a choice of releases by all outcomes so far reaches: delta at the budget.

    By value iteration over all states that the filter can be in, up to the grid.
    """
    filter_ = budget._filter
    laws = [loss_law(r.noise, r.sampling.rate, spacing, way) for r in releases]
    n = int(most / spacing)
    epsilons = np.arange(-n, n + 1) * spacing
    stop = np.maximum(0.0, -np.expm1(epsilons))

    def before(law, value):
        first, masses = law
        pad = masses.size + abs(first)
        under = -np.expm1(epsilons[0] - spacing * np.arange(pad, 0, -1))
        whole = signal.fftconvolve(np.r_[under, value, np.zeros(pad)], masses)
        return whole[np.arange(value.size) + pad - first]

    known = {}

    def value(state):
        if state not in known:
            best = stop
            for one, law in zip(releases, laws, strict=True):
                after = filter_.after(state, one, 1)
                if after is not None:
                    best = np.maximum(best, before(law, value(after)))
            known[state] = best
        return known[state]

    return float(np.interp(budget.epsilon, epsilons, value(filter_.start)))


class TestSound:
    def test_what_is_lost_for_certain_is_paid(self):
        """A release with a delta of its own uses up what all units may lose."""
        units = Units(Step("gaussian", "poisson", 1.0, 0.01), 1.0, 1e-5)
        for delta in (1e-11, 1e-10):
            own = Release.of(EpsilonDelta(1e-4, delta))
            price = units.price(_composed(own, "add-or-remove-one"))
            assert price is not None
            whole = 14 * units.count / price  # so many of them are paid: 14 parts each
            assert whole * delta <= 0.1 * units.delta
        own = Release.of(EpsilonDelta(1e-4, 1e-8))
        assert units.price(_composed(own, "add-or-remove-one")) is None

    @pytest.mark.full
    @pytest.mark.parametrize(
        ("epsilon", "delta", "kinds", "way"),
        [
            (1.0, 1e-5, [(1.0, 0.01), (30.0, 1.0)], "remove"),
            (3.0, 1e-3, [(1.0, 0.05), (4.0, 1.0), (1.5, 0.05)], "remove"),
            (3.0, 1e-3, [(1.0, 0.05), (4.0, 1.0)], "add"),
        ],
    )
    def test_choosing_by_what_was_seen_gains_nothing(self, epsilon, delta, kinds, way):
        releases = [release(*one) for one in kinds]
        budget = pa.Budget(epsilon=epsilon, delta=delta, typical=releases[0])
        assert isinstance(budget._filter, _Counted)
        assert all(budget.room(one) >= 1 for one in releases)
        reached = best_adversary(budget, releases, 0.0025 * epsilon, 4 * epsilon, way)
        assert reached <= delta
        if way == "remove":
            assert reached >= 0.9 * delta  # the adversary is a good one

    @examples(4)
    @given(
        st.floats(0.8, 3.0),
        st.floats(0.02, 0.2),
        st.lists(
            st.tuples(st.floats(0.7, 8.0), st.sampled_from([0.02, 0.1, 0.3, 1.0])),
            min_size=1,
            max_size=2,
        ),
        st.sampled_from([1e-3, 1e-5]),
    )
    def test_no_choice_of_any_kinds_exceeds_it(self, noise, rate, kinds, delta):
        epsilon = 2.0
        typical = release(noise, rate)
        budget = pa.Budget(epsilon=epsilon, delta=delta, typical=typical)
        count = budget.room(typical)
        if not (isinstance(budget._filter, _Counted) and count <= 200):
            return
        releases = [typical, *(release(*one) for one in kinds)]
        spacing = min(0.01, rate / noise / 4)
        reached = best_adversary(budget, releases, spacing, 8.0, "remove")
        assert reached <= delta

    @given(st.floats(0.7, 4.0), st.floats(1e-3, 0.2))
    @examples(5)
    def test_what_is_no_more_private_is_not_a_unit(self, noise, rate):
        """A release of less noise, or a higher rate, is refused or costs more."""
        typical = release(2.0, 0.02)
        budget = pa.Budget(epsilon=1.0, delta=1e-5, typical=typical)
        other = release(noise, rate)
        room = budget.room(other)
        if room:
            fixed = compose_steps(noise, rate, room).epsilon(1e-5, 0.01)
            assert fixed.lower <= 1.0


class TestTight:
    @pytest.mark.sampled(2)
    @pytest.mark.parametrize(
        ("noise", "rate", "epsilon"),
        [(2.0, 0.01, 0.1), (1.0, 0.01, 0.3), (1.0, 0.01, 1.0), (2.0, 0.01, 1.0)],
    )
    def test_as_many_as_a_fixed_number(self, noise, rate, epsilon):
        """dp-accounting refuses 1.5 % more of them, or two more of a few."""
        units = Units(Step("gaussian", "poisson", 1 / noise, rate), epsilon, 1e-5)
        more = max(math.ceil(units.count * 1.015), units.count + 2)
        event = dp_event.PoissonSampledDpEvent(rate, dp_event.GaussianDpEvent(noise))
        accountant = PLDAccountant(value_discretization_interval=1e-4)
        accountant.compose(event, more)
        assert units.count >= 1
        assert accountant.get_delta(epsilon) > 1e-5

    def test_prices_follow_variances(self):
        """Beside many units a release costs little more than its variance's share."""
        units = Units(Step("gaussian", "poisson", 0.5, 0.01), 1.0, 1e-5)
        one = math.expm1(0.25) * 1e-4
        for noise, rate in ((3.0, 0.01), (2.0, 0.005), (4.0, 0.04), (30.0, 1.0)):
            share = math.expm1(noise**-2) * rate**2 / one
            price = units.price(compose_steps(noise, rate, 1))
            assert price is not None
            assert share <= price / 14 <= 1.5 * share  # 14 parts for a unit

    def test_half_the_noise_of_a_rare_release_has_no_price(self):
        units = Units(Step("gaussian", "poisson", 1.0, 0.01), 1.0, 1e-5)
        assert units.price(compose_steps(0.5, 0.01, 1)) is None


class TestLaws:
    def test_what_is_left_when_only_units_are_paid(self):
        typical, light = release(2.0, 0.01), release(6.0, 0.01)
        budget = pa.Budget(epsilon=1.0, delta=1e-5, typical=typical)
        whole, many = budget.room(typical), budget.room(light)
        assert many > 3 * whole
        budget.spend(light, many)
        assert budget.room(light) == budget.room(release(30.0, 1.0)) == 0
        with pytest.raises(pa.BudgetExceeded, match="none still fit"):
            budget.spend(light)
        assert budget.spent == pytest.approx(1)

    @given(st.lists(st.integers(1, 300), min_size=2, max_size=8))
    @examples(20)
    def test_one_by_one_or_together(self, counts):
        typical, light = release(2.0, 0.01), release(6.0, 0.01)
        parts, whole = budgets()
        start = whole._filter.start
        parts._state = whole._state = start
        for count in counts:
            parts.spend(light, count)
        whole.spend(light, sum(counts))
        assert parts._state == whole._state
        assert parts.room(typical) == whole.room(typical)
        assert parts.spent == whole.spent

    def test_losses_out_of_range_are_not_seen(self):
        """Their weights would be infinite, whichever end they are at."""
        for view in budgets()[0]._filter.units._views.values():
            far = math.ceil(600 / (view.tilt + view.slope) / view.grid.spacing)
            for start in (0, -far - 9):
                mass = np.full(far + 9, 1 / (far + 9))
                assert view.seen(GridMeasure(start, mass, 0.0, 0.0)) is None

    @pytest.mark.parametrize("relation", ["add-or-remove-one", "replace-one"])
    def test_relations(self, relation):
        typical = release(4.0, 0.01)
        budget = pa.Budget(epsilon=1.0, delta=1e-5, typical=typical, relation=relation)
        assert isinstance(budget._filter, _Counted)
        count = budget.room(typical)
        account = pa.Certificate.of(pa.Ledger.of(typical, count), relation)
        assert account.meets(1.0, 1e-5)
        more = pa.Certificate.of(
            pa.Ledger.of(typical, math.ceil(1.02 * count)), relation
        )
        assert not more.meets(1.0, 1e-5)


def test_two_threads_do_not_spend_the_same(monkeypatch):
    asked = {"epsilon": 1.0, "delta": 1e-5, "typical": release(2.0, 0.01)}
    budget, others = pa.Budget(**asked), [release(3.0, 0.01), release(4.0, 0.04)]
    counts = [int(0.9 * pa.Budget(**asked).room(one)) for one in others]
    both = threading.Barrier(2, timeout=0.3)  # met by spends that overlap alone
    price = Units.price

    def slow(units, one):
        with contextlib.suppress(threading.BrokenBarrierError):
            both.wait()
        return price(units, one)

    monkeypatch.setattr(Units, "price", slow)
    refused = []

    def spend(one, count):
        try:
            budget.spend(one, count)
        except BudgetExceeded:
            refused.append(one)

    threads = [
        threading.Thread(target=spend, args=each)
        for each in zip(others, counts, strict=True)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(refused) == 1


def test_what_is_next_to_nothing_is_answered():
    budget = pa.Budget(epsilon=1.0, delta=1e-5, typical=release(2.0, 0.01))
    little = Sensitivity(add_or_remove_one=1e-100, replace_one=1e-100)
    tiny = Release(
        mechanism="gaussian",
        norm_bound=1.0,
        noise=1e300,
        sensitivity=little,
        sampling=NoSampling(),
    )
    assert budget.room(tiny) >= 0


@pytest.mark.parametrize("count", [0, -1, 1.5, math.nan, math.inf, "3"])
def test_counts_are_whole(count):
    budget = pa.Budget(epsilon=1.0, delta=1e-5)
    with pytest.raises(ValueError, match="count must be a whole number"):
        budget.spend(release(2.0, 0.01), count)
