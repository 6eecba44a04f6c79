"""Events of dp-accounting, there and back, and in files."""

import math

import attrs
import dp_accounting as dpa
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from privaudit.accounting import Certificate, events
from privaudit.ledger import Ledger
from privaudit.mechanisms import (
    DiscreteGaussian,
    EpsilonDelta,
    ExponentialMechanism,
    PermuteAndFlip,
)
from privaudit.release import NoSampling, PoissonSampling, Release, Sensitivity

RELEASES = st.builds(
    lambda z, sampling, mechanism: Release.of_sum(
        norm_bound=1.0, noise_multiplier=z, sampling=sampling, mechanism=mechanism
    ),
    st.floats(0.5, 4),
    st.one_of(st.builds(PoissonSampling, st.floats(0.01, 1)), st.just(NoSampling())),
    st.sampled_from(["gaussian", "laplace"]),
)


@given(st.lists(st.tuples(RELEASES, st.integers(1, 50)), min_size=1, max_size=4))
def test_a_ledger_comes_back(parts):
    recorded = [Ledger.of(release, count).nodes[0][0] for release, count in parts]
    ledger = Ledger(nodes=(tuple(recorded),))
    text = events.to_json(ledger.to_event())
    back = events.ledger_of(events.from_json(text))
    assert back == ledger
    assert events.to_json(back.to_event()) == text


def test_the_file_has_the_fields_of_the_named_tuple():
    event = dpa.PoissonSampledDpEvent(0.1, dpa.GaussianDpEvent(2.0))
    fields = events._json.decode(events.to_json(event), dict)
    inner = event.event.to_named_tuple()._asdict()
    assert fields == {**event.to_named_tuple()._asdict(), "event": inner}


def test_dp_accounting_agrees():
    ledger = Ledger.of(
        Release.of_sum(
            norm_bound=2.0, noise_multiplier=1.1, sampling=PoissonSampling(0.02)
        ),
        500,
    )
    theirs = dpa.pld.PLDAccountant()
    theirs.compose(ledger.to_event())
    ours = Certificate.of(ledger).epsilon(1e-5)
    assert theirs.get_epsilon(1e-5) == pytest.approx(ours.upper, rel=1e-3)


def test_an_event_never_has_more_noise_than_the_release():
    release = Release(
        mechanism="gaussian",
        norm_bound=1.0,
        noise=3.0,
        sensitivity=Sensitivity(add_or_remove_one=2.0, replace_one=5.0),
        sampling=NoSampling(),
    )
    assert release.event() == dpa.GaussianDpEvent(3.0 / 2.5)


@pytest.mark.parametrize(
    "inside",
    [
        dpa.NoOpDpEvent(),
        dpa.SelfComposedDpEvent(dpa.GaussianDpEvent(1.0), 0),
        dpa.ComposedDpEvent([dpa.NoOpDpEvent(), dpa.ComposedDpEvent([])]),
    ],
)
def test_nothing_sampled_is_nothing(inside):
    event = dpa.PoissonSampledDpEvent(0.1, inside)
    assert not events.ledger_of(event).nodes[0]
    with_one = dpa.ComposedDpEvent([inside, dpa.GaussianDpEvent(2.0)])
    found = events.ledger_of(dpa.PoissonSampledDpEvent(0.1, with_one))
    alone = dpa.PoissonSampledDpEvent(0.1, dpa.GaussianDpEvent(2.0))
    assert _noises(found) == pytest.approx(_noises(events.ledger_of(alone)))


def _noises(ledger):
    return [entry.release.noise for entry in ledger.nodes[0]]


@attrs.frozen
class ExponentialMechanismDpEvent(dpa.DpEvent):
    epsilon: float


class PermuteAndFlipDpEvent(ExponentialMechanismDpEvent):
    pass


@attrs.frozen
class EpsilonDeltaDpEvent(dpa.DpEvent):
    epsilon: float
    delta: float


@attrs.frozen
class DiscreteGaussianDpEvent(dpa.DpEvent):
    sigma: float
    sensitivity: float = 1.0
    dimension: int | None = None


