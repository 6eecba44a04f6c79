import fractions
import math
import time

import numpy as np
import pytest
from scipy import stats

from privaudit.results import round_down
from privaudit.testing import judge
from privaudit.testing.judging import _as_written
from tests.testing.mechanisms import (
    CASES,
    OTHERS,
    SNIPED,
    laplace_mean,
    randomised_response,
)
from tests.tiers import size

RIGHT = [case for case in CASES if case.right]
WRONG = [case for case in CASES if not case.right]
E = math.e
MANY = 4_000_000


def response(data, rng):
    """One bit, true with chance e / (1 + e): epsilon is 1, to the last digit."""
    return data if rng.random() < E / (1 + E) else 1 - data


def laplace(data, rng):
    return data + rng.laplace()


def judged(case, **more):
    more |= {"epsilon": case.epsilon, "delta": case.delta, "score": case.score}
    return judge(case.mechanism, case.pair, **more)


def most_alarms(suites, chance):
    """That right mechanisms exceed with a chance of 1e-6."""
    return int(stats.binom.isf(1e-6, suites, chance))


class TestNotHidden:
    """Noise beside a leak: texts that never repeat, in the order of the data sets."""

    @pytest.mark.parametrize("vectorised", [False, True])
    def test_by_texts_of_their_own(self, vectorised):
        def mechanism(data, size, rng):
            names = rng.integers(2**62, size=size).astype(str)
            return {"name": names, "bit": np.where(rng.random(size) < 0.95, data, 0)}

        def single(data, rng):
            return {name: one[0] for name, one in mechanism(data, 1, rng).items()}

        given = mechanism if vectorised else single
        for runs in (2000, 20_000, 200_000):
            kind = {"vectorised": vectorised, "runs": runs}
            assert judge(given, (0, 1), epsilon=1.0, **kind).refuted


class TestSound:
    @pytest.mark.sized
    @pytest.mark.parametrize("mechanism", [response, laplace])
    def test_a_right_mechanism_at_its_exact_epsilon_is_hardly_refuted(self, mechanism):
        found = [
            judge(mechanism, (0, 1), epsilon=1.0, confidence=0.6, runs=300, seed=seed)
            for seed in range(size(40, 10))
        ]
        assert {one.level for one in found} == {0.8}
        assert sum(one.refuted for one in found) <= most_alarms(size(40, 10), 0.2)

    def test_nor_where_there_is_no_difference_at_all(self):
        def noise(data, rng):
            return [rng.normal(), rng.integers(3), "ab"[rng.integers(2)]]

        found = [
            judge(noise, (0, 1), epsilon=0.0, confidence=0.6, runs=300, seed=seed)
            for seed in range(12)
        ]
        assert sum(one.refuted for one in found) <= most_alarms(12, 0.2)

    @pytest.mark.sized
    def test_the_bound_exceeds_the_true_epsilon_no_more_often(self):
        found = [
            judge(response, (0, 1), epsilon=0.5, confidence=0.6, runs=300, seed=seed)
            for seed in range(size(40, 10))
        ]
        assert sum(one.bound > 0 for one in found) > size(15, 3)
        assert sum(one.bound >= 1 for one in found) <= most_alarms(size(40, 10), 0.2)

    def test_delta_is_granted(self):
        def leaks(data, rng):
            return data if rng.random() < 0.05 else None

        assert not judge(leaks, (0, 1), epsilon=0.0, delta=0.05).refuted
        assert judge(leaks, (0, 1), epsilon=0.0, delta=0.03).refuted
        assert judge(leaks, (0, 1), epsilon=3.0, delta=0.0).refuted

    @pytest.mark.sampled(3)
    @pytest.mark.parametrize("case", RIGHT, ids=lambda case: case.name)
    def test_right_mechanisms_of_others(self, case):
        assert not judged(case, runs=3000).refuted

    @pytest.mark.full
    @pytest.mark.parametrize("case", RIGHT, ids=lambda case: case.name)
    def test_two_hundred_suites_at_99_percent(self, case):
        alarms = 0
        for seed in range(200):
            alarms += any(
                judged(case, confidence=0.99, runs=2000, seed=seed + 1, k=k).refuted
                for k in (1, 2)
            )
        print(f"{case.name}: {alarms} alarms in 200 suites")
        assert alarms <= most_alarms(200, 0.01)


