"""Contract of verdict_on: a proved lower side where it may decide, and only there."""

import msgspec
import pytest
from scipy import optimize

from privaudit.accounting import account, certificate, verdict, verdict_on
from privaudit.accounting.plans import Plan
from privaudit.claims.accounts import single
from privaudit.ledger import Ledger
from privaudit.results import Claim, LowerBound
from tests.reference import gaussian_delta

DELTA = 1e-5
ONE = Plan.constant(1.0, 1.0, 1).ledger()
# The epsilon of the mechanism.
TRUE = optimize.brentq(lambda e: float(gaussian_delta(1.0, e)) - DELTA, 1, 9)


def claim(epsilon, **more):
    values = dict(delta=DELTA, relation="add-or-remove-one", source="test")
    return Claim(epsilon=epsilon, **(values | more))


def found(epsilon, ledger=ONE, method="certified", **more):
    promised = claim(epsilon, **more)
    upper = account(ledger, promised.delta, promised.relation, method)
    return verdict_on(promised, ledger, upper)


class TestSound:
    def test_only_a_claim_below_the_truth_is_disproved(self):
        below, above = found(TRUE * 0.98), found(TRUE * 1.02)
        assert (below.status, above.status) == ("disproved", "consistent")
        assert TRUE * 0.98 < below.certified_lower <= TRUE
        assert above.certified_lower is None

    def test_a_claim_within_the_width_of_an_account_is_unproven(self):
        many = Plan.constant(1.0, 0.01, 1000).ledger()
        upper = account(many, DELTA)
        for share in (0.9, 0.95, 0.99, 0.995, 0.999, 0.9999):
            verdict = verdict_on(claim(upper.epsilon * share), many, upper)
            assert verdict.status in ("disproved", "unproven")
            assert verdict.certified_lower <= upper.epsilon
        assert found(upper.epsilon * 0.99, many).status == "disproved"

    def test_no_noise_disproves_every_claim(self):
        bare = single(0.0)
        assert found(100.0, bare).status == "disproved"

    @pytest.mark.parametrize(
        "change",
        [{"unit": "node"}, {"failure": 1e-6}],
    )
    def test_what_has_no_proved_lower_side_stays_unproven(self, change):
        ledger = msgspec.structs.replace(ONE, **change)
        unit = change.get("unit", "record")
        assert found(TRUE / 2, ledger, unit=unit).status == "unproven"

    def test_an_account_of_something_else_is_refused(self):
        upper = account(ONE, DELTA, "replace-one")
        with pytest.raises(ValueError, match="relation"):
            verdict_on(claim(1.0), ONE, upper)

    def test_what_bounds_nothing_does_not_keep_a_false_claim(self):
        many = Plan.constant(0.8, 0.01, 1000).ledger()
        weak = account(many, DELTA, method="gdp-clt")
        true = account(many, DELTA).epsilon
        assert weak.epsilon < (between := 0.97 * true)
        assert verdict_on(claim(between), many, weak).status == "disproved"


class TestNodes:
    """Nodes whose noise is 1 and 2, each held to a budget of its own."""

    LEDGER = Ledger.joined([single(1.0), single(2.0)])
    ALONE = tuple(account(one, DELTA) for one in LEDGER.apart())

    @pytest.mark.parametrize("node", [0, 1])
    def test_each_node_is_held_to_its_own_budget(self, node):
        budgets = [one.epsilon * 1.01 for one in self.ALONE]
        promised = claim(max(budgets))
        found = verdict.verdict_by_node(promised, budgets, self.LEDGER, self.ALONE)
        assert (found.status, found.claim) == ("consistent", promised)
        budgets[node] = self.ALONE[node].epsilon * 0.9  # others are below theirs
        found = verdict.verdict_by_node(promised, budgets, self.LEDGER, self.ALONE)
        assert (found.status, found.claim.epsilon) == ("disproved", budgets[node])
        assert found.upper == self.ALONE[node]

    def test_a_budget_that_is_met_exactly_is_met(self):
        budgets = [one.epsilon for one in self.ALONE]
        promised = claim(max(budgets))
        found = verdict.verdict_by_node(promised, budgets, self.LEDGER, self.ALONE)
        assert (found.status, found.claim) == ("consistent", promised)


class TestCheap:
    def test_no_lower_side_where_it_cannot_decide(self, monkeypatch):
        upper = account(ONE, DELTA)
        assumed = msgspec.structs.replace(
            upper, standing="conditional", assumes=("nobody looks",)
        )
        lower = LowerBound(
            epsilon=3.0,
            delta=DELTA,
            relation="add-or-remove-one",
            method="test",
            source="test",
            confidence=0.95,
            threat_model="all",
            member_runs=1,
            non_member_runs=1,
        )

        def never(*_):
            raise AssertionError("a lower side was computed")

        monkeypatch.setattr(verdict, "_lower_side", never)
        assert verdict_on(claim(6.0), ONE, upper).status == "consistent"
        assert verdict_on(claim(6.0), ONE, assumed).status == "unproven"
        assert verdict_on(claim(1.0), ONE, upper, lower).status == "refuted"
        with pytest.raises(AssertionError, match="was computed"):
            verdict_on(claim(1.0), ONE, upper)

    def test_a_claim_far_below_takes_one_coarse_bracket(self, monkeypatch):
        widths = []
        real = certificate.Certificate.epsilon

        def counted(self, delta, width=1e-3, sides="both"):
            widths.append((width, sides))
            return real(self, delta, width, sides)

        upper = account(ONE, DELTA)
        monkeypatch.setattr(certificate.Certificate, "epsilon", counted)
        assert verdict_on(claim(1.0), ONE, upper).status == "disproved"
        assert widths == [(0.1, "lower")]
