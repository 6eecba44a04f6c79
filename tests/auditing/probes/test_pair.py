import math
import random
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import strategies as st

from privaudit.auditing.probes.low_bits import log_e_value, lone
from privaudit.auditing.probes.pair import Promises, probe
from privaudit.testing import assert_probes, judge, neighbours

PAIR = ([0.25, 0.5], [0.25, 0.5, 1.0])


def on_grid(value):
    return np.round(np.asarray(value) * 2**20) / 2**20


def total(data, rng):
    return on_grid(sum(data) + rng.normal(scale=2.0, size=3))


def test_a_right_release_has_no_findings():
    for seed in range(5):
        assert_probes(total, PAIR, sensitivity=1.7321, noise=2.0, seed=seed)


def test_laplace_and_whole_numbers_neither():
    def laplace(data, rng):
        return on_grid(sum(data) + rng.laplace(scale=2.0))

    def geometric(data, rng):
        return len(data) + int(rng.geometric(0.3) - rng.geometric(0.3))

    for seed in range(5):
        assert_probes(laplace, PAIR, sensitivity=1.0, noise=8**0.5, seed=seed)
        assert_probes(geometric, PAIR, sensitivity=1.0, seed=seed)


@pytest.mark.parametrize(
    ("release", "words"),
    [
        (lambda data, rng: [sum(data), rng.normal()], "coordinate 0 is the same"),
        (
            lambda data, rng: sum(data) + np.random.default_rng(0).normal(),
            "no noise, or noise of a fixed seed",
        ),
        (
            lambda data, rng: on_grid(sum(data) + [0.1, 0.7][rng.integers(2)]),
            "released exactly the same",
        ),
        (
            lambda data, rng: on_grid(sum(data) + rng.normal() * np.array([2, -2])),
            "coordinates 0 and 1 share noise",
        ),
        (lambda data, rng: on_grid(sum(data) + rng.normal(scale=1.5)), "is promised"),
        (
            lambda data, rng: on_grid(1.5 * sum(data) + rng.normal(scale=2.0)),
            "moved what is released by 1.5",
        ),
        (lambda data, rng: sum(data) + rng.normal(scale=2.0), "low bits"),
    ],
)
def test_each_bug_is_found(release, words):
    with pytest.raises(AssertionError, match="findings") as caught:
        assert_probes(release, PAIR, sensitivity=1.0, noise=2.0)
    assert words in str(caught.value)


def test_noise_is_a_standard_deviation():
    def laplace(data, rng):
        return round(1024 * (sum(data) + rng.laplace(scale=2.0))) / 1024

    assert_probes(laplace, ([0.5], [0.5, 1.0]), noise=math.sqrt(2) * 2.0)
    with pytest.raises(AssertionError, match=r"standard deviation .*; 2 is promised"):
        assert_probes(laplace, ([0.5], [0.5, 1.0]), noise=2.0)


def test_the_same_noise_under_both_data_sets():
    class Replayed:
        """Noise by a counter that starts again for every data set."""

        def __init__(self):
            self.data, self.calls = None, 0

        def __call__(self, data, rng):
            if data != self.data:
                self.data, self.calls = data, 0
            self.calls += 1
            draws = np.random.default_rng(self.calls)
            return float(on_grid(sum(data) + draws.normal(scale=2.0)))

    with pytest.raises(AssertionError, match="same noise was added to both"):
        assert_probes(Replayed(), PAIR)


def accused(release, pair=PAIR, **promises):
    """What `assert_probes` says of a release, "" if nothing."""
    try:
        assert_probes(release, pair, low_bits=False, runs=400, **promises)
    except AssertionError as error:
        return str(error)
    return ""


class Walk:
    """Noise of which a part is kept for the next run."""

    def __init__(self, kept):
        self.kept, self.last = kept, 0.0

    def __call__(self, data, rng):
        self.last = self.kept * self.last + rng.normal()
        return float(on_grid(sum(data) + self.last))


