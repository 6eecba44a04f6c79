import functools
import math
import re
import sys
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

import privaudit as pa
from privaudit.files.fingerprints import fingerprint
from privaudit.testing import (
    assert_accounts,
    assert_private,
    assert_probes,
    assert_refuted,
    judge,
    neighbours,
    record,
    searching,
)

FEW = settings(
    max_examples=6,
    deadline=200,
    database=None,
    suppress_health_check=[HealthCheck.too_slow],
)
LISTS = neighbours(
    st.lists(st.floats(0, 1), min_size=1, max_size=4), relation="add-or-remove-one"
)


_CALLS, SCALE = [], 1.0


def by_global(data, rng):
    return sum(data) + rng.laplace(scale=SCALE)


def noisy_sum(data, rng):
    return sum(data) + rng.laplace(scale=1.0)


def exact_count(data, rng):
    return len(data)


@pytest.fixture(autouse=True)
def _own_state():
    """As the plugin does, where it is installed."""
    record.forget(record.current().name)


class TestPrivate:
    def test_a_right_mechanism_passes_and_a_wrong_one_fails_with_all_that_is_needed(
        self,
    ):
        assert_private(noisy_sum, ([], [1.0]), epsilon=1.0, runs=2000)
        with pytest.raises(AssertionError) as caught:
            assert_private(noisy_sum, ([], [1.0]), epsilon=0.3, delta=1e-6, seed=4)
        text = str(caught.value)
        assert "noisy_sum is not (0.3, 1e-06)-DP" in text
        assert "([], [1.0])" in text
        assert re.search(r"above \d[.\d]*[1-9] at delta 1e-06", text)
        call = re.search(r"privaudit\.testing\.(judge\(.*\))", text).group(1)
        assert "seed=4, k=2" in call  # the second pair of this test
        lines = text.partition("repeat with:")[2].strip().splitlines()
        kept: dict = {"noisy_sum": noisy_sum}
        exec("\n".join(line.strip() for line in lines[:-1]), kept)  # made to be pasted
        assert kept["pair"] == ([], [1.0])
        assert call in lines[-1]
        again = eval(lines[-1].strip(), kept)
        assert again.refuted
        assert f"{again.runs:,} runs" in text
        assert f"{100 * again.level:.4f} %" in text

    def test_a_pair_that_cannot_be_pasted_is_shown_and_said_to_be_given(self):
        pair = np.zeros(999), np.random.default_rng(0).random(999)
        with pytest.raises(AssertionError, match="the pair itself") as caught:
            assert_private(lambda data, rng: data.sum(), pair, epsilon=1.0)
        assert "judge(mechanism, pair, epsilon=1.0" in str(caught.value)

    def test_probes_are_repeated_alike(self):
        pair = [0.0], [0.0, 1.0]
        with pytest.raises(AssertionError) as caught:
            assert_probes(noisy_sum, pair, sensitivity=0.5, low_bits=False, runs=200)
        lines = str(caught.value).partition("repeat with:")[2].strip().splitlines()
        kept: dict = {"noisy_sum": noisy_sum}
        with pytest.raises(AssertionError) as twice:
            exec("\n".join(line.strip() for line in lines), kept)
        assert str(twice.value) == str(caught.value)

    def test_arguments_are_as_stated(self):
        assert_private(
            noisy_sum,
            ([], [1.0]),
            epsilon=1.0,
            delta=0,
            confidence=0.9,
            runs=500,
            score=None,
            seed=1,
        )
        with pytest.raises(TypeError):
            assert_private(noisy_sum, ([], [1.0]), 1.0)

    def test_every_pair_of_a_test_has_the_next_k(self):
        for _ in range(3):
            assert_private(noisy_sum, ([], [1.0]), epsilon=1.0, runs=100)
        assert record.current().pairs == 3

    def test_data_that_are_changed_are_an_error(self):
        def careless(data, rng):
            data.append(0.0)
            return 0

        for run in (assert_private, assert_refuted, judge):
            with pytest.raises(ValueError, match="careless changed its data"):
                run(careless, ([], [1.0]), epsilon=1.0, runs=100)

    @pytest.mark.parametrize("kind", [Fraction, Decimal, np.float32, np.array, int])
    def test_numbers_of_all_kinds(self, kind):
        claim = {"epsilon": kind(1), "delta": kind(0), "runs": 100}
        assert_private(noisy_sum, ([], [1.0]), **claim)
        assert type(judge(noisy_sum, ([], [1.0]), **claim).epsilon) is float
        with pytest.raises(AssertionError, match=r"not \(1, 0\)-DP"):
            assert_private(exact_count, ([], [1.0]), **claim)

    @pytest.mark.parametrize("epsilon", [np.ones(2), 10**400, "1", None, math.nan])
    def test_what_is_no_epsilon(self, epsilon):
        for run in (assert_private, judge):
            with pytest.raises(ValueError, match="epsilon must be"):
                run(noisy_sum, ([], [1.0]), epsilon=epsilon)

    def test_data_that_contain_themselves(self):
        loop = [1.0]
        loop.append(loop)
        assert_private(lambda data, rng: rng.normal(), ([], loop), epsilon=1.0)
        with pytest.raises(AssertionError, match="is not"):
            assert_private(exact_count, ([], loop), epsilon=1.0)

    def test_a_score_that_no_float_holds(self):
        with pytest.raises(ValueError, match="one number an output"):
            judge(noisy_sum, ([], [1.0]), epsilon=1.0, score=lambda output: 10**400)

    def test_low_bits_are_read_only_if_asked_for(self):
        pair = ([], [1.0])
        assert_private(noisy_sum, pair, epsilon=1.0, runs=4000)
        with pytest.raises(AssertionError, match="lowest bit"):
            assert_private(noisy_sum, pair, epsilon=1.0, score="bits")

    def test_pandas_and_graphs_are_left_as_they_are(self):
        pandas, networkx = (pytest.importorskip(m) for m in ("pandas", "networkx"))
        frames = pandas.DataFrame({"a": [1, 2]}), pandas.DataFrame({"a": [1, 2, 3]})
        assert_private(
            lambda data, rng: float(data["a"].mean()) + rng.laplace(scale=9),
            frames,
            epsilon=1.0,
            runs=200,
        )
        graphs = networkx.path_graph(3), networkx.path_graph(4)
        assert_private(
            lambda data, rng: len(data.edges) + rng.laplace(),
            graphs,
            epsilon=1.0,
            runs=200,
        )


