"""Contract of trainers.graphs."""

import networkx
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from trainers.graphs import Mixing, mixing_weights, undirected

sizes = st.integers(1, 12)


class TestSound:
    @given(
        sizes,
        st.sampled_from(["complete", "ring"]),
        st.sampled_from(["uniform", "metropolis"]),
    )
    def test_doubly_stochastic_and_on_the_edges(self, nodes, name, rule):
        graph = undirected(name, nodes)
        matrix = mixing_weights(graph, rule)
        assert Mixing(matrix).doubly_stochastic
        np.testing.assert_allclose(matrix, matrix.T)
        on = networkx.to_numpy_array(graph) + np.eye(nodes) > 0
        assert (matrix[~on] == 0).all()
        assert (matrix[on] > 0).all()

    @given(st.integers(2, 15), st.integers(0, 10**6))
    def test_metropolis_on_any_graph(self, nodes, seed):
        graph = networkx.gnp_random_graph(nodes, 0.5, seed=seed)
        assert Mixing(mixing_weights(graph, "metropolis")).doubly_stochastic

    def test_uniform_weights_are_refused_where_they_are_biased(self):
        with pytest.raises(ValueError, match="metropolis"):
            mixing_weights(networkx.star_graph(4), "uniform")

    @settings(max_examples=50)
    @given(sizes, st.integers(0, 10**6))
    def test_mixing_is_the_matrix_product_and_keeps_the_mean(self, nodes, seed):
        mixing = Mixing.named("ring", "metropolis", nodes)
        generator = torch.Generator().manual_seed(seed)
        sent = torch.randn(4, nodes, 5, generator=generator, dtype=torch.float64)
        kept = sent.clone()
        mixed = mixing(sent)
        assert torch.equal(sent, kept)  # simultaneous, never in place
        matrix = torch.tensor(mixing.matrix)
        torch.testing.assert_close(mixed, torch.einsum("ij,rjd->rid", matrix, sent))
        torch.testing.assert_close(mixed.mean(1), sent.mean(1))

    def test_bits_do_not_depend_on_how_many_runs_mix_together(self):
        mixing = Mixing.named("complete", "uniform", 5)
        sent = torch.randn(9, 5, 33, generator=torch.Generator().manual_seed(0))
        apart = torch.cat([mixing(sent[i : i + 1]) for i in range(9)])
        assert torch.equal(mixing(sent), apart)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: undirected("star", 3), "choose one of"),
        (lambda: undirected("ring", 0), "at least one"),
        (lambda: mixing_weights(undirected("ring", 3), "equal"), "choose one of"),
        (lambda: Mixing(np.ones((2, 3))), "square"),
        (lambda: Mixing(np.array([[1.5, -0.5], [0.5, 0.5]])), ">= 0"),
    ],
)
def test_nonsense_is_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()