class Louder:
    """Noise as wide as the last run's was."""

    def __init__(self):
        self.size = 1.0

    def __call__(self, data, rng):
        noise = rng.normal() * self.size
        self.size = min(9.0, 0.3 + abs(noise))
        return float(on_grid(sum(data) + noise))


class Late:
    """Noise that another coordinate had one run before."""

    def __init__(self):
        self.last = 0.0

    def __call__(self, data, rng):
        noise = rng.normal()
        found = on_grid(sum(data) + np.array([noise, self.last]))
        self.last = noise
        return found


class Replayed:
    """Noise by a counter that starts again, and is wider, for larger data."""

    def __init__(self):
        self.data, self.calls = None, 0

    def __call__(self, data, rng):
        if data != self.data:
            self.data, self.calls = data, 0
        self.calls += 1
        noise = np.random.default_rng(self.calls).normal()
        return float(on_grid(sum(data) + len(data) * noise))


class TestState:
    @pytest.mark.parametrize(
        "make", [lambda: Walk(1.0), lambda: Walk(-0.6), Louder, Late, Replayed]
    )
    def test_runs_that_depend_on_runs_are_found(self, make):
        assert "share noise or a state" in accused(make())

    def test_independent_runs_are_not_accused(self):
        """Each seed at a chance of 1e-9: twenty coordinates, heavy tails, ties."""

        def wide(data, rng):
            return on_grid(sum(data) + rng.standard_cauchy(size=20))

        def coin(data, rng):
            return [float(rng.random() < 0.5), float(rng.integers(3))]

        for seed in range(3):
            for release in (wide, coin):
                assert "state" not in accused(release, seed=seed)

    @pytest.mark.parametrize("module", ["numpy", "random"])
    def test_generators_of_others(self, module):
        def seeds(data, rng):
            (np.random if module == "numpy" else random).seed(7)
            return total(data, rng)

        def draws(data, rng):
            random.random()
            return total(data, rng)

        assert f"the generator of {module}" in accused(seeds)
        assert not accused(draws)
        kept = random.getstate()
        assert not accused(total)
        assert random.getstate() == kept


class TestSearch:
    NUMBERS = neighbours(
        st.lists(st.floats(-100, 100), max_size=4), relation="add-or-remove-one"
    )

    def test_a_pair_that_moves_it_further_is_found(self):
        def half_clipped(data, rng):
            return on_grid(sum(min(x, 1.0) for x in data) + rng.normal())

        def clipped(data, rng):
            return on_grid(sum(max(-1.0, min(x, 1.0)) for x in data) + rng.normal())

        assert not accused(half_clipped, sensitivity=1.0)
        found = accused(half_clipped, sensitivity=1.0, pairs=self.NUMBERS)
        assert "by 100 in L2 norm; 1 is promised, on the pair" in found
        assert not accused(clipped, sensitivity=1.0, pairs=self.NUMBERS)

    def test_it_climbs_to_a_peak_that_is_not_at_an_end(self):
        def humped(data):
            return sum(2.0 * math.exp(-(((x - 37.0) / 9) ** 2)) for x in data)

        given = {"deterministic": humped, "pairs": self.NUMBERS}
        elsewhere = np.random.default_rng(5)

        def release(data, rng):
            return float(on_grid(humped(data) + elsewhere.normal()))

        assert "further" not in accused(release, sensitivity=2.0, **given)
        found = accused(release, sensitivity=1.9, **given)
        assert "1.9 is promised, on the pair" in found

    def test_a_release_that_has_as_many_numbers_as_records(self):
        found = accused(total, sensitivity=1.0, deterministic=lambda data: data)
        assert "by inf" in found


