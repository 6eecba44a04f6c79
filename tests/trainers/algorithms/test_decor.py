"""Gossip with noise that cancels pairwise: what it draws, and who learns what."""

import mpmath
import networkx as nx
import numpy as np
import pytest
import torch

import privaudit as pa
from privaudit.accounting.views import Observer, of_observer
from privaudit.auditing.attacks.protocols import protocol_of
from trainers import contract
from trainers.numerics.keys import Key
from trainers.numerics.randomness import Streams
from trainers.oracles.recording import Recording
from trainers.runs.problem import Observers, Problem
from trainers.runs.training import training_from

SMALL = {"train": 300, "batch_size": 10.0, "model": "softmax", "digits": (0, 1, 2)}
GRAPHS = {"ring": nx.cycle_graph, "star": lambda n: nx.star_graph(n - 1)}


def made(graph="ring", nodes=5, rounds=2, **more):
    """A problem on a few digits."""
    values = {"algorithm": "dp-decor", "graph": graph, "nodes": nodes}
    values |= {"weights": "metropolis", "rounds": rounds, **SMALL, **more}
    return Problem.of(training_from(values, where="here"))


def laplacian(graph, nodes, without=()):
    """Of the nodes that are left, with all edges between them."""
    left = GRAPHS[graph](nodes)
    left.remove_nodes_from(without)
    return nx.laplacian_matrix(left, nodelist=sorted(left)).toarray()


def released(problem, noise, streams):
    """What the oracle gave out, (releases, nodes, dims), in units of its noise."""
    seen = Recording()
    problem.train(noise, streams, observers=Observers(releases=(seen,)))
    given = torch.stack([one[0].double() for _, one in seen.releases])
    return given * problem.training.batch_size / problem.training.clip_norm / noise


class TestNoise:
    @pytest.mark.parametrize("graph", [*GRAPHS])
    def test_its_covariance_is_the_graphs_laplacian(self, graph):
        # So much noise that sums of gradients are nothing beside it.
        problem = made(graph, rounds=40, correlated=2.0, step_size=1e-9)
        drawn = released(problem, 1e4, Streams(0)).transpose(0, 1).flatten(1)
        right = np.eye(5) + 4 * laplacian(graph, 5)
        found = np.cov(drawn.numpy())
        # Deviations of a covariance of so many numbers.
        size = np.sqrt(np.outer(right.diagonal(), right.diagonal()) + right**2)
        assert (abs(found - right) < 5 * size / drawn.shape[1] ** 0.5).all()

    @pytest.mark.parametrize("key", [0, Key.secret()])
    def test_it_cancels_in_the_sum_of_all(self, key):
        plain = released(made(correlated=0.0), 1e3, Streams(key)).sum(1)
        large = released(made(correlated=1000.0), 1e3, Streams(key))
        assert large.std() > 1000
        assert 0.8 < large.sum(1).std() / plain.std() < 1.25

    def test_each_round_has_other_secrets(self):
        one, other = released(made(correlated=100.0, step_size=1e-9), 10.0, Streams(0))
        assert abs(np.corrcoef(one.flatten(), other.flatten())[0, 1]) < 0.1


class TestLearned:
    @pytest.mark.parametrize("graph", [*GRAPHS])
    @pytest.mark.parametrize("inside", [(), (3,), (0,), (2, 3)])
    def test_everything_seen_is_the_noise_that_is_left(self, graph, inside):
        # Of all releases, secrets of the observer's own taken off.
        problem = made(graph, correlated=3.0)
        protocol = protocol_of(problem, problem.ledger(2.0))
        who = Observer.of(*inside) if inside else Observer(everybody=True)
        rest = [node for node in range(5) if node not in inside]
        told = mpmath.inverse(
            mpmath.eye(len(rest)) + 9 * mpmath.matrix(laplacian(graph, 5, inside))
        )
        for row, node in enumerate(rest):
            view = of_observer(protocol, who, node)
            right = 2.0 / mpmath.sqrt(told[row, row])
            for noise in view.everything_seen / problem.training.clip_norm:
                assert noise == pytest.approx(float(right), rel=1e-9)

    def test_who_knows_all_secrets_learns_what_the_ledger_says(self):
        problem = made(nodes=4, graph="complete", correlated=50.0)
        protocol = protocol_of(problem, problem.ledger(2.0))
        view = of_observer(protocol, Observer.of(1, 2, 3), 0)
        right = problem.ledger(2.0).nodes[0][0].release.noise
        np.testing.assert_allclose(view.everything_seen, right, rtol=1e-9)

    def test_secrets_protect_from_a_neighbour_by_proof(self):
        known = {"noise_multiplier": 2.0, "delta": 1e-5, "observer": 2, "graph": "ring"}
        hidden, bare = (
            pa.views("dp-decor", nodes=5, rounds=3, correlated=c, **known, **SMALL)
            for c in (20.0, 0.0)
        )
        for one, other in zip(hidden.pairs, bare.pairs, strict=True):
            assert one.nobody_reacts <= one.certified <= one.everything_seen
            assert one.certified < 0.7 * other.certified


def test_the_contract():
    contract.check("dp-decor", {"nodes": 5, "graph": "ring"}, plain="decor")


@pytest.mark.parametrize("share", [-1.0, 2000.0, float("nan")])
def test_how_much_is_correlated_is_checked(share):
    with pytest.raises(ValueError, match="correlated must be >= 0 and <= 1,000"):
        made(correlated=share)


def test_directed_graphs_have_no_pairs():
    with pytest.raises(ValueError, match="undirected"):
        made("directed-ring", weights="uniform")
