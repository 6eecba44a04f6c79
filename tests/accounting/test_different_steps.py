"""Plans whose steps all differ: brackets are narrow, and sound beside other ways."""

import dataclasses
import math

import mpmath
import numpy as np
import pytest
from scipy.special import ndtr

import privaudit as pa
from privaudit.accounting import account
from privaudit.accounting.plans import Plan
from privaudit.accounting.pld import (
    compose_steps,
    composition,
    fourier,
    grouping,
    grouping_below,
)
from privaudit.accounting.pld.families import Family
from privaudit.accounting.pld.fourier import (
    Bundle,
    _alive,
    _one_by_one,
    _power,
    _powers,
    _Rare,
    _Spread,
    _squares,
    _Transform,
    compose,
)
from privaudit.accounting.pld.grouping import Group, bundle
from privaudit.accounting.pld.grouping_below import _placed, _positive, bundle_below
from privaudit.accounting.pld.mechanisms.noise import Rows, ends
from privaudit.accounting.pld.scout import Guess
from privaudit.accounting.pld.targets import EpsilonAt


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


def spread(seed, number):
    """Noise and rates that are lognormal, some of them far from the others."""
    r = np.random.default_rng(seed)
    for _ in range(number):
        steps = int(10 ** r.uniform(1.7, 3.6))
        off, more = r.uniform(0.5, 1), r.uniform(0.7, 1.5)
        noise = math.exp(r.uniform(0, math.log(20))) * np.exp(r.normal(0, off, steps))
        rate = 10 ** r.uniform(-5.5, -1) * np.exp(r.normal(0, more, steps))
        delta = 10 ** r.uniform(-9, -3)
    return noise.clip(0.2, 300), rate.clip(1e-6, 1), delta


class _Off:
    """Transforms at 129 of 256 points, each off by as much as it may be."""

    live = np.arange(129)

    def __init__(self, slip):
        self._slip = slip

    def __call__(self, index, rows):
        found = rows @ np.exp(-2j * np.pi / 256 * np.outer(index, self.live))
        for row, sizes in zip(found, np.abs(rows).sum(axis=1), strict=True):
            turns = np.random.default_rng(int(1e9 * sizes)).uniform(0, 6, 129)
            row += self._slip * sizes * np.exp(1j * turns)
        return found, self._slip


PARTS = ("common", "rare")


def h_of(common, parted, spacings, epsilon):
    """H of a step, of what is common and of what is rare, from masses tilted by 1.5."""
    found = (common.lost + parted.lost) / parted.steps
    rare = parted.counts @ parted.rare[1] / parted.steps
    for made, index, masses, spacing in (
        (common, common.index, common.mean, spacings[0]),
        (parted, parted.rare[0], rare, spacings[1]),
    ):
        loss = index.ravel() * spacing
        mass = masses * np.exp(made.base - 1.5 * loss)
        ahead = loss + made.offset / made.steps - epsilon
        found += mass @ -np.expm1(-np.maximum(ahead, 0.0))
    return found


