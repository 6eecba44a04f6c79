"""Each probe of random numbers: silent on right ones, and told of what is planted."""

import numpy as np
import pytest
import torch

from privaudit.auditing.probes.streams import (
    Watched,
    from_elsewhere,
    hidden,
    known,
    off_the_grid,
    proportional,
    told_by_noise,
    used_twice,
)
from tests.trainers.checks import MECHANISM
from trainers.numerics.keys import Key
from trainers.numerics.randomness import Streams

DIMS = 20


def noise_of(streams, releases=3, runs=2, nodes=2):
    """(releases, runs, nodes, DIMS), of scale 1."""
    return torch.stack(
        [
            streams.unit_noise("noise", range(nodes), release, (runs, DIMS))
            for release in range(releases)
        ]
    )


class TestKnownNoise:
    @pytest.mark.parametrize("seed", range(5))
    def test_of_a_key_is_not_found(self, seed):
        assert known(noise_of(Streams(hidden(seed)))) == []

    def test_of_a_secret_key_is_not_found(self):
        assert known(noise_of(Streams(Key.secret()))) == []

    def test_of_a_study_is_found(self):
        (first, *_) = known(noise_of(Streams(5)))
        assert "node 0, release 0 is what a study gives under seed 5" in first

    def test_only_as_far_as_is_searched(self):
        assert known(noise_of(Streams(5)), search=5) == []
        assert known(noise_of(Streams(5)), search=6) != []

    @pytest.mark.parametrize(
        ("draw", "name"),
        [
            (
                lambda shape: torch.randn(
                    shape,
                    dtype=torch.float64,
                    generator=torch.Generator().manual_seed(300),
                ),
                "torch.Generator (doubles)",
            ),
            (
                lambda shape: torch.randn(
                    shape, generator=torch.Generator().manual_seed(300)
                ),
                "torch.Generator (floats)",
            ),
            (
                lambda shape: torch.from_numpy(
                    np.random.default_rng(300).standard_normal(shape)
                ),
                "numpy.random.default_rng",
            ),
            (
                lambda shape: torch.from_numpy(
                    np.random.RandomState(300).standard_normal(shape)
                ),
                "numpy.random.RandomState",
            ),
        ],
    )
    def test_of_a_known_generator_is_found(self, draw, name):
        noise = noise_of(Streams(hidden(0)))
        noise[1] = draw((2, 2, DIMS))
        found = known(noise, search=512)
        assert len(found) == 1
        assert f"node 0, release 1 is what {name} gives under seed 300" in found[0]
        assert "512 seeds" in found[0]

    def test_two_numbers_are_too_few_to_tell(self):
        with pytest.raises(ValueError, match="8 dims"):
            known(torch.zeros(1, 1, 1, 2))


class TestWords:
    def test_of_different_addresses_differ(self):
        streams = Watched(3)
        for release in range(4):
            streams.coins([0, 1], release, (2, 100), 0.3)
            streams.unit_noise("noise", [0, 1], release, (2, 100))
            streams.unit_noise("message", [0, 1], release, (2, 100))
        assert used_twice(streams.asked) == []
        assert used_twice([]) == []

    def test_an_address_twice_is_found(self):
        streams = Watched(3)
        streams.coins([1], 4, (2, 100), 0.3)
        streams.uniforms("sampling", [1], 4, (2, 100))
        (first, *_) = used_twice(streams.asked)
        assert "sampling of node 1, release 4, run 0 are drawn twice" in first

    def test_two_purposes_are_named(self):
        key = Key.study(1)
        one = key.rows("sampling", nodes=[0], release=2, width=8)
        other = key.rows("noise", nodes=[1], release=3, width=8)
        # As a generator would give them that both were seeded by.
        object.__setattr__(other, "words", one.words)
        (found,) = used_twice([one, other])
        assert "sampling of node 0, release 2, run 0" in found
        assert "noise of node 1, release 3, run 0" in found

    def test_noise_from_elsewhere_is_found(self):
        streams, ledger = Watched(3), MECHANISM.ledger((7, 5, 9), 2)
        for release in range(2):
            streams.unit_noise("noise", [0, 1, 2], release, (1, DIMS))
        assert from_elsewhere(streams.asked, ledger) == []
        (found,) = from_elsewhere(streams.asked, MECHANISM.ledger((7,), 3))
        assert (
            "3 releases with noise are in the ledger, but the run's key drew" in found
        )
        assert len(from_elsewhere([], ledger)) == 3
        assert (
            from_elsewhere(streams.asked, MECHANISM.ledger((7,), 3), each=False) == []
        )


class TestGrid:
    @staticmethod
    def pairs(noisy, deviation):
        return [(noisy, torch.full((2,), deviation, dtype=torch.float64))]

    @pytest.mark.parametrize("kind", [torch.float32, torch.float64])
    @pytest.mark.parametrize("divisor", [1.0, 32.0, 3.0, 10.7])
    @pytest.mark.parametrize("deviation", [0.3, 1.0, 5.3e4])
    def test_rounded_noise_is_on_it(self, kind, divisor, deviation):
        sums = torch.randn(3, 2, 500, generator=torch.Generator().manual_seed(1))
        noisy = Streams(1).noisy(sums.to(kind), [0, 1], 0, deviation).div_(divisor)
        assert off_the_grid(self.pairs(noisy, deviation), (divisor, divisor)) == []

    @pytest.mark.parametrize("kind", [torch.float32, torch.float64])
    @pytest.mark.parametrize("divisor", [1.0, 3.0])
    def test_noise_in_floats_is_not(self, kind, divisor):
        generator = torch.Generator().manual_seed(1)
        noisy = torch.randn(3, 2, 500, generator=generator, dtype=kind).div_(divisor)
        found = off_the_grid(self.pairs(noisy, 1.0), (divisor, divisor))
        assert len(found) == 2
        assert "no multiples of" in found[0]

    def test_a_grid_that_depends_on_the_sum_is_not_public(self):
        """A grid of another deviation, eight times finer."""
        noisy = Streams(1).noisy(torch.zeros(3, 2, 500), [0, 1], 0, 1 / 8)
        assert off_the_grid(self.pairs(noisy, 1.0), (1.0, 1.0)) != []


class TestProportional:
    def test_independent_noise_is_not(self):
        assert proportional(noise_of(Streams(0), releases=9, runs=9)) == []

    @pytest.mark.parametrize("factor", [1.0, -2.0, 1e-3])
    def test_a_multiple_is_found(self, factor):
        noise = noise_of(Streams(0)).float()
        noise[2, 1, 0] = factor * noise[0, 0, 1]
        (found,) = proportional(noise)
        assert f"node 0, release 2, run 1 is {factor:.4g} times that of" in found
        assert "that of node 1, release 0, run 0" in found


class TestToldByNoise:
    def test_independent_coins_are_not(self):
        for seed in range(20):
            noise = noise_of(Streams(seed), releases=6, runs=40)[:, :, 0]
            coins = Streams(seed).coins([0], 0, (6, 40), 0.3)[:, 0]
            assert told_by_noise(noise, coins) == []

    def test_a_shared_number_is_found(self):
        noise = noise_of(Streams(0), releases=6, runs=40)[:, :, 0]
        (found,) = told_by_noise(noise, noise[..., 7] < -0.5)
        assert "goes with coordinate 7 of its noise" in found

    def test_a_coin_that_always_falls_alike_tells_nothing(self):
        noise = noise_of(Streams(0))[:, :, 0]
        assert told_by_noise(noise, torch.ones(3, 2, dtype=torch.bool)) == []
