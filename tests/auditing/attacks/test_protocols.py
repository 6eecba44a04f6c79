"""Algorithms as linear protocols: against ones that are written down by hand."""

import numpy as np
import pytest

import privaudit as pa
from privaudit.accounting.views import LinearProtocol, Observer, of_observer
from privaudit.auditing.attacks.protocols import protocol_of
from tests.accounting.views.networks import gossip
from trainers.network import graphs
from trainers.network.mixing import Mixing
from trainers.runs.problem import Problem
from trainers.runs.training import training_from

SMALL = {"train": 300, "batch_size": 20.0, "model": "softmax", "digits": (0, 1, 2)}


def made(algorithm, noise=2.0, *, final_models=False, **settings):
    """The protocol of an algorithm on a few digits, and its problem."""
    values = {"algorithm": algorithm, **SMALL, **settings}
    problem = Problem.of(training_from(values, where="here"))
    ledger = problem.ledger(noise)
    return protocol_of(problem, ledger, final_models=final_models), problem


def told(protocol, observer, of):
    view = of_observer(protocol, observer, of)
    return [view.nobody_reacts, view.certified, view.everything_seen]


class TestSound:
    @pytest.mark.parametrize("graph", ["ring", "complete", "directed-ring"])
    def test_gossip_is_what_its_rule_says(self, graph):
        nodes, rounds, step = 5, 4, 0.3
        protocol, problem = made(
            "dp-dsgd", nodes=nodes, graph=graph, rounds=rounds, step_size=step
        )
        by_hand = gossip(problem.training.mixing().matrices, rounds, 2.0, step)
        np.testing.assert_array_equal(protocol.owner, by_hand.owner)
        np.testing.assert_allclose(protocol.points, by_hand.points, atol=1e-14)
        for by in (Observer.of(0), Observer.of(1, 3), Observer(wire=(0, 1))):
            for of in {0, 2, 4} - set(by.nodes):
                for one, other in zip(
                    told(protocol, by, of), told(by_hand, by, of), strict=True
                ):
                    np.testing.assert_allclose(one, other, rtol=1e-7)

    def test_push_sum_on_a_graph_that_changes(self):
        nodes, rounds, step = 4, 3, 0.5
        protocol, _ = made(
            "const-d2p",
            nodes=nodes,
            graph="exponential",
            weights="column-stochastic",
            rounds=rounds,
            step_size=step,
        )
        cycle = Mixing.of(graphs.exponential(nodes), "column-stochastic").matrices
        assert len(cycle) == 2
        held, weight = np.zeros((nodes, nodes * rounds)), np.ones(nodes)
        messages, heard, points = [], [], []
        for k in range(rounds):
            points.append(held / weight[:, None])
            held = held.copy()
            held[:, k * nodes : (k + 1) * nodes] -= step * np.eye(nodes)
            matrix = cycle[k % 2]
            messages.append(held)
            heard.append((matrix.T > 0) | np.eye(nodes, dtype=bool))
            held, weight = matrix @ held, matrix @ weight
        order = np.tile(np.arange(nodes), rounds)
        by_hand = LinearProtocol(
            nodes,
            order,
            np.concatenate(messages),
            order,
            np.concatenate(heard),
            2.0,
            points=np.concatenate(points),
        )
        for of in (1, 2, 3):
            for one, other in zip(
                told(protocol, Observer.of(0), of),
                told(by_hand, Observer.of(0), of),
                strict=True,
            ):
                np.testing.assert_allclose(one, other, rtol=1e-7)

    @pytest.mark.parametrize(
        ("algorithm", "more"),
        [("dp-dsgd", {}), ("dp-dsgt", {}), ("dp-dinno", {"optimiser": "sgd"})],
    )
    def test_a_ring_looks_the_same_both_ways_round(self, algorithm, more):
        protocol, _ = made(algorithm, nodes=7, graph="ring", rounds=8, **more)
        for far in (1, 2, 3):
            ahead = told(protocol, Observer.of(3), 3 + far)
            behind = told(protocol, Observer.of(3), 3 - far)
            for one, other in zip(ahead, behind, strict=True):
                np.testing.assert_allclose(one, other, rtol=1e-6)

    def test_final_models_tell_the_last_gradient(self):
        settings = {"nodes": 3, "graph": "complete", "rounds": 2}
        protocol, _ = made("dp-dsgd", **settings)
        assert np.isinf(told(protocol, Observer.of(1), 0)[1][-1])
        protocol, _ = made("dp-dsgd", final_models=True, **settings)
        np.testing.assert_allclose(told(protocol, Observer.of(1), 0)[1], 2, rtol=1e-9)

    def test_noise_on_a_schedule(self):
        protocol, problem = made("dyn-mu-d2p", nodes=3, rounds=4)
        planned = [entry.release.noise for entry in problem.ledger(2.0).nodes[0]]
        assert len(set(planned)) == 4
        np.testing.assert_allclose(
            protocol.noise.diagonal().reshape(4, 3)[:, 0], planned
        )


class TestRefused:
    @pytest.mark.parametrize(
        ("algorithm", "settings", "words"),
        [
            ("partpsp", {"model": "tanh-mlp", "nodes": 4}, "more of private data"),
            ("dp-dinno", {"optimiser": "adam", "rounds": 3}, "not linear"),
            ("adp2sgd", {"rounds": 10}, "in rounds over a graph"),
            ("dp-dsgd", {"rounds": 2000}, "set fewer rounds or nodes"),
        ],
    )
    def test_what_has_no_account_by_observer(self, algorithm, settings, words):
        with pytest.raises(ValueError, match=words):
            made(algorithm, **settings)


class TestPublic:
    def test_views_of_a_training(self):
        found = pa.views(
            "dp-dsgd",
            noise_multiplier=2.0,
            delta=1e-5,
            observer=[0, 1],
            unit="node",
            nodes=4,
            graph="ring",
            rounds=2,
            **SMALL,
        )
        assert [(pair.of, pair.by) for pair in found.pairs] == [(2, "0,1"), (3, "0,1")]
        assert found.relation == "replace-one"
        assert found.unit == "node"
        assert all(pair.distance == 1 for pair in found.pairs)

    @pytest.mark.parametrize(
        ("more", "words"),
        [
            ({"observer": 9}, "no node 9"),
            ({"observer": "edge:1"}, "an observer is a node"),
            ({"unit": "bit"}, "unit is record or node"),
            ({"unit": "node", "relation": "add-or-remove-one"}, "replace-one"),
            ({"noise_multiplier": -1.0}, "noise_multiplier must be"),
            ({"delta": 0.0}, "delta must be in"),
            ({"nodez": 3}, "did you mean nodes"),
        ],
    )
    def test_what_is_wrong_is_one_sentence(self, more, words):
        given = {"noise_multiplier": 1.0, "delta": 1e-5, "rounds": 2, **SMALL, **more}
        with pytest.raises(ValueError, match=words):
            pa.views("dp-dsgd", **given)

    def test_a_central_algorithm_has_no_observers(self):
        with pytest.raises(ValueError, match="at one place"):
            pa.views("dp-sgd", noise_multiplier=1.0, delta=1e-5)

    @pytest.mark.parametrize("observer", [None, 2])
    def test_a_picture(self, tmp_path, observer):
        path = tmp_path / "views.svg"
        given = {"nodes": 3, "rounds": 2, **SMALL}
        pa.views(
            "dp-dsgd",
            noise_multiplier=1.0,
            delta=1e-5,
            observer=observer,
            plot=path,
            **given,
        )
        assert b"epsilon, at most" in path.read_bytes()