class TestSearch:
    @pytest.fixture(autouse=True)
    def time_to_shrink(self, monkeypatch):
        monkeypatch.setattr(searching, "_LEAST_SECONDS", 60.0)  # of any machine's

    def test_what_hypothesis_executes_again_is_answered_from_memory(self):
        seen = []
        _CALLS.clear()

        @settings(FEW, phases=[Phase.generate])
        @given(st.sampled_from([0, 1]))
        def run(value):
            def counted(data, rng):  # a new function each time
                _CALLS.append(1)
                return data + rng.laplace(scale=4)

            seen.append(value)
            for _ in range(3):
                assert_private(counted, (value, value + 1), epsilon=1.0, runs=100)

        run()
        assert len(_CALLS) == 100 * len(set(seen))
        assert record.current().pairs == len(set(seen))

    def test_different_functions_are_different_pairs(self):
        @FEW
        @given(st.just(0))
        def run(value):
            for scale in (3.0, 4.0):
                assert_private(
                    lambda data, rng, scale=scale: data + rng.laplace(scale=scale),
                    (0, 1),
                    epsilon=1.0,
                    runs=100,
                )

        run()
        assert record.current().pairs == 2

    def test_a_verdict_is_of_what_the_mechanism_reads(self, monkeypatch):
        @settings(FEW, max_examples=5)
        @given(LISTS)
        def check(pair):
            for scale in (1.0, 0.01):
                monkeypatch.setattr(sys.modules[__name__], "SCALE", scale)
                assert_private(by_global, pair, epsilon=1.0, runs=1000)

        with pytest.raises(AssertionError, match="is not"):
            check()

    def test_it_finds_a_pair_that_leaks_and_shows_the_first_one(self):
        def leaks_at_many(data, rng):
            return (sum(data) if len(data) > 2 else 0) + rng.laplace(scale=0.2)

        @settings(FEW, max_examples=60)
        @given(LISTS)
        def run(pair):
            assert_private(leaks_at_many, pair, epsilon=1.0, runs=1500)

        with pytest.raises(AssertionError, match="leaks_at_many is not") as caught:
            run()
        ks = [int(k) for k in re.findall(r"k=(\d+)", str(caught.value))]
        assert ks == sorted(ks)
        verdicts = [found for found, _ in record.current().verdicts.values()]
        assert ks[0] == min(found.k for found in verdicts if found.refuted)
        assert len(ks) > 1
        assert not isinstance(caught.value, ExceptionGroup)

    def test_shrinking_takes_no_longer_than_the_search_and_is_confirmed(self):
        def leaks(data, rng):
            return (data.count(5) > 0) + 0.01 * len(data) + rng.laplace(scale=0.4)

        lists = st.lists(st.integers(0, 7), min_size=3, max_size=8)

        @settings(FEW, max_examples=100, suppress_health_check=list(HealthCheck))
        @given(neighbours(lists, relation="replace-one"))
        def run(pair):
            assert_private(leaks, pair, epsilon=1.0, runs=4000)

        with pytest.raises(AssertionError) as caught:
            run()
        test = record.current()
        ((first, *_),) = test.evidence.values()
        later = [found for found, _ in test.verdicts.values() if found.k > first.k]
        assert len(later) <= 1  # the smallest pair, once
        assert len(test.suspects) > 3
        assert f"k={first.k})" in str(caught.value)
        if later:
            assert later[0].k == first.k + 1
            assert ("A later pair" in str(caught.value)) == later[0].refuted

    @pytest.mark.skipif(sys.gettrace() is not None, reason="something else traces")
    def test_hypothesis_explains_a_failure_by_the_users_lines(self):
        def leaks_at_many(data, rng):
            wide = 4.0
            if len(data) > 2:
                wide = 0.1
            return len(data) + rng.laplace(scale=wide)

        @settings(FEW, max_examples=50, phases=settings.default.phases)
        @given(LISTS)
        def run(pair):
            assert_private(leaks_at_many, pair, epsilon=1.0, runs=1000)

        with pytest.raises(AssertionError) as caught:
            run()
        told = "\n".join(caught.value.__notes__).partition("Explanation:")[2]
        line = leaks_at_many.__code__.co_firstlineno + 3
        assert f"{__file__}:{line}\n" in told
        assert told.count(".py:") == 1

    def test_a_long_run_is_not_held_against_hypothesis_deadline(self):
        @settings(FEW, max_examples=1, deadline=200)
        @given(st.just(([], [1.0])))
        def run(pair):
            assert_private(noisy_sum, pair, epsilon=1.0, runs=20_000)

        run()

    def test_after_a_refutation_other_pairs_are_only_suspected(self):
        ends = []

        @FEW
        @given(st.sampled_from([0, 1, 2]))
        def run(value):
            for data in (1, 0.01):
                try:
                    assert_private(
                        lambda data, rng: data * 5 + rng.laplace(),
                        (0, data),
                        epsilon=1.0,
                        runs=9000,
                        seed=value,
                    )
                except AssertionError:
                    ends.append(value)

        run()
        assert ends
        verdicts = [found for found, _ in record.current().verdicts.values()]
        assert all(found.refuted for found in verdicts)
        assert False in record.current().suspects.values()


