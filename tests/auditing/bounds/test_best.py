"""Choosing an estimator, and the most that runs can show."""

import numpy as np
import pytest

from privaudit.auditing.bounds import (
    ESTIMATORS,
    Best,
    BestOf,
    Betting,
    RankWalk,
    TopHalf,
    TwoBinomial,
    most_shown,
)
from privaudit.auditing.scores import Scores
from privaudit.figure_settings import ScoreSettings
from privaudit.settings import AttackSettings, ProgramSettings
from tests.tiers import size


def gaussian(runs, shift=1.0, design="coin-flip", seed=0):
    random = np.random.default_rng(seed)
    member = random.random(runs) < 0.5
    return Scores(member, random.normal(size=runs) + shift * member, design)


def rare(seed, runs=1000):
    """Scores of an event that only members have, one in twenty of them."""
    random = np.random.default_rng(seed)
    member = random.random(runs) < 0.5
    return Scores(member, 1.0 * member * (random.random(runs) < 0.05), "coin-flip")


class TestSound:
    def test_best_of_pays_for_each(self):
        scores = gaussian(2000)
        both = BestOf((RankWalk(), TwoBinomial()))(scores, 1e-2, 0.9, threat_model="x")
        each = [
            one(scores, 1e-2, 0.95, threat_model="x").epsilon
            for one in (RankWalk(), TwoBinomial())
        ]
        assert both.epsilon == pytest.approx(max(each), abs=2e-3)

    def test_best_of_takes_shares(self):
        scores = gaussian(1000)
        uneven = BestOf((RankWalk(), TwoBinomial()), (0.2, 0.8))
        alone = TwoBinomial()(scores, 1e-2, 0.92, threat_model="x").epsilon
        assert uneven(scores, 1e-2, 0.9, threat_model="x").epsilon >= alone
        for shares in ((0.5,), (0.0, 1.0), (0.6, 0.5), (-0.1, 0.5)):
            with pytest.raises(ValueError, match="one share of alpha for each"):
                BestOf((RankWalk(), TwoBinomial()), shares)

    @pytest.mark.parametrize("draw", [gaussian, lambda *_, seed: rare(seed)])
    def test_best_is_no_more_than_its_shares_allow(self, draw):
        for seed in range(3):
            scores = draw(600, seed=seed)
            best = Best()(scores, 1e-5, 0.9, threat_model="x").epsilon
            parts = [
                one.find(scores, 1e-5, share * (1 - 0.9), 0)[0]
                for one, share in ((RankWalk(), 0.7), (TwoBinomial(), 0.3))
            ]
            assert best == max(parts)

    def test_best_of_says_the_narrowest_family_and_refuses_with_its_members(self):
        mixed = BestOf((RankWalk(), TopHalf()))
        assert mixed.valid_for == "mu-Gaussian DP"
        refusing = BestOf((RankWalk(), Betting()))
        with pytest.raises(ValueError, match="betting is valid only if"):
            refusing(gaussian(100, design="fixed"), 1e-2, threat_model="x")
        with pytest.raises(ValueError, match="at least one estimator"):
            BestOf(())


class TestTight:
    def test_best_takes_what_the_design_allows(self):
        coin, fixed = gaussian(1000), gaussian(1000, design="fixed")
        for scores, chosen in ((coin, RankWalk()), (fixed, TwoBinomial())):
            best = Best()(scores, 1e-2, threat_model="x")
            assert best.evidence.note.startswith(f"by {chosen.name}")
            if chosen.name == "two-binomial":
                assert best.epsilon == chosen(scores, 1e-2, threat_model="x").epsilon

    @pytest.mark.sized
    def test_best_takes_two_binomials_where_they_show_more(self):
        """A rare event, which is lost among the ranks: median over audits."""
        ratios = []
        for seed in range(size(9, 3)):
            best, ranks, other = (
                ESTIMATORS[name](rare(seed), 1e-5, threat_model="x").epsilon
                for name in ("best", "rank-walk", "two-binomial")
            )
            ratios.append((best / ranks, best / other))
        over_ranks, of_other = np.median(ratios, axis=0)
        assert over_ranks > 1.04
        assert of_other > 0.78

    def test_best_reaches_a_tenth_more_than_clopper_pearson(self):
        """Median over audits of N(0, 1) against N(1, 1)."""
        ratios = []
        for seed in range(12):
            scores = gaussian(4000, seed=seed)
            best, plain = (
                ESTIMATORS[name](scores, 1e-5, threat_model="x").epsilon
                for name in ("best", "clopper-pearson")
            )
            ratios.append(best / plain)
        assert np.median(ratios) > 1.1


class TestLaws:
    @pytest.mark.parametrize("name", ["best", "betting"])
    def test_most_shown_takes_the_design_of_the_runs(self, name):
        """What coins hardly give is refused; of fixed runs best is two-binomial."""
        with pytest.raises(ValueError, match="declare the design fixed"):
            most_shown(ESTIMATORS[name], 2000, 200, 1e-5)
        if name == "best":
            fixed = most_shown(Best(), 2000, 200, 1e-5, design="fixed")
            assert fixed == most_shown(TwoBinomial(), 2000, 200, 1e-5, design="fixed")

    @pytest.mark.parametrize("name", ESTIMATORS)
    def test_more_runs_can_show_more(self, name):
        shown = [most_shown(ESTIMATORS[name], runs, runs, 1e-5) for runs in (20, 200)]
        assert 0 < shown[0] < shown[1]

    @pytest.mark.sized
    @pytest.mark.parametrize("name", ["best", "two-binomial", "clopper-pearson"])
    def test_no_attack_shows_more_than_a_perfect_one(self, name):
        for seed in range(size(5, 2)):
            scores = gaussian(400, 3.0, seed=seed)
            bound = ESTIMATORS[name](scores, 1e-5, threat_model="x")
            most = most_shown(
                ESTIMATORS[name], scores.member_runs, scores.non_member_runs, 1e-5
            )
            assert bound.epsilon < most


@pytest.mark.parametrize("name", ESTIMATORS)
def test_help_has_every_estimator(name):
    told = (AttackSettings, ProgramSettings, ScoreSettings)
    assert all(name in " ".join((kind.__doc__ or "").split()) for kind in told)