class TestOfItsHead:
    """Events that 0.6 does not have, as google/differential-privacy of 2026 does."""

    @pytest.mark.parametrize(
        ("event", "details"),
        [
            (ExponentialMechanismDpEvent(1.0), ExponentialMechanism(1.0)),
            (PermuteAndFlipDpEvent(1.0), PermuteAndFlip(1.0)),
            (EpsilonDeltaDpEvent(1.0, 1e-6), EpsilonDelta(1.0, 1e-6)),
            (DiscreteGaussianDpEvent(4.0, 3.0, 1), DiscreteGaussian(4.0, 3)),
        ],
    )
    def test_there_and_back(self, event, details, monkeypatch):
        for kind in (event, dpa.PoissonSampledDpEvent(0.1, event)):
            ledger = events.ledger_of(kind)
            assert ledger.nodes[0][0].release.details == details
            with pytest.raises(ValueError, match="has no event for"):
                ledger.to_event()
            with monkeypatch.context() as patched:
                name = type(event).__name__
                patched.setattr(dpa.dp_event, name, type(event), raising=False)
                assert events.ledger_of(ledger.to_event()) == ledger

    @pytest.mark.parametrize("moved", [2.1, 3 - 1e-12])
    def test_a_sensitivity_is_no_less_than_said(self, moved):
        (entry,) = events.ledger_of(DiscreteGaussianDpEvent(4.0, moved, 1)).nodes[0]
        assert entry.release.details == DiscreteGaussian(4.0, 3)

    @pytest.mark.parametrize("dimension", [1, 2, None])
    def test_discrete_gaussian_noise_that_is_none(self, dimension):
        ledger = events.ledger_of(DiscreteGaussianDpEvent(0.0, 2.0, dimension))
        assert Certificate.of(ledger).epsilon(1e-5).upper == math.inf
        for wrong in ((4.0, math.inf), (4.0, -1.0), (math.nan, 1.0)):
            with pytest.raises(ValueError, match="finite"):
                events.ledger_of(DiscreteGaussianDpEvent(*wrong, dimension))

    def test_several_coordinates_of_discrete_gaussian_noise(self):
        """Its rdp_privacy_accountant_test: s^2 / (2 sigma^2) times the order."""
        ledger = events.ledger_of(DiscreteGaussianDpEvent(10.0, 2.0))
        gaussian = Certificate.of(events.ledger_of(dpa.GaussianDpEvent(5.0)))
        found = Certificate.of(ledger).epsilon(1e-5).upper
        assert gaussian.epsilon(1e-5).upper < found < 1.2 * gaussian.epsilon(1e-5).upper
        with pytest.raises(ValueError, match="under add-or-remove-one"):
            Certificate.of(ledger, "replace-one").epsilon(1e-5)


class TestRefused:
    @pytest.mark.parametrize(
        "event",
        [
            dpa.SampledWithReplacementDpEvent(9, 3, dpa.GaussianDpEvent(1.0)),
            dpa.PoissonSampledDpEvent(0.1, dpa.NonPrivateDpEvent()),
            dpa.ComposedDpEvent([dpa.GaussianDpEvent(1.0), dpa.UnsupportedDpEvent()]),
        ],
    )
    def test_what_a_ledger_does_not_know(self, event):
        with pytest.raises(events.UnknownEventError, match="Gaussian and Laplace"):
            events.ledger_of(event)

    @pytest.mark.parametrize(
        ("event", "said"),
        [
            *(
                (
                    dpa.SelfComposedDpEvent(dpa.GaussianDpEvent(1.0), count),
                    "a whole number",
                )
                for count in (-1, 0.01, 1.5, math.inf, math.nan, 10**400, "3", None)
            ),
            *(
                (kind(noise), "non-negative, finite, got")
                for kind in (dpa.GaussianDpEvent, dpa.LaplaceDpEvent)
                for noise in (-1.0, math.inf, math.nan, 10**400, "x", None)
            ),
            *(
                (
                    dpa.SingleEpochTreeAggregationDpEvent(1.0, steps),
                    "non-negative, whole",
                )
                for steps in (3.99, [4, 1.9], math.nan, -1, 10**400)
            ),
        ],
    )
    def test_figures_that_are_none(self, event, said):
        """At every level: two negative counts were a positive one."""
        whole = [event, dpa.SelfComposedDpEvent(dpa.SelfComposedDpEvent(event, 2), 3)]
        if not isinstance(event, dpa.SingleEpochTreeAggregationDpEvent):
            whole.append(dpa.PoissonSampledDpEvent(0.5, event))
            whole.append(dpa.SampledWithoutReplacementDpEvent(9, 3, event))
        if isinstance(event, dpa.SelfComposedDpEvent | dpa.GaussianDpEvent):
            both = dpa.ComposedDpEvent([event, dpa.GaussianDpEvent(1.0)])
            whole.append(dpa.PoissonSampledDpEvent(0.5, both))
        for one in whole:
            with pytest.raises(ValueError, match=said):
                events.ledger_of(one)

    def test_numbers_of_numpy_are_taken(self):
        one = dpa.GaussianDpEvent(np.float32(2.0))
        (entry,) = events.ledger_of(dpa.SelfComposedDpEvent(one, np.int64(5))).nodes[0]
        assert (entry.count, entry.release.noise) == (5, 2.0)

    def test_what_an_event_has_no_word_for(self):
        release = Release.of_sum(
            norm_bound=1.0, noise_multiplier=1.0, sampling=NoSampling()
        )
        ledger = Ledger(nodes=Ledger.of(release).nodes, version=2, failure=1e-9)
        with pytest.raises(ValueError, match="claim too much"):
            ledger.to_event()
        with pytest.raises(ValueError, match="name one"):
            Ledger.joined([Ledger.of(release), Ledger.of(release, 2)]).to_event()

    @pytest.mark.parametrize(
        ("text", "said"),
        [
            ("{}", "no event of dp-accounting's"),
            ('{"class_name": "os.system"}', "no event"),
            ('{"class_name": "GaussianDpEvent", "noise": 1}', "noise"),
            ("[]", "Expected"),
            ("nothing", "malformed"),
        ],
    )
    def test_files_that_hold_none(self, text, said):
        with pytest.raises(ValueError, match=said):
            events.from_json(text)
