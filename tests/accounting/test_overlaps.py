"""Releases of records that several nodes hold."""

from __future__ import annotations

import itertools
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from privaudit.accounting import Certificate, account_nodes, gdp
from privaudit.accounting.overlaps import together
from privaudit.accounting.tuning import repeat_and_select
from privaudit.accounting.views import observed
from privaudit.ledger import Entry, Ledger
from privaudit.release import NoSampling, PoissonSampling, Release

DELTA = 1e-5


# Samplings of equal rates, that differ in all else.
KINDS = [
    NoSampling(),
    *(PoissonSampling(rate) for rate in (0.1, 0.5, 1.0)),
    *(PoissonSampling(rate, 5) for rate in (0.1, 0.5, 1.0)),
    *(PoissonSampling(rate, 5, (0.5,)) for rate in (0.1, 1.0)),
    *(PoissonSampling(rate, 5, (0.5, 0.2)) for rate in (0.1, 1.0)),
    *(PoissonSampling(rate, 20, (0.5,)) for rate in (0.1, 1.0)),
    *(PoissonSampling(1.0, parts, secret=True) for parts in (5, 20)),
]


def gaussian(noise, rate=None):
    sampling = PoissonSampling(rate) if isinstance(rate, float) else rate
    sampling = NoSampling() if rate is None else sampling
    return Release.of_sum(norm_bound=1.0, noise_multiplier=noise, sampling=sampling)


def network(*nodes, overlap):
    return Ledger(nodes=tuple((entry,) for entry in nodes), overlap=overlap)


def true_epsilon(noises):
    """In closed form: one release of each, with these noise multipliers."""
    mu = math.sqrt(math.fsum(noise**-2 for noise in noises))
    return float(gdp.epsilon(mu, DELTA))


class TestSound:
    """No account of a ledger forgets that a record may be at several nodes."""

    @given(
        st.lists(st.floats(2, 20), min_size=2, max_size=5),
        st.integers(2, 5),
        st.data(),
    )
    def test_each_nodes_bound_is_of_the_worst_that_hold_its_records(
        self, noises, overlap, data
    ):
        overlap = min(overlap, len(noises))
        ledger = network(*(Entry(gaussian(z)) for z in noises), overlap=overlap)
        bounds = account_nodes(ledger, DELTA)
        node = data.draw(st.integers(0, len(noises) - 1))
        others = [z for index, z in enumerate(noises) if index != node]
        true = max(
            true_epsilon([noises[node], *some])
            for some in itertools.combinations(others, overlap - 1)
        )
        assert bounds[node].epsilon == pytest.approx(true, rel=1e-9)
        assert bounds[node].overlap == overlap
        assert f"a record may be at {overlap} nodes" in str(bounds[node])
        whole = Certificate.of(ledger).epsilon(DELTA)
        assert whole.upper == pytest.approx(max(one.epsilon for one in bounds))
        assert whole.overlap == overlap

    @pytest.mark.full
    @given(
        st.lists(st.floats(0.01, 0.9), min_size=2, max_size=4),
        st.integers(2, 3),
    )
    def test_leaving_out_lower_rates_loses_nothing(self, rates, overlap):
        """As many nodes as there are: against all ways to choose, one by one."""
        overlap = min(overlap, len(rates))
        nodes = [Entry(gaussian(1.5, rate), 3) for rate in rates]
        found = Certificate.of(network(*nodes, overlap=overlap)).epsilon(DELTA)
        for some in itertools.combinations(nodes, overlap):
            alone = Certificate.of(Ledger(nodes=(tuple(some),))).epsilon(DELTA)
            assert alone.lower <= found.upper * (1 + 1e-9)

    @settings(max_examples=12)
    @given(st.lists(st.sampled_from(KINDS), min_size=2, max_size=4))
    def test_none_that_may_be_the_worst_is_left_out(self, kinds):
        """Whatever nodes differ in: against each two of them by themselves."""
        nodes = [Entry(gaussian(2.0, how), 2) for how in kinds]
        ledger = network(*nodes, overlap=2)
        found = Certificate.of(ledger).epsilon(DELTA, 0.01, "upper").upper
        for two in itertools.combinations(nodes, 2):
            alone = Certificate.of(Ledger(nodes=(two,)))
            lower = alone.epsilon(DELTA, 0.01, "lower").lower
            assert lower <= found * (1 + 1e-9)

    def test_of_fewer_nodes_than_hold_a_record_others_are_alike(self):
        """As of one party, whose users may be at others."""
        ledger = network(Entry(gaussian(3.0)), overlap=3)
        found = Certificate.of(ledger).epsilon(DELTA)
        assert found.upper == pytest.approx(true_epsilon([3.0] * 3))

    @pytest.mark.parametrize("sides", ["both", "lower", "upper"])
    def test_from_below_others_may_release_nothing(self, sides):
        entries = Entry(gaussian(3.0)), Entry(gaussian(2.0))
        certificate = Certificate.of(network(*entries, overlap=4))
        lower = certificate.epsilon(DELTA, sides=sides).lower
        true = true_epsilon([3.0, 2.0])
        assert lower <= true * (1 + 1e-9)
        assert sides == "upper" or lower == pytest.approx(true, rel=1e-3)

    def test_what_has_no_word_for_it_refuses(self):
        ledger = network(Entry(gaussian(3.0)), Entry(gaussian(3.0)), overlap=2)
        with pytest.raises(ValueError, match="at how many nodes a record may be"):
            ledger.to_event(0)
        with pytest.raises(ValueError, match="tuning is charged for records at one"):
            repeat_and_select(ledger, tries=3)
        with pytest.raises(ValueError, match="leave overlap at 1"):
            observed(ledger, "1")
        with pytest.raises(ValueError, match="leave overlap or group at 1"):
            Certificate.of(ledger, group=2)
        with pytest.raises(ValueError, match=r"overlap.* must be in \[1, 1000\]"):
            network(Entry(gaussian(3.0)), overlap=0)


class TestTight:
    def test_nodes_of_other_rates_need_no_combinations(self):
        nodes = [(Entry(gaussian(1.5, rate / 100), 3),) for rate in range(1, 80)]
        (worst,) = together(nodes, 3)
        assert set(worst) == {*nodes[76], *nodes[77], *nodes[78]}
        (held,) = together(nodes, 2, node=0)
        assert set(held) == {*nodes[0], *nodes[78]}


class TestLaws:
    @pytest.mark.parametrize("overlap", [1, 2])
    @pytest.mark.parametrize("index", [-1, 2])
    def test_nodes_that_are_none(self, index, overlap):
        ledger = network(Entry(gaussian(2.0)), Entry(gaussian(3.0)), overlap=overlap)
        with pytest.raises(ValueError, match="numbered from 0 to 1"):
            Certificate.of(ledger, "replace-one").held_by(index)

    def test_ledgers_keep_it(self):
        ledger = network(Entry(gaussian(3.0)), Entry(gaussian(2.0)), overlap=2)
        assert Ledger.from_json(ledger.to_json()) == ledger
        assert ledger.version == 6
        assert Ledger.joined(ledger.apart()) == ledger
        once = Ledger(nodes=ledger.nodes)
        assert Ledger.composed([ledger, once]).most_nodes == 2
        assert Ledger.joined([once, once]).overlap is once.overlap
        assert once.version == 1

    def test_a_larger_one_can_be_asked_for(self):
        nodes = [Entry(gaussian(z)) for z in (2.0, 3.0, 4.0)]
        ledger = network(*nodes, overlap=2)
        assert Certificate.of(ledger, overlap=1).overlap == 2
        assert Certificate.of(ledger, overlap=3).overlap == 3
