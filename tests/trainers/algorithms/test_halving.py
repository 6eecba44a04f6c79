"""Sums by recursive halving: the bits of recursive doubling, and fewer of them sent."""

import numpy as np
import pytest
import torch

import privaudit as pa
from privaudit.accounting.views.butterfly import exchanges, hears
from privaudit.auditing.attacks.linear import LinearMap
from tests.trainers.algorithms.test_butterfly import made
from trainers import contract
from trainers.network.engine import Network
from trainers.numerics.randomness import Streams
from trainers.oracles.recording import Messages
from trainers.runs.problem import Observers

NODES = [2, 3, 4, 6, 8]


def trained(problem, seed=0, runs=2):
    """The nodes' models, and what they sent."""
    sent = Messages()
    models, ledger = problem.train(
        1.0, Streams(seed), runs=runs, observers=Observers(messages=(sent,))
    )
    return models, sent.sent, ledger


def both(nodes, steps, **more):
    """The same training by doubling, and by halving."""
    return [
        made(nodes, steps * exchanges(nodes, graph), graph=graph, **more)
        for graph in ("butterfly", "halving")
    ]


class TestSameBits:
    @pytest.mark.parametrize("nodes", NODES)
    def test_models_and_ledger_are_those_of_doubling(self, nodes):
        one, other = (trained(p) for p in both(nodes, 4, momentum=0.5))
        assert torch.equal(one[0], other[0])
        assert one[2] == other[2]

    def test_more_parts_than_coordinates(self):
        class Gradients:
            nodes = 8

            def gradient(self, at):
                return torch.arange(24).reshape(1, 8, 3).double().expand(*at.shape)

        for steps in (1, 2):
            found = []
            for problem in both(8, steps):
                network = problem.network
                start = torch.zeros(1, 8, 3)
                rounds = steps * exchanges(8, "halving")
                if network.algorithm.exchanges == 3:
                    rounds //= 2
                found.append(network.run(start, Gradients(), rounds))
            assert torch.equal(*found)
            assert found[0].any()


class TestHeard:
    """The theorem's argument: all that is heard is heard by doubling as well."""

    @pytest.mark.parametrize("nodes", NODES)
    def test_every_number_heard_is_one_that_doubling_tells(self, nodes):
        doubled, halved = both(nodes, 3)
        sent = [trained(p, runs=1)[1] for p in (doubled, halved)]
        each = [exchanges(nodes, graph) for graph in ("butterfly", "halving")]
        ways = [hears(nodes, graph) for graph in ("butterfly", "halving")]
        for step in range(3):
            told = []
            for messages, many, way in zip(sent, each, ways, strict=True):
                heard = [set() for _ in range(nodes)]
                for k in range(step * many, (step + 1) * many):
                    message = messages[k]["partial"][0]
                    for i, j in zip(*np.nonzero(way[k % len(way)]), strict=True):
                        heard[i] |= set(message[j].tolist())
                told.append(heard)
            # All have the sum of all in the end, and some are told it as such.
            total = sum(sent[0][step * each[0]]["partial"][0]).tolist()
            for doubling, halving in zip(*told, strict=True):
                assert halving - {0.0} <= doubling | set(total)

    @pytest.mark.parametrize(("nodes", "share"), [(2, 1), (4, 3 / 4), (8, 7 / 12)])
    def test_how_many_numbers_go_over_wires(self, nodes, share):
        # 2 (1 - 1 / n) of a vector a node and step, for log2(n) of them.
        numbers = []
        for problem in both(nodes, 1, model="softmax"):
            assert isinstance(problem.network, Network)
            _, sent, _ = trained(problem, runs=1)
            way = hears(nodes, problem.training.graph)
            numbers.append(
                sum(
                    int(way[k].sum()) * sent[k]["partial"].shape[2]
                    for k in range(len(sent))
                )
            )
        assert numbers[1] / numbers[0] == pytest.approx(share, rel=0.05)


@pytest.mark.parametrize(("nodes", "rounds"), [(4, 9), (6, 13)])
def test_the_contract(nodes, rounds):
    settings = {"nodes": nodes, "graph": "halving", "rounds": rounds}
    contract.check("dp-butterfly", settings, plain="butterfly")


def test_a_chain_is_no_halving():
    with pytest.raises(ValueError, match="for graph=chain with uniform"):
        made(4, 4, algorithm="dp-chain", graph="halving")


def test_attacks_by_messages_say_that_they_cannot_read_parts():
    with pytest.raises(ValueError, match="of graph=butterfly the same is learned"):
        LinearMap.of(made(6, 6, graph="halving"), [[0, 1]], models=False)


def test_what_is_learned_is_what_doubling_tells():
    found = [
        pa.views(
            "dp-butterfly",
            noise_multiplier=2.0,
            delta=1e-5,
            observer=1,
            nodes=4,
            graph=graph,
            rounds=3 * exchanges(4, graph),
            train=300,
        ).summary()["views"]
        for graph in ("butterfly", "halving")
    ]
    assert found[0] == found[1]
    assert found[0][0]["certified"] < found[0][0]["everything_seen"]