class TestTight:
    @pytest.mark.sampled(3)
    @pytest.mark.parametrize("case", WRONG, ids=lambda case: case.name)
    def test_wrong_mechanisms_of_others_are_refuted(self, case):
        found = judged(case, runs=case.runs)
        assert found.refuted
        assert found.bound >= case.epsilon

    def test_nine_tenths_of_the_true_epsilon_is_refuted(self):
        assert judge(response, (0, 1), epsilon=0.9).refuted

    def test_in_both_orders_of_the_pair(self):
        for pair in ([0.0] * 10, [0.0] * 9 + [1.0]), ([0.0] * 9 + [1.0], [0.0] * 10):
            found = judge(laplace_mean, pair, epsilon=0.5)
            assert found.refuted
            assert found.runs < 3000

    def test_an_event_of_one_side_only(self):
        def rare(data, rng):
            return "seen" if rng.random() < 0.1 * data else "none"

        assert judge(rare, (0, 1), epsilon=2.0).refuted
        assert judge(rare, (1, 0), epsilon=2.0).refuted

    def test_a_difference_in_the_middle_of_the_line(self):
        def gap(data, rng):
            value = rng.normal()
            return value if data == 0 or abs(value) > 0.3 else np.sign(value)

        assert judge(gap, (0, 1), epsilon=0.5).refuted

    def test_what_is_far_below_the_claim_is_seen(self):
        assert judge(laplace, (0, 1), epsilon=4.0, runs=2000).bound > 0.5

    def test_a_given_score(self):
        def hidden(data, rng):
            mask = rng.random()
            return [mask, (mask + 0.5 * data) % 1.0]

        apart = judge(
            hidden, (0, 1), epsilon=1.0, score=lambda out: abs(out[0] - out[1])
        )
        assert apart.refuted
        assert apart.by.startswith("the score, learned on ")


class TestManyAtOnce:
    """Of a million runs in a second or so each, on one core."""

    @pytest.mark.sampled(3)
    @pytest.mark.parametrize(
        "name",
        [
            pytest.param(name, marks=[pytest.mark.full] * (name == "svt 3"))
            for name in SNIPED
        ],
    )
    def test_dp_snipers_mechanisms_are_refuted_at_a_tenth(self, name):
        mechanism, pair = SNIPED[name]
        began = time.process_time()
        found = judge(mechanism, pair, epsilon=0.1, runs=MANY, vectorised=True, seed=1)
        assert found.refuted
        assert found.bound >= 0.1
        assert time.process_time() - began < 60

    @pytest.mark.sampled(9)
    @pytest.mark.parametrize("name", OTHERS)
    def test_faults_of_statdp_and_dp_auditorium_are_refuted(self, name):
        mechanism, pair, epsilon, delta = OTHERS[name]
        found = judge(
            mechanism, pair, epsilon=epsilon, delta=delta, runs=MANY, vectorised=True
        )
        assert found.refuted

    @pytest.mark.sized
    def test_right_ones_are_not(self):
        def response(data, size, rng):
            return np.where(rng.random(size) < E / (1 + E), data, 1 - data)

        found = [
            judge(
                response,
                (0, 1),
                epsilon=1.0,
                confidence=0.6,
                runs=size(20_000, 4000),
                seed=seed,
                vectorised=True,
            ).refuted
            for seed in range(size(100, 20))
        ]
        assert sum(found) <= most_alarms(size(100, 20), 0.2)

    def test_what_it_gives_may_have_any_shape(self):
        def texts(data, size, rng):
            true = rng.random(size) < 0.9
            return {
                "noise": rng.normal(size=(size, 2)),
                "kind": np.where(true, "ab"[data], "ab"[1 - data]),
            }

        def lists(data, size, rng):
            return [["seen"] * data if rng.random() < 0.9 else None] * size

        def frames(data, size, rng):
            pandas = pytest.importorskip("pandas")
            missing = rng.random(size) < 0.9 * data
            return pandas.DataFrame({"x": np.where(missing, np.nan, rng.random(size))})

        assert judge(texts, (0, 1), epsilon=1.0, runs=5000, vectorised=True).refuted
        assert judge(frames, (0, 1), epsilon=1.0, runs=5000, vectorised=True).refuted
        judge(lists, (0, 1), epsilon=1.0, runs=5000, vectorised=True)

    def test_a_score_and_low_bits(self):
        def noisy(data, size, rng):
            return data + rng.laplace(size=size)

        given = {"epsilon": 0.5, "runs": 20_000, "vectorised": True}
        assert judge(noisy, (0, 1), score=np.negative, **given).refuted
        assert judge(noisy, (0, 1), score="bits", **given | {"epsilon": 1.0}).refuted
        with pytest.raises(ValueError, match="one number an output"):
            judge(noisy, (0, 1), score=np.sum, **given)
        with pytest.raises(ValueError, match="outputs, as an array whose first axis"):
            judge(lambda data, size, rng: 0.0, (0, 1), **given)


