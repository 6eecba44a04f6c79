import math

import numpy as np
import pytest

from privaudit.testing import assert_probes, judge

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
