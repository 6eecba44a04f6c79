"""The certificate: what a ledger is worth, against truths that are not its own."""

from __future__ import annotations

import collections
import itertools
import math

import mpmath
import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from scipy.stats import norm

from privaudit.accounting import Certificate, account, gdp
from privaudit.accounting.certificate import relation_of
from privaudit.accounting.plans import Plan
from privaudit.accounting.pld import compose_entries
from privaudit.accounting.pld.composition import Composition
from privaudit.ledger import Entry, Ledger
from privaudit.mechanisms import DiscretePair
from privaudit.release import (
    NoSampling,
    PoissonSampling,
    Release,
    SamplingWithoutReplacement,
    Sensitivity,
)
from privaudit.results import Bracket, CrossedSides, round_up
from tests import reference as ref
from tests.tiers import examples

DELTA = 1e-5
ADD, REPLACE = "add-or-remove-one", "replace-one"


def release(z, sampling=None, mechanism="gaussian", norm_bound=1.0):
    return Release.of_sum(
        norm_bound=norm_bound,
        noise_multiplier=z,
        sampling=sampling or NoSampling(),
        mechanism=mechanism,
    )


def poisson(z, rate, mechanism="gaussian"):
    return release(z, PoissonSampling(rate), mechanism)


def of(*entries, **more):
    """The certificate of one node."""
    relation = more.pop("relation", None)
    return Certificate.of(Ledger(nodes=(tuple(entries),), **more), relation)


def network(*nodes, **more):
    return Ledger(nodes=tuple(tuple(entries) for entries in nodes), **more)


multipliers = st.floats(0.4, 20)
rates = st.floats(0.001, 0.9)
counts = st.integers(1, 300)
deltas = st.floats(-9, -1).map(lambda x: 10**x)
mechanisms = st.sampled_from(["gaussian", "laplace"])
samplings = st.one_of(
    st.just(NoSampling()),
    st.builds(PoissonSampling, rates),
    st.integers(1, 99).map(lambda size: SamplingWithoutReplacement(size, 100)),
)
ledgers = st.lists(
    st.builds(Entry, st.builds(release, multipliers, samplings, mechanisms), counts),
    min_size=1,
    max_size=3,
).map(lambda entries: network(entries))


