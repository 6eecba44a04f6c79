"""Plans whose steps all differ: brackets are narrow, and sound beside other ways."""

import math

import numpy as np
import pytest
from scipy import special

import privaudit as pa
from privaudit.accounting import account
from privaudit.accounting.plans import Plan
from privaudit.accounting.pld import compose_steps, grouping
from privaudit.accounting.pld.cells import Step
from privaudit.accounting.pld.dots import measure_below
from privaudit.accounting.pld.fourier import _Spectra
from privaudit.accounting.pld.mechanisms.noise import loss_cells
from privaudit.accounting.pld.mixture import Term, log_ratio


def quiet_and_loud():
    """100 steps, few of which decide: noise 7.16 to .583, rates about 5e-4."""
    r = np.random.default_rng(20261124)
    steps = int(r.choice([100, 1000, 5000]))
    first, last = np.exp(r.uniform(math.log(0.4), math.log(8), 2))
    rate, delta = 10 ** r.uniform(-4.5, -1), 10 ** r.uniform(-9, -4)
    noise = first * (last / first) ** (np.arange(steps) / steps)
    r.random()
    return noise, (rate * np.exp(r.normal(0, 0.3, steps))).clip(0, 0.3), delta


def drawn(seed, steps):
    r = np.random.default_rng(seed)
    first, last = np.exp(r.uniform(math.log(0.4), math.log(6), 2))
    noise = first * (last / first) ** r.random(steps)
    rate = 10 ** r.uniform(-4, -1.5) * np.exp(r.normal(0, 0.4, steps))
    return noise, rate.clip(1e-6, 1), 10 ** r.uniform(-9, -3)


class TestNarrow:
    def test_quiet_steps_do_not_open_the_bracket(self):
        noise, rate, delta = quiet_and_loud()
        found = pa.epsilon(delta=delta, schedule=np.stack([noise, rate], 1))
        assert found.lower <= 0.4863 * 1.0005  # dp-accounting's, rounded up
        assert found.upper >= 0.4862
        assert found.upper <= 1.01 * found.lower

    @pytest.mark.full
    def test_more_steps_open_it_no_more_than_the_loosest_part(self):
        noise, rate, delta = quiet_and_loud()
        quiet = np.argsort(-noise)[:60]
        loud = np.setdiff1d(np.arange(noise.size), quiet)
        whole = compose_steps(noise, rate).epsilon(delta)
        part = compose_steps(noise[loud], rate[loud]).epsilon(delta)
        assert whole.upper / whole.lower <= 1.001 * max(part.upper / part.lower, 1.01)
        # Left out, the quietest bound it from below; from above, each for itself.
        assert part.lower <= whole.upper
        ledger = Plan.from_table(np.stack([noise[quiet], rate[quiet]], 1)).ledger()
        rest = account(ledger, 0.01 * delta, method="rdp").epsilon
        most = compose_steps(noise[loud], rate[loud]).epsilon(0.99 * delta)
        assert whole.lower <= most.upper + rest
        assert whole.upper <= 1.02 * (most.upper + rest)

    @pytest.mark.sampled(9)
    @pytest.mark.parametrize("seed", range(6))
    def test_drawn_plans_are_as_narrow_as_asked(self, seed):
        noise, rate, delta = drawn(seed, 300)
        found = compose_steps(noise, rate).epsilon(delta, 0.01)
        assert found.upper <= 1.01 * found.lower or found.upper - found.lower < 1e-5

    def test_few_loud_steps_are_seen_from_below(self):
        """On a grid that is wide beside most of their losses."""
        shift, rate, spacing = 2.5, 1e-3, 0.05
        step = Step("gaussian", "poisson", shift, rate)
        offset = grouping._offset(step, grouping.Grid(spacing, 8.0))
        cells = loss_cells(step, "remove", spacing, 8.0, 1 << 19, offset)
        found = measure_below(cells, spacing)
        losses = (found.start + np.arange(found.mass.size)) * spacing + found.offset
        for epsilon in (-1e-5, 1e-6, 1e-3, 0.1, 1.0, 2.0, 4.0):
            excess = (math.expm1(epsilon) + rate) / rate
            true = 1 - math.exp(epsilon)
            if excess > 0:
                x = math.log(excess) / shift
                true = rate * (
                    special.ndtr(shift / 2 - x) - excess * special.ndtr(-shift / 2 - x)
                )
            seen = float(found.mass @ np.maximum(-np.expm1(epsilon - losses), 0))
            assert seen <= true * (1 + 1e-12)
            assert seen > 0.85 * true or epsilon < 0.1


class TestSound:
    @pytest.mark.sampled(4)
    @pytest.mark.parametrize("seed", range(8))
    def test_groups_agree_with_each_step_by_itself(self, seed, monkeypatch):
        """Coarse groups beside none at all; neither knows of the other."""
        noise, rate, delta = drawn(seed, 150)
        grouped = compose_steps(noise, rate).epsilon(delta, 0.3)
        monkeypatch.setattr(grouping, "_WORTH", 0.0)
        alone = compose_steps(noise, rate).epsilon(delta, 0.01)
        assert grouped.lower <= alone.upper
        assert alone.lower <= grouped.upper
        assert alone.lower > 0

    def test_logarithms_by_series_and_one_by_one(self):
        generator = np.random.default_rng(5)
        weights = generator.dirichlet([1.0, 1.0, 2.0], 40)[:, :2]
        counts = generator.integers(1, 4, 40).astype(float)
        term = Term((0, 1, 2), weights, counts)
        phase = np.exp(1j * np.linspace(0, 3, 50))
        spectra = [0.9 + 0.1 * phase, 0.8 + 0.2 * phase, 0.3 + 0.7 * phase**2]
        heads = np.array([1.0, 1.1, 1.3])
        found, error = log_ratio(term, spectra, heads, 1e-15)
        ratios = [
            h * s / spectra[0] for s, h in zip(spectra[1:], heads[1:], strict=True)
        ]
        rest = 1 - weights.sum(axis=1)
        inside = rest[:, None] + weights @ np.stack(ratios)
        whole = rest + weights @ heads[1:]
        true = np.prod((inside / whole[:, None]) ** counts[:, None], axis=0)
        assert np.abs(np.exp(found) / true - 1).max() < 1e-9
        assert error.max() < 1e-9

    def test_spectra_forget_what_no_term_wants(self):
        known = _Spectra([], np.zeros(0), 0.1, 1.0, 64)
        known.values = {0: np.ones(33, complex), 1: np.ones(33, complex)}
        known.wanted = np.array([0, 1])
        known.forget()
        known.keep(np.arange(33) < 5)
        assert list(known.values) == [1]
        assert known.size == 5


class TestTolerance:
    def test_a_small_epsilon_is_as_narrow_as_asked(self):
        plan = [(4.0, 1e-4, 100), (3.0, 2e-4, 100)]
        found = pa.epsilon(delta=1e-6, schedule=plan)
        assert found.upper - found.lower <= 1e-4
        assert found.reached
        near = pa.epsilon(delta=1e-6, schedule=plan, tolerance=0.0)
        assert near.upper <= 1.001 * near.lower
        assert found.lower <= near.upper
        assert near.lower <= found.upper

    def test_it_has_to_be_a_number_from_0_on(self):
        with pytest.raises(ValueError, match="tolerance must be >= 0"):
            pa.epsilon(delta=1e-6, noise_multiplier=1.0, tolerance=-1e-3)
