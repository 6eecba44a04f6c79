"""Anybody's mechanisms: right ones pass, and each bug is seen by its check."""

import dataclasses

import numpy as np
import pytest

from privaudit.auditing.probes.function import probe
from privaudit.figure_settings import ProbeSettings

CLIP, SIGMA, RATE = 1.0, 4.0, 0.5
SAMPLED = ProbeSettings(
    relation="add-or-remove-one", sensitivity=CLIP, noise=SIGMA, rate=RATE
)
FULL = ProbeSettings(relation="replace-one", sensitivity=2 * CLIP, noise=SIGMA)


def mechanism(data, seed, *, clip=CLIP, sigma=SIGMA, rate=RATE, half=False, mean=False):
    """A clipped, sampled, noisy sum; coins and noise are drawn apart."""
    coins, noise = np.random.default_rng([seed, 0]), np.random.default_rng([seed, 1])
    batch = coins.random(len(data)) < rate
    norms = np.maximum(np.linalg.norm(data, axis=1, keepdims=True) / clip, 1)
    drawn = noise.normal(size=data.shape[1]) * sigma
    if half:
        drawn = drawn.astype(np.float16)
    total = (data / norms)[batch].sum(0) + drawn
    return total / len(data) if mean else total


def full(data, seed, **more):
    return mechanism(data, seed, rate=1.0, **more)


def alike(data, seed):
    return mechanism(data, seed // 2)


def coordinates_alike(data, seed):
    noise = np.random.default_rng(seed).normal()
    return np.full(data.shape[1], SIGMA * noise)


def unseeded(data, seed):
    return data.sum(0) + np.random.default_rng().normal(size=data.shape[1])


def first_exact(data, seed):
    released = full(data, seed)
    released[0] = 1.0
    return released


def found(function, promise=SAMPLED, **more):
    return {
        c.name: c.findings
        for c in probe(function, dataclasses.replace(promise, **more))
        if c.findings
    }


class TestSeedOrGenerator:
    """A function of (data, rng) is one of (data, seed), as in tests."""

    def test_a_right_one_has_no_findings(self):
        def right(data, rng):
            return total_of(data) + rng.normal(scale=SIGMA, size=data.shape[1])

        assert found(right, FULL) == {}

    def test_a_generator_has_its_seed(self):
        def same_noise(data, rng):
            return coordinates_alike(data, rng)

        def by_seed(data, seed):
            rng = np.random.default_rng(seed)
            return total_of(data) + rng.normal(scale=SIGMA / 2, size=data.shape[1])

        def by_generator(data, rng):
            return total_of(data) + rng.normal(scale=SIGMA / 2, size=data.shape[1])

        assert found(same_noise, FULL)
        assert found(by_generator, FULL) == found(by_seed, FULL) != {}


def total_of(data):
    return (data / np.maximum(np.linalg.norm(data, axis=1, keepdims=True), 1)).sum(0)


class TestSound:
    @pytest.mark.sampled(2)
    @pytest.mark.parametrize("features", [1, 2, 3, 8, 60])
    @pytest.mark.parametrize("seed", [0, 1000])
    def test_right_ones_are_not_accused(self, features, seed):
        assert found(mechanism, features=features, seed=seed) == {}
        assert found(full, FULL, features=features, seed=seed) == {}

    def test_uneven_and_discrete_noise_is_no_finding(self):
        def uneven(data, seed):
            return full(data, seed) * np.array([1e-4, 1, 1, 100, 1])

        def discrete(data, seed):
            return np.round(full(data, seed))

        assert found(uneven, ProbeSettings()) == {}
        assert found(discrete, ProbeSettings()) == {}

    def test_what_is_not_promised_is_not_looked_at(self):
        checks = {check.name: check for check in probe(full, ProbeSettings())}
        assert checks["noise"].skipped == "none is promised"
        assert checks["sensitivity"].skipped.startswith("none is promised; it moved")


class TestBugs:
    @pytest.mark.parametrize(
        ("function", "promise", "check", "words"),
        [
            (lambda d, s: mechanism(d, s, clip=2.0), SAMPLED, "sensitivity", "moved"),
            (lambda d, s: mechanism(d, s, rate=0.9), SAMPLED, "sampling", "was used"),
            (lambda d, s: full(d, s, sigma=2.0), FULL, "noise", "was measured"),
            (lambda d, s: full(d, s, sigma=8.0), FULL, "noise", "was measured"),
            (lambda d, s: full(d, s, mean=True), FULL, "noise", "was measured"),
            (first_exact, FULL, "noise", "coordinate 0 of what is released"),
            (alike, SAMPLED, "fresh noise", "used twice"),
            (coordinates_alike, ProbeSettings(), "fresh noise", "share noise"),
            (unseeded, ProbeSettings(), "repeatable", "draws from elsewhere"),
        ],
    )
    def test_is_seen(self, function, promise, check, words):
        assert any(words in one for one in found(function, promise)[check])

    def test_half_precision_is_seen(self):
        def half(data, seed):
            return np.random.default_rng(seed).normal(size=60).astype(np.float16)

        assert "noise is coarse" in found(half, ProbeSettings())["fine noise"][0]


class TestRefusals:
    @pytest.mark.parametrize(
        ("function", "words"),
        [
            (lambda d, s: [np.nan], "finite numbers"),
            (lambda d, s: [], "finite numbers"),
            (lambda d, s: ["a"], "no numbers"),
            (lambda d, s: np.zeros(1 + s % 2), "one length"),
        ],
    )
    def test_what_is_no_vector(self, function, words):
        with pytest.raises(ValueError, match=words):
            probe(function, ProbeSettings())

    def test_numbers_out_of_range(self):
        for bad in ({"sensitivity": 0.0}, {"noise": -1.0}, {"rate": 1.5}):
            with pytest.raises(ValueError, match="must be"):
                ProbeSettings(**bad)
        with pytest.raises(ValueError, match="runs must be >= 20"):
            ProbeSettings(runs=3)
        with pytest.raises(ValueError, match="records must be >= 2"):
            ProbeSettings(records=1)