class TestNarrow:
    def test_quiet_steps_do_not_open_the_bracket(self):
        noise, rate, delta = quiet_and_loud()
        found = pa.epsilon(delta=delta, schedule=np.stack([noise, rate], 1))
        assert found.lower <= 0.4863 * 1.0005  # dp-accounting's, rounded up
        assert found.upper >= 0.4862
        assert found.upper <= 1.01 * found.lower

    @pytest.mark.sampled(3)
    @pytest.mark.parametrize(
        ("noise", "rate", "delta", "relation"),
        [
            # A loss that is next to nothing but for one in a thousand million.
            (np.linspace(0.893, 0.792, 60), 3.1e-5, 8e-11, "add-or-remove-one"),
            # Kinds that differ by rounding only cannot be parted.
            (
                3.04 * 8.77 ** (0.5 - 0.5 * np.cos(10 * np.pi * np.arange(143) / 143)),
                0.044,
                3e-10,
                "add-or-remove-one",
            ),
            # Cells that are coarse below lengthen the window.
            (
                0.92 * 1.46 ** (np.arange(150) % 7 / 7),
                1e-4 * np.exp(0.6 * np.sin(np.arange(150))),
                1.5e-9,
                "replace-one",
            ),
        ],
    )
    def test_plans_that_once_had_no_narrow_bracket(self, noise, rate, delta, relation):
        table = np.stack(np.broadcast_arrays(noise, rate), axis=1)
        found = pa.Certificate.of(Plan.from_table(table).ledger(), relation)
        bracket = found.epsilon(delta, width=0.01)
        assert 0 < bracket.upper <= 1.01 * bracket.lower

    @pytest.mark.parametrize(
        "number",
        [
            109,  # 3 880 steps, of which the far ones are few: 3.9 % open by means
            169,  # 211 steps: above, errors as large as a tenth of delta left 2.3 %
        ],
    )
    def test_steps_far_from_most_others(self, number):
        noise, rate, delta = spread(1, number)
        found = pa.epsilon(delta=delta, schedule=np.stack([noise, rate], 1))
        assert 0 < found.upper <= 1.01 * found.lower

    def test_the_first_grid_sees_rare_losses(self):
        """Searches for noise go by it: 18.8 where errors as large as delta are left."""
        noise, rate, delta = spread(7, 1)
        plan = Plan.from_table(np.stack([1.08 * noise, rate], axis=1))
        known = pa.Certificate.of(plan.ledger())
        first = known.epsilon(delta, sides="upper", refined=False)
        assert first.upper <= 1.02 * known.epsilon(delta).lower

    @pytest.mark.full
    def test_laplace_steps_are_not_left_to_a_mean(self):
        """24 280 steps, a quarter of them of Laplace noise: 4.7 % open by means."""
        at = np.arange(24_280) / 24_280
        random = np.random.default_rng(58)
        noise = 0.8025 * 1.2942 ** random.random(at.size)
        ledgers = [
            Plan.from_table(
                np.stack([noise, 0.0973 * 0.0203**at], axis=1)[part], "poisson", law
            ).ledger()
            for part, law in (
                (slice(0, None, 4), "laplace"),
                (at * at.size % 4 >= 0.5, "gaussian"),
            )
        ]
        found = pa.Certificate.of(pa.Ledger.composed(ledgers)).epsilon(1.87e-5)
        assert 0 < found.upper <= 1.01 * found.lower

    @pytest.mark.full
    def test_laplace_steps_beside_rare_losses(self, monkeypatch):
        """Laplace losses of 1e-4 beside few of 1e-2: 1.2e-4 open by log moments."""
        monkeypatch.setattr(grouping, "_ROUND_FROM", 2)
        random = np.random.default_rng(35)
        noise = 0.451 * 8.54 ** random.random((2, 40))
        rate = 5e-5 * np.exp(random.normal(0, 0.3, (2, 40)))
        some, more = (
            compose_steps(noise[i], rate[i], often, noise=law)
            for i, (law, often) in enumerate((("laplace", 18), ("gaussian", 55)))
        )
        steps = dataclasses.replace(some, families=some.families + more.families)
        found = steps.each(EpsilonAt(0.00122, 0.01, 1e-4), 0.01)
        assert max(found.upper.values()) - max(found.lower.values()) <= 1e-4

    @pytest.mark.full
    def test_errors_as_large_as_delta_leave_no_step_to_a_mean(self):
        """Errors of 1e-8 hide a delta of 1e-10; by each kind the lower side has it."""
        random = np.random.default_rng(1)
        noise = 9.2 * (0.714 / 9.2) ** (np.arange(1000) / 1000)
        rate = 2.5e-5 * np.exp(random.normal(0, 0.3, 1000))
        found = compose_steps(noise, rate).epsilon(1.2e-10, 0.02)
        assert found.upper <= 1.02 * found.lower

    @pytest.mark.full
    def test_two_steps_that_are_hardly_ever_drawn(self):
        """So many waves matter that what their sum is rounded by has to be small."""
        noise, rate, delta = np.array([0.25, 0.86]), 2.36e-6, 2.68e-6
        found = pa.epsilon(delta=delta, schedule=np.stack([noise, [rate] * 2], 1))
        assert found.upper - found.lower <= 1e-4
        x = np.linspace(-8, 13, 1501)[:, None]
        plain = np.exp(-x * x / 2) * (x[1] - x[0]) / math.sqrt(2 * math.pi)
        mixed = plain * (1 - rate + rate * np.exp(x / noise - 0.5 / noise**2))
        without, within = plain @ plain.T, np.outer(*mixed.T)

        def exact(epsilon):
            away = (within, without), (without, within)
            return max(np.maximum(p - np.exp(epsilon) * q, 0).sum() for p, q in away)

        assert exact(found.upper) < 0.999 * delta < 1.001 * delta < exact(found.lower)

    @pytest.mark.full
    def test_rounding_beside_rare_losses_does_not_open_the_bracket(self):
        noises, rates = np.geomspace(0.63, 1.47, 6), np.geomspace(1.7e-5, 3e-5, 6)
        found = compose_steps(noises, rates, 1135).epsilon(3e-12)
        assert found.upper <= 1.01 * found.lower  # 2.6 % where these are not parted

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

    @pytest.mark.parametrize("noise", ["gaussian", "laplace"])
    @pytest.mark.parametrize("quiet", [1e200, 3e5])
    def test_steps_that_hardly_count_open_neither_side(self, noise, quiet):
        """Too quiet for grids: from below they are none, and alone there is nothing."""
        z, kind = np.linspace(1, 2, 9), {"noise": noise}
        found = compose_steps(np.append(z, quiet), 0.01, **kind).epsilon(1e-6)
        alone = compose_steps(z, 0.01, **kind).epsilon(1e-6)
        assert alone.lower <= found.upper <= 1.01 * found.lower
        assert found.lower <= alone.upper * (1 + 1e-6)
        bare = compose_steps(quiet, 1.0, **kind), compose_steps(quiet, 0.01, **kind)
        assert all(one.delta(0.0).lower <= 1 / quiet for one in bare)

    @pytest.mark.parametrize(
        ("steps", "rate", "delta"), [(300, 1e-4, 0.9 * 0.003463), (30, 0.01, 0.0404)]
    )
    def test_delta_next_to_all_that_there_is(self, steps, rate, delta):
        """Of its total variation nine tenths; the first guess is twice as much."""
        r = np.random.default_rng(7)
        noise = np.exp(r.uniform(math.log(0.2), math.log(20), steps))
        known = pa.Certificate.of(
            Plan.from_table(np.stack([noise, np.full(steps, rate)], 1)).ledger()
        )
        found = known.epsilon(delta)
        assert found.upper - found.lower <= max(1e-4, 0.01 * found.lower)
        # Losses are rare: delta is somewhat less than the sum of single steps'.
        m, e = 1 / noise[:, None], np.array([found.lower, found.upper])
        x = (np.log(np.expm1(e) / rate + 1) + m * m / 2) / m
        single = rate * ndtr(m - x) - (np.expm1(e) + rate) * ndtr(-x)
        assert (np.abs(single.sum(axis=0) / delta - 1.15) < 0.1).all()

    def test_a_delta_next_to_nothing_does_not_hide_the_other_directions(self):
        """Of 72 steps, at the epsilon they have: where one is added it is 1e-15000."""
        noise, rate, delta = spread(3, 1)
        plan = compose_steps(noise, rate)
        found = plan.delta(plan.epsilon(delta).upper)
        assert 0.9 * delta <= found.lower <= delta
        assert found.upper <= 1.01 * found.lower
        assert found.worst == "remove"

    def test_few_loud_steps_are_on_a_grid_of_their_own(self, monkeypatch):
        """Where epsilon is 0 beside losses of 16, and most losses are 1e-5."""
        noise, waves = 0.22 * 14 ** (np.arange(99) / 99), []

        def seen(bundles, spacing, guess):
            found = compose(bundles, spacing, guess)
            waves.append(0 if found is None else found.index.size)
            return found

        monkeypatch.setattr(composition, "compose", seen)
        found = compose_steps(noise, 3.6e-6, 1).epsilon(9e-5)
        assert found.upper == 0.0
        assert 0 < max(waves) < 1e5  # on one grid half a million

    @pytest.mark.parametrize("apart", [True, False])
    def test_moments_are_those_of_each_kind(self, apart):
        """Where one of many is unlike: its mean's, so many times, are far more."""
        index, spacing = np.arange(-3, 60), 0.05
        masses = np.exp(-0.5 * index**2.0) + np.zeros((50, 63))
        masses[:, -1] = 1e-14
        masses[0, -1] = 1e-6
        known = (index, masses, np.full(50, 2.0), 0.0, 0.0, None)
        one = Bundle.of(*known, apart=apart)
        for change in (-3.0, 0.0, 4.0, 9.0):
            sums = masses @ np.exp(change * spacing * index)
            truth = 2 * np.log(sums).sum()
            mean, each = (
                one.log_moment(change, spacing, each=k) for k in (False, True)
            )
            assert mean >= truth - 1e-9
            assert truth - 1e-9 <= each <= truth + 1e-6
        assert mean > 5 * each

    @pytest.mark.sampled(9)
    @pytest.mark.parametrize("seed", range(6))
    def test_drawn_plans_are_as_narrow_as_asked(self, seed):
        noise, rate, delta = drawn(seed, 300)
        found = compose_steps(noise, rate).epsilon(delta, 0.01)
        assert found.upper <= 1.01 * found.lower or found.upper - found.lower < 1e-5


