"""Contract of privaudit.accounting.pld.menus: budgets whose typical is a menu."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import privaudit as pa
from privaudit.accounting.filters import Budget, BudgetExceeded
from privaudit.accounting.pld.dots import GridMeasure
from privaudit.accounting.pld.menus import Menu, _Bundle
from privaudit.mechanisms import DiscreteGaussian, DiscreteLaplace, EpsilonDelta
from privaudit.release import Release
from tests.accounting.menus import Game, draw, release_of
from tests.tiers import examples

# The twin is from above, by some thousandths where atoms are between grid points.
_FINE = 1.005


def played(kinds, epsilon, delta, budget=None):
    budget = budget or Budget(
        epsilon=epsilon, delta=delta, typical=[release_of(one) for one in kinds]
    )
    game = Game(kinds, epsilon, epsilon / 400, 3 * epsilon + 1)
    return max(game.reached(budget, way) for way in ("remove", "add")) / delta


class TestSound:
    @pytest.mark.sampled(2)
    @pytest.mark.parametrize(
        ("kinds", "epsilon", "delta"),
        [
            ([("gaussian", 5.5, 1.0), ("gaussian", 1.4, 0.2)], 2.0, 1e-5),
            ([("gaussian", 3.5, 1.0), ("guarantee", 0.3, 0.0)], 4.0, 1e-5),
            # Of fixed numbers few have shares of delta between .5 and .6.
            ([("guarantee", 0.17, 1e-6), ("discrete-laplace", 0.12, 1.0)], 2.0, 1e-5),
            pytest.param(
                [("discrete-laplace", 0.18, 1.0), ("guarantee", 0.33, 1e-7)],
                *(4.0, 1e-5),
                marks=pytest.mark.full,
            ),
            pytest.param(
                [("laplace", 3.0, 1.0), ("discrete-gaussian", 3.2, 1.0)],
                *(4.0, 1e-5),
                marks=pytest.mark.full,
            ),
        ],
    )
    def test_the_exact_game_reaches_most_of_delta_and_never_more(
        self, kinds, epsilon, delta
    ):
        budget = Budget(
            epsilon=epsilon, delta=delta, typical=[release_of(one) for one in kinds]
        )
        assert budget._filter.name == "filter of the menu"
        assert 0.9 <= played(kinds, epsilon, delta, budget) <= _FINE

    @pytest.mark.full
    @examples(30)
    @given(st.integers(0, 2**32 - 1))
    def test_no_menu_is_exceeded(self, seed):
        kinds, epsilon, delta = draw(np.random.default_rng(seed))
        assert played(kinds[:2], epsilon, delta) <= _FINE

    def test_bundles_are_counted_as_begun(self):
        """Of thousands some together are one, and one by one costs the same."""
        admitted = frozenset([(0, 0), (1, 0), (2, 0), (0, 1), (1, 1)])
        menu = Menu((30, 1), admitted, 0.9)
        assert [menu.room((n, 0), 0) for n in (0, 1, 30, 60)] == [60, 59, 30, 0]
        assert [menu.room((n, 0), 1) for n in (0, 1, 30, 31)] == [1, 1, 1, 0]
        assert menu.room((3, 1), 0) == 27

    @pytest.mark.parametrize("count", [2, 7])
    def test_a_bundle_is_no_less_than_its_releases(self, count):
        """Against plain sums of products: no mass is lost, nor moved down."""
        mass = np.array([0.2, 0.5, 0.25, 0.05 - 1e-6])
        bundle = _Bundle.of(GridMeasure(-1, mass, 1e-6, 0.0), count, 0.3, 1e-15)
        assert bundle is not None
        plain = np.ones(1)
        for _ in range(count):
            plain = np.convolve(plain, mass)
        index = bundle.start + np.arange(bundle.tilted.size)
        found = np.zeros(plain.size)
        found[index + count] = bundle.tilted * np.exp(-0.3 * index)
        least = 1 - (1 - 1e-6) ** count
        assert least <= bundle.infinite <= least + count**2 * 1e-12 + 1e-14
        above = [np.cumsum(each[::-1]) for each in (found, plain)]
        assert (above[0] + bundle.infinite >= above[1] + least).all()
        assert above[0] == pytest.approx(above[1], abs=1e-9)

    def test_what_a_kind_dominates_costs_as_much_and_all_else_is_refused(self):
        kinds = [("gaussian", 4.5, 1.0), ("laplace", 6.0, 1.0)]
        budget = Budget(
            epsilon=2.0, delta=1e-5, typical=[release_of(one) for one in kinds]
        )
        budget.spend(release_of(("gaussian", 5.5, 1.0)))
        assert budget._state == (1, 0)
        budget.spend(release_of(("laplace", 90.0, 1.0)))
        assert budget._state == (1, 1)
        for other in (("gaussian", 4.4, 1.0), ("guarantee", 0.01, 0.0)):
            assert budget.room(release_of(other)) == 0
            with pytest.raises(BudgetExceeded):
                budget.spend(release_of(other))
        budget.spend(release_of(("gaussian", 1.0, 0.0)))  # tells nothing


EDGE = 1.0, 1e-5


def near(kind, more):
    """A release whose parameter is ``more`` of the least that fits (1, 1e-5)."""
    if kind == "guarantee":
        return Release.of(EpsilonDelta(EDGE[0] / more, EDGE[1] / more))
    if kind == "discrete-laplace":
        return Release.of(DiscreteLaplace(1.0 / more, sensitivity=1))
    if kind == "laplace":
        return release_of(("laplace", more, 1.0))
    if kind == "discrete-gaussian":
        return Release.of(DiscreteGaussian(3.7303 * more, 1))
    if kind == "sampled":
        return release_of(("gaussian", 0.9 * more, 0.05))
    return release_of(("gaussian", 3.7303 * more, 1.0))


class TestLaws:
    @examples(25)
    @given(
        st.sampled_from(
            [
                *("gaussian", "sampled", "laplace", "guarantee"),
                *("discrete-gaussian", "discrete-laplace"),
            ]
        ),
        st.floats(-6, 0).map(lambda x: 1 + 10**x),
        st.sampled_from([None, "gaussian", "sampled", "guarantee", "menu"]),
    )
    def test_one_that_fits_alone_is_never_refused_as_the_first(
        self, kind, more, typical
    ):
        one = near(kind, more)
        given_ = near(typical, 3.0) if typical not in (None, "menu") else None
        if typical == "menu":
            given_ = [near("gaussian", 3.0), near("laplace", 4.0)]
        budget = pa.Budget(epsilon=EDGE[0], delta=EDGE[1], typical=given_)
        alone = pa.Certificate.of(pa.Ledger.of(one))
        if kind == "guarantee" or alone.delta(EDGE[0]).upper <= EDGE[1]:
            budget.spend(one)
        else:
            with pytest.raises(BudgetExceeded):
                budget.spend(one)

    def test_kinds_that_do_not_fit_are_left_out(self):
        kinds = [release_of(("gaussian", 0.5, 1.0)), release_of(("laplace", 9.0, 1.0))]
        budget = Budget(epsilon=1.0, delta=1e-5, typical=kinds)
        assert budget.room(kinds[0]) == 0
        assert budget.room(kinds[1]) >= 8
        assert budget.left == 1
        budget.spend(kinds[1], budget.room(kinds[1]))
        assert math.isclose(budget.left, 0.0)
        with pytest.raises(ValueError, match="empty"):
            Budget(epsilon=1.0, delta=1e-5, typical=[])