class TestSound:
    @examples(40)
    @given(multipliers, rates, deltas)
    def test_one_sampled_release(self, z, rate, delta):
        found = of(Entry(poisson(z, rate))).epsilon(delta)

        def true(epsilon):
            return max(
                ref.sampled_gaussian_delta(1 / z, rate, epsilon, way)
                for way in ("remove", "add")
            )

        if math.isfinite(found.upper):
            assert true(found.upper) <= delta * (1 + 1e-9)
        if found.lower > 0:
            assert true(found.lower) >= delta * (1 - 1e-9)

    @examples(15)
    @given(ledgers, deltas)
    def test_never_above_a_certified_row(self, ledger, delta):
        certificate = Certificate.of(ledger)
        relation = certificate.relation
        both = certificate.epsilon(delta)
        upper = certificate.epsilon(delta, sides="upper")
        for name in ("rdp", "gdp", "analytic-gaussian", "classical-gaussian"):
            try:
                row = account(ledger, delta, relation, name).epsilon
            except ValueError:
                continue
            assert both.upper <= row * (1 + 1e-9) + 1e-12, name
            assert upper.upper <= row * (1 + 1e-9) + 1e-12, name
        assert both.lower <= upper.upper
        assert certificate.epsilon(delta, sides="lower").lower <= both.upper

    @pytest.mark.parametrize(
        ("z", "rate", "count", "delta"),
        [
            (1.0, 0.01, 1000, 1e-5),
            (533.0, 4e-5, 1, 5e-3),
            pytest.param(0.6, 0.3, 3, 0.2, marks=pytest.mark.full),
        ],
    )
    def test_never_above_dp_accounting_either(self, z, rate, count, delta):
        ledger = Ledger.of(poisson(z, rate), count)
        row = account(ledger, delta, method="pld").epsilon
        assert Certificate.of(ledger).epsilon(delta).upper <= row * 1.001 + 1e-6

    @pytest.mark.sampled(2)
    @pytest.mark.parametrize(
        "seed",
        [
            *range(4),
            *(pytest.param(seed, marks=pytest.mark.full) for seed in range(4, 20)),
        ],
    )
    def test_laplace_noise_never_costs_more_than_its_pure_epsilon(self, seed):
        generator = np.random.default_rng(seed)
        for _ in range(20):  # 400 with the slow ones
            entries, pure = [], 0.0
            for _ in range(generator.integers(1, 4)):
                scale = float(10 ** generator.uniform(-0.7, 3))
                rate = float(10 ** generator.uniform(-4, 0))
                count = int(10 ** generator.uniform(0, 3))
                entries.append(Entry(poisson(scale, rate, "laplace"), count))
                pure += count * math.log1p(rate * math.expm1(1 / scale))
            delta = float(10 ** generator.uniform(-15, -0.3))
            found = of(*entries).epsilon(delta, 0.01, tolerance=0)
            assert found.upper <= pure * (1 + 1e-12)
            assert found.lower > 0 or found.upper == 0

    @pytest.mark.parametrize("seed", range(3))
    def test_where_delta_covers_the_total_variation_epsilon_is_zero(self, seed):
        generator = np.random.default_rng(seed)
        for _ in range(80):
            z = float(10 ** generator.uniform(-1, 4))
            rate = float(10 ** generator.uniform(-6, 0))
            count = (
                int(10 ** generator.uniform(0, 5)) if generator.random() < 0.5 else 1
            )
            if generator.random() < 0.5 and count > 1:
                rate = 1.0  # exact for many
            one = rate * math.erf(1 / z / math.sqrt(8))
            whole = math.erf(math.sqrt(count) / z / math.sqrt(8))
            true = whole if rate == 1 else -math.expm1(count * math.log1p(-one))
            if true > 0.99:
                continue
            certificate = of(Entry(poisson(z, rate) if rate < 1 else release(z), count))
            for more in (1 + 1e-9, 1.5):
                found = certificate.epsilon(min(true * more, 1.0))
                assert found.upper == 0, (z, rate, count)
                one_side = certificate.epsilon(min(true * more, 1.0), sides="upper")
                assert one_side.upper == 0

    def test_the_setting_that_was_certified_at_8_and_a_half(self):
        found = of(Entry(poisson(533.0, 4e-5), 1000)).epsilon(0.005)
        assert (found.lower, found.upper) == (0.0, 0.0)

    @pytest.mark.parametrize("z", [0.7, 2.0])
    def test_samples_of_fixed_size_by_enumeration(self, z):
        """All samples of 2 of 4 records in {-1, 0, 1}, all neighbours: one release."""
        from scipy import stats

        cuts = np.linspace(-12, 12, 4001)

        def distribution(records):
            sums = [sum(some) for some in itertools.combinations(records, 2)]
            density = [stats.norm.pdf(cuts, total, z) for total in sums]
            return np.mean(density, axis=0)

        certificate = of(Entry(release(z, SamplingWithoutReplacement(2, 4))))
        rest = list(itertools.product((-1, 0, 1), repeat=3))
        found = {e: certificate.delta(e) for e in (0.0, 0.3, 1.0)}
        worst = dict.fromkeys(found, 0.0)
        for others in rest:
            for one, other in itertools.permutations((-1, 0, 1), 2):
                p, q = distribution((one, *others)), distribution((other, *others))
                for epsilon in found:
                    excess = np.clip(p - math.exp(epsilon) * q, 0, None)
                    delta = float(excess.sum()) * (cuts[1] - cuts[0])
                    worst[epsilon] = max(worst[epsilon], delta)
        for epsilon, bracket in found.items():
            assert worst[epsilon] <= bracket.upper * (1 + 1e-4) + 1e-6
            assert bracket.lower <= worst[epsilon] * (1 + 1e-4) + 1e-6

    @pytest.mark.full
    def test_samples_of_fixed_size_cost_what_alike_records_attain(self):
        # With all other records alike they are Poisson sampled, and cost 6.1877.
        entry = Entry(release(2.0, SamplingWithoutReplacement(10, 1000)), 10_000)
        found = of(entry).epsilon(DELTA)
        assert 6.18 < found.lower < 6.188 < found.upper < 8.2

    def test_no_noise_is_infinite_where_it_shows(self):
        bare = Entry(release(0.0, PoissonSampling(0.1)))
        noisy = Entry(release(3.0))
        found = of(bare, noisy).epsilon(DELTA)
        assert (found.lower, found.upper) == (math.inf, math.inf)
        assert found.method == "no noise"
        # With chance .9 nobody sees the record: nothing is known from below.
        assert of(bare).epsilon(0.2).lower == 0
        assert of(bare).epsilon(0.2).upper == math.inf
        assert of(bare).delta(1.0).lower == pytest.approx(0.1)
        assert of(bare).delta(1.0).upper == 1
        assert of(bare).epsilon(1.0).upper == 0


