"""AUROC and TPR at fixed FPR, with intervals."""

import numpy as np
import pytest
from scipy import stats
from sklearn import metrics
from statsmodels.stats.proportion import proportion_confint

from privaudit.auditing.rates import FPRS, attack_rates
from privaudit.auditing.scores import Scores


def gaussian(seed, members=150, others=400, shift=1.0):
    random = np.random.default_rng([7, seed])
    member = np.arange(members + others) < members
    score = random.normal(size=members + others) + shift * member
    return Scores(member, score, "fixed")


def delong(scores):
    """The variance by its definition: all pairs, one by one."""
    wins = (scores.members[:, None] > scores.non_members) + 0.5 * (
        scores.members[:, None] == scores.non_members
    )
    ours, theirs = wins.mean(1), wins.mean(0)
    return ours.var(ddof=1) / len(ours) + theirs.var(ddof=1) / len(theirs)


class TestSound:
    @pytest.mark.parametrize("digits", [9, 0])  # without ties, and with many
    def test_auroc_is_that_of_scikit_learn(self, digits):
        plain = gaussian(0)
        scores = Scores(plain.member, plain.score.round(digits), "fixed")
        found = attack_rates(scores).auroc
        expected = metrics.roc_auc_score(scores.member, scores.score)
        assert found.value == pytest.approx(expected, abs=1e-12)
        half = stats.norm.isf(0.025) * np.sqrt(delong(scores))
        half /= expected * (1 - expected)
        odds = np.log(expected / (1 - expected))
        limits = [1 / (1 + np.exp(-(odds + sign * half))) for sign in (-1, 1)]
        assert [found.low, found.high] == pytest.approx(limits, abs=1e-12)

    def test_tpr_is_that_of_scikit_learn(self):
        scores = gaussian(1)
        fpr, tpr, _ = metrics.roc_curve(
            scores.member, scores.score, drop_intermediate=False
        )
        for one in attack_rates(scores).tpr_at_fpr:
            assert one.tpr.value == tpr[fpr <= one.fpr].max()
            assert one.tpr.low <= one.tpr.value <= one.tpr.high

    def test_limits_of_a_known_threshold_are_wider_than_clopper_pearson(self):
        scores = gaussian(2, 500, 5000)
        rate = attack_rates(scores).tpr_at_fpr[-1].tpr
        low, high = proportion_confint(
            round(rate.value * 500), 500, alpha=0.05, method="beta"
        )
        assert rate.low < low < high < rate.high
        assert rate.high - rate.low < 2 * (high - low)

    @pytest.mark.parametrize("shift", [0.0, 1.0])
    def test_coverage(self, shift):
        """Closed forms of two normal laws: Phi(d / sqrt 2), Phi(z_x + d)."""
        repeats, missed = 500, np.zeros(1 + len(FPRS))
        truth = [
            stats.norm.cdf(shift / np.sqrt(2)),
            *(stats.norm.cdf(stats.norm.ppf(x) + shift) for x in FPRS),
        ]
        for repeat in range(repeats):
            found = attack_rates(gaussian(repeat, shift=shift))
            each = [found.auroc, *(one.tpr for one in found.tpr_at_fpr)]
            for place, (one, true) in enumerate(zip(each, truth, strict=True)):
                missed[place] += not one.low <= true <= one.high
        assert (missed <= stats.binom.isf(1e-4, repeats, 0.05)).all()

    def test_few_runs_say_little_of_small_rates(self):
        scores = gaussian(3, 20, 20)
        first = attack_rates(scores).tpr_at_fpr[0].tpr
        assert first.low == 0
        assert first.high > 0.25

    def test_all_members_above_all_others(self):
        member = np.arange(40) < 20
        auroc = attack_rates(Scores(member, member.astype(float), "fixed")).auroc
        assert auroc.value == auroc.high == 1
        # Hoeffding's, of twenty pairs.
        assert auroc.low == pytest.approx(1 - np.sqrt(np.log(40) / 40))

    def test_one_run_of_a_world(self):
        found = attack_rates(Scores([1, 0, 0], [2.0, 1.0, 0.0], "fixed"))
        assert found.auroc.low <= found.auroc.value <= found.auroc.high

    @pytest.mark.parametrize("confidence", [0.0, 1.0, np.nan])
    def test_refuses_nonsense(self, confidence):
        with pytest.raises(ValueError, match="confidence must be in"):
            attack_rates(gaussian(0), confidence)


class TestLaws:
    def test_more_confidence_is_wider(self):
        scores = gaussian(4)
        some, more = attack_rates(scores, 0.9), attack_rates(scores, 0.99)
        assert more.auroc.low < some.auroc.low < some.auroc.high < more.auroc.high

    def test_only_the_order_matters(self):
        scores = gaussian(5)
        moved = Scores(scores.member, np.exp(scores.score), "fixed")
        assert attack_rates(scores) == attack_rates(moved)

    def test_in_words_and_for_json(self):
        found = attack_rates(gaussian(6))
        assert str(found).startswith("AUROC 0.7")
        assert [x["fpr"] for x in found.summary()["tpr_at_fpr"]] == list(FPRS)