class TestBudget:
    def made(self, charge):
        """A pipeline of two releases, and what it charges for them."""
        spent = [0.0]

        def release(data, rng):
            spent[0] += charge(data)
            return total(data, rng)

        return release, lambda: spent[0]

    @pytest.mark.parametrize(
        ("charge", "words"),
        [
            (lambda data: 0.5, ""),
            (lambda data: 1.0, "spent 1 where 0.5 is promised, counted twice"),
            (lambda data: 0.3, "part of it is not counted"),
            (lambda data: 0.0, "spent nothing: what it releases is not counted"),
            (lambda data: 0.5 * (len(data) > 2), "data set 0 spent nothing"),
            (lambda data: 0.1 * len(data), "is promised"),
        ],
    )
    def test_what_a_run_is_charged(self, charge, words):
        release, spent = self.made(charge)
        found = accused(release, spent=spent, budget=0.5)
        assert words in found
        assert bool(found) == bool(words)

    def test_a_total_that_does_not_add_up_may_be_read_without_a_promise(self):
        count = [0]

        def release(data, rng):
            count[0] += 1
            return total(data, rng)

        assert not accused(release, spent=lambda: math.sqrt(count[0]))
        assert "spent nothing" in accused(release, spent=lambda: min(count[0], 1201))


def test_times_are_an_option(monkeypatch):
    """By a clock that runs as the release says."""
    now = [0]

    def slow(data, rng):
        now[0] += 1000 + int(rng.integers(100)) + 60 * len(data)
        return total(data, rng)

    def even(data, rng):
        now[0] += 1000 + int(rng.integers(100))
        return total(data, rng)

    monkeypatch.setattr("time.perf_counter_ns", lambda: now[0])
    assert not accused(slow)
    assert "the second data set took longer in" in accused(slow, timing=True)
    assert not accused(even, timing=True)


def test_low_bits_can_be_accepted_and_sensitivity_is_only_compared_where_it_can_be():
    def plain(data, rng):
        return sum(data) + rng.normal(scale=2.0)

    assert_probes(plain, PAIR, low_bits=False, sensitivity=1.0, noise=2.0)
    elsewhere = np.random.default_rng(5)

    def own(data, rng):
        return 9 * on_grid(sum(data) + elsewhere.normal(scale=2.0))

    assert_probes(own, PAIR)
    with pytest.raises(ValueError, match="draw all noise from rng"):
        assert_probes(own, PAIR, sensitivity=1.0)


def test_a_large_value_with_little_noise():
    def large(data, rng):
        return on_grid(1e6 + sum(data) + rng.normal())

    assert_probes(large, PAIR, sensitivity=1.0, noise=1.0)


def inverted(scale):
    """Laplace noise by the inverse of its distribution function, in floats."""

    def release(data, rng):
        away = rng.random() - 0.5
        return sum(data) - scale * math.copysign(math.log1p(-2 * abs(away)), away)

    return release


def of_four(scale):
    """Laplace noise of four uniform numbers (Holohan and Braghin 2021), in floats."""

    def release(data, rng):
        one, two, three, four = rng.random(4).tolist()
        noise = math.log(1 - one) * math.cos(math.pi * two)
        noise += math.log(1 - three) * math.cos(math.pi * four)
        return sum(data) - scale * noise

    return release


def exact(data, rng):
    """Normal noise with 124 bits below a smooth draw, rounded once."""
    bits = int(rng.integers(2**62)) * 2**62 + int(rng.integers(2**62))
    noise = Fraction(round(float(rng.normal()) * 2**30), 2**30)
    noise += (Fraction(bits, 2**124) - Fraction(1, 2)) * Fraction(1, 2**20)
    return float(noise + sum(map(Fraction, data)))


def cut(data, rng):
    """As `exact`, within limits that are given with a chance."""
    return min(max(exact(data, rng), 0.3), 0.9)


def single(data, rng):
    return float(np.float32(exact(data, rng)))