class TestWithoutPytest:
    def test_each_function_that_asserts_is_a_test(self, monkeypatch):
        monkeypatch.delenv("PYTEST_CURRENT_TEST")

        def one():
            assert_private(noisy_sum, ([], [1.0]), epsilon=1.0, runs=100)
            return record.current()

        def other():
            return record.current()

        assert one().name.endswith("one")
        assert (one().pairs, other().pairs) == (2, 0)

    def test_what_draws_may_be_given_by_name_alone(self):
        def by_rng(data, cap, *, rng):
            return min(cap, len(data)) + rng.laplace()

        def by_seed(data, cap=9, seed=None):
            return min(cap, len(data)) + np.random.default_rng(seed).laplace()

        def many(data, size, scale=1.0, *, rng):
            return len(data) + rng.laplace(scale=scale, size=size)

        given = functools.partial(by_rng, cap=9)
        for one, vectorised in ((given, False), (by_seed, False), (many, True)):
            found = judge(
                one, ([], [1.0]), epsilon=1.0, runs=300, vectorised=vectorised
            )
            assert not found.refuted
        found = pa.probe(lambda data, *, rng: data.sum(0) + rng.normal(size=5))
        assert not found.findings

    @pytest.mark.parametrize("name", ["generator", "gen", "random", "random_state"])
    def test_options_are_left_alone(self, name):
        taken = {}
        exec(
            f"def mechanism(data, epsilon=2.0, {name}=None):\n"
            f"    rng = numpy.random.default_rng({name})\n"
            "    return len(data) + rng.laplace(scale=1 / epsilon)",
            {"numpy": np},
            taken,
        )
        found = judge(taken["mechanism"], ([], [1.0]), epsilon=0.1, runs=2000)
        assert found.refuted

    @pytest.mark.parametrize(
        ("mechanism", "vectorised", "said"),
        [
            (lambda data: 0, False, "too many positional arguments"),
            (lambda data, scale=1.0: 0, False, "none is the generator's"),
            (lambda data, epsilon, rng: 0, False, "'epsilon'.*functools.partial"),
            (lambda data, rng, epsilon: 0, False, "'epsilon'.*functools.partial"),
            (lambda data, **more: 0, False, "name the generator rng or seed"),
            (lambda data, size, rng: 0, False, "'size'.*is vectorised"),
            (lambda data, rng: 0, True, "data and size.*is vectorised"),
        ],
    )
    def test_others_cannot_be_called(self, mechanism, vectorised, said):
        with pytest.raises(ValueError, match=said):
            judge(mechanism, ([], [1.0]), epsilon=1.0, vectorised=vectorised)

    def test_a_mechanism_that_raises_shows_no_frame_of_ours(self):
        def wrong(data, rng):
            return data + 1

        with pytest.raises(TypeError) as caught:
            assert_private(wrong, ([], [1.0]), epsilon=1.0)
        shown = [entry for entry in caught.traceback if not entry.ishidden(caught)]
        assert [entry.name for entry in shown][1:] == ["wrong"]

    def test_a_seed_is_one_that_older_generators_take(self):
        def old(data, seed):
            return len(data) + np.random.RandomState(seed).laplace()

        assert_private(old, ([], [1.0]), epsilon=1.0, runs=100)


