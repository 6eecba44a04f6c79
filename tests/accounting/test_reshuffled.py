"""Contract of shuffled batches that are drawn anew: from both sides."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

import privaudit as pa
from privaudit.accounting import gdp
from privaudit.accounting.pld.allocation_shuffled import (
    _lost,
    _missing,
    numbers_of_alike,
)
from privaudit.ledger import Ledger
from privaudit.release import RandomAllocation, Release
from tests.tiers import examples


def passes(noise, batches, often=1):
    release = Release.of_sum(
        norm_bound=1.0,
        noise_multiplier=noise,
        sampling=RandomAllocation(batches, shuffled=True),
    )
    return pa.Certificate.of(Ledger.of(release, batches * often))


def drawn(noise, batches, other, epsilon, record, draws=20_000):
    """delta of ``record`` for its opposite among others like ``other``; deviation."""
    r = np.random.default_rng(0)
    x = other + noise * r.standard_normal((draws, batches))
    x[:, 0] += record - other
    ratio = [
        np.exp(((x - other) ** 2 - (x - one) ** 2) / (2 * noise**2)).sum(1)
        for one in (record, -record)
    ]
    gain = np.maximum(0, 1 - math.exp(epsilon) * ratio[1] / ratio[0])
    return gain.mean(), gain.std() / math.sqrt(draws)


class TestSound:
    @pytest.mark.sampled(3)
    @pytest.mark.parametrize("noise", [1.0, 2.5])
    @pytest.mark.parametrize("others", [(1, 1), (1, -1), (0, 0), (-1, 0.5)])
    def test_never_below_all_orders_of_three_records(self, noise, others):
        one = passes(noise, 3)
        x = np.linspace(-9 * noise, 9 * noise, 61)
        laws = {
            v: stats.norm.pdf(x, v, noise) * (x[1] - x[0]) for v in {1, -1, *others}
        }
        p, q = (
            np.mean(
                [
                    np.einsum("i,j,k->ijk", *(laws[v] for v in order))
                    for order in itertools.permutations((record, *others))
                ],
                axis=0,
            )
            for record in (1, -1)
        )
        for epsilon in (0.1, 0.5, 1.5):
            truth = np.maximum(p - math.exp(epsilon) * q, 0).sum()
            found = one.delta(epsilon)
            assert found.upper >= truth * (1 - 1e-9)

    @pytest.mark.sampled(2)
    @pytest.mark.parametrize("other", [-1.0, 0.0, 1.0])
    @pytest.mark.parametrize(("noise", "batches"), [(4.0, 60), (2.0, 300)])
    def test_draws_lie_below(self, noise, batches, other):
        one = passes(noise, batches)
        for epsilon in (0.02, 0.1):
            found = one.delta(epsilon)
            both = [drawn(noise, batches, other, epsilon, one) for one in (1, -1)]
            truth, off = max(both)
            assert found.upper >= truth - 5 * off
            if other:
                assert 0.9 * truth - 5 * off <= found.lower <= truth + 5 * off

    @given(st.floats(0.05, 2), st.floats(0, 8))
    @examples(30)
    def test_what_a_law_falls_short_of_nobodys(self, shift, log_q):
        x = np.linspace(-12.0, 12.0, 40_001)
        nobody, record = stats.norm.pdf(x), stats.norm.pdf(x, shift)
        short = np.maximum(nobody * math.exp(-log_q) - record, 0).sum() * (x[1] - x[0])
        assert _missing(shift, log_q) >= short * (1 - 1e-3) - 1e-12
        assert _missing(shift, log_q) <= short * (1 + 1e-3) + 1e-12

    @given(st.floats(0.1, 1), st.integers(2, 3000), st.floats(0, 8))
    @examples(30)
    def test_no_threshold_loses_more(self, shift, batches, log_q):
        each = (batches - 1) * _missing(shift, log_q)
        lost = _lost(shift, batches, log_q)
        for at in np.linspace(0, 20, 101).tolist():
            apart = float(gdp.delta(2 * shift, at))
            assert min(each * (1 + math.exp(at)), apart) <= lost * (1 + 1e-9)

    @given(st.floats(0.1, 1), st.integers(2, 3000), st.integers(4, 14))
    @examples(30)
    def test_numbers_are_no_more_than_there_are(self, shift, batches, digits):
        found, lost = numbers_of_alike(shift, batches, 10.0**-digits)
        low, high = 0.0, 60.0
        for _ in range(80):
            middle = (low + high) / 2
            enough = _lost(shift, batches, middle) <= 10.0**-digits
            low, high = (low, middle) if enough else (middle, high)
        assert lost <= 10.0**-digits
        chance = math.exp(-high) / (1 + _missing(shift, high))
        numbers, chances = map(np.array, zip(*found, strict=True))
        assert sum(chances) == pytest.approx(1, abs=1e-8)
        assert (chances > 0).all()
        for number in numbers[1:].tolist():  # at least as often below it
            fewer = stats.binom.cdf(number - 2, batches - 1, chance)
            assert chances[numbers < number].sum() >= fewer * (1 - 1e-10)


class TestTight:
    def test_much_noise_is_hidden_among_others(self):
        run = {"noise_multiplier": 4.0, "delta": 1e-5, "sampling_rate": 0.01}
        found, known = (
            pa.epsilon(**run, steps=100, sampling=how)
            for how in ("reshuffled", "shuffled")
        )
        assert 0.9 * known.lower < found.lower <= known.lower
        assert found.upper < 0.41 < 1.99 < known.upper

    def test_delta_is_as_narrow_as_epsilon(self):
        one = passes(4.0, 100)
        at = one.epsilon(1e-6).upper
        assert one.delta(at).upper <= 1.2e-6
        assert one.delta(0.8).upper < one.delta(0.6).upper < 1e-6

    @pytest.mark.parametrize(
        ("batches", "least", "most"),
        [(2, 0.9, 1.0), pytest.param(10, 0.5, 0.9, marks=pytest.mark.full)],
    )
    def test_noise_for_a_budget(self, batches, least, most):
        asked = {"delta": 1e-3, "sampling_rate": 1 / batches, "steps": batches}
        found = pa.noise_multiplier(epsilon=1, sampling="reshuffled", **asked)
        known = pa.noise_multiplier(epsilon=1, sampling="shuffled", **asked)
        assert least * known < found <= most * known * 1.001

    @pytest.mark.parametrize("noise", [1e6, 1e12, 1e300])
    def test_next_to_nothing_is_told_with_any_noise(self, noise):
        with np.errstate(all="raise", under="ignore"):
            found = passes(noise, 10).epsilon(1e-13)
        assert found.lower <= found.upper <= gdp.epsilon(2 / noise, 1e-13) + 1e-9

    def test_with_little_noise_the_order_is_known(self):
        found, known = passes(0.7, 100).epsilon(1e-5), 2 / 0.7
        assert found.upper == pytest.approx(gdp.epsilon(known, 1e-5), rel=1e-6)


class TestLaws:
    def test_a_record_is_in_one_batch(self):
        with pytest.raises(ValueError, match="leave taken at 1"):
            RandomAllocation(4, 2, shuffled=True)
        with pytest.raises(ValueError, match="leave taken at 1"):
            RandomAllocation(4, shuffled=False)

    def test_laplace_noise_has_no_amplification(self):
        release = Release.of_sum(
            norm_bound=1.0,
            noise_multiplier=8.0,
            sampling=RandomAllocation(50, shuffled=True),
            mechanism="laplace",
        )
        found = pa.epsilon(ledger=Ledger.of(release, 50), delta=0.0)
        assert found.upper == pytest.approx(0.25)

    def test_one_record_more_has_no_meaning(self):
        with pytest.raises(ValueError, match="fixed size"):
            pa.epsilon(
                ledger=passes(4.0, 10).ledger, delta=1e-5, relation="add-or-remove-one"
            )

    def test_a_ledger_comes_back(self):
        ledger = passes(4.0, 10, often=2).ledger
        assert Ledger.from_json(ledger.to_json()) == ledger
        assert '"shuffled"' in ledger.to_json()
