"""The certified account: never outside the truth, narrow, and lawful."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy import special

from privaudit.accounting.pld import (
    Composition,
    compose_entries,
    compose_steps,
    fourier,
    grouping_below,
)
from privaudit.accounting.pld.cells import Step
from privaudit.accounting.pld.closed_form import gaussian_delta, gaussian_epsilon
from privaudit.accounting.pld.dots import (
    GridMeasure,
    drop_concave_knots,
    measure_above,
    measure_below,
)
from privaudit.accounting.pld.fourier import Bundle, Tilted, _sizes, compose
from privaudit.accounting.pld.grouping import Group, bundle, groups_of
from privaudit.accounting.pld.grouping_below import bundle_below
from privaudit.accounting.pld.line import (
    log_normal_mass,
    sampled_loss,
    unsampled_loss,
)
from privaudit.accounting.pld.mechanisms import laplace
from privaudit.accounting.pld.mechanisms import noise as noises
from privaudit.accounting.pld.mechanisms.noise import loss_cells
from privaudit.accounting.pld.scout import log_peak
from privaudit.accounting.pld.targets import EpsilonAt
from privaudit.ledger import Entry
from privaudit.release import (
    NoSampling,
    PoissonSampling,
    Release,
    SamplingWithoutReplacement,
    Sensitivity,
)
from tests import reference as ref
from tests.tiers import size


def examples(number: int) -> settings:
    return settings(
        max_examples=size(number, -(-number // 4)), deadline=None, derandomize=True
    )


shifts = st.floats(0.05, 6.0)
rates = st.floats(0.001, 1.0)
epsilons = st.floats(0.0, 5.0)


def worst(steps, epsilon, exact):
    return max(exact(steps, epsilon, way) for way in ("remove", "add"))


def hockey_stick(measure, spacing, epsilon):
    losses = (measure.start + np.arange(measure.mass.size)) * spacing
    gain = np.clip(-np.expm1(np.minimum(epsilon - losses, 0)), 0, None)
    return float(measure.mass @ gain) + measure.infinite


class TestCells:
    @examples(50)
    @example(24.876210 + 3.846913, 0.0022669955940111536, 3.8469134687328594)
    @given(st.floats(-38, 38), st.floats(1e-9, 20), st.floats(-5, 5))
    def test_masses_are_relatively_exact(self, left, width, centre):
        right = left + width
        found = log_normal_mass(np.array([left, right]), centre)[0]
        low, high = ref.mp.mpf(left) - centre, ref.mp.mpf(right) - centre
        if low + high > 0:
            low, high = -high, -low
        with ref.mp.workdps(400):
            exact = ref.mp.log(ref.mp.ncdf(high) - ref.mp.ncdf(low))
        far = max(abs(left - centre), abs(right - centre))
        # The bound that the account allows for, at the output farthest out.
        assert abs(found - exact) <= 2.0**-53 * (1024 + 32 * far**2)

    def test_masses_of_laplace_noise_are_as_exact_as_is_said(self):
        edges, m = np.linspace(-19, 19, 99), 20.0
        *found, accuracy = laplace.masses(edges, *np.array([[[m]], [[1.0]]]), 8.0)
        x = [ref.mp.mpf(one) for one in (0.5 * (edges + m)).tolist()]
        with ref.mp.workdps(50):
            for (low, high), one, other in zip(
                itertools.pairwise(x), *(row[0, 1:-1] for row in found), strict=True
            ):
                true = ref.mp.log((ref.mp.exp(-low) - ref.mp.exp(-high)) / 2)
                moved = ref.mp.log((ref.mp.exp(high - m) - ref.mp.exp(low - m)) / 2)
                assert max(abs(one - true), abs(other - moved)) <= accuracy

    def test_rounding_under_a_tilt_is_counted(self):
        mass = np.zeros(7001)
        mass[[0, *range(5000, 7001)]] = 1.0, *10.0 ** -np.linspace(217, 304, 2001)
        found = Bundle.single(GridMeasure(0, mass, 0.0, 0.0), 1, 1.0, 0.1)
        with ref.mp.workdps(50):
            for i in range(5000, 7001, 7):
                true = ref.mp.mpf(mass[i]) * ref.mp.exp(i * ref.mp.mpf(0.1))
                value = ref.mp.mpf(found.mean[i]) * ref.mp.exp(found.base)
                assert abs(value / true - 1) <= found.accuracy < 1e-12

    @pytest.mark.parametrize("apart", [1, 1000])
    def test_a_knot_that_is_dropped(self, apart):
        """P and Q are kept, and all that was moved counts as what may be rounded."""
        mass, scale = np.zeros(2 * apart + 1), np.zeros(2 * apart + 1)
        mass[::apart] = np.array([1.0, -0.1, 1.0])
        scale[::apart] = np.abs(mass[::apart])
        drop_concave_knots(mass, scale, 0.5 / apart)
        assert not mass[1:-1].any()
        assert mass.sum() == pytest.approx(1.9)
        q = np.exp([0.0, -0.5, -1.0])
        assert mass[[0, -1]] @ q[[0, -1]] == pytest.approx(1 - 0.1 * q[1] + q[2])
        assert scale[::apart] == pytest.approx([1.1, 0.1, 1.1])

    @examples(50)
    @given(shifts, rates, st.sampled_from([0.5, 0.05, 0.004]), st.floats(-2, 5))
    def test_measures_enclose_the_profile(self, shift, rate, spacing, epsilon):
        step = Step("gaussian", "poisson", shift, rate)
        for way in ("remove", "add"):
            cells = loss_cells(step, way, spacing, 8.0, 1 << 19)
            exact = float(ref.sampled_gaussian_delta(shift, rate, epsilon, way))
            above = measure_above(cells, spacing)
            below = measure_below(cells, spacing)
            assert hockey_stick(above, spacing, epsilon) >= exact * (1 - 1e-11) - 1e-15
            if below is not None:
                assert (below.mass >= 0).all()
                value = hockey_stick(below, spacing, epsilon)
                assert value <= exact * (1 + 1e-11) + 1e-15

    @pytest.mark.parametrize("rate", [1 - 2**-53, 1 - 1e-12, 1 - 1e-6, 0.9, 0.3, 1e-6])
    def test_sampled_losses_are_where_they_are_said_to_be(self, rate):
        """As near as doubles tell losses apart, at rates next to 1 as well."""
        least = math.log1p(-rate) if rate < 1 - 1e-15 else -36.0
        losses = np.linspace(least, 3.0, 200)[1:]
        with ref.mp.workdps(60):
            for loss, inner in zip(losses, unsampled_loss(losses, rate), strict=True):
                true = ref.mp.log1p(rate * ref.mp.expm1(ref.mp.mpf(inner)))
                assert abs(true - loss) <= 2.0**-53 * (64 + 8 * abs(loss))
                again = sampled_loss(float(inner), rate)
                assert abs(again - true) <= 2.0**-53 * (64 + 8 * abs(loss))

    @pytest.mark.parametrize("noise", ["gaussian", "laplace"])
    def test_a_rate_next_to_1(self, noise):
        shift, rate = 9.17 if noise == "gaussian" else 34.0, 1 - 2**-53
        cells = loss_cells(Step(noise, "poisson", shift, rate), "add", 0.01, 8.0, 9000)
        above, below = measure_above(cells, 0.01), measure_below(cells, 0.01)
        for epsilon in (20.0, 30.28, 33.9, 33.95, 33.98, 35.0):
            with ref.mp.workdps(60):
                if noise == "gaussian":
                    exact = float(
                        ref.sampled_gaussian_delta(shift, rate, epsilon, "add")
                    )
                else:  # the outputs below x are those of larger losses
                    over = (ref.mp.exp(-epsilon) - (1 - rate)) / rate
                    x = (ref.mp.log(over) + shift) / 2 if over > 0 else -1
                    p = 1 - ref.mp.exp(-x) / 2
                    q = (1 - rate) * p + rate * ref.mp.exp(x - shift) / 2
                    exact = float(p - ref.mp.exp(epsilon) * q) if x >= 0 else 0.0
            upper = hockey_stick(above, 0.01, epsilon - 1e-11)
            assert upper >= exact * (1 - 1e-11)
            assert hockey_stick(below, 0.01, epsilon + 1e-11) <= exact * (1 + 1e-11)

    @pytest.mark.parametrize("scheme", ["poisson", "replace", "fixed"])
    @pytest.mark.parametrize("noise", ["gaussian", "laplace"])
    @pytest.mark.parametrize("way", ["remove", "add"])
    @pytest.mark.parametrize("apart", [False, True])
    def test_cells_of_a_group_enclose_each_step(
        self, noise, scheme, way, apart, monkeypatch
    ):
        """Any cells, at any epsilon, above and below; below all masses are positive."""
        if noise == "laplace" and scheme == "replace":
            return
        random, spacing, tilt = np.random.default_rng(0), 0.01, 1.5
        found = compose_steps(
            1 / random.uniform(0.5, 1.5, 9),
            random.uniform(0.01, 0.3, 9),
            random.integers(1, 4, 9),
            noise=noise,
            scheme=scheme,
        ).families[0]
        edges = 2 * np.unique([*random.integers(-150, 150, 40), -2000, 0, 2000])
        given = []

        def of(index, masses, counts, base, *others, **more):
            given.append((index * spacing, masses * math.exp(base)))
            return of_class(index, masses, counts, base, *others, **more)

        of_class = Bundle.of
        monkeypatch.setattr(Bundle, "of", of)
        monkeypatch.setattr(grouping_below, "_UNITS", (1,))
        group = Group(found, found, edges, apart)
        bundle(group, way, spacing, tilt, 9.0)
        under = bundle_below(group, way, spacing, tilt, 9.0)
        (losses, each), (knots, lower) = given
        assert (lower > -1e-15).all()
        assert (lower.sum(axis=1) > 0).all()
        columns = (found.shift, found.rate, 9.0)
        seen = noises.rows((noise, scheme), way, losses, *columns)
        counts = None if apart else found.count
        *_, offset = grouping_below._merged(seen, losses, counts, spacing)
        assert under.offset == pytest.approx(float(found.count @ offset), abs=1e-12)
        fine = [
            fine_cells(found.step(*pair), way)
            for pair in zip(found.shift, found.rate, strict=True)
        ]
        for epsilon in np.append(random.uniform(-2, 3, 20), losses[20:30]):
            drop = np.maximum(-np.expm1(epsilon - losses), 0)
            above = each * np.exp(-tilt * losses) @ drop
            exact = np.array([hockey_stick(cells, 4e-3, epsilon) for cells in fine])
            assert (above >= exact * (1 - 1e-4) - 1e-12).all()
            drop = np.maximum(-np.expm1(epsilon - knots - offset[:, None]), 0)
            below = lower * np.exp(-tilt * knots) * drop
            # The fine cells are above, by a little.
            assert (below.sum(axis=1) <= exact * (1 + 1e-9) + 1e-12).all()
            assert below.sum() >= 0.4 * above.sum() - 0.05

    @pytest.mark.parametrize("tilt", [5.0, 14.9, 60.0])
    def test_what_underflows_of_a_kind_is_none_of_it(self, tilt):
        """Beside a kind whose largest losses the tilt makes most of all."""
        family = compose_steps(np.array([0.2, 20.0]), 0.01).families[0]
        edges = 2 * np.unique(
            np.append([-1, 0], np.geomspace(1, 3500, 200).astype(int))
        )
        found = bundle(Group(family, family, edges, True), "remove", 0.01, tilt, 9.0)
        index, masses = found.masses
        assert (found.kinds is not None) == (tilt == 5)
        assert np.isfinite(found.base)
        # Of each kind as a share of what all are: the mean's, or their own.
        assert masses.sum(axis=1) @ found.counts == pytest.approx(found.steps)
        assert index is found.index

    def test_groups_hold_every_step_once(self):
        random = np.random.default_rng(1)
        family = compose_steps(
            random.uniform(0.3, 9, 999), random.uniform(1e-5, 1, 999)
        ).families[0]
        groups = groups_of(family)
        rows = [np.stack([g.shift, g.rate, g.count], 1) for g in groups]
        assert len(groups) <= 32
        whole = np.stack([family.shift, family.rate, family.count], 1)
        assert (
            np.unique(np.concatenate(rows), axis=0) == np.unique(whole, axis=0)
        ).all()
        assert sum(map(len, rows)) == 999


def fine_cells(step, way):
    """Masses from above on a grid so fine that what they add is nothing."""
    return measure_above(loss_cells(step, way, 4e-3, 9.0, 1 << 19), 4e-3)


class TestSums:
    """A composition's profile against that of the convolved masses, point by point."""

    @examples(60)
    @given(
        shifts,
        rates,
        st.sampled_from([0.3, 0.04, 0.01]),
        st.integers(1, 4),
        st.floats(-1.0, 1.0),
        st.floats(-3, 3),
        st.sampled_from([-1.0, -300.0]),
    )
    def test_every_epsilon(
        self, shift, rate, spacing, often, place, log_tilt, log_delta
    ):
        step = Step("gaussian", "poisson", shift, rate)
        cells = loss_cells(step, "remove", spacing, 8.0, 1 << 19)
        measure = measure_above(cells, spacing)
        mass = functools.reduce(np.convolve, [measure.mass] * often)
        whole = dataclasses.replace(
            measure,
            start=often * measure.start,
            mass=mass,
            infinite=0.0,
        )
        losses = (whole.start + np.arange(mass.size)) * spacing
        tilt = math.exp(log_tilt)
        guess = (
            Composition(compose_steps(1 / shift, rate, often).families)
            ._scout("remove")
            ._guess(tilt, 0.0, log_delta)
        )
        finite = dataclasses.replace(measure, infinite=0.0)
        found = compose([Bundle.single(finite, often, tilt, spacing)], spacing, guess)
        for epsilon in (
            place * float(losses[-1]),
            float(losses[mass.size // 2]),
            float(losses[0]) - 0.7,
            float(losses[-1]) + 0.7,
            0.0,
        ):
            direct = hockey_stick(whole, spacing, epsilon)
            low, high = found.delta_below(epsilon), found.delta_above(epsilon)
            assert low <= direct * (1 + 1e-12) + 1e-300
            assert min(direct, 1.0) <= high * (1 + 1e-12) + 1e-15
            # What may have left the window is all that is open, beside rounding, and
            # waves that are left out.
            log_peak_here = found.log_moment - tilt * epsilon + log_peak(tilt)
            room = (4 * math.exp(-18) + 1e-9) * math.exp(min(log_peak_here, 700))
            room += 5 * found.left * math.exp(min(log_peak_here, 700) - log_peak(tilt))
            assert high - low <= 1e-9 * direct + room + 1e-299

    @examples(200)
    @given(st.floats(-6, 6), st.floats(-9, 2), st.floats(-2, 2), st.integers(64, 999))
    def test_errors_count_in_the_euclidean_norm(self, tilt, spacing, place, points):
        """Whatever error of that norm, the one along g included."""
        tilt, spacing = 10.0**tilt, 10.0**spacing
        none = np.zeros(0, int), np.zeros(0, complex)
        found = Tilted(tilt, 0, 0, points, spacing, *none, 1.0, 0, 0, 0, 0)
        epsilon = place * points * spacing
        x = spacing * np.arange(points) - epsilon
        x = x[x > 0]
        g = np.exp(-tilt * x) * -np.expm1(-x)
        assert found._sum(epsilon)[1] >= float(np.linalg.norm(g)) * (1 - 1e-9)

    @pytest.mark.parametrize("sign", [-1e-6, 1e-6])
    def test_errors_of_transforms_are_counted(self, sign, monkeypatch):
        """Each off as far as it may be, all towards one loss."""
        plain = fourier._Transform.__call__

        def off(self, index, vectors):
            spectra, slip = plain(self, index, vectors)
            wave = np.exp(-2j * math.pi / self.points * (600 * self.live % self.points))
            return spectra + sign * wave, slip + 1e-6

        step, h = Step("gaussian", "poisson", 1.0, 0.1), 1e-3
        measure = measure_above(loss_cells(step, "remove", h, 8.0, 1 << 19), h)
        measure = dataclasses.replace(measure, infinite=0.0)
        guess = compose_steps(1.0, 0.1)._scout("remove")._guess(1.0, 0.5, -30.0)
        monkeypatch.setattr(fourier._Transform, "__call__", off)
        found = compose([Bundle.single(measure, 1, 1.0, h)], h, guess)
        direct = hockey_stick(measure, h, 0.5)
        assert found.delta_below(0.5) <= direct <= found.delta_above(0.5)
        assert found.delta_above(0.5) < 1.01 * found.delta_below(0.5)

    def test_waves_that_are_left_out_are_counted(self, monkeypatch):
        """Of two losses, whose transform is as large at high frequencies."""
        measure = GridMeasure(0, np.zeros(63), 0.0, 1e-16)
        measure.mass[[0, -1]] = 0.5
        monkeypatch.setattr(fourier, "LEFT_OUT", 0.05)
        guess = compose_steps(1.0, 0.1)._scout("remove")._guess(4.0, 0.1, -1.0)
        found = compose([Bundle.single(measure, 1, 4.0, 0.01)], 0.01, guess)
        assert 2 * found.index.size < found.points
        for epsilon in np.linspace(0.0, 0.6, 61).tolist():
            direct = hockey_stick(measure, 0.01, epsilon)
            assert found.delta_below(epsilon) <= direct <= found.delta_above(epsilon)

    @examples(200)
    @given(
        *(st.floats(-6, 6), st.floats(-9, 2), st.floats(-2, 2)),
        *(st.integers(64, 999), st.integers(0, 499), st.booleans()),
    )
    def test_errors_of_a_wave_count_as_much_as_it_does(
        self, tilt, spacing, place, points, wave, left
    ):
        """Of any phase, beside its size in a sum; of one that is left out as well."""
        tilt, spacing, wave = 10.0**tilt, 10.0**spacing, wave % (points // 2 + 1)
        none = np.zeros(0, int), np.zeros(0, complex)
        size = float(_sizes(points, (tilt * spacing, (1 + tilt) * spacing), wave))
        own = {"left": size, "apart": 0.0} if left else {"apart": size}
        found = Tilted(tilt, 0, 0, points, spacing, *none, 1e290, 0, 0, 0, 0, **own)
        epsilon = place * points * spacing
        j = np.arange(points)
        x = spacing * j - epsilon
        g = np.exp(-tilt * np.maximum(x, 0)) * -np.expm1(-np.maximum(x, 0))
        each = abs(g @ np.exp(2j * math.pi / points * (j * wave % points)))
        double = 1 if 2 * wave in (0, points) else 2
        assert found._sum(epsilon)[1] >= double / points * each * (1 - 1e-9) - 1e-15

    @examples(200)
    @given(
        st.floats(-6, 6),
        st.floats(-9, 2),
        st.floats(-1, 1),
        st.integers(64, 999),
        st.integers(0, 4),
        st.integers(0, 2**32),
    )
    def test_rounding_of_waves_is_counted(
        self, tilt, spacing, place, points, turning, seed
    ):
        """Waves of single precision, beside the bound for it."""
        tilt, spacing = 10.0**tilt, 10.0**spacing
        generator = np.random.default_rng(seed)
        index = np.unique([0, *generator.integers(0, points // 2, turning)])
        waves = generator.normal(size=(2, index.size)).T @ [1, 1j]
        waves[0] = waves[0].real
        whole = Tilted(tilt, 0, 0, points, spacing, index, waves, 0, 0, 0, 0, 0)
        short = dataclasses.replace(whole, waves=waves.astype(np.complex64))
        value, _ = whole._sum(place * points * spacing)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(fourier, "UNIT", 2.0**-24)
            found, off = short._sum(place * points * spacing)
        assert abs(found - value) <= off

    def test_many_waves_are_off_by_more_than_one_as_large(self):
        def off(waves):
            index = 1 + np.arange(waves.size)
            own = Tilted(1.0, 0, 0, 1 << 15, 1e-3, index, waves, 0, 0, 0, 0, 0)
            return own._sum(-1.0)[1]

        # By twice the root of how many there are: blocks, and what is in each.
        many, one = off(np.ones(10_000, complex)), off(np.full(1, 1e4 + 0j))
        assert many >= (136 + 200) / (136 + 4) * one

    def test_drift_moves_epsilon_and_delta_to_the_safe_side(self):
        size = 1 / 64 / math.expm1(-0.1) / math.expm1(-0.2)
        flat = np.zeros(1, int), np.array([size], complex)
        sure = Tilted(1.0, 0.0, 0, 64, 0.1, *flat, 0, 0, 0, 0, 0)
        drift = dataclasses.replace(sure, drift=0.05)
        above = sure.delta_above(0.95) * math.exp(0.05)
        below = sure.delta_below(1.05) * math.exp(-0.05)
        assert drift.delta_above(1.0) >= above * (1 - 1e-9)
        assert drift.delta_below(1.0) <= below * (1 + 1e-9)
        assert below > 0


class TestSound:
    @examples(50)
    @given(shifts, rates, epsilons)
    def test_one_step(self, shift, rate, epsilon):
        found = compose_steps(1 / shift, rate).delta(epsilon)
        with ref.mp.workdps(400):  # the closed form cancels down to the smallest delta
            exact = max(
                ref.sampled_gaussian_delta(shift, rate, epsilon, way)
                for way in ("remove", "add")
            )
        assert found.lower <= exact <= found.upper

    @examples(15)
    @given(shifts, rates, shifts, rates, st.floats(0, 3))
    def test_two_steps(self, one, q_one, two, q_two, epsilon):
        found = compose_steps([1 / one, 1 / two], [q_one, q_two]).delta(epsilon)
        steps = ((one, q_one), (two, q_two))
        with ref.mp.workdps(15):
            exact = float(worst(steps, epsilon, ref.two_steps_delta))
        assert found.lower <= exact * (1 + 1e-7)
        assert found.upper >= exact * (1 - 1e-7)

    @examples(50)
    @given(st.lists(st.floats(0.5, 500), min_size=1, max_size=5), st.floats(1e-40, 0.5))
    def test_gaussian_steps(self, multipliers, delta):
        found = compose_steps(multipliers).epsilon(delta)
        shift = math.sqrt(sum(z**-2 for z in multipliers))
        assert ref.gaussian_delta(shift, found.upper) <= delta * (1 + 1e-12)
        if found.lower > 0:
            assert ref.gaussian_delta(shift, found.lower) >= delta * (1 - 1e-12)

    @pytest.mark.parametrize("shift", [1e-10, 1e-14, 1e-15, 1e-16, 1e-30])
    @pytest.mark.parametrize("share", [0, 0.1, 3, 6])
    def test_gaussian_of_a_tiny_shift(self, shift, share):
        """The logs of both terms are then one number, and delta was 0."""
        found = gaussian_delta(shift, share * shift, 0.01)
        with ref.mp.workdps(100):
            exact = ref.gaussian_delta(shift, share * shift)
            assert found.lower <= exact <= found.upper
            delta = float(exact)
            upper = gaussian_epsilon(shift, delta, 0.01).upper
            assert ref.gaussian_delta(shift, upper) <= delta * (1 + 1e-12)

    @pytest.mark.parametrize("shift", [5e-324, 1e-308, 1e-200, 1e160])
    def test_gaussian_searches_end(self, shift):
        found = gaussian_epsilon(shift, 1e-20, 0.01)
        assert found.lower <= found.upper

    @examples(20)
    @given(st.floats(0.05, 8), st.floats(0, 6))
    def test_one_laplace_step(self, shift, epsilon):
        found = compose_steps(1 / shift, noise="laplace").delta(epsilon)
        assert found.lower <= ref.laplace_delta(shift, epsilon) <= found.upper

    @examples(15)
    @given(
        st.lists(
            st.tuples(st.floats(0.5, 4), st.floats(0.005, 1), st.integers(1, 40)),
            min_size=1,
            max_size=3,
        ),
        st.floats(1e-8, 1e-2),
        st.sampled_from(["gaussian", "laplace"]),
    )
    def test_against_dp_accounting_from_both_sides(self, steps, delta, noise):
        from dp_accounting.pld import privacy_loss_distribution as pld

        make = {
            "gaussian": pld.from_gaussian_mechanism,
            "laplace": pld.from_laplace_mechanism,
        }[noise]
        z, q, n = zip(*steps, strict=True)
        found = compose_steps(z, q, n, noise=noise).epsilon(delta)
        for pessimistic in (True, False):
            total = pld.identity(1e-3, pessimistic)
            for multiplier, rate, count in steps:
                total = total.compose(
                    make(
                        multiplier,
                        value_discretization_interval=1e-3,
                        pessimistic_estimate=pessimistic,
                        sampling_prob=rate,
                    ).self_compose(count)
                )
            theirs = total.get_epsilon_for_delta(delta)
            if pessimistic:
                assert found.lower <= theirs + 1e-6
            else:
                assert found.upper >= theirs - 1e-6

    @pytest.mark.parametrize(
        ("delta", "epsilon"),
        [(1e-5, 6.1877), (1e-12, 10.3467), (1e-20, 13.880), (1e-30, 17.635)],
    )
    def test_small_delta(self, delta, epsilon):
        found = compose_steps(1.0, 0.01, 10_000).epsilon(delta, 1e-3)
        assert found.reached
        assert found.lower <= epsilon * (1 + 5e-5)
        assert found.upper >= epsilon * (1 - 5e-5)

    @pytest.mark.sampled(2)
    @pytest.mark.parametrize(
        ("noise", "rate", "steps", "delta"),
        [
            (0.3, 1e-6, 10**7, 1e-5),
            (0.05, 0.01, 1000, 1e-5),
            pytest.param(0.005, 0.01, 1000, 1e-5, marks=pytest.mark.full),
            (1000.0, 0.01, 10**9, 1e-5),
            (1.0, 0.01, 1, 1e-30),
            (1.0, 0.01, 1, 0.9),
            (1e6, 0.1, 10, 1e-5),
            (1e-3, 0.1, 10, 1e-5),
            pytest.param(0.1, 1e-12, 1000, 1e-5, marks=pytest.mark.full),
            (1.0, 1 - 1e-12, 10, 1e-5),
            (2.0, 0.01, 10**5, 1e-15),
            (1e-3, 1e-25, 1000, 1e-5),  # a spacing above 709
        ],
    )
    def test_extremes_answer(self, noise, rate, steps, delta):
        found = compose_steps(noise, rate, steps).epsilon(delta)
        assert 0 <= found.lower <= found.upper
        assert not math.isnan(found.upper)

    @pytest.mark.sampled(7)
    @pytest.mark.parametrize("scheme", ["poisson", "replace", "fixed"])
    @pytest.mark.parametrize("rate", [1e-300, 1e-12, 1e-3, 1.0])
    def test_noise_far_from_any_grid(self, scheme, rate):
        """Too little or too much to be told apart ended in nan, or in 1e10 for 0."""
        found = [
            compose_steps(z, rate, 10, scheme=scheme).epsilon(1e-5)
            for z in (5e-324, 1e-200, 1e-50, 1e-6, 1.0, 1e6, 1e9, 1e200, 1e308)
        ]
        uppers = [bracket.upper for bracket in found]
        for more, less in itertools.pairwise(uppers):
            assert less <= more + 1e-5
        assert uppers[-1] < 1e-5
        assert all(bracket.lower <= bracket.upper for bracket in found)

    def test_laplace_far_from_any_grid(self):
        """A spacing whose square is 0 was divided by; all of these are about 0."""
        for noise in (1e50, 1e100, 1e200, 1e300):
            found = compose_steps(noise, 1e-30, 3, noise="laplace").epsilon(1e-9)
            assert found.lower == 0
            assert found.upper < 1e-9

    def test_a_window_far_shorter_than_its_tilt(self):
        """Two long sums were taken from another, and delta at most 1 was all."""
        found = compose_steps(46.5, 1.7e-19, 3, noise="laplace").delta(0.0)
        assert found.upper < 1e-11  # it was 1

    def test_a_rate_far_from_any_grid(self):
        rarer = compose_steps(1.0, 1e-40, 10).epsilon(1e-9)
        assert rarer.lower == 0
        assert rarer.upper < 0.02  # it was 640

    def test_realised_bound_of_fixed_size_lies_below(self):
        found = compose_steps(1.0, 0.01, 100, scheme="fixed").epsilon(1e-5)
        one_way = compose_steps(1.0, 0.01, 100).epsilon(1e-5, 1e-3)
        assert found.lower <= one_way.upper
        assert found.upper >= one_way.lower

    def test_records_that_differ_by_less_than_they_measure(self):
        """Under replace-one: the account is of opposite ones, which are not attained.

        Of all pairs u, v with |u| <= 1 and |u - v| <= 0.2, in cells of the line, none
        is above the upper side; the lower side is at most what the batches that hold
        the record give (convexity), and not below the pair at -0.1 and 0.1.
        """
        rate, epsilon = 0.3, 0.02
        small = Release(
            mechanism="gaussian",
            norm_bound=1.0,
            noise=1.0,
            sensitivity=Sensitivity(replace_one=0.2),
            sampling=PoissonSampling(rate),
        )
        found = compose_entries([Entry(small)], "replace-one").delta(epsilon)
        edges = np.linspace(-10, 10, 4001)

        def masses(u):
            normal = np.diff(special.ndtr(edges))
            return (1 - rate) * normal + rate * np.diff(special.ndtr(edges - u))

        def attained(u, v):
            gap = masses(u) - math.exp(epsilon) * masses(v)
            return float(np.maximum(gap, 0).sum())

        ends = np.linspace(0.2, 1, 9)
        pairs = [(u, u - 0.2) for u in ends] + [(u - 0.2, u) for u in ends]
        assert max(attained(u, v) for u, v in pairs) <= found.upper
        assert found.lower <= rate * float(ref.gaussian_delta(0.2, epsilon))
        assert found.lower >= 0.97 * attained(0.1, -0.1)


def test_what_is_no_number_is_on_the_safe_side():
    class Unknown:
        tilt, surely_infinite = 5.0, 0.0

        def delta_above(self, epsilon):
            return math.nan

        delta_below = delta_above

    guess = compose_steps(1.0, 0.1)._scout("remove")._guess(5.0, 1.0, -11.5)
    assert EpsilonAt(1e-5, 1e-3).upper(Unknown(), guess) == math.inf
    assert EpsilonAt(1e-5, 1e-3).lower(Unknown(), guess) == 0


class TestTight:
    def test_homogeneous(self):
        found = compose_steps(1.0, 0.01, 10_000).epsilon(1e-5, 1.6e-4)
        # By an inversion of 25 digits; dp-accounting's 6.1877 is rounded.
        assert found.lower <= 6.187712395 <= found.upper
        assert found.upper - found.lower <= 1e-3

    @pytest.mark.sampled(2)
    @pytest.mark.parametrize("width", [1e-2, 1e-3])
    def test_heterogeneous(self, width):
        shift = 0.8 * (1 / 0.3) ** (np.arange(1, 10_001) / 10_000)
        found = compose_steps(1 / shift, 1 / 2500).epsilon(1e-4, width)
        assert found.reached
        assert found.lower <= 3.804603 <= found.upper  # by a contour integral
        assert found.upper <= (1 + width) * found.lower

    def test_unsampled_gaussian_is_exact(self):
        found = compose_steps(1000.0, 1.0, 10**6).epsilon(1e-6)
        assert found.upper - found.lower < 1e-9
        assert found.upper == pytest.approx(4.88655, abs=1e-5)

    def test_laplace(self):
        found = compose_steps(10.0, 1.0, 100, noise="laplace").epsilon(1e-6, 1e-3)
        assert found.lower <= 4.69271
        assert found.upper >= 4.69265
        assert found.upper <= 1.001 * found.lower

    @pytest.mark.parametrize(("z", "epsilon"), [(2.0, 9.43), (5.0, 3.21)])
    def test_replace_one(self, z, epsilon):
        found = compose_steps(z, 256 / 6000, 2000, scheme="replace").epsilon(1e-5)
        assert found.lower <= epsilon * 1.001
        assert found.upper >= epsilon * 0.999
        assert found.upper <= 1.01 * found.lower


class TestLaws:
    @examples(15)
    @given(st.floats(0.5, 5), st.floats(0.001, 1), st.integers(1, 3000))
    def test_more_noise_and_fewer_steps_cost_less(self, z, q, n):
        base = compose_steps(z, q, n).epsilon(1e-6)
        assert compose_steps(1.3 * z, q, n).epsilon(1e-6).lower <= base.upper
        assert compose_steps(z, q, 2 * n).epsilon(1e-6).upper >= base.lower
        assert compose_steps(z, q, n).epsilon(1e-7).upper >= base.lower

    def test_order_does_not_matter_and_bits_repeat(self):
        z, q = [1.0, 2.0, 0.7, 1.0], [0.1, 0.2, 0.05, 0.1]
        one = compose_steps(z, q, [3, 1, 2, 4]).epsilon(1e-6)
        two = compose_steps(z[::-1], q[::-1], [4, 2, 1, 3]).epsilon(1e-6)
        assert one == two

    def test_no_step_costs_nothing(self):
        for found in (
            compose_steps(1.0, 0.0, 10),
            compose_steps(1.0, 0.5, 0),
            compose_entries((), "replace-one"),
        ):
            assert found == Composition(())
            assert found.epsilon(1e-6).upper == 0
            assert found.delta(0.0).upper == 0

    def test_profile_and_epsilon_agree(self):
        composition = compose_steps([1.0, 2.0], [0.1, 0.3], [50, 20])
        epsilon = composition.epsilon(1e-5)
        assert composition.delta(epsilon.lower).upper >= 1e-5
        assert composition.delta(epsilon.upper).lower <= 1e-5

    @pytest.mark.parametrize("relation", ["add-or-remove-one", "replace-one"])
    def test_entries_mean_what_the_ledger_says(self, relation):
        release = Release.of_sum(
            norm_bound=3.0, noise_multiplier=2.0, sampling=NoSampling()
        )
        found = compose_entries([Entry(release, 4)], relation).epsilon(1e-5)
        unit = 1 if relation == "add-or-remove-one" else 2
        assert found == compose_steps(2.0 / unit, 1.0, 4).epsilon(1e-5)

    def test_sampled_entries_under_replace_one(self):
        poisson = Release.of_sum(
            norm_bound=3.0, noise_multiplier=2.0, sampling=PoissonSampling(0.1)
        )
        fixed = Release.of_sum(
            norm_bound=3.0,
            noise_multiplier=2.0,
            sampling=SamplingWithoutReplacement(10, 100),
        )
        for release, scheme, z in ((poisson, "replace", 2.0), (fixed, "fixed", 1.0)):
            found = compose_entries([Entry(release, 4)], "replace-one")
            assert found.epsilon(1e-5) == compose_steps(
                z, 0.1, 4, scheme=scheme
            ).epsilon(1e-5)
        with pytest.raises(ValueError, match="replace-one"):
            compose_entries([Entry(fixed)], "add-or-remove-one")

    @pytest.mark.parametrize("scheme", ["poisson", "fixed"])
    def test_losses_beyond_the_exponential_are_bounded(self, scheme):
        # Grid points further apart than the logarithm of the largest double.
        found = compose_steps(1e-4, 1e-12, 10**4, scheme=scheme)
        assert found.epsilon(1e-9).lower <= found.epsilon(1e-9).upper
        assert found.delta(1.0).upper > 1e-9

    @pytest.mark.full
    @pytest.mark.filterwarnings("error")
    def test_different_steps_of_little_noise_are_bounded(self):
        """Their moments overflow; a record is hidden only while no batch holds it."""
        bracket = compose_steps(np.geomspace(0.02, 0.06, 20), 4e-4).delta(0.0)
        assert (
            bracket.lower <= -math.expm1(20 * math.log1p(-4e-4)) <= bracket.upper <= 1
        )

    def test_wrong_arguments_say_what_is_allowed(self):
        composition = compose_steps(1.0, 0.1)
        with pytest.raises(ValueError, match="delta must be in"):
            composition.epsilon(0.0)
        with pytest.raises(ValueError, match="width must be in"):
            composition.epsilon(1e-5, 0.0)
        with pytest.raises(ValueError, match="epsilon must be"):
            composition.delta(-1.0)
        with pytest.raises(ValueError, match="noise multipliers"):
            compose_steps(0.0)
        with pytest.raises(ValueError, match="whole numbers"):
            compose_steps(1.0, 0.5, 1.5)
        with pytest.raises(ValueError, match="sampling rates"):
            compose_steps(1.0, 1.5)


class TestAccountant:
    def test_calibration(self):
        import dp_accounting as dpa

        from privaudit.accounting.accountant import CertifiedAccountant

        def event(z):
            return dpa.SelfComposedDpEvent(
                dpa.PoissonSampledDpEvent(256 / 60000, dpa.GaussianDpEvent(z)), 2000
            )

        z = dpa.calibrate_dp_mechanism(CertifiedAccountant, event, 1.0, 1e-5, tol=1e-4)
        assert z == pytest.approx(1.0080, abs=1.5e-3)
        accountant = CertifiedAccountant().compose(event(z))
        assert accountant.get_epsilon(1e-5) <= 1.0
        assert accountant.get_delta(1.0) <= 1.01e-5

    def test_refuses_what_it_cannot_account(self):
        import dp_accounting as dpa

        from privaudit.accounting.accountant import CertifiedAccountant

        accountant = CertifiedAccountant()
        fixed = dpa.SampledWithoutReplacementDpEvent(100, 10, dpa.GaussianDpEvent(1.0))
        assert not accountant.supports(fixed)
        assert not accountant.supports(dpa.UnsupportedDpEvent())
        assert accountant.compose(dpa.NoOpDpEvent()).get_epsilon(1e-5) == 0
        assert accountant.compose(dpa.GaussianDpEvent(0)).get_epsilon(1e-5) == math.inf
