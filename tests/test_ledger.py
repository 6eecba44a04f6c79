"""Contract of privaudit.ledger."""

import itertools
import math

import dp_accounting
import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from privaudit.accounting import Certificate
from privaudit.ledger import Ledger, Recorder
from privaudit.release import (
    NoSampling,
    PoissonSampling,
    RandomAllocation,
    Release,
    SamplingWithoutReplacement,
    Sensitivity,
)

RELEASE = Release.of_sum(norm_bound=1.0, noise_multiplier=1.0, sampling=NoSampling())

samplings = (
    st.builds(PoissonSampling, st.floats(0, 1))
    | st.builds(
        lambda size, rest: SamplingWithoutReplacement(size, size + rest),
        st.integers(0, 100),
        st.integers(1, 100),
    )
    | st.just(NoSampling())
)
releases = st.builds(
    lambda bound, z, sampling, kind: Release.of_sum(
        norm_bound=bound, noise_multiplier=z, sampling=sampling, mechanism=kind
    ),
    st.floats(1e-3, 1e3),
    st.floats(1e-3, 1e3),
    samplings,
    st.sampled_from(["gaussian", "laplace"]),
)
histories = st.lists(st.tuples(st.integers(0, 2), releases), max_size=12)


def record(history):
    recorder = Recorder(3)
    for node, release in history:
        recorder.record(node, release)
    return recorder.ledger()


class TestSound:
    @given(histories)
    def test_nothing_is_lost_and_order_is_kept(self, history):
        ledger = record(history)
        for node in range(3):
            told = [
                entry.release
                for entry in ledger.nodes[node]
                for _ in range(entry.count)
            ]
            assert told == [release for who, release in history if who == node]

    def test_a_release_is_not_taken_back(self):
        release = Release.of_sum(
            norm_bound=1.0, noise_multiplier=1.0, sampling=NoSampling()
        )
        recorder = Recorder(1)
        recorder.record(0, release, 5)
        with pytest.raises(ValueError, match="count must be >= 0, got -4"):
            recorder.record(0, release, -4)
        assert recorder.ledger() == Ledger.of(release, 5)

    @given(histories)
    def test_equal_neighbours_are_stored_once(self, history):
        for entries in record(history).nodes:
            for one, other in itertools.pairwise(entries):
                assert one.release != other.release

    @given(histories)
    def test_json_gives_back_what_was_written(self, history):
        ledger = record(history)
        assert Ledger.from_json(ledger.to_json()) == ledger
        assert Ledger.from_json(ledger.to_json()).to_json() == ledger.to_json()

    def test_sensitivity_is_said_for_each_relation(self):
        release = Release.of_sum(
            norm_bound=3.0, noise_multiplier=2.0, sampling=PoissonSampling(0.1)
        )
        assert release.noise == 6.0
        assert release.sensitivity == Sensitivity(
            add_or_remove_one=3.0, replace_one=6.0
        )
        assert release.noise_over_sensitivity("add-or-remove-one") == 2.0
        assert release.noise_over_sensitivity("replace-one") == 1.0

    @pytest.mark.parametrize(
        ("bound", "moved", "norm"), [(1.0, 2.0, 1.0), (1.0, 5.0, 2.5), (3.0, 7.0, 3.5)]
    )
    def test_opposed_records_of_a_batch_are_as_far_as_they_can_be(
        self, bound, moved, norm
    ):
        """At epsilon 0 delta is the total variation, which they attain: closed form."""
        release = Release(
            mechanism="gaussian",
            norm_bound=bound,
            noise=2.0,
            sensitivity=Sensitivity(add_or_remove_one=bound, replace_one=moved),
            sampling=PoissonSampling(0.1),
        )
        assert release.opposed_norm() == norm
        found = Certificate.of(Ledger.of(release), "replace-one").delta(0.0).upper
        truth = 0.1 * (2 * stats.norm.cdf(norm / 2.0) - 1)
        assert truth * (1 - 1e-9) <= found <= truth * 1.02

    def test_a_fixed_size_sample_has_no_add_or_remove(self):
        release = Release.of_sum(
            norm_bound=1.0,
            noise_multiplier=2.0,
            sampling=SamplingWithoutReplacement(10, 100),
        )
        with pytest.raises(ValueError, match="account it under replace-one"):
            release.noise_over_sensitivity("add-or-remove-one")

    def test_noise_without_a_norm_bound_is_refused(self):
        with pytest.raises(ValueError, match="protects nothing"):
            Release.of_sum(
                norm_bound=math.inf, noise_multiplier=1.0, sampling=NoSampling()
            )


