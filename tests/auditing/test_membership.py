"""LiRA and RMIA: against slow twins, and where the best possible score is known."""

import math

import numpy as np
import pytest
from scipy import stats

import privaudit as pa


def random(seed=0):
    return np.random.default_rng(seed)


def auroc(member, score):
    return stats.mannwhitneyu(score[member], score[~member]).statistic / (
        member.sum() * (~member).sum()
    )


def losses(shape, seed=0):
    return random(seed).gamma(2.0, 0.7, shape)


def coins(models, records, seed=9):
    half = random(seed).random((models // 2, records)) < 0.5
    return np.concatenate([half, ~half])


def slow_lira(loss, references, included, pooled):
    def law(record, of):
        return odds[of[:, record], record]

    odds = np.log(np.exp(-references) / (1 - np.exp(-references)))
    shown = np.log(np.exp(-loss) / (1 - np.exp(-loss)))
    without = np.ones(references.shape, bool) if included is None else ~included
    found = []
    for record in range(len(loss)):
        laws = []
        for of in (without, included):
            if of is None:
                continue
            here = law(record, of)
            if pooled:
                apart = [law(r, of) - law(r, of).mean() for r in range(len(loss))]
                apart = np.concatenate(apart)
                spread = math.sqrt(sum(apart**2) / (len(apart) - len(loss)))
            else:
                spread = here.std(ddof=1)
            laws.append(stats.norm(here.mean(), spread))
        if included is None:
            found.append((shown[record] - laws[0].mean()) / laws[0].std())
        else:
            found.append(laws[1].logpdf(shown[record]) - laws[0].logpdf(shown[record]))
    return found


def slow_rmia(loss, references, others, other_references, included, gamma, a):
    def usual(column, had):
        p = np.exp(-column)
        if had is None:
            return ((1 + a) * p.mean() + (1 - a)) / 2
        return (p[had].mean() + p[~had].mean()) / 2

    found = []
    for record in range(len(loss)):
        had = None if included is None else included[:, record]
        x = math.exp(-loss[record]) / usual(references[:, record], had)
        beaten = 0
        for z in range(len(others)):
            p = np.exp(-other_references[:, z])
            mean = p.mean() if included is not None else usual(p * 0 - np.log(p), None)
            beaten += x / (math.exp(-others[z]) / mean) > gamma
        found.append(beaten / len(others))
    return found


class TestTwins:
    @pytest.mark.parametrize("pooled", [True, False])
    @pytest.mark.parametrize("online", [True, False])
    def test_lira(self, pooled, online):
        had = coins(12, 7) if online else None
        had = None if had is None else np.roll(had, 1, axis=0)
        loss, references = losses(7), losses((12, 7), 1)
        found = pa.lira(loss, references, had, pooled=pooled)
        np.testing.assert_allclose(found, slow_lira(loss, references, had, pooled))

    @pytest.mark.parametrize(("gamma", "a"), [(1.0, 0.3), (2.0, 1.0), (0.5, 0.0)])
    @pytest.mark.parametrize("online", [True, False])
    def test_rmia(self, online, gamma, a):
        had = coins(6, 9) if online else None
        given = losses(9), losses((6, 9), 1), losses(40, 2), losses((6, 40), 3)
        found = pa.rmia(*given, had, gamma=gamma, offline=a)
        np.testing.assert_allclose(found, slow_rmia(*given, had, gamma, a))

    def test_several_models_are_each_by_itself(self):
        loss, others = losses((3, 5)), losses((3, 8), 1)
        known, known_others = losses((4, 5), 2), losses((4, 8), 3)
        apart = [
            pa.rmia(*each, known_others)
            for each in zip(loss, [known] * 3, others, strict=True)
        ]
        both = pa.rmia(loss, known, others, known_others)
        np.testing.assert_array_equal(both, apart)
        apart = [pa.lira(each, known) for each in loss]
        np.testing.assert_array_equal(pa.lira(loss, known), apart)


class TestTight:
    """Records differ in how hard they are: the loss alone is nearly blind."""

    RECORDS = 4000

    def world(self, models, shift=1.0):
        hard = random(1).normal(0, 6, self.RECORDS)  # mean log odds of each record
        had = coins(models, self.RECORDS)
        noise = random(2).normal(size=(models, self.RECORDS))
        member = random(3).random(self.RECORDS) < 0.5
        seen = hard + shift * member + random(4).normal(size=self.RECORDS)

        def loss(odds):
            return np.logaddexp(0, -odds)

        return member, loss(seen), loss(hard + shift * had + noise), had

    def test_lira_is_as_good_as_the_likelihood_ratio(self):
        member, loss, references, had = self.world(64)
        best = stats.norm.cdf(1 / math.sqrt(2))  # .760, of N(0, 1) against N(1, 1)
        assert auroc(member, -loss) < 0.55
        found = auroc(member, pa.lira(loss, references, had, pooled=True))
        assert best - 0.02 < found < best + 0.02

    def test_offline_it_is_too_where_the_deviations_are_equal(self):
        member, loss, references, had = self.world(128)
        without = np.array([references[~had[:, r], r] for r in range(self.RECORDS)]).T
        found = auroc(member, pa.lira(loss, without, pooled=True))
        assert found > stats.norm.cdf(1 / math.sqrt(2)) - 0.02

    def test_unequal_deviations_need_both_worlds(self):
        # Members have a third of the spread: the ratio is no threshold of the loss.
        had = coins(256, 500)
        spread = np.where(had, 0.3, 1.0)
        references = np.logaddexp(0, -spread * random(5).normal(size=had.shape))
        member = random(6).random(500) < 0.5
        seen = np.where(member, 0.3, 1.0) * random(7).normal(size=500)
        loss = np.logaddexp(0, -seen)
        ratio = stats.norm(0, 0.3).logpdf(seen) - stats.norm(0, 1).logpdf(seen)
        best = auroc(member, ratio)
        assert auroc(member, pa.lira(loss, references, had)) > best - 0.02
        assert auroc(member, -loss) < 0.6 < best

    def test_rmia_finds_the_ratio_of_probabilities(self):
        # log p = usual + shift * member + noise, usual known: -loss - usual is best.
        usual = -random(1).uniform(3, 9, 4000)
        member = random(2).random(4000) < 0.5
        seen = usual + member + random(3).normal(size=4000) / 2
        others = -random(4).uniform(3, 9, 2000)
        given = (
            -seen,
            -usual[None],
            -others + random(5).normal(size=2000),
            -others[None],
        )
        found = auroc(member, pa.rmia(*given, offline=1.0))
        best = stats.norm.cdf(1 / (0.5 * math.sqrt(2)))
        assert abs(found - best) < 0.02
        assert auroc(member, seen) < 0.65


class TestRefused:
    @pytest.mark.parametrize(
        ("given", "more", "words"),
        [
            (([1.0], [[1.0, 2.0]]), {}, "a record for each of the references' 2"),
            (([1.0], [1.0]), {}, "references are"),
            (([-1.0], [[1.0], [2.0]]), {}, ">= 0; got -1"),
            (([math.nan], [[1.0], [2.0]]), {}, "finite"),
            (([1.0], [[1.0]]), {}, "two or more references without"),
            (([1.0], [[1.0], [2.0]], [[True], [True]]), {}, "0 has 0"),
            (([1.0], [[1.0], [2.0]], [True, False]), {}, "included must say"),
            (([1.0], [[1.0], [2.0]], [[2], [1]]), {}, "included must say"),
            (([1.0], [[1.0]]), {"pooled": False}, "2 or more references without"),
            ((["a"], [[1.0]]), {}, "could not convert"),
        ],
    )
    def test_by_lira(self, given, more, words):
        with pytest.raises(ValueError, match=words):
            pa.lira(*given, **more)

    @pytest.mark.parametrize(
        ("given", "more", "words"),
        [
            (([1.0], [[1.0]], [1.0], [[1.0]]), {"gamma": 0}, "gamma"),
            (([1.0], [[1.0]], [1.0], [[1.0]]), {"offline": 2}, "offline"),
            (([1.0], [[1.0]], [1.0], [[1.0], [2.0]]), {}, "same models"),
            (([1.0], [[1.0]], [[1.0]], [[1.0]]), {}, "same models"),
            (([1.0], [[1.0]], [1.0], [[1.0]], [[1]]), {}, "without it"),
        ],
    )
    def test_by_rmia(self, given, more, words):
        with pytest.raises(ValueError, match=words):
            pa.rmia(*given, **more)

    def test_extremes_stay_finite(self):
        had = np.array([[True], [False], [True], [False]])
        for loss in (0.0, 1e-300, 1e5):
            found = pa.lira([loss], [[0.0], [1e4], [0.0], [1e4]], had)
            assert np.isfinite(found).all()
            found = pa.rmia([loss], [[0.0]], [0.0, 1e5], [[0.0, 1e5]])
            assert np.isfinite(found).all()
