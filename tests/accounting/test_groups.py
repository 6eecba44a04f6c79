"""Groups of records, several ledgers of the same data, and tuning."""

from __future__ import annotations

import json
import math
from fractions import Fraction

import msgspec
import pytest
from scipy import optimize, stats

import privaudit as pa
from privaudit.accounting.certificate import Certificate
from privaudit.accounting.groups import of_group
from privaudit.cli import main
from privaudit.ledger import Entry, Ledger
from privaudit.mechanisms import ZCDP, DiscreteGaussian, EpsilonDelta
from privaudit.release import (
    NoSampling,
    PoissonSampling,
    RandomAllocation,
    Release,
    SamplingWithoutReplacement,
)
from tests import reference as ref
from tests.accounting.test_mechanisms import mixture_profile

ADD, REPLACE = "add-or-remove-one", "replace-one"


def release(z=1.0, sampling=None, mechanism="gaussian"):
    return Release.of_sum(
        norm_bound=1.0,
        noise_multiplier=z,
        sampling=sampling or NoSampling(),
        mechanism=mechanism,
    )


def epsilon(ledger, delta=1e-5, **more):
    return Certificate.of(ledger, **more).epsilon(delta)


class TestGroups:
    @pytest.mark.parametrize("size", [2, 3, 10])
    def test_unsampled_gaussian(self, size):
        bracket = Certificate.of(Ledger.of(release(4.0)), group=size).delta(1.0)
        truth = float(ref.gaussian_delta(size / 4, 1.0))
        assert bracket.lower <= truth <= bracket.upper <= truth * 1.001

    @pytest.mark.sampled(2)
    @pytest.mark.parametrize("size", [2, 5])
    def test_sampled_gaussian_of_one_step(self, size):
        z, q = 1.5, 0.2
        ledger = Ledger.of(release(z, PoissonSampling(q)))
        chances = stats.binom.pmf(range(size + 1), size, q)
        for e in (0.2, 1.0, 3.0):
            truth = max(
                mixture_profile([i / z for i in range(size + 1)], chances, way)(e)
                for way in ("remove", "add")
            )
            bracket = Certificate.of(ledger, group=size).delta(e)
            assert bracket.lower <= truth * (1 + 1e-9)
            assert truth <= bracket.upper * (1 + 1e-9)
            assert bracket.upper <= truth * 1.01

    def test_less_than_so_many_steps_away(self):
        """k epsilon at a delta that grows, of what k steps between neighbours give."""
        ledger, size = Ledger.of(release(2.0, PoissonSampling(0.01)), 1000), 4
        found = epsilon(ledger, group=size).upper
        one = Certificate.of(ledger)

        def stepwise(e):
            return math.expm1(size * e) / math.expm1(e) * one.delta(e).upper

        e = found / size
        assert stepwise(e) > 1e-5, "the whole curve gives less"
        assert found > epsilon(ledger).upper

    @pytest.mark.parametrize("size", [3, 7, 11, 100])
    def test_products_are_rounded_up(self, size):
        for i in range(1, 50):
            e = i / 137
            noise = Release.of_sum(
                norm_bound=e,
                noise_multiplier=1.0,
                sampling=NoSampling(),
                mechanism="laplace",
            )
            whole = Fraction(e) * size
            for one in (noise, Release.of(EpsilonDelta(e))):
                worth = whole / Fraction(e) if one is noise else whole
                found = epsilon(Ledger.of(one), 0.0, group=size).upper
                assert worth <= Fraction(found) <= worth * (1 + Fraction(2) ** -50)

    def test_what_is_rarely_drawn_still_tells(self):
        ledger = Ledger.of(release(0.1, PoissonSampling(1e-290)))
        assert epsilon(ledger, 0.0, group=2).upper == math.inf

    def test_a_group_that_surely_fails_is_refused(self):
        ledger = Ledger(nodes=((Entry(release()),),), failure=0.01)
        with pytest.raises(ValueError, match="failure of a group of 200 is 2: nothing"):
            of_group(ledger, 200, ADD)

    @pytest.mark.parametrize(("e", "size"), [(0.3, 3), (2.0, 2), (1e-13, 4)])
    def test_delta_of_a_guarantee_grows_from_each_record_to_the_next(self, e, size):
        """The sum of delta e^(i epsilon), i below the size."""
        found = epsilon(
            Ledger.of(Release.of(EpsilonDelta(e, 1e-4))), size * 1e-4, group=size
        )
        assert found.upper > size * e
        exact = 1e-4 * math.fsum(math.exp(i * e) for i in range(size))
        grouped, _ = of_group(Ledger.of(Release.of(EpsilonDelta(e, 1e-4))), size, ADD)
        what = grouped.nodes[0][0].release.details
        assert size * e <= what.epsilon <= size * e * (1 + 1e-12)
        assert exact <= what.delta <= exact * (1.0001 if e > 1e-12 else 2.0001)

    def test_guarantees(self):
        pure = Ledger.of(Release.of(EpsilonDelta(0.3)), 2)
        assert epsilon(pure, 0.0, group=3).upper == pytest.approx(1.8, rel=1e-9)
        rho = Ledger.of(Release.of(ZCDP(0.01)))
        nine = Ledger.of(Release.of(ZCDP(0.09)))
        assert epsilon(rho, group=3).upper == pytest.approx(epsilon(nine).upper)
        whole = Ledger.of(Release.of(DiscreteGaussian(5.0)))
        far = Ledger.of(Release.of(DiscreteGaussian(5.0, 3)))
        assert epsilon(whole, group=3) == epsilon(far)

    @pytest.mark.parametrize(
        ("one", "relation"),
        [
            (release(3.0, SamplingWithoutReplacement(10, 100)), REPLACE),
            (release(3.0, PoissonSampling(0.1)), REPLACE),
            (release(3.0, PoissonSampling(0.1), "laplace"), ADD),
        ],
    )
    def test_without_amplification_there_is_no_lower_side(self, one, relation):
        bracket = Certificate.of(Ledger.of(one), relation, group=2).epsilon(1e-5)
        plain = msgspec.structs.replace(one, sampling=NoSampling())
        if one.sampling.__class__ is SamplingWithoutReplacement:
            plain = release(3.0)
        far = Certificate.of(Ledger.of(plain), relation, group=2).epsilon(1e-5)
        assert bracket.lower == 0
        assert bracket.upper == pytest.approx(far.upper, rel=1e-3)

    @pytest.mark.parametrize(
        ("ledger", "size", "words"),
        [
            (Ledger.of(release()), 0, "whole number of records from 1 to 500, got 0"),
            (Ledger.of(release()), 1.5, "got 1.5"),
            (Ledger.of(release(1.0, RandomAllocation(9)), 9), 2, "random allocation"),
            (
                Ledger(nodes=((Entry(release(), 1, 0),),)),
                2,
                "passes over disjoint records are not accounted for groups",
            ),
            (
                Ledger.of(Release.of(EpsilonDelta(1.0, 0.2))),
                4,
                "delta of a group of 4 is .*: nothing is bounded",
            ),
        ],
    )
    def test_refused(self, ledger, size, words):
        with pytest.raises(ValueError, match=words):
            of_group(ledger, size, ADD)

    def test_a_failure_may_happen_to_each(self):
        ledger = Ledger(nodes=((Entry(release()),),), failure=1e-6)
        grouped, _ = of_group(ledger, 3, ADD)
        assert grouped.failure >= 3e-6