class TestEvents:
    def test_dp_accounting_reads_them(self):
        poisson = Release.of_sum(
            norm_bound=5.0, noise_multiplier=2.0, sampling=PoissonSampling(0.25)
        )
        event = Ledger.of(poisson, 7).to_event(0)
        assert event == dp_accounting.ComposedDpEvent(
            [
                dp_accounting.SelfComposedDpEvent(
                    dp_accounting.PoissonSampledDpEvent(
                        0.25, dp_accounting.GaussianDpEvent(2.0)
                    ),
                    7,
                )
            ]
        )

    def test_no_noise_is_no_privacy(self):
        bare = Release.of_sum(
            norm_bound=math.inf, noise_multiplier=0.0, sampling=NoSampling()
        )
        assert bare.event() == dp_accounting.NonPrivateDpEvent()

    def test_fixed_size(self):
        release = Release.of_sum(
            norm_bound=1.0,
            noise_multiplier=2.0,
            sampling=SamplingWithoutReplacement(10, 100),
            mechanism="laplace",
        )
        assert release.event() == dp_accounting.SampledWithoutReplacementDpEvent(
            100, 10, dp_accounting.LaplaceDpEvent(2.0)
        )


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda text: "{}", "no ledger"),
        (lambda text: "[1]", "cannot read"),
        (lambda text: text[:-20], "cannot read"),
        (lambda text: text.replace('"version": 1', '"version": 9'), "version 9"),
        (lambda text: text.replace('"noise"', '"noice"'), "noice"),
        (lambda text: text.replace('"count": 7', '"count": 0'), "count"),
        (lambda text: text.replace('"rate": 0.5', '"rate": 1.5'), "rate"),
        (lambda text: text.replace('"noise": 2.0', '"noise": "two"'), "noise"),
    ],
)
def test_what_is_no_ledger_of_ours_is_refused(change, message):
    release = Release.of_sum(
        norm_bound=1.0, noise_multiplier=2.0, sampling=PoissonSampling(0.5)
    )
    text = Ledger.of(release, 7).to_json()
    assert change(text) != text
    with pytest.raises(ValueError, match=message):
        Ledger.from_json(change(text))


class TestValuesCheckThemselves:
    @pytest.mark.parametrize(
        ("make", "words"),
        [
            (
                lambda: Release.of_sum(
                    norm_bound=1.0, noise_multiplier=1.0, sampling=0.01
                ),
                r"sampling is PoissonSampling\(rate\).*got 0.01",
            ),
            (lambda: Ledger.of(None, 3), "Release, got None"),
            (
                lambda: Certificate.of(Ledger.of(RELEASE), "replace_one"),
                "add-or-remove-one, replace-one or None, got 'replace_one'",
            ),
            (
                lambda: RELEASE.sensitivity_under("replace_one"),
                "add-or-remove-one or replace-one, got 'replace_one'",
            ),
            (
                lambda: msgspec.structs.replace(RELEASE, mechanism="normal"),
                "gaussian or laplace, got 'normal'",
            ),
        ],
    )
    def test_what_is_no_value_is_one_sentence(self, make, words):
        with pytest.raises(ValueError, match=words):
            make()


class TestAgain:
    def test_a_further_release_is_of_all_records(self):
        """Its batch is that of the first: sampling hides nothing more."""
        from privaudit.ledger import RESUMED

        release = Release.of_sum(
            norm_bound=1.0, noise_multiplier=2.0, sampling=PoissonSampling(0.01)
        )
        recorder = Recorder(2)
        for node in (0, 1):
            recorder.record(node, release, 5)
            recorder.again(node, release, 3 * node)
        untouched, resumed = recorder.ledger().nodes
        assert [(e.release, e.count) for e in untouched] == [(release, 5)]
        plain = Release.of_sum(
            norm_bound=1.0, noise_multiplier=2.0, sampling=NoSampling()
        )
        assert [(e.release, e.count) for e in resumed] == [(release, 5), (plain, 3)]
        assert recorder.ledger().assumptions == (RESUMED,)

    def test_none_cost_nothing(self):
        release = Release.of_sum(
            norm_bound=1.0, noise_multiplier=2.0, sampling=PoissonSampling(0.01)
        )
        recorder = Recorder(1)
        recorder.again(0, release, 0)
        assert recorder.ledger() == Recorder(1).ledger()


@pytest.mark.parametrize(
    "observer", ["3,", "1,,2", "\u00b2", " 3", "9" * 5000, "edge:1", "nobody", ""]
)
def test_an_observer_that_is_none(observer):
    ledger = Ledger.of(RELEASE, 2, nodes=4)
    with pytest.raises(ValueError, match="there is no observer"):
        msgspec.structs.replace(ledger, observer=observer)


def test_not_all_nodes_are_the_observers():
    ledger = Ledger.of(RELEASE, 2, nodes=2)
    with pytest.raises(ValueError, match="nobody is left to be protected"):
        msgspec.structs.replace(ledger, observer="0,1")


def test_what_an_observer_sees_is_not_taken_apart():
    """A part would not say whose it is: that of its own node is worth nothing."""
    ledger = msgspec.structs.replace(Ledger.of(RELEASE, 2, nodes=3), observer="1")
    with pytest.raises(ValueError, match="cannot be taken apart"):
        ledger.apart()


@pytest.mark.parametrize("assumed", ["", " \n"])
def test_an_assumption_has_words(assumed):
    ledger = Ledger(nodes=((),))
    with pytest.raises(ValueError, match="assumes has an empty text"):
        ledger.assuming("it rains", assumed)
    with pytest.raises(ValueError, match="assumes has an empty text"):
        Ledger.from_json(ledger.assuming("it").to_json().replace('"it"', '"\\n"'))


@pytest.mark.parametrize("kind", [PoissonSampling, RandomAllocation])
@pytest.mark.parametrize("value", ["1", None, [1], math.nan, True])
def test_samplings_of_what_is_no_number(kind, value):
    with pytest.raises(ValueError, match=r"must be (a|in)|cannot be in"):
        kind(value)


@pytest.mark.parametrize("sizes", [(1.5, 3), ("1", 3), (1, None)])
def test_a_sample_is_of_whole_numbers(sizes):
    with pytest.raises(ValueError, match="must be a whole number, got"):
        SamplingWithoutReplacement(*sizes)


def test_numbers_of_another_library_are_plain():
    made = RandomAllocation(np.int64(4)), SamplingWithoutReplacement(np.int32(1), 3.0)
    assert made == (RandomAllocation(4), SamplingWithoutReplacement(1, 3))
    assert [type(one) for one in (made[0].batches, made[1].size)] == [int, int]
