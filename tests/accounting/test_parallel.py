"""Contract of privaudit.accounting.parallel: one record, one release of a pass."""

import math

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET

from privaudit.accounting import METHODS, Certificate, account, gdp, noise_multiplier
from privaudit.accounting.parallel import views
from privaudit.accounting.pld import compose_entries
from privaudit.accounting.rdp import rdp_epsilon
from privaudit.ledger import Entry, Ledger, Recorder
from privaudit.mechanisms import EpsilonDelta
from privaudit.release import (
    NoSampling,
    PoissonSampling,
    Release,
    SamplingWithoutReplacement,
    Sensitivity,
)
from tests.tiers import examples

DELTA = 1e-5
RELATIONS = ["add-or-remove-one", "replace-one"]


def gaussian(z, bound=1.0, sampling=None):
    return Release.of_sum(
        norm_bound=bound, noise_multiplier=z, sampling=sampling or NoSampling()
    )


multipliers = st.floats(0.5, 50)
unsampled = st.builds(gaussian, multipliers, st.floats(0.1, 10))
pass_entries = st.lists(
    st.builds(Entry, unsampled, st.integers(1, 3), st.integers(0, 2)),
    min_size=1,
    max_size=6,
).map(tuple)
shared_entries = st.lists(
    st.builds(Entry, unsampled, st.integers(1, 3)), max_size=2
).map(tuple)


def epsilon(entries, relation, method="gdp"):
    return account(Ledger(nodes=(tuple(entries),)), DELTA, relation, method).epsilon


def exactly(mu):
    return float(gdp.epsilon(mu, DELTA))


def in_sequence(entries):
    return tuple(Entry(entry.release, entry.count) for entry in entries)