class TestSeveralLedgers:
    def test_they_are_one_after_another(self):
        one = Ledger.of(release(2.0, PoissonSampling(0.1)), 50)
        two = Ledger.of(release(1.0), 1)
        both = Ledger(nodes=((*one.nodes[0], *two.nodes[0]),))
        assert Ledger.composed([one, two]) == both
        assert pa.epsilon(ledger=[one, two], delta=1e-5) == epsilon(both)
        assert pa.epsilon(ledger=[one], delta=1e-5) == epsilon(one)

    def test_failures_add_up_and_assumptions_stay(self):
        parts = [
            Ledger(nodes=((Entry(release()),),), failure=1e-6, assumes=(what,))
            for what in ("a", "b")
        ]
        whole = Ledger.composed(parts)
        assert 2e-6 <= whole.failure < 2.0001e-6
        assert whole.assumptions == ("a", "b")

    def test_passes_stay_apart(self):
        part = Ledger(nodes=((Entry(release(), 3, 0), Entry(release(), 3, 1)),))
        whole = Ledger.composed([part, part])
        assert [entry.disjoint for entry in whole.nodes[0]] == [0, 1, 2, 3]
        four = epsilon(Ledger.of(release(), 4)).upper
        assert epsilon(whole).upper == pytest.approx(four)

    @pytest.mark.parametrize(
        ("parts", "words"),
        [
            ([], "at least one ledger"),
            ([Ledger.of(release()), Ledger.of(release(), nodes=2)], "got 1, 2 of them"),
            (
                [Ledger.of(release()), Ledger(nodes=((),), unit="node")],
                "different units, node and record",
            ),
            (
                [Ledger.of(release(1.0, RandomAllocation(9)), 5)] * 2,
                "ended within an epoch",
            ),
            (
                [Ledger(nodes=((Entry(release()),),), failure=0.6)] * 2,
                "chances of failure add up",
            ),
        ],
    )
    def test_refused(self, parts, words):
        with pytest.raises(ValueError, match=words):
            Ledger.composed(parts)

    def test_the_command_takes_several(self, tmp_path, capsys):
        one = Ledger.of(release(2.0, PoissonSampling(0.1)), 50)
        two = Ledger.of(Release.of(ZCDP(0.01)), 2)
        files = [tmp_path / "one.json", tmp_path / "two.json"]
        for file, ledger in zip(files, (one, two), strict=True):
            file.write_text(ledger.to_json())
        given = [part for file in files for part in ("--ledger", str(file))]
        assert main(["epsilon", "--delta", "1e-5", "--json", *given]) in (0, None)
        found = json.loads(capsys.readouterr().out)
        wanted = pa.epsilon(ledger=[one, two], delta=1e-5)
        assert found["upper"] == pytest.approx(wanted.upper)
        assert main(
            [*["epsilon", "--delta", "1e-5", "--group", "2", "--json"], *given[:2]]
        ) in (
            0,
            None,
        )
        more = json.loads(capsys.readouterr().out)
        assert more["group"] == 2
        assert more["upper"] == pytest.approx(epsilon(one, group=2).upper)


