"""Contract of privaudit.accounting.account and its calls to dp-accounting."""

import math
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import optimize, special

from privaudit.accounting import METHODS, account, account_nodes
from privaudit.accounting.certificate import Certificate
from privaudit.accounting.plans import Plan
from privaudit.ledger import Ledger, Recorder
from privaudit.release import (
    NoSampling,
    PoissonSampling,
    Release,
    SamplingWithoutReplacement,
    Sensitivity,
)
from privaudit.results import UpperBound
from tests import reference as ref
from tests.tiers import examples

# dp-accounting's compositions take tens of milliseconds, sampled ones a second.
few = examples(25)
fewer = examples(6)


def gaussian(noise_multiplier, sampling=None, norm_bound=1.0):
    return Release.of_sum(
        norm_bound=norm_bound,
        noise_multiplier=noise_multiplier,
        sampling=sampling or NoSampling(),
    )


def exact_epsilon(mu, delta):
    """Epsilon of mu-GDP (Balle and Wang 2018), by a bracketing root finder."""

    def excess(epsilon):
        tail = epsilon + special.log_ndtr(-epsilon / mu - mu / 2)
        return special.ndtr(mu / 2 - epsilon / mu) - math.exp(tail) - delta

    return optimize.brentq(excess, 0, 500) if excess(0) > 0 else 0.0


class TestSound:
    @pytest.mark.sampled(3)
    @few
    @given(st.floats(3, 20), st.integers(1, 9), st.floats(1e-8, 0.1))
    @pytest.mark.parametrize("relation", ["add-or-remove-one", "replace-one"])
    @pytest.mark.parametrize("method", ["pld", "rdp"])
    def test_never_below_the_exact_epsilon(self, method, relation, z, steps, delta):
        scale = 1 if relation == "add-or-remove-one" else 2
        true = exact_epsilon(scale * math.sqrt(steps) / z, delta)
        ledger = Ledger.of(gaussian(z, norm_bound=3.0), steps)
        assert account(ledger, delta, relation, method).epsilon >= true * (1 - 1e-9)

    def test_no_noise_is_infinite(self):
        bare = Release.of_sum(
            norm_bound=math.inf, noise_multiplier=0.0, sampling=PoissonSampling(0.1)
        )
        recorder = Recorder(1)
        recorder.record(0, gaussian(1.0))
        recorder.record(0, bare)
        for method in ("pld", "rdp"):
            assert account(recorder.ledger(), 1e-5, method=method).epsilon == math.inf

    @pytest.mark.parametrize("method", ["certified", "rdp", "gdp"])
    @pytest.mark.parametrize("sensitivity", [math.inf, 1e300])
    def test_noise_beside_which_the_sensitivity_is_endless(self, method, sensitivity):
        release = Release(
            mechanism="gaussian",
            norm_bound=1.0,
            noise=1e-30,
            sensitivity=Sensitivity(replace_one=sensitivity),
            sampling=NoSampling(),
        )
        found = account(Ledger.of(release), 1e-5, "replace-one", method)
        assert found.epsilon == math.inf

    @pytest.mark.parametrize("rate", [1e-13, 4e-13, 1 - 1e-14, 0.1234567890123456])
    def test_a_batch_of_fixed_size_is_never_smaller_than_planned(self, rate):
        plan = Plan.constant(1.0, rate, 1, "without-replacement")
        assert plan.ledger().nodes[0][0].release.sampling.rate >= rate

    def test_nothing_released_costs_nothing(self):
        assert account(Recorder(2).ledger(), 1e-5).epsilon == 0

    # gdp-clt is for Poisson sampling, of which nothing exact is known.
    @pytest.mark.parametrize("method", sorted(set(METHODS) - {"gdp-clt"}))
    def test_a_chance_of_failure_is_paid_out_of_delta(self, method):
        """With chance 1e-6 nothing holds; of Gaussian noise delta is known exactly."""
        z, delta, failure = 6.0, 1.1e-6, 1e-6
        plain = Ledger.of(gaussian(z))
        paid = Ledger(nodes=plain.nodes, failure=failure)
        found = account(paid, delta, method=method)
        assert found.delta == delta
        assert found.epsilon == account(plain, delta - failure, method=method).epsilon
        assert account(paid, failure, method=method).epsilon == math.inf
        left = ref.gaussian_delta(1 / z, found.epsilon)
        assert left + failure <= delta * (1 + 1e-9)

    def test_every_way_to_ask_pays_a_chance_of_failure(self):
        z, delta, failure = 6.0, 1.1e-6, 1e-6
        true = exact_epsilon(1 / z, delta - failure)
        plain = Ledger.of(gaussian(z))
        paid = Ledger(nodes=plain.nodes, failure=failure)
        relation = "add-or-remove-one"
        assert Certificate.of(plain, relation).meets(0.95 * true, delta)
        assert not Certificate.of(paid, relation).meets(0.99 * true, delta)
        assert Certificate.of(paid, relation).meets(1.01 * true, delta)
        bound = account(paid, delta)
        certificate = Certificate.of(paid, relation)
        assert certificate.epsilon(delta).lower == 0  # nobody attains what fails
        (way,) = certificate.directions(delta).values()
        assert min(way.upper, bound.epsilon) >= true * (1 - 1e-9)

    def test_the_worst_node_speaks_for_the_network(self):
        recorder = Recorder(3)
        for node, z in enumerate((4.0, 1.0, 2.0)):
            recorder.record(node, gaussian(z), 3)
        nodes = account_nodes(recorder.ledger(), 1e-5)
        assert [nodes[1].epsilon > other.epsilon for other in nodes] == [
            True,
            False,
            True,
        ]
        assert account(recorder.ledger(), 1e-5) == nodes[1]

    def test_pld_is_refused_where_its_rounding_is_not_bounded(self):
        ledger = Ledger.of(gaussian(1.0, PoissonSampling(0.01)), 10)
        with pytest.raises(ValueError, match="1e-09"):
            account(ledger, 1e-10, method="pld")
        assert account(ledger, 1e-10, method="rdp").epsilon > 0

    @pytest.mark.parametrize(
        ("method", "sampling"),
        [
            ("pld", SamplingWithoutReplacement(1, 10)),
            ("gdp", PoissonSampling(0.1)),
            ("analytic-gaussian", PoissonSampling(0.1)),
        ],
    )
    def test_what_an_account_does_not_know_is_refused(self, method, sampling):
        with pytest.raises(ValueError, match="account"):
            account(Ledger.of(gaussian(1.0, sampling)), 1e-5, "replace-one", method)

    def test_fixed_size_has_no_add_or_remove(self):
        ledger = Ledger.of(gaussian(1.0, SamplingWithoutReplacement(1, 10)))
        with pytest.raises(ValueError, match="replace-one"):
            account(ledger, 1e-5, "add-or-remove-one", "rdp")


