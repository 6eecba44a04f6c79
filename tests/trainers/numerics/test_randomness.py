"""Contract of trainers.numerics.randomness: what a block draws, from key and place."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from trainers.numerics.keys import Key
from trainers.numerics.randomness import (
    Streams,
    grid_step,
    public_generator,
    rounding_up,
)

SHAPE = (3, 50)


class TestSound:
    def test_a_secret_key_hides_different_sums_under_different_noise(self):
        streams = Streams(Key.secret())
        sums = torch.zeros(1, 1, 200)
        first = streams.noisy(sums, [0], 0, 1.0)
        assert torch.equal(first, streams.noisy(sums, [0], 0, 1.0))
        sums[0, 0, 0] = 1e-3
        other = streams.noisy(sums, [0], 0, 1.0)
        assert (first[0, 0, 1:] != other[0, 0, 1:]).all()

    def test_noise_is_of_the_point_and_of_the_grid_too(self):
        """Or a run that is led elsewhere shows whether a sum changed there."""
        streams, sums = Streams(Key.secret()), torch.zeros(1, 1, 200)
        here, there = torch.zeros(1, 1, 3), torch.tensor([[[0.0, 0.0, -0.0]]])
        drawn = [
            streams.noisy(sums, [0], 0, deviation, step, point=point)
            for deviation, step, point in (
                (1.0, 2.0**-27, here),
                (1.0, 2.0**-27, there),
                (1.0, 2.0**-26, here),
                (1.5, 2.0**-27, here),
            )
        ]
        assert torch.equal(
            drawn[0], streams.noisy(sums, [0], 0, 1.0, 2.0**-27, point=here)
        )
        for k, one in enumerate(drawn):
            for other in drawn[:k]:
                assert (one != other).sum() > 190

    def test_unit_noise_is_of_what_it_hides(self):
        """To the last bit, under a secret key; a study's depends on no data."""
        one = torch.zeros(1, 2, 4, dtype=torch.float64)
        other = one.clone()
        other[0, 1, 3] = 5e-324
        for key, differ in ((Key.secret(), True), (Key.study(1), False)):
            first, again, moved = (
                Streams(key).unit_noise("noise", [0, 1], 0, (1, 200), hides=hides)
                for hides in (one, one.clone(), other)
            )
            assert torch.equal(first, again)
            assert torch.equal(first[:, 0], moved[:, 0])  # the other node's is its own
            assert bool((first[:, 1] != moved[:, 1]).sum() > 190) is differ

    def test_two_secret_keys_share_nothing(self):
        one, other = (
            Streams(Key.secret()).noisy(torch.zeros(1, 2, 100), [0, 1], 0, 1.0)
            for _ in range(2)
        )
        assert (one != other).all()

    def test_all_bits_of_a_seed_count(self):
        one, other = (Streams(seed).worlds(200) for seed in (5, 5 + (1 << 64)))
        assert (one != other).any()

    @given(st.floats(1e-6, 1e6), st.integers(1, 10**6))
    def test_rounding_moves_two_sums_by_no_more_than_is_said(self, deviation, dims):
        step = grid_step(deviation)
        assert 2**27 <= deviation / step < 2**28
        # Each coordinate of each of the two by half a step.
        assert rounding_up(step, dims) >= math.sqrt(dims) * step
        assert rounding_up(step, dims) <= 1.001 * math.sqrt(dims) * step

    @given(st.floats(1e-6, 1e6), st.floats(1e-9, 1e15))
    def test_a_sum_fits_whatever_the_data_are(self, deviation, ratio):
        most = deviation * ratio
        assert most / grid_step(deviation, most) <= 2**51
        assert grid_step(deviation, most) >= grid_step(deviation)

    def test_little_noise_on_large_sums(self):
        step = grid_step(1e-3, 60_001.0)
        sums = torch.full((1, 1, 8), 60_000.0, dtype=torch.float64)
        noisy = Streams(1).noisy(sums, [0], 0, 1e-3, step)
        assert (noisy - sums).abs().max() < 0.01

    def test_noise_has_the_stated_deviation(self):
        drawn = Streams(1).noisy(torch.zeros(1, 1, 200_000), [0], 0, 2.5)
        assert drawn.std().item() == pytest.approx(2.5, rel=0.01)
        assert abs(drawn.mean().item()) < 5 * 2.5 / math.sqrt(200_000)


class TestLaws:
    def test_runs_do_not_depend_on_how_many_are_computed_together(self):
        whole = Streams(7).noisy(torch.zeros(6, 2, 40), [0, 1], 3, 1.0)
        parts = [
            Streams(7, first).noisy(torch.zeros(2, 2, 40), [0, 1], 3, 1.0)
            for first in (0, 2, 4)
        ]
        assert torch.equal(whole, torch.cat(parts))
        coins = Streams(7).coins([0], 2, (6, 40), 0.3)
        assert torch.equal(coins[2:4], Streams(7, 2).coins([0], 2, (2, 40), 0.3))
        assert torch.equal(Streams(7).worlds(6)[4:], Streams(7, 4).worlds(2))

    def test_nodes_are_those_of_the_whole_network(self):
        whole = Streams(7).noisy(torch.zeros(1, 3, 40), [0, 1, 2], 0, 1.0)
        alone = Streams(7).noisy(torch.zeros(1, 1, 40), [2], 0, 1.0)
        assert torch.equal(whole[:, 2:], alone)

    def test_purposes_and_releases_are_apart(self):
        streams = Streams(7)
        drawn = [
            streams.uniforms(purpose, [0], release, SHAPE)
            for purpose in ("noise", "message", "sampling")
            for release in (0, 1)
        ]
        for i, one in enumerate(drawn):
            assert one.min() >= 0
            assert one.max() < 1
            assert all((one != other).all() for other in drawn[:i])

    def test_public_numbers_are_of_seed_and_purpose(self):
        one, again, other = (
            torch.rand(5, generator=public_generator(3, purpose))
            for purpose in ("start", "start", "canary")
        )
        assert torch.equal(one, again)
        assert (one != other).all()


@pytest.mark.parametrize("make", [Streams, lambda seed: public_generator(seed, "x")])
def test_a_negative_seed_is_refused(make):
    with pytest.raises(ValueError, match="seed must be >= 0, got -1"):
        make(-1)
