"""Sums by recursive doubling: the theorem, against the algorithm's own linear map."""

import dataclasses

import numpy as np
import pytest
import torch

import privaudit as pa
from privaudit.accounting import Certificate
from privaudit.accounting.views import Observer, of_observer
from privaudit.accounting.views.butterfly import exchanges, fresh_noises, places
from privaudit.auditing.attacks.protocols import protocol_of
from privaudit.ledger import Entry, Ledger
from trainers.algorithms.butterfly import Butterfly
from trainers.network.engine import Network
from trainers.network.named_graphs import mixing
from trainers.runs.problem import Problem
from trainers.runs.training import training_from

SMALL = {"train": 300, "batch_size": 10.0, "model": "softmax", "digits": (0, 1, 2)}


def made(nodes, rounds, **more):
    """A problem on a few digits."""
    values = {"algorithm": "dp-butterfly", "graph": "butterfly", "nodes": nodes}
    return Problem.of(
        training_from({**values, "rounds": rounds, **SMALL, **more}, where="here")
    )


class TestPlaces:
    @pytest.mark.parametrize("nodes", [2, 4, 8, 16, 64, 1024])
    def test_every_pair_meets_equally_often(self, nodes):
        for apart in {1, nodes // 2, nodes - 1}:
            met = fresh_noises(nodes, nodes - 1, 0, Observer.of(apart))
            for bit in range(exchanges(nodes)):
                assert (met == 1 << bit).sum() == 1 << bit

    @pytest.mark.parametrize("nodes", [2, 4, 8, 16])
    def test_each_step_gives_each_node_a_place_of_its_own(self, nodes):
        assert (np.sort(places(nodes), axis=1) == np.arange(nodes)).all()

    def test_several_hear_what_the_nearest_hears(self):
        one, other = (fresh_noises(8, 7, 0, Observer.of(v)) for v in (3, 5))
        both = fresh_noises(8, 7, 0, Observer.of(3, 5))
        np.testing.assert_array_equal(both, np.minimum(one, other))

    @pytest.mark.parametrize("nodes", [1, 3, 6, 2048])
    def test_other_numbers_of_nodes(self, nodes):
        with pytest.raises(ValueError, match="power of two"):
            exchanges(nodes)


class TestTheorem:
    @pytest.mark.parametrize(
        ("nodes", "rounds", "by"),
        [
            (4, 12, Observer.of(1)),
            (4, 7, Observer.of(1)),  # the last step is not finished
            (4, 12, Observer.of(1, 3)),
            (8, 21, Observer.of(2)),
            (8, 21, Observer.of(2, 5, 6)),
        ],
        ids=str,
    )
    @pytest.mark.parametrize("momentum", [0.0, 0.9])
    def test_it_is_what_the_messages_tell(self, nodes, rounds, by, momentum):
        problem = made(nodes, rounds, momentum=momentum)
        noise = 2.0
        protocol = protocol_of(problem, problem.ledger(noise))
        complete = rounds - rounds % exchanges(nodes)
        steps = complete // exchanges(nodes)
        for of in sorted(set(range(nodes)) - set(by.nodes)):
            view = of_observer(protocol, by, of)
            right = noise * np.sqrt(
                fresh_noises(nodes, -(-rounds // exchanges(nodes)), of, by)
            )
            for found in (view.nobody_reacts, view.certified):
                np.testing.assert_allclose(found[:steps], right[:steps], rtol=1e-9)
                assert (found[steps:] >= right[steps:] * (1 - 1e-9)).all()
            np.testing.assert_allclose(view.everything_seen, noise, rtol=1e-9)

    def test_what_two_of_a_wire_and_all_hear_is_the_ledgers(self):
        for observer in ("edge:1-2", "everybody"):
            found = pa.views(
                "dp-butterfly",
                noise_multiplier=2.0,
                delta=1e-5,
                observer=observer,
                nodes=4,
                graph="butterfly",
                rounds=12,
                **SMALL,
            )
            for pair in found.pairs:
                assert pair.certified == pair.everything_seen

    def test_the_figures_are_those_of_different_steps(self):
        problem = made(8, 42)
        found = pa.views(
            "dp-butterfly",
            noise_multiplier=1.5,
            delta=1e-5,
            observer=3,
            nodes=8,
            graph="butterfly",
            rounds=42,
            **SMALL,
        )
        for pair in found.pairs:
            (entry,) = problem.ledger(1.5).nodes[pair.of]
            sizes = fresh_noises(8, 14, pair.of, Observer.of(3))
            entries = tuple(
                Entry(
                    pa.Release.of_sum(
                        norm_bound=entry.release.norm_bound,
                        noise_multiplier=1.5 * float(size) ** 0.5,
                        sampling=entry.release.sampling,
                    )
                )
                for size in sizes
            )
            right = Certificate.of(Ledger(nodes=(entries,))).epsilon(1e-5)
            assert right.lower <= pair.certified <= right.upper * (1 + 2e-3)
            assert pair.certified < 0.8 * pair.everything_seen

    def test_momentum_of_a_nodes_own_would_break_it(self):
        # What is planted: each node sends its release and half of its last one.
        @dataclasses.dataclass(frozen=True)
        class Resends(Butterfly):
            def local(self, state, private, k):
                if k % self.exchanges:
                    return state
                fresh = private.gradient(at=state.theta)
                mine = fresh + 0.5 * state.velocity
                return dataclasses.replace(state, partial=mine, velocity=fresh)

            def round(self, state, inbox, private, k):
                done = super().round(state, inbox, private, k)
                return dataclasses.replace(done, velocity=state.velocity)

        problem = made(4, 12)
        graph = problem.network.mixing
        wrong = dataclasses.replace(
            problem, network=Network(Resends(lambda k: 0.1, 0.0, 2), graph)
        )
        protocol = protocol_of(wrong, problem.ledger(1.0))
        view = of_observer(protocol, Observer.of(1), 0)
        claimed = (1 / fresh_noises(4, 6, 0, Observer.of(1))).sum()
        assert (view.certified**-2.0).sum() > 1.15 * claimed


class TestAlgorithm:
    @pytest.mark.parametrize("nodes", [2, 4, 8])
    def test_all_nodes_are_equal_to_the_bit_and_descend_the_mean(self, nodes):
        class Gradients:
            def __init__(self):
                self.nodes = nodes
                self.asked = []

            def gradient(self, at):
                generator = torch.Generator().manual_seed(len(self.asked))
                self.asked.append(at.clone())
                return torch.randn(at.shape, generator=generator)

        k = exchanges(nodes)
        network = Network(
            Butterfly(lambda _: 0.1, 0.5, k), mixing("butterfly", "uniform", nodes)
        )
        begin = torch.randn(2, 1, 5).repeat(1, nodes, 1)
        oracle = Gradients()
        models = network.run(begin, oracle, 5 * k)
        assert len(oracle.asked) == 5
        for at in (*oracle.asked, models):
            assert torch.equal(at, at[:, :1].expand_as(at))
        theta, velocity = begin[:, 0], 0
        again = Gradients()
        for _ in range(5):
            velocity = 0.5 * velocity + again.gradient(begin).mean(1)
            theta = theta - 0.1 * velocity
        assert torch.allclose(models[:, 0], theta, atol=1e-5)

    @pytest.mark.parametrize(
        "more",
        [
            {"graph": "ring"},
            {"graph": "complete"},
            {"graph": "exponential"},
            {"weights": "metropolis"},
        ],
        ids=str,
    )
    def test_only_on_its_own_graph(self, more):
        if more == {"weights": "metropolis"}:  # the same: each has one partner
            made(4, 4, **more)
            return
        with pytest.raises(ValueError, match="graph=butterfly"):
            made(4, 4, **more)

    def test_other_numbers_of_nodes_are_one_sentence(self):
        with pytest.raises(ValueError, match="a power of two, got 6"):
            made(6, 4)

    def test_momentum_out_of_range(self):
        with pytest.raises(ValueError, match="momentum must be in"):
            made(4, 4, momentum=1.0)
