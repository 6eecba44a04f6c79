"""Canaries for a user's own training."""

import math

import numpy as np
import pytest
import torch
from scipy import stats

import privaudit as pa

RANDOM = np.random.default_rng(0)
LIKE = RANDOM.normal(size=(60, 4)).astype(np.float32), RANDOM.integers(0, 3, 60)


class TestCanaries:
    def test_labels_are_wrong_and_coins_fair(self):
        planted = pa.canaries(5000, like=LIKE, seed=1)
        own = {tuple(x): y for x, y in zip(*LIKE, strict=True)}
        first = [
            (tuple(x), y)
            for x, y in zip(planted.inputs[:60], planted.targets[:60], strict=True)
        ]
        assert all(own[x] != y for x, y in first)
        assert stats.binomtest(int(planted.member.sum()), 5000).pvalue > 1e-4
        x, y = planted.included
        assert len(x) == len(y) == planted.member.sum()
        assert x.dtype == np.float32

    def test_without_a_seed_coins_are_others(self):
        one, other = (pa.canaries(100, like=LIKE) for _ in range(2))
        assert (one.member != other.member).any()

    def test_takes_torch_datasets(self):
        data = torch.utils.data.TensorDataset(*map(torch.tensor, LIKE))
        assert len(pa.canaries(20, like=data, kind="noise", seed=0)) == 20

    def test_takes_numpys_numbers_and_targets_as_they_are(self):
        assert len(pa.canaries(np.int64(20), like=LIKE)) == 20
        data = torch.utils.data.TensorDataset(torch.tensor(LIKE[0]), torch.rand(60))
        with pytest.raises(ValueError, match="must be classes"):
            pa.canaries(20, like=data)

    def test_noise_has_any_finite_range(self):
        wide = np.array([[-1.7e308], [1.7e308]] * 10), LIKE[1][:20]
        assert np.isfinite(pa.canaries(20, like=wide, kind="noise").inputs).all()

    @pytest.mark.parametrize("dtype", [float, np.uint8, np.int64, bool])
    @pytest.mark.parametrize("relation", ["add-or-remove-one", "replace-one"])
    def test_no_two_are_the_same(self, dtype, relation):
        """Though there are fewer records, and some of these are the same."""
        some = np.random.default_rng(3).integers(0, 2, (30, 20)) * 200
        like = np.concatenate([some, some[:5]]).astype(dtype), np.arange(35) % 2
        planted = pa.canaries(70, like=like, relation=relation, seed=0)
        every = planted.inputs
        if planted.instead is not None:
            every = np.concatenate([every, planted.instead[0]])
        assert every.dtype == dtype
        assert len(np.unique(every, axis=0)) == len(every)
        if dtype is not float:
            low, high = like[0].min(), like[0].max()
            assert ((low <= every) & (every <= high)).all()

    @pytest.mark.parametrize(
        ("count", "more", "why"),
        [
            (3, {}, "count must be a whole number between 10"),
            (20, {"kind": "blank"}, "kind is mislabelled or noise"),
            (20, {"seed": -1}, "seed must be >= 0"),
            (20, {"like": 3}, "like is a pair"),
            (20, {"like": (LIKE[0], LIKE[1][:-1])}, "like is a pair"),
            (20, {"like": (LIKE[0], LIKE[1] * 0)}, "two classes"),
            (20, {"like": (LIKE[0], LIKE[1] + 0.5)}, "must be classes"),
            (20, {"like": (LIKE[0] * math.nan, LIKE[1])}, "must be finite"),
            (20, {"like": (LIKE[0] * math.inf, LIKE[1]), "kind": "noise"}, "finite"),
            (20, {"like": (LIKE[0] * 0, LIKE[1])}, "too few values for 20 records"),
            (20, {"like": (LIKE[0] > 9, LIKE[1])}, "too few values for 20 records"),
            (20, {"like": (LIKE[0] + 1j, LIKE[1])}, "of numbers, got complex"),
        ],
    )
    def test_refuses(self, count, more, why):
        with pytest.raises(ValueError, match=why):
            pa.canaries(count, **{"like": LIKE, **more})