class TestTight:
    """Values of dp-accounting 0.6.0, called directly."""

    @pytest.mark.parametrize(
        ("z", "q", "steps", "relation", "method", "epsilon"),
        [
            (1, 0.01, 10_000, "add-or-remove-one", "pld", 6.188),
            (1, 0.01, 10_000, "add-or-remove-one", "rdp", 6.713),
            (2, 256 / 6000, 2000, "add-or-remove-one", "pld", 4.55),
            (2, 256 / 6000, 2000, "replace-one", "pld", 9.43),
            (5, 256 / 6000, 2000, "replace-one", "pld", 3.21),
        ],
    )
    def test_known_values(self, z, q, steps, relation, method, epsilon):
        ledger = Ledger.of(gaussian(z, PoissonSampling(q)), steps)
        assert account(ledger, 1e-5, relation, method).epsilon == pytest.approx(
            epsilon, abs=5e-3
        )

    def test_one_meaning_of_replace_one(self):
        # dp-accounting's own accountants say 4.73 (RDP) and 10.00 (PLD) of one event.
        ledger = Ledger.of(gaussian(1.0))
        pld = account(ledger, 1e-5, "replace-one", "pld").epsilon
        rdp = account(ledger, 1e-5, "replace-one", "rdp").epsilon
        assert exact_epsilon(2.0, 1e-5) == pytest.approx(pld, abs=1e-3)
        assert pld <= rdp <= 1.2 * pld


class TestLaws:
    @fewer
    @given(st.floats(0.8, 5), st.floats(1.01, 3), st.floats(0.01, 0.5))
    def test_more_noise_less_epsilon(self, z, more, q):
        def epsilon(multiplier):
            ledger = Ledger.of(gaussian(multiplier, PoissonSampling(q)), 10)
            return account(ledger, 1e-5).epsilon

        assert epsilon(z * more) <= epsilon(z) + 1e-6

    @fewer
    @given(
        st.lists(st.tuples(st.floats(1, 5), st.integers(1, 9)), min_size=2, max_size=4)
    )
    def test_order_does_not_matter(self, steps):
        def epsilon(steps):
            recorder = Recorder(1)
            for z, count in steps:
                recorder.record(0, gaussian(z, PoissonSampling(0.1)), count)
            return account(recorder.ledger(), 1e-5).epsilon

        assert epsilon(steps) == pytest.approx(epsilon(steps[::-1]), rel=1e-4)

    @pytest.mark.parametrize("delta", [1.0, -1.0, math.nan])
    def test_delta_is_checked(self, delta):
        with pytest.raises(ValueError, match="delta must be in"):
            account(Ledger.of(gaussian(1.0)), delta)

    def test_at_delta_0_gaussian_noise_has_no_finite_epsilon(self):
        assert account(Ledger.of(gaussian(1.0)), 0.0).epsilon == math.inf
        with pytest.raises(ValueError, match="delta must be in"):
            account(Ledger.of(gaussian(1.0)), 0.0, method="rdp")

    @pytest.mark.parametrize("kind", [np.float16, np.float32])
    @pytest.mark.parametrize("method", ["certified", "rdp", "gdp"])
    def test_numbers_of_a_shorter_kind_are_taken_as_they_are(self, kind, method):
        z, delta = kind(2.3), kind(0.01)
        sampling = NoSampling() if method == "gdp" else PoissonSampling(kind(0.3))
        same = NoSampling() if method == "gdp" else PoissonSampling(float(kind(0.3)))
        short = account(Ledger.of(gaussian(z, sampling), 40), delta, method=method)
        plain = Ledger.of(gaussian(float(z), same), 40)
        assert short == account(plain, float(delta), method=method)
        assert UpperBound.from_json(short.to_json()) == short

    def test_an_unknown_account_is_named(self):
        with pytest.raises(ValueError, match="choose one of"):
            account(Ledger.of(gaussian(1.0)), 1e-5, method="plf")

    def test_every_method_says_its_source(self):
        for name, method in METHODS.items():
            assert method.name == name
            assert len(method.source) > 10


def test_an_account_needs_no_torch():
    program = (
        "import sys; from privaudit.accounting import account, noise_multiplier;"
        "from privaudit.ledger import Ledger;"
        "assert 'torch' not in sys.modules and 'dp_accounting' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