class TestTuning:
    def test_a_pure_try_costs_three_times(self):
        """Corollary 3 of Papernot and Steinke: (2 + shape) epsilon, shape 1."""
        tuned = pa.repeat_and_select(
            Ledger.of(release(2.0, mechanism="laplace")), tries=9
        )
        assert 1.0 < epsilon(tuned, 1e-9).upper <= 1.5 + 0.05

    @pytest.mark.parametrize("shape", [0.0, 0.5, 1.0, 3.0])
    @pytest.mark.parametrize(("z", "tries"), [(2.0, 10), (6.0, 1000)])
    def test_each_order_costs_what_the_theorem_says(self, shape, z, tries):
        """Theorem 2 there, of rho a, with its best orders found in closed form."""
        tuned = pa.repeat_and_select(Ledger.of(release(z)), tries=tries, law=shape)
        rho, log = 0.5 / z**2, math.log(tries)

        def mean(gamma):  # definition 1 there
            if not shape:
                return (1 / gamma - 1) / -math.log(gamma)
            return shape * (1 - gamma) / gamma / (1 - gamma**shape)

        gamma = optimize.brentq(lambda g: mean(g) - tries, 1e-9, 0.999, xtol=1e-15)
        best = max(1.0, math.sqrt(-math.log(gamma) / rho))
        rest = (1 + shape) * ((best - 1) * rho - math.log(gamma) / best)
        turn = 1 + math.sqrt(log / rho)  # where a higher order has the least
        curve = tuned.nodes[0][0].release.details
        for order, found in zip(curve.orders, curve.divergences, strict=True):
            top = max(order, turn)
            truth = top * rho + log / (top - 1) + rest
            assert truth * (1 - 1e-9) <= found <= truth * 1.01

    @pytest.mark.sampled(4)
    @pytest.mark.parametrize("law", ["geometric", "logarithmic", "poisson", 0.5])
    def test_more_tries_cost_more(self, law):
        one = Ledger.of(release(1.0, PoissonSampling(0.01)), 500)
        few, many = (
            epsilon(pa.repeat_and_select(one, tries=n, law=law)).upper for n in (5, 500)
        )
        assert epsilon(one).upper < few < many < 30

    @pytest.mark.parametrize(
        ("more", "words"),
        [
            ({"tries": 0.5}, "between 1 and 1e10, got 0.5"),
            (
                {"tries": 5, "law": "uniform"},
                "logarithmic, poisson or a number",
            ),
            ({"tries": 5, "law": -1.0}, "shape >= 0, got -1.0"),
            ({"tries": 5, "law": 1e9}, "1e4, .* got 1000000000.0; .* poisson"),
            ({"tries": 5, "law": 1e15}, "larger shapes are as poisson"),
        ],
    )
    def test_refused(self, more, words):
        with pytest.raises(ValueError, match=words):
            pa.repeat_and_select(Ledger.of(release()), **more)

    def test_the_command_charges_it(self, capsys):
        words = (
            "--delta 1e-5 --noise-multiplier 2 --sampling-rate 0.01 --steps 100 --json"
        )
        main(["epsilon", *words.split(), "--tries", "10"])
        found = json.loads(capsys.readouterr().out)
        ledger = Ledger.of(release(2.0, PoissonSampling(0.01)), 100)
        wanted = epsilon(pa.repeat_and_select(ledger, tries=10)).upper
        assert found["upper"] == pytest.approx(wanted)