class TestSound:
    def test_rare_large_losses_are_about_those_of_single_steps(self):
        """At a delta of 1e-14, of 60 000 steps, far below what rounding hides."""
        k = np.arange(30) / 30
        noise = 0.8 * 14 ** (0.5 - 0.5 * np.cos(10 * np.pi * k))
        rate, m, e = 1.2e-6 * 30 ** (7 * k % 1), 1 / noise, 0.2
        x = (np.log(math.expm1(e) / rate + 1) + m * m / 2) / m
        single = rate * ndtr(m - x) - (math.exp(e) - 1 + rate) * ndtr(-x)
        known, delta = compose_steps(noise, rate, 2000), 2000 * single.sum()
        found = known.epsilon(delta, 0.01)
        for one, truth, wide in ((found, e, 1.01), (known.delta(e), delta, 1.02)):
            assert one.upper >= truth
            assert truth <= 1.001 * one.lower
            assert one.upper <= wide * one.lower

    @pytest.mark.sampled(4)
    @pytest.mark.parametrize("seed", range(8))
    def test_groups_agree_with_each_step_by_itself(self, seed, monkeypatch):
        """Coarse groups beside none at all; neither knows of the other."""
        noise, rate, delta = drawn(seed, 150)
        monkeypatch.setattr(grouping, "_GROUPS", 20)
        grouped = compose_steps(noise, rate).epsilon(delta, 0.3)
        monkeypatch.setattr(grouping, "_GROUPS", 1000)
        alone = compose_steps(noise, rate).epsilon(delta, 0.01)
        assert grouped.lower <= alone.upper
        assert alone.lower <= grouped.upper
        assert alone.lower > 0

    @pytest.mark.parametrize("seed", range(3))
    def test_the_product_of_a_group_and_one_by_one(self, seed, monkeypatch):
        """The product of steps that differ, beside its error."""
        random = np.random.default_rng(seed)
        counts = random.integers(1, 4, 40).astype(float)
        index = np.unique(random.integers(-50, 50, 12))
        masses = random.dirichlet(np.ones(index.size))
        apart = 0.05 if seed else 1e-4  # so that transforms' errors are most of it
        masses = masses * np.exp(random.normal(0, apart, (40, index.size)))
        logs = np.zeros(index.size)
        one = Bundle.of(index, masses, counts, 0.0, 0.0, logs, apart=False)
        turned = np.exp(-2j * np.pi / 256 * np.outer(index, np.arange(129)))
        spread, off = _Spread.of(one.off, one.counts), _Off(1e-15 if seed else 1e-6)
        found = _power(one, off, spread).part
        monkeypatch.setattr(fourier, "_HELD", 300)  # two of them at a time
        again = _power(one, off, spread).part
        np.testing.assert_allclose(again.value, found.value, rtol=1e-9)
        np.testing.assert_allclose(again.wrong, found.wrong, rtol=1e-6)
        each = masses * math.exp(-one.base) @ turned
        exact = np.prod(each ** counts[:, None], axis=0)
        assert (np.abs(found.value) > 0).sum() > 4
        assert (np.abs(found.value - exact) <= found.wrong * (1 + 1e-9)).all()

    @pytest.mark.parametrize("seed", range(3))
    def test_the_product_of_kinds_one_by_one(self, seed):
        """Beside its error, also where a kind's transform is next to nothing."""
        random = np.random.default_rng(seed)
        counts = np.array([1.0, 2.0, 7.0, 1000.0])
        index = np.sort(random.integers(-50, 50, (4, 12)), axis=1)
        masses = random.dirichlet(np.full(12, 0.1), 4)
        masses[3] = np.where(np.arange(12) == 3, 1 - 1e-4, 1e-4 / 11)
        masses[0] = np.eye(12)[[0, 5]].sum(axis=0) / 2  # of which half is a cosine
        index[0, 5] = index[0, 0] + 8
        waves = -2j * np.pi / 256 * np.arange(129)
        exact = [
            np.exp(i[:, None] * waves).T @ m for i, m in zip(index, masses, strict=True)
        ]
        slip = 1e-9
        moved = np.array(exact) + slip * np.exp(1j * random.uniform(0, 6, (4, 129)))
        found = _powers(moved, slip, counts)
        product = np.prod(np.array(exact) ** counts[:, None], axis=0)
        assert (found.wrong < 1e-4).all()
        assert (np.abs(product) < slip).any()
        assert (np.abs(found.value - product) <= found.wrong * (1 + 1e-9)).all()

    @pytest.mark.parametrize("loud", [0.05, 1.0])
    def test_kinds_told_by_a_mean_have_sums_of_their_own(self, loud):
        random, sizes = np.random.default_rng(0), np.ones(129)
        counts = random.integers(1, 9, 40).astype(float)
        index = np.sort(random.permutation(100)[:12]) - 50
        masses = random.dirichlet(np.ones(12), 40) * np.exp(
            loud * random.normal(size=12)
        )
        masses *= np.exp(loud * random.normal(size=(40, 1)))
        known = (index, masses, counts, 0.0, 0.0, None)
        one = Bundle.of(*known, (index[10:], masses[:, 10:]), apart=False)
        alone, part = _one_by_one(one)
        found, _ = _Transform(256, np.arange(129), lambda _: sizes)(*alone.kinds)
        known = part.value * np.prod(found ** counts[:, None], axis=0)
        turned = np.exp(-2j * np.pi / 256 * np.outer(index, np.arange(129)))
        scale = math.exp(-one.base)
        truth = np.prod((scale * masses @ turned) ** counts[:, None], axis=0)
        room = part.wrong[0] + counts.sum() * alone.rounded * abs(part.value[0])
        assert (np.abs(known - truth) <= 2 * room + 1e-12 * np.abs(truth)).all()
        assert room < 1e-11
        np.testing.assert_allclose(alone.kinds[1].sum(axis=1), 1.0, rtol=1e-14)
        rare = alone.rare[1] / alone.kinds[1][:, 10:]
        np.testing.assert_allclose(rare, 1.0, rtol=1e-12)

    def test_kinds_next_to_nothing_beside_the_mean_stay_with_it(self):
        """Of the second kind's masses, and of their sum, the mean leaves no digits."""
        few = [1.4469155420790112e-17, 2.5620050853319193e-17]
        masses = np.array([[0.13385841070630725, 0.8661415892936928], few])
        known = (np.arange(2), masses, np.ones(2), 0.0, 0.0, None)
        assert _one_by_one(Bundle.of(*known, apart=False)) is None

    @pytest.mark.parametrize("kinds", [6, 30])
    def test_squares_of_masses_by_few_vectors(self, kinds):
        random = np.random.default_rng(0)
        masses = np.exp(random.normal(0, 0.1, (kinds, 9))) * 10.0 ** -np.arange(9)
        counts, waves = random.integers(1, 9, kinds), random.uniform(0, 6, 50)
        turned = np.exp(1j * np.outer(np.arange(9), waves))
        vectors, off = _squares(masses, counts.astype(float))
        truth = counts @ (masses @ turned) ** 2
        gap = np.abs(((vectors @ turned) ** 2).sum(axis=0) - truth)
        assert (gap <= off).all()
        assert gap.max() > 0.1 * off
        assert off < 2e-4 * np.abs(truth).max()
        assert len(vectors) < min(kinds, 9)

    @pytest.mark.parametrize("apart", [False, True])
    @pytest.mark.parametrize("seed", range(5))
    def test_products_less_those_of_small_losses(self, seed, apart):
        """Of rare losses, beside the error: each transform off as far as it may be."""
        random = np.random.default_rng([seed, apart])
        counts = random.integers(1, 9, 40).astype(float)
        index = np.append(np.arange(-6, 6), [40, 47, 68])
        masses = random.dirichlet(np.full(12, 0.3)) + np.zeros((40, 12))
        masses = masses * np.exp(random.normal(0, 0.3 if apart else 0.003, (40, 12)))
        large = 10.0 ** random.uniform(-12, -6, (40, 1)) * random.dirichlet([1] * 3, 40)
        if seed == 1:  # transforms that are next to nothing, and kinds that are unlike
            masses[0] = 0.5 * np.eye(12)[[2, 10]].sum(axis=0)
        elif seed in (2, 3):  # alike but for large losses, of sum 0 at -1; or more
            masses[:], large[:], counts[:] = masses[0], 0.0, 2.0
            large[::2, 0] = large[1::2, 3 - seed] = (1e-9, 6e-3)[seed - 2]
        elif seed:  # next to nothing, but not without large losses
            masses[:], large[:], counts[:] = np.eye(12)[2] / 2, [0, 0, 0.2], 1.0
            masses[:, 10] = 0.3
        known = (index, np.append(masses, large, 1), counts, 0.0, 0.0, None)
        one = Bundle.of(*known, (index[12:], large), apart=apart)
        slip, parts = 1e-7, np.exp(-2j * np.pi / 256 * np.arange(129))
        whole = one.kinds[1] if apart else one.mean + one.off
        turned = parts[None] ** index[:, None]
        each, some = whole @ turned, (whole * (index <= 12)) @ turned
        exact, product = np.zeros(129, complex), np.ones(129, complex)
        for k in np.repeat(np.arange(40), counts.astype(int)):
            exact = exact * some[k] + product * (each[k] - some[k])
            product = product * each[k]

        def off(spectra, sizes):
            turns = np.exp(1j * random.uniform(0, 6, spectra.shape))
            return spectra + slip * sizes * turns

        rare, (at, rest) = _Rare.none(129), one.rare
        if apart:
            moved = off(each, 1.0)
            part = off(each - some, rest.sum(1)[:, None])
            rare.add(_Rare.each((moved, part), slip, rest, counts))
            found = rare.of(_powers(moved, slip, counts))
        else:
            spread = _Spread.of(one.off, counts, rest)
            told = _power(one, _Off(slip), spread)
            rare.add(_Rare.told(one, told, spread))
            found = rare.of(told.part)
        assert at.tolist() == index[12:].tolist()
        assert (np.abs(found.value - exact) <= found.wrong * (1 + 1e-9)).all()
        share = 0.02 if seed == 3 else 1e-3
        assert seed in (1, 4) or found.wrong[0] < share * abs(exact[0])
        assert seed == 3 or (found.value == 0).any() == (seed in (1, 4))

    @pytest.mark.parametrize("unlike", [0.01, 0.2])
    def test_rare_losses_of_unlike_kinds(self, unlike):
        """Told by their mean, where the loudest are those that are most unlike it."""
        random, index = np.random.default_rng(0), np.append(np.arange(-6, 6), [40, 47])
        counts = random.integers(1, 9, 30).astype(float)
        way = unlike * random.choice([-1.0, 1.0], 30) * random.uniform(0.3, 1, 30)
        masses = np.full((30, 12), 1 / 12) * (1 + np.outer(way, np.tile([1, -1], 6)))
        large = 1e-7 * way[:, None] ** 2 * [1.0, 2.0]
        known = (index, np.append(masses, large, 1), counts, 0.0, 0.0, None)
        one = Bundle.of(*known, (index[12:], large), apart=False)
        turned = np.exp(-2j * np.pi / 256 * np.outer(index, np.arange(129)))
        whole, part = (one.mean + one.off) @ turned, one.rare[1] @ turned[12:]
        spread = _Spread.of(one.off, counts, one.rare[1])
        rare = _Rare.told(one, _power(one, _Off(1e-16), spread), spread)
        x = part / whole  # of which cubes are nothing
        gap = np.abs(rare.sum - counts @ (x + 0.5 * x**2))
        assert (gap <= rare.off).all()
        assert rare.off[0] < 1e-4 * abs(rare.sum[0])
        far = gap[rare.off < np.inf] > 1e-3 * np.abs(rare.sum[rare.off < np.inf])
        assert far.any() or unlike < 0.1

    def test_squares_of_rare_losses_of_unlike_kinds(self):
        """The most where the others are least likely: beside the exact logarithms."""
        index, way = np.array([0, 1, 40]), np.repeat([0.01, -0.01], 15)
        large = np.where(way > 0, 0.02, 0.0)[:, None]
        masses = np.stack([0.5 - way, 0.5 + way, large[:, 0]], 1)
        known = (index, masses, np.ones(30), 0.0, 0.0, None)
        one = Bundle.of(*known, (index[2:], large), apart=False)
        turned = np.exp(-2j * np.pi / 256 * np.outer(index, np.arange(129)))
        whole, part = (one.mean + one.off) @ turned, one.rare[1] @ turned[2:]
        spread = _Spread.of(one.off, one.counts, one.rare[1])
        rare = _Rare.told(one, _power(one, _Off(1e-16), spread), spread)
        gap = np.abs(rare.sum + np.log1p(-part / whole).sum(axis=0))
        assert (gap <= rare.off).all()
        assert (gap / rare.off).max() > 0.4

    @pytest.mark.parametrize("share", [1e-4, 0.01, 0.1, 0.3])
    def test_rare_losses_of_any_share(self, share):
        """Of 30 kinds one by one, beside their products in high precision."""
        random = np.random.default_rng(0)
        rare = share * random.uniform(0.2, 1, (30, 1))
        whole = (1 - rare) + rare * np.exp(1j * random.uniform(0, 6, (30, 5)))
        part = whole - (1 - rare)
        known = _Rare.each((whole, part), 1e-16, rare, np.ones(30))
        with mpmath.workdps(40):
            exact = [mpmath.fsum(map(mpmath.log, row)) for row in (whole - part).T]
            sums = [mpmath.fsum(map(mpmath.log, row)) for row in whole.T]
            truth = [complex(a - b) for a, b in zip(sums, exact, strict=True)]
        # A log of a sum is one of many, which turn by whole turns.
        gap = known.sum - np.array(truth)
        gap -= 2j * np.pi * np.rint(gap.imag / (2 * np.pi))
        assert (np.abs(gap) <= known.off).all()
        assert (known.off < 1e-6 * 30 * share).all() or share > 0.1

    @pytest.mark.parametrize("apart", [False, True])
    def test_rare_losses_apart_are_all_there(self, apart):
        """Delta of 360 steps beside the sum of all positive products."""
        random = np.random.default_rng(apart)
        counts, h = np.array([200.0, 120.0, 40.0]), 0.002
        index = np.append(np.arange(-4, 5), [60, 61, 200, 640])
        shape = np.append(
            np.exp(-0.5 * np.arange(-4, 5) ** 2), [3e-13, 1e-13, 1e-14, 1e-16]
        )
        masses = shape * np.exp(random.normal(0, 0.01, (3, 13)))
        masses /= masses.sum(axis=1, keepdims=True)
        exact = np.ones(1)
        for mass, count in zip(masses, counts.astype(int), strict=True):
            power = np.bincount(index + 4, mass, 645)
            while count:  # to far beyond what matters
                exact = np.convolve(exact, power)[:2400] if count % 2 else exact
                power, count = np.convolve(power, power)[:2400], count // 2
        losses = (np.arange(exact.size) - 4 * 360) * h
        few = np.zeros(0)
        made = Guess(
            *(8.0, 8.0, 0.0, -40.0, 0.1), *(8.0, 8.0, 1.0, few, few, few, few, 50.0)
        )
        tilted = masses * np.exp(8.0 * h * index)
        known = (counts, 0.0, 0.0, None)
        large = index[9:], tilted[:, 9:]
        one = Bundle.of(index, tilted, *known, large, apart=apart)
        tilted = masses * np.exp(20.0 * h * index)
        small = Bundle.of(index[:9], tilted[:, :9], *known, apart=apart)
        rest = compose([one], h, made)
        found = compose([small], h, dataclasses.replace(made, tilt=20.0))
        found = dataclasses.replace(found, rest=rest)
        for epsilon in (0.1, 0.2, 0.9, 1.1):
            some = losses > epsilon
            truth = float(exact[some] @ -np.expm1(epsilon - losses[some]))
            assert found.delta_below(epsilon) <= truth <= found.delta_above(epsilon)
            assert found.delta_above(epsilon) < 1.02 * found.delta_below(epsilon)

    @pytest.mark.sampled(2)
    @pytest.mark.parametrize("shared", [True, False, None])
    @pytest.mark.parametrize("spread", [0.02, 1.0])
    def test_frequencies_that_matter_are_kept(self, spread, shared, monkeypatch):
        """Of all that are not negligible none is missing; and many are left out.

        By a look at all, and at an eighth, of which those between are told.
        """
        random = np.random.default_rng([int(spread), bool(shared)])
        points, waves = 1 << 12, -2j * np.pi / (1 << 12) * np.arange((1 << 11) + 1)
        bundles, product, kept = [], np.zeros(waves.size), []
        monkeypatch.setattr(fourier, "_LEAST_LOOKED_AT", points // 8)

        def heavy(wave):
            return 1e6 / (1.0 + wave)

        for _ in range(4):
            counts = random.integers(1, 4, 60).astype(float)
            # On points of their own where they have few in common: see `Bundle.of`.
            far, shape = (900, (60, 30)) if shared is False else (30, 30)
            index = np.sort(random.integers(-far, far, shape))
            masses = 0.4 * random.dirichlet(random.dirichlet(np.ones(30)) / spread, 60)
            masses[:, 7] += 0.6  # so that no transform is soon next to nothing
            if shared is None:  # told by their mean, from which they differ
                masses = masses[:1] * np.exp(random.normal(0, spread / 9, (60, 30)))
            rows = np.broadcast_to(index, masses.shape)
            for row, weights, count in zip(rows, masses, counts, strict=True):
                found = np.abs(weights @ np.exp(row[:, None] * waves))
                product += count * np.log(np.maximum(found, 1e-300))
            apart, known = shared is not None, (index, masses, counts, 0.0, 0.0)
            bundles.append(Bundle.of(*known, None, apart=apart))
            product -= bundles[-1].base * counts.sum()
            for bent in (0.0, math.inf):
                monkeypatch.setattr(fourier, "_BENT", bent)
                live, _ = _alive(bundles, points, np.ones_like, 0.0)
                assert np.isin(np.flatnonzero(product > -46.0), live).all()
                kept += [] if bent else [live.size]
                # What is left out adds no more than is told, whatever a wave has.
                some, left = _alive(bundles, points, heavy, 1.0)
                out = np.setdiff1d(np.flatnonzero(product > -46.0), some)
                assert heavy(out) @ np.exp(product[out]) <= left * (1 + 1e-9)
        seen = {one.kinds and one.kinds[0].ndim for one in bundles}
        assert seen == {shared if shared is None else 2 - shared}
        assert max(kept) < points // 4
        monkeypatch.setattr(fourier, "_MOST_PRODUCTS", 0)  # then nothing is told
        live, _ = _alive(bundles, points, np.ones_like, 0.0)
        assert live.size == points // 2 + 1

    def test_frequencies_are_kept_where_only_the_mean_is_next_to_nothing(self):
        index = np.append(np.arange(16), 512 + np.arange(16))
        half = np.append(0.93, np.full(15, 0.07 / 15))
        some = np.array([0.45, 0.55] * 4)[:, None]
        masses = np.concatenate([some * half, (1 - some) * half], axis=1)
        known = (index, masses, np.ones(8), 0.0, 0.0, None)
        told = Bundle.of(*known, apart=False)
        live, _ = _alive([told], 1 << 12, np.ones_like, 0.0)
        assert np.isin([4, 12, 20], live).all()  # each at 1e-8
        # Without the upper half, which alone makes that of the whole nothing.
        same = np.full((8, 32), np.append(half, half) / 2)
        for rare, kept in ((None, False), ((index[16:], same[:, 16:]), True)):
            one = Bundle.of(index, same, *known[2:], rare, apart=False)
            live, _ = _alive([one], 1 << 12, np.ones_like, 0.0)
            assert (np.isin([4, 12, 20], live) == kept).all()

    @pytest.mark.parametrize("way", ["remove", "add"])
    @pytest.mark.parametrize("scheme", ["poisson", "replace", "fixed"])
    def test_what_is_left_out_at_the_ends_counts(self, scheme, way):
        """However near they are, and whatever is between, delta is no less."""
        r = np.random.default_rng([len(scheme), len(way)])
        x = np.linspace(-14, 18, 20_001)
        for reach in (0.3, 1.0, 2.5, 7.0):
            m, q = r.uniform(0.1, 4), 10 ** r.uniform(-4, -0.01)
            one, spacing = np.ones(1), 10 ** r.uniform(-3, -1)
            family = Family("gaussian", scheme, m * one, q * one, one)
            top = ends(family.step(m, q), way, reach)
            points = np.append(r.uniform(*top, 40), top) / spacing / 2
            edges = 2 * np.unique(np.append(np.rint(points), [-1, 0, 1])).astype(int)
            found = bundle(Group(family, family, edges, True), way, spacing, 0.0, reach)
            losses, mass = found.index * spacing, found.mean * math.exp(found.base)
            normal, far, near = (np.exp(-((x - c) ** 2) / 2) for c in (0, m, -m))
            p, other = (1 - q) * normal + q * far, (1 - q) * normal + q * near
            pairs = {
                "poisson": (p, normal),
                "replace": (p, other),
                "fixed": (p, normal),
            }
            p, other = pairs[scheme] if way == "remove" else pairs[scheme][::-1]
            for epsilon in np.append(losses[::3], r.uniform(-4, 4, 20)):
                # Of steps of a fixed size, of which either order may be the worse.
                each = [(p, other)] if scheme != "fixed" else [(p, other), (other, p)]
                truth = max(
                    np.maximum(a - math.exp(epsilon) * b, 0).sum()
                    * (x[1] - x[0])
                    / math.sqrt(2 * math.pi)
                    for a, b in each
                )
                more = np.exp(np.minimum(epsilon - losses, 50.0))
                shown = found.lost + mass @ np.maximum(1 - more, 0)
                assert shown >= truth * (1 - 1e-6) - 1e-7, (reach, m, q, epsilon)

    @pytest.mark.parametrize("apart", [True, False])
    @pytest.mark.parametrize("way", ["remove", "add"])
    @pytest.mark.parametrize("scheme", ["poisson", "replace", "fixed"])
    def test_common_and_rare_losses_of_two_grids_are_all(self, scheme, way, apart):
        """And each counts once: H of both parts beside that of the densities."""
        r = np.random.default_rng([len(scheme), len(way), 5])
        x = np.linspace(-14, 18, 400_001)
        for coarser in (1, 2, 8, 32):
            m, q, spacing = (
                r.uniform(0.5, 2),
                r.uniform(0.02, 0.3),
                10 ** -r.uniform(2, 3),
            )
            kinds = np.ones(1 if apart else 2)  # equal ones, told by their mean
            family = Family("gaussian", scheme, m * kinds, q * kinds, kinds)
            top, unit = ends(family.step(m, q), way, 7.5), 2 * coarser
            cut = unit * (int(r.uniform(0.05, 0.3) * top[1] / spacing) // unit + 1)
            points = np.append(r.uniform(*top, 400), [*top, 0]) / spacing / 2
            edges = grouping._parted(
                2 * np.unique(np.rint(points)).astype(int), cut, unit
            )
            group = Group(family, family, edges, apart, cut, coarser)
            normal, far, near = (np.exp(-((x - c) ** 2) / 2) for c in (0, m, -m))
            p, other = (1 - q) * normal + q * far, (1 - q) * normal + q * near
            pair = (p, other if scheme == "replace" else normal)
            pairs = [pair, pair[::-1]]
            if scheme != "fixed":
                pairs = pairs[way == "add" :][:1]
            for epsilon in r.uniform(-1, 1.5, 8) * cut * spacing:
                truth = max(
                    np.maximum(a - math.exp(epsilon) * b, 0).sum()
                    * (x[1] - x[0])
                    / math.sqrt(2 * math.pi)
                    for a, b in pairs
                )
                above, below = (
                    h_of(
                        *(make(group, way, spacing, 1.5, 7.5, part) for part in PARTS),
                        (spacing, spacing * coarser),
                        epsilon,
                    )
                    for make in (bundle, bundle_below)
                )
                assert below <= truth + 1e-9
                assert above >= truth - 1e-9
                assert coarser > 2 or above - below < 0.1 * truth + 2e-3

    def test_half_a_step_is_refused(self):
        with pytest.raises(ValueError, match=r"whole numbers, got \[1\.5\]"):
            _powers(np.ones((2, 3), complex), 1e-15, np.array([2.0, 1.5]))

    @pytest.mark.parametrize("shared", [True, False])
    def test_transforms_at_some_points_and_at_all(self, shared, monkeypatch):
        """Beside long doubles, of few or most frequencies, in blocks or not."""
        monkeypatch.setattr(fourier, "_BATCH", 1)
        random = np.random.default_rng(3)
        index = random.integers(-3000, 3000, 20 if shared else (3, 20))
        vectors = random.dirichlet(np.ones(20), 3)
        lives = np.arange(501), np.array([0, *range(7, 60), 90, *range(300, 420), 499])
        for live in (*lives, lives[1][::40]):
            found, slip = _Transform(1000, live, np.ones_like)(index, vectors)
            turns = (live[:, None, None] * index % 1000) / np.longdouble(1000)
            waves = np.exp(-2j * np.arccos(np.longdouble(-1)) * turns)
            exact = (waves * vectors).sum(axis=-1).T
            assert np.abs(found - exact).max() <= slip < 1e-13

    @pytest.mark.parametrize("seed", range(3))
    def test_masses_made_positive_are_no_larger_as_a_function(self, seed):
        """And lose little, however small those at the upper end are."""
        random = np.random.default_rng(seed)
        points, tilt = np.array([-0.02, 0.0, 0.1, 0.9, 2.0, 2.5]), 1.5
        sizes, masses = (1e-3, 1e-9, 1e-14) * 20, []
        for size in sizes:
            mass = np.append([0.0, 1.0], size * random.uniform(0.1, 1, 4))
            mass[-1] = -random.uniform(0, 1) * mass[-2]
            if seed:
                mass[1 + seed] *= -0.1
            masses.append(mass)
        moved = np.array(masses) * np.exp(tilt * points)
        places = np.broadcast_to(points, moved.shape)
        rows = _positive(moved, places, 1.0, tilt)
        for size, mass, row in zip(sizes, masses, rows, strict=True):
            made = row * np.exp(-tilt * points)
            assert (made >= 0).all()
            at = np.exp(np.append(points, random.uniform(-0.1, 2.6, 50)))[:, None]
            before, after = (
                (each * np.maximum(1 - at * np.exp(-points), 0)).sum(axis=1)
                for each in (mass, made)
            )
            assert (after <= np.maximum(before, 0) * (1 + 1e-12) + 4e-16).all()
            if not seed:  # none but the last was negative
                assert made[1] >= 1 - 4 * size

    def test_cells_put_on_points_are_no_larger_as_a_function(self):
        """However far apart these are, and beyond what exponentials hold."""
        random, far = np.random.default_rng(0), 0
        for turn in range(400):
            kinds, cells = int(random.integers(1, 4)), int(random.integers(2, 12))
            spacing, tilt = 10 ** random.uniform(-2, 2.7), 10 ** random.uniform(-1, 1)
            at = 2 * spacing * np.sort(random.permutation(13)[: cells + 1] - 6)
            if turn % 2:
                at = np.append(at, at[-1] + 2 * spacing * random.integers(1, 400))
            shape = kinds, at.size - 1
            loss = at[:-1] + np.diff(at) * random.random(shape)
            logs = random.normal(0, 8, shape)
            logs -= np.maximum(logs.max(axis=1, keepdims=True), 0) + math.log(at.size)
            logs += np.minimum(loss, 0)  # so that neither P nor Q has more than 1
            beside = ((0, 0), (1, 1))
            each = (
                np.pad(x, beside, constant_values=-np.inf) for x in (logs, logs - loss)
            )
            counts = np.ones(kinds) if turn % 3 else None  # told by their mean
            seen = Rows(*each, np.zeros(kinds), 1e-15)
            unit = 1 + turn % 2 if counts is None else 2 ** (turn % 3)
            found = _placed(seen, at, counts, spacing, tilt, unit=unit)
            if found is None:
                continue
            index, mass, base, offset = found
            for k in range(kinds):
                points = index[k % len(index)] * spacing
                with np.errstate(divide="ignore"):
                    made = np.exp(np.log(mass[k]) + base - tilt * points)
                points = points + offset[k]
                asked = np.append(points, random.uniform(at[0], at[-1], 10))[:, None]
                before, after = (
                    -np.expm1(-np.maximum(x - asked, 0)) @ p
                    for x, p in ((loss[k], np.exp(logs[k])), (points, made))
                )
                assert (after <= before * (1 + 1e-9) + 1e-200).all()
                far += bool(np.abs(points).max() > 1000 and made.any())
        assert far > 50

    @pytest.mark.parametrize(
        ("noise", "scheme", "wide"),
        [
            ("gaussian", "poisson", (0.2, 0)),
            ("laplace", "poisson", (0, 0.5)),
            ("gaussian", "replace", (0, 0.5)),
        ],
    )
    def test_steps_taken_for_others_bound_them(self, monkeypatch, noise, scheme, wide):
        noises, rates = np.exp(np.outer(wide, np.linspace(-1, 1, 30))) * [[1], [0.1]]
        steps = compose_steps(noises, rates, noise=noise, scheme=scheme)
        truth = steps.epsilon(1e-4)
        for name, value in (("_GROUPS", 2), ("_ROUND_FROM", 2), ("_ROUNDED", 9.0)):
            monkeypatch.setattr(grouping, name, value)
        found = dataclasses.replace(steps).epsilon(1e-4, 1.0)
        assert 1.02 * found.lower < truth.lower
        assert truth.upper < 0.98 * found.upper

    def test_few_steps_far_louder_than_the_rest(self):
        """Their large losses are most of large moments, and none of small ones."""
        random = np.random.default_rng(1)
        noise = 2.4 / np.maximum(np.abs(random.normal(1, 0.5, 6000)), 0.1)
        found = compose_steps(noise, 2.3e-4).epsilon(1e-8)
        assert 0.055 < found.upper <= 1.01 * found.lower

    def test_between_losses_that_come_once_there_are_others(self):
        """A comb of them tells nothing of the law beside an aim."""
        plan = compose_steps([0.408, 1.64], 1.17e-4, [152, 17_000])
        _, law = EpsilonAt(9.5e-5, 0.01).seen(plan._scout("remove"))
        sizes = law.masses(0.48)
        parts = np.histogram(law.losses, np.linspace(0.3, 0.9, 16), weights=sizes)[0]
        assert (np.abs(np.diff(np.log(parts))) < 1).all()

    @pytest.mark.parametrize("noise", ["laplace", "gaussian"])
    def test_what_taking_steps_for_others_costs(self, noise):
        """Small losses beside rare large ones, on which the tilt depends."""
        rare = compose_steps(0.45, 5e-5, 300).families
        ends = [
            compose_steps(z, q, 1000, noise=noise).families
            for z, q in ((1.0, 5.2e-5), (1.04, 5e-5))
        ]
        whole, less = (composition.Composition(one + rare) for one in ends)
        target = EpsilonAt(1e-3, 2e-3)
        most, least = (
            steps.each(target, 2e-3, ("remove",), side="upper").upper["remove"]
            for steps in (whole, less)
        )
        guess, law = target.seen(whole._scout("remove"))
        aims = np.array([guess.epsilon])
        group = Family.of(
            (noise, "poisson", True),
            *np.array([[1.0, 1 / 1.04], [5.2e-5, 5e-5], [500, 500]]),
        )
        reached = np.array([[-1e-3, 1e-2]])
        points = grouping._points(reached, aims, law)
        chances = np.diff(law.beside(points, aims, loud=False))
        (found,) = grouping._moved([group], "remove", points, chances[None], 8.0)
        assert found == pytest.approx(most - least, rel=0.2)

    def test_kinds_that_their_mean_hides_are_composed_one_by_one(self, monkeypatch):
        """Of two groups, each far too unlike to be told by a mean."""
        steps = compose_steps(np.linspace(0.5, 5, 40), np.linspace(0.001, 0.01, 40))
        truth = steps.epsilon(1e-6)
        monkeypatch.setattr(grouping, "_GROUPS", 2)
        monkeypatch.setattr(grouping, "_MOST_WAVES", {"gaussian": 0.0})
        gaps = []
        for work in (0.0, fourier._OWN_WORK, math.inf):
            monkeypatch.setattr(fourier, "_OWN_WORK", work)
            found = dataclasses.replace(steps).epsilon(1e-6)
            assert found.lower <= truth.upper
            assert truth.lower <= found.upper
            gaps.append(found.upper - found.lower)
        assert max(gaps[1:]) < 0.5 * gaps[0]

    def test_points_next_to_each_other_are_too_near_for_unlike_kinds(self, monkeypatch):
        """Two cells as likely each: all losses went to the lowest of them."""
        r, spacing, tilt = np.random.default_rng(0), 9.35e-6, 113.0
        shift, rate = r.uniform(0.176, 0.437, 40), r.uniform(4.8e-5, 1.16e-4, 40)
        family = Family("gaussian", "poisson", shift, rate, np.ones(40))
        edges = np.array([-12, -8, -4, -2, 0, 4, 8, 16, 32, 74, 218])
        group, even = Group(family, family, edges, apart=False), []

        def kept():
            found = bundle_below(group, "remove", spacing, tilt, 7.0)
            even.append((found.index % 2 == 0).all())
            mean = found.mean * np.exp(found.base - tilt * spacing * found.index)
            return 40 * float(mean @ found.index) * spacing + found.offset

        assert abs(kept()) < 0.01 * spacing
        monkeypatch.setattr(grouping_below, "_UNITS", (1,))
        assert kept() < -5 * spacing
        assert even == [True, False]


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

    @pytest.mark.parametrize("seed", range(3))
    def test_the_first_grid_alone_bounds_from_above(self, seed):
        random = np.random.default_rng(seed)
        table = np.stack([random.uniform(0.6, 2, 90), 10 ** random.uniform(-4, -2, 90)])
        certificate = pa.Certificate.of(Plan.from_table(table.T).ledger())
        whole = certificate.epsilon(1e-6)
        first = certificate.epsilon(1e-6, sides="upper", refined=False)
        assert whole.lower < whole.upper <= first.upper <= 1.1 * whole.upper
        assert first.lower == 0

    def test_it_has_to_be_a_number_from_0_on(self):
        with pytest.raises(ValueError, match="tolerance must be >= 0"):
            pa.epsilon(delta=1e-6, noise_multiplier=1.0, tolerance=-1e-3)