class TestRefuted:
    def test_a_planted_bug_passes_and_a_right_mechanism_fails(self):
        assert_refuted(exact_count, ([], [1.0]), epsilon=5.0)
        with pytest.raises(AssertionError, match="not refuted to be"):
            assert_refuted(noisy_sum, ([], [1.0]), epsilon=1.0, runs=1000)


class TestAccounts:
    def test_a_certificate_must_meet_the_budget(self):
        history = [(1.0, 0.01, 1000)]
        upper = pa.epsilon(ledger=pa.ledger_from(history), delta=1e-5).upper
        assert_accounts(history, upper, 1e-5, conditional=True)
        ledger = pa.ledger_from(history)
        assert_accounts(ledger, epsilon=upper, delta=1e-5, conditional=True)
        with pytest.raises(AssertionError, match="does not meet"):
            assert_accounts(history, 0.9 * upper, 1e-5, conditional=True)
        with pytest.raises(AssertionError, match=r"Poisson.*conditional=True"):
            assert_accounts(history, upper, 1e-5)

    def test_an_event_of_dp_accounting(self):
        import dp_accounting

        event = dp_accounting.SelfComposedDpEvent(dp_accounting.GaussianDpEvent(4.0), 4)
        assert_accounts(event, 2.0, 1e-5)
        with pytest.raises(AssertionError, match="epsilon is at most"):
            assert_accounts(event, 0.5, 1e-5)

    def test_what_rests_on_assumptions_does_not(self):
        plain = pa.ledger_from([(1.0, 0.01, 10)])
        ledger = pa.Ledger(nodes=plain.nodes, assumes=("the moon is full",))
        with pytest.raises(AssertionError, match="the moon is full"):
            assert_accounts(ledger, 9.0, 1e-5)
        assert_accounts(ledger, 9.0, 1e-5, conditional=True)

    def test_no_ledger(self):
        with pytest.raises(ValueError, match="a ledger comes from"):
            assert_accounts(3.0, 1.0, 1e-5)


class TestFingerprints:
    def test_equal_values_and_functions_made_twice(self):
        def make(scale):
            return lambda data, rng: data + rng.laplace(scale=scale)

        assert fingerprint(make(1)) == fingerprint(make(1))
        assert fingerprint(make(1)) != fingerprint(make(2))
        assert fingerprint(np.ones(2)) == fingerprint(np.ones(2))

    @pytest.mark.parametrize(
        ("one", "other"),
        [
            (1, 1.0),
            (1, True),
            ([1], (1,)),
            ([1, [2]], [1, 2]),
            (["ab"], ["a", "b"]),
            (np.ones(2), np.ones(2, np.float32)),
            (np.ones((2, 1)), np.ones((1, 2))),
            ({"a": 1}, {"a": 2}),
            ({1}, {2}),
            (lambda x: x + 1, lambda x: x + 2),
        ],
    )
    def test_different_ones(self, one, other):
        assert fingerprint(one) != fingerprint(other)