class TestTight:
    @pytest.mark.sampled(2)
    @pytest.mark.parametrize("width", [1e-2, 1e-3])
    def test_a_schedule(self, width):
        plan = Plan.growing_budget(1 / 0.3, 1 / 2500, 2000)
        certificate = Certificate.of(plan.ledger(1.25))
        found = certificate.epsilon(1e-4, width)
        assert found.reached
        assert found.upper <= (1 + width) * found.lower
        one_side = certificate.epsilon(1e-4, width, "upper")
        assert one_side.lower <= found.upper  # 0, or what is proved on the way
        assert found.lower <= one_side.upper <= (1 + 1.5 * width) * found.lower
        other = certificate.epsilon(1e-4, width, "lower")
        assert other.upper == math.inf
        assert found.upper >= other.lower >= (1 - 3 * width) * found.upper

    @pytest.mark.full
    def test_it_does_the_work_of_the_composition_once(self, monkeypatch):
        """Grids are counted; one side asks for no grid of the other."""
        done = collections.Counter()
        composed = Composition._composed

        def counting(of, way, grid, guess, side="above"):
            done[side] += 1
            return composed(of, way, grid, guess, side)

        monkeypatch.setattr(Composition, "_composed", counting)

        def work(of, *asked):
            done.clear()
            of.epsilon(1e-4, 1e-3, *asked)
            return dict(done)

        ledger = Plan.growing_budget(2.0, 1 / 2500, 5000).ledger()
        alone = work(compose_entries(ledger.nodes[0], ADD))
        assert sum(alone.values()) >= 2
        # Known bounds from above say when the lower side is near enough.
        assert sum(work(Certificate.of(ledger)).values()) <= sum(alone.values()) + 1
        assert "below" in alone
        assert "below" not in work(Certificate.of(ledger), "upper")

    def test_both_directions(self):
        found = of(Entry(poisson(1.0, 0.01), 10_000)).directions(DELTA)
        assert set(found) == {"remove", "add"}
        for way, true in (("remove", 6.1877), ("add", 5.611)):
            assert found[way].lower <= true * 1.0002
            assert found[way].upper >= true * 0.9998
            assert found[way].reached
        assert set(of(Entry(release(2.0))).directions(DELTA)) == {"remove"}

    @pytest.mark.parametrize("delta", [1e-9, 1e-3, 0.05])
    def test_the_worse_direction_is_the_guarantee(self, delta):
        certificate = of(Entry(poisson(0.8, 0.05), 30))
        both = certificate.epsilon(delta)
        each = certificate.directions(delta)
        most = max(bracket.upper for bracket in each.values())
        assert most == pytest.approx(both.upper, rel=1e-3)
        assert all(bracket.lower <= both.upper for bracket in each.values())

    def test_a_profile_has_what_delta_gives(self):
        plain, failing = of(Entry(release(2.0))), of(Entry(release(2.0)), failure=1e-3)
        for certificate, paid in ((plain, 0.0), (failing, 1e-3)):
            epsilons, lower, upper = certificate.profile(9)
            exact = gdp.delta(0.5, epsilons)
            assert (upper >= exact * (1 - 1e-12) + paid).all()
            assert (upper <= 1.001 * exact + paid + 1e-15).all()
            assert (lower <= exact * (1 + 1e-12)).all()
            assert (lower == 0).all() == (paid > 0)

    @pytest.mark.parametrize("which", ["schedule", "constant"])
    def test_one_upper_side_whether_or_not_a_lower_one_is_asked_for(self, which):
        entries = [Entry(poisson(1.0 + 0.01 * i, 0.02), 20) for i in range(40)]
        certificate = of(*(entries if which == "schedule" else entries[:1]))
        both = certificate.epsilon(DELTA)
        assert both.upper == certificate.epsilon(DELTA, sides="upper").upper
        assert both.reached
        assert both.upper == account(certificate.ledger, DELTA).epsilon

    def test_meeting_a_budget(self):
        certificate = of(Entry(poisson(1.0, 0.01), 10_000))
        assert certificate.meets(6.2, DELTA)
        assert certificate.meets(100.0, DELTA)
        assert not certificate.meets(6.18, DELTA)
        assert not certificate.meets(1.0, DELTA)

    def test_the_trade_off_curve_of_a_gaussian(self):
        rates_ = np.linspace(0.01, 0.99, 9)
        found = of(Entry(release(1.0))).trade_off(rates_)
        exact = norm.cdf(norm.isf(rates_) - 1.0)
        assert (found <= exact).all()
        assert np.abs(found - exact).max() < 0.02
        assert of().trade_off([0.0, 0.3, 1.0]) == pytest.approx([1.0, 0.7, 0.0])
        assert (of(Entry(release(0.0))).trade_off([0.1, 0.5]) == 0).all()


