import math
from fractions import Fraction

import numpy as np
import pytest

from privaudit.testing import assert_probes, judge
from privaudit.testing.low_bits import log_e_value, lone
from privaudit.testing.probing import probe

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


def test_low_bits_can_be_accepted_and_sensitivity_is_only_compared_where_it_can_be():
    def plain(data, rng):
        return sum(data) + rng.normal(scale=2.0)

    assert_probes(plain, PAIR, low_bits=False, sensitivity=1.0, noise=2.0)
    elsewhere = np.random.default_rng(5)

    def own(data, rng):
        return 9 * on_grid(sum(data) + elsewhere.normal(scale=2.0))

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

        found = probe(
            response,
            ([0], [1]),
            sensitivity=None,
            norm=2,
            noise=None,
            read_bits=True,
            runs=1000,
            seed=0,
        )
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
    ],
)
def test_values_out_of_range(values, words):
    with pytest.raises(ValueError, match=words):
        assert_probes(total, PAIR, **values)


def test_releases_must_be_numbers_of_one_length():
    with pytest.raises(ValueError, match="no numbers"):
        assert_probes(lambda data, rng: "a", PAIR)
    with pytest.raises(ValueError, match="finite"):
        assert_probes(lambda data, rng: np.nan, PAIR)
    with pytest.raises(ValueError, match="one length"):
        assert_probes(lambda data, rng: rng.normal(size=rng.integers(1, 9)), PAIR)


def test_a_release_may_take_a_seed_as_in_probe():
    def seeded(data, seed):
        return total(data, np.random.default_rng(seed))

    def fixed(data, seed):
        return total(data, np.random.default_rng(0))

    assert_probes(seeded, PAIR, sensitivity=1.7321, noise=2.0)
    assert not judge(seeded, PAIR, epsilon=50.0, runs=400).refuted
    with pytest.raises(AssertionError, match="no noise, or noise of a fixed seed"):
        assert_probes(fixed, PAIR)
