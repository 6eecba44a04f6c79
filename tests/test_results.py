"""Contract of privaudit.results."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from privaudit.files import json as _json
from privaudit.results import (
    MEANING,
    Bracket,
    Claim,
    CrossedSides,
    Finding,
    LowerBound,
    UpperBound,
    round_down,
    round_up,
    worst,
)

numbers = st.floats(0, 1e300)
epsilons = st.floats(0, 1e6) | st.just(math.inf)
deltas = st.floats(1e-300, 0.99)


def upper(epsilon=1.0, delta=1e-5, **more):
    values = dict(
        relation="add-or-remove-one", method="pld", source="test", standing="certified"
    )
    return UpperBound(epsilon=epsilon, delta=delta, **(values | more))


def lower(epsilon=0.5, delta=1e-5, **more):
    values = dict(
        relation="add-or-remove-one",
        method="clopper-pearson",
        source="test",
        confidence=0.95,
        threat_model="everything",
        member_runs=10,
        non_member_runs=12,
    )
    return LowerBound(epsilon=epsilon, delta=delta, **(values | more))


def claim(epsilon=1.0, delta=1e-5, **more):
    values = dict(relation="add-or-remove-one", source="a paper")
    return Claim(epsilon=epsilon, delta=delta, **(values | more))


def proved(lower=2.0, delta=1e-5, **more):
    values = dict(
        quantity="epsilon",
        at=delta,
        upper=math.inf,
        reached=False,
        lower_by="privacy loss distributions",
        upper_by="none",
        relation="add-or-remove-one",
    )
    return Bracket(lower=lower, **(values | more))


KINDS = [upper(), lower(), claim()]


class TestSound:
    @given(numbers, st.integers(1, 12))
    def test_upper_bounds_are_rounded_up(self, value, digits):
        assert Fraction(round_up(value, digits)) >= Fraction(value)

    @given(numbers, st.integers(1, 12))
    def test_lower_bounds_are_rounded_down(self, value, digits):
        assert Fraction(round_down(value, digits)) <= Fraction(value)

    @pytest.mark.parametrize("short", [10.0, 1.0, 0.25, 3.142, 1e-7])
    def test_past_a_short_number_it_takes_digits_and_no_step(self, short):
        over, under = math.nextafter(short, math.inf), math.nextafter(short, 0)
        assert over <= float(round_up(over)) <= short * (1 + 1e-6)
        assert under >= float(round_down(under)) >= short * (1 - 1e-6)
        assert float(round_up(under)) == float(round_down(over)) == short

    @given(st.floats(1e-300, 1e300), st.integers(2, 12))
    def test_rounding_stays_within_a_digit(self, value, digits):
        width = Fraction(round_up(value, digits)) - Fraction(round_down(value, digits))
        assert width <= Fraction(value) * Fraction(10) ** (1 - digits)

    def test_the_sentence_never_claims_too_much(self):
        assert "at most 1.235 at" in str(upper(epsilon=1.23401))
        assert "at least 1.234 " in str(lower(epsilon=1.23499))

    def test_what_is_not_certified_says_so(self):
        assert "no guarantee" in str(upper(standing="asymptotic"))
        assert "not checked" in str(upper(standing="claimed"))
        assert "Gaussian DP only" in str(lower(valid_for="Gaussian DP"))

    @pytest.mark.parametrize(
        ("left", "right"),
        [
            (one, other)
            for one, other in itertools.product(KINDS, KINDS)
            if {type(one), type(other)}
            not in ({LowerBound, Claim}, {LowerBound, UpperBound})
        ],
    )
    def test_no_order_between_figures_that_decide_nothing(self, left, right):
        for compare in (
            lambda: left > right,
            lambda: left < right,
            lambda: left >= right,
            lambda: left <= right,
        ):
            with pytest.raises(TypeError):
                compare()

    def test_a_verdict_takes_each_figure_in_its_place_only(self):
        with pytest.raises(TypeError, match="lower"):
            Finding(claim=claim(), lower=upper())
        with pytest.raises(TypeError, match="upper"):
            Finding(claim=claim(), upper=claim())
        with pytest.raises(TypeError, match="lower"):
            Finding(claim=claim(), lower=claim())
        with pytest.raises(TypeError, match="claim"):
            Finding(claim=upper())

    def test_figures_of_different_guarantees_are_not_put_together(self):
        with pytest.raises(ValueError, match="relation"):
            Finding(claim=claim(), upper=upper(relation="replace-one"))
        with pytest.raises(ValueError, match="unit"):
            Finding(claim=claim(), lower=lower(unit="node"))
        with pytest.raises(ValueError, match="delta"):
            Finding(claim=claim(delta=1e-3), lower=lower(delta=1e-5))

    @given(epsilons, epsilons, epsilons)
    def test_the_three_verdicts(self, promised, above, below):
        verdict = Finding(claim=claim(promised), upper=upper(above), lower=lower(below))
        if below > promised:
            assert verdict.status == "refuted"
        elif below <= above <= promised:
            assert verdict.status == "consistent"
        else:
            assert verdict.status == "unproven"
        assert verdict.account_contradicted == (below > above)

    @given(epsilons, epsilons, epsilons, epsilons)
    def test_scores_that_the_account_excludes_leave_no_claim_consistent(
        self, promised, above, below, other
    ):
        bare = Finding(claim=claim(promised), upper=upper(above), lower=lower(below))
        verdict = bare.held_against(lower(other))
        assert (verdict.misfit is None) == (other <= above)
        assert verdict.account_contradicted == (max(below, other) > above)
        if bare.status != "consistent" or other <= above:
            assert verdict.status == bare.status  # it refutes nothing
        else:
            assert verdict.status == "unproven"
            assert "contradicts that account" in verdict.reason
            assert "scores do not fit the account" in verdict.reason

    def test_a_conditional_account_is_contradicted_too(self):
        above = upper(2.0, standing="conditional", assumes=("nobody looks",))
        fits, not_so = (
            Finding(claim=claim(9.0), upper=above, lower=lower(below))
            for below in (1.9, 2.1)
        )
        assert not fits.account_contradicted
        assert not_so.account_contradicted
        assert "exceeds the conditional bound" in not_so.reason

    def test_only_a_certificate_at_the_claimed_delta_proves(self):
        assert Finding(claim=claim()).status == "unproven"
        for weak in (upper(0.1, standing="asymptotic"), upper(0.1, delta=1e-4)):
            assert Finding(claim=claim(), upper=weak).status == "unproven"
        assert Finding(claim=claim(), upper=upper(0.1, delta=1e-6)).status == (
            "consistent"
        )

    @given(epsilons, st.floats(0, 1e6), epsilons)
    def test_a_proved_lower_side_disproves(self, promised, below, audited):
        verdict = Finding(
            claim=claim(promised), proved=proved(below), lower=lower(audited)
        )
        if audited > promised:
            assert verdict.status == "refuted"
        elif below > promised:
            assert verdict.status == "disproved"
        else:
            assert verdict.status == "unproven"

    def test_a_lower_side_decides_its_own_claim_only(self):
        with pytest.raises(ValueError, match="relation"):
            Finding(claim=claim(), proved=proved(relation="replace-one"))
        with pytest.raises(ValueError, match="unit"):
            Finding(claim=claim(), proved=proved(unit="node"))
        for delta in (1e-6, 1e-4):
            with pytest.raises(ValueError, match="compute it there"):
                Finding(claim=claim(), proved=proved(delta=delta))
        with pytest.raises(ValueError, match="lower side of delta"):
            Finding(claim=claim(), proved=proved(0.5, quantity="delta", upper=1.0))
        with pytest.raises(TypeError, match="proved"):
            Finding(claim=claim(), proved=lower(2.0))

    def test_sides_that_cross_are_never_hidden(self):
        with pytest.raises(CrossedSides, match=r"2\.0 \(by privacy loss"):
            Finding(claim=claim(), upper=upper(1.5), proved=proved(2.0))
        for free in (upper(1.5, standing="asymptotic"), upper(1.5, delta=1e-4)):
            verdict = Finding(claim=claim(), upper=free, proved=proved(2.0))
            assert verdict.status == "disproved"

    def test_every_status_has_one_word_and_its_reason(self):
        for verdict, word, reason in (
            (Finding(claim=claim(), lower=lower(2.0)), "refuted", "an attack on"),
            (
                Finding(claim=claim(), proved=proved(2.34567)),
                "disproved",
                "epsilon is at least 2.345 (privacy loss distributions)",
            ),
            (Finding(claim=claim(), upper=upper(2.0)), "unproven", "no certified"),
            (Finding(claim=claim(), upper=upper()), "consistent", "meets the claim"),
        ):
            assert verdict.status == word
            assert word in MEANING
            assert str(verdict) == f"{word.upper()}: {verdict.reason}"
            assert reason in verdict.reason

    def test_the_worst_word_comes_first(self):
        words = ["consistent", "unproven", "disproved", "refuted"]
        for last in range(1, 5):
            assert worst(words[:last]) == words[last - 1]

    def test_a_lower_bound_at_a_larger_delta_refutes(self):
        assert lower(2.0, delta=1e-2) > claim(1.0, delta=1e-5)
        assert claim(1.0, delta=1e-5) < lower(2.0, delta=1e-2)


WRONG = {
    "epsilon": ["1", None, [1.0], True, math.nan, -1.0],
    "delta": ["1", None, math.nan, 1.0],
    "relation": ["add", None, ["replace-one"]],
    "unit": ["a record", None],
}


@pytest.mark.parametrize(
    ("field", "value"), [(one, value) for one, all_ in WRONG.items() for value in all_]
)
def test_a_wrong_field_is_named(field, value):
    with pytest.raises(ValueError, match=f"{field} ") as caught:
        claim(**{field: value})
    assert "\n" not in str(caught.value)


def test_numbers_of_another_library_are_plain():
    made = claim(epsilon=np.float32(1), delta=np.float64(1e-5))
    assert Claim.from_json(made.to_json()) == made == claim()


class TestLaws:
    @given(epsilons, deltas)
    def test_json_gives_back_what_was_written(self, epsilon, delta):
        for figure in (upper(epsilon, delta), lower(epsilon, delta)):
            assert type(figure).from_json(figure.to_json()) == figure

    def test_a_verdict_written_without_a_lower_side_still_reads(self):
        for verdict in (
            Finding(claim=claim()),
            Finding(claim=claim(), proved=proved()),
        ):
            text = _json.encode(verdict)
            assert _json.decode(text, Finding) == verdict
        old = _json.encode({"claim": claim(), "upper": upper(2.0), "lower": lower()})
        assert _json.decode(old, Finding).status == "unproven"

    def test_sides_that_cross_in_a_file_are_told_as_damage(self):
        fields = {"claim": claim(), "upper": upper(1.5), "proved": proved(2.0)}
        with pytest.raises(ValueError, match="cannot read Finding"):
            _json.decode(_json.encode(fields), Finding)

    def test_json_refuses_other_kinds_and_unknown_fields(self):
        with pytest.raises(ValueError, match="LowerBound"):
            LowerBound.from_json(upper().to_json())
        with pytest.raises(ValueError, match="extra"):
            Claim.from_json(claim().to_json().replace('"unit"', '"extra": 1, "unit"'))

    @pytest.mark.parametrize("kind", [upper, lower, claim])
    @pytest.mark.parametrize(
        ("epsilon", "delta"),
        [(-1.0, 1e-5), (math.nan, 1e-5), (1.0, -0.1), (1.0, 1.0), (1.0, math.nan)],
    )
    def test_nonsense_is_refused(self, kind, epsilon, delta):
        with pytest.raises(ValueError, match="must be"):
            kind(epsilon, delta)

    def test_results_cannot_be_changed(self):
        with pytest.raises(AttributeError):
            upper().epsilon = 0.1


def test_a_conditional_bound_has_words_for_what_it_assumes():
    about = {"relation": "add-or-remove-one", "unit": "record", "source": "a test"}
    given = {**about, "epsilon": 1.0, "delta": 1e-5, "method": "rdp"}
    with pytest.raises(ValueError, match="assumes has an empty text"):
        UpperBound(**given, standing="conditional", assumes=("",))
