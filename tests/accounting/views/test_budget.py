"""What an observer learns of sums by recursive doubling, as a ledger and an account."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET

from privaudit.accounting import Certificate, account_nodes
from privaudit.accounting.account import account
from privaudit.accounting.views import (
    Observer,
    account_observed,
    check_observer,
    observed,
)
from privaudit.accounting.views.butterfly import fresh_noises
from privaudit.ledger import RESUMED, Entry, Ledger, Recorder
from privaudit.release import (
    NoSampling,
    PoissonSampling,
    RandomAllocation,
    Release,
    Sensitivity,
)
from privaudit.results import worst_bound
from tests.accounting.views.networks import releases
from tests.tiers import examples

BUTTERFLY = "dp-butterfly"


def plan(nodes, steps, noise=2.0, rate=0.1):
    """Every node releases alike."""
    return Ledger.of(releases(noise, rate), steps, nodes=nodes)


def multipliers(entries):
    """Sorted, a release each."""
    return sorted(e.release.noise for e in entries for _ in range(e.count))


class TestSound:
    @examples(60)
    @given(st.sampled_from([2, 4, 8, 16]), st.integers(1, 40))
    def test_any_node_is_no_better_than_each_one(self, nodes, steps):
        found = observed(plan(nodes, steps), "any-node")
        for of in {0, nodes - 1}:
            all_nodes = multipliers(found.nodes[of])
            assert len(all_nodes) == steps
            for by in set(range(nodes)) - {of}:
                one = np.sort(
                    2 * np.sqrt(fresh_noises(nodes, steps, of, Observer.of(by)))
                )
                assert (np.array(all_nodes) <= one * (1 + 1e-11)).all()

    def test_batches_of_an_epoch_are_not_told_apart(self):
        """Sums of different sizes would have to keep their places in the epoch."""
        release = Release.of_sum(
            norm_bound=1.0, noise_multiplier=2.0, sampling=RandomAllocation(4)
        )
        with pytest.raises(ValueError, match="not accounted for random allocation"):
            observed(Ledger.of(release, 8, nodes=4), "any-node")

    def test_a_sum_of_laplace_noises_is_not_laplace_noise(self):
        release = Release.of_sum(
            norm_bound=1.0,
            noise_multiplier=2.0,
            sampling=NoSampling(),
            mechanism="laplace",
        )
        with pytest.raises(ValueError, match="Gaussian noise only"):
            observed(Ledger.of(release, 7, nodes=8), "any-node")

    def test_not_more_releases_than_can_be_looked_at(self):
        with pytest.raises(ValueError, match="at most 10,000,000 releases"):
            observed(plan(4, 3_000_000_000), "any-node")

    def test_shares_of_other_sizes_have_other_norm_bounds(self):
        """Of all that a node holds; noise is what has to be equal."""
        ledger = Ledger(
            nodes=tuple(
                (
                    Entry(
                        Release(
                            mechanism="gaussian",
                            norm_bound=float(bound),
                            noise=100.0,
                            sensitivity=Sensitivity(replace_one=2.0 * bound),
                            sampling=NoSampling(),
                        ),
                        6,
                    ),
                )
                for bound in (66, 67, 66, 67)
            ),
            unit="node",
        )
        found = observed(ledger, "any-node")
        assert {e.release.norm_bound for e in found.nodes[1]} == {67.0}

    def test_noise_is_never_rounded_up(self):
        (entries, *_) = observed(plan(8, 14), "3").nodes
        right = sorted(2 * np.sqrt(fresh_noises(8, 14, 0, Observer.of(3))))
        assert all(a <= b for a, b in zip(multipliers(entries), right, strict=True))

    def test_releases_that_were_made_again_hide_nothing(self):
        # Of one node only: its partners' releases are then seen under two noises.
        ledger = plan(4, 3)
        again = Ledger(
            nodes=((*ledger.nodes[0], Entry(releases(2.0))), *ledger.nodes[1:]),
            assumes=(RESUMED,),
        )
        found = observed(again, "any-node")
        assert found.nodes == again.nodes
        assert found.assumes == (RESUMED,)

    def test_next_to_no_noise_is_not_paid_for(self):
        assert observed(plan(4, 3, 1e-3), "1").failure == 0
        assert multipliers(observed(plan(4, 3, 1e-3), "1").nodes[0]) == [1e-3] * 3
        bare = Ledger.of(releases(0.0, 0.1), 2, nodes=4)
        assert observed(bare, "1").nodes[0] == bare.nodes[0]

    def test_rounded_noise_is_paid_for(self):
        assert observed(plan(4, 3), "any-node").failure > 0
        assert observed(plan(4, 3), "everybody").failure == 0

    def test_an_observers_own_nodes_have_the_account_of_all(self):
        found = account_observed(
            BUTTERFLY, plan(4, 6), "1,2", 1e-5, "add-or-remove-one"
        )
        every = Certificate.of(plan(4, 6)).epsilon(1e-5).upper
        for node in (1, 2):
            assert found[node].observer is UNSET
            assert found[node].epsilon == every
        for node in (0, 3):
            assert found[node].observer == "1,2"
            assert 0 < found[node].epsilon < every
        assert worst_bound(found).observer == "1,2"

    def test_an_observers_own_nodes_are_not_protected_from_it(self):
        # They have no releases in the ledger, which must not read as privacy.
        seen = observed(plan(4, 6), "1,2")
        certificate = Certificate.of(seen)
        for node in (1, 2):
            found = certificate.node(node).epsilon(1e-5)
            assert found.upper_by == "the observer's own node"
            assert found.upper == math.inf
            assert certificate.nodes[node].delta(1.0).upper == 1
            assert certificate.nodes[node].upper_by(lambda *_: 0.1, 1e-5) == math.inf
            for method in ("certified", "rdp"):
                bounds = account_nodes(seen, 1e-5, method=method)
                assert bounds[node].epsilon == math.inf
        others = max(certificate.nodes[node].epsilon(1e-5).upper for node in (0, 3))
        assert account(seen, 1e-5).epsilon == others
        assert certificate.epsilon(1e-5).upper == others < math.inf
        grouped = Certificate.of(seen, group=2)
        assert grouped.node(1).epsilon(1e-5).upper == math.inf
        for name in ("any-node", "edge:1-2", "everybody"):
            assert (
                Certificate.of(observed(plan(4, 6), name)).nodes[1].epsilon(0.1).upper
                < 1
            )

    def test_who_hears_single_releases_is_told_all(self):
        for name in ("everybody", "edge:0-1"):
            assert observed(plan(4, 6), name).nodes == plan(4, 6).nodes

    def test_more_that_collude_are_told_more(self):
        one, two, all_but_one = (
            account_observed(BUTTERFLY, plan(8, 9), name, 1e-5, "replace-one")[
                0
            ].epsilon
            for name in ("1", "1,6", "1,2,3,4,5,6,7")
        )
        any_node = observed(plan(8, 9), "any-node")
        some = Certificate.of(any_node, "replace-one").epsilon(1e-5).upper
        every = Certificate.of(plan(8, 9), "replace-one").epsilon(1e-5).upper
        assert one <= some * (1 + 1e-3) <= every
        assert one < two < all_but_one <= every * (1 + 1e-3)
        assert all_but_one == pytest.approx(every, rel=2e-3)


class TestTight:
    def test_a_whole_cycle_is_alike_for_all(self):
        # In n - 1 steps every pair meets 2^b times in a sum of 2^b.
        counts = [(2 * math.sqrt(1 << b), 1 << b) for b in range(4)]
        for name in ("any-node", "5"):
            (entries, *_) = observed(plan(16, 45), name).nodes
            found = sorted((e.release.noise, e.count) for e in entries)
            assert found == [(pytest.approx(m), 3 * often) for m, often in counts]

    def test_unsampled_it_is_the_gaussian_of_all_steps(self):
        (entries, *_) = observed(plan(8, 7, 3.0, 1.0), "any-node").nodes
        mu2 = sum(e.count / e.release.noise**2 for e in entries)
        assert mu2 == pytest.approx(3 / 9)  # log2(n) of n - 1


class TestRefused:
    @pytest.mark.parametrize(
        ("algorithm", "observer", "words"),
        [
            (
                "dp-dsgd",
                "any-node",
                "dp-butterfly, dp-chain, dp-mf-butterfly, not for dp-dsgd",
            ),
            (BUTTERFLY, "me", "an observer is a node"),
            (BUTTERFLY, "4", "there is no node 4"),
            (BUTTERFLY, "0,1,2,3", "nobody is left"),
        ],
    )
    def test_an_observer_that_has_no_account(self, algorithm, observer, words):
        with pytest.raises(ValueError, match=words):
            check_observer(algorithm, observer, 4)

    def test_nodes_that_differ(self):
        ledger = Ledger.joined([plan(3, 2), plan(1, 2, 3.0)])
        with pytest.raises(ValueError, match="equal noise"):
            observed(ledger, "1")

    def test_records_at_several_nodes(self):
        with pytest.raises(ValueError, match="records at one node"):
            Certificate.of(observed(plan(4, 2), "1"), overlap=2)

    def test_ledgers_of_different_observers_are_not_put_together(self):
        two = [observed(plan(4, 2), name) for name in ("1", "2")]
        for together in (Ledger.joined, Ledger.composed):
            with pytest.raises(
                ValueError, match=r"different observers|an observer sees"
            ):
                together(two)
        assert Ledger.composed([two[0], plan(4, 2)]).observer == "1"
        with pytest.raises(ValueError, match="for whom it holds"):
            observed(plan(4, 2), "everybody").to_event(0)

    def test_a_file_says_for_whom_it_is(self):
        ledger = observed(plan(4, 2), "any-node")
        assert ledger.version == 5
        assert Ledger.from_json(ledger.to_json()) == ledger
        assert "any one other node" in str(Certificate.of(ledger).epsilon(1e-5))


def test_what_an_observer_sees_is_no_runs_ledger():
    seen = observed(plan(4, 2), "1")
    with pytest.raises(ValueError, match="sees already"):
        observed(seen, "2")
    with pytest.raises(ValueError, match="cannot go on"):
        Recorder.of(seen)


def test_of_steps_that_differ_any_node_is_whoever_sees_all():
    releases = [
        Release.of_sum(
            norm_bound=1.0, noise_multiplier=3.0, sampling=PoissonSampling(rate)
        )
        for rate in (0.01, 0.5)
    ]
    ledger = Ledger(nodes=(tuple(Entry(one, 3) for one in releases),) * 8)
    assert observed(ledger, "any-node").nodes == ledger.nodes
    one = Certificate.of(observed(ledger, "3")).node(0).epsilon(1e-5)
    every = Certificate.of(observed(ledger, "any-node")).node(0).epsilon(1e-5)
    assert every.upper >= one.lower


def test_several_runs_are_not_taken_for_one():
    run = plan(8, 3)
    runs = Ledger.composed([run] * 4)
    seen = observed(runs, "3")
    assert {one.release for one in seen.nodes[0]} == {run.nodes[0][0].release}
    assert sum(one.count for one in seen.nodes[0]) == 12