class TestSound:
    @given(shared_entries, pass_entries, st.sampled_from(RELATIONS))
    def test_never_below_any_part(self, shared, parts, relation):
        together = epsilon(shared + parts, relation)
        for entry in parts:
            alone = epsilon((*shared, Entry(entry.release)), relation)
            assert together >= alone * (1 - 1e-9)

    @given(shared_entries, pass_entries, st.sampled_from(RELATIONS))
    def test_every_choice_of_one_a_pass_is_covered(self, shared, parts, relation):
        # The record that is in the last release of every pass, say.
        last = {entry.disjoint: entry for entry in parts}.values()
        choice = (*shared, *(Entry(entry.release) for entry in last))
        assert epsilon(shared + parts, relation) >= epsilon(choice, relation) * (
            1 - 1e-9
        )

    @examples(30)
    @given(
        st.lists(
            st.builds(
                gaussian,
                st.floats(1, 5),
                st.just(1.0),
                st.builds(PoissonSampling, st.floats(0.05, 0.5)),
            ),
            min_size=2,
            max_size=3,
        )
    )
    def test_sampled_releases_of_a_pass_are_all_tried(self, releases):
        entries = tuple(Entry(release, 2, 0) for release in releases)
        worst = max(
            epsilon((Entry(release),), "add-or-remove-one", "rdp")
            for release in releases
        )
        found = epsilon(entries, "add-or-remove-one", "rdp")
        assert found == pytest.approx(worst, rel=1e-12)

    @pytest.mark.parametrize("order", [1, -1])
    @pytest.mark.parametrize("relation", RELATIONS)
    def test_the_worst_way_counts_wherever_it_stands(self, order, relation):
        """Kinds that are not compared beforehand: each is a way, in any order."""
        weak = Release.of_sum(
            norm_bound=1.0,
            noise_multiplier=90.0,
            sampling=NoSampling(),
            mechanism="laplace",
        )
        sampled = gaussian(60.0, sampling=PoissonSampling(0.5))
        kinds = [gaussian(1.0), sampled, weak][::order]
        together = Certificate.of(
            Ledger(nodes=(tuple(Entry(one, 1, 0) for one in kinds),)), relation
        )
        alone = Certificate.of(Ledger.of(gaussian(1.0)), relation)
        for found, wanted in (
            (together.epsilon(DELTA).upper, alone.epsilon(DELTA).lower),
            (together.delta(1.0).upper, alone.delta(1.0).lower),
            (together.upper_by(rdp_epsilon, DELTA), alone.epsilon(DELTA).lower),
        ):
            assert wanted <= found <= wanted * 1.3

    def test_one_release_without_noise_is_enough(self):
        entries = (Entry(gaussian(2.0), 5, 0), Entry(gaussian(0.0), 1, 0))
        for method in METHODS:
            assert epsilon(entries, "replace-one", method) == math.inf

    def test_batches_of_fixed_size_have_no_add_or_remove(self):
        release = msgspec.structs.replace(
            gaussian(2.0), sampling=SamplingWithoutReplacement(5, 100)
        )
        fixed = Release.of_sum(
            norm_bound=1.0, noise_multiplier=2.0, sampling=release.sampling
        )
        with pytest.raises(ValueError, match="account it under replace-one"):
            epsilon((Entry(fixed, 3, 0),), "add-or-remove-one", "rdp")

    def test_what_cannot_be_gone_through_is_refused(self):
        entries = tuple(
            Entry(gaussian(1 + rate, sampling=PoissonSampling(rate)), 1, number)
            for number in range(5)
            for rate in (0.1, 0.2, 0.3, 0.4)
        )
        with pytest.raises(ValueError, match="more than 256 ways"):
            epsilon(entries, "add-or-remove-one", "rdp")

    def test_what_composes_in_sequence_refuses_a_pass(self):
        with pytest.raises(ValueError, match="disjoint records do not add up"):
            compose_entries([Entry(gaussian(2.0), 3, 0)], "replace-one")

    def test_parts_dealt_by_secret_coins_give_less_than_the_account(self):
        # Two releases of counts with Laplace noise of scale 1, a record in either with
        # probability 1/2: whoever sees both does not know where to look.
        release = Release(
            mechanism="laplace",
            norm_bound=1.0,
            noise=1.0,
            sensitivity=Sensitivity(add_or_remove_one=1.0, replace_one=1.0),
            sampling=NoSampling(),
        )
        entries = (Entry(release, 2, 0),)
        bound = account(Ledger(nodes=(entries,)), 0.1, "add-or-remove-one")
        x = np.linspace(-12, 13, 1251)
        apart = 0.5 * np.exp(-np.abs(x)), 0.5 * np.exp(-np.abs(x - 1))
        without = np.outer(apart[0], apart[0])
        dealt = (np.outer(apart[1], apart[0]) + np.outer(apart[0], apart[1])) / 2
        cell = (x[1] - x[0]) ** 2

        def delta(epsilon):
            over = (
                dealt - math.exp(epsilon) * without,
                without - math.exp(epsilon) * dealt,
            )
            return max(float(each.clip(0).sum()) * cell for each in over)

        assert bound.epsilon > 0.75
        assert delta(0.7) < 0.1
        assert Certificate.of(Ledger(nodes=(entries,))).epsilon(0.1).lower <= 0.7