class TestFailure:
    """The chance that a sensitivity fails is paid once from delta."""

    @pytest.mark.parametrize("rate", [1.0, 0.05])
    def test_it_is_paid_exactly_once(self, rate):
        entry = Entry(poisson(2.0, rate) if rate < 1 else release(2.0), 7)
        failing = of(entry, failure=4e-6)
        plain = of(entry)
        left = 1e-5 - 4e-6
        for sides in ("both", "upper"):
            found = failing.epsilon(1e-5, 1e-3, sides).upper
            assert found == pytest.approx(
                plain.epsilon(left, 1e-3, "upper").upper, rel=1e-12
            )
            assert found > plain.epsilon(1e-5, 1e-3).upper
        each = failing.directions(1e-5)
        for way, bracket in plain.directions(left).items():
            assert each[way].upper == pytest.approx(bracket.upper, rel=1e-3)
            assert each[way].upper >= bracket.lower
            assert each[way].upper > plain.directions(1e-5)[way].upper
        for epsilon in (0.0, 1.0):
            assert failing.delta(epsilon).upper == pytest.approx(
                plain.delta(epsilon, sides="upper").upper + 4e-6, rel=1e-12
            )

    @pytest.mark.parametrize("method", ["certified", "rdp", "gdp", "pld"])
    def test_every_account_pays(self, method):
        failing = Ledger(nodes=((Entry(release(2.0), 7),),), failure=4e-6)
        plain = Ledger.of(release(2.0), 7)
        found = account(failing, 1e-5, method=method).epsilon
        assert found == pytest.approx(account(plain, 6e-6, method=method).epsilon)
        assert found > account(plain, 1e-5, method=method).epsilon * 1.005

    def test_delta_must_cover_it(self):
        failing = of(Entry(release(2.0)), failure=1e-5)
        assert failing.epsilon(1e-6).upper == math.inf
        assert failing.epsilon(1e-5).upper == math.inf
        pure = of(Entry(release(2.0, mechanism="laplace")), failure=1e-5)
        assert pure.epsilon(1e-5).upper == pytest.approx(0.5)
        assert pure.epsilon(0.99e-5).upper == math.inf
        assert pure.delta(math.inf).upper == pytest.approx(1e-5)
        assert of(failure=1e-5).epsilon(0.0).upper == 0

    def test_nothing_is_known_from_below(self):
        failing = of(Entry(release(2.0)), failure=1e-7)
        assert failing.epsilon(1e-5).lower == 0
        assert failing.delta(0.1, sides="lower").lower == 0

    def test_the_trade_off_curve_pays(self):
        entry = Entry(release(2.0))
        paid = of(entry, failure=0.2).trade_off([0.1, 0.4])
        assert (paid <= norm.cdf(norm.isf([0.1, 0.4]) - 0.5) - 0.1).all()


