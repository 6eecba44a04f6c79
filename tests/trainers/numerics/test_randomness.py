"""Contract of trainers.numerics.randomness."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from trainers.numerics.randomness import (
    _DRAWN,
    _PURPOSES,
    Streams,
    _permute,
    generator_seed,
    standard_normal,
)

places = st.tuples(
    st.integers(0, 131071), st.integers(0, 4095), st.sampled_from(sorted(_PURPOSES))
)


def seed_of(seed, place):
    block, node, purpose = place
    return generator_seed(seed, node=node, purpose=purpose, block=block)


class TestSound:
    @given(st.integers(0, 2**70), places, places)
    def test_different_places_have_different_seeds(self, seed, one, other):
        assert (seed_of(seed, one) == seed_of(seed, other)) == (one == other)

    @given(st.integers(0, 2**70), places)
    def test_seeds_fit_what_torch_keeps(self, seed, place):
        assert 0 <= seed_of(seed, place) < 2**32

    def test_injective_on_a_whole_audit(self):
        seeds = {
            seed_of(3, (block, node, purpose))
            for block in range(200)
            for node in range(20)
            for purpose in _PURPOSES
        }
        assert len(seeds) == 200 * 20 * len(_PURPOSES)

    def test_user_seeds_share_no_streams(self):
        used = [
            {seed_of(seed, (b, n, "noise")) for b in range(40) for n in range(3)}
            for seed in range(50)
        ]
        assert len(set.union(*used)) == sum(len(one) for one in used)

    @given(st.integers(0, 2**40), st.integers(0, 2**32 - 1), st.integers(0, 2**32 - 1))
    def test_the_permutation_is_one(self, key, one, other):
        assert (_permute(key, one) == _permute(key, other)) == (one == other)

    def test_torch_drops_the_high_half_of_a_seed(self):
        # The reason for all this; if it changes, so may the layout.
        low = torch.Generator().manual_seed(5)
        high = torch.Generator().manual_seed(5 + 2**40)
        assert torch.equal(torch.rand(4, generator=low), torch.rand(4, generator=high))


class TestLaws:
    def test_equal_places_equal_numbers(self):
        one = torch.rand(5, generator=Streams(1, 2).generator("noise", 3))
        other = torch.rand(5, generator=Streams(1, 2).generator("noise", 3))
        assert torch.equal(one, other)

    @pytest.mark.parametrize("extra", [0, 1, 15, 16, 17, 1000, _DRAWN - 1])
    @pytest.mark.parametrize("blocks", [2, 3])
    def test_drawn_block_by_block_they_are_the_same(self, blocks, extra):
        """And what is drawn after them."""
        shape = (1, blocks * _DRAWN + extra)
        one, other = (Streams(3).generator("noise") for _ in range(2))
        got = standard_normal(shape, one, torch.device("cpu"), torch.float32)
        wanted = torch.empty(shape, dtype=torch.float64).normal_(generator=other)
        assert torch.equal(got, wanted.float())
        assert torch.equal(one.get_state(), other.get_state())

    def test_streams_are_not_correlated(self):
        draws = torch.stack(
            [
                torch.randn(
                    20_000, generator=Streams(0, block).generator(purpose, node)
                )
                for block in range(3)
                for node in range(3)
                for purpose in ("noise", "sampling")
            ]
        )
        correlation = torch.corrcoef(draws) - torch.eye(len(draws))
        assert correlation.abs().max() < 5 / 20_000**0.5


@pytest.mark.parametrize(
    ("place", "message"),
    [((0, 4096, "noise"), "node"), ((131072, 0, "noise"), "block")],
)
def test_out_of_range(place, message):
    with pytest.raises(ValueError, match=message):
        seed_of(0, place)
    with pytest.raises(ValueError, match="seed"):
        seed_of(-1, (0, 0, "noise"))