class TestLaws:
    def test_it_can_be_repeated(self):
        one, other = (
            judge(response, (0, 1), epsilon=0.7, seed=3, k=2) for _ in range(2)
        )
        assert (one.runs, one.bound, one.growth) == (
            other.runs,
            other.bound,
            other.growth,
        )

    def test_each_k_has_runs_of_its_own_at_its_own_level(self):
        seen = []

        def drawn(data, rng):
            seen.append(rng.random())
            return 0

        found = [judge(drawn, (0, 1), epsilon=1.0, runs=10, k=k) for k in (1, 2, 3)]
        assert [1 - one.level for one in found] == pytest.approx(
            [0.001 / 2, 0.001 / 6, 0.001 / 12]
        )
        assert len(set(seen)) == 30

    def test_it_stops_when_refuted_and_when_seconds_run_out(self):
        refuted = judge(lambda data, rng: data, (0, 1), epsilon=1.0)
        assert (refuted.stopped, refuted.runs < 500) == ("refuted", True)
        spent = judge(response, (0, 1), epsilon=0.5, seconds=0.0)
        assert (spent.stopped, spent.runs, spent.bound) == ("seconds", 0, 0.0)

    def test_what_is_learned_is_learned_on_earlier_runs(self):
        """Outputs that name their run tell nothing of later ones."""

        def named(data, rng):
            return int(rng.integers(2**60))

        assert not judge(named, (0, 1), epsilon=0.0).refuted

    def test_a_forgotten_return_and_equal_data_sets_are_errors(self):
        with pytest.raises(ValueError, match="gave None in all 100 runs"):
            judge(lambda data, rng: None, (0, 1), epsilon=1.0, runs=100)
        judge(lambda data, rng: None if rng.random() < 0.5 else 0, (0, 1), epsilon=1.0)
        for pair in (([0], [0]), (np.zeros(2), np.zeros(2))):
            with pytest.raises(ValueError, match="data sets of the pair are equal"):
                judge(lambda data, rng: 0, pair, epsilon=1.0)

    @pytest.mark.sampled(4)
    @pytest.mark.parametrize("delta", [0.1, 0.0])
    @pytest.mark.parametrize("runs", [200, 1000])
    def test_no_runs_show_more_than_the_most(self, delta, runs):
        def tells(data, rng):
            return data

        most = judge(tells, (0, 1), epsilon=9.0, delta=delta, runs=runs).most
        assert 0 < most < 9
        if runs == 200:  # all of which the ranking guesses, at .63 of alpha
            told = delta + (1 - delta) / (1 + math.exp(-most))
            assert 0.000315 * (1 - 1e-6) <= told**200 <= 0.00036
        for score in (float, None):  # all capital on what tells all, or less of it
            found = judge(
                tells, (0, 1), epsilon=most, delta=delta, runs=runs, score=score
            )
            assert not found.refuted
        assert judge(
            tells, (0, 1), epsilon=most / 2, delta=delta, runs=runs, score=float
        ).refuted

    @pytest.mark.parametrize(
        ("values", "words"),
        [
            ({"epsilon": -1.0}, "epsilon must be"),
            ({"epsilon": math.inf}, "epsilon must be"),
            ({"delta": 1.0}, "delta must be"),
            ({"confidence": 1.0}, "confidence must be"),
            ({"runs": 0}, "runs must be >= 1, got 0"),
            ({"k": 0}, "k must be >= 1, got 0"),
            ({"score": "low"}, "score must be"),
            ({"score": str}, "one number an output"),
            ({"score": lambda output: [output, 1]}, "one number an output"),
            ({"score": lambda output: None}, "one number an output, got None"),
            ({"epsilon": "1"}, "epsilon must be a number, got '1'"),
            ({"runs": 10.5}, "runs must be a whole number, got 10.5"),
            ({"seed": -1}, "seed must be >= 0, got -1"),
        ],
    )
    def test_values_out_of_range(self, values, words):
        with pytest.raises(ValueError, match=words):
            judge(response, (0, 1), **{"epsilon": 1.0, **values})

    def test_a_pair_has_two(self):
        with pytest.raises(ValueError, match="two data sets"):
            judge(response, (0, 1, 2), epsilon=1.0)

    def test_what_cannot_be_read_is_said(self):
        with pytest.raises(ValueError, match="give a score"):
            judge(lambda data, rng: bytearray(b"x"), (0, 1), epsilon=1.0)

    def test_a_list_of_bits(self):
        assert judge(randomised_response, ([0], [1]), epsilon=0.8).refuted


@pytest.mark.parametrize("claim", [0.1, 0.3, 0.7, 1.0, 1.2, 1 / 3, 2.5, 7.0])
def test_a_refuted_claim_prints_as_its_decimal(claim):
    """Rounded down, the float 1.2 is 1.199, and no more than the claim."""
    found = judge(lambda data, rng: data, (0, 1), epsilon=claim)
    assert found.refuted
    assert fractions.Fraction(round_down(found.bound)) <= fractions.Fraction(
        found.bound
    )
    assert float(round_down(found.bound)) >= float(round_down(claim))
    point = fractions.Fraction(_as_written(claim))
    assert 0 <= point - fractions.Fraction(repr(claim)) < 1e-15
