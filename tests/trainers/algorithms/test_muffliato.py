"""Muffliato: gossip between steps, and what an observer learns of it."""

import numpy as np
import pytest
import torch

import privaudit as pa
from tests.trainers.contract import Flat
from trainers import contract
from trainers.algorithms.muffliato import Muffliato, acceleration
from trainers.network.engine import Network
from trainers.network.named_graphs import mixing
from trainers.runs.problem import Problem
from trainers.runs.training import training_from

SMALL = {"train": 200, "batch_size": 10.0, "model": "softmax", "digits": (0, 1)}
RING = {"nodes": 6, "graph": "ring", **SMALL}


class _Steps(Flat):
    """Gradients that are the node's number, kept."""

    asked = 0

    def gradient(self, at):
        self.asked += 1
        return torch.arange(self.nodes, dtype=at.dtype)[None, :, None].expand_as(at)


@pytest.mark.parametrize("gossips", [1, 3])
def test_the_contract(gossips):
    settings = {"gossips": gossips, "rounds": 5}
    contract.check("dp-muffliato", settings, plain="muffliato")


@pytest.mark.parametrize("gamma", [1.0, 1.4])
def test_a_step_is_a_polynomial_of_the_weights(gamma):
    # Against powers of W, by the three-term recursion written down as matrices.
    on, oracle = mixing("ring", "metropolis", 6), _Steps(6)
    begin = torch.zeros(1, 6, 2, dtype=torch.float64)
    found = Network(Muffliato(lambda k: 0.5, 4, gamma), on).run(begin, oracle, 8)
    weights = on.at(0)
    last, here = np.eye(6), gamma * weights + (1 - gamma) * np.eye(6)
    for _ in range(3):
        last, here = here, gamma * weights @ here + (1 - gamma) * last
    right = here @ (here + np.eye(6)) @ (-0.5 * np.arange(6.0))
    assert oracle.asked == 2
    np.testing.assert_allclose(found[0, :, 0], right, atol=1e-12)


def test_acceleration_averages_faster():
    on, begin = mixing("ring", "metropolis", 12), torch.randn(1, 12, 40).double()
    apart = {}
    for gamma in (1.0, acceleration(on.spectral_gap)):
        network = Network(Muffliato(lambda k: 0.0, 40, gamma), on)
        left = network.run(begin, Flat(12), 40)
        torch.testing.assert_close(left.mean(1), begin.mean(1))
        apart[gamma] = float((left - begin.mean(1, keepdim=True)).norm())
    plain, fast = apart.values()
    assert fast < 0.2 * plain


def test_its_gamma_is_the_graphs():
    training = training_from({"algorithm": "dp-muffliato", **RING}, where="here")
    gap = training.mixing().spectral_gap
    assert training.make().gamma == acceleration(gap)
    plain = training_from(
        {"algorithm": "dp-muffliato", **RING, "accelerated": False}, where="here"
    )
    assert plain.make().gamma == 1
    with pytest.raises(ValueError, match="accelerated=false"):
        training_from(
            {"algorithm": "dp-muffliato", **RING, "graph": "exponential"}, where="here"
        ).make()


class TestViews:
    """Averaging is certified as fixed vectors are; descent is not."""

    @staticmethod
    def far(rounds, graph="star"):
        """A leaf of a star by another, or who is farthest on a ring."""
        found = pa.views(
            "dp-muffliato",
            noise_multiplier=4.0,
            delta=1e-5,
            observer=3,
            gossips=4,
            rounds=rounds,
            **{**RING, "graph": graph, "weights": "metropolis"},
        )
        return max(found.pairs, key=lambda pair: pair.distance)

    def test_averaging_protects(self):
        # One step, taken at a start that all know.
        pair = self.far(4)
        assert pair.certified == pair.nobody_reacts < 0.7 * pair.everything_seen

    def test_on_a_ring_many_rounds_of_gossip_tell_all(self):
        # Each round tells of one node more on either side, and nothing is left hidden.
        pair = self.far(4, "ring")
        assert pair.distance == 3
        assert pair.nobody_reacts == pytest.approx(pair.everything_seen)

    def test_descent_relays(self):
        pair = self.far(12)
        assert pair.nobody_reacts < 0.8 * pair.certified
        assert pair.certified > self.far(4).everything_seen

    def test_a_step_is_one_release(self):
        problem = Problem.of(
            training_from(
                {"algorithm": "dp-muffliato", **RING, "rounds": 9}, where="here"
            )
        )
        ledger = problem.ledger(1.0)
        assert {sum(e.count for e in node) for node in ledger.nodes} == {3}


@pytest.mark.parametrize(
    ("option", "words"), [({"gossips": 0}, "gossips must be >= 1, got 0")]
)
def test_options_out_of_range(option, words):
    with pytest.raises(ValueError, match=words):
        training_from({"algorithm": "dp-muffliato", **option}, where="here")