class TestTight:
    @given(shared_entries, pass_entries, st.sampled_from(RELATIONS))
    def test_never_above_the_same_in_sequence(self, shared, parts, relation):
        sequence = epsilon(in_sequence(shared + parts), relation)
        assert epsilon(shared + parts, relation) <= sequence * (1 + 1e-9)

    @given(unsampled, st.integers(1, 10**6), st.sampled_from(RELATIONS))
    def test_a_pass_of_equal_releases_costs_one(self, release, count, relation):
        exact = exactly(release.sensitivity_under(relation) / release.noise)
        entries = (Entry(release, count, 0),)
        for method in ("gdp", "analytic-gaussian", "certified"):
            found = epsilon(entries, relation, method)
            assert exact * (1 - 1e-9) <= found <= exact + 2e-3

    @pytest.mark.parametrize("noise", [0.0, 2.0])
    def test_releases_that_tell_nothing_cost_nothing(self, noise):
        """Nor hide others of their pass; a pass of nothing else is none."""
        nothing, tells = Release.of(EpsilonDelta(0.0)), gaussian(1.0)
        bare = msgspec.structs.replace(
            tells, noise=noise, sensitivity=Sensitivity(add_or_remove_one=0.0)
        )
        relation = "add-or-remove-one"
        for some in (nothing, bare):
            pair = (Entry(some, 1, 0), Entry(tells, 1, 0))
            assert views(pair, relation) == ((Entry(tells),),)
            assert views(pair[:1], relation) == ((),)
        ledger = Ledger(nodes=((Entry(nothing, 3, 0), Entry(tells)),))
        alone = Ledger.of(tells)
        found = [Certificate.of(one).epsilon(1e-5).upper for one in (ledger, alone)]
        assert found[0] == found[1]

    def test_passes_add_up(self):
        # Ten classes on the same batches: sqrt(10) times the sensitivity.
        release = gaussian(30.0)
        entries = tuple(Entry(release, 40, number) for number in range(10))
        exact = exactly(2 * math.sqrt(10) / release.noise)
        assert epsilon(entries, "replace-one") == pytest.approx(exact, rel=1e-9)

    @pytest.mark.parametrize("method", list(METHODS))
    def test_every_account_takes_a_pass(self, method):
        release = gaussian(20.0)
        if method == "gdp-clt":
            release = gaussian(20.0, sampling=PoissonSampling(0.1))
        entries = (Entry(release, 40, 0),)
        one = epsilon((Entry(release),), "add-or-remove-one", method)
        assert epsilon(entries, "add-or-remove-one", method) == one

    def test_calibration_needs_noise_for_one(self):
        def ledger(count, disjoint):
            return lambda z: Ledger(nodes=((Entry(gaussian(z), count, disjoint),),))

        one, _ = noise_multiplier(ledger(1, UNSET), 1.0, DELTA, "replace-one")
        many, _ = noise_multiplier(ledger(500, 0), 1.0, DELTA, "replace-one")
        assert many == pytest.approx(one, rel=1e-3)

    def test_the_lower_side_is_of_what_every_record_enters(self):
        entries = (
            Entry(gaussian(2.0), 5, 0),
            Entry(gaussian(3.0)),
            Entry(gaussian(4.0), 9, 0),
        )
        found = Certificate.of(Ledger(nodes=(entries,)), "replace-one").epsilon(DELTA)
        exact = exactly(2.0 / 3.0)
        assert exact - 0.02 <= found.lower <= exact + 1e-9
        bound = account(Ledger(nodes=(entries,)), DELTA, "replace-one")
        assert found.upper == bound.epsilon


class TestLedger:
    def test_a_certificate_says_whether_a_record_enters_all(self):
        for disjoint, passes in ((UNSET, False), (0, True)):
            entries = (Entry(gaussian(2.0), 3), Entry(gaussian(3.0), 2, disjoint))
            assert Certificate.of(Ledger(nodes=(entries,))).has_passes is passes

    def test_it_is_written_and_read(self):
        recorder = Recorder(1)
        for batch in range(6):
            recorder.record(0, gaussian(2.0 if batch % 2 else 3.0), disjoint=0)
        recorder.record(0, gaussian(2.0))
        recorder.assume("nobody looks")
        recorder.assume("nobody looks")
        ledger = recorder.ledger()
        assert [(e.count, e.disjoint) for e in ledger.nodes[0]] == [
            (3, 0),
            (3, 0),
            (1, UNSET),
        ]
        assert ledger.version == 2
        assert Ledger.from_json(ledger.to_json()) == ledger
        assert Recorder.of(ledger).ledger() == ledger

    def test_old_ledgers_are_written_and_read_as_ever(self):
        ledger = Ledger.of(gaussian(2.0), 7)
        text = ledger.to_json()
        assert '"version": 1' in text
        assert "disjoint" not in text
        assert "assumes" not in text
        assert Ledger.from_json(text) == ledger

    def test_an_assumption_takes_the_certificate(self):
        recorder = Recorder(1)
        recorder.record(0, gaussian(20.0), 4, disjoint=0)
        bound = account(recorder.ledger(), DELTA, "replace-one")
        assert (bound.standing, bound.assumes) == ("certified", ())
        recorder.assume("nobody sees the choices")
        bound = account(recorder.ledger(), DELTA, "replace-one")
        assert bound.standing == "conditional"
        assert "assuming that nobody sees the choices" in str(bound)
        assert "certified" not in str(bound).split("(")[0]

    def test_a_bare_certificate_cannot_assume(self):
        bound = account(Ledger.of(gaussian(9.0)), DELTA, "replace-one")
        with pytest.raises(ValueError, match="standing is conditional"):
            msgspec.structs.replace(bound, assumes=("the moon is full",))
        with pytest.raises(ValueError, match="must say what it assumes"):
            msgspec.structs.replace(bound, standing="conditional")

    def test_passes_have_numbers(self):
        with pytest.raises(ValueError, match="disjoint=-1"):
            Entry(gaussian(2.0), 1, -1)