class TestLaws:
    @pytest.mark.parametrize("mechanism", ["gaussian", "laplace"])
    def test_the_ends_of_the_range(self, mechanism):
        certificate = of(Entry(poisson(2.0, 0.1, mechanism), 5))
        at_zero = certificate.epsilon(0.0)
        if mechanism == "gaussian":
            assert at_zero.lower == at_zero.upper == math.inf
        else:
            assert at_zero.upper == pytest.approx(5 * math.log1p(0.1 * math.expm1(0.5)))
            assert at_zero.reached
        assert certificate.epsilon(1.0).upper == 0
        assert certificate.delta(math.inf).upper == 0
        distance = certificate.delta(0.0)
        assert 0 < distance.lower <= distance.upper < 0.5
        # Each has a grid of its own, for its own target.
        assert certificate.epsilon(1.01 * distance.upper).upper == 0

    def test_no_release_is_worth_nothing(self):
        empty = of()
        for delta in (0.0, 1e-5, 1.0):
            assert empty.epsilon(delta).upper == 0
        assert empty.delta(0.0).upper == 0

    @examples(15)
    @given(multipliers, rates, counts, deltas, mechanisms)
    def test_more_noise_less_often_and_more_delta_cost_less(
        self, z, rate, count, delta, mechanism
    ):
        def worth(z=z, rate=rate, count=count, delta=delta):
            entry = Entry(poisson(z, rate, mechanism), count)
            return of(entry).epsilon(delta, 0.01)

        base = worth()
        for less in (
            worth(z=1.5 * z),
            worth(rate=rate / 2),
            worth(count=(count + 1) // 2),
            worth(delta=min(3 * delta, 1.0)),
        ):
            assert less.lower <= base.upper

    @examples(10)
    @given(st.permutations(range(3)), deltas)
    def test_order_of_entries_and_nodes_changes_nothing(self, order, delta):
        entries = [
            Entry(poisson(1.0, 0.1), 3),
            Entry(release(5.0), 2),
            Entry(poisson(2.0, 0.02), 50),
        ]
        one, two = of(*entries), of(*(entries[i] for i in order))
        assert one.epsilon(delta) == two.epsilon(delta)
        nodes = [[entry] for entry in entries]
        first = Certificate.of(network(*nodes)).epsilon(delta)
        second = Certificate.of(network(*(nodes[i] for i in order))).epsilon(delta)
        assert first == second

    def test_the_worst_node_speaks_for_all(self):
        nodes = [[Entry(poisson(z, 0.1), 20)] for z in (4.0, 1.0, 2.0)]
        certificate = Certificate.of(network(*nodes, nodes[0]))
        each = [one.epsilon(DELTA) for one in certificate.nodes]
        whole = certificate.epsilon(DELTA)
        assert (whole.lower, whole.upper) == (each[1].lower, each[1].upper)
        assert "a record is at one node only" in str(whole)
        assert each[0] == each[3]
        nodes = certificate.nodes
        assert nodes[0] is nodes[3]
        assert certificate.node(2).epsilon(DELTA) == each[2]

    def test_nodes_alike_are_accounted_once(self, monkeypatch):
        from privaudit.accounting import certificate as module

        asked = []
        prove = module.prove
        monkeypatch.setattr(
            module, "prove", lambda *some: asked.append(some) or prove(*some)
        )
        nodes = [[Entry(poisson(2.0, 0.1), 20)]] * 50
        Certificate.of(network(*nodes)).epsilon(DELTA)
        assert len(asked) <= 2  # of one node for all: its upper side, and its lower one

    def test_joined_ledgers(self):
        parts = [
            network([Entry(poisson(z, 0.1), 20)], failure=f)
            for z, f in ((1.0, 1e-7), (2.0, 1e-6))
        ]
        joined = Certificate.of(Ledger.joined(parts)).epsilon(DELTA)
        assert joined.upper >= max(
            Certificate.of(part).epsilon(DELTA, sides="upper").upper for part in parts
        )

    def test_the_relation_is_chosen_by_meaning(self):
        fixed = release(1.0, SamplingWithoutReplacement(1, 10))
        assert relation_of(Ledger.of(release(1.0))) == ADD
        assert relation_of(network([Entry(release(1.0))], [Entry(fixed)])) == REPLACE
        assert of(Entry(fixed)).relation == REPLACE
        with pytest.raises(ValueError, match="account it under replace-one"):
            of(Entry(fixed), relation=ADD).epsilon(DELTA)
        with pytest.raises(ValueError, match="relation must be add-or"):
            of(Entry(fixed), relation="replace-two")

    def test_a_node_as_unit_has_no_lower_side(self):
        found = of(Entry(release(2.0)), unit="node").epsilon(DELTA)
        assert found.lower == 0
        assert found.upper > 0
        assert found.unit == "node"
        assert "unit: node" in str(found)

    def test_assumptions_make_it_conditional(self):
        found = of(Entry(release(2.0)), assumes=("nobody looks",)).epsilon(DELTA)
        assert (found.standing, found.assumptions) == ("conditional", ("nobody looks",))
        assert "conditional, no guarantee" in str(found)
        assert "assuming that nobody looks" in str(found)

    def test_passes_from_above_and_from_below(self):
        entries = (
            Entry(release(2.0), 5, 0),
            Entry(release(3.0)),
            Entry(release(4.0), 9, 0),
        )
        found = of(*entries, relation=REPLACE).epsilon(DELTA)
        above = math.sqrt(2.0**-2 + 3.0**-2)  # the worst of the pass, and the other
        assert found.upper == pytest.approx(float(gdp.epsilon(2 * above, DELTA)))
        assert found.lower == pytest.approx(float(gdp.epsilon(2 / 3, DELTA)))
        lower = of(*entries, relation=REPLACE).epsilon(DELTA, sides="lower")
        assert lower.lower == found.lower

    def test_wrong_arguments_say_what_is_allowed(self):
        certificate = of(Entry(release(2.0)))
        with pytest.raises(ValueError, match=r"delta must be in \[0, 1\], got -1"):
            certificate.epsilon(-1.0)
        with pytest.raises(ValueError, match="epsilon must be >= 0"):
            certificate.delta(math.nan)
        with pytest.raises(ValueError, match="width must be in"):
            certificate.epsilon(DELTA, 0.0)
        with pytest.raises(ValueError, match="sides must be both, upper or lower"):
            certificate.epsilon(DELTA, 0.1, "left")
        with pytest.raises(ValueError, match="false positive rates"):
            certificate.trade_off([2.0])


class TestOverlap:
    def test_one_is_the_worst_node(self):
        nodes = [[Entry(poisson(z, 0.1), 20)] for z in (1.0, 3.0)]
        ledger = network(*nodes)
        assert Certificate.of(ledger, overlap=1) == Certificate.of(ledger)
        found = Certificate.of(ledger).epsilon(DELTA)
        assert found.overlap == 1
        assert "nodes" not in str(found)

    @pytest.mark.parametrize("k", [2, 3])
    def test_equal_nodes_are_the_composition_of_k(self, k):
        entry = Entry(poisson(1.5, 0.1), 20)
        found = Certificate.of(network(*[[entry]] * 5), overlap=k).epsilon(DELTA)
        whole = of(Entry(entry.release, 20 * k)).epsilon(DELTA)
        assert (found.lower, found.upper) == (whole.lower, whole.upper)
        assert found.overlap == k
        assert f"a record may be at {k} nodes" in str(found)
        assert found.to_json() != whole.to_json()

    def test_the_worst_two_of_three(self):
        z = (4.0, 1.0, 2.0)
        ledger = network(*([Entry(release(one), 2)] for one in z))
        found = Certificate.of(ledger, overlap=2).epsilon(DELTA)
        mu = math.sqrt(2 * (1.0**-2 + 2.0**-2))
        assert found.upper == pytest.approx(float(gdp.epsilon(mu, DELTA)))
        assert found.lower == pytest.approx(found.upper)
        more = Certificate.of(ledger, overlap=9)
        assert more.overlap == 3
        assert more.epsilon(DELTA).upper > found.upper

    @examples(15)
    @given(
        st.lists(st.floats(1, 20), min_size=2, max_size=5), st.integers(1, 4), deltas
    )
    def test_more_nodes_cost_more(self, multipliers_, k, delta):
        ledger = network(*([Entry(release(z))] for z in multipliers_))
        less = Certificate.of(ledger, overlap=k).epsilon(delta)
        more = Certificate.of(ledger, overlap=k + 1).epsilon(delta)
        assert less.lower <= more.upper
        worst = sorted(multipliers_)[: min(k, len(multipliers_))]
        mu = math.sqrt(sum(z**-2 for z in worst))
        true = float(gdp.epsilon(mu, delta))
        assert less.upper == pytest.approx(true, rel=1e-9)

    def test_each_node_has_its_own_passes(self):
        entry = Entry(release(2.0), 5, 0)
        found = Certificate.of(network([entry], [entry]), REPLACE, overlap=2)
        upper = found.epsilon(DELTA).upper
        assert upper == pytest.approx(float(gdp.epsilon(math.sqrt(2), DELTA)))
        assert found.epsilon(DELTA).lower == 0

    def test_each_node_may_fail(self):
        entry = Entry(release(2.0))
        failing = Certificate.of(network([entry], [entry], failure=1e-6), overlap=2)
        plain = Certificate.of(network([entry], [entry]), overlap=2)
        assert failing.epsilon(1e-5).upper == pytest.approx(
            plain.epsilon(8e-6, sides="upper").upper
        )

    def test_an_empty_node_hides_nothing(self):
        entry = Entry(release(2.0))
        found = Certificate.of(network([entry], []), overlap=2).epsilon(DELTA)
        alone = of(entry).epsilon(DELTA)
        assert (found.lower, found.upper) == (alone.lower, alone.upper)

    def test_too_many_combinations_are_refused(self):
        ledger = network(*([Entry(release(1.0 + i))] for i in range(40)))
        with pytest.raises(ValueError, match="more than 256 combinations"):
            Certificate.of(ledger, overlap=2).epsilon(DELTA)
        with pytest.raises(ValueError, match="whole number >= 1, got 0"):
            Certificate.of(ledger, overlap=0)
        with pytest.raises(ValueError, match="the unit of this ledger is a node"):
            Certificate.of(network([Entry(release(1.0))], unit="node"), overlap=2)


def bracket(**more):
    values = dict(
        quantity="epsilon",
        at=1e-5,
        lower=1.23456,
        upper=1.23457,
        reached=True,
        lower_by="one",
        upper_by="two",
        relation=ADD,
    )
    return Bracket(**(values | more))


class TestBracket:
    def test_it_is_a_sentence_rounded_to_the_safe_side(self):
        text = str(bracket())
        assert "epsilon is at most 1.235 at delta 1e-05" in text
        assert "at least 1.234 (one)" in text
        assert "(unit: record; two)" in text
        assert str(bracket(quantity="delta", upper=0.5, lower=0.1, at=2.0)).startswith(
            "certified: delta is at most 0.5000 at epsilon 2 under"
        )

    def test_it_says_both_methods(self):
        assert bracket().method == "two from above, one from below"
        assert bracket(lower_by="two").method == "two"
        assert bracket(lower=0.0, lower_by="none").method == "two"

    def test_it_is_written_and_read(self):
        for one in (bracket(), bracket(upper=math.inf)):
            assert Bracket.from_json(one.to_json()) == one

    def test_sides_that_cross_raise_with_both_provers(self):
        with pytest.raises(CrossedSides, match=r"2\.0 \(by one\).*1\.5 \(by two\)"):
            bracket(lower=2.0, upper=1.5)
        crossed = bracket().to_json().replace("1.23457", "1.2")
        with pytest.raises(ValueError, match="cannot read Bracket"):
            Bracket.from_json(crossed)

    @pytest.mark.parametrize(
        "wrong",
        [
            {"upper": math.nan},
            {"lower": math.nan},
            {"lower": -1.0},
            {"at": 2.0},
            {"quantity": "delta", "upper": 1.5},
            {"standing": "conditional"},
            {"assumptions": ("nobody looks",)},
        ],
    )
    def test_it_checks_itself(self, wrong):
        with pytest.raises(ValueError, match="bracket"):
            bracket(**wrong)

    def test_it_prints_what_an_upper_bound_prints(self):
        ledger = Ledger.of(poisson(1.0, 0.01), 1000)
        found = Certificate.of(ledger).epsilon(DELTA, sides="upper")
        assert round_up(found.upper) == round_up(account(ledger, DELTA).epsilon)
        assert account(ledger, DELTA).epsilon == found.upper


def test_a_sensitivity_of_nothing_costs_nothing():
    still = msgspec.structs.replace(
        release(1.0), sensitivity=Sensitivity(add_or_remove_one=0.0)
    )
    assert of(Entry(still, 100)).epsilon(0.0).upper == 0


@pytest.mark.parametrize("count", [10**16, 10**308])
def test_a_document_is_written_of_any_count(count):
    """Without a warning, in numbers that Python reads."""
    step = Release.of_sum(
        norm_bound=2.0, noise_multiplier=1.0, sampling=PoissonSampling(0.01)
    )
    hints = Certificate.of(Ledger.of(step, count)).witness(1e-5)["hints"]
    assert int(hints["lost"]) >= 1


@pytest.mark.sampled(3)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("mechanism", ["gaussian", "laplace"])
@pytest.mark.parametrize("power", [100, 200, 308])
def test_more_releases_than_doubles_can_add(power, mechanism):
    for noise, rate in ((1e4, 0.1), (1.0, 1.0), (1e-3, 1e-8)):
        sampling = PoissonSampling(rate) if rate < 1 else NoSampling()
        found = Certificate.of(
            Ledger.of(release(noise, sampling, mechanism), 10**power)
        )
        assert found.epsilon(1e-5).upper > 1e80
        assert found.delta(1.0).upper == 1
        assert found.guess(1e-5) > 1e80


def test_more_releases_than_doubles_count_are_refused():
    with pytest.raises(ValueError, match="count must be >= 1 and <= 1e308"):
        Ledger.of(release(1.0), 10**309)


class TestReplacedInLaplaceSamples:
    """Records replaced in Poisson samples under Laplace noise compose as guarantees."""

    @pytest.mark.parametrize(("rate", "count"), [(0.01, 1000), (0.1, 50), (0.5, 20)])
    def test_as_randomised_response_of_the_largest_loss(self, rate, count):
        """In closed form (Kairouz, Oh and Viswanath 2015), by mpmath."""
        release = Release.of_sum(
            norm_bound=1.0,
            noise_multiplier=5.0,
            sampling=PoissonSampling(rate),
            mechanism="laplace",
        )
        found = Certificate.of(Ledger.of(release, count), "replace-one").delta(0.5)
        with mpmath.workdps(40):
            q, c = mpmath.mpf(rate), mpmath.mpf(1) / 5
            most = mpmath.log(
                (1 - q + q * mpmath.exp(c)) / (1 - q + q * mpmath.exp(-c))
            )
            p = 1 / (1 + mpmath.exp(-most))
            true = mpmath.fsum(
                mpmath.binomial(count, k)
                * (p**k * (1 - p) ** (count - k))
                * max(0, 1 - mpmath.exp(0.5 - (2 * k - count) * most))
                for k in range(count + 1)
            )
        assert true * (1 - 1e-12) <= found.upper <= true * 1.05 + 1e-12
        plain = msgspec.structs.replace(release, sampling=NoSampling())
        bare = Certificate.of(Ledger.of(plain, count), "replace-one").delta(0.5)
        assert found.upper <= bare.upper

    def test_no_less_than_what_two_opposite_records_attain(self):
        """The exact law of one step, composed by its counts of ten bins, in mpmath."""
        release = Release.of_sum(
            norm_bound=1.0,
            noise_multiplier=2.0,
            sampling=PoissonSampling(0.2),
            mechanism="laplace",
        )
        edges = np.linspace(-0.5, 0.5, 9)
        cdf = [np.append(stats.laplace.cdf(edges, at), 1.0) for at in (0, 0.5, -0.5)]
        base, one, other = (np.diff(each, prepend=0.0) for each in cdf)
        p, q = 0.8 * base + 0.2 * one, 0.8 * base + 0.2 * other
        pair = Release.of(DiscretePair(tuple(p), tuple(q)), relation="replace-one")
        for count in (1, 30, 300):
            known = Certificate.of(Ledger.of(pair, count), "replace-one").epsilon(1e-6)
            found = Certificate.of(Ledger.of(release, count), "replace-one")
            upper = found.epsilon(1e-6).upper
            assert known.lower <= upper <= 1.35 * known.upper

    def test_of_many_kinds_by_groups(self):
        kinds = [
            Release.of_sum(
                norm_bound=1.0,
                noise_multiplier=5.0 + k / 50,
                sampling=PoissonSampling(0.05),
                mechanism="laplace",
            )
            for k in range(100)
        ]
        one, *_ = kinds
        ledgers = Ledger(nodes=(tuple(map(Entry, kinds)),)), Ledger.of(one, 100)
        found = [Certificate.of(x, "replace-one").epsilon(1e-6).upper for x in ledgers]
        assert 0.7 * found[1] < found[0] < found[1]
