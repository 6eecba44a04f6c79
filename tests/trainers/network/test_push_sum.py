"""Contract of push_sum: what is conserved, and what weights can fall to."""

import functools

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.tiers import examples
from tests.trainers.problems import start
from trainers.network.engine import Inbox
from trainers.network.mixing import Mixing
from trainers.network.named_graphs import mixing
from trainers.network.push_sum import NEEDS, PushSum

# Every graph with a name, directed or not; weights that are not row stochastic but
# where all degrees are equal.
GRAPHS = [
    "complete",
    "ring",
    "star",
    "directed-ring",
    "exponential",
    "d-out:2",
    "d-out:3",
    "erdos-renyi:0.6",
]
sizes = st.integers(3, 20)
by_name = st.builds(
    lambda name, nodes, seed: mixing(name, "column-stochastic", nodes, seed=seed),
    st.sampled_from(GRAPHS),
    sizes,
    st.integers(0, 1000),
)


@st.composite
def schedules(draw):
    """Cycles of random directed graphs, connected over time, with random weights."""
    nodes, period = draw(st.integers(1, 8)), draw(st.integers(1, 4))
    generator = np.random.default_rng(draw(st.integers(0, 10**6)))
    hears = generator.random((period, nodes, nodes)) < draw(st.floats(0, 0.6))
    for i in range(nodes):  # somewhere in the cycle, the next node hears this one
        hears[generator.integers(period), (i + 1) % nodes, i] = True
    hears[:, range(nodes), range(nodes)] = True
    weights = hears * generator.uniform(0.01, 1, hears.shape)
    return Mixing(weights / weights.sum(1, keepdims=True))


every = st.one_of(by_name, schedules())


def after(mixed, begin, rounds):
    held = PushSum.begin(begin)
    for k in range(rounds):
        held = PushSum.received(Inbox(held.messages(), mixed, k))
        yield held


class TestLaws:
    @examples(100)
    @given(every, st.integers(0, 1000))
    def test_sums_of_weights_and_values_stay(self, mixed, seed):
        begin = start(2, runs=2, nodes=mixed.nodes, seed=seed)
        for held in after(mixed, begin, 30):
            weights = held.weight.sum(1)
            torch.testing.assert_close(weights, torch.full_like(weights, mixed.nodes))
            torch.testing.assert_close(held.x.sum(1), begin.sum(1))
            # The mean is what de-biased values say, weighed as they are.
            mean = (held.weight * held.z).sum(1) / mixed.nodes
            torch.testing.assert_close(mean, begin.mean(1))

    @examples(100)
    @given(every)
    def test_agreement_is_kept_however_weights_differ(self, mixed):
        begin = start(2, nodes=1).expand(1, mixed.nodes, 2)
        for held in after(mixed, begin, 20):
            torch.testing.assert_close(held.z, begin)

    @pytest.mark.parametrize("name", GRAPHS)
    def test_all_nodes_come_to_the_mean(self, name):
        mixed = mixing(name, "column-stochastic", 8)
        begin = start(3, nodes=8)
        *_, held = after(mixed, begin, 400)
        mean = begin.mean(1, keepdim=True).expand_as(begin)
        torch.testing.assert_close(held.z, mean)

    def test_a_star_needs_its_weights(self):
        # Without them the centre would hold the mean five times over.
        *_, held = after(mixing("star", "column-stochastic", 9), start(3, nodes=9), 300)
        assert (held.weight - 1).abs().max() > 1

    @given(every, st.integers(0, 1000))
    def test_a_change_moves_the_mean_by_its_mean(self, mixed, seed):
        begin = start(2, nodes=mixed.nodes, seed=seed)
        change = start(2, nodes=mixed.nodes, seed=seed + 1)
        *_, held = after(mixed, begin, 3)
        moved = held.plus(change)
        torch.testing.assert_close(moved.x.mean(1), (begin + change).mean(1))
        assert torch.equal(moved.weight, held.weight)

    @given(schedules())
    def test_what_is_sent_is_left_alone(self, mixed):
        begin = start(2, nodes=mixed.nodes)
        held = PushSum.begin(begin.clone())
        PushSum.received(Inbox(held.messages(), mixed, 0))
        assert torch.equal(held.x, begin)
        assert bool((held.weight == 1).all())


class TestFloor:
    @examples(100)
    @given(every)
    def test_no_weight_is_ever_below(self, mixed):
        product = functools.reduce(lambda done, each: each @ done, mixed.matrices)
        values, vectors = np.linalg.eig(product)
        perron = np.abs(vectors[:, np.argmin(np.abs(values - 1))].real)
        floor, largest = perron.min(), perron.max()
        for matrix in mixed.matrices:
            perron = matrix @ perron
            floor = min(floor, perron.min())
        floor /= largest
        assert 0 < floor <= 1 + 1e-9
        begin = torch.zeros(1, mixed.nodes, 1, dtype=torch.float64)
        least = min(held.weight.min().item() for held in after(mixed, begin, 120))
        assert least >= floor * (1 - 1e-9)

    @pytest.mark.parametrize(
        ("matrix", "message"),
        [
            # Node 0 is heard and hears nobody: its weight halves in every round.
            ([[0.5, 0], [0.5, 1]], "must be connected"),
            # Weights swap, and never agree.
            ([[0, 1.0], [1, 0]], "must be positive diagonal"),
            ([[0.5, 0.5], [0.25, 0.75]], "must be column stochastic"),
        ],
    )
    def test_matrices_that_could_lose_a_weight_are_refused(self, matrix, message):
        with pytest.raises(ValueError, match=message):
            Mixing(matrix).require(NEEDS, "push-sum")