class TestAudit:
    def test_a_ledger_brings_account_and_curve(self):
        release = pa.Release.of_sum(
            norm_bound=1.0, noise_multiplier=0.5, sampling=pa.PoissonSampling(1.0)
        )
        ledger = pa.Ledger.of(release, 1)
        planted = pa.canaries(3000, like=LIKE, seed=0)
        scores = np.random.default_rng(5).normal(size=3000) + 2 * planted.member
        truth = pa.epsilon(ledger=ledger, delta=1e-5).upper
        found = planted.audit(scores, epsilon=truth, ledger=ledger)
        assert found.status == "consistent"
        assert 2 < found.lower.epsilon < found.beside.epsilon < truth
        assert found.lower.epsilon <= found.most_shown
        other = planted.audit(scores, epsilon=1.0, ledger=ledger, method="family")
        assert other.status in ("refuted", "disproved")
        assert (other.lower, other.beside) == (found.lower, found.beside)
        assert "canaries of one run" in str(found)

    def test_lower_bound_knows_the_design(self):
        planted = pa.canaries(1000, like=LIKE, seed=0)
        scores = planted.member.astype(float)
        args = {"delta": 1e-5, "design": "one-run"}
        free = pa.lower_bound(scores, planted.member, **args)
        assert free.method == "one-run"
        assert 3 < free.epsilon < 6
        gaussian = pa.lower_bound(
            scores, planted.member, method="one-run-gaussian", **args
        )
        assert gaussian.epsilon > free.epsilon
        with pytest.raises(ValueError, match="is for independent runs"):
            pa.lower_bound(scores, planted.member, method="rank-walk", **args)

    def test_scores_must_be_one_each(self):
        planted = pa.canaries(100, like=LIKE, seed=0)
        with pytest.raises(ValueError, match="100 worlds and 99 scores"):
            planted.audit(np.zeros(99), epsilon=1)
        with pytest.raises(ValueError, match="give ledger"):
            planted.audit(np.zeros(100), epsilon=1, method="family")

    def test_scores_are_in_order(self):
        """By place a Series of another order would be put together wrongly."""
        pandas = pytest.importorskip("pandas")
        planted = pa.canaries(100, like=LIKE, seed=0)
        scores, worlds = pandas.Series(np.arange(100.0)), pandas.Series(planted.member)
        assert planted.audit(scores, epsilon=1).status == "unproven"
        other = "scores and member have other indices"
        with pytest.raises(ValueError, match=other):
            planted.audit(scores[::-1], epsilon=1)
        with pytest.raises(ValueError, match=other):
            pa.lower_bound(scores.to_numpy(), worlds[::-1], delta=0.1)


class TestReplaceOne:
    """A coin chooses between two records, and the guarantee is that of a mean."""

    LIKE = np.random.default_rng(0).normal(size=(60, 8)), np.arange(60) % 3

    def planted(self, count=400, **more):
        return pa.canaries(count, like=self.LIKE, relation="replace-one", **more)

    def test_there_is_one_of_each_pair(self):
        planted = self.planted(seed=1)
        inputs, targets = planted.included
        others, labels = planted.instead
        assert len(inputs) == len(planted) == 400
        for at, member in enumerate(planted.member):
            expected = planted.inputs[at] if member else others[at]
            np.testing.assert_array_equal(inputs[at], expected)
            assert targets[at] == (planted.targets[at] if member else labels[at])
        assert (planted.inputs != others).any(axis=1).all()

    @pytest.mark.parametrize("count", [60, 120, 90])
    def test_another_record_takes_the_place_of_one(self, count):
        """No copy of it, which would be as good as no replacement."""
        like = 1000.0 * np.eye(60), np.arange(60) % 2
        planted = pa.canaries(count, like=like, relation="replace-one", seed=0)
        assert planted.instead is not None
        record, other = planted.inputs.argmax(1), planted.instead[0].argmax(1)
        assert (record != other).all()

    def test_the_relation_is_that_of_the_coins(self):
        planted = self.planted(seed=1)
        found = planted.audit(planted.member * 3.0, epsilon=1)
        assert found.lower.relation == "replace-one"
        assert found.status == "refuted"

    def test_randomised_response_keeps_its_epsilon(self):
        # Each coin is told rightly with chance e / (1 + e): 1-DP under replace-one.
        above = 0
        for seed in range(200):
            planted = self.planted(200, seed=seed)
            right = np.random.default_rng(10_000 + seed).random(200) < 0.7310585
            found = planted.audit(planted.member == right, epsilon=1, delta=1e-9)
            above += found.status == "refuted"
        assert above <= 20  # of 10 expected at most

    @pytest.mark.parametrize("made", ["add-or-remove-one", "replace-one"])
    def test_coins_of_one_kind_show_nothing_of_the_other(self, made):
        planted = pa.canaries(100, like=self.LIKE, relation=made, seed=0)
        (other,) = {"add-or-remove-one", "replace-one"} - {made}
        with pytest.raises(ValueError, match="nothing they show is about"):
            planted.audit(planted.member, epsilon=1, relation=other)
