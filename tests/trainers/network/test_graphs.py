"""Contract of graphs, named_graphs and mixing."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.tiers import examples
from trainers.network import graphs
from trainers.network.mixing import Mixing, add_up
from trainers.network.named_graphs import mixing, topology

sizes = st.integers(1, 12)
UNDIRECTED = ["complete", "path", "ring", "star"]
DIRECTED = ["directed-ring", "exponential"]


class TestWeights:
    @given(
        sizes,
        st.sampled_from(UNDIRECTED),
        st.sampled_from(["metropolis", "max-degree"]),
    )
    def test_doubly_stochastic_and_on_the_edges(self, nodes, name, rule):
        mixed = mixing(name, rule, nodes)
        matrix = mixed.at(0)
        assert {"doubly stochastic", "symmetric", "connected"} <= mixed.properties
        on = topology(name, nodes).hears[0] | np.eye(nodes, dtype=bool)
        assert (matrix[~on] == 0).all()
        np.testing.assert_allclose(matrix.sum(0), 1)
        np.testing.assert_allclose(matrix, matrix.T)

    @given(st.integers(3, 12), st.integers(0, 10**6))
    def test_metropolis_on_random_graphs(self, nodes, seed):
        mixed = mixing("erdos-renyi:0.6", "metropolis", nodes, seed=seed)
        assert "doubly stochastic" in mixed.properties
        assert mixed.connected_within == 1

    @given(st.integers(2, 12), st.sampled_from(DIRECTED))
    def test_column_stochastic_on_directed_graphs(self, nodes, name):
        mixed = mixing(name, "column-stochastic", nodes)
        for k in range(mixed.period):
            np.testing.assert_allclose(mixed.at(k).sum(0), 1)
        assert "connected" in mixed.properties

    def test_what_a_graph_is_not_is_named(self):
        mixed = mixing("star", "column-stochastic", 5)
        with pytest.raises(ValueError, match="doubly stochastic"):
            mixed.require(["doubly stochastic"], "dp-dsgd")

    @examples(50)
    @given(sizes, st.integers(0, 10**6))
    def test_mixing_is_the_matrix_product_and_keeps_the_mean(self, nodes, seed):
        mixed = mixing("ring", "metropolis", nodes)
        generator = torch.Generator().manual_seed(seed)
        sent = torch.randn(4, nodes, 5, generator=generator, dtype=torch.float64)
        kept = sent.clone()
        received = mixed(sent, 0)
        assert torch.equal(sent, kept)  # simultaneous, never in place
        matrix = torch.tensor(mixed.at(0).copy())
        torch.testing.assert_close(received, torch.einsum("ij,rjd->rid", matrix, sent))
        torch.testing.assert_close(received.mean(1), sent.mean(1))

    def test_bits_do_not_depend_on_how_many_runs_mix_together(self):
        mixed = mixing("complete", "uniform", 5)
        sent = torch.randn(9, 5, 33, generator=torch.Generator().manual_seed(0))
        apart = torch.cat([mixed(sent[i : i + 1], 3) for i in range(9)])
        assert torch.equal(mixed(sent, 3), apart)

    @pytest.mark.parametrize("dims", [1, 33, 4096, 4097])
    @pytest.mark.parametrize("name", ["ring", "star", "exponential", "complete"])
    def test_bits_do_not_depend_on_which_nodes_are_here(self, name, dims):
        """A party adds up its own nodes' inboxes, in whatever company."""
        mixed = mixing(name, "uniform", 7)
        sent = torch.randn(2, 7, dims, generator=torch.Generator().manual_seed(0))
        whole, terms = mixed(sent, 0), mixed.terms(0)
        for here in ([0], [3, 1], [2, 4, 5, 6]):
            own = add_up(sent, [terms[node] for node in here])
            assert torch.equal(own, whole[:, here])
        matrix = torch.tensor(mixed.at(0).copy())
        exact = torch.einsum("ij,rjd->rid", matrix, sent.double())
        torch.testing.assert_close(whole.double(), exact, rtol=0, atol=1e-6)

    def test_spectral_gap(self):
        assert mixing("complete", "uniform", 6).spectral_gap == pytest.approx(1)
        ring = mixing("ring", "uniform", 6).spectral_gap
        assert ring == pytest.approx(1 - (1 + 2 * np.cos(np.pi / 3)) / 3)


class TestTopologies:
    @pytest.mark.parametrize("value", [0.02, 0.06, 0.39, 0.7, 1.0])
    def test_a_wanted_fiedler_value_is_found(self, value):
        for seed in range(3):
            found = graphs.normalised_fiedler(graphs.with_fiedler(10, value, seed))
            assert abs(found - value) <= min(0.05, value / 10)

    @pytest.mark.parametrize("nodes", [2, 3, 5, 8, 20])
    def test_directed_exponential(self, nodes):
        graph = graphs.exponential(nodes)
        assert len(graph.hears) == int(np.log2(max(nodes - 1, 1))) + 1
        mixed = Mixing.of(graph, "column-stochastic")
        for k in range(mixed.period):
            matrix = mixed.at(k)
            for sender in range(nodes):
                heard_by = np.flatnonzero(matrix[:, sender])
                assert set(heard_by) == {sender, (sender + 2**k) % nodes}
                np.testing.assert_allclose(matrix[heard_by, sender], 1 / len(heard_by))
        assert mixed.connected_within is not None

    @given(st.integers(2, 12), st.integers(1, 12))
    def test_d_out(self, nodes, degree):
        if degree > nodes:
            with pytest.raises(ValueError, match="d"):
                graphs.d_out(nodes, degree)
            return
        hears = graphs.d_out(nodes, degree).hears[0] | np.eye(nodes, dtype=bool)
        assert (hears.sum(0) == degree).all()
        assert (hears.sum(1) == degree).all()

    def test_an_edge_list_of_ones_own(self, tmp_path):
        (tmp_path / "friends.csv").write_text("0,1\n1,2\n")
        mixed = mixing(f"edges:{tmp_path / 'friends.csv'}", "metropolis", 3)
        assert mixed.at(0)[0, 2] == 0
        assert "doubly stochastic" in mixed.properties


@pytest.mark.parametrize(
    "make",
    [
        lambda: topology("square", 3),
        lambda: topology("ring", 0),
        lambda: mixing("ring", "equal", 3),
        lambda: mixing("edges:nowhere.csv", "metropolis", 3),
        lambda: Mixing(np.ones((2, 3))),
        lambda: Mixing(np.array([[1.5, -0.5], [0.5, 0.5]])),
        lambda: Mixing(np.array([[0.0, 0.0], [0.5, 0.5]])),
    ],
)
def test_nonsense_is_refused(make):
    with pytest.raises(ValueError, match=r"\w+ \w+"):
        make()