class TestLowBits:
    @pytest.mark.sampled(2)
    @pytest.mark.parametrize(
        ("release", "pair", "epsilon"),
        [
            (inverted(1.0), ([], [1.0]), 1.0),
            (inverted(10.0), ([], [1.0]), 0.1),
            (inverted(1.0), ([0.3], [0.4]), 0.1),
            (of_four(1.0), ([0.3], [0.4]), 0.1),
            (of_four(1.0), ([0.25, 0.5], [0.25, 0.5, 1.0]), 1.0),
            (of_four(10.0), ([0.1] * 30, [0.1] * 30 + [0.7]), 0.07),
        ],
    )
    def test_what_the_score_bits_finds_is_found(self, release, pair, epsilon):
        for seed in range(3):
            with pytest.raises(AssertionError, match="low bits"):
                assert_probes(release, pair, seed=seed)
        assert judge(release, pair, epsilon=epsilon, score="bits", runs=6000).refuted

    @pytest.mark.sampled(3)
    @pytest.mark.parametrize("release", [exact, cut, single, total])
    @pytest.mark.parametrize("pair", [([0.3], [0.4]), ([], [1.0]), ([3.0], [3.7])])
    def test_what_is_rounded_once_has_none(self, release, pair):
        """No seed of these suspects it much: an e-value's mean is 1 at most."""
        values = []
        for seed in range(4):
            samples = []
            for world, data in enumerate(pair):
                rng = np.random.default_rng((seed, world))
                runs = [np.ravel(release(data, rng))[0] for _ in range(1000)]
                samples.append(np.array(runs))
            values.append(log_e_value(*samples))
            assert not lone(*samples, 1e-6)
        assert np.mean(np.exp(values)) < 5

    def test_a_likely_value_is_no_low_bit(self):
        """Randomised response that tells with chance .9997: 8-DP, and on a grid."""

        def response(data, rng):
            told = data[0] if rng.random() < 0.99966 else 1 - data[0]
            return 1.5 if told else 1.0

        found = probe(response, ([0], [1]), Promises(), 1000, 0)
        assert not found[-1].findings

    def test_integer_noise_on_data_that_are_not_whole(self):
        def release(data, rng):
            return data[0] + float(rng.integers(-9, 9))

        with pytest.raises(AssertionError, match="have low bits on one data set"):
            assert_probes(release, ([0.3], [0.75]))


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"runs": 50}, "runs must be"),
        ({"norm": 3}, "norm must be"),
        ({"noise": 0.0}, "noise must be"),
        ({"sensitivity": -1.0}, "sensitivity must be"),
        ({"pairs": st.nothing()}, "searched for a sensitivity"),
        ({"budget": 1.0}, "budget goes with spent"),
    ],
)
def test_values_out_of_range(values, words):
    with pytest.raises(ValueError, match=words):
        assert_probes(total, PAIR, **values)


def test_a_dictionary_is_its_numbers():
    def named(data, rng):
        noise = rng.normal(scale=2.0)
        return {"sum": sum(data) + noise, "count": len(data) + noise}

    with pytest.raises(AssertionError, match="coordinates 0 and 1 share noise"):
        assert_probes(named, PAIR, low_bits=False)


def test_releases_must_be_numbers_of_one_length():
    with pytest.raises(ValueError, match="no numbers"):
        assert_probes(lambda data, rng: "a", PAIR)
    with pytest.raises(ValueError, match="finite"):
        assert_probes(lambda data, rng: np.nan, PAIR)
    with pytest.raises(ValueError, match="one length"):
        assert_probes(lambda data, rng: rng.normal(size=rng.integers(1, 9)), PAIR)
    for large in (10**400, Fraction(10**400, 3)):
        with pytest.raises(ValueError, match="no numbers"):
            assert_probes(lambda data, rng, large=large: large, PAIR)


def test_a_length_that_the_data_decide_is_a_finding():
    with pytest.raises(AssertionError, match="data set have 2 numbers, on the other 3"):
        assert_probes(lambda data, rng: rng.normal(size=len(data)), PAIR)


def test_a_release_may_take_a_seed_as_in_probe():
    def seeded(data, seed):
        return total(data, np.random.default_rng(seed))

    def fixed(data, seed):
        return total(data, np.random.default_rng(0))

    assert_probes(seeded, PAIR, sensitivity=1.7321, noise=2.0)
    assert not judge(seeded, PAIR, epsilon=50.0, runs=400).refuted
    with pytest.raises(AssertionError, match="no noise, or noise of a fixed seed"):
        assert_probes(fixed, PAIR)
