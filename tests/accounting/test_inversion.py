"""Profiles by inversion: log moments and deltas against high precision, and bounds."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from privaudit.accounting.pld import compose_steps, composition
from privaudit.accounting.pld.composition import Composition, _Search
from privaudit.accounting.pld.grouping import Family
from privaudit.accounting.pld.inversion import (
    Chernoff,
    Inverted,
    _Decay,
    _part,
    _spreads,
    invert,
)
from privaudit.accounting.pld.moments import (
    Orders,
    TooHard,
    _log1p,
    _majorant,
    _Nodes,
    _Weight,
    log_moments,
    most_log_moment,
)
from privaudit.accounting.pld.targets import EpsilonAt
from tests.reference import mp


def family(noise, rate, count=1.0) -> Family:
    z, q, n = np.broadcast_arrays(np.asarray(noise, float), rate, count)
    return Family.of(
        "gaussian", "poisson", 1 / z.ravel(), q.ravel(), n.ravel().astype(float)
    )


def exact(shift: float, rate: float, order: complex) -> complex:
    """log psi by a trapezoidal rule of 30 digits that is far too fine."""
    m, q = mp.mpf(shift), mp.mpf(rate)
    s = mp.mpc(order.real, order.imag)
    h = min(m, mp.mpf(1)) / 12
    far = int((16 * m + max(order.real, 1) * m * m) / h)
    with mp.workdps(30):
        return mp.log(
            mp.fsum(
                mp.npdf(k * h, -m * m / 2, m) * h * (1 - q + q * mp.exp(k * h)) ** s
                for k in range(-far, far)
            )
        )


def nearly(shift: float, rate: float, orders: np.ndarray) -> np.ndarray:
    """The same by doubles, to 1e-12."""
    g = np.arange(-4000, 4001) * 0.01
    mass = 0.01 / shift / np.sqrt(2 * np.pi)
    mass = mass * np.exp(-0.5 * (g / shift + shift / 2) ** 2)
    return np.log(np.exp(orders[:, None] * np.log1p(rate * np.expm1(g))) @ mass)


def inverted(composition: Composition, way, delta: float, width: float) -> Inverted:
    scout = composition._scout(way)
    guess = EpsilonAt(delta, width).guess(scout)
    found = invert(composition.families, way, scout, guess, 1e-3 * width)
    assert found is not None
    return found


class TestMoments:
    @pytest.mark.parametrize("seed", range(6))
    def test_one_step_is_within_its_error(self, seed):
        rng = np.random.default_rng(seed)
        shift, rate = 10 ** rng.uniform(-2, 0.1), 10 ** rng.uniform(-4, -1)
        real = rng.choice([1 + rng.uniform(0.1, 6), -rng.uniform(0.1, 6)])
        orders = real + 1j * np.array([0.0, 0.7, 5.0, 20.0])
        value, error = log_moments(
            family(1 / shift, rate), orders, np.full(orders.size, 1e-9)
        )
        assert (error < 1e-8).all()
        for found, off, order in zip(value, error, orders, strict=True):
            assert abs(mp.mpc(found) - exact(shift, rate, order)) <= off + 1e-25

    def test_tiny_moments_keep_their_digits(self):
        """For a thousand million steps."""
        orders = np.array([14.0 + 0j, 14.0 + 20j])
        value, error = log_moments(family(1000.0, 0.01), orders, np.full(2, 1e-17))
        for found, off, order in zip(value, error, orders, strict=True):
            assert off < 1e-14
            assert abs(mp.mpc(found) - exact(1e-3, 0.01, order)) <= off

    @pytest.mark.parametrize(
        ("noise", "rate", "aim"),
        [(20.4, 0.0025, 1e-9), (84.0, 4e-4, 1e-8), (39.0, 2e-4, 1e-3)],
    )
    def test_many_orders_are_within_their_error(self, noise, rate, aim):
        """Of a step that hardly moves, where others make |exp(K)| fall."""
        orders = 4.0 + 1j * np.arange(20.0)
        value, error = log_moments(family(noise, rate), orders, np.full(20, aim))
        for i in (0, 3, 19):
            assert abs(mp.mpc(value[i]) - exact(1 / noise, rate, orders[i])) <= error[i]

    def test_log_of_almost_nothing(self):
        """Whose squared modulus is lost beside 1."""
        for z in (-1 + 3e-9 + 4e-9j, -0.9 + 0.001j, 1e-9 + 1e-5j, 3.0 - 2j, -0.4 + 2j):
            found = complex(_log1p(np.array([z]))[0])
            off = 2e-16 * (1 + 1 / abs(1 + z)) * min(abs(z), 1.0)
            assert abs(mp.mpc(found) - mp.log(1 + mp.mpc(z))) <= 8 * off

    @pytest.mark.parametrize("scale", [1.0, 10.0])
    def test_interpolation_is_within_its_error(self, scale):
        rng = np.random.default_rng(7)
        noise = rng.uniform(0.7, 1.6, 60)
        rate = rng.uniform(1e-3, 4e-3, 60)
        one = family(noise, rate)
        orders = 2.5 + 1j * np.linspace(0, 3, 4) * scale
        value, error = log_moments(one, orders, np.full(4, 1e-5))
        assert (error < 1e-3).all()
        truth = sum(nearly(1 / z, q, orders) for z, q in zip(noise, rate, strict=True))
        assert (np.abs(value - truth) <= error + 1e-11).all()

    @pytest.mark.parametrize("kind", ["strip", "shift", "rate"])
    def test_majorants_are_above_off_the_real_line(self, kind):
        """The integral of the modulus itself; at best they are within a third of it."""
        rng = np.random.default_rng(5)
        shares = []
        for _ in range(60):
            m, q = 10 ** rng.uniform(-2, 0.3), 10 ** rng.uniform(-4, -0.15)
            real = rng.choice(
                [1 + 10 ** rng.uniform(-1, 1), -(10 ** rng.uniform(-1, 1))]
            )
            s = complex(real, 10 ** rng.uniform(-1, 2))
            orders = Orders.of(np.array([s]), np.ones(1))
            angle, strip, turn = rng.choice([0.03, 0.2, 0.6]), 0.0, 1.0 + 0.0j
            if kind == "strip":
                strip = rng.choice([0.1, 0.3, 0.8]) * min(1.0, 6 * m)
                most = _majorant(_Weight.of(m, m), orders, q, strip)[0]
                most *= np.exp(0.5 * (strip / m) ** 2)
            elif kind == "shift":
                most = _majorant(_Weight.of(m, m, angle), orders, q)[0]
                turn = np.exp(1j * angle)
            else:
                most = _majorant(_Weight.of(m, m), orders, q, angle=angle)[0]
                q = q * np.exp(1j * angle)
            m = m * turn
            size = abs(m)
            far = (size**2 * (max(real, 0) + 3) + 16 * size) / np.cos(2 * angle)
            x = np.linspace(-far - 2 * size**2, 1.5 * far, 8001)
            for g in (x + 1j * strip, x - 1j * strip):
                ratio = q * np.expm1(g)
                with np.errstate(over="ignore", invalid="ignore"):
                    plain = np.expm1(s * np.log(1 + ratio))
                    mass = np.exp(-0.5 * (g / m + m / 2) ** 2)
                found = min(
                    np.nansum(np.abs(f * mass)) * (x[1] - x[0]) / (2.5066283 * size)
                    for f in ((plain - s * ratio, plain)[: 1 if strip else 2])
                )
                assert found <= most + 1e-13 * abs(s)
                shares.append(found / most)
        assert max(shares) > 0.67

    @pytest.mark.parametrize("order", [2.5, -3.0, 4.0 + 6.0j])
    def test_interpolants_are_within_their_remainders(self, order):
        """Of few nodes, so that the remainder is no rounding."""
        orders = Orders.of(np.array([order + 0j]), np.full(1, 10.0))
        values = np.geomspace(0.5, 0.8, 41)
        weight = _Weight.of(1.0, 1.0)
        for moved, majorant, psi in (
            (
                values,
                lambda angle, a, b: _majorant(_Weight.of(a, b, angle), orders, 0.02),
                lambda m: nearly(m, 0.02, orders.s)[0],
            ),
            (
                values / 20,
                lambda angle, _, b: _majorant(weight, orders, b, angle=angle),
                lambda q: nearly(1.0, q, orders.s)[0],
            ),
        ):
            nodes = _Nodes.of(moved, orders, majorant)
            found = nodes.weights @ np.array([psi(one) for one in nodes.points])
            off = np.abs(found - np.array([psi(one) for one in moved])).max()
            assert 1e-5 * nodes.error[0] <= off <= nodes.error[0]
            assert np.abs(nodes.weights).sum(axis=1).max() <= nodes.norm
            assert off > 1e-9

    @pytest.mark.parametrize("order", [3.0, -2.0])
    def test_quick_bounds_are_above(self, order):
        rng = np.random.default_rng(3)
        many = family(rng.uniform(0.6, 1.5, 400), rng.uniform(1e-3, 4e-3, 400))
        value, error = log_moments(many, np.array([order + 0j]), np.array([1e-6]))
        most = most_log_moment(many, order)
        assert value[0].real - error[0] <= most <= 1.1 * value[0].real

    def test_what_it_cannot_do_is_refused(self):
        orders, aim = np.array([2.0 + 0j]), np.array([1e-6])
        for wrong in (
            family(1.0, 0.95),
            dataclasses.replace(family(1.0, 0.1), noise="laplace"),
            dataclasses.replace(family(1.0, 0.1), scheme="fixed"),
        ):
            with pytest.raises(TooHard):
                log_moments(wrong, orders, aim)


class TestSound:
    def test_against_an_inversion_of_25_digits(self):
        """The same integral by mpmath, on another line and another grid."""
        epsilon = 6.187712395  # delta 1e-5 there, to nine digits
        composition = compose_steps(1.0, 0.01, 10_000)
        for delta, width in ((1e-5, 1e-4), (1e-4, 1e-2)):
            found = inverted(composition, "remove", delta, width)
            assert found.delta_below(epsilon) <= 1e-5 * (1 + 2e-9)
            assert found.delta_above(epsilon) >= 1e-5 * (1 - 2e-9)
        bracket = composition.epsilon(1e-5, 1e-6)
        assert bracket.lower <= epsilon + 1e-9
        assert bracket.upper >= epsilon - 1e-9
        assert bracket.upper <= (1 + 1e-6) * bracket.lower

    @pytest.mark.parametrize("seed", range(12))
    def test_grids_of_losses_agree(self, seed, monkeypatch):
        """The other engine of the account, which shares nothing of this one."""
        rng = np.random.default_rng(seed)
        kinds = int(rng.choice([1, 3, 30]))
        steps = rng.integers(50, 2000, kinds)
        noise = rng.uniform(0.7, 4.0) * rng.uniform(1.0, 1.5, kinds)
        rate = 10 ** rng.uniform(-2.5, -1) * rng.uniform(1.0, 1.5, kinds)
        delta = 10 ** rng.uniform(-12, -3)
        composition = compose_steps(noise, rate, steps)
        fast = composition.epsilon(delta, 0.01)
        monkeypatch.setattr(Composition, "_inverted", lambda *args: None)
        slow = composition.epsilon(delta, 0.02)
        assert fast.lower <= slow.upper
        assert slow.lower <= fast.upper
        assert fast.upper <= 1.01 * fast.lower

    @pytest.mark.parametrize(
        ("noise", "rate", "count", "delta"),
        [
            ([22.2, 0.4, 0.4], [1.0, 0.018, 3e-4], [500, 120, 400], 7e-4),
            ([39.0, 0.44], [2e-4, 2.3e-3], [2400, 3300], 3e-6),
            ([14.4, 14.4], [0.015, 4e-7], [52_000, 13_000], 7e-5),
            (84.0, 3.7e-4, 777_000, 1e-3),
        ],
    )
    def test_steps_of_very_different_weight(
        self, noise, rate, count, delta, monkeypatch
    ):
        composition = compose_steps(noise, rate, count)
        fast = composition.epsilon(delta, 0.01)
        monkeypatch.setattr(Composition, "_inverted", lambda *args: None)
        slow = composition.epsilon(delta, 0.02)
        assert fast.lower <= slow.upper
        assert slow.lower <= fast.upper

    @pytest.mark.parametrize("far", [0.1, 1.0, 10.0])
    @pytest.mark.parametrize("way", ["remove", "add"])
    def test_what_is_beyond_is_below_its_bound(self, way, far):
        """At every frequency from there on, by log moments."""
        settings = (1.0, 0.01, 3000), (0.5, 1e-4, 10**6), (5, 0.3, 99), (0.6, 0.3, 50)
        for noise, rate, count in settings:
            one = family(noise, rate, count)
            order = 3.0 if way == "remove" else -2.0
            spread = np.sqrt(count) * rate * np.sqrt(np.expm1(noise**-2))
            decay = _Decay.of((one,), order, far * spread)
            orders = order + 1j * np.linspace(0.0, 40.0, 81)
            size = count * nearly(1 / noise, rate, orders).real
            for first in range(1, 81):
                most = decay.log(float(orders[first].imag))
                assert (size[first:] - size[0]).max() <= most + 1e-6

    def test_decay_where_sines_have_no_digits(self):
        for u in (3e-9, 1e-8, 7e-8, 1e-5, 0.05, 0.1, 0.11, 1.9, 2.0, 3.0):
            one, none = np.ones((1, 1)), np.zeros(0)
            decay = _Decay(2 * one, 1e10 * one, 0.0, none, none)
            x = mp.mpf(u)
            least = max(abs(mp.sin(x) / x), mp.mpf("0.4546") if u >= 2 else 0)
            assert -decay.log(u) <= 1e10 * (1 - least)
            assert -decay.log(u) >= 0.999 * 1e10 * (1 - least) * (1 - x**4 / 800)

    @pytest.mark.parametrize("order", [1.7, 6.0, -4.0])
    def test_squares_between_losses(self, order):
        """Of all pairs in any interval of that length, by many more outputs."""
        for m, q in ((1.4, 0.02), (0.3, 0.3), (2.0, 0.7), (0.05, 1e-4), (4.0, 1e-3)):
            x = np.linspace(-9.0, 12.0 + max(order, 0) * m, 6001)
            loss = np.log1p(q * np.expm1(m * x - m * m / 2))
            mass = np.exp(-0.5 * x * x + order * loss) * (x[1] - x[0]) / 2.5066283
            centre = (mass @ loss) / mass.sum()
            spread = np.sqrt((mass @ (loss - centre) ** 2) / mass.sum())
            sums = [
                np.concatenate([[0], np.cumsum(mass * (loss - centre) ** i)])
                for i in range(3)
            ]
            reaches = spread * np.array([0.1, 0.5, 2.0, 20.0])
            found = _spreads(family(1 / m, q), order, reaches)
            for one, reach in zip(found, reaches, strict=True):
                last = np.searchsorted(loss, loss + reach, "right")
                p, first, second = (s[last] - s[:-1] for s in sums)
                most = float((2 * (p * second - first**2)).max())
                assert one <= most * (1 + 1e-6) + 1e-300
            assert found[-1] >= 0.4 * most or m * max(order, 1.2) > 2.5

    def test_few_frequencies_are_needed(self):
        """Four times as many were, and boxes a third as wide."""
        rng = np.random.default_rng(1)
        steps = compose_steps(rng.uniform(0.7, 2, 1000), rng.uniform(2e-3, 2e-2, 1000))
        found = inverted(steps, "remove", 1e-5, 0.3)
        assert found.frequency.size < 60

    @pytest.mark.parametrize("delta", [1e-3, 1e-8])
    def test_one_moment_is_above(self, delta):
        steps = compose_steps([0.7, 0.9, 2.0], [0.003, 0.02, 0.01], [200, 300, 400])
        for way in ("remove", "add"):
            found = inverted(steps, way, delta, 0.01)
            for tilt in (0.5 * found.tilt, found.tilt, 1.3 * found.tilt):
                moment = Chernoff.of(steps.families, way, tilt)
                assert moment is not None
                for epsilon in (0.1, 0.5, 1.0, 2.0, 3.0):
                    below = found.delta_below(epsilon)
                    assert moment.delta_above(epsilon) >= below
            assert Chernoff.of(compose_steps(1.0, 0.95, 9).families, way, 2.0) is None

    def test_a_better_direction_is_not_inverted(self, monkeypatch):
        rng = np.random.default_rng(1)
        steps = compose_steps(rng.uniform(0.7, 2, 300), rng.uniform(2e-3, 2e-2, 300))
        asked = []

        def counted(families, way, *rest):
            asked.append(way)
            return invert(families, way, *rest)

        monkeypatch.setattr(composition, "invert", counted)
        assert steps.epsilon(1e-5).reached
        assert set(asked) == {"remove"}

    def test_lengths_of_losses_that_are_equal_but_for_rounding(self):
        m, q = np.array([8.0]), np.array([0.3])
        for left in (-1.0, 0.0, 1.5):
            long, _ = _part(m, q, left, left + 0.6, 3.0)
            ends = [
                mp.log(1 - mp.mpf(0.3) + mp.mpf(0.3) * mp.exp(8 * mp.mpf(x) - 32))
                for x in (left, left + 0.6)
            ]
            assert 0.999_999 * (ends[1] - ends[0]) <= long[0] <= ends[1] - ends[0]

    @pytest.mark.parametrize("order", [3.0, -2.0])
    def test_density_of_losses(self, order):
        """Of the tilted outputs over how fast the loss moves, at every output."""
        settings = (1.0, 0.3, -1, 1), (2.0, 0.7, -1.0, -0.9), (0.1, 0.7, 1, 3)
        for m, q, left, right in settings:
            _, dense = _part(np.array([m]), np.array([q]), left, right, order)
            x = np.linspace(left, right, 101)
            ratio = 1 + q * np.expm1(m * x - m * m / 2)
            slope = q * m * np.exp(m * x - m * m / 2) / ratio
            found = np.exp(-x * x / 2) / np.sqrt(2 * np.pi) * ratio**order / slope
            assert 0.1 * found.min() <= dense[0] <= found.min()

    @pytest.mark.parametrize("way", ["remove", "add"])
    def test_at_every_epsilon(self, way, monkeypatch):
        composition = compose_steps(1.0, 0.02, 1000)
        found = inverted(composition, way, 1e-6, 0.01)
        scout = composition._scout(way)
        for epsilon in (0.0, 0.5, 1.0, 2.0, 4.0, 8.0):
            grid = EpsilonAt(1e-6, 0.01).guess(scout)
            other = composition._above(
                way, composition._grid(grid, 0.002, 0.01, 9), grid
            )
            assert other is not None
            assert found.delta_below(epsilon) <= other.delta_above(epsilon)
            assert found.delta_below(epsilon) <= found.delta_above(epsilon)

    @pytest.mark.parametrize("way", ["remove", "add"])
    def test_copies_are_not_counted_below(self, way):
        """A sum whose copies are near says little, but nothing wrong."""
        composition = compose_steps(1.0, 0.02, 1000)
        scout = composition._scout(way)
        sharp = inverted(composition, way, 1e-6, 1e-4)
        for delta in (1e-2, 1e-4, 1e-6):
            guess = EpsilonAt(delta, 0.01).guess(scout)
            found = invert(composition.families, way, scout, guess, 1.0)
            assert found is not None
            for epsilon in np.linspace(0.0, 3 * guess.epsilon, 40).tolist():
                assert found.delta_below(epsilon) <= sharp.delta_above(epsilon)
                assert found.delta_above(epsilon) >= sharp.delta_below(epsilon)

    def test_poor_guesses_are_refused(self):
        """Moments much less than what is guessed from, which needs no period at all."""
        composition = compose_steps(1.0, 0.02, 1000)
        guess = EpsilonAt(1e-6, 0.01).guess(composition._scout("remove"))

        class Poor:
            def log_moment(self, tilt: float) -> float:
                return 1e6 if tilt == guess.tilt else 0.0

        assert invert(composition.families, "remove", Poor(), guess, 1e-3) is None

    def test_an_error_moves_both_sides(self):
        """Terms that are off by what they may be are still inside."""
        composition = compose_steps(1.0, 0.01, 3000)
        found = inverted(composition, "remove", 1e-5, 0.01)
        off = dataclasses.replace(found, wrong=found.wrong + 1e-3)
        for epsilon in (1.0, 3.0):
            assert off.delta_above(epsilon) > found.delta_above(epsilon)
            assert off.delta_below(epsilon) < found.delta_below(epsilon)


class TestTight:
    @pytest.mark.parametrize(
        ("noise", "rate", "steps", "delta"),
        [
            (1000.0, 0.01, 10**9, 1e-5),
            (20.0, 0.011, 1_113_022_133, 2e-10),
            (1.05, 4e-5, 1_117_068_821, 4e-7),
            (380.0, 2e-5, 527_563_756, 3e-12),
            (94.0, 1.2e-6, 1_360_987_412, 1e-12),
            # Far tails count at the largest tilts.
            (3.72, 2.07e-6, 1_262_714_794, 6e-10),
            # Copies are but 3e-3 of epsilon apart.
            (0.587, 0.0572, 709_412_765, 1.4e-11),
        ],
    )
    def test_a_thousand_million_steps(self, noise, rate, steps, delta):
        found = compose_steps(noise, rate, steps).epsilon(delta)
        assert found.reached
        assert found.upper <= 1.01 * found.lower

    @pytest.mark.parametrize(
        ("noise", "rate", "steps", "delta"),
        [
            (788.0, 2.78e-6, 1_057_181_535, 1.2e-10),
            (435.0, 1.33e-6, 251_145_794, 1.1e-8),
            (1000.0, 1e-6, 10**9, 1e-7),
        ],
    )
    def test_steps_that_hardly_move(self, noise, rate, steps, delta):
        """Of which so many are one Gaussian, with the same variance of r."""
        found = compose_steps(noise, rate, steps).epsilon(delta)
        assert found.reached
        shift = mp.mpf(rate) * mp.sqrt(steps * mp.expm1(mp.mpf(noise) ** -2))

        def profile(epsilon: float) -> mp.mpf:
            a, b = mp.mpf(epsilon) / shift, shift / 2
            return mp.ncdf(b - a) - mp.exp(epsilon) * mp.ncdf(-b - a)

        assert (
            profile(found.lower * (1 - 1e-5)) > delta > profile(found.upper * 1.00001)
        )

    def test_noise_and_rate_at_random(self):
        rng = np.random.default_rng(1)
        found = compose_steps(
            rng.uniform(0.8, 2.0, 20_000), rng.uniform(2e-3, 4e-3, 20_000)
        ).epsilon(1e-5)
        assert found.reached


def test_what_another_proof_contradicts_is_not_believed(monkeypatch):
    noise, rate = np.linspace(1.0, 1.5, 20), np.linspace(0.01, 0.02, 20)
    composition = compose_steps(noise, rate, np.full(20, 40))
    scouts = {way: composition._scout(way) for way in composition.directions}
    target = EpsilonAt(1e-5, 1e-3)
    guesses = {
        way: target.guess(scouts[way], composition._infinite(way)) for way in scouts
    }
    asked = (target, 1e-3, scouts, guesses)
    assert composition._inverted(*asked) is not None
    monkeypatch.setattr(_Search, "run_below", lambda self, way: np.inf)
    assert composition._inverted(*asked) is None
