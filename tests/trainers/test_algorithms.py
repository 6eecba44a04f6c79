"""The contract that every algorithm passes, present and future."""

import pytest
import torch

from tests.trainers.problems import oracle, random_data, start
from trainers.algorithms import ALGORITHMS
from trainers.engine import Network
from trainers.graphs import Mixing
from trainers.oracle import Mechanism

DIMS = 15
ROUNDS = 4
PRIVATE = Mechanism(lot_size=3.0, clip_norm=0.5, noise_multiplier=2.0)
FULL = Mechanism(lot_size=6.0)  # every record, no clipping, no noise
DECENTRALISED = [name for name, entry in ALGORITHMS.items() if not entry.central]

pytestmark = pytest.mark.parametrize("name", ALGORITHMS)


def network(name, nodes=3, graph="ring", step=0.1):
    mixing = Mixing.named(graph, "metropolis", nodes)
    return Network(ALGORITHMS[name].make(lambda k: step), mixing)


class Quadratic:
    """An oracle of f_i(theta) = |theta - c_i|^2 / 2, with no data behind it."""

    def __init__(self, centres):
        self.centres = centres  # (nodes, dims)
        self.nodes = len(centres)

    def gradient(self, at):
        return at - self.centres


class TestConservation:
    def test_equal_nodes_stay_equal_and_mixing_keeps_the_mean(self, name):
        # Where all gradients vanish, a round is mixing alone: the mean must stay.
        nodes = 5
        flat = Quadratic(torch.zeros(nodes, 3, dtype=torch.float64))
        flat.gradient = lambda at: torch.zeros_like(at)
        begin = start(3, nodes=nodes)
        models = network(name, nodes).run(begin, flat, 7)
        torch.testing.assert_close(models.mean(1), begin.mean(1))

    def test_what_is_given_is_left_alone(self, name):
        begin = start(DIMS, runs=2)
        kept = begin.clone()
        network(name).run(begin, oracle(PRIVATE, runs=2), ROUNDS)
        assert torch.equal(begin, kept)


class TestReduction:
    def test_a_quadratic_is_minimised(self, name):
        centres = start(4, nodes=3)[0]
        steps = ALGORITHMS[name].make(lambda k: 1 / (k + 2))
        run = Network(steps, Mixing.named("complete", "uniform", 3)).run
        models = run(
            torch.zeros(1, 3, 4, dtype=torch.float64), Quadratic(centres), 4000
        )
        central = ALGORITHMS[name].central
        optimum = centres if central else centres.mean(0).expand(3, -1)
        torch.testing.assert_close(models[0], optimum, rtol=0, atol=2e-3)

    def test_one_node_is_gradient_descent(self, name):
        shares = random_data((6,))
        models = network(name, nodes=1).run(
            start(DIMS, nodes=1), oracle(FULL, shares=shares), ROUNDS
        )
        theta, plain = start(DIMS, nodes=1), oracle(FULL, shares=shares)
        for _ in range(ROUNDS):
            theta = theta - 0.1 * plain.gradient(theta)
        torch.testing.assert_close(models, theta)


class TestLaws:
    def test_batching_does_not_change_numbers(self, name):
        begin = start(DIMS).repeat(4, 1, 1)
        private = oracle(PRIVATE, runs=4, seed=3)
        small = oracle(PRIVATE, runs=4, seed=3)
        small._memory_limit = 700
        one = network(name).run(begin, private, ROUNDS)
        other = network(name).run(begin, small, ROUNDS)
        torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-12)
        assert private.ledger == small.ledger

    def test_equal_seeds_equal_bits(self, name):
        runs = [
            network(name).run(start(DIMS), oracle(PRIVATE, seed=4), ROUNDS)
            for _ in range(2)
        ]
        assert torch.equal(*runs)

    def test_only_messages_are_mixed(self, name):
        seen = []

        class Watcher:
            def messages(self, k, sent):
                seen.append((k, sorted(sent)))

        network(name).run(start(DIMS), oracle(PRIVATE), ROUNDS, observers=[Watcher()])
        assert [k for k, _ in seen] == list(range(ROUNDS))
        assert all(names == seen[0][1] for _, names in seen)
        assert bool(seen[0][1]) == (name in DECENTRALISED)

    def test_sizes_must_agree(self, name):
        with pytest.raises(ValueError, match="must be one number"):
            network(name, nodes=4).run(start(DIMS), oracle(PRIVATE), ROUNDS)


class TestLedger:
    def test_the_noise_measured_is_the_noise_written_down(self, name):
        """From the difference of two runs that share everything but the noise."""
        runs = 300
        begin = start(DIMS).repeat(runs, 1, 1)
        noisy = oracle(PRIVATE, runs=runs, seed=8)
        exact = oracle(Mechanism(3.0, 0.5), runs=runs, seed=8)
        one = network(name).run(begin, noisy, 1)
        other = network(name).run(begin, exact, 1)
        noise = (one - other) / 0.1 * PRIVATE.lot_size
        for node in range(3):
            (entry,) = noisy.ledger.nodes[node]
            measured = noise[:, node].std().item()
            assert measured == pytest.approx(entry.release.noise, rel=0.05)
            assert entry.count == 1

    def test_every_round_asks_once(self, name):
        private = oracle(PRIVATE)
        network(name).run(start(DIMS), private, ROUNDS)
        assert private.ledger == PRIVATE.ledger((7, 5, 9), ROUNDS)
